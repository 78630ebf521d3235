"""What a pull request rests on: its order, all evaluations of its runs, and their digest.

The evaluation that opened a pull request of the bot is at its head; reruns never push there, theirs are on a branch of
evidence. Of any other pull request, and of the bot's once people changed it, everything is on that branch: what a head
holds that others wrote is no record.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot import digest
from bot.contract.load import Incumbents, parse_yaml, validate
from bot.contract.schema import Device
from bot.errors import UsageError
from bot.evaluation import AgentRun, BaselineSource, Evaluation
from bot.github.api import GHOST, GitHub, Pull, PullFile, Status, StatusState
from bot.github.approvals import Evidence, evidence_digest
from bot.github.claims import EVIDENCE_BRANCH, issue_of
from bot.github.push import Remote, branch_tip, list_files, read_files
from bot.github.refusals import KERNEL_FILES, KERNEL_NAME, KERNEL_TEXT, NO_RECORD, OTHER_FILES
from bot.handlers.project import SOURCE_LIMIT
from bot.handlers.run import Candidate, Order, parse_document
from bot.sanitize import code_span, plain_line
from bot.verdict import Kind, Verdict, decide

EXAM = "proctor/exam"
"""The status that says what the exam found."""
APPROVAL = "proctor/approval"
"""The status that says whether people approved the evidence."""
REPORT = "report"
"""Kind of the sticky comment that holds the report."""
RUN_URL = re.compile(r"/actions/runs/(\d{1,19})\Z")
"""Where a status that says that an exam goes on leads to."""
PUBLISHED = frozenset({Kind.IMPROVED, Kind.MIXED})
"""Verdicts that become a pull request; a kernel that gains nothing is a result for the issue."""


@dataclass(frozen=True, slots=True)
class Record:
    """Order and runs of one pull request, oldest run first, their numbers, and how its candidate came to be. `newest`:
    the order of the newest run."""

    order: Order
    evaluations: list[Evaluation]
    newest: Order
    agent_run: AgentRun | None = None
    numbers: tuple[int, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What all runs amount to."""
        return decide(self.evaluations)

    def evidence(self, head_sha: str) -> Evidence:
        """What there is to approve, and since when: the run from which on the digest has been what it is now."""
        digests = [
            evidence_digest(run, decide(self.evaluations[:number]), head_sha)
            for number, run in enumerate(self.evaluations, start=1)
        ]
        first = len(digests) - 1
        while first > 0 and digests[first - 1] == digests[-1]:
            first -= 1
        run = self.evaluations[first]
        ended = datetime.fromisoformat(run.started_at) + timedelta(seconds=run.seconds)
        return Evidence(digest=digests[-1], head_sha=head_sha, since=ended)


def exam_status(verdict: Verdict, *, assisted: bool) -> tuple[StatusState, str]:
    """What the exam's status says of a verdict."""
    state: StatusState = "success" if verdict.kind in PUBLISHED else "failure"
    return state, f"{verdict.kind.value}, {verdict.runs} runs{', assisted' if assisted else ''}"


def pooled(runs: Mapping[int, Evaluation]) -> dict[int, Evaluation]:
    """The runs that can be pooled with the newest: of the same contract and judge."""
    newest = runs[max(runs)]
    known = (newest.contract_digest, newest.judge_digest)
    return {number: run for number, run in sorted(runs.items()) if (run.contract_digest, run.judge_digest) == known}


def run_folder_of(contract: str, issue: int) -> str:
    """Where a pull request of the bot keeps the record of its issue, relative to the repository."""
    return f"reports/{contract}/issue-{issue}"


def pull_folder_of(contract: str, number: int) -> str:
    """Where the record of any other pull request is, on the branch of evidence."""
    return f"reports/{contract}/pull-{number}"


def record_folder(order: Order) -> str:
    """Where the record of an order is."""
    if order.kind == "verify":
        return pull_folder_of(order.contract, order.number)
    return run_folder_of(order.contract, order.issue)


def load_record(pull: Pull, operation: str, remote: Remote) -> Record:
    """Read the record of a pull request of the bot.

    Raises:
        UsageError: it holds none (DataError: one with mistakes).
        GitHubError: git could not read it.
    """
    issue = issue_of(pull.head_ref)
    if issue is None:
        raise UsageError(f"pull request {pull.number} is not one of the bot's")
    folder = run_folder_of(operation, issue)
    order = _order(remote, pull.head_sha, f"{folder}/order.json")
    first = _runs(remote, pull.head_sha, folder)
    if not first:
        raise UsageError(f"pull request {pull.number} holds no evaluation")
    wanted = first[max(first)].candidate_digest
    tip = branch_tip(remote, EVIDENCE_BRANCH)
    later = _runs(remote, tip, folder) if tip is not None else {}
    # An earlier pull request for this issue has its runs in the same folder.
    runs = pooled({**first, **{number: run for number, run in later.items() if run.candidate_digest == wanted}})
    told = f"{folder}/agent.json"
    known = read_files(remote, pull.head_sha, [told]) if told in list_files(remote, pull.head_sha, folder) else {}
    return Record(
        order,
        list(runs.values()),
        _newest(remote, tip, folder, max(runs)) or order,
        parse_document(AgentRun, known[told], told) if known else None,
        tuple(runs),
    )


def load_verified(number: int, candidate: Candidate, remote: Remote) -> Record | None:
    """What `/verify` found of this kernel in this pull request, under the contract of the newest run; None: nothing.

    Raises:
        UsageError: the record has mistakes.
        GitHubError: git could not read it.
    """
    folder = pull_folder_of(candidate.path.split("/")[1], number)
    tip = branch_tip(remote, EVIDENCE_BRANCH)
    runs = _runs(remote, tip, folder) if tip is not None else {}
    if tip is None or not runs:
        return None
    wanted = digest.of_bytes(candidate.source.encode())
    mine = {number: run for number, run in runs.items() if run.candidate_digest == wanted}
    if not mine:
        return None
    mine = pooled(mine)
    order = _order(remote, tip, f"{folder}/order.json")
    newest = _newest(remote, tip, folder, max(mine)) or order
    return Record(order, list(mine.values()), newest, numbers=tuple(mine))


def next_run(pull: Pull, operation: str, remote: Remote) -> int:
    """The number of the next run: above that of any run of this pull request, whoever's record it is in."""
    folders = [pull_folder_of(operation, pull.number)]
    issue = issue_of(pull.head_ref)
    folders += [run_folder_of(operation, issue)] if issue is not None else []
    shas = [sha for sha in (pull.head_sha, branch_tip(remote, EVIDENCE_BRANCH)) if sha is not None]
    paths = [path for sha in shas for folder in folders for path in list_files(remote, sha, f"{folder}/evaluations")]
    return 1 + max((_number(path) for path in paths), default=0)


def _runs(remote: Remote, sha: str, folder: str) -> dict[int, Evaluation]:
    """The runs in a folder of a commit, by number."""
    paths = list_files(remote, sha, f"{folder}/evaluations")
    files = read_files(remote, sha, paths) if paths else {}
    return {_number(path): parse_document(Evaluation, files[path], path) for path in sorted(files)}


def _order(remote: Remote, sha: str, path: str) -> Order:
    return parse_document(Order, read_files(remote, sha, [path])[path], path)


def _newest(remote: Remote, tip: str | None, folder: str, number: int) -> Order | None:
    """The order of a run, where it was kept; that of the run which opened a pull request is `order.json`."""
    path = f"{folder}/orders/{number:03d}.json"
    known = tip is not None and path in list_files(remote, tip, f"{folder}/orders")
    return _order(remote, tip, path) if tip is not None and known else None


def _number(path: str) -> int:
    stem = path.rpartition("/")[2].removesuffix(".json")
    return int(stem) if stem.isascii() and stem.isdecimal() and len(stem) < 7 else 0


def untouched(pull: Pull, github: GitHub, statuses: Sequence[Status]) -> bool:
    """Whether the head is what the bot opened the pull request with: its one commit, on which it spoke first.

    An address in a commit proves nothing, for anybody can write it. But the first that the bot says of what it opens is
    the verdict for which it opened it, and the first of anything else is something else: that an exam goes on, say.
    """
    if pull.author != github.bot_login() or issue_of(pull.head_ref) is None:
        return False
    address = f"{github.bot_login()}@users.noreply.github.com"
    commits = github.commits(pull.number)
    if len(commits) != 1 or {commits[0].author_email, commits[0].committer_email} != {address}:
        return False
    said = [s for s in statuses if s.context == EXAM and s.creator == github.bot_login()]
    return bool(said) and said[-1].state == "success" and said[-1].description.startswith(tuple(PUBLISHED))


def authors_of(pull: Pull, github: GitHub) -> list[str]:
    """Who wrote a pull request, without the bot: who opened it, and whose GitHub takes its commits to be."""
    people = {commit.login for commit in github.commits(pull.number)} | {pull.author}
    return sorted(people - {GHOST, github.bot_login()})


def operation_of(paths: Sequence[str]) -> str:
    """The contract whose folders a pull request of the bot touches.

    Raises:
        RefusedError: it touches more than the one kernel file and the reports of one contract.
    """
    kernels = [path for path in paths if path.startswith("kernels/") and path.endswith(".py")]
    if len(kernels) != 1:
        raise KERNEL_FILES.error(count=len(kernels))
    operation = kernels[0].split("/")[1]
    _only(paths, f"kernels/{operation}/", f"reports/{operation}/")
    return operation


def kernel_of(files: Sequence[PullFile], *, by_bot: bool) -> str:
    """The one kernel file of a pull request. People's may name it the incumbent as well, and nothing else; the bot's
    hold its record.

    Raises:
        RefusedError: it is not one, has another name, or there is more.
    """
    kernels = [
        f.path for f in files if f.path.startswith("kernels/") and f.path.endswith(".py") and f.status != "removed"
    ]
    if len(kernels) != 1:
        raise KERNEL_FILES.error(count=len(kernels))
    path = kernels[0]
    if not Candidate.is_path(path):
        raise KERNEL_NAME.error(path=code_span(path))
    folder = path.rpartition("/")[0]
    touched = {f.path for f in files} | {f.previous for f in files if f.previous is not None}
    if by_bot:
        _only(sorted(touched), f"{folder}/", f"reports/{path.split('/')[1]}/")
    elif others := touched - {path, f"{folder}/index.yaml"}:
        raise OTHER_FILES.error(count=len(others))
    return path


def read_kernel(remote: Remote, sha: str, path: str) -> Candidate:
    """A kernel file of a commit.

    Raises:
        RefusedError: it is no plain text file, or too large.
        GitHubError: git could not read it.
    """
    refused = KERNEL_TEXT.error(path=code_span(path), limit=SOURCE_LIMIT >> 10)
    try:
        data = read_files(remote, sha, [path])[path]
        source = data.decode("utf-8")
    except (UsageError, UnicodeDecodeError):
        raise refused from None
    if len(data) > SOURCE_LIMIT:
        raise refused
    return Candidate(path=path, source=source)


def incumbents_at(remote: Remote, sha: str, contract: str, device: Device) -> dict[str, BaselineSource]:
    """The kernels that a commit names as merged for this contract on this device, by what each is merged for.

    Raises:
        RefusedError: its index of merged kernels has mistakes.
        GitHubError: git could not read it.
    """
    folder = f"kernels/{contract}"
    index = f"{folder}/index.yaml"
    if index not in list_files(remote, sha, folder):
        return {}
    try:
        text = read_files(remote, sha, [index])[index].decode("utf-8", "replace")
        files = validate(Incumbents, parse_yaml(text, index), index).on(device)
        sources = {file: read_kernel(remote, sha, f"{folder}/{file}").source for file in set(files.values())}
    except UsageError as error:
        detail = code_span(plain_line(str(error)))
        raise NO_RECORD.error(detail=f"the incumbent of {sha[:12]} is not there: {detail}") from None
    return {
        target: BaselineSource(name=file.removesuffix(".py"), role="incumbent", source=sources[file])
        for target, file in files.items()
    }


def _only(paths: Sequence[str], *folders: str) -> None:
    others = [path for path in paths if not path.startswith(folders)]
    if others:
        raise OTHER_FILES.error(count=len(others))
