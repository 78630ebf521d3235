import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "gdn_prefill"
CONTROLS = load_contract(CONTRACTS, "gdn_prefill").contract.controls
# fla_chunk needs a GPU.
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), *sorted(FOLDER.glob("baselines/torch_*.py"))]
ORDINARY: Sizes = {"lengths": [37, 0, 16]}
SHARE = 2


@pytest.fixture(scope="module")
def gdn() -> Judge:
    return Judge(load_contract(CONTRACTS, "gdn_prefill"), {})


def inputs(lengths, *, state=True, heads=2, scale=0.3):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tokens = sum(lengths)
    return {
        "q": normal(tokens, heads, 128) / 11,
        "k": normal(tokens, heads, 128) / 11,
        "v": normal(tokens, SHARE * heads, 128),
        "state": normal(len(lengths), SHARE * heads, 128, 128) if state else None,
        "A_log": 0.5 * normal(SHARE * heads),
        "a": normal(tokens, SHARE * heads),
        "dt_bias": normal(SHARE * heads) - 3,
        "b": normal(tokens, SHARE * heads),
        "cu_seqlens": torch.tensor([0, *lengths]).cumsum(0),
        "scale": scale,
    }


def exact(given):
    return load_oracle(FOLDER)(**given, noise=lambda x: x)


def token_by_token(given):
    """The recurrence as the public definition states it, head by head and token by token."""
    out, finals = torch.zeros_like(given["v"]), []
    scale = given["scale"] or 1 / math.sqrt(128)
    for n, (first, last) in enumerate(pairwise(given["cu_seqlens"].tolist())):
        for head in range(given["v"].shape[1]):
            state = torch.zeros(128, 128, dtype=torch.float64)
            if given["state"] is not None and last > first:
                state = given["state"][n, head].clone()
            for t in range(first, last):
                query, key = given["q"][t, head // SHARE], given["k"][t, head // SHARE]
                dt = math.log1p(math.exp(float(given["a"][t, head] + given["dt_bias"][head])))
                state = state * math.exp(-math.exp(float(given["A_log"][head])) * dt)
                weight = 1 / (1 + math.exp(-float(given["b"][t, head])))
                state = state + torch.outer(weight * (given["v"][t, head] - state @ key), key)
                out[t, head] = scale * state @ query
            finals.append(state)
    return {"output": out, "new_state": torch.stack(finals).view(-1, given["v"].shape[1], 128, 128)}


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("lengths", [[100, 0, 1, 33], [32, 64], [31, 65, 2]])
def test_the_oracle_in_chunks_is_the_recurrence_token_by_token(lengths, state):
    given = inputs(lengths, state=state)
    found, wanted = exact(given), token_by_token(given)
    for name, value in wanted.items():
        assert float((found[name] - value).norm()) <= 1e-12 * float(value.norm())


def test_the_oracle_leaves_its_inputs_alone():
    given, same = inputs([5, 0]), inputs([5, 0])
    exact(given)
    assert all(torch.equal(given[n], value) for n, value in same.items() if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_the_state_of_an_empty_sequence_is_zero_whatever_it_was(lengths):
    found = exact(inputs(lengths))
    assert found["output"].shape == (0, 4, 128)
    assert torch.equal(found["new_state"], torch.zeros(len(lengths), 4, 128, 128))


def test_a_scale_of_zero_is_the_usual_one():
    zero, usual = exact(inputs([9], scale=0.0)), exact(inputs([9], scale=128**-0.5))
    assert torch.equal(zero["output"], usual["output"])


def test_gates_that_forget_everything_leave_finite_answers():
    given = inputs([70])
    given["a"] += 30
    found, wanted = exact(given), token_by_token(given)
    torch.testing.assert_close(found["output"], wanted["output"], rtol=1e-10, atol=1e-12)


def test_a_nan_stays_in_its_own_sequence_and_head():
    given = inputs([3, 4, 2])
    clean = exact(given)["output"]
    given["v"][4, 1, 5] = float("nan")
    spoilt = exact(given)["output"]
    own = torch.zeros_like(spoilt, dtype=torch.bool)
    own[3:7, 1] = True
    assert spoilt[4:7, 1, 5].isnan().all()
    assert torch.equal(spoilt[~own], clean[~own])


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
@pytest.mark.parametrize("regime", ["fast", "slow", "trace"])
def test_honest_kernels_stay_inside_the_limits_in_every_regime(gdn: Judge, path: Path, regime: str):
    assert gdn.cell(regime, ORDINARY).margin(load_kernel(path)) <= 1


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_pass_every_probe(gdn: Judge, path: Path):
    run = load_kernel(path)
    margins = {probe.name: gdn.probe(probe.name).margin(run) for probe in gdn.loaded.contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(gdn: Judge, control: Control):
    margins = gdn.failures(control, load_kernel(FOLDER / control.file), {"lengths": [41, 12, 43]})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize(
    "control",
    ["extreme_tolerance", "bf16_state", "doubling_fp16", "scale_compiled_in", "empty_sequence_passed_through"],
)
def test_subtle_controls_look_right_on_ordinary_values(gdn: Judge, control: str):
    assert gdn.cell("fast", {"lengths": [37, 16]}).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_no_sequences_at_all_are_nothing_to_do(path: Path):
    given = {name: x.float() if isinstance(x, torch.Tensor) else x for name, x in inputs([], heads=4).items()}
    given["cu_seqlens"] = given["cu_seqlens"].long()
    output = torch.empty(0, 8, 128, dtype=torch.bfloat16)
    load_kernel(path)(*given.values(), output, torch.empty(0, 8, 128, 128))
    assert output.numel() == 0
