"""`proctor doctor`: what is wrong with an installation, and how to mend it. Looks at the checkout, then at GitHub."""

import difflib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from bot.contract.load import contract_names, load_contract, load_incumbents
from bot.errors import GitHubError, UsageError
from bot.github.settings import Settings
from bot.handlers import install, setup
from bot.handlers.checks import Check
from bot.handlers.lock import Lock, is_source
from bot.handlers.rule import FILE, parse_rule
from bot.handlers.tokens import token_kind
from bot.sanitize import plain_line

KEY = "ANTHROPIC_API_KEY"
"""The secret that optimize.yml gives the agent."""
DIFF_LINES = 12
"""Of a changed file so many lines of the difference are shown."""

_MAINTAINER = "whoever maintains the repository"
_REMOTE = re.compile(r"(?:[/:])([\w.-]+/[\w.-]+?)(?:\.git)?/?$")


def look_at_checkout(root: Path) -> Iterator[Check]:
    """Files of the checkout: workflows, form, owners, lock, contracts, incumbents."""
    yield from _shipped_files(root)
    yield from _owners(root)
    yield from _lock(root)
    yield from _contracts(root)
    yield from _incumbents(root)
    yield from _rule(root)


def look_at_github(connect: Callable[[], Settings], token: str) -> Iterator[Check]:
    """Settings on GitHub: the token's rights, then what `proctor setup` would change."""
    yield Check("note", "token", token_kind(token))
    try:
        settings = connect()
        plan = setup.make_plan(settings, setup.Wanted())
    except GitHubError as error:
        remedy = "whoever runs this: check --repository and GITHUB_TOKEN; it must at least read the repository"
        yield Check("unseen", "the repository on GitHub", plain_line(str(error), 300), remedy)
        return
    for text in plan.right:
        yield Check("well", text)
    for change in plan.changes:
        remedy = f"an administrator of the repository: `proctor setup`, with a token that has {change.needs}"
        yield Check("mend", f"missing: {change.what}", f"needed to {change.why}", remedy)
    for fault in plan.faults:
        yield Check("mend", fault.what, fault.why, f"an administrator: {fault.remedy}")
    for denied in plan.denied:
        remedy = f"an administrator: give the token {denied.needs}, or run `proctor doctor` with one that has it"
        yield Check("unseen", denied.what, denied.said, remedy)
    yield from _key(settings)
    yield from _app(settings)
    for note in plan.notes:
        yield Check("note", note)


def _key(settings: Settings) -> Iterator[Check]:
    """Whether the agent's job has the model's key; its value nobody can read."""
    try:
        names = settings.secret_names(setup.ENVIRONMENT)
    except GitHubError as error:
        remedy = "an administrator: give the token Secrets: read and Environments: read, or look in the settings"
        yield Check("unseen", "the model's key", plain_line(str(error), 300), remedy)
        return
    if KEY in names:
        yield Check("well", f"secret {KEY}")
    else:
        remedy = f"an administrator: `gh secret set {KEY} --env {setup.ENVIRONMENT}`"
        yield Check("mend", f"no secret {KEY}", "needed by the agent; reruns and approvals do without", remedy)


def _app(settings: Settings) -> Iterator[Check]:
    """As whom the bot works; what of an App is missing that is named, the plan says."""
    try:
        variables = {variable.name: variable.value for variable in settings.variables()}
        secrets = settings.secret_names(setup.BOT_ENVIRONMENT)
    except GitHubError:
        # That the one or the other cannot be seen has been said.
        return
    named, login = variables.get(setup.APP_ID), variables.get(setup.BOT_LOGIN)
    if not named:
        yield Check("note", "the bot is github-actions[bot], by GITHUB_TOKEN", "what a GitHub App adds: SECURITY.md")
        for fault in setup.app_faults(variables, secrets):
            yield Check("mend", fault.what, fault.why, f"an administrator: {fault.remedy}")
    elif login and setup.APP_KEY in secrets:
        yield Check("well", f"the bot is {plain_line(login, 60)}, by the App {plain_line(named, 40)}")


def repository_of(root: Path) -> str | None:
    """`owner/name` of the checkout's remote `origin`, if it has one of that form."""
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _REMOTE.search(done.stdout.strip())
    return found[1] if found and done.returncode == 0 else None


def _shipped_files(root: Path) -> Iterator[Check]:
    shipped = install.shipped_workflows(source=is_source(root))
    wanted = {install.WORKFLOWS / name: text for name, text in shipped.items()}
    for path, text in {**wanted, install.FORM: install.shipped_form()}.items():
        try:
            there = (root / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            yield Check(
                "mend", f"{path} is missing", remedy=f"{_MAINTAINER}: `proctor init`, then merge what it writes"
            )
            continue
        except (OSError, UnicodeDecodeError) as error:
            yield Check("unseen", str(path), str(error), f"{_MAINTAINER}: make it a readable text file")
            continue
        if there == text:
            yield Check("well", str(path), "as shipped")
        else:
            remedy = f"{_MAINTAINER}: take the change back with `proctor init --force`, if it was not meant"
            yield Check("mend", f"{path} differs from what this version ships", _difference(text, there), remedy)


def _difference(shipped: str, there: str) -> str:
    changed = difflib.unified_diff(shipped.splitlines(), there.splitlines(), lineterm="", n=0)
    lines = [line for line in changed if not line.startswith(("---", "+++", "@@"))]
    more = len(lines) - DIFF_LINES
    shown = [plain_line(line, 110) for line in lines[:DIFF_LINES]]
    return "\n".join(["- shipped, + here", *shown, *([f"… and {more} lines more"] if more > 0 else [])])


def _owners(root: Path) -> Iterator[Check]:
    name = install.owners_file(root)
    if name is None:
        yield Check("mend", "no CODEOWNERS", remedy=f"{_MAINTAINER}: `proctor init --owner @organisation/team`")
        return
    owners = install.owners_of((root / name).read_text(encoding="utf-8", errors="replace"))
    needed = install.protected_paths() + (["/bot/"] if is_source(root) else [])
    missing = [path for path in needed if not owners.get(path)]
    if missing:
        remedy = f"{_MAINTAINER}: `proctor init --owner @organisation/team` adds the lines"
        yield Check("mend", f"{name} has no owner for {', '.join(missing)}", remedy=remedy)
    elif any(install.PLACEHOLDER in owners[path] for path in needed):
        remedy = f"{_MAINTAINER}: put in the people or the team who answer for contracts and workflows"
        yield Check("mend", f"{name} names {install.PLACEHOLDER}, which is nobody", remedy=remedy)
    else:
        yield Check("well", str(name), f"owners for {', '.join(needed)}")


def _lock(root: Path) -> Iterator[Check]:
    try:
        lock = Lock.read(root)
    except UsageError as error:
        yield Check("mend", "no lock", str(error).splitlines()[0], f"{_MAINTAINER}: `proctor init`")
        return
    yield Check("well", "lock", f"{lock.digest[:16]}, {len(lock.versions)} versions")


def _contracts(root: Path) -> Iterator[Check]:
    names = contract_names(root / "contracts")
    if not names:
        remedy = f"{_MAINTAINER}: `proctor contract new NAME`, then contracts/README.md"
        yield Check("mend", "no contract in contracts/", remedy=remedy)
    for name in names:
        try:
            loaded = load_contract(root / "contracts", name)
        except (UsageError, OSError) as error:
            yield Check("mend", f"contract {name}", str(error), f"whoever wrote it: `proctor contract check {name}`")
        else:
            yield Check("well", f"contract {name}", f"loads, digest {loaded.digest[:12]}")


def _rule(root: Path) -> Iterator[Check]:
    file = root / FILE
    if not file.is_file():
        return
    try:
        rule = parse_rule(file.read_text(encoding="utf-8"))
    except (UsageError, OSError, UnicodeDecodeError) as error:
        yield Check(
            "mend", f"rule of approvals {FILE}", plain_line(str(error), 300), f"{_MAINTAINER}: mend or remove it"
        )
        return
    own = "may" if rule.requester_may_approve else "may not"
    yield Check("well", "rule of approvals", f"{rule.needed} must approve; whoever asked {own}")


def _incumbents(root: Path) -> Iterator[Check]:
    known = set(contract_names(root / "contracts"))
    for index in sorted((root / "kernels").glob("*/index.yaml")):
        name = index.parent.name
        remedy = f"{_MAINTAINER}: mend kernels/{name}/index.yaml, or put the file there"
        if name not in known:
            yield Check(
                "mend", f"kernels/{name} has an index and no contract", remedy=f"{_MAINTAINER}: remove or rename"
            )
            continue
        try:
            found = load_incumbents(root / "kernels", name).incumbents
        except (UsageError, OSError) as error:
            yield Check("mend", f"incumbents of {name}", str(error), remedy)
            continue
        missing = [file for file in found.values() if not (index.parent / file).is_file()]
        if missing:
            yield Check("mend", f"incumbents of {name}", f"not there: {', '.join(sorted(set(missing)))}", remedy)
        else:
            yield Check("well", f"incumbents of {name}", ", ".join(f"{a}: {f}" for a, f in found.items()) or "none")
