"""`proctor init`: what a repository needs to use Proctor, written into it from the files that this package carries.

Those files are this repository's own (`shipped/` holds links to them, which a wheel carries as copies). Nothing that is
there already is changed unless it is told to; a second run finds nothing to do.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from bot.contract.new import NAME, write_starter
from bot.errors import UsageError
from bot.handlers.lock import CONSTRAINTS, FOLDER, PACKAGE, REQUIREMENTS, is_source

SHIPPED = Path(__file__).with_name("shipped")
PLACEHOLDER = "@maintainers"
"""Whom our own CODEOWNERS names; no account of that name can be meant."""

OWN_INSTALL = "pip install --quiet --constraint constraints.txt ."
PINNED_INSTALL = f"pip install --quiet --constraint {CONSTRAINTS} --requirement {REQUIREMENTS}"
RUNNER_CHECK = "proctor runner check"
_ON_THE_RUNNER = re.compile(r"^( +- )run: proctor (?:agent|examine)\b", re.MULTILINE)
"""Steps of jobs that install nothing: where there is a lock, they first see whether the runner keeps to it."""

WORKFLOWS = Path(".github/workflows")
FORM = Path(".github/ISSUE_TEMPLATE/optimize.yml")
OWNER_FILES = (Path(".github/CODEOWNERS"), Path("CODEOWNERS"), Path("docs/CODEOWNERS"))
"""Where GitHub looks, and in which order:
https://docs.github.com/en/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners"""

_OWNER = re.compile(r"@[A-Za-z0-9](?:[A-Za-z0-9-]*)(?:/[A-Za-z0-9._-]+)?")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. `proctor` is a requirement as pip reads it, or the path of a wheel to keep in the repository;
    empty: as the repository has it, or else this version."""

    proctor: str = ""
    owner: str = PLACEHOLDER
    contract: str | None = None
    force: bool = False


@dataclass(slots=True)
class Written:
    """What was done, by path."""

    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """There already, and a person's to write."""


def shipped_workflows(*, source: bool = False) -> dict[str, str]:
    """Name and text of each workflow: for a repository that uses Proctor, or (`source`) as Proctor's own has it."""
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted((SHIPPED / "workflows").glob("*.yml"))}
    if source:
        return files
    return {name: _pinned(text) for name, text in files.items()}


def _pinned(text: str) -> str:
    text = text.replace(OWN_INSTALL, PINNED_INSTALL)
    return _ON_THE_RUNNER.sub(lambda step: f"{step[1]}run: {RUNNER_CHECK}\n{step[0]}", text)


def shipped_form() -> str:
    """Text of the issue form."""
    return (SHIPPED / "form.yml").read_text(encoding="utf-8")


def protected_paths() -> list[str]:
    """What people must answer for in a repository that uses Proctor: `bot/` is in the wheel there."""
    lines = (SHIPPED / "CODEOWNERS").read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if line.startswith("/") and line.split()[0] != "/bot/"]


def owners_file(root: Path) -> Path | None:
    """The CODEOWNERS that GitHub reads, if there is one."""
    return next((name for name in OWNER_FILES if (root / name).is_file()), None)


def owners_of(text: str) -> dict[str, list[str]]:
    """Owners by pattern; of two lines with one pattern the later counts, as on GitHub."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return {words[0]: words[1:] for words in lines if words}


def install(root: Path, wanted: Wanted) -> Written:
    """Write what is missing.

    Raises:
        UsageError: the folder is no repository, an answer makes no sense, or files differ that would be overwritten;
            then nothing was written.
    """
    _admit(root, wanted)
    files, done = _files(wanted, kept=(root / REQUIREMENTS).is_file()), Written()
    differing = []
    for path, data in files.items():
        _inside(root, path)
        if (root / path).is_file() and (root / path).read_bytes() == data:
            done.unchanged.append(str(path))
        elif (root / path).exists():
            differing.append(str(path))
    if differing and not wanted.force:
        raise UsageError(
            f"nothing was written: {len(differing)} of the files are there and differ: {', '.join(differing)}.\n"
            "Compare them (`proctor doctor` shows how they differ), then repeat with --force to overwrite them"
        )
    for path, data in files.items():
        if str(path) not in done.unchanged:
            _write(root / path, data)
            done.written.append(str(path))
    _own(root, wanted.owner, done)
    _folders(root, wanted.contract, done)
    return done


def _admit(root: Path, wanted: Wanted) -> None:
    if not (root / ".git").exists():
        raise UsageError(f"{root} is not the top folder of a git repository: name it, or run `git init` there first")
    if is_source(root):
        raise UsageError(f"{root} is Proctor's own repository: it has all this, and installs itself from its checkout")
    if not _OWNER.fullmatch(wanted.owner):
        raise UsageError(f"{wanted.owner!r} is no owner: @somebody or @organisation/team")
    if wanted.contract is not None and not NAME.fullmatch(wanted.contract):
        raise UsageError(f"{wanted.contract!r} is no name for a contract: small letters, digits and _")
    if "\n" in wanted.proctor:
        raise UsageError("--proctor takes one requirement, as in kernel-proctor==0.1.0, or the path of a wheel")


def this_version() -> str:
    """The requirement that pins the Proctor that runs."""
    return f"{PACKAGE}=={version(PACKAGE)}"


def _files(wanted: Wanted, *, kept: bool) -> dict[Path, bytes]:
    """Everything that is ours to write, whole."""
    found = {WORKFLOWS / name: text.encode() for name, text in shipped_workflows().items()}
    found[FORM] = shipped_form().encode()
    found[CONSTRAINTS] = (SHIPPED / "constraints.txt").read_bytes()
    if kept and not wanted.proctor:
        return found
    requirement = wanted.proctor.strip() or this_version()
    if requirement.endswith(".whl") and "://" not in requirement:
        wheel = Path(requirement)
        try:
            found[FOLDER / wheel.name] = wheel.read_bytes()
        except OSError as error:
            raise UsageError(f"{wheel}: {error.strerror or error}") from None
        requirement = f"./{FOLDER / wheel.name}"
    elif not re.match(rf"{PACKAGE}\s*(==|@)", requirement):
        raise UsageError(f"{requirement!r} pins nothing: {PACKAGE}==VERSION, {PACKAGE} @ URL#sha256=…, or a wheel")
    text = f"# What the workflows install, within {CONSTRAINTS}; `proctor runner prepare` the same on the runner.\n"
    found[REQUIREMENTS] = f"{text}{requirement}\n".encode()
    return found


def _own(root: Path, owner: str, done: Written) -> None:
    """Add the lines that are missing to CODEOWNERS, at its end, where they win; lines that are there stay."""
    name = owners_file(root) or OWNER_FILES[0]
    _inside(root, name)
    before = (root / name).read_text(encoding="utf-8") if (root / name).is_file() else ""
    missing = [path for path in protected_paths() if path not in owners_of(before)]
    if not missing:
        done.unchanged.append(str(name))
        return
    lines = ["# The contracts and the workflows are people's, never an agent's.", *(f"{p} {owner}" for p in missing)]
    _write(root / name, (before + ("\n" if before else "") + "\n".join(lines) + "\n").encode())
    done.written.append(f"{name} ({', '.join(missing)})")


def _folders(root: Path, contract: str | None, done: Written) -> None:
    """The folders of contracts and kernels, with what explains them; what a person wrote there stays."""
    for folder in ("contracts", "kernels"):
        path = Path(folder) / "README.md"
        _inside(root, path)
        if (root / path).exists():
            done.kept.append(str(path))
        else:
            _write(root / path, (SHIPPED / f"{folder}.md").read_bytes())
            done.written.append(str(path))
    if contract is not None and (root / "contracts" / contract).exists():
        done.kept.append(f"contracts/{contract}/")
    elif contract is not None:
        write_starter(root / "contracts", contract)
        done.written.append(f"contracts/{contract}/")


def _inside(root: Path, path: Path) -> None:
    """Refuse a link that would lead a file out of the repository."""
    if not (root / path).resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{path} leads out of the repository through a symbolic link; nothing was written there")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    shutil.move(fresh, path)


def told(done: Written, wanted: Wanted) -> Sequence[str]:
    """What was done and what to do next, as lines."""
    groups: Mapping[str, list[str]] = {"wrote": done.written, "as shipped": done.unchanged, "left alone": done.kept}
    lines = [f"{word:10}  {path}" for word, paths in groups.items() for path in paths]
    if not done.written:
        lines.append("nothing to do: everything was there")
    steps = [
        "commit these files and merge them into the default branch: GitHub runs the workflows of that branch",
        "an administrator: `proctor setup --dry-run`, then `proctor setup` (labels, variables, ruleset, environment)",
        "an administrator: give the agent its model's key: `gh secret set ANTHROPIC_API_KEY --env proctor-agent`",
        "whoever owns the GPU machine: register it as a runner; there `proctor runner doctor` and `prepare`",
        "`proctor doctor` says what is still missing; then open an issue with the form and label it `optimize`",
    ]
    if wanted.owner == PLACEHOLDER:
        steps.insert(0, f"replace {PLACEHOLDER} in CODEOWNERS by the people who answer for contracts (or use --owner)")
    if wanted.contract is None:
        steps.insert(0, "write a contract: `proctor contract new NAME`, then contracts/README.md")
    if str(REQUIREMENTS) in done.written and not wanted.proctor.endswith(".whl"):
        pin = wanted.proctor or this_version()
        steps.insert(0, f"make sure that your package index has {pin}, and ours; or keep a wheel: --proctor FILE.whl")
    return [*lines, "", "next:", *(f"  {number}. {step}" for number, step in enumerate(steps, 1))]
