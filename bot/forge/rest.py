"""GitHub's REST interface as far as the bot uses it: addresses to state methods, bodies to frozen types,
records to JSON.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from flask import Blueprint, Response, g, jsonify, request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.forge import shapes, shapes_actions
from bot.forge.app import API, login_of, the_state
from bot.forge.records import Issue, Openness, PullPart, Role, StatusState
from bot.forge.refusals import RequestRefusedError
from bot.forge.rest_settings import settings_rest
from bot.forge.shapes import Json

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Created = tuple[Json, int]

rest = Blueprint("rest", __name__, url_prefix=API)
rest.register_blueprint(settings_rest)
_REPO = "/repos/<owner>/<name>"
_ISSUE = f"{_REPO}/issues/<int:number>"
_PULL = f"{_REPO}/pulls/<int:number>"

_FOLDED: dict[Role, str] = {"maintain": "write", "triage": "read"}
"""`permission` knows four values; `role_name` is exact.
https://docs.github.com/en/rest/collaborators/collaborators#get-repository-permissions-for-a-user"""
_VERDICTS: dict[str, Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED"]] = {
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
}


class _Body(BaseModel):
    """A request's body: only the fields used."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _NewIssue(_Body):
    title: str
    body: str | None = None


class _IssueEdit(_Body):
    title: str | None = None
    body: str | None = None
    state: Openness | None = None


class _Text(_Body):
    body: str


class _Reaction(_Body):
    content: str


class _Labels(_Body):
    labels: list[str]


class _NewRef(_Body):
    ref: str
    sha: str


class _NewPull(_Body):
    title: str
    head: str
    base: str
    body: str | None = None
    draft: bool = False


class _NewReview(_Body):
    event: Literal["APPROVE", "REQUEST_CHANGES", "COMMENT"]
    body: str | None = None
    commit_id: str | None = None


class _NewStatus(_Body):
    state: StatusState
    context: str = Field("default", min_length=1)
    description: str | None = None
    target_url: str | None = None


@rest.url_value_preprocessor
def _only_our_repository(_endpoint: str | None, values: dict[str, Any] | None) -> None:
    owner, name = (values or {}).pop("owner", None), (values or {}).pop("name", None)
    site = the_state().site
    if owner is not None and f"{owner}/{name}".lower() != site.full_name.lower():
        raise RequestRefusedError(404, "Not Found")


@rest.before_request
def _who() -> None:
    g.login = login_of(request)
    the_state().accounts.admit(g.login)


def _read(kind: type[M]) -> M:
    """The request's body as a frozen type; 400 when it is not JSON, 422 when a field is missing or wrong."""
    data = request.get_json(force=True, silent=True)
    if data is None:
        raise RequestRefusedError(400, "Problems parsing JSON")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise RequestRefusedError(422, f"Invalid request. {'; '.join(problems)}") from None


def _whole(name: str, default: int, most: int) -> int:
    text = request.args.get(name, "")
    return min(int(text), most) if text.isdecimal() and int(text) > 0 else default


def _page(records: Sequence[T], shape: Callable[[T], Json]) -> Response:
    """One page of a list with its `Link` header: https://docs.github.com/en/rest/using-the-rest-api/using-pagination"""
    size, number = _whole("per_page", 30, 100), _whole("page", 1, 10**6)
    last = max(1, -(-len(records) // size))
    answer = jsonify([shape(each) for each in records[(number - 1) * size : number * size]])
    targets = {"prev": number - 1, "next": number + 1, "last": last, "first": 1}
    if number == 1:
        del targets["prev"], targets["first"]
    if number >= last:
        del targets["next"], targets["last"]
    root = the_state().site.url + request.path
    links = [
        f'<{root}?{urlencode({**request.args, "page": page})}>; rel="{relation}"' for relation, page in targets.items()
    ]
    if links:
        answer.headers["Link"] = ", ".join(links)
    return answer


@rest.get("/user")
def get_user() -> Json:
    """Who the token belongs to; GITHUB_TOKEN may not ask."""
    user = the_state().accounts.allow(g.login, "none")
    if user.actions_bot:
        raise RequestRefusedError(403, "Resource not accessible by integration")
    return shapes.profile(the_state().site, user)


@rest.get(_REPO)
def get_repository() -> Json:
    """The repository, and what whoever asks may do in it."""
    state = the_state()
    rights = {"permissions": shapes.permissions(state.accounts.role(g.login))} if g.login else {}
    return shapes.repository_in_full(state.site) | rights


@rest.get(f"{_REPO}/collaborators/<login>/permission")
def get_permission(login: str) -> Json:
    """What a person may do."""
    state = the_state()
    state.accounts.allow(g.login, "read")
    user, role = state.accounts.collaborator(login), state.accounts.role(login)
    shape = shapes.user(state.site, user) | {"permissions": shapes.permissions(role), "role_name": role}
    return {"permission": _FOLDED.get(role, role), "role_name": role, "user": shape}


@rest.post(f"{_REPO}/issues")
def post_issue() -> Created:
    """Open an issue."""
    new = _read(_NewIssue)
    return shapes.issue(the_state().site, the_state().open_issue(g.login, new.title, new.body or "")), 201


@rest.get(f"{_REPO}/issues")
def get_issues() -> Response:
    """Issues and pull requests by state and labels, newest first."""
    state, wanted = the_state(), request.args.get("state", "open")
    labels = set(filter(None, request.args.get("labels", "").split(",")))
    found = [
        issue
        for issue in state.issues()
        if wanted in {"all", issue.state} and labels <= {label.name for label in issue.labels}
    ]
    return _page(found, lambda each: shapes.issue(state.site, each))


@rest.get(_ISSUE)
def get_issue(number: int) -> Json:
    """An issue, or a pull request as an issue."""
    return shapes.issue(the_state().site, the_state().issue(number))


@rest.patch(_ISSUE)
def patch_issue(number: int) -> Json:
    """Edit or close an issue."""
    edit = _read(_IssueEdit).model_dump(exclude_none=True)
    return shapes.issue(the_state().site, the_state().edit_issue(g.login, number, **edit))


@rest.get(f"{_ISSUE}/comments")
def get_comments(number: int) -> Response:
    """Comments, oldest first."""
    state = the_state()
    issue = state.issue(number)
    return _page(state.comments(number), lambda each: shapes.comment(state.site, each, issue))


@rest.post(f"{_ISSUE}/comments")
def post_comment(number: int) -> Created:
    """Comment on an issue or pull request."""
    state = the_state()
    comment = state.comment(g.login, number, _read(_Text).body)
    return shapes.comment(state.site, comment, state.issue(number)), 201


@rest.delete(f"{_REPO}/issues/comments/<int:comment_id>")
def delete_comment(comment_id: int) -> tuple[str, int]:
    """Remove a comment."""
    the_state().delete_comment(g.login, comment_id)
    return "", 204


@rest.route(f"{_REPO}/issues/comments/<int:comment_id>", methods=["GET", "PATCH"])
def comment_by_id(comment_id: int) -> Json:
    """Read or rewrite a comment."""
    state = the_state()
    if request.method == "PATCH":
        comment = state.edit_comment(g.login, comment_id, _read(_Text).body)
    else:
        comment = state.comment_by_id(comment_id)
    return shapes.comment(state.site, comment, state.issue(comment.number))


@rest.post(f"{_REPO}/issues/comments/<int:comment_id>/reactions")
def post_comment_reaction(comment_id: int) -> Created:
    """React to a comment."""
    state = the_state()
    reaction = state.react(g.login, state.comment_by_id(comment_id), _read(_Reaction).content)
    return shapes.reaction(state.site, reaction), 201


@rest.post(f"{_ISSUE}/reactions")
def post_issue_reaction(number: int) -> Created:
    """React to an issue or pull request."""
    state = the_state()
    return shapes.reaction(state.site, state.react(g.login, state.issue(number), _read(_Reaction).content)), 201


@rest.get(f"{_ISSUE}/labels")
def get_labels(number: int) -> Response:
    """Labels of an issue."""
    state = the_state()
    return _page(state.issue(number).labels, lambda each: shapes.label(state.site, each))


@rest.post(f"{_ISSUE}/labels")
def post_labels(number: int) -> Response:
    """Add labels; the answer lists all."""
    for name in _read(_Labels).labels:
        the_state().label(g.login, number, name)
    return get_labels(number)


@rest.delete(f"{_ISSUE}/labels/<path:label>")
def delete_label(number: int, label: str) -> Response:
    """Take a label off; the answer lists those left."""
    the_state().unlabel(g.login, number, label)
    return get_labels(number)


@rest.post(f"{_REPO}/git/refs")
def post_ref() -> Created:
    """Create a ref, atomically."""
    new = _read(_NewRef)
    the_state().create_ref(g.login, new.ref, new.sha)
    return shapes.ref(the_state().site, new.ref, new.sha), 201


@rest.get(f"{_REPO}/git/ref/<path:ref>")
def get_ref(ref: str) -> Json:
    """One ref, named without `refs/`."""
    sha = the_state().repository.refs().get(f"refs/{ref}")
    if sha is None:
        raise RequestRefusedError(404, "Not Found")
    return shapes.ref(the_state().site, f"refs/{ref}", sha)


@rest.get(f"{_REPO}/git/matching-refs/<path:ref>")
def get_matching_refs(ref: str) -> Response:
    """Refs whose names begin so."""
    site = the_state().site
    found = [(name, sha) for name, sha in the_state().repository.refs().items() if name.startswith(f"refs/{ref}")]
    return _page(found, lambda each: shapes.ref(site, *each))


@rest.delete(f"{_REPO}/git/refs/<path:ref>")
def delete_ref(ref: str) -> tuple[str, int]:
    """Remove a ref."""
    the_state().delete_ref(g.login, f"refs/{ref}")
    return "", 204


@rest.get(f"{_REPO}/branches/<path:branch>")
def get_branch(branch: str) -> Json:
    """A branch and its newest commit."""
    repository = the_state().repository
    sha = repository.refs().get(f"refs/heads/{branch}")
    if sha is None:
        raise RequestRefusedError(404, "Branch not found")
    return shapes.branch(the_state().site, branch, repository.commit(sha))


def _pull_in_full(issue: Issue, part: PullPart) -> Json:
    return shapes.pull_in_full(the_state().site, issue, part, *the_state().comparison(part))


@rest.get(f"{_REPO}/pulls")
def get_pulls() -> Response:
    """Pull requests by state, `head=owner:branch` and `base`."""
    wanted, head, base = request.args.get("state", "open"), request.args.get("head"), request.args.get("base")
    state = the_state()
    found = [
        (issue, part)
        for issue, part in state.pulls()
        if wanted in {"all", issue.state}
        and head in {None, "", f"{part.head_owner}:{part.head_ref}"}
        and base in {None, "", part.base_ref}
    ]
    return _page(found, lambda each: shapes.pull(state.site, *each))


@rest.post(f"{_REPO}/pulls")
def post_pull() -> Created:
    """Open a pull request."""
    new, state = _read(_NewPull), the_state()
    issue = state.open_pull(g.login, new.title, new.body or "", head=new.head, base=new.base, draft=new.draft)
    return _pull_in_full(*state.pull(issue.number)), 201


@rest.route(_PULL, methods=["GET", "PATCH"])
def pull(number: int) -> Json:
    """Read, edit or close a pull request."""
    the_state().pull(number)
    if request.method == "PATCH":
        the_state().edit_issue(g.login, number, **_read(_IssueEdit).model_dump(exclude_none=True))
    return _pull_in_full(*the_state().pull(number))


@rest.get(f"{_PULL}/files")
def get_files(number: int) -> Response:
    """Files that the pull request changes."""
    state = the_state()
    _, part = state.pull(number)
    _, files = state.comparison(part)
    return _page(files, lambda each: shapes.changed_file(state.site, each, part.head_sha))


@rest.get(f"{_PULL}/commits")
def get_pull_commits(number: int) -> Response:
    """Commits of a pull request, oldest first."""
    state = the_state()
    _, part = state.pull(number)
    commits, _ = state.comparison(part)
    return _page(commits, lambda each: shapes.commit(state.site, each, state.accounts.of_email(each.email)))


@rest.get(f"{_PULL}/reviews")
def get_reviews(number: int) -> Response:
    """Reviews, oldest first."""
    state = the_state()
    issue = state.issue(number)
    return _page(state.reviews(number), lambda each: shapes.review(state.site, each, issue))


@rest.post(f"{_PULL}/reviews")
def post_review(number: int) -> Json:
    """Review a pull request."""
    new, state = _read(_NewReview), the_state()
    review = state.review(g.login, number, _VERDICTS[new.event], new.body or "", new.commit_id)
    return shapes.review(state.site, review, state.issue(number))


@rest.post(f"{_REPO}/statuses/<sha>")
def post_status(sha: str) -> Created:
    """Say of a commit how a check went."""
    new, state = _read(_NewStatus), the_state()
    status = state.set_status(
        g.login,
        sha,
        new.state,
        context=new.context,
        description=new.description,
        target_url=new.target_url,
    )
    return shapes.status(state.site, status), 201


def _commit_sha(revision: str) -> str:
    sha = the_state().repository.commit_sha(revision)
    if sha is None:
        raise RequestRefusedError(422, f"No commit found for SHA: {revision}")
    return sha


@rest.get(f"{_REPO}/compare/<path:span>")
def get_comparison(span: str) -> Json:
    """What a commit has beyond where it left another: `BASE...HEAD`. At most 300 files are listed, as on GitHub."""
    base, dots, head = span.partition("...")
    if not dots:
        raise RequestRefusedError(404, "Not Found")
    repository = the_state().repository
    base_sha, head_sha = _commit_sha(base), _commit_sha(head)
    fork = repository.merge_base(base_sha, head_sha)
    if fork is None:
        raise RequestRefusedError(404, f"No common ancestor between {base} and {head}.")
    known = (repository.commit(base_sha), repository.commit(fork))
    ahead, behind = repository.commits(base_sha, head_sha), repository.commits(head_sha, base_sha)
    return shapes.comparison(
        the_state().site, *known, head_sha, ahead, len(behind), repository.files(base_sha, head_sha)
    )


@rest.get(f"{_REPO}/commits/<path:revision>")
def get_commit(revision: str) -> Json:
    """A commit by SHA, branch or tag."""
    return shapes.commit(the_state().site, the_state().repository.commit(_commit_sha(revision)))


@rest.get(f"{_REPO}/commits/<path:revision>/status")
def get_combined_status(revision: str) -> Json:
    """The newest status of each context."""
    sha = _commit_sha(revision)
    return shapes.combined_status(the_state().site, sha, the_state().latest_statuses(sha))


@rest.get(f"{_REPO}/commits/<path:revision>/statuses")
def get_statuses(revision: str) -> Response:
    """Every status of a commit, newest first."""
    site = the_state().site
    return _page(the_state().statuses(_commit_sha(revision)), lambda each: shapes.status(site, each))


@rest.get(f"{_REPO}/actions/runs")
def get_runs() -> Json:
    """Workflow runs by status, newest first. Unlike on GitHub, on one page."""
    state, wanted = the_state(), request.args.get("status")
    found = [shapes_actions.workflow_run(state.site, run) for run in state.runs() if wanted in {None, "", run.status}]
    return {"total_count": len(found), "workflow_runs": found}


@rest.get(f"{_REPO}/actions/runs/<int:run_id>")
def get_run(run_id: int) -> Json:
    """One workflow run."""
    return shapes_actions.workflow_run(the_state().site, the_state().run(run_id))


@rest.get(f"{_REPO}/actions/runs/<int:run_id>/jobs")
def get_jobs(run_id: int) -> Json:
    """The jobs of a workflow run, on one page."""
    state = the_state()
    run = state.run(run_id)
    return {
        "total_count": len(run.jobs),
        "jobs": [shapes_actions.workflow_job(state.site, run, job) for job in run.jobs],
    }


@rest.post(f"{_REPO}/actions/runs/<int:run_id>/cancel")
def post_cancel(run_id: int) -> Created:
    """End a workflow run."""
    the_state().cancel_run(g.login, run_id)
    return {}, 202
