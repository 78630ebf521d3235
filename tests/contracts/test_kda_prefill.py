import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from bot.contract.schema import Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, ROOT, Judge, load_kernel

FOLDER = CONTRACTS / "kda_prefill"
HONEST = [
    *sorted(FOLDER.glob("faithful/*.py")),
    *sorted(FOLDER.glob("baselines/*.py")),
    ROOT / "tests/data/kda_run/03_chunked.py",
]
ORDINARY: Sizes = {"lengths": [37, 0, 16], "H": 2}


def inputs(lengths, heads, *, state=True, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tokens = sum(lengths)
    return {
        "q": normal(tokens, heads, 128),
        "k": normal(tokens, heads, 128),
        "v": normal(tokens, heads, 128),
        "g": normal(tokens, heads, 128),
        "beta": normal(tokens, heads),
        "A_log": 0.5 * normal(heads),
        "dt_bias": normal(heads, 128) - 2,
        "scale": 0.3,
        "lower_bound": -2.0,
        "initial_state": normal(len(lengths), heads, 128, 128) if state else None,
        "cu_seqlens": torch.tensor([0, *lengths]).cumsum(0),
    }


def exact(given):
    return load_oracle(FOLDER)(**given, noise=lambda x: x)


def by_transitions(given):
    """The same function as a product of matrices: S <- S D (I - b k k') + b v k', head by head, all by definition."""
    out = torch.zeros_like(given["v"])
    finals = []
    for n, (first, last) in enumerate(pairwise(given["cu_seqlens"].tolist())):
        for h in range(given["q"].shape[1]):
            start = given["initial_state"]
            state = torch.zeros(128, 128, dtype=torch.float64) if start is None else start[n, h]
            for t in range(first, last):
                query = given["q"][t, h] / math.sqrt(float(given["q"][t, h].square().sum()) + 1e-6)
                key = given["k"][t, h] / math.sqrt(float(given["k"][t, h].square().sum()) + 1e-6)
                weight = 1 / (1 + math.exp(-float(given["beta"][t, h])))
                slope = math.exp(float(given["A_log"][h]))
                decay = (given["lower_bound"] / (1 + (-slope * (given["g"][t, h] + given["dt_bias"][h])).exp())).exp()
                forget = torch.diag(decay) @ (torch.eye(128) - weight * torch.outer(key, key))
                state = state @ forget + weight * torch.outer(given["v"][t, h], key)
                out[t, h] = given["scale"] * state @ query
            finals.append(state)
    return {"out": out, "final_state": torch.stack(finals).view(-1, given["q"].shape[1], 128, 128)}


@pytest.mark.parametrize("state", [True, False])
def test_the_oracle_is_the_product_of_transition_matrices(state):
    given = inputs([4, 0, 7, 1], 2, state=state)
    found, wanted = exact(given), by_transitions(given)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-11, atol=1e-11)


def test_the_oracle_leaves_its_inputs_alone():
    given, same = inputs([5], 2), inputs([5], 2)
    exact(given)
    assert all(torch.equal(given[n], value) for n, value in same.items() if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_no_tokens_pass_the_state_through(lengths):
    given = inputs(lengths, 3)
    found = exact(given)
    assert found["out"].shape == (0, 3, 128)
    assert torch.equal(found["final_state"], given["initial_state"])


def test_a_nan_reaches_later_tokens_of_its_own_sequence_and_head_only():
    given = inputs([3, 4, 2], 2)
    clean = exact(given)["out"]
    given["v"][4, 1, 5] = float("nan")
    spoilt = exact(given)["out"]
    reached = torch.zeros_like(spoilt, dtype=torch.bool)
    reached[4:7, 1, 5] = True
    assert torch.equal(spoilt.isnan(), reached)
    assert torch.equal(spoilt[~reached], clean[~reached])


def test_noise_moves_what_is_computed_but_not_a_state_that_only_passes_through():
    given = inputs([0, 5], 1)
    generator = torch.Generator().manual_seed(3)

    def noise(x):
        return x * (1 + 2**-9 * (2 * torch.rand(x.shape, dtype=torch.float64, generator=generator) - 1))

    plain, noisy = exact(given), load_oracle(FOLDER)(**given, noise=noise)
    assert torch.equal(plain["final_state"][0], noisy["final_state"][0])
    for name in ("out", "final_state"):
        moved = float((plain[name] - noisy[name]).norm() / plain[name].norm())
        assert 1e-4 < moved < 1e-2


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
@pytest.mark.parametrize("regime", ["fast", "slow", "trace"])
def test_honest_kernels_stay_inside_the_limits_in_every_regime(kda: Judge, path: Path, regime: str):
    assert kda.cell(regime, ORDINARY).margin(load_kernel(path)) <= 1


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_pass_every_probe(kda: Judge, path: Path):
    run = load_kernel(path)
    margins = {probe.name: kda.probe(probe.name).margin(run) for probe in kda.loaded.contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize(
    ("control", "probe", "factor"),
    [
        ("constant_norm", "norms_differ", 3),
        ("constant_norm", "one_hot", 3),
        ("initial_state_ignored", "values_zero", 3),
        ("initial_state_ignored", "lengths_empty", 3),
        ("history_cut_32", "gates_of_64_tokens", 3),
        ("history_cut_32", "one_slow_channel", 3),
        ("extreme_tolerance", "values_large", 3),
        ("extreme_tolerance", "state_large", 3),
        ("bf16_state", "state_barely_updated", 3),
    ],
)
def test_a_control_misses_by_far_where_the_contract_says(kda: Judge, control: str, probe: str, factor: float):
    declared = {c.file: c.fails for c in kda.loaded.contract.controls}
    assert probe in declared[f"controls/{control}.py"]
    assert not kda.probe(probe).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= factor


@pytest.mark.parametrize("hidden", ["published_mixed_totals", "published_uniform_totals"])
def test_boundaries_known_by_heart_meet_other_lengths_of_the_same_total(kda: Judge, hidden: str):
    assert not kda.hidden(hidden).margin(load_kernel(FOLDER / "controls/boundaries_baked_in.py")) <= 3


def test_boundaries_are_read_where_nothing_is_published(kda: Judge):
    assert kda.cell("slow", ORDINARY).margin(load_kernel(FOLDER / "controls/boundaries_baked_in.py")) <= 1


@pytest.mark.parametrize("control", ["extreme_tolerance", "bf16_state"])
def test_subtle_controls_look_right_on_ordinary_values(kda: Judge, control: str):
    assert kda.cell("fast", ORDINARY).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1


@pytest.mark.parametrize("name", ["01_constant_norm", "02_truncated"])
def test_the_recorded_agents_first_kernels_are_wrong_in_slow_regimes(kda: Judge, name: str):
    run = load_kernel(ROOT / f"tests/data/kda_run/{name}.py")
    assert not kda.cell("slow", {"lengths": [70], "H": 2}).margin(run) <= 3


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_no_sequences_at_all_are_nothing_to_do(path: Path):
    given = inputs([], 2)
    rows = {name: given[name].bfloat16() for name in ("q", "k", "v", "g", "beta")}
    tables = {name: given[name].float() for name in ("A_log", "dt_bias", "initial_state")}
    out = torch.empty(0, 2, 128, dtype=torch.bfloat16)
    load_kernel(path)(*{**given, **rows, **tables}.values(), out, torch.empty(0, 2, 128, 128))
    assert out.numel() == 0
