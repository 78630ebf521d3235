"""The ground gives way: tokens end, branches, issues and repositories go, conversations are locked, documents between
jobs are not what they should be. Each has a clear outcome, and what can be repeated is."""

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest
from typing_extensions import override

from bot.errors import DataError, GitHubError, UsageError
from bot.forge.refusals import RequestRefusedError
from bot.github.client import connect
from bot.github.push import Remote, default_branch
from bot.handlers.evidence import APPROVAL, EXAM
from bot.handlers.publish import Publisher, publish
from bot.handlers.run import DOCUMENT_LIMIT, Candidate, RunFolder
from tests.handlers.conftest import PATH
from tests.handlers.street import BOTS_OWN, Street
from tests.report.builders import evaluation
from tests.verify.conftest import CENTER, HONEST


def run_job(command: list[str], folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A job's command, with nothing of our environment but where programs are."""
    root = str(Path(__file__).parents[2])
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": root, "HOME": str(folder), **environment}
    whole = [sys.executable, "-m", "bot", *command]
    return subprocess.run(whole, cwd=CENTER.parents[1], env=known, capture_output=True, text=True, check=False)


# Secrets


@pytest.mark.parametrize("token", ["", None], ids=["empty, as a secret that is not set", "absent"])
def test_a_job_without_its_token_names_it(tmp_path: Path, token: str | None) -> None:
    event = tmp_path / "event.json"
    event.write_text("{}", encoding="utf-8")
    known = {"GITHUB_EVENT_NAME": "issues", "GITHUB_EVENT_PATH": str(event), "GITHUB_REPOSITORY": "acme/kernels"}
    known |= {} if token is None else {"GITHUB_TOKEN": token}
    for command in ("gate", "publish", "reconcile"):
        done = run_job([command], tmp_path, **known)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "proctor: this command runs inside a workflow; not set: GITHUB_TOKEN\n"


def test_an_agent_without_its_key_names_it(street: Street, tmp_path: Path) -> None:
    _, run = street.town.label(street.town.open_issue())
    command = ["agent", "--run", str(run.path), "--model", "anthropic:claude-opus-4-6"]
    done = run_job(command, tmp_path, ANTHROPIC_API_KEY="")
    assert done.returncode == 2
    assert "anthropic:claude-opus-4-6 needs ANTHROPIC_API_KEY in the environment" in done.stderr


def test_a_token_that_ends_in_mid_run_leaves_what_a_repetition_completes(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pull request is open, and then the token ends: nothing is said twice when the job runs again."""
    town = street.town
    issue = town.open_issue()
    _, run = town.label(issue)
    run.write_candidate(Candidate(path=PATH, source=HONEST))
    accounts = town.forge.state.accounts
    before, opened = accounts.admit, town.forge.state.open_pull

    def ended(*_: Any) -> None:
        raise RequestRefusedError(401, "Bad credentials")

    def opens(*arguments: Any, **fields: Any) -> Any:
        made = opened(*arguments, **fields)
        monkeypatch.setattr(accounts, "admit", ended)
        return made

    monkeypatch.setattr(town.forge.state, "open_pull", opens)
    with pytest.raises(GitHubError, match=r"; the token is not valid, or not any more: repeat the run"):
        street.finish(run)
    monkeypatch.setattr(accounts, "admit", before)
    number = street.published(run).pull
    assert number is not None
    assert [pull.number for pull in town.github.open_pulls()] == [number]
    assert len(town.said(number)) == len(town.said(issue)) == 1
    assert street.statuses(number)[EXAM][0] == "success"


# What is gone


def test_a_deleted_branch_closes_its_pull_request_and_its_exam_still_ends(
    street: Street,
) -> None:
    number = street.proposal({PATH: HONEST})
    _, run = street.town.comment(number, "/verify")
    street.town.forge.state.delete_ref("maintainer", "refs/heads/faster")
    done = street.finish(run)
    assert (done.pull, done.verdict and done.verdict.kind.value) == (number, "improved")
    assert street.statuses(number)[EXAM][0] == "success"
    assert APPROVAL not in street.statuses(number), "a closed pull request is approved by nobody"
    assert street.refused(number, "/verify") == "E_CLOSED"


def test_evidence_whose_branch_is_deleted_is_no_evidence(street: Street) -> None:
    number = street.proposal({PATH: HONEST})
    _, run = street.town.comment(number, "/verify", "reviewer")
    street.finish(run)
    street.town.forge.state.delete_ref("maintainer", "refs/heads/proctor/evidence")
    assert street.refused(number, "/approve 0123456789abcdef", "reviewer") == "E_NOT_EXAMINED"


def test_a_renamed_repository_is_followed_and_one_that_is_gone_is_said(street: Street) -> None:
    """GitHub answers for an old name with the address of the new one."""
    issue = street.town.open_issue()
    target = street.town.forge.api_url

    class Moved(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "/acme/old/" in self.path:
                self.send_response(301)
                self.send_header("Location", f"http://{self.headers['Host']}{self.path.replace('/old/', '/kernels/')}")
                data = b""
            else:
                request = Request(target + self.path, headers={"Authorization": self.headers["Authorization"]})  # noqa: S310
                with urlopen(request) as answer:  # noqa: S310 - the forge
                    data = answer.read()
                self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Moved)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        old = connect(f"http://127.0.0.1:{server.server_port}", "bot-token", "acme/old")
        assert old.issue(issue).number == issue
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    gone = Remote(street.town.forge.clone_url.replace("/kernels", "/never"), "bot-token")
    with pytest.raises(GitHubError, match="git ls-remote failed"):
        default_branch(gone)


def lock(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nobody can comment."""

    def locked(*_: Any, **__: Any) -> None:
        raise RequestRefusedError(403, "Unable to create comment because issue is locked.")

    for name in ("comment", "edit_comment"):
        monkeypatch.setattr(street.town.forge.state, name, locked)


def test_in_a_locked_conversation_nothing_starts(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    issue = street.town.open_issue()
    street.town.person("maintainer").post(f"issues/{issue}/labels", labels=["optimize"])
    lock(street, monkeypatch)
    passed, run = street.town.gate()
    assert passed.why.startswith("not answered: the issue is gone or its conversation locked")
    assert not run.path.exists()


def test_an_exam_of_a_pull_request_that_is_locked_meanwhile_sets_its_statuses(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = street.proposal({PATH: HONEST})
    _, run = street.town.comment(number, "/verify", "reviewer")
    lock(street, monkeypatch)
    street.finish(run)
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs")
    assert street.statuses(number)[APPROVAL][0] == "pending"


# Documents between jobs


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


BAD_DOCUMENTS = {
    "truncated": (truncated, "Invalid JSON"),
    "empty": (lambda _: b"", "Invalid JSON"),
    "of a version to come": (lambda data: data.replace(b'version": 1', b'version": 2', 1), "schema_version"),
    "with a field nobody knows": (lambda data: data.replace(b"{", b'{"shell": "rm",', 1), "shell"),
    "with a number that is none": (lambda data: data.replace(b'"seconds": 46.0', b'"seconds": NaN', 1), "seconds"),
}


@pytest.mark.parametrize("how", BAD_DOCUMENTS)
def test_a_document_that_is_not_what_it_should_be_is_refused_with_its_path(tmp_path: Path, how: str) -> None:
    folder = RunFolder(tmp_path)
    folder.write_evaluation(evaluation(), 1)
    place = tmp_path / "evaluations" / "001.json"
    change, said = BAD_DOCUMENTS[how]
    data = place.read_bytes()
    place.write_bytes(change(data))
    assert place.read_bytes() != data
    with pytest.raises(DataError, match=said):
        folder.evaluations()


def test_a_document_beyond_all_measure_is_not_read(tmp_path: Path) -> None:
    place = tmp_path / "candidate.json"
    place.write_bytes(b" " * (DOCUMENT_LIMIT + 1))
    with pytest.raises(DataError, match=f"at most {DOCUMENT_LIMIT} are read"):
        RunFolder(tmp_path).candidate()


def test_a_candidate_elsewhere_than_among_kernels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "candidate.json").write_text('{"path": ".github/workflows/ci.yml", "source": "x"}', encoding="utf-8")
    with pytest.raises(DataError, match="path"):
        RunFolder(tmp_path).candidate()


def test_a_publisher_without_an_order_says_so(street: Street, tmp_path: Path) -> None:
    from bot.github.push import Identity

    tools = Publisher(street.town.github, Remote("nowhere"), RunFolder(tmp_path), Identity("Proctor", BOTS_OWN))
    with pytest.raises(UsageError, match="holds no order: the gate let nothing through"):
        publish(tools)
