"""Records as the JSON that GitHub's REST interface and webhooks use. Pure; the field names are GitHub's own
(https://docs.github.com/en/rest), every address begins with the address the forge is reached at.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from bot.forge.records import (
    ROLES,
    Comment,
    Issue,
    Label,
    PullPart,
    Reaction,
    Review,
    Role,
    Site,
    Status,
    User,
)
from bot.forge.repository import ChangedFile, Commit

Json = dict[str, Any]

REACTIONS = ("+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")

_COUNTS = ("forks", "watchers", "open_issues")
_USER_PATHS = {
    "followers": "/followers",
    "following": "/following{/other_user}",
    "gists": "/gists{/gist_id}",
    "starred": "/starred{/owner}{/repo}",
    "subscriptions": "/subscriptions",
    "organizations": "/orgs",
    "repos": "/repos",
    "events": "/events{/privacy}",
    "received_events": "/received_events",
}
_REPO_PATHS = {
    "archive": "/{archive_format}{/ref}",
    "assignees": "/assignees{/user}",
    "blobs": "/git/blobs{/sha}",
    "branches": "/branches{/branch}",
    "collaborators": "/collaborators{/collaborator}",
    "comments": "/comments{/number}",
    "commits": "/commits{/sha}",
    "compare": "/compare/{base}...{head}",
    "contents": "/contents/{+path}",
    "git_commits": "/git/commits{/sha}",
    "git_refs": "/git/refs{/sha}",
    "git_tags": "/git/tags{/sha}",
    "issue_comment": "/issues/comments{/number}",
    "issue_events": "/issues/events{/number}",
    "issues": "/issues{/number}",
    "keys": "/keys{/key_id}",
    "labels": "/labels{/name}",
    "milestones": "/milestones{/number}",
    "notifications": "/notifications{?since,all,participating}",
    "pulls": "/pulls{/number}",
    "releases": "/releases{/id}",
    "statuses": "/statuses/{sha}",
    "trees": "/git/trees{/sha}",
} | {
    name: f"/{name}"
    for name in (
        *("contributors", "deployments", "downloads", "events", "forks", "hooks", "languages", "merges"),
        *("stargazers", "subscribers", "subscription", "tags", "teams"),
    )
}


def timestamp(moment: datetime) -> str:
    """ISO 8601 to the second, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def user(site: Site, who: User) -> Json:
    """An account."""
    api = f"{site.api}/users/{quote(who.login)}"
    return {
        "login": who.login,
        "id": who.id,
        "node_id": f"U_{who.id}",
        "avatar_url": f"{site.url}/avatars/{who.id}",
        "gravatar_id": "",
        "url": api,
        "html_url": f"{site.url}/{quote(who.login)}",
        **{f"{name}_url": api + path for name, path in _USER_PATHS.items()},
        "type": "Bot" if who.is_bot else "User",
        "site_admin": False,
    }


def profile(site: Site, who: User) -> Json:
    """An account as it sees itself."""
    return user(site, who) | {
        **dict.fromkeys(("name", "company", "location", "email", "hireable", "bio")),
        "blog": "",
        **dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0),
        "user_view_type": "public",
        "created_at": timestamp(site.created_at),
        "updated_at": timestamp(site.created_at),
    }


def permissions(role: Role) -> dict[str, bool]:
    """A role as the five things it may allow."""
    names: dict[str, Role] = {
        "pull": "read",
        "triage": "triage",
        "push": "write",
        "maintain": "maintain",
        "admin": "admin",
    }
    return {name: ROLES.index(role) >= ROLES.index(least) for name, least in names.items()}


def association(site: Site, who: User) -> str:
    """How GitHub calls a user's tie to the repository; not a permission."""
    if who.login == site.owner:
        return "OWNER"
    return "COLLABORATOR" if who.role not in {"none", "read"} and not who.is_bot else "NONE"


def repository(site: Site, owner: str = "") -> Json:
    """The repository, or `owner`'s fork of it."""
    fork = bool(owner) and owner != site.owner
    full_name = f"{owner or site.owner}/{site.name}"
    api, page = f"{site.api}/repos/{full_name}", f"{site.url}/{full_name}"
    account = User(id=1, login=owner or site.owner, role="none", token="")
    moment = timestamp(site.created_at)
    return {
        "id": 2 if fork else 1,
        "node_id": f"R_{full_name}",
        "name": site.name,
        "full_name": full_name,
        "private": site.private,
        "visibility": "private" if site.private else "public",
        "owner": user(site, account),
        "html_url": page,
        "description": None,
        "fork": fork,
        "url": api,
        **{f"{name}_url": api + path for name, path in _REPO_PATHS.items()},
        "clone_url": f"{site.url}/{full_name}.git",
        "git_url": f"{site.url}/{full_name}.git",
        "ssh_url": f"{site.url}/{full_name}.git",
        "svn_url": page,
        **dict.fromkeys(("homepage", "language", "license", "mirror_url")),
        **{f"has_{name}": name == "issues" for name in ("issues", "projects", "wiki", "pages", "downloads")},
        "has_discussions": False,
        "archived": False,
        "disabled": False,
        **dict.fromkeys(_COUNTS, 0),
        **{f"{name}_count": 0 for name in (*_COUNTS, "stargazers")},
        "size": 0,
        "topics": [],
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
        "default_branch": site.default_branch,
        **dict.fromkeys(("created_at", "updated_at", "pushed_at"), moment),
    }


def repository_in_full(site: Site) -> Json:
    """The repository as it stands alone."""
    return repository(site) | {"network_count": 0, "subscribers_count": 0}


def label(site: Site, value: Label) -> Json:
    """A label."""
    return {
        "id": value.id,
        "node_id": f"LA_{value.id}",
        "url": f"{site.repo_api}/labels/{quote(value.name, safe='')}",
        "name": value.name,
        "description": None,
        "color": value.color,
        "default": False,
    }


def reaction(site: Site, value: Reaction) -> Json:
    """A reaction."""
    return {
        "id": value.id,
        "node_id": f"REA_{value.id}",
        "user": user(site, value.user),
        "content": value.content,
        "created_at": timestamp(value.created_at),
    }


def _rollup(url: str, reactions: Sequence[Reaction]) -> Json:
    counts = Counter(each.content for each in reactions)
    return {"url": f"{url}/reactions", "total_count": len(reactions), **{name: counts[name] for name in REACTIONS}}


def _common(site: Site, value: Issue) -> Json:
    """What an issue and a pull request have in common."""
    return {
        "id": value.id,
        "number": value.number,
        "title": value.title,
        "user": user(site, value.user),
        "labels": [label(site, each) for each in value.labels],
        "state": value.state,
        "locked": False,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "created_at": timestamp(value.created_at),
        "updated_at": timestamp(value.updated_at),
        "closed_at": timestamp(value.closed_at) if value.closed_at else None,
        "author_association": association(site, value.user),
        "active_lock_reason": None,
        "body": value.body or None,
    }


def issue_page(site: Site, value: Issue) -> str:
    """Address of the page a person reads."""
    return f"{site.repo_url}/{'pull' if value.pull else 'issues'}/{value.number}"


def issue(site: Site, value: Issue) -> Json:
    """An issue; a pull request seen as an issue has the key `pull_request`."""
    url = f"{site.repo_api}/issues/{value.number}"
    page = issue_page(site, value)
    pull_api = f"{site.repo_api}/pulls/{value.number}"
    links = {"url": pull_api, "html_url": page, "diff_url": f"{page}.diff", "patch_url": f"{page}.patch"}
    return {
        "url": url,
        "repository_url": site.repo_api,
        "labels_url": f"{url}/labels{{/name}}",
        "comments_url": f"{url}/comments",
        "events_url": f"{url}/events",
        "timeline_url": f"{url}/timeline",
        "html_url": page,
        "node_id": f"I_{value.id}",
        **_common(site, value),
        "comments": value.comments,
        "reactions": _rollup(url, value.reactions),
        "performed_via_github_app": None,
        **({"pull_request": {**links, "merged_at": None}, "draft": value.pull.draft} if value.pull else {}),
    }


def comment(site: Site, value: Comment, on: Issue) -> Json:
    """A comment on an issue or pull request."""
    url = f"{site.repo_api}/issues/comments/{value.id}"
    return {
        "url": url,
        "html_url": f"{issue_page(site, on)}#issuecomment-{value.id}",
        "issue_url": f"{site.repo_api}/issues/{value.number}",
        "id": value.id,
        "node_id": f"IC_{value.id}",
        "user": user(site, value.user),
        "created_at": timestamp(value.created_at),
        "updated_at": timestamp(value.updated_at),
        "body": value.body,
        "author_association": association(site, value.user),
        "reactions": _rollup(url, value.reactions),
        "performed_via_github_app": None,
    }


def _end(site: Site, owner: str, ref: str, sha: str) -> Json:
    repo = repository(site, owner)
    return {"label": f"{owner}:{ref}", "ref": ref, "sha": sha, "user": repo["owner"], "repo": repo}


def pull(site: Site, value: Issue, part: PullPart) -> Json:
    """A pull request as it stands in lists and webhooks."""
    url = f"{site.repo_api}/pulls/{value.number}"
    page = issue_page(site, value)
    issue_url = f"{site.repo_api}/issues/{value.number}"
    links = {
        "self": url,
        "html": page,
        "issue": issue_url,
        "comments": f"{issue_url}/comments",
        "review_comments": f"{url}/comments",
        "review_comment": f"{url}/comments{{/number}}",
        "commits": f"{url}/commits",
        "statuses": f"{site.repo_api}/statuses/{part.head_sha}",
    }
    names = ("issue", "comments", "review_comments", "review_comment", "commits", "statuses")
    return {
        "url": url,
        "node_id": f"PR_{value.id}",
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        **{f"{name}_url": links[name] for name in names},
        **_common(site, value),
        "draft": part.draft,
        "head": _end(site, part.head_owner, part.head_ref, part.head_sha),
        "base": _end(site, site.owner, part.base_ref, part.base_sha),
        "_links": {name: {"href": href} for name, href in links.items()},
        "requested_reviewers": [],
        "requested_teams": [],
        "merge_commit_sha": None,
        "merged_at": None,
        "auto_merge": None,
    }


def comparison(
    site: Site,
    base: Commit,
    fork: Commit,
    head: str,
    ahead: Sequence[Commit],
    behind: int,
    files: Sequence[ChangedFile],
) -> Json:
    """Two commits, and what the second has beyond the commit `fork` at which it left the first."""
    span = f"{base.sha}...{head}"
    page = f"{site.repo_url}/compare/{span}"
    status = "identical" if base.sha == head else "diverged" if ahead and behind else "ahead" if ahead else "behind"
    return {
        "url": f"{site.repo_api}/compare/{span}",
        "html_url": page,
        "permalink_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "base_commit": commit(site, base),
        "merge_base_commit": commit(site, fork),
        "status": status,
        "ahead_by": len(ahead),
        "behind_by": behind,
        "total_commits": len(ahead),
        "commits": [commit(site, each) for each in ahead[:250]],
        "files": [changed_file(site, each, head) for each in files[:300]],
    }


def pull_in_full(
    site: Site, value: Issue, part: PullPart, commits: Sequence[Commit], files: Sequence[ChangedFile]
) -> Json:
    """A pull request as it stands alone."""
    return pull(site, value, part) | {
        "merged": False,
        "mergeable": True,
        "rebaseable": True,
        "mergeable_state": "clean",
        "merged_by": None,
        "comments": value.comments,
        "review_comments": 0,
        "maintainer_can_modify": False,
        "commits": len(commits),
        "additions": sum(each.additions for each in files),
        "deletions": sum(each.deletions for each in files),
        "changed_files": len(files),
    }


def review(site: Site, value: Review, on: Issue, *, webhook: bool = False) -> Json:
    """A review. Webhooks write its state in small letters, REST in capitals."""
    url, page = f"{site.repo_api}/pulls/{value.number}", issue_page(site, on)
    return {
        "id": value.id,
        "node_id": f"PRR_{value.id}",
        "user": user(site, value.user),
        "body": value.body,
        "state": value.state.lower() if webhook else value.state,
        "html_url": f"{page}#pullrequestreview-{value.id}",
        "pull_request_url": url,
        "author_association": association(site, value.user),
        "_links": {"html": {"href": f"{page}#pullrequestreview-{value.id}"}, "pull_request": {"href": url}},
        "submitted_at": timestamp(value.created_at),
        "commit_id": value.commit_id,
    }


def status(site: Site, value: Status) -> Json:
    """A commit status."""
    who = user(site, value.user)
    return {
        "url": f"{site.repo_api}/statuses/{value.sha}",
        "avatar_url": who["avatar_url"],
        "id": value.id,
        "node_id": f"SC_{value.id}",
        "state": value.state,
        "description": value.description,
        "target_url": value.target_url,
        "context": value.context,
        "created_at": timestamp(value.created_at),
        "updated_at": timestamp(value.created_at),
        "creator": who,
    }


def combined_state(latest: Sequence[Status]) -> str:
    """What the newest statuses of all contexts amount to."""
    states = {each.state for each in latest}
    if states & {"error", "failure"}:
        return "failure"
    return "pending" if not states or "pending" in states else "success"


def combined_status(site: Site, sha: str, latest: Sequence[Status]) -> Json:
    """The newest status of each context, and what they amount to."""
    return {
        "state": combined_state(latest),
        "statuses": [{k: v for k, v in status(site, each).items() if k != "creator"} for each in latest],
        "sha": sha,
        "total_count": len(latest),
        "repository": repository(site),
        "commit_url": f"{site.repo_api}/commits/{sha}",
        "url": f"{site.repo_api}/commits/{sha}/status",
    }


def ref(site: Site, name: str, sha: str) -> Json:
    """A git ref; `name` in full, as in `refs/heads/main`."""
    return {
        "ref": name,
        "node_id": f"REF_{name}",
        "url": f"{site.repo_api}/git/{name}",
        "object": {"type": "commit", "sha": sha, "url": f"{site.repo_api}/git/commits/{sha}"},
    }


def commit(site: Site, value: Commit, author: User | None = None) -> Json:
    """A commit; `author` is the account that its address belongs to."""
    url = f"{site.repo_api}/commits/{value.sha}"
    git_url = f"{site.repo_api}/git"
    person = {"name": value.author, "email": value.email, "date": value.date}
    committer = {"name": value.committer, "email": value.committer_email, "date": value.date}
    return {
        "sha": value.sha,
        "node_id": f"C_{value.sha}",
        "url": url,
        "html_url": f"{site.repo_url}/commit/{value.sha}",
        "comments_url": f"{url}/comments",
        "author": user(site, author) if author else None,
        "committer": None,
        "parents": [{"sha": sha, "url": f"{site.repo_api}/commits/{sha}"} for sha in value.parents],
        "commit": {
            "url": f"{git_url}/commits/{value.sha}",
            "author": person,
            "committer": committer,
            "message": value.message,
            "tree": {"sha": value.tree, "url": f"{git_url}/trees/{value.tree}"},
            "comment_count": 0,
        },
    }


def branch(site: Site, name: str, tip: Commit) -> Json:
    """A branch and its newest commit."""
    url = f"{site.repo_api}/branches/{quote(name, safe='')}"
    return {
        "name": name,
        "commit": commit(site, tip),
        "_links": {"self": url, "html": f"{site.repo_url}/tree/{name}"},
        "protected": False,
        "protection": {"enabled": False},
        "protection_url": f"{url}/protection",
    }


def changed_file(site: Site, value: ChangedFile, head: str) -> Json:
    """A file of a pull request."""
    path = quote(value.filename)
    return {
        "sha": value.sha,
        "filename": value.filename,
        "status": value.status,
        "additions": value.additions,
        "deletions": value.deletions,
        "changes": value.additions + value.deletions,
        "blob_url": f"{site.repo_url}/blob/{head}/{path}",
        "raw_url": f"{site.repo_url}/raw/{head}/{path}",
        "contents_url": f"{site.repo_api}/contents/{path}?ref={head}",
        **({"patch": value.patch} if value.patch else {}),
        **({"previous_filename": value.previous} if value.previous else {}),
    }
