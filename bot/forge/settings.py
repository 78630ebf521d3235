"""What an administrator sets in a repository: labels, variables, rulesets, environments, what workflows may do. Knows
nothing of HTTP; documents are GitHub's own JSON, kept as they came.
"""

import re
import threading
from collections.abc import Mapping
from itertools import count
from typing import Any

from bot.forge.accounts import Accounts
from bot.forge.records import Label
from bot.forge.refusals import RequestRefusedError, invalid

Json = dict[str, Any]

_VARIABLE = re.compile(r"(?!GITHUB_)[A-Z_][A-Z0-9_]*", re.IGNORECASE)
_COLOR = re.compile(r"[0-9a-fA-F]{6}")


class Settings:
    """The settings of one repository, and who may change them."""

    def __init__(self, accounts: Accounts) -> None:
        """Start as a new repository does."""
        self._accounts = accounts
        self._lock = threading.Lock()
        self._ids = count(501)
        self.descriptions: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.rulesets: dict[int, Json] = {}
        self.environments: dict[str, Json] = {}
        self.branch_policies: dict[str, list[str]] = {}
        self.secrets: dict[str, list[str]] = {}
        """Names of secrets by environment; those of the repository under the empty name."""
        self.runners: dict[str, list[str]] = {}
        """Labels of the self-hosted runners, by name; a test or a person puts them there."""
        self.workflow_rights: Json = {
            "default_workflow_permissions": "read",
            "can_approve_pull_request_reviews": False,
        }
        self.writes = 0
        """How often something was changed."""

    def admit(self, login: str | None) -> None:
        """Let only administrators on: 403 for others, whatever a workflow's token was given."""
        self._accounts.allow(login, "admin")

    def add_label(self, login: str | None, label: Label, description: str) -> None:
        """Check a new label of the repository: with write access; 422 for a wrong colour or a long description."""
        self._accounts.allow(login, "write")
        if not _COLOR.fullmatch(label.color):
            raise invalid("Label", "color", "invalid")
        if len(description) > 100:
            raise invalid("Label", "description", "custom", "description is too long (maximum is 100 characters)")
        with self._lock:
            self.descriptions[label.name] = description
            self.writes += 1

    def read_variables(self, login: str | None) -> dict[str, str]:
        """All variables: people with write access; never a workflow's own token."""
        if self._accounts.allow(login, "write").is_bot:
            raise RequestRefusedError(403, "Resource not accessible by integration")
        return dict(self.variables)

    def set_variable(self, login: str | None, name: str, value: str, *, new: bool) -> None:
        """Create or change a variable; names are in capitals, and one that exists is not created again."""
        self.admit(login)
        if not _VARIABLE.fullmatch(name):
            raise RequestRefusedError(422, "Variable name is not valid")
        with self._lock:
            if new and name.upper() in self.variables:
                raise RequestRefusedError(409, "Already exists - Variable already exists")
            if not new and name.upper() not in self.variables:
                raise RequestRefusedError(404, "Not Found")
            self.variables[name.upper()] = value
            self.writes += 1

    def put_ruleset(self, login: str | None, document: Mapping[str, Any], number: int | None = None) -> Json:
        """Create or replace a ruleset; names are unique, and what it must have is there."""
        self.admit(login)
        for field in ("name", "enforcement"):
            if number is None and not document.get(field):
                raise invalid("Ruleset", field, "missing_field")
        with self._lock:
            if number is not None and number not in self.rulesets:
                raise RequestRefusedError(404, "Not Found")
            if any(s["name"] == document.get("name") and s["id"] != number for s in self.rulesets.values()):
                raise invalid("Ruleset", "name", "custom", "Name must be unique")
            key = next(self._ids) if number is None else number
            empty: Json = {"target": "branch", "bypass_actors": [], "rules": []}
            self.rulesets[key] = empty | self.rulesets.get(key, {}) | dict(document) | {"id": key}
            self.writes += 1
            return self.rulesets[key]

    def branch_rules(self, branch: str, default_branch: str) -> list[Json]:
        """Rules that are in force on a branch, of all rulesets."""
        found = []
        for ruleset in self.rulesets.values():
            names = ruleset.get("conditions", {}).get("ref_name", {}).get("include", [])
            here = f"refs/heads/{branch}" in names or ("~DEFAULT_BRANCH" in names and branch == default_branch)
            if ruleset["target"] == "branch" and ruleset["enforcement"] == "active" and here:
                found += [rule | {"ruleset_id": ruleset["id"]} for rule in ruleset["rules"]]
        return found

    def put_environment(self, login: str | None, name: str, document: Mapping[str, Any]) -> None:
        """Create or change an environment; a policy is either for protected branches or for named ones."""
        self.admit(login)
        policy = document.get("deployment_branch_policy")
        if policy and policy.get("protected_branches") == policy.get("custom_branch_policies"):
            raise RequestRefusedError(422, "protected_branches and custom_branch_policies cannot be the same")
        with self._lock:
            self.environments[name] = {"deployment_branch_policy": policy}
            self.writes += 1

    def add_branch_policy(self, login: str | None, environment: str, pattern: str) -> None:
        """Let one more branch deploy to an environment."""
        self.admit(login)
        with self._lock:
            if environment not in self.environments:
                raise RequestRefusedError(404, "Not Found")
            self.branch_policies.setdefault(environment, []).append(pattern)
            self.writes += 1

    def set_workflow_rights(self, login: str | None, document: Mapping[str, Any]) -> None:
        """Change what a workflow's token may do by default."""
        self.admit(login)
        with self._lock:
            self.workflow_rights |= {key: document[key] for key in self.workflow_rights if key in document}
            self.writes += 1
