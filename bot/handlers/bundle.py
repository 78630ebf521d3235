"""A replay bundle: all that a verdict rests on in one folder, so that anybody can look again.

    evaluation.json  candidate.py  contracts/<op>/…
    counterexample.safetensors  influence.svg (of a refusal)
    bundle.json      the digest of every other file

`proctor replay` decides again from the facts and draws the counterexample again from the salt; it runs nothing of the
candidate's. `proctor reproduce` examines the candidate again on this machine.
"""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bot import digest
from bot.contract.distribution import Frozen
from bot.contract.load import load_contract
from bot.errors import UsageError
from bot.evaluation import Evaluation, Finding, Job
from bot.handlers.run import parse_document
from bot.launch import Launcher, Watch
from bot.report import influence
from bot.verdict import Verdict, decide

MANIFEST = "bundle.json"
Recheck = Callable[[Path], list[Finding]]


class Manifest(Frozen):
    """Digests of the bundle's files, and the verdict its maker saw."""

    schema_version: Literal[1] = 1
    files: dict[str, str]
    verdict: str
    evaluation: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was read; its files may still be other than its manifest says."""

    folder: Path
    manifest: Manifest
    evaluation: Evaluation
    source: str


def write_bundle(folder: Path, evaluation: Evaluation, source: str, contract: Path) -> None:
    """Complete a folder in which the verifier may have left a counterexample.

    Raises:
        UsageError: the folder holds a bundle already.
    """
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} holds a bundle already")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation.json").write_text(evaluation.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / "candidate.py").write_text(source, encoding="utf-8")
    drawn = influence.of_evaluation(evaluation)
    if drawn is not None:
        (folder / "influence.svg").write_text(drawn, encoding="utf-8")
    target = folder / "contracts" / contract.name
    shutil.copytree(contract, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    manifest = Manifest(files=_digests(folder), verdict=decide([evaluation]).kind.value, evaluation=evaluation.digest())
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_bundle(folder: Path) -> Bundle:
    """Read a bundle.

    Raises:
        UsageError: it is none (DataError: a document in it has mistakes).
    """
    try:
        manifest = parse_document(Manifest, (folder / MANIFEST).read_bytes(), MANIFEST)
        evaluation = parse_document(Evaluation, (folder / "evaluation.json").read_bytes(), "evaluation.json")
        source = (folder / "candidate.py").read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} is not a bundle: {error.strerror or error}") from None
    return Bundle(folder, manifest, evaluation, source)


def replay(bundle: Bundle, recheck: Recheck) -> list[Finding]:
    """Everything that can be computed again without running the candidate."""
    evaluation, found = bundle.evaluation, []
    known = _digests(bundle.folder)
    changed = sorted(
        name for name in known | bundle.manifest.files if known.get(name) != bundle.manifest.files.get(name)
    )
    found.append(Finding(what="files are the manifest's", agrees=not changed, detail=", ".join(changed)[:200]))
    found.append(_same("evaluation's digest", evaluation.digest(), bundle.manifest.evaluation))
    found.append(_same("candidate's digest", digest.of_bytes(bundle.source.encode()), evaluation.candidate_digest))
    loaded = load_contract(bundle.folder / "contracts", evaluation.contract)
    found.append(_same("contract's digest", loaded.digest, evaluation.contract_digest))
    for run in evaluation.runs:
        committed = hashlib.sha256(bytes.fromhex(run.salt)).hexdigest()
        what = "salt is the one committed to" + (" (confirmation)" if run.mode == "confirm" else "")
        found.append(_same(what, committed, run.salt_commitment))
    verdict = decide([evaluation])
    found.append(_same("verdict decided again", verdict.kind.value, bundle.manifest.verdict))
    return [*found, *recheck(bundle.folder)]


def reproduce(bundle: Bundle, launcher: Launcher, watch: Watch) -> tuple[list[Finding], Verdict]:
    """Examine the candidate again here; what agrees with the bundle, and the verdict of this machine."""
    old = bundle.evaluation
    job = Job(
        contracts_dir=str(bundle.folder / "contracts"),
        contract=old.contract,
        candidate_name=old.candidate_name,
        source=bundle.source,
        mode=old.mode,
        device="cpu" if old.environment.target == "cpu" else "cuda",
    )
    new = launcher(job, watch)
    before, after = decide([old]), decide([new])
    found = [
        _same("accepted", str(after.accepted), str(before.accepted)),
        _same("verdict", after.kind.value, before.kind.value),
        _same("judge", new.judge_digest[:12], old.judge_digest[:12]),
        _same("device", new.environment.device, old.environment.device),
    ]
    if before.speedup and after.speedup:
        overlap = before.speedup.low <= after.speedup.high and after.speedup.low <= before.speedup.high
        detail = f"{after.speedup.mid:.2f}x here, {before.speedup.mid:.2f}x there"
        found.append(Finding(what="speedup intervals overlap", agrees=overlap, detail=detail))
    return found, after


def _same(what: str, here: str, there: str) -> Finding:
    return Finding(what=what, agrees=here == there, detail=here if here == there else f"{here}, not {there}")


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(p.relative_to(folder)): digest.of_bytes(p.read_bytes()) for p in files if p.name != MANIFEST}
