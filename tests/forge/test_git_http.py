import base64
import os

import pytest


def _with_token(url: str, token: str) -> str:
    return url.replace("http://", f"http://x-access-token:{token}@")


def test_clone_needs_no_token_and_a_push_by_a_writer_arrives(forge, git, tmp_path):
    git("clone", "--quiet", forge.clone_url, "copy")
    copy = tmp_path / "copy"
    assert (copy / "kernel.py").is_file()
    git("commit", "--quiet", "--allow-empty", "--message", "Empty", cwd=copy)
    git("push", "--quiet", _with_token(forge.clone_url, "token-rachel"), "HEAD:refs/heads/new", cwd=copy)
    assert forge.state.repository.refs()["refs/heads/new"] == git("rev-parse", "HEAD", cwd=copy)


@pytest.mark.parametrize(
    ("token", "reason"), [("wrong", "Authentication failed"), ("token-tom", "403"), ("", "could not read Username")]
)
def test_push_without_the_right_is_refused(forge, git, work, token, reason):
    url = _with_token(forge.clone_url, token) if token else forge.clone_url
    before = forge.state.repository.refs()
    assert reason in git("push", "--quiet", url, "faster:refs/heads/stolen", cwd=work, check=False)
    assert forge.state.repository.refs() == before


def test_push_of_megabytes_with_the_token_in_a_header_arrives_whole(forge, git, work):
    (work / "large.bin").write_bytes(os.urandom(3 << 20))
    git("add", ".", cwd=work)
    git("commit", "--quiet", "--message", "Large", cwd=work)
    secret = base64.b64encode(b"x-access-token:token-rachel").decode()
    header = f"http.extraheader=Authorization: basic {secret}"
    git("-c", header, "push", "--quiet", forge.clone_url, "HEAD:refs/heads/large", cwd=work)
    sha = git("rev-parse", "HEAD", cwd=work)
    git("init", "--quiet", "other")
    git("-C", "other", "fetch", "--quiet", "--depth=1", forge.clone_url, sha)
    assert git("-C", "other", "rev-parse", "FETCH_HEAD") == sha


def test_push_to_the_head_of_a_pull_request_moves_it_and_says_so(forge, git, work):
    state = forge.state
    number = state.open_pull("rachel", "Faster", "", head="faster", base="main").number
    before = state.pull(number)[1].head_sha
    git("commit", "--quiet", "--allow-empty", "--message", "More", cwd=work)
    git("push", "--quiet", _with_token(forge.clone_url, "token-rachel"), "faster", cwd=work)
    after = git("rev-parse", "HEAD", cwd=work)
    payload = state.events[-1].payload
    assert (payload["action"], payload["before"], payload["after"]) == ("synchronize", before, after)
    assert payload["sender"]["login"] == "rachel"
    assert payload["pull_request"]["head"]["sha"] == state.pull(number)[1].head_sha == after
    assert state.repository.refs()[f"refs/pull/{number}/head"] == after


def test_lease_that_is_out_of_date_is_refused(forge, git, work):
    url = _with_token(forge.clone_url, "token-rachel")
    git("commit", "--quiet", "--allow-empty", "--message", "More", cwd=work)
    stale = f"--force-with-lease=faster:{os.urandom(20).hex()}"
    assert "stale info" in git("push", stale, url, "faster", cwd=work, check=False)
    assert "hidden ref" in git("push", url, "faster:refs/pull/1/head", cwd=work, check=False)
