"""A repository's settings over REST: labels, variables, rulesets, environments, what workflows may do.

Records are parsed from the answers as in `api.py`; requests go through `client.py`. Every write here does the same when
it is done twice, or is refused the second time, so one whose fate is unknown is simply looked for by the next run.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

from pydantic import ValidationError
from typing_extensions import override

from bot.errors import GitHubError
from bot.github.api import Foreign, Text
from bot.github.client import PyGitHub, connection

VARIABLES_PER_PAGE = 30
"""The most that GitHub gives: https://docs.github.com/en/rest/actions/variables"""


class Facts(Foreign):
    """The repository itself. `permissions` is what the account behind the token may do; an App has none."""

    full_name: str
    default_branch: str
    private: bool
    permissions: dict[str, bool] = {}


class LabelSetting(Foreign):
    """A label of the repository."""

    name: str
    color: str
    description: Text = ""


class Variable(Foreign):
    """A variable that workflows read."""

    name: str
    value: str


class StatusCheck(Foreign):
    """A status that must be there, from this App where one is named."""

    context: str
    integration_id: int | None = None


class _StatusChecks(Foreign):
    required_status_checks: list[StatusCheck] = []


class Rule(Foreign):
    """One rule of a ruleset, or one in force on a branch."""

    type: str
    parameters: dict[str, Any] = {}

    @property
    def checks(self) -> list[StatusCheck]:
        """Statuses that must be there, if this rule asks for any."""
        if self.type != "required_status_checks":
            return []
        try:
            return _StatusChecks.model_validate(self.parameters).required_status_checks
        except ValidationError:
            raise GitHubError("a rule `required_status_checks` of GitHub's is not of the documented form") from None


class RulesetName(Foreign):
    """A ruleset as lists show it."""

    id: int
    name: str
    enforcement: str


class Ruleset(RulesetName):
    """A ruleset in full. Who may bypass it is shown to administrators only."""

    target: str = "branch"
    conditions: dict[str, Any] = {}
    rules: list[Rule] = []
    bypass_actors: list[dict[str, Any]] | None = None


class BranchPolicy(Foreign):
    """Whether all branches, protected ones or named ones may use an environment."""

    protected_branches: bool
    custom_branch_policies: bool


class Environment(Foreign):
    """An environment of deployments; it holds secrets that only its branches reach."""

    name: str
    deployment_branch_policy: BranchPolicy | None = None


class WorkflowRights(Foreign):
    """What a workflow's own token may do where the workflow says nothing."""

    default_workflow_permissions: str
    can_approve_pull_request_reviews: bool
    """One switch for creating and approving pull requests."""


class _RunnerLabel(Foreign):
    name: str


class Runner(Foreign):
    """A self-hosted runner of the repository; those of its organisation are not listed with it."""

    name: str
    labels: list[_RunnerLabel] = []

    def carries(self, label: str) -> bool:
        """Whether jobs that ask for this label may come to it; GitHub compares without regard to case."""
        return label.casefold() in {each.name.casefold() for each in self.labels}


class Settings(Protocol):
    """The settings of one repository. Whatever is not allowed is a GitHubError with status 403 or 404."""

    def facts(self) -> Facts:
        """The repository itself."""
        ...

    def labels(self) -> Sequence[LabelSetting]:
        """All labels."""
        ...

    def create_label(self, name: str, color: str, description: str) -> None:
        """A new label."""
        ...

    def variables(self) -> Sequence[Variable]:
        """All variables."""
        ...

    def set_variable(self, name: str, value: str, *, new: bool) -> None:
        """Create or change a variable."""
        ...

    def runners(self) -> Sequence[Runner]:
        """All runners of the repository's own."""
        ...

    def rulesets(self) -> Sequence[RulesetName]:
        """All rulesets."""
        ...

    def ruleset(self, number: int) -> Ruleset:
        """A ruleset in full."""
        ...

    def put_ruleset(self, document: Mapping[str, Any], number: int | None = None) -> None:
        """Create a ruleset, or replace one."""
        ...

    def branch_rules(self, branch: str) -> Sequence[Rule]:
        """Rules in force on a branch, whichever ruleset they come from."""
        ...

    def environment(self, name: str) -> Environment | None:
        """An environment, if there is one of that name."""
        ...

    def put_environment(self, name: str) -> None:
        """Create an environment for named branches only, or make it one."""
        ...

    def environment_branches(self, name: str) -> Sequence[str]:
        """Patterns of the branches that may use an environment."""
        ...

    def add_environment_branch(self, name: str, pattern: str) -> None:
        """Let one more branch use an environment."""
        ...

    def secret_names(self, environment: str) -> Sequence[str]:
        """Names of the secrets that a job in this environment gets: its own, and the repository's."""
        ...

    def workflow_rights(self) -> WorkflowRights:
        """What a workflow's token may do by default."""
        ...

    def set_workflow_rights(self, *, default: str, pull_requests: bool) -> None:
        """Change what a workflow's token may do by default."""
        ...


def connect_settings(api_url: str, token: str, repo: str) -> Settings:
    """The settings of the repository `owner/name` at an API root."""
    return RestSettings(connection(api_url, token), repo, None)


class _Named(Foreign):
    name: str


class RestSettings(PyGitHub, Settings):
    """The settings of one repository, through the client's requests."""

    @override
    def facts(self) -> Facts:
        return self._get(Facts, self._root)

    @override
    def labels(self) -> list[LabelSetting]:
        return self._list(LabelSetting, f"{self._root}/labels")

    @override
    def create_label(self, name: str, color: str, description: str) -> None:
        document = {"name": name, "color": color, "description": description}
        self._request("POST", f"{self._root}/labels", document)

    @override
    def variables(self) -> list[Variable]:
        path = f"{self._root}/actions/variables"
        return self._list_inside(Variable, path, "variables", VARIABLES_PER_PAGE)

    @override
    def set_variable(self, name: str, value: str, *, new: bool) -> None:
        path = f"{self._root}/actions/variables"
        if new:
            self._request("POST", path, {"name": name, "value": value})
        else:
            self._request("PATCH", f"{path}/{quote(name, safe='')}", {"name": name, "value": value})

    @override
    def runners(self) -> list[Runner]:
        return self._list_inside(Runner, f"{self._root}/actions/runners", "runners")

    @override
    def rulesets(self) -> list[RulesetName]:
        return self._list(RulesetName, f"{self._root}/rulesets", includes_parents="false")

    @override
    def ruleset(self, number: int) -> Ruleset:
        return self._get(Ruleset, f"{self._root}/rulesets/{number}")

    @override
    def put_ruleset(self, document: Mapping[str, Any], number: int | None = None) -> None:
        path = f"{self._root}/rulesets"
        if number is None:
            self._request("POST", path, dict(document))
        else:
            self._request("PUT", f"{path}/{number}", dict(document))

    @override
    def branch_rules(self, branch: str) -> list[Rule]:
        return self._list(Rule, f"{self._root}/rules/branches/{quote(branch, safe='')}")

    @override
    def environment(self, name: str) -> Environment | None:
        try:
            return self._get(Environment, self._environment(name))
        except GitHubError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    @override
    def put_environment(self, name: str) -> None:
        policy = {"protected_branches": False, "custom_branch_policies": True}
        self._request("PUT", self._environment(name), {"deployment_branch_policy": policy})

    @override
    def environment_branches(self, name: str) -> list[str]:
        path = f"{self._environment(name)}/deployment-branch-policies"
        return [each.name for each in self._list_inside(_Named, path, "branch_policies")]

    @override
    def add_environment_branch(self, name: str, pattern: str) -> None:
        self._request("POST", f"{self._environment(name)}/deployment-branch-policies", {"name": pattern})

    @override
    def secret_names(self, environment: str) -> list[str]:
        found = self._list_inside(_Named, f"{self._root}/actions/secrets", "secrets")
        if self.environment(environment) is not None:
            found += self._list_inside(_Named, f"{self._environment(environment)}/secrets", "secrets")
        return [secret.name for secret in found]

    @override
    def workflow_rights(self) -> WorkflowRights:
        return self._get(WorkflowRights, f"{self._root}/actions/permissions/workflow")

    @override
    def set_workflow_rights(self, *, default: str, pull_requests: bool) -> None:
        document = {"default_workflow_permissions": default, "can_approve_pull_request_reviews": pull_requests}
        self._request("PUT", f"{self._root}/actions/permissions/workflow", document)

    def _environment(self, name: str) -> str:
        return f"{self._root}/environments/{quote(name, safe='')}"
