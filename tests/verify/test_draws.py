"""Distributions become bits: shapes, moments, determinism, and rounding as torch rounds."""

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bot.contract.distribution import Distribution
from bot.contract.schema import DType
from bot.verify.draws import draw, store
from bot.verify.oracle import tensor_of
from bot.verify.philox import Stream

PARSE: TypeAdapter[Distribution] = TypeAdapter(Distribution)


def drawn(spec: dict[str, Any], shape: tuple[int, ...], dtype: DType = "float32", label: str = "x") -> np.ndarray:
    array = draw(PARSE.validate_python(spec), shape, dtype, Stream.from_salt(b"s" * 32, label))
    return tensor_of(array, dtype).double().numpy()


@given(st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=1, max_size=40))
@settings(deadline=None)
def test_bfloat16_rounding_equals_torch(values: list[float]) -> None:
    ours = tensor_of(store(np.array(values, dtype=np.float64), "bfloat16"), "bfloat16")
    theirs = torch.tensor(values, dtype=torch.float32).bfloat16()
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours.nan_to_num(1.0), theirs.nan_to_num(1.0))


def test_normal_has_the_asked_mean_and_spread() -> None:
    x = drawn({"kind": "normal", "std": 2.0, "mean": 3.0}, (400, 500))
    assert abs(x.mean() - 3) < 0.03
    assert abs(x.std() - 2) < 0.03


def test_small_and_large_tensors_come_from_the_same_function() -> None:
    spec = {"kind": "normal", "std": 0.7}
    small, large = drawn(spec, (1000,), "bfloat16"), drawn(spec, (100_000,), "bfloat16")
    assert np.array_equal(small, large[:1000])


def test_between_is_drawn_anew_for_each_stream() -> None:
    spec = {"kind": "constant", "value": {"between": [1.0, 2.0]}}
    values = {float(drawn(spec, (1,), label=str(i))[0]) for i in range(20)}
    assert len(values) == 20
    assert all(1 <= v <= 2 for v in values)


def test_log_uniform_stays_in_its_range_with_a_uniform_logarithm() -> None:
    x = drawn({"kind": "log_uniform", "low": 0.01, "high": 100.0}, (200, 100))
    assert x.min() >= 0.0099
    assert x.max() <= 100.1
    assert abs(np.log(x).mean()) < 0.1


def test_decay_logit_gives_the_asked_memory() -> None:
    bias = drawn({"kind": "decay_logit", "low": 4, "high": 20000, "bound": 5.0}, (4, 128))
    tau = 1 / (5 / (1 + np.exp(-bias)))
    assert tau.min() > 3.9
    assert tau.max() < 20_100
    assert 100 < np.exp(np.log(tau).mean()) < 1000


def test_activation_is_one_sided_correlated_and_of_varying_norm() -> None:
    spec = {"kind": "activation", "direction": 1.5, "correlation": 0.8}
    x = drawn(spec, (512, 4, 128), "bfloat16")
    norms = np.linalg.norm(x, axis=-1)
    unit = x / norms[..., None]
    neighbours = np.abs((unit[1:] * unit[:-1]).sum(-1)).mean()
    assert x[x > 0].mean() > 4 * -x[x < 0].mean()
    assert neighbours > 0.4  # 0.07 for Gaussian rows
    assert norms.max() / norms.min() > 10


def test_one_hot_rows_hold_one_value() -> None:
    x = drawn({"kind": "one_hot", "value": 3.0}, (50, 16))
    assert np.array_equal(np.sort(x, axis=-1)[:, -2:], np.tile([0.0, 3.0], (50, 1)))


def test_repeated_repeats_the_first_step_of_each_block() -> None:
    x = drawn({"kind": "repeated", "period": 4, "of": {"kind": "normal"}}, (10, 8))
    assert np.array_equal(x[4], x[7])
    assert not np.array_equal(x[3], x[4])


def test_slab_is_zero_outside_one_block_of_channels() -> None:
    x = drawn({"kind": "slab", "width": 8, "of": {"kind": "normal"}}, (5, 64))
    live = np.flatnonzero(np.abs(x).sum(0))
    assert live.size == 8
    assert live[0] % 8 == 0


def test_mixed_takes_whole_rows_from_either_part() -> None:
    parts = [{"kind": "constant", "value": 0.0}, {"kind": "constant", "value": 1.0}]
    x = drawn({"kind": "mixed", "parts": parts}, (200, 8))
    assert set(x.sum(-1).tolist()) == {0.0, 8.0}


def test_a_small_share_of_mixed_is_a_few_rows() -> None:
    parts = [{"kind": "constant", "value": float(n)} for n in range(3)]
    x = drawn({"kind": "mixed", "parts": parts, "shares": [27, 1, 4]}, (3200, 2))
    counts = [int((x[:, 0] == n).sum()) for n in range(3)]
    assert sum(counts) == 3200
    assert [round(n / 100) for n in counts] == [27, 1, 4]


def test_shares_of_mixed_are_one_for_each_part() -> None:
    with pytest.raises(ValueError, match="3 shares for 2 parts"):
        drawn({"kind": "mixed", "parts": [{"kind": "normal"}, {"kind": "normal"}], "shares": [1, 2, 3]}, (4, 2))


def test_spiked_puts_one_value_in_each_row() -> None:
    x = drawn({"kind": "spiked", "value": 1e4, "of": {"kind": "normal"}}, (30, 16), "bfloat16")
    assert ((x > 9000).sum(-1) == 1).all()


def test_a_stretch_is_one_range_of_the_first_axis() -> None:
    of, other = {"kind": "constant", "value": 0.0}, {"kind": "constant", "value": 1.0}
    lengths = set()
    for label in "abcdefgh":
        x = drawn({"kind": "stretch", "of": of, "other": other, "low": 0.1, "high": 0.4}, (100, 2), label=label)
        inside = np.flatnonzero(x[:, 0])
        assert 10 <= inside.size <= 40
        assert inside[-1] - inside[0] + 1 == inside.size
        lengths.add((inside[0], inside.size))
    assert len(lengths) == 8


def test_arange_wraps_after_its_period() -> None:
    assert drawn({"kind": "arange", "step": 0.5, "period": 3}, (5,)).tolist() == [0.0, 0.5, 1.0, 0.0, 0.5]


@pytest.mark.parametrize("shape", [(0, 4, 8), (3, 0, 8), (0,)])
def test_empty_shapes_are_drawn(shape: tuple[int, ...]) -> None:
    assert drawn({"kind": "normal"}, shape).shape == shape


def test_drawn_bits_have_not_changed() -> None:
    """A changed bit would make every published evaluation irreproducible: change this only with the schema version."""
    specs = [{"kind": "normal"}, {"kind": "activation"}, {"kind": "decay_logit", "low": 4, "high": 2e4}]
    data = b"".join(
        draw(PARSE.validate_python(s), (8, 2, 16), "bfloat16", Stream.from_salt(b"s" * 32)).tobytes() for s in specs
    )
    assert hashlib.sha256(data).hexdigest()[:16] == "1bf8baf9cf06777a"
