"""Pages for people: what an issue and a pull request look like, and forms that act as the user who was chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from flask import Blueprint, Response, make_response, redirect, render_template, request
from markupsafe import Markup
from werkzeug.wrappers import Response as AnyResponse

from bot.forge import shapes
from bot.forge.app import the_state
from bot.forge.markdown import render
from bot.forge.records import Change, Comment, Issue, PullPart, Reaction, Review, ReviewState
from bot.forge.refusals import RequestRefusedError

pages = Blueprint("pages", __name__)
_REPO = "/<owner>/<name>"
_COOKIE = "acting_as"
_REACTIONS = dict(zip(shapes.REACTIONS, "👍👎😄😕❤🎉🚀👀", strict=True))
_FORM = (("contract", "Contract"), ("start", "Start from"), ("matters", "What matters"))
"""Fields of the optimize form: name in the page, heading in the issue."""
_CONTENT_SECURITY = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a unified diff with its numbers on both sides."""

    kind: Literal["hunk", "added", "removed", "same", "note"]
    old: int | None
    new: int | None
    text: str


def diff_lines(patch: str) -> list[DiffLine]:
    """The hunks of one file, line by line."""
    lines: list[DiffLine] = []
    old = new = 0
    for text in patch.split("\n") if patch else []:
        if text.startswith("@@"):
            before, after = text.split(" ")[1:3]
            old, new = int(before[1:].split(",")[0]), int(after[1:].split(",")[0])
            lines.append(DiffLine("hunk", None, None, text))
        elif text.startswith("+"):
            lines.append(DiffLine("added", None, new, text[1:]))
            new += 1
        elif text.startswith("-"):
            lines.append(DiffLine("removed", old, None, text[1:]))
            old += 1
        elif text.startswith("\\"):
            lines.append(DiffLine("note", None, None, text[2:]))
        else:
            lines.append(DiffLine("same", old, new, text[1:]))
            old, new = old + 1, new + 1
    return lines


def form_body(values: Sequence[tuple[str, str]]) -> str:
    """An issue's body as GitHub makes it from a form: a heading for each field, `_No response_` where empty."""
    return "\n\n".join(f"### {heading}\n\n{value.strip() or '_No response_'}" for heading, value in values)


def _timeline(number: int, *, is_pull: bool) -> list[tuple[str, Comment | Review | Change]]:
    """Everything said and done, oldest first, each with its kind."""
    state = the_state()
    entries: list[tuple[str, Comment | Review | Change]] = [("comment", each) for each in state.comments(number)]
    entries += [("change", each) for each in state.changes(number)]
    if is_pull:
        entries += [("review", each) for each in state.reviews(number)]
    return sorted(entries, key=lambda entry: entry[1].created_at)


def _tally(reactions: Sequence[Reaction]) -> dict[str, list[str]]:
    """Who reacted, by sign."""
    tally: dict[str, list[str]] = {}
    for reaction in reactions:
        tally.setdefault(_REACTIONS[reaction.content], []).append(reaction.user.login)
    return tally


def _moment(moment: datetime) -> Markup:
    return Markup('<time datetime="{}">{:%b %-d, %Y, %H:%M:%S}</time>').format(shapes.timestamp(moment), moment)


@pages.url_value_preprocessor
def _only_our_repository(_endpoint: str | None, values: dict[str, str] | None) -> None:
    owner, name = (values or {}).pop("owner", None), (values or {}).pop("name", None)
    if owner is not None and f"{owner}/{name}" != the_state().site.full_name:
        raise RequestRefusedError(404, "Not Found")


@pages.after_request
def _nothing_from_elsewhere(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = _CONTENT_SECURITY
    return response


@pages.context_processor
def _common() -> dict[str, object]:
    people = [user for user in the_state().accounts.everybody() if not user.is_bot]
    chosen = request.form.get("as") or request.cookies.get(_COOKIE)
    acting = next((user for user in people if user.login == chosen), people[0] if people else None)
    common = {"site": the_state().site, "people": people, "acting": acting}
    return common | {"markdown": render, "when": _moment, "tally": _tally, "path": f"/{the_state().site.full_name}"}


@pages.errorhandler(RequestRefusedError)
def _refused(refusal: RequestRefusedError) -> tuple[str, int]:
    details = [each if isinstance(each, str) else each.get("message", each["code"]) for each in refusal.details]
    return render_template("refused.html", refusal=refusal, details=details), refusal.status or 500


def _acting() -> str | None:
    """Who a form acts as; its own field decides, so that two tabs cannot mix people up."""
    return request.form.get("as")


def _back(number: int) -> AnyResponse:
    return redirect(shapes.issue_page(the_state().site, the_state().issue(number)), 303)


@pages.get("/")
def root() -> AnyResponse:
    """There is one repository: go there."""
    return redirect(the_state().site.repo_url)


@pages.post("/acting-as")
def act_as() -> AnyResponse:
    """Remember in a cookie whom to act as."""
    target = request.form.get("next", "/")
    response = make_response(redirect(target if target.startswith("/") and target[1:2] != "/" else "/", 303))
    response.set_cookie(_COOKIE, request.form.get("as", ""), samesite="Strict", httponly=True)
    return response


@pages.get(_REPO)
def repository() -> str:
    """Issues and pull requests."""
    shown = request.args.get("state", "open")
    issues = the_state().issues()
    counts = {name: sum(issue.state == name for issue in issues) for name in ("open", "closed")}
    listed = [issue for issue in issues if issue.state == shown]
    return render_template("repository.html", issues=listed, counts=counts, shown=shown)


@pages.route(f"{_REPO}/issues/new", methods=["GET", "POST"])
def new_issue() -> str | AnyResponse:
    """The optimize form; like GitHub's, it leaves the label to a maintainer."""
    state = the_state()
    if request.method == "GET":
        contracts = state.repository.folders(state.site.default_branch, "contracts")
        return render_template("new_issue.html", contracts=contracts)
    body = form_body([(heading, request.form.get(field, "")) for field, heading in _FORM])
    return _back(state.open_issue(_acting(), request.form.get("title", ""), body).number)


@pages.get(f"{_REPO}/issues/<int:number>")
def issue(number: int) -> str | AnyResponse:
    """An issue and its conversation."""
    found = the_state().issue(number)
    if found.pull:
        return _back(number)
    return render_template("issue.html", issue=found, timeline=_timeline(number, is_pull=False))


@pages.get(f"{_REPO}/pull/<int:number>")
def pull(number: int) -> str:
    """A pull request: conversation, reviews, checks."""
    found, part = the_state().pull(number)
    latest = the_state().latest_statuses(part.head_sha)
    return render_template(
        "pull.html",
        **_heading(found, part),
        timeline=_timeline(number, is_pull=True),
        statuses=latest,
        combined=shapes.combined_state(latest),
    )


@pages.get(f"{_REPO}/pull/<int:number>/files")
def changed_files(number: int) -> str:
    """A pull request's files, with coloured differences."""
    return render_template("files.html", **_heading(*the_state().pull(number)), diff_lines=diff_lines)


def _heading(found: Issue, part: PullPart) -> dict[str, object]:
    commits, files = the_state().comparison(part)
    return {"issue": found, "part": part, "commits": commits, "files": files}


@pages.post(f"{_REPO}/issues/<int:number>/comments")
def comment(number: int) -> AnyResponse:
    """Comment, and close or reopen when that button was pressed."""
    state, text = the_state(), request.form.get("body", "")
    turn = request.form.get("state")
    if text.strip() or turn is None:
        state.comment(_acting(), number, text)
    if turn is not None:
        state.edit_issue(_acting(), number, state="closed" if turn == "closed" else "open")
    return _back(number)


@pages.post(f"{_REPO}/issues/<int:number>/labels")
def labels(number: int) -> AnyResponse:
    """Add the label that was typed, or remove the one that was clicked."""
    if removed := request.form.get("remove"):
        the_state().unlabel(_acting(), number, removed)
    elif added := request.form.get("add", "").strip():
        the_state().label(_acting(), number, added)
    return _back(number)


@pages.post(f"{_REPO}/pull/<int:number>/reviews")
def review(number: int) -> AnyResponse:
    """Comment, approve or request changes."""
    verdict = request.form.get("verdict", "")
    if verdict not in {"COMMENTED", "APPROVED", "CHANGES_REQUESTED"}:
        raise RequestRefusedError(422, "Choose comment, approve or request changes")
    the_state().review(_acting(), number, cast("ReviewState", verdict), request.form.get("body", ""))
    return _back(number)
