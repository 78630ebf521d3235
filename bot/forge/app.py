"""What the three faces of the forge (REST, git, pages) share: the Flask application and who is asking."""

from typing import cast

from flask import Flask, Request, Response, current_app, jsonify, request
from werkzeug.exceptions import HTTPException

from bot.forge.refusals import RequestRefusedError
from bot.forge.state import ForgeState

_STATE = "forge"
API = "/api/v3"
"""Where GitHub Enterprise Server has its REST interface, so that pages and interface share a host."""


def bare_app(state: ForgeState) -> Flask:
    """An application that knows its state and how to refuse, without routes."""
    app = Flask(__name__, template_folder="pages", static_folder="pages/assets", static_url_path="/assets")
    app.extensions[_STATE] = state
    app.register_error_handler(RequestRefusedError, _refused)
    app.register_error_handler(HTTPException, _no_such_page)
    return app


def the_state() -> ForgeState:
    """The state behind the current request."""
    return cast("ForgeState", current_app.extensions[_STATE])


def login_of(req: Request) -> str | None:
    """Whose token the request carries, if any: `token X`, `Bearer X`, or Basic with the token as password.

    Raises:
        RequestRefusedError: 401, the token is nobody's.
    """
    given = req.authorization
    if given is None:
        if "Authorization" in req.headers:
            raise RequestRefusedError(401, "Bad credentials")
        return None
    token = given.password if given.type == "basic" else given.token
    return the_state().accounts.of_token(token or "").login


def _refused(refusal: RequestRefusedError) -> tuple[Response, int]:
    body = {"message": str(refusal), "documentation_url": "https://docs.github.com/rest", "status": str(refusal.status)}
    answer = jsonify(body | ({"errors": refusal.details} if refusal.details else {}))
    return answer, refusal.status or 500


def _no_such_page(error: HTTPException) -> HTTPException | tuple[Response, int]:
    if not request.path.startswith(API):
        return error
    message = "Not Found" if error.code == 404 else str(error.description)
    return jsonify({"message": message, "status": str(error.code)}), error.code or 500
