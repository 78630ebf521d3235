"""`proctor setup`: what GitHub must be told about a repository, as a plan first; a second run finds nothing to do.

A plan is made by reading alone, so `proctor doctor` uses it as well. What may not be read or written is named with the
permission that is missing and what it is needed for; the rest is done all the same.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from typing_extensions import override

from bot.errors import GitHubError
from bot.evaluation import SHARDS
from bot.github.settings import Facts, Rule, Ruleset, Runner, Settings
from bot.handlers.asked import LABEL, NEEDS_INFO
from bot.handlers.evidence import APPROVAL, EXAM
from bot.sanitize import plain_line

ENVIRONMENT = "proctor-agent"
"""Named in optimize.yml: it holds the model's key, for the default branch alone."""
BOT_ENVIRONMENT = "proctor-bot"
"""Named in the workflows where the bot is a GitHub App: it holds the App's key, for the default branch alone."""
ENVIRONMENTS: Mapping[str, str] = {
    ENVIRONMENT: "keep the model's key to the default branch",
    BOT_ENVIRONMENT: "keep the App's key, where there is an App, to the default branch",
}
"""What each is needed for: any branch's workflow reads a secret of the repository itself."""

APP_ID, APP_KEY, BOT_LOGIN = "PROCTOR_APP_ID", "PROCTOR_APP_KEY", "PROCTOR_BOT_LOGIN"
"""The App as which the bot works, its private key (a secret), and its login."""

RULESET = "proctor"
KERNELS_RULESET = "proctor-kernels"
ACTIONS_APP = 15368
"""The App behind GITHUB_TOKEN on github.com: a status of another sender does not count."""

ADMINISTRATOR = {"actor_id": 5, "actor_type": "RepositoryRole"}
"""Repository administrators: https://docs.github.com/en/rest/repos/rules"""

DEFAULTS: Mapping[str, str] = {
    "PROCTOR_RUNNER": "b200",
    "PROCTOR_AGENT_RUNNER": "b200-agent",
    "PROCTOR_DEVICE": "cuda",
}
"""Variables that are set where they are missing, to what the workflows take without them."""

SHARED = "PROCTOR_SHARDS"
"""Over so many runners an exam is spread; one where it is not set."""
SHARE = f"`proctor setup --shards N`, N from 1 to {SHARDS}"

LABELS: Mapping[str, tuple[str, str]] = {
    LABEL: ("0e8a16", "Write and examine a faster kernel; counts when somebody with write permission adds it"),
    NEEDS_INFO: ("fbca04", "The request lacks something; the bot's comment says what"),
}
"""Colour and description."""

_DENIED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. `app`: the App whose statuses count; `variables`: set, whatever is there."""

    variables: Mapping[str, str] = field(default_factory=dict)
    app: int | None = None
    default_app: int | None = None
    """Taken where a ruleset is made; one that is there and names another App is right as it is."""
    restrict_kernels: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do: what, what for, the permission it takes, and doing it."""

    what: str
    why: str
    needs: str
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Denied:
    """One thing that could not be read or done, the permission that would allow it and what that is needed for."""

    what: str
    why: str
    needs: str
    said: str

    @override
    def __str__(self) -> str:
        return (
            f"{self.what}: not allowed. An administrator must act: give the token {self.needs}, "
            f"needed to {self.why} ({self.said})"
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """A setting that is wrong, and that only a person can put right."""

    what: str
    why: str
    remedy: str


@dataclass(slots=True)
class Plan:
    """What to do, what is right already, what could not be read, what people must put right, what cannot be done."""

    repository: str
    changes: list[Change] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    denied: list[Denied] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def looking(self, what: str, why: str, needs: str) -> Iterator[None]:
        """Read something that may be denied; another failure of GitHub's ends the whole plan."""
        try:
            yield
        except GitHubError as error:
            if error.status not in _DENIED:
                raise
            self.denied.append(Denied(what, why, needs, str(error)))


def make_plan(settings: Settings, wanted: Wanted) -> Plan:
    """Compare the repository with what Proctor needs.

    Raises:
        GitHubError: the repository itself cannot be read, or GitHub fails.
    """
    facts = settings.facts()
    plan = Plan(facts.full_name)
    with plan.looking("labels", "start the agent by a label", "Issues: read"):
        _labels(plan, settings)
    variables: Mapping[str, str] = {}
    with plan.looking("variables", "choose runners, device and model", "Variables: read"):
        variables = _variables(plan, settings, wanted)
    if variables.get(APP_ID):
        with plan.looking("the App's key", "let the bot be a GitHub App", "Secrets: read and Environments: read"):
            plan.faults += app_faults(variables, settings.secret_names(BOT_ENVIRONMENT))
    with plan.looking("what workflows may do", "let the bot open pull requests", "Administration: read"):
        _workflows(plan, settings)
    for name, why in ENVIRONMENTS.items():
        with plan.looking(f"the environment `{name}`", why, "Actions: read"):
            _environment(plan, settings, facts, name)
    with plan.looking("rulesets", "let nothing in without exam and approval", "Metadata: read"):
        _ruleset(plan, settings, facts, wanted)
        _others(plan, settings, facts, variables.get(APP_ID, ""))
        _kernels(plan, settings, facts, wanted)
    return plan


def carry_out(plan: Plan, say: Callable[[str], None]) -> list[Denied]:
    """Do what the plan says, as far as it is allowed; returns what was not.

    Raises:
        GitHubError: GitHub fails; what was done stays done, and a second run goes on from there.
    """
    denied = []
    for change in plan.changes:
        try:
            change.apply()
        except GitHubError as error:
            # 422 and 409 are answers to what was asked, such as a plan without rulesets: told, and the rest goes on.
            if error.status not in _DENIED | {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.CONFLICT}:
                raise
            denied.append(Denied(change.what, change.why, change.needs, str(error)))
        else:
            say(f"done: {change.what}")
    return denied


def _labels(plan: Plan, settings: Settings) -> None:
    there = {label.name.casefold() for label in settings.labels()}
    for name, (color, description) in LABELS.items():
        if name.casefold() in there:
            plan.right.append(f"label `{name}`")
            continue

        def create(name: str = name, color: str = color, description: str = description) -> None:
            settings.create_label(name, color, description)

        plan.changes.append(Change(f"create the label `{name}`", "start the agent by a label", "Issues: write", create))


def app_faults(variables: Mapping[str, str], secrets: Collection[str]) -> Iterator[Fault]:
    """What is missing of a GitHub App that the bot is to be; nothing where it is none."""
    named, key = bool(variables.get(APP_ID)), APP_KEY in secrets
    if named and not key:
        yield Fault(
            f"{APP_ID} is set, and there is no secret {APP_KEY}",
            "each job that talks to GitHub fails before it begins",
            f"`gh secret set {APP_KEY} --env {BOT_ENVIRONMENT} < KEY.pem`, or `gh variable delete {APP_ID}`",
        )
    if key and not named:
        yield Fault(
            f"there is a secret {APP_KEY}, and {APP_ID} is not set",
            "the workflows use GITHUB_TOKEN as if there were no App",
            f"`gh variable set {APP_ID} --body ID`, or `gh secret delete {APP_KEY} --env {BOT_ENVIRONMENT}`",
        )
    if named and not variables.get(BOT_LOGIN):
        yield Fault(
            f"{APP_ID} is set, and {BOT_LOGIN} is not",
            "the bot would not know its own comments and pull requests, and write each anew",
            "`proctor setup --bot-login SLUG[bot]`",
        )


def _variables(plan: Plan, settings: Settings, wanted: Wanted) -> Mapping[str, str]:
    """What to set, and all as they are then."""
    there = {variable.name: variable.value for variable in settings.variables()}
    asked = {**DEFAULTS, **there, **wanted.variables}
    if not _are_shards(asked.get(SHARED, "1")):
        told = plain_line(asked.pop(SHARED), 40)
        plan.faults.append(Fault(f"{SHARED} is {told}", f"it must be a number from 1 to {SHARDS}", SHARE))
    with plan.looking("runners", "compare the labels with them", "Administration: read"):
        runners = settings.runners()
        _runners(plan, runners, int(asked.get(SHARED, "1")), asked["PROCTOR_RUNNER"])
        _agents(plan, runners, asked["PROCTOR_AGENT_RUNNER"])
    for name, value in asked.items():
        if not name.startswith("PROCTOR_"):
            continue
        if there.get(name) == value:
            plan.right.append(f"variable {name} = {value}")
            continue

        def put(name: str = name, value: str = value) -> None:
            settings.set_variable(name, value, new=name not in there)

        what = f"set the variable {name} to {value}" + (f" (it is {there[name]})" if name in there else "")
        plan.changes.append(Change(what, "choose runners, device and model", "Variables: write", put))
    return asked


def _are_shards(value: str) -> bool:
    return re.fullmatch("[1-9][0-9]?", value, re.ASCII) is not None and int(value) <= SHARDS


def _agents(plan: Plan, runners: Sequence[Runner], label: str) -> None:
    """Whether agents have a runner, where the repository has any of its own."""
    if runners and not any(runner.carries(label) for runner in runners):
        plan.notes.append(
            f"no runner of the repository's own carries the label {plain_line(label, 40)}, at which an agent waits; "
            "those of its organisation are not listed here. Give it to a second runner on the machine of the exams, or "
            "name another with `proctor setup --agent-runner LABEL`"
        )


def _runners(plan: Plan, runners: Sequence[Runner], shards: int, label: str) -> None:
    """Whether as many runners carry the label as an exam has parts; with one part it waits for any."""
    if shards == 1:
        return
    there, label = sum(runner.carries(label) for runner in runners), plain_line(label, 40)
    if not there:
        plan.notes.append(
            f"{SHARED} is {shards}, and no runner of the repository's own carries the label {label}: those of its "
            "organisation are not listed here"
        )
    elif there < shards:
        few = f"{SHARED} is {shards}, and of the repository's own runners {there} carry the label {label}"
        why = "a part of an exam that has no runner waits until another part has ended"
        plan.faults.append(Fault(few, why, f"{SHARE}, or register more runners with that label"))
    else:
        plan.right.append(f"{there} runners carry the label {label}, for {shards} parts of an exam")


def _workflows(plan: Plan, settings: Settings) -> None:
    rights = settings.workflow_rights()
    if rights.can_approve_pull_request_reviews and rights.default_workflow_permissions == "read":
        plan.right.append("workflows may read by default, and create pull requests")
        return
    plan.changes.append(
        Change(
            "let workflows create pull requests, and only read where they say nothing",
            "let the bot open pull requests with GITHUB_TOKEN",
            "Administration: write",
            lambda: settings.set_workflow_rights(default="read", pull_requests=True),
        )
    )


def _environment(plan: Plan, settings: Settings, facts: Facts, name: str) -> None:
    found = settings.environment(name)
    policy = found.deployment_branch_policy if found else None
    named = policy is not None and policy.custom_branch_policies
    branches = settings.environment_branches(name) if named else []
    if policy is not None and policy.protected_branches:
        plan.right.append(f"environment `{name}`, for protected branches")
        return
    if facts.default_branch in branches:
        plan.right.append(f"environment `{name}`, for {', '.join(branches)}")
        return

    def put() -> None:
        if not named:
            settings.put_environment(name)
        settings.add_environment_branch(name, facts.default_branch)

    plan.changes.append(
        Change(
            f"{'open' if named else 'make'} the environment `{name}` for the branch {facts.default_branch}",
            ENVIRONMENTS[name],
            "Administration: write",
            put,
        )
    )


def required(rules: Sequence[Rule], app: int | None) -> set[str]:
    """Statuses that rules ask for, from this App where one is named."""
    checks = [check for rule in rules for check in rule.checks]
    return {check.context for check in checks if app is None or check.integration_id == app}


def _ruleset(plan: Plan, settings: Settings, facts: Facts, wanted: Wanted) -> None:
    rules = settings.branch_rules(facts.default_branch)
    missing = sorted({EXAM, APPROVAL} - required(rules, wanted.app))
    if not missing and any(rule.type == "pull_request" for rule in rules):
        plan.right.append(f"ruleset on {facts.default_branch}: pull requests only, with {EXAM} and {APPROVAL}")
        if not {EXAM, APPROVAL} <= {c.context for r in rules for c in r.checks if c.integration_id is not None}:
            plan.notes.append(
                "the required statuses count from whoever may set one: name the App with `proctor setup --app-id ID`"
            )
        return
    there = next((r for r in settings.rulesets() if r.name == RULESET), None)
    whole = settings.ruleset(there.id) if there else None
    named = [c.integration_id for rule in (whole.rules if whole else []) for c in rule.checks if c.integration_id]
    document = ruleset_document(wanted.app or next(iter(named), wanted.default_app), whole)
    plan.changes.append(
        Change(
            f"{'mend' if there else 'make'} the ruleset `{RULESET}` on {facts.default_branch}: pull requests only, "
            f"review by code owners, {EXAM} and {APPROVAL} required; administrators may bypass it in a pull request",
            "let nothing in without exam and approval",
            "Administration: write (and, for a private repository, a plan with rulesets)",
            lambda: settings.put_ruleset(document, there.id if there else None),
        )
    )


def _others(plan: Plan, settings: Settings, facts: Facts, app: str) -> None:
    """Whether the required statuses count from another App than the one as which the bot sets them."""
    checks = [check for rule in settings.branch_rules(facts.default_branch) for check in rule.checks]
    named = {c.integration_id for c in checks if c.context in (EXAM, APPROVAL) and c.integration_id is not None}
    if app.isdecimal() and named - {int(app)}:
        what = f"{APP_ID} is {plain_line(app, 20)}, and the required statuses count from {min(named - {int(app)})}"
        plan.faults.append(
            Fault(what, "what the bot says of an exam counts for nothing", "`proctor setup --app-id ID`")
        )


def ruleset_document(app: int | None, there: Ruleset | None = None) -> dict[str, Any]:
    """Our ruleset; rules that people added to the one that is there stay."""
    checks = {
        context: {"context": context} | ({"integration_id": app} if app is not None else {})
        for context in (EXAM, APPROVAL)
    }
    kept: list[dict[str, Any]] = []
    for rule in there.rules if there else []:
        if rule.type == "required_status_checks":
            checks = {c.context: c.model_dump(exclude_none=True) for c in rule.checks} | checks
        else:
            kept.append({"type": rule.type} | ({"parameters": rule.parameters} if rule.parameters else {}))
    reviews = {
        "required_approving_review_count": 0,
        "dismiss_stale_reviews_on_push": False,
        "require_code_owner_review": True,
        "require_last_push_approval": False,
        "required_review_thread_resolution": False,
    }
    statuses = {"strict_required_status_checks_policy": False, "required_status_checks": list(checks.values())}
    ours: list[dict[str, Any]] = [
        {"type": "deletion"},
        {"type": "non_fast_forward"},
        {"type": "pull_request", "parameters": reviews},
        {"type": "required_status_checks", "parameters": statuses},
    ]
    seen = {rule["type"] for rule in kept}
    bypass = there.bypass_actors if there else [{**ADMINISTRATOR, "bypass_mode": "pull_request"}]
    return {
        "name": RULESET,
        "target": "branch",
        "enforcement": "active",
        "conditions": {"ref_name": {"include": ["~DEFAULT_BRANCH"], "exclude": []}},
        "rules": kept + [rule for rule in ours if rule["type"] not in seen],
    } | ({"bypass_actors": bypass} if bypass is not None else {})


def _kernels(plan: Plan, settings: Settings, facts: Facts, wanted: Wanted) -> None:
    """A push ruleset: only private and internal repositories have them, and only a GitHub App can be let through."""
    if not wanted.restrict_kernels:
        return
    if not facts.private or wanted.app is None:
        plan.notes.append(
            "kernels/ cannot be kept to the bot on every branch: GitHub restricts paths in private and internal "
            "repositories only, and lets a GitHub App through but not GITHUB_TOKEN (--app-id). The default branch is "
            f"kept by {EXAM} all the same"
        )
        return
    if any(ruleset.name == KERNELS_RULESET for ruleset in settings.rulesets()):
        plan.right.append(f"ruleset `{KERNELS_RULESET}`")
        return
    document = {
        "name": KERNELS_RULESET,
        "target": "push",
        "enforcement": "active",
        "bypass_actors": [
            {"actor_id": wanted.app, "actor_type": "Integration", "bypass_mode": "always"},
            {**ADMINISTRATOR, "bypass_mode": "always"},
        ],
        "rules": [{"type": "file_path_restriction", "parameters": {"restricted_file_paths": ["kernels/**/*.py"]}}],
    }
    plan.changes.append(
        Change(
            f"make the ruleset `{KERNELS_RULESET}`: only the App {wanted.app} and administrators push kernels/**/*.py",
            "keep kernels/ to the bot",
            "Administration: write (and a plan with push rulesets)",
            lambda: settings.put_ruleset(document),
        )
    )


def told(plan: Plan) -> Iterator[str]:
    """The plan, as lines."""
    yield f"{plan.repository}:"
    yield from (f"  right  {text}" for text in plan.right)
    yield from (f"  to do  {change.what}\n         takes {change.needs}" for change in plan.changes)
    yield from (f"  DENIED {denied}" for denied in plan.denied)
    yield from (f"  WRONG  {fault.what}: {fault.why}\n         {fault.remedy}" for fault in plan.faults)
    yield from (f"  note   {text}" for text in plan.notes)
    if not (plan.changes or plan.denied or plan.faults):
        yield "  nothing to do"
