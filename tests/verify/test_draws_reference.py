"""Every distribution kind, bit for bit, against an independent implementation in plain Python.

It is written from the documentation of the distributions and from `design.md`, Draws: whoever wants to recompute a
published draw without this repository needs no more than this file.
"""

import functools
import hashlib
import hmac
import math
import struct
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bot.contract.distribution import Distribution, bounded
from bot.contract.schema import DType
from bot.verify.draws import draw, store, values_of
from bot.verify.philox import Stream

Spec = dict[str, Any]
Shape = tuple[int, ...]
PARSE: TypeAdapter[Distribution] = TypeAdapter(Distribution)
KINDS = {
    "constant", "normal", "uniform", "log_uniform", "activation", "decay_logit", "one_hot", "arange", "repeated",
    "slab", "mixed", "spiked", "stretch", "among", "portion", "ids", "packed",
}  # fmt: skip
SIZE = {"bfloat16": 2, "float16": 2, "float32": 4, "float8_e4m3fn": 1, "int64": 8, "int32": 4, "int8": 1, "uint8": 1}
BOUND = 700
"""What the integers of this file's examples stay below."""
ROOT = b"\x0b" * 32


@functools.cache
def eighths() -> list[tuple[float, int]]:
    """Every number of float8_e4m3fn from 0 on, and its bits: 4 of exponent, 3 of significand, the last one NaN."""
    return [((8 + b % 8 if b > 7 else b) * 2.0 ** (max(b // 8, 1) - 10), b) for b in range(127)]


def eight_bits(value: float) -> int:
    """The nearest number, the even one of two; the largest for all beyond."""
    size = min(abs(value), 448.0)
    _, bits = min(eighths(), key=lambda entry: (abs(entry[0] - size), entry[1] % 2))
    return bits + (128 if math.copysign(1.0, value) < 0 else 0)


def permutation(count: int, stream: "Plain") -> list[int]:
    words = stream.words(count)
    return sorted(range(count), key=lambda place: (words[place], place))


def ids(spec: Spec, rows: int, width: int, stream: "Plain") -> list[int]:
    out: list[int] = []
    wanted, run = round(parameter(spec.get("share", 1.0), stream.child("share")) * width), spec.get("run", 1)
    blocks, of_all = -(-wanted // run), BOUND // run
    for row in range(rows):
        own = stream.child("row", row)
        if spec.get("repeated"):
            chosen = own.below(of_all, blocks)
        elif of_all <= max(4096, 4 * blocks):
            chosen = permutation(of_all, own)[:blocks]
        else:
            chosen = list(dict.fromkeys(own.below(of_all, 2 * blocks)))[:blocks]
        found = [block * run + i for block in chosen for i in range(run)][:wanted]
        places = sorted(permutation(width, own.child("places"))[: len(found)]) if spec.get("scattered") else None
        line = dict(zip(places if places is not None else range(len(found)), found, strict=True))
        out += [line.get(place, -1) for place in range(width)]
    return out


@dataclass(frozen=True)
class Plain:
    """A stream of words: Philox-4x32-10 whose key and upper counter are the SHA-256 of a secret."""

    secret: bytes

    def child(self, *labels: str | int) -> "Plain":
        return Plain(hmac.new(self.secret, "\x1f".join(map(str, labels)).encode(), hashlib.sha256).digest())

    def words(self, count: int) -> list[int]:
        identity = struct.unpack("<4I", hashlib.sha256(self.secret).digest()[:16])
        blocks = (
            philox((at % 2**32, at >> 32, identity[2], identity[3]), identity[:2]) for at in range(-(-count // 4))
        )
        return [word for block in blocks for word in block][:count]

    def indices(self, count: int) -> list[int]:
        halves = [half for word in self.words(-(-count // 2)) for half in (word % 2**16, word >> 16)]
        return halves[:count]

    def below(self, bound: int, count: int = 1) -> list[int]:
        return [word * bound >> 32 for word in self.words(count)]

    def between(self, low: float, high: float) -> float:
        return low + self.words(1)[0] / 2**32 * (high - low)


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    for _ in range(10):
        left, right = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = ((right >> 32) ^ counter[1] ^ key[0], right % 2**32, (left >> 32) ^ counter[3] ^ key[1], left % 2**32)
        key = ((key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32)
    return counter


@functools.cache
def normal(index: int) -> int:
    """A quantile of the standard normal in 65536ths; the lower half is computed, the upper half its mirror."""
    if index >= 32768:
        return -normal(65535 - index)
    return round(NormalDist().inv_cdf((index + 0.5) / 65536) * 65536)


@functools.cache
def silu(index: int) -> int:
    x = (index - 32768) * 8 / 32768
    return round(x / (1.0 + math.exp(-1.5 * x)) * 65536)


def stored(value: float, dtype: DType) -> bytes:
    if "int" in dtype:
        return round(value).to_bytes(SIZE[dtype], "little", signed=dtype != "uint8")
    single = struct.pack("<f", value)
    if dtype == "float8_e4m3fn":
        return bytes([eight_bits(struct.unpack("<f", single)[0])])
    if dtype == "float32":
        return single
    if dtype == "float16":
        return struct.pack("<e", struct.unpack("<f", single)[0])
    bits = int.from_bytes(single, "little")
    kept, rest = bits >> 16, bits % 2**16
    up = rest > 2**15 or (rest == 2**15 and kept % 2 == 1)
    return (kept + up).to_bytes(2, "little")


def parameter(param: Any, stream: Plain) -> float:
    if isinstance(param, dict) and "between" in param:
        return stream.between(*param["between"])
    if isinstance(param, dict):
        return float(param["choice"][stream.below(len(param["choice"]))[0]])
    return float(param)


def plain_draw(spec: Spec, shape: Shape, dtype: DType, stream: Plain) -> list[bytes]:  # noqa: C901, PLR0911 - an arm a kind
    """All elements in storage form, in C order."""
    count, rows, width = math.prod(shape), math.prod(shape[:-1]), shape[-1]
    inner = math.prod(shape[1:])
    of = plain_draw(spec["of"], shape, dtype, stream.child("of")) if "of" in spec else []
    zero = bytes(SIZE[dtype])
    match spec["kind"]:
        case "activation":
            return [stored(value, dtype) for value in activation(spec, shape, stream)]
        case "arange":
            start, step, period = spec.get("start", 0.0), spec.get("step", 1.0), spec.get("period") or count or 1
            return [stored(start + i % period * step, dtype) for i in range(count)]
        case "one_hot":
            value, out = stored(parameter(spec.get("value", 1.0), stream.child("value")), dtype), [zero] * count
            for row, column in enumerate(stream.child("index").below(width, rows) if count else []):
                out[row * width + column] = value
            return out
        case "repeated":
            firsts = [t // spec["period"] * spec["period"] for t in range(shape[0])]
            return [x for t in firsts for x in of[t * inner : (t + 1) * inner]]
        case "slab":
            start = stream.child("slab").below(max(width // spec["width"], 1))[0] * spec["width"]
            return [x if start <= i % width < start + spec["width"] else zero for i, x in enumerate(of)]
        case "mixed":
            parts = [plain_draw(p, shape, dtype, stream.child("part", i)) for i, p in enumerate(spec["parts"])]
            # A share of three is three places in the list to choose from.
            choice = [
                part for part, n in zip(parts, spec.get("shares") or [1] * len(parts), strict=True) for _ in range(n)
            ]
            which = stream.child("which").below(len(choice), rows)
            return [choice[which[i // width]][i] for i in range(count)]
        case "spiked":
            value = stored(parameter(spec["value"], stream.child("value")), dtype)
            for row, column in enumerate(stream.child("spike").below(width, rows) if count else []):
                of[row * width + column] = value
            return of
        case "ids":
            return [stored(i, dtype) for i in ids(spec, rows, width, stream)]
        case "packed":
            held = [
                b"".join(plain_draw(p["of"], (shape[0], *p["shape"]), p["dtype"], stream.child("packed", i)))
                for i, p in enumerate(spec["parts"])
            ]
            sizes = [len(part) // max(shape[0], 1) for part in held]
            steps = [p[t * n : (t + 1) * n] for t in range(shape[0]) for p, n in zip(held, sizes, strict=True)]
            return [bytes([byte]) for step in steps for byte in step]
        case "stretch":
            length = round(shape[0] * stream.child("length").between(spec.get("low", 0.1), spec.get("high", 0.4)))
            start = stream.child("start").below(shape[0] - length + 1)[0]
            other = plain_draw(spec["other"], (length, *shape[1:]), dtype, stream.child("other"))
            return of[: start * inner] + other + of[(start + length) * inner :]
    return [stored(element(spec, i, stream), dtype) for i in stream.child("index").indices(count)]


RANGE = {"low": 0.0, "high": 1.0}


def element(spec: Spec, index: int, stream: Plain) -> float:
    match spec["kind"]:
        case "constant":
            return parameter(spec["value"], stream.child("value"))
        case "normal":
            std = parameter(spec.get("std", 1.0), stream.child("std"))
            return normal(index) * (std / 65536) + parameter(spec.get("mean", 0.0), stream.child("mean"))
        case "uniform":
            low, high = (parameter(spec[name], stream.child(name)) for name in ("low", "high"))
            return (index + 0.5) * ((high - low) / 65536) + low
        case "among":
            return float(spec["values"][index * len(spec["values"]) >> 16])
        case "portion":
            low, high = (parameter(spec.get(name, usual), stream.child(name)) for name, usual in RANGE.items())
            return float(round((index * ((high - low) / 65535) + low) * (BOUND - 1)))
    logarithm = math.log(spec["low"]) + (index + 0.5) * (math.log(spec["high"] / spec["low"]) / 65536)
    if spec["kind"] == "log_uniform":
        return math.exp(logarithm)
    assert spec["kind"] == "decay_logit"
    share = min(max(math.exp(-logarithm) / spec.get("bound", 5.0), 1e-7), 0.999)
    return math.log(share / (1.0 - share))


def activation(spec: Spec, shape: Shape, stream: Plain) -> list[float]:
    tokens, heads, channels = shape
    usual = {"direction": 1.0, "correlation": 0.5, "channel_spread": 1.0, "token_spread": 0.7, "scale": 1.0}
    value = {name: parameter(spec.get(name, given), stream.child(name)) for name, given in usual.items()}
    memory, fresh = (round(x * 4096) for x in (value["correlation"], math.sqrt(1 - value["correlation"] ** 2)))
    weight, width = round(value["direction"] * 4096), heads * channels
    common = [normal(i) * weight >> 12 for i in stream.child("common").indices(width)]
    noise = [normal(i) * fresh for i in stream.child("noise").indices(tokens * width)]
    outer = [math.exp(normal(i >> 4 << 4) * (value["channel_spread"] / 65536)) for i in
             stream.child("channel").indices(width)]  # fmt: skip
    norms = [math.exp(normal(i >> 4 << 4) * (value["token_spread"] / 65536)) for i in
             stream.child("token").indices(tokens * heads)]  # fmt: skip
    walk, out = [0] * width, []
    for t, c in product(range(tokens), range(width)):
        walk[c] = walk[c] * memory + noise[t * width + c] >> 12
        x, reach = walk[c] + common[c], 8 * 65536
        shaped = x if x >= reach else silu((max(x, -reach) + reach) * 32768 // reach)
        out.append(float(shaped) * (outer[c] * (value["scale"] / 65536)) * norms[t * heads + c // channels])
    return out


def same(spec: Spec, shape: Shape, dtype: DType, label: str = "x") -> bool:
    ours = draw(bounded(PARSE.validate_python(spec), BOUND), shape, dtype, Stream(ROOT).child(label))
    assert ours.shape == shape
    return ours.tobytes() == b"".join(plain_draw(spec, shape, dtype, Plain(ROOT).child(label)))


def params(low: float, high: float) -> st.SearchStrategy[Any]:
    number = st.floats(low, high)
    between = st.tuples(number, number).map(lambda pair: {"between": sorted(pair)})
    return number | between | st.lists(number, min_size=1, max_size=4).map(lambda options: {"choice": options})


def kind(name: str, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Spec]:
    return st.fixed_dictionaries({"kind": st.just(name), **given})


SIMPLE = st.one_of(
    kind("constant", value=params(-1000, 1000)),
    kind("normal", std=params(0, 100), mean=params(-100, 100)),
    kind("uniform", low=params(-10, 0), high=params(0, 10)),
    kind("log_uniform", low=st.floats(1e-4, 1), high=st.floats(1, 1e4)),
    kind("decay_logit", low=st.floats(1, 50), high=st.floats(50, 1e6), bound=st.floats(0.1, 9)),
    kind("among", values=st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=5)),
    kind("one_hot", value=params(-1000, 1000)),
    kind("arange", start=st.floats(-10, 10), step=st.floats(-10, 10), period=st.none() | st.integers(1, 9)),
)
ACTIVATION = kind(
    "activation",
    direction=params(0, 3),
    correlation=params(0, 0.95),
    channel_spread=params(0, 1),
    token_spread=params(0, 1),
    scale=params(0.1, 10),
)


def nested(of: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    return st.one_of(
        kind("repeated", period=st.integers(1, 5), of=of),
        kind("slab", width=st.integers(1, 5), of=of),
        kind("mixed", parts=st.lists(of, min_size=2, max_size=3)),
        kind(
            "mixed",
            parts=st.lists(of, min_size=2, max_size=2),
            shares=st.lists(st.integers(1, 9), min_size=2, max_size=2),
        ),
        kind("spiked", value=params(-1000, 1000), of=of),
        kind("stretch", of=of, other=of, low=st.floats(0.01, 0.4), high=st.floats(0.4, 1)),
    )


SHAPES = st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 9)).filter(lambda shape: shape[2] > 0)
FLOATS: list[DType] = ["bfloat16", "float32", "float8_e4m3fn"]
ALL: list[DType] = [*FLOATS, "float16", "int64", "int32"]


@given(st.recursive(SIMPLE, nested, max_leaves=4), SHAPES, st.sampled_from(ALL))
@settings(max_examples=100, deadline=None)
def test_any_distribution_is_drawn_bit_for_bit(spec: Spec, shape: Shape, dtype: DType) -> None:
    assert same(spec, shape, dtype)


@given(ACTIVATION | nested(ACTIVATION), SHAPES, st.sampled_from(FLOATS))
@settings(max_examples=40, deadline=None)
def test_activations_are_drawn_bit_for_bit(spec: Spec, shape: Shape, dtype: DType) -> None:
    assert same(spec, shape, dtype)


EXAMPLES: dict[str, Spec] = {
    "constant": {"kind": "constant", "value": {"between": [1.0, 2.0]}},
    "normal": {"kind": "normal", "std": {"choice": [0.3, 3.0]}, "mean": 0.1},
    "uniform": {"kind": "uniform", "low": -1.0, "high": {"between": [0.5, 2.0]}},
    "log_uniform": {"kind": "log_uniform", "low": 0.001, "high": 100.0},
    "activation": {"kind": "activation", "direction": 2.5, "correlation": 0.9},
    "decay_logit": {"kind": "decay_logit", "low": 4, "high": 20000},
    "one_hot": {"kind": "one_hot", "value": 3.0},
    "arange": {"kind": "arange", "start": -3.0, "step": 0.37, "period": 1000},
    "repeated": {"kind": "repeated", "period": 7, "of": {"kind": "normal"}},
    "slab": {"kind": "slab", "width": 8, "of": {"kind": "normal"}},
    "mixed": {"kind": "mixed", "parts": [{"kind": "normal"}, {"kind": "uniform", "low": 0.0, "high": 1.0}]},
    "spiked": {"kind": "spiked", "value": 400.0, "of": {"kind": "normal"}},
    "among": {"kind": "among", "values": [0, 1, 63, 64, -65]},
    "portion": {"kind": "portion", "low": {"between": [0.0, 0.4]}},
    "ids": {"kind": "ids", "share": {"between": [0.5, 0.9]}, "scattered": True, "run": 3},
    "packed": {
        "kind": "packed",
        "parts": [
            {"shape": [5, 8], "dtype": "float8_e4m3fn", "of": {"kind": "normal", "std": 90.0}},
            {"shape": [22], "dtype": "float32", "of": {"kind": "log_uniform", "low": 0.01, "high": 1.0}},
        ],
    },
    "stretch": {"kind": "stretch", "of": {"kind": "normal"}, "other": {"kind": "log_uniform", "low": 1.0, "high": 9.0}},
}


def test_no_kind_is_left_out() -> None:
    known = {arm["properties"]["kind"]["const"] for name, arm in PARSE.json_schema()["$defs"].items() if
             "kind" in arm["properties"]}  # fmt: skip
    assert known == KINDS == set(EXAMPLES)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_tensors_beyond_a_table_and_a_block_of_the_generator_are_the_same_bits(name: str) -> None:
    # More than 65,536 elements are tabulated first; 131,072 are one block of the generator.
    shape = {"activation": (30, 2, 64), "normal": (1100, 2, 64)}.get(name, (530, 2, 64))
    integers: dict[str, DType] = {"ids": "int32", "portion": "int32", "packed": "uint8"}
    assert same(EXAMPLES[name], shape, integers.get(name, "bfloat16"), name)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "ids"},
        {"kind": "ids", "share": 0.0},
        {"kind": "ids", "repeated": True, "share": 0.3},
        {"kind": "ids", "run": 8, "share": 0.7},
        {"kind": "portion", "low": 0.5},
        {"kind": "mixed", "parts": [{"kind": "ids", "share": 1.0}, {"kind": "constant", "value": -1.0}]},
    ],
)
def test_integers_below_a_bound_are_drawn_bit_for_bit(spec: Spec) -> None:
    assert same(spec, (3, 40), "int32")
    assert same(spec, (2, 900), "int64")


def test_few_ids_of_many_are_different_and_drawn_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "BOUND", 100_000)
    spec = {"kind": "ids", "share": 0.9}
    drawn = draw(bounded(PARSE.validate_python(spec), BOUND), (3, 300), "int32", Stream(ROOT).child("x"))
    assert [len(set(row[row >= 0].tolist())) for row in drawn] == [270] * 3
    assert int(drawn.max()) < BOUND
    assert same(spec, (3, 300), "int32")


@pytest.mark.parametrize("value", [0.0, -0.0, 2**-10, 3 * 2**-10, 0.0155, 0.0157, 17.0, 19.0, -25.9, 447.0, 449.0, 1e9])
def test_numbers_on_the_way_between_two_of_eight_bits_go_to_the_even_one(value: float) -> None:
    assert store(np.array([value]), "float8_e4m3fn").tobytes() == stored(value, "float8_e4m3fn")


def test_what_eight_bits_hold_is_read_back() -> None:
    held = np.arange(256, dtype=np.uint8)
    values = values_of(held, "float8_e4m3fn")
    assert np.array_equal(store(values, "float8_e4m3fn")[:127], held[:127])
    assert np.array_equal(values, torch.from_numpy(held).view(torch.float8_e4m3fn).double().numpy(), equal_nan=True)


def test_an_activation_beyond_its_table_is_its_argument() -> None:
    spec = {"kind": "activation", "direction": 5.0, "channel_spread": 0.0, "token_spread": 0.0}
    drawn = draw(PARSE.validate_python(spec), (4, 4, 64), "float32", Stream(ROOT).child("x"))
    assert float(drawn.max()) > 8
    assert same(spec, (4, 4, 64), "float32")
