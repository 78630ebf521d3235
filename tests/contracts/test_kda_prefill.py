import importlib.util
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, ROOT, Judge, load_kernel

FOLDER = CONTRACTS / "kda_prefill"
CONTROLS = load_contract(CONTRACTS, "kda_prefill").contract.controls
HONEST = [
    *sorted(FOLDER.glob("faithful/*.py")),
    *sorted(FOLDER.glob("baselines/torch_*.py")),
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


def token_by_token(given):
    """The recurrence as kernels.md states it, all heads at once: decay, delta, update, output."""
    unit = {name: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for name in "qk" for x in [given[name]]}
    gate = given["A_log"].exp()[:, None] * (given["g"] + given["dt_bias"])
    decay, weight = (given["lower_bound"] * gate.sigmoid()).exp(), given["beta"].sigmoid()[..., None]
    out, states = torch.zeros_like(given["v"]), given["initial_state"].clone()
    for n, (first, last) in enumerate(pairwise(given["cu_seqlens"].tolist())):
        for t in range(first, last):
            state = states[n] * decay[t][:, None, :]
            delta = weight[t] * (given["v"][t] - torch.einsum("hvk,hk->hv", state, unit["k"][t]))
            states[n] = state + torch.einsum("hv,hk->hvk", delta, unit["k"][t])
            out[t] = given["scale"] * torch.einsum("hvk,hk->hv", states[n], unit["q"][t])
    return {"out": out, "final_state": states}


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


def test_a_nan_stays_in_its_own_sequence_and_head():
    given = inputs([3, 4, 2], 2)
    clean = exact(given)["out"]
    given["v"][4, 1, 5] = float("nan")
    spoilt = exact(given)["out"]
    own = torch.zeros_like(spoilt, dtype=torch.bool)
    own[3:7, 1] = True
    assert spoilt[4:7, 1, 5].isnan().all()
    assert torch.equal(spoilt[~own], clean[~own])


@pytest.mark.parametrize("lengths", [[100, 0, 1, 33], [32, 64], [31, 65, 2]])
def test_the_oracle_in_chunks_is_the_recurrence_token_by_token(lengths):
    given = inputs(lengths, 2)
    found, wanted = exact(given), token_by_token(given)
    for name, value in wanted.items():
        assert float((found[name] - value).norm()) <= 1e-13 * float(value.norm())


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


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(kda: Judge, control: Control):
    margins = kda.failures(control, load_kernel(FOLDER / control.file), {"lengths": [97, 31, 128], "H": 2})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


def test_a_bf16_state_errs_more_and_more_and_an_honest_kernel_does_not(kda: Judge):
    def growth(file: str) -> float:
        octaves = kda.probe("state_barely_updated").judgement(load_kernel(FOLDER / file)).errors[0].octaves
        return octaves[-1] / octaves[0]

    assert growth("controls/bf16_state.py") > 2
    assert growth("controls/bf16_state_each_token.py") > 2
    assert all(growth(path.relative_to(FOLDER).as_posix()) < 1.3 for path in FOLDER.glob("faithful/*.py"))


def test_a_proven_cut_is_made_where_all_gates_forget_and_not_where_some_remember(kda: Judge, monkeypatch):
    fast, slow = kda.probe("gates_forget_everything"), kda.cell("slow", {"lengths": [144], "H": 2})
    spec = importlib.util.spec_from_file_location("cut", FOLDER / "faithful/history_cut_proven.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    proven, cuts = module.cut, []

    def counted(*given):
        read = proven(*given)
        cuts.append(read is not None)
        return read

    monkeypatch.setattr(module, "cut", counted)
    assert fast.margin(module.run) <= 1
    assert any(cuts)
    cuts.clear()
    assert slow.margin(module.run) <= 1
    assert cuts
    assert not any(cuts)


def test_boundaries_are_read_where_nothing_is_published(kda: Judge):
    assert kda.cell("slow", ORDINARY).margin(load_kernel(FOLDER / "controls/boundaries_baked_in.py")) <= 1


@pytest.mark.parametrize(
    "control", ["extreme_tolerance", "bf16_state", "doubling_fp16", "eps_outside_root", "scale_compiled_in"]
)
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
