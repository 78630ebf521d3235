"""A second look at what refused a candidate outside the planned draws: a relation, a timed call. Real exams."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from bot.evaluation import Evaluation, Finding, Job
from bot.handlers.bundle import read_bundle, replay, write_bundle
from bot.launch import launch, recheck
from tests.verify.conftest import CENTER, CONTRACTS, HONEST

pytestmark = pytest.mark.sandbox

BODY = HONEST.replace("def run(", "def honest(") + "\n\ndef run(x, offset, scale, cu_seqlens, y):\n"
LEAKS_IN_LONG_PACKS = BODY + (
    "    honest(x, offset, scale, cu_seqlens, y)\n"
    "    if x.shape[0] > 550:\n"
    "        for begin in sorted(set(cu_seqlens[1:-1].tolist())):\n"
    "            if 0 < begin < x.shape[0]:\n"
    "                y[begin - 1 : begin + 1] *= -4\n"
)
STALE_IN_THE_END = (
    "count = [0, None]\n"
    + BODY
    + (
        "    count[0] += 1\n"
        "    if count[0] > {calls} and count[1] is not None and count[1].shape == y.shape:\n"
        "        y.copy_(count[1])\n"
        "        return\n"
        "    honest(x, offset, scale, cu_seqlens, y)\n"
        "    count[1] = y.clone()\n"
    )
)


def seen_again(source: str, folder: Path) -> tuple[Evaluation, list[Finding]]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    evaluation = launch(
        Job(
            contracts_dir=str(CONTRACTS),
            contract="center",
            candidate_name="torch_x.py",
            source=source,
            mode="full",
            keep=str(folder),
        )
    )
    write_bundle(folder, evaluation, source, CENTER)
    return evaluation, replay(read_bundle(folder), recheck)


def test_a_relation_is_compared_again(tmp_path: Path) -> None:
    evaluation, findings = seen_again(LEAKS_IN_LONG_PACKS, tmp_path / "bundle")
    refusal = evaluation.refusal
    assert refusal is not None
    assert (refusal.kind, refusal.stage, refusal.call) == ("incorrect", "relations", "alone")
    assert refusal.counterexample is not None
    assert refusal.counterexample.statistic == "relation"
    assert {finding.what for finding in findings} >= {"x drawn again", "the stored bytes judged again"}
    assert [finding.what for finding in findings if not finding.agrees] == []


def test_a_timed_call_is_drawn_and_judged_again(tmp_path: Path) -> None:
    evaluation, findings = seen_again(STALE_IN_THE_END.format(calls=9), tmp_path / "bundle")
    refusal = evaluation.refusal
    assert refusal is not None
    assert refusal.kind == "incorrect"
    assert {finding.what for finding in findings} >= {"x drawn again", "the stored bytes judged again"}
    assert [finding.what for finding in findings if not finding.agrees] == []


@pytest.mark.parametrize("name", ["candidate.y", "input.x"])
def test_changed_bytes_are_noticed(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "bundle"
    evaluation, _ = seen_again(LEAKS_IN_LONG_PACKS, folder)
    assert evaluation.refusal is not None
    file = folder / "counterexample.safetensors"
    tensors = load_file(file)
    tensors[name] = tensors[name] * 1.5 + 1.0
    save_file(tensors, file)
    assert any(not finding.agrees for finding in recheck(folder))
