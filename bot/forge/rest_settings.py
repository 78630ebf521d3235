"""GitHub's REST interface to a repository's settings: what `proctor setup` and `doctor` ask for."""

from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, g, jsonify, request

from bot.forge import shapes, shapes_actions
from bot.forge.app import the_state
from bot.forge.refusals import RequestRefusedError
from bot.forge.shapes import Json

settings_rest = Blueprint("settings", __name__)
_REPO = "/repos/<owner>/<name>"
Done = tuple[str, int]


def _sent() -> Json:
    """The request's body, an object."""
    data = request.get_json(force=True, silent=True)
    if not isinstance(data, dict):
        raise RequestRefusedError(400, "Problems parsing JSON")
    return data


def _text(document: Json, key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise RequestRefusedError(422, f"Invalid request. {key}: a string is wanted")
    return value


def _many(key: str, items: list[Any]) -> Response:
    """A page of a list as most of these addresses give it: inside an object, with the way to the next one."""
    size, page = (
        int(text) if text.isdecimal() and int(text) > 0 else default
        for text, default in ((request.args.get("per_page", ""), 30), (request.args.get("page", ""), 1))
    )
    answer = jsonify({"total_count": len(items), key: items[(page - 1) * size : page * size]})
    if page * size < len(items):
        query = urlencode({**request.args, "page": page + 1})
        answer.headers["Link"] = f'<{the_state().site.url}{request.path}?{query}>; rel="next"'
    return answer


@settings_rest.route(f"{_REPO}/labels", methods=["GET", "POST"])
def labels() -> Response | tuple[Json, int]:
    """The repository's labels; one more: https://docs.github.com/en/rest/issues/labels"""
    state = the_state()
    if request.method == "POST":
        sent = _sent()
        description = str(sent.get("description") or "")
        label = state.add_label(g.login, _text(sent, "name"), str(sent.get("color", "ededed")), description)
        return shapes.label(state.site, label) | {"description": description or None}, 201
    described = state.settings.descriptions
    return jsonify(
        [shapes.label(state.site, each) | {"description": described.get(each.name)} for each in state.labels()]
    )


@settings_rest.route(f"{_REPO}/actions/variables", methods=["GET", "POST"])
def variables() -> Response | tuple[Json, int]:
    """All variables; one more: https://docs.github.com/en/rest/actions/variables"""
    site, settings = the_state().site, the_state().settings
    if request.method == "POST":
        sent = _sent()
        settings.set_variable(g.login, _text(sent, "name"), _text(sent, "value"), new=True)
        return {}, 201
    found = settings.read_variables(g.login)
    return _many(
        "variables", [shapes_actions.dated(site.created_at, name=name, value=value) for name, value in found.items()]
    )


@settings_rest.patch(f"{_REPO}/actions/variables/<variable>")
def patch_variable(variable: str) -> Done:
    """Change a variable."""
    the_state().settings.set_variable(g.login, variable, _text(_sent(), "value"), new=False)
    return "", 204


@settings_rest.route(f"{_REPO}/rulesets", methods=["GET", "POST"])
def rulesets() -> Response | tuple[Json, int]:
    """All rulesets, without their rules; one more: https://docs.github.com/en/rest/repos/rules"""
    settings = the_state().settings
    if request.method == "POST":
        return _sourced(settings.put_ruleset(g.login, _sent())), 201
    long = ("rules", "conditions", "bypass_actors")
    return jsonify([{k: v for k, v in _sourced(s).items() if k not in long} for s in settings.rulesets.values()])


def _sourced(ruleset: Json) -> Json:
    return ruleset | {"source_type": "Repository", "source": the_state().site.full_name}


@settings_rest.route(f"{_REPO}/rulesets/<int:number>", methods=["GET", "PUT"])
def ruleset(number: int) -> Json:
    """One ruleset in full, or replaced; who may bypass it is for administrators to see."""
    state = the_state()
    if request.method == "PUT":
        return _sourced(state.settings.put_ruleset(g.login, _sent(), number))
    found = state.settings.rulesets.get(number)
    if found is None:
        raise RequestRefusedError(404, "Not Found")
    admin = g.login is not None and state.accounts.role(g.login) == "admin"
    return {k: v for k, v in _sourced(found).items() if admin or k != "bypass_actors"}


@settings_rest.get(f"{_REPO}/rules/branches/<path:branch>")
def branch_rules(branch: str) -> Response:
    """Rules in force on a branch."""
    state = the_state()
    return jsonify(state.settings.branch_rules(branch, state.site.default_branch))


@settings_rest.route(f"{_REPO}/environments/<environment>", methods=["GET", "PUT"])
def environment(environment: str) -> Json:
    """An environment, or one made or changed: https://docs.github.com/en/rest/deployments/environments"""
    site, settings = the_state().site, the_state().settings
    if request.method == "PUT":
        settings.put_environment(g.login, environment, _sent())
    if environment not in settings.environments:
        raise RequestRefusedError(404, "Not Found")
    return shapes_actions.environment(site, environment, settings.environments[environment])


@settings_rest.route(f"{_REPO}/environments/<environment>/deployment-branch-policies", methods=["GET", "POST"])
def branch_policies(environment: str) -> Response | Json:
    """Branches that may use an environment; one more."""
    settings = the_state().settings
    if request.method == "POST":
        name = _text(_sent(), "name")
        settings.add_branch_policy(g.login, environment, name)
        return {"id": 1, "name": name}
    if environment not in settings.environments:
        raise RequestRefusedError(404, "Not Found")
    return _many("branch_policies", [{"name": each} for each in settings.branch_policies.get(environment, [])])


@settings_rest.get(f"{_REPO}/actions/secrets", defaults={"environment": ""})
@settings_rest.get(f"{_REPO}/environments/<environment>/secrets")
def secrets(environment: str) -> Response:
    """Names of secrets, for administrators: https://docs.github.com/en/rest/actions/secrets"""
    site, settings = the_state().site, the_state().settings
    settings.admit(g.login)
    if environment and environment not in settings.environments:
        raise RequestRefusedError(404, "Not Found")
    return _many(
        "secrets", [shapes_actions.dated(site.created_at, name=name) for name in settings.secrets.get(environment, [])]
    )


@settings_rest.get(f"{_REPO}/actions/runners")
def runners() -> Response:
    """Self-hosted runners of the repository, for administrators: https://docs.github.com/en/rest/actions/self-hosted-runners"""
    settings = the_state().settings
    settings.admit(g.login)
    return _many(
        "runners",
        [shapes_actions.runner(id_, name, held) for id_, (name, held) in enumerate(settings.runners.items(), 1)],
    )


@settings_rest.route(f"{_REPO}/actions/permissions/workflow", methods=["GET", "PUT"])
def workflow_rights() -> Json | Done:
    """What a workflow's token may do by default: https://docs.github.com/en/rest/actions/permissions"""
    settings = the_state().settings
    if request.method == "PUT":
        settings.set_workflow_rights(g.login, _sent())
        return "", 204
    settings.admit(g.login)
    return settings.workflow_rights
