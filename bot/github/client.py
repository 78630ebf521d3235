"""`GitHub` over REST. The only importer of PyGithub, and the one place where its failures become `GitHubError`.

PyGithub carries authentication, connections, redirects, rate limits and retries. Its objects are not used: they fetch
missing fields behind our back and check nothing; each method here is one request, its answer parsed by our records.
A write that was answered by 5xx or not at all may have happened: it is looked for before it is sent once more.
"""

import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

import github
from github import Auth, GithubException, GithubRetry
from github.Consts import DEFAULT_SECONDS_BETWEEN_REQUESTS, DEFAULT_SECONDS_BETWEEN_WRITES
from pydantic import ValidationError
from requests import RequestException
from typing_extensions import override

from bot.contract.load import problems_of
from bot.errors import GitHubError, UsageError
from bot.github.api import (
    BODY_LIMIT,
    DESCRIPTION_LIMIT,
    REFUSED_HINT,
    Comment,
    Commit,
    Foreign,
    GitHub,
    Issue,
    Permission,
    Pull,
    PullFile,
    Reaction,
    Review,
    Status,
    StatusState,
    WorkflowJob,
    WorkflowRun,
)
from bot.sanitize import plain_line, shorten

T = TypeVar("T")
R = TypeVar("R", bound=Foreign)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

TIMEOUT = 30
RETRIES = 3
SECONDARY_WAIT = 60
"""Seconds that GitHub wants to be left alone for, when it does not say for how long."""
RATE_LIMIT_WAIT = 120
"""Seconds. A job holds a runner while it waits, so a longer limit is reported instead."""

COMPARED = 300
"""Files that a comparison lists at most: https://docs.github.com/en/rest/commits/commits#compare-two-commits"""

TITLE_LIMIT = 256
"""Characters of the title of an issue or pull request."""

PAGES = 100
"""Pages of 100: an issue with more comments is no issue."""

ACTIONS_LOGIN = "github-actions[bot]"
UNFINISHED = ("requested", "waiting", "pending", "queued", "in_progress")
"""In the order in which a run passes through them, so that one that moves on meanwhile is not missed."""


_HINTS = {
    HTTPStatus.UNAUTHORIZED.value: REFUSED_HINT,
}
"""What whoever reads a log does about an answer that does not say so itself."""


class _Ref(Foreign):
    class Target(Foreign):
        sha: str

    object: Target


class _Comparison(Foreign):
    files: list[PullFile]


class _User(Foreign):
    login: str


class _Role(Foreign):
    permission: str


def connect(api_url: str, token: str, repo: str, *, login: str | None = None) -> GitHub:
    """The repository `owner/name` at an API root (GITHUB_API_URL).

    `login` is who we are, where the token cannot say: `SLUG[bot]` for a GitHub App.
    """
    return PyGitHub(connection(api_url, token), repo, login)


def connection(api_url: str, token: str) -> github.Github:
    """PyGithub, set up as we need it; nothing is requested yet."""
    on_github = urlsplit(api_url).hostname == "api.github.com"
    return github.Github(
        auth=Auth.Token(token),
        base_url=api_url,
        timeout=TIMEOUT,
        user_agent="kernel-proctor",
        # PyGithub's default repeats POST on 5xx, and leaves two comments (research/bots.md 4.3).
        retry=GithubRetry(
            total=RETRIES,
            backoff_factor=0.2,
            allowed_methods={"GET", "HEAD"},
            secondary_rate_wait=SECONDARY_WAIT,
            max_rate_limit_wait=RATE_LIMIT_WAIT,
        ),
        seconds_between_requests=DEFAULT_SECONDS_BETWEEN_REQUESTS if on_github else None,
        seconds_between_writes=DEFAULT_SECONDS_BETWEEN_WRITES if on_github else None,
        api_version="2022-11-28",
    )


class PyGitHub(GitHub):
    """One repository, through PyGithub's requester."""

    def __init__(self, connection: github.Github, repo: str, login: str | None) -> None:
        """Keep the connection; nothing is requested yet."""
        owner, slash, name = repo.partition("/")
        if not (owner and slash and name) or "/" in name:
            raise UsageError(f"{plain_line(repo)!r} is not a repository, as in owner/name")
        self._requester = connection.requester
        self._owner = owner
        self._root = f"/repos/{quote(owner)}/{quote(name)}"
        self._login = login

    @override
    def bot_login(self) -> str:
        if self._login is None:
            try:
                self._login = self._get(_User, "/user").login
            except GitHubError as error:
                # An installation token is no user, and of those only GITHUB_TOKEN comes here without its name.
                if "not accessible by integration" not in str(error):
                    raise
                self._login = ACTIONS_LOGIN
        return self._login

    @override
    def permission(self, login: str) -> Permission:
        # `permission` folds maintain into write and triage into read:
        # https://docs.github.com/en/rest/collaborators/collaborators#get-repository-permissions-for-a-user
        try:
            found = self._get(_Role, f"{self._root}/collaborators/{quote(login, safe='')}/permission").permission
        except GitHubError as error:
            if error.status == HTTPStatus.NOT_FOUND or "is not a user" in str(error):
                return "none"
            raise
        match found:
            case "admin" | "write" | "read":
                return found
            case "maintain":
                return "write"
            case "triage":
                return "read"
            case _:
                return "none"

    @override
    def issue(self, number: int) -> Issue:
        return self._get(Issue, f"{self._root}/issues/{number}")

    @override
    def open_issues(self, label: str) -> list[Issue]:
        found = self._list(Issue, f"{self._root}/issues", labels=label, state="open")
        return [issue for issue in found if not issue.on_pull]

    @override
    def comments(self, number: int) -> list[Comment]:
        return self._list(Comment, f"{self._root}/issues/{number}/comments")

    @override
    def create_comment(self, number: int, body: str) -> Comment:
        def send() -> Comment:
            answer = self._request("POST", f"{self._root}/issues/{number}/comments", {"body": body})
            return _parse(Comment, answer, "the new comment")

        def read_back() -> Comment | None:
            ours = [c for c in self.comments(number) if c.author.casefold() == self.bot_login().casefold()]
            return ours[-1] if ours and _same_text(ours[-1].body, body) else None

        return self._once(send, read_back)

    @override
    def update_comment(self, comment_id: int, body: str) -> Comment:
        path = f"{self._root}/issues/comments/{comment_id}"
        return self._again(lambda: _parse(Comment, self._request("PATCH", path, {"body": body}), "the comment"))

    @override
    def delete_comment(self, comment_id: int) -> None:
        self._remove(f"{self._root}/issues/comments/{comment_id}")

    @override
    def react(self, comment_id: int, content: Reaction) -> None:
        path = f"{self._root}/issues/comments/{comment_id}/reactions"
        self._again(lambda: self._request("POST", path, {"content": content}))

    @override
    def claim(self, ref: str, sha: str) -> bool:
        def send() -> bool:
            try:
                self._request("POST", f"{self._root}/git/refs", {"ref": ref, "sha": sha})
            except GitHubError as error:
                # https://docs.github.com/en/rest/git/refs#create-a-reference answers 422 for bad names as well.
                if error.status == HTTPStatus.UNPROCESSABLE_ENTITY and "already exists" in str(error):
                    return False
                raise
            return True

        def read_back() -> bool | None:
            holder = self._ref(ref)
            return None if holder is None else holder == sha

        return self._once(send, read_back)

    @override
    def find_pull(self, branch: str) -> Pull | None:
        # https://docs.github.com/en/rest/pulls/pulls#list-pull-requests ignores a `head` it cannot read and lists all.
        found = self._list(Pull, f"{self._root}/pulls", head=f"{self._owner}:{branch}", state="open")
        return next((pull for pull in found if pull.head_ref == branch and pull.same_repository), None)

    @override
    def open_pull(self, branch: str, base: str, title: str, body: str, *, draft: bool = False) -> Pull:
        def send() -> Pull:
            texts = {"title": shorten(title, TITLE_LIMIT), "body": shorten(body, BODY_LIMIT)}
            document = {"head": branch, "base": base, **texts, "draft": draft}
            try:
                return _parse(Pull, self._request("POST", f"{self._root}/pulls", document), "the new pull request")
            except GitHubError as error:
                there = self.find_pull(branch) if error.status == HTTPStatus.UNPROCESSABLE_ENTITY else None
                if there is None:
                    raise
                return there

        return self._once(send, lambda: self.find_pull(branch))

    @override
    def pull(self, number: int) -> Pull:
        return self._get(Pull, f"{self._root}/pulls/{number}")

    @override
    def open_pulls(self) -> list[Pull]:
        return self._list(Pull, f"{self._root}/pulls", state="open")

    @override
    def changed(self, base: str, head: str) -> list[PullFile] | None:
        # The page is one of commits; the files stand on the first.
        path = f"{self._root}/compare/{quote(base, safe='')}...{quote(head, safe='')}"
        files = self._get(_Comparison, path).files
        return files if len(files) < COMPARED else None

    @override
    def pull_files(self, number: int) -> list[PullFile]:
        return self._list(PullFile, f"{self._root}/pulls/{number}/files")

    @override
    def reviews(self, number: int) -> list[Review]:
        return self._list(Review, f"{self._root}/pulls/{number}/reviews")

    @override
    def statuses(self, sha: str) -> list[Status]:
        return self._list(Status, f"{self._root}/commits/{quote(sha, safe='')}/statuses")

    @override
    def set_status(self, sha: str, context: str, state: StatusState, description: str, url: str | None = None) -> None:
        document = {"state": state, "context": context, "description": shorten(description, DESCRIPTION_LIMIT)}
        document |= {"target_url": url} if url else {}
        # Twice is harmless: of one context the newest counts.
        self._again(lambda: self._request("POST", f"{self._root}/statuses/{quote(sha, safe='')}", document))

    @override
    def commits(self, number: int) -> list[Commit]:
        return self._list(Commit, f"{self._root}/pulls/{number}/commits")

    @override
    def unfinished_runs(self) -> list[WorkflowRun]:
        # https://docs.github.com/en/rest/actions/workflow-runs#list-workflow-runs-for-a-repository takes one status.
        path = f"{self._root}/actions/runs"
        found = [
            run for status in UNFINISHED for run in self._list_inside(WorkflowRun, path, "workflow_runs", status=status)
        ]
        return sorted({run.id: run for run in found}.values(), key=lambda run: (run.created_at, run.id))

    @override
    def jobs(self, run_id: int) -> list[WorkflowJob]:
        return self._list_inside(WorkflowJob, f"{self._root}/actions/runs/{run_id}/jobs", "jobs")

    @override
    def cancel_run(self, run_id: int) -> bool:
        try:
            self._again(lambda: self._request("POST", f"{self._root}/actions/runs/{run_id}/cancel"))
        except GitHubError as error:
            if error.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                return False
            raise
        return True

    @override
    def add_label(self, number: int, label: str) -> None:
        self._again(lambda: self._request("POST", f"{self._root}/issues/{number}/labels", {"labels": [label]}))

    @override
    def remove_label(self, number: int, label: str) -> None:
        self._remove(f"{self._root}/issues/{number}/labels/{quote(label, safe='')}")

    def _remove(self, path: str) -> None:
        """Something that is gone afterwards, whoever removed it."""
        try:
            self._again(lambda: self._request("DELETE", path))
        except GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def _ref(self, ref: str) -> str | None:
        """The object a full ref names; None when there is no such ref."""
        try:
            return self._get(_Ref, f"{self._root}/git/ref/{quote(ref.removeprefix('refs/'))}").object.sha
        except GitHubError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def _get(self, record: type[R], path: str) -> R:
        return _parse(record, self._request("GET", path), path)

    def _list(self, record: type[R], path: str, **query: str) -> list[R]:
        return [_parse(record, item, path) for item in self._items(path, query)]

    def _items(self, path: str, query: dict[str, str]) -> Iterator[Any]:
        """All pages: https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api"""
        for page in range(1, PAGES + 1):
            headers, items = self._exchange("GET", path, None, {**query, "per_page": "100", "page": str(page)})
            if not isinstance(items, list):
                raise GitHubError(f"{path}: the answer is not a list")
            yield from items
            if 'rel="next"' not in headers.get("link", ""):
                return
        raise GitHubError(f"{path}: more than {PAGES} pages")

    def _list_inside(self, record: type[R], path: str, key: str, size: int = 100, **query: str) -> list[R]:
        """All pages of a list that comes inside an object, beside its `total_count`."""
        found: list[R] = []
        for page in range(1, PAGES + 1):
            _, answer = self._exchange("GET", path, None, {**query, "per_page": str(size), "page": str(page)})
            items = answer.get(key) if isinstance(answer, dict) else None
            if not isinstance(items, list):
                raise GitHubError(f"{path}: the answer holds no list {key!r}")
            found += [_parse(record, item, path) for item in items]
            if not items or len(found) >= int(answer.get("total_count", 0)):
                return found
        raise GitHubError(f"{path}: more than {PAGES} pages")

    def _request(self, method: Method, path: str, document: dict[str, Any] | None = None) -> Any:
        return self._exchange(method, path, document, {})[1]

    def _exchange(
        self, method: Method, path: str, document: dict[str, Any] | None, query: dict[str, str]
    ) -> tuple[dict[str, Any], Any]:
        """One request; headers (names in lower case) and parsed body. What GitHub puts off is sent again later."""
        try:
            return self._patiently(
                lambda: self._requester.requestJsonAndCheck(method, path, parameters=query, input=document)
            )
        except GithubException as error:
            detail = plain_line(_details(error), 300) + _HINTS.get(error.status, "")
            raise GitHubError(
                f"{method} {path}: {error.status} {detail}", status=error.status, retryable=_retryable(error)
            ) from None
        except RequestException as error:
            raise GitHubError(f"{method} {path}: no answer ({type(error).__name__})", retryable=True) from None
        except (ValueError, RuntimeError) as error:
            # Not JSON, or a redirect to another host.
            raise GitHubError(f"{method} {path}: {plain_line(str(error))}") from None

    def _patiently(self, send: Callable[[], T]) -> T:
        """Wait as long as GitHub asks, if that is not too long. PyGithub does it for some of what it may repeat, and
        writes are not among it; what a limit stopped did not happen, so that sending it again is sending it once.
        """
        for _ in range(RETRIES):
            try:
                return send()
            except GithubException as error:
                wait = _wait(error)
                if wait is None or wait > RATE_LIMIT_WAIT:
                    raise
                time.sleep(wait)
        return send()

    def _once(self, send: Callable[[], T], read_back: Callable[[], T | None]) -> T:
        """A write that must not happen twice; after an unknown outcome it is looked for first."""
        try:
            return send()
        except GitHubError as error:
            if not _unknown(error):
                raise
        found = read_back()
        return send() if found is None else found

    def _again(self, send: Callable[[], T]) -> T:
        """A write that does the same when it is done twice."""
        return self._once(send, lambda: None)


def _parse(record: type[R], answer: Any, what: str) -> R:
    try:
        return record.model_validate(answer)
    except ValidationError as error:
        problems = "; ".join(f"{problem.path}: {problem.reason}" for problem in problems_of(error))
        raise GitHubError(f"{what}: GitHub's answer is not of the documented form: {problems}") from None


def _unknown(error: GitHubError) -> bool:
    """Whether a write may have happened all the same."""
    no_answer = error.status is None and error.retryable
    return no_answer or (error.status is not None and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR)


def _wait(error: GithubException) -> float | None:
    """Seconds until GitHub wants to be asked again; None when no limit stopped the request.

    https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit
    """
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    limited = error.status == HTTPStatus.TOO_MANY_REQUESTS or isinstance(error, github.RateLimitExceededException)
    if not limited and not (error.status == HTTPStatus.FORBIDDEN and "retry-after" in headers):
        return None
    if headers.get("retry-after", "").isdecimal():
        return float(headers["retry-after"])
    if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdecimal():
        return max(0.0, float(headers["x-ratelimit-reset"]) - time.time())
    return SECONDARY_WAIT


def _retryable(error: GithubException) -> bool:
    limited = isinstance(error, github.RateLimitExceededException) or error.status == HTTPStatus.TOO_MANY_REQUESTS
    return limited or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _details(error: GithubException) -> str:
    """GitHub's message, and its list of what is wrong, which the message (“Validation Failed”) leaves out."""
    data = error.data if isinstance(error.data, dict) else {}
    wrong = (
        str(each.get("message", each)) if isinstance(each, dict) else str(each) for each in data.get("errors") or []
    )
    return f"{error.message or data.get('message') or ''} {'; '.join(wrong)}"


def _same_text(stored: str, sent: str) -> bool:
    """Whether GitHub, which may change line ends and outer space, stored this text."""
    return stored.replace("\r\n", "\n").strip() == sent.replace("\r\n", "\n").strip()
