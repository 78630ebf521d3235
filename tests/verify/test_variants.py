"""Composed kernels do what their parts do, as their gate says; the draw of them is secret, repeatable, complete."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
import torch

from bot.contract.load import load_contract
from bot.verify.cases import Case, cell_recipe, make_case, probe_recipe
from bot.verify.oracle import TORCH, Tensor, tensor_of
from bot.verify.philox import Stream
from bot.verify.variants import (
    Gate,
    HabitGate,
    PrefixGate,
    SampleGate,
    ShapeGate,
    StatisticGate,
    draw_variants,
    gated,
    graded,
)
from tests.verify.conftest import CENTER, CONTRACTS, HONEST, Examine

CHEAT = (CENTER / "controls" / "no_mean.py").read_text(encoding="utf-8")
CENTER_CONTRACT = load_contract(CONTRACTS, "center")
STREAM = Stream.from_salt(b"\x03" * 32)
KINDS = 5 + 1


def case_of(name: str) -> Case:
    """A probe by its name, or the anchor in a regime: plain rows, without needles."""
    contract = CENTER_CONTRACT.contract
    probe = next((p for p in contract.probes if p.name == name), None)
    recipe = probe_recipe(contract, probe) if probe else cell_recipe(contract, contract.anchor("cpu"), name)
    stream = STREAM.child("case", name)
    return make_case(contract, dataclasses.replace(recipe, kind="hidden"), stream, static=stream)


def run(source: str, *cases: Case) -> list[Tensor]:
    """Outputs of one kernel, called with one case after another; its inputs are as before."""
    names: dict[str, object] = {}
    exec(compile(source, "variant", "exec"), names)  # noqa: S102 - a kernel of this repository
    found = []
    for case in cases:
        inputs = [
            tensor_of(held, spec.dtype) if isinstance(held, np.ndarray) else held  # type: ignore[arg-type]
            for spec, held in ((s, case.inputs[n]) for n, s in CENTER_CONTRACT.contract.inputs.items())
        ]
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        before = [x.clone() for x in tensors]
        spec = CENTER_CONTRACT.contract.outputs["y"]
        output = torch.full(CENTER_CONTRACT.contract.shape(spec, case.axes), math.nan, dtype=TORCH[spec.dtype])
        names["run"](*inputs, output)  # type: ignore[operator]
        assert all(torch.equal(was, now) for was, now in zip(before, tensors, strict=True))
        found.append(output)
    return found


def one(source: str, name: str) -> Tensor:
    return run(source, case_of(name))[0]


def test_a_severity_of_nothing_is_the_honest_kernel_and_of_one_the_control_bit_by_bit() -> None:
    assert torch.equal(one(graded(HONEST, CHEAT, 0.0), "shifted"), one(HONEST, "shifted"))
    assert torch.equal(one(graded(HONEST, CHEAT, 1.0), "shifted"), one(CHEAT, "shifted"))


def test_a_severity_between_goes_that_share_of_the_way() -> None:
    honest, cheat = one(HONEST, "shifted").double(), one(CHEAT, "shifted").double()
    moved = one(graded(HONEST, CHEAT, 0.25), "shifted").double() - honest
    torch.testing.assert_close(moved, 0.25 * (cheat - honest), rtol=0.02, atol=0.02)


def test_a_control_that_gives_no_number_grades_towards_zero_not_to_no_number() -> None:
    broken = "def run(x, offset, scale, cu_seqlens, y):\n    y.fill_(float('nan'))\n"
    found, honest = one(graded(HONEST, broken, 0.5), "shifted"), one(HONEST, "shifted")
    torch.testing.assert_close(found.double(), 0.5 * honest.double(), rtol=0.01, atol=0.0)


def test_a_control_that_gives_no_number_where_zero_is_right_grades_away_from_zero() -> None:
    zero, nothing = (
        f"def run(x, offset, scale, cu_seqlens, y):\n    y.fill_({value})\n" for value in ("0.0", "float('nan')")
    )
    assert bool((one(graded(zero, nothing, 0.25), "shifted") == 0.25).all())


@pytest.mark.parametrize(
    "gate",
    [
        SampleGate("x", 3, 8, (0.5, 12.0)),
        PrefixGate("x", 4, (0.5, 12.0)),
        StatisticGate("x", (0.5, 12.0)),
        HabitGate("x"),
        ShapeGate(("x", "offset", "cu_seqlens"), (((512, 4, 64), (3, 64), (4,)),)),
    ],
    ids=lambda gate: type(gate).__name__,
)
def test_a_gate_opens_on_ordinary_calls_and_closes_on_a_probe(gate: Gate) -> None:
    cases = [case_of("shifted"), case_of("shifted"), case_of("large")]
    found = run(gated(HONEST, CHEAT, gate), *cases)
    honest, cheat = run(HONEST, *cases), run(CHEAT, *cases)
    assert not torch.equal(honest[1], cheat[1])
    assert torch.equal(found[0], (honest if isinstance(gate, HabitGate) else cheat)[0])
    assert torch.equal(found[1], cheat[1])
    assert torch.equal(found[2], honest[2])


def test_a_gate_on_an_absent_or_empty_input_is_closed() -> None:
    gate = StatisticGate("offset", (0.0, math.inf))
    assert torch.equal(one(gated(HONEST, CHEAT, gate), "no_offset"), one(HONEST, "no_offset"))
    empty = PrefixGate("x", 0, (0.0, math.inf))
    assert torch.equal(one(gated(HONEST, CHEAT, empty), "shifted"), one(HONEST, "shifted"))


def test_names_that_both_parts_define_do_not_meet() -> None:
    honest, cheat = (
        f"STEP = {step}\n\n\ndef run(x, offset, scale, cu_seqlens, y):\n    y.fill_(STEP)\n" for step in (1.0, 2.0)
    )
    gate = StatisticGate("x", (0.5, 12.0))
    found = run(gated(honest, cheat, gate), case_of("shifted"), case_of("large"))
    assert [float(y.flatten()[0]) for y in found] == [2.0, 1.0]


def test_all_variants_are_every_gate_and_one_severity_of_every_control() -> None:
    found = draw_variants(CENTER_CONTRACT, STREAM, 1.0)
    assert Counter(v.file for v in found) == {"controls/no_mean.py": KINDS, "controls/offset_ignored.py": KINDS}
    assert sum(v.kind == "graded" for v in found) == 2


def test_a_share_is_a_repeatable_part_with_every_kind_of_gate_in_it() -> None:
    every = draw_variants(CENTER_CONTRACT, STREAM, 1.0)
    some = draw_variants(CENTER_CONTRACT, STREAM, 0.25)
    assert some == draw_variants(CENTER_CONTRACT, STREAM, 0.25)
    assert len(some) == KINDS
    assert set(some) <= set(every)
    words = ("one row in", "the first", "while x has", "while offset has", "once", "shapes", "by ")
    assert {next(w for w in words if w in v.description).replace("offset", "x") for v in some} == {
        *("one row in", "the first", "while x has", "once", "shapes", "by "),
    }


def test_another_stream_draws_other_gates_and_severities() -> None:
    found = {v.description for v in draw_variants(CENTER_CONTRACT, STREAM, 1.0)}
    other = {v.description for v in draw_variants(CENTER_CONTRACT, STREAM.child("other"), 1.0)}
    assert len(found & other) <= 3


def test_severities_stay_inside_their_range() -> None:
    for number in range(4):
        found = draw_variants(CENTER_CONTRACT, STREAM.child(number), 0.01)
        severities = [v.severity for v in found if v.severity is not None]
        assert len(severities) == sum(v.kind == "graded" for v in found) == 1
        assert 0.003 <= severities[0] <= 1.0


def test_a_control_that_fails_at_other_shapes_alone_is_not_gated_by_the_timed_ones() -> None:
    contract = CENTER_CONTRACT.contract
    late = [c.model_copy(update={"fails": ["large", "odd"]}) for c in contract.controls]
    loaded = dataclasses.replace(CENTER_CONTRACT, contract=contract.model_copy(update={"controls": late}))
    assert not [v for v in draw_variants(loaded, STREAM, 1.0) if "shapes" in v.description]
    seen = [v for v in draw_variants(CENTER_CONTRACT, STREAM, 1.0) if "shapes" in v.description]
    assert len(seen) == 2


def test_a_control_is_not_gated_by_an_input_that_is_absent_where_it_fails() -> None:
    def gated_by_offset(*fails: str) -> bool:
        control = CENTER_CONTRACT.contract.controls[0].model_copy(update={"fails": list(fails)})
        loaded = dataclasses.replace(
            CENTER_CONTRACT, contract=CENTER_CONTRACT.contract.model_copy(update={"controls": [control]})
        )
        drawn = [v for i in range(20) for v in draw_variants(loaded, STREAM.child("absent", i), 1.0)]
        return any(v.kind == "gated" and "offset has" in v.description for v in drawn)

    assert gated_by_offset("no_offset", "shifted")
    assert not gated_by_offset("no_offset")


def test_a_contract_without_controls_has_no_variants() -> None:
    bare = CENTER_CONTRACT.contract.model_copy(update={"controls": []})
    assert draw_variants(dataclasses.replace(CENTER_CONTRACT, contract=bare), STREAM, 1.0) == []


@pytest.mark.sandbox
def test_a_composed_kernel_runs_in_the_sandbox_and_is_refused_there(examine: Examine) -> None:
    evaluation = examine(gated(HONEST, CHEAT, StatisticGate("x", (0.5, 12.0))))
    assert evaluation.refusal is not None
    assert evaluation.refusal.kind == "incorrect"
    assert examine(graded(HONEST, CHEAT, 1e-6)).refusal is None
