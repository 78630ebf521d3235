import math
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "dsa_sparse_attention"
CONTROLS = load_contract(CONTRACTS, "dsa_sparse_attention").contract.controls
# flash_mla needs a GPU.
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), *sorted(FOLDER.glob("baselines/torch_*.py"))]
AXES: Sizes = {"T": 1, "P": 36}


@pytest.fixture(scope="module")
def dsa() -> Judge:
    return Judge(load_contract(CONTRACTS, "dsa_sparse_attention"), {})


def inputs(ids, *, pages=3, scale=0.1):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "q_nope": normal(len(ids), 2, 5),
        "q_pe": normal(len(ids), 2, 3),
        "ckv_cache": normal(pages, 4, 5),
        "kpe_cache": normal(pages, 4, 3),
        "sparse_indices": torch.tensor(ids),
        "sm_scale": scale,
    }


def exact(given):
    return load_oracle(FOLDER)(**given, noise=lambda x: x)


def by_definition(given):
    """Scalar by scalar, exponentials of logits as they are."""
    output, lse = torch.zeros_like(given["q_nope"]), torch.zeros(given["q_nope"].shape[:2], dtype=torch.float64)
    for token, ids in enumerate(given["sparse_indices"].tolist()):
        for head in range(output.shape[1]):
            total, found = 0.0, [0.0] * output.shape[2]
            for i in ids:
                if i >= 0:
                    latent, rope = given["ckv_cache"][i // 4, i % 4], given["kpe_cache"][i // 4, i % 4]
                    logit = sum(float(a) * float(b) for a, b in zip(given["q_nope"][token, head], latent, strict=True))
                    logit += sum(float(a) * float(b) for a, b in zip(given["q_pe"][token, head], rope, strict=True))
                    weight = math.exp(given["sm_scale"] * logit)
                    total += weight
                    found = [f + weight * float(x) for f, x in zip(found, latent, strict=True)]
            if total:
                output[token, head] = torch.tensor(found, dtype=torch.float64) / total
            lse[token, head] = math.log2(total) if total else -math.inf
    return {"output": output, "lse": lse}


@pytest.mark.parametrize(
    "ids",
    [[[0, 5, 11, 7]], [[3, -1, 8, -1], [-1, -1, -1, 2]], [[4, 4, 4, 9], [1, 2, 1, 2]], [[-1] * 4, [0, 1, 2, 3]]],
    ids=["all", "padding among them", "ids that stand twice", "none"],
)
def test_the_oracle_is_the_definition_scalar_by_scalar(ids):
    given = inputs(ids)
    found, wanted = exact(given), by_definition(given)
    for name, value in wanted.items():
        assert torch.allclose(found[name], value, rtol=1e-12, atol=1e-13)


def test_a_token_without_ids_gives_zeros_and_minus_infinity():
    found = exact(inputs([[-1, -1], [2, -1]]))
    assert bool((found["output"][0] == 0).all())
    assert bool((found["lse"][0] == -torch.inf).all())
    assert bool(found["lse"][1].isfinite().all())


def test_what_no_id_names_does_not_matter_even_if_it_is_no_number():
    given = inputs([[1, -1, 7, -1]])
    clean = exact(given)
    for name in ("ckv_cache", "kpe_cache"):
        spoilt = given[name].flatten(0, 1)
        spoilt[[i for i in range(12) if i not in {1, 7}]] = float("nan")
    assert all(torch.equal(exact(given)[name], value) for name, value in clean.items())


def test_the_order_of_ids_does_not_matter_but_how_often_they_stand_does():
    one, other, twice = (exact(inputs([ids]))["lse"] for ids in ([1, 5, 9, -1], [-1, 9, 1, 5], [1, 5, 9, 9]))
    assert torch.allclose(one, other, rtol=0, atol=1e-14)
    assert not torch.allclose(one, twice, rtol=0, atol=1e-3)


def test_ids_fit_their_cache_and_stand_once_in_a_row_of_a_cell(dsa: Judge):
    for regime in ("contest", "trace"):
        held = dsa.cell(regime, {"T": 3, "P": 40}).case.inputs["sparse_indices"]
        assert held.min() >= -1  # type: ignore[union-attr]
        assert held.max() < 40 * 64  # type: ignore[union-attr]
        for row in held:  # type: ignore[union-attr]
            ids = row[row >= 0]
            assert len(set(ids.tolist())) == len(ids) >= 0.6 * 2048


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_stay_inside_the_limits_everywhere(dsa: Judge, path: Path):
    run = load_kernel(path)
    margins = {regime: dsa.cell(regime, AXES).margin(run) for regime in dsa.loaded.contract.regimes}
    margins |= {probe.name: dsa.probe(probe.name).margin(run) for probe in dsa.loaded.contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(dsa: Judge, control: Control):
    # The ids of a first token are right for a first token.
    axes: Sizes = {"T": 2, "P": 36} if "first_token" in control.file else AXES
    margins = dsa.failures(control, load_kernel(FOLDER / control.file), axes)
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize("control", ["extreme_tolerance", "scale_compiled_in", "repeated_ids_once"])
def test_subtle_controls_look_right_on_ordinary_values(dsa: Judge, control: str):
    assert dsa.cell("contest", AXES).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1
