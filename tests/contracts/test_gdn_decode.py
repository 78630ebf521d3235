import math
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "gdn_decode"
CONTROLS = load_contract(CONTRACTS, "gdn_decode").contract.controls
# fla_recurrent needs a GPU.
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), *sorted(FOLDER.glob("baselines/torch_*.py"))]


@pytest.fixture(scope="module")
def gdn() -> Judge:
    return Judge(load_contract(CONTRACTS, "gdn_decode"), {})


def inputs(batch, *, state=True, scale=0.3):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "q": normal(batch, 1, 4, 128) / 11,
        "k": normal(batch, 1, 4, 128) / 11,
        "v": normal(batch, 1, 8, 128),
        "state": normal(batch, 8, 128, 128) if state else None,
        "A_log": 0.5 * normal(8),
        "a": normal(batch, 1, 8),
        "dt_bias": normal(8) - 3,
        "b": normal(batch, 1, 8),
        "scale": scale,
    }


def exact(given):
    return load_oracle(FOLDER)(**given, noise=lambda x: x)


def by_definition(given):
    """As the public definition states it, row by row: what the key held goes, its mixture with the new value comes."""
    output, states = torch.zeros_like(given["v"]), torch.zeros(given["v"].shape[0], 8, 128, 128, dtype=torch.float64)
    for i in range(len(states)):
        for head in range(8):
            query, key = given["q"][i, 0, head // 2], given["k"][i, 0, head // 2]
            dt = math.log1p(math.exp(float(given["a"][i, 0, head] + given["dt_bias"][head])))
            start = states[i, head] if given["state"] is None else given["state"][i, head]
            kept = math.exp(-math.exp(float(given["A_log"][head])) * dt) * start
            held, weight = kept @ key, 1 / (1 + math.exp(-float(given["b"][i, 0, head])))
            mixed = weight * given["v"][i, 0, head] + (1 - weight) * held
            states[i, head] = kept - torch.outer(held, key) + torch.outer(mixed, key)
            output[i, 0, head] = (given["scale"] or 1 / math.sqrt(128)) * states[i, head] @ query
    return {"output": output, "new_state": states}


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("scale", [0.3, 0.0])
def test_the_oracle_is_the_definition_row_by_row(state, scale):
    given = inputs(3, state=state, scale=scale)
    found, wanted = exact(given), by_definition(given)
    for name, value in wanted.items():
        assert float((found[name] - value).norm()) <= 1e-12 * float(value.norm())


def test_the_oracle_leaves_its_inputs_alone():
    given, same = inputs(2), inputs(2)
    exact(given)
    assert all(torch.equal(given[n], value) for n, value in same.items() if isinstance(value, torch.Tensor))


def test_a_nan_stays_in_its_own_sequence_and_head():
    given = inputs(3)
    clean = exact(given)["new_state"]
    given["v"][1, 0, 5, 7] = float("nan")
    spoilt = exact(given)["new_state"]
    own = torch.zeros_like(spoilt, dtype=torch.bool)
    own[1, 5, 7] = True
    assert spoilt[own].isnan().all()
    assert torch.equal(spoilt[~own], clean[~own])


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
@pytest.mark.parametrize("regime", ["fast", "slow", "trace"])
def test_honest_kernels_stay_inside_the_limits_in_every_regime(gdn: Judge, path: Path, regime: str):
    assert gdn.cell(regime, {"B": 5}).margin(load_kernel(path)) <= 1


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_pass_every_probe(gdn: Judge, path: Path):
    run = load_kernel(path)
    margins = {probe.name: gdn.probe(probe.name).margin(run) for probe in gdn.loaded.contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(gdn: Judge, control: Control):
    margins = gdn.failures(control, load_kernel(FOLDER / control.file), {"B": 4})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize("control", ["extreme_tolerance", "fp16_state", "scale_compiled_in", "small_flushed"])
def test_subtle_controls_look_right_on_ordinary_values(gdn: Judge, control: str):
    assert gdn.cell("fast", {"B": 4}).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1
