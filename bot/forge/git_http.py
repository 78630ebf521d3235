"""The git remote at `{url}/{owner}/{name}.git`: smart HTTP answered by `git http-backend`, with GitHub's tokens."""

import subprocess

from flask import Blueprint, Response, request

from bot.errors import InfrastructureError
from bot.forge.app import login_of, the_state
from bot.forge.refusals import RequestRefusedError
from bot.forge.repository import git_environment

git = Blueprint("git", __name__)
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="forge"'}


@git.route("/<owner>/<name>.git/<path:rest>", methods=["GET", "POST"])
def remote(owner: str, name: str, rest: str) -> Response:
    """Fetch by anybody who may read, push by whoever may write."""
    state = the_state()
    if f"{owner}/{name}" != state.site.full_name:
        return Response("Repository not found.\n", 404)
    pushes = "git-receive-pack" in {rest, request.args.get("service")}
    try:
        login = login_of(request)
        state.accounts.admit(login)
        if pushes:
            state.accounts.allow(login, "write")
    except RequestRefusedError as refusal:
        return Response(f"{refusal}\n", refusal.status, _CHALLENGE if refusal.status == 401 else None)
    if rest == "git-receive-pack" and login is not None:
        return state.moving_refs(login, lambda: _backend(rest, login))
    return _backend(rest, login)


def _backend(rest: str, login: str | None) -> Response:
    """One CGI call, https://git-scm.com/docs/git-http-backend. A chunked body has no length until it is read."""
    repository = the_state().repository.path
    body = request.get_data()
    environment = git_environment() | {
        "GIT_PROJECT_ROOT": str(repository.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{repository.name}/{rest}",
        "REQUEST_METHOD": request.method,
        "QUERY_STRING": request.query_string.decode("latin-1"),
        "CONTENT_TYPE": request.content_type or "",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "REMOTE_ADDR": request.remote_addr or "",
        "REMOTE_USER": login or "",
    }
    done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, check=False, env=environment)
    head, separator, answer = done.stdout.partition(b"\r\n\r\n")
    if not separator:
        raise InfrastructureError(f"git http-backend: {done.stderr.decode(errors='replace').strip()}")
    headers = [line.split(": ", 1) for line in head.decode("latin-1").split("\r\n")]
    status = next((value for name, value in headers if name == "Status"), "200 OK")
    return Response(answer, status, [(name, value) for name, value in headers if name != "Status"])
