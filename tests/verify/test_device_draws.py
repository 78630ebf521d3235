"""Draws on a GPU are the bytes of the CPU's: by Triton's interpreter anywhere, and on a device where there is one.

The interpreter works on what it finds in the environment when kernels are declared, so it has a process of its own,
`python -m tests.verify.test_device_draws`, which prints where the draws differ.
"""

import importlib.util
import json
import os
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bot.contract.distribution import bounded
from bot.contract.schema import DType
from bot.verify.draws import draw
from bot.verify.philox import Stream
from tests.verify.test_draws_reference import ALL, BOUND, EXAMPLES, PARSE, Spec

Shape = tuple[int, ...]
NORMAL, ACTIVATION = EXAMPLES["normal"], EXAMPLES["activation"]
SPECS: dict[str, Spec] = {
    **EXAMPLES,
    "halves": {"kind": "arange", "start": -40_000.5, "step": 1.0},
    "no period": {"kind": "arange", "start": -3.0, "step": 0.37},
    "beyond the table": {"kind": "activation", "direction": 5.0, "channel_spread": 0.0, "token_spread": 0.0},
    "shrinking": {"kind": "activation", "correlation": -0.9, "direction": -1.0},
    "memoryless": {"kind": "activation", "correlation": 0.0, "scale": {"between": [0.1, 10.0]}},
    "subnormal": {"kind": "activation", "scale": 1e-40},
    "small halves": {"kind": "activation", "scale": 1e-5},
    "overflowing": {"kind": "activation", "scale": 1e5, "channel_spread": 3.0},
    "minus zero": {"kind": "constant", "value": -0.0},
    "zero": {"kind": "constant", "value": 0.0},
    "mixed of three": {"kind": "mixed", "parts": [NORMAL, EXAMPLES["uniform"], EXAMPLES["spiked"]]},
    "mixed by shares": {"kind": "mixed", "parts": [NORMAL, EXAMPLES["uniform"], NORMAL], "shares": [6, 1, 9]},
    "spiked activation": {"kind": "spiked", "value": {"choice": [1e4, -1e4]}, "of": ACTIVATION},
    "stretched activation": {"kind": "stretch", "of": ACTIVATION, "other": EXAMPLES["mixed"]},
    "repeated slab": {"kind": "repeated", "period": 3, "of": {"kind": "slab", "width": 7, "of": NORMAL}},
}
LARGE: Shape = (131, 9, 61)
"""Beyond the size at which the CPU tabulates; no multiple of the 8 indices of a block."""
SMALL: Shape = (7, 3, 5)
EMPTY: list[Shape] = [(0, 3, 4), (3, 0, 4)]
BYTE_TYPES: list[DType] = ["int8", "uint8"]
WALKED = {name for name, spec in SPECS.items() if "activation" in json.dumps(spec)}
"""Those that the interpreter needs a second for each dozen tokens of."""


def plan() -> list[tuple[str, Shape, DType]]:
    """What the interpreter draws: each kind in several types and sizes, each type with several kinds."""
    others = cycle(ALL[1:])
    cases: list[tuple[str, Shape, DType]] = []
    for name in SPECS:
        if name == "packed":
            cases += [(name, (shape[0], 2, 64), dtype) for shape in (LARGE, (600,)) for dtype in BYTE_TYPES]
            continue
        large: Shape = (5, 7, 61) if name in WALKED else LARGE
        cases += [(name, large, "bfloat16"), (name, SMALL, next(others)), (name, EMPTY[len(name) % 2], next(others))]
    floats: list[DType] = ["float32", "float16", "float8_e4m3fn"]
    cases += [(name, SMALL, dtype) for name in ("subnormal", "small halves", "overflowing") for dtype in floats]
    cases += [(name, LARGE, dtype) for name in ("arange", "halves") for dtype in ALL[1:]]
    cases += [("uniform", LARGE, dtype) for dtype in ALL[1:]]
    return [*cases, ("normal", (), "float32"), ("spiked", (70_001,), "int32"), ("one_hot", (70_001, 1), "float16")]


def difference(name: str, shape: Shape, dtype: DType, device: torch.device) -> str:
    """What is wrong with a draw on the device; empty when nothing is."""
    from bot.verify.device import draws as device_draws

    dist, stream = bounded(PARSE.validate_python(SPECS[name]), BOUND), Stream(b"\x0c" * 32).child(name, *shape)
    with np.errstate(over="ignore"):
        wanted, found = draw(dist, shape, dtype, stream), device_draws.draw(dist, shape, dtype, stream, device)
    where = f"{name} {shape} {dtype}"
    if found.shape != shape or found.dtype != getattr(torch, dtype) or found.device.type != device.type:
        return f"{where}: {found.dtype} {tuple(found.shape)} on {found.device}"
    differing = np.flatnonzero(stored(found).reshape(-1) != bits(wanted).reshape(-1))
    if not differing.size:
        return ""
    first = differing[0]
    values = (hex(int(a.reshape(-1)[first])) for a in (stored(found), bits(wanted)))
    return f"{where}: {differing.size} elements, the first {first}: {' for '.join(values)}"


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"<i{array.itemsize}")


def stored(found: torch.Tensor) -> np.ndarray:
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return found.view(sizes[found.itemsize]).cpu().numpy()


def windows_differ(device: torch.device) -> list[str]:
    """Where `replace_window` leaves another tensor than numpy does."""
    from bot.verify.device.draws import replace_window

    wrong = []
    heads = np.array([True, False, True, False])
    eight = torch.rand(9, 4, device=device).to(torch.float8_e4m3fn)
    replace_window(eight, 3, eight[:2].clone(), None)
    wrong += [] if np.array_equal(stored(eight)[3:5], stored(eight)[:2]) else ["8 bits"]
    for shape, chosen in (((20, 4, 6), heads), ((20, 4, 6), None), ((20, 4), None), ((20, 4, 2, 3), ~heads)):
        held, part = torch.rand(shape, device=device).bfloat16(), torch.rand((5, *shape[1:]), device=device).bfloat16()
        mask = np.ones(4, dtype=bool) if chosen is None else chosen
        wanted = stored(held).copy()
        wanted[11:16] = np.where(mask.reshape(1, 4, *[1] * (len(shape) - 2)), stored(part), wanted[11:16])
        replace_window(held, 11, part, chosen)
        if not np.array_equal(stored(held), wanted):
            wrong.append(f"{shape} {chosen}")
    return wrong


def interpreted() -> dict[str, Any]:
    """By the name of each case, what is wrong with it."""
    from bot.verify.device import draws as device_draws

    # The interpreter pays for each program, not for each lane.
    vars(device_draws).update(_COUNTERS=8192, _ELEMENTS=65536, _LANES=256)
    device = torch.device("cpu")
    drawn = {f"{name} {shape} {dtype}": difference(name, shape, dtype, device) for name, shape, dtype in plan()}
    return {"draws": drawn, "windows": windows_differ(device)}


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed (it comes with proctor[gpu])")
    done = subprocess.run(
        [sys.executable, "-m", "tests.verify.test_device_draws"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=280,
    )
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


@pytest.mark.parametrize("name", sorted(SPECS))
def test_the_kernels_interpreted_draw_the_bytes_of_the_cpu(name: str, answer: dict[str, Any]) -> None:
    drawn = {case: wrong for case, wrong in answer["draws"].items() if case.startswith(f"{name} (")}
    assert len(drawn) >= 3, "each kind in several types and sizes"
    assert [wrong for wrong in drawn.values() if wrong] == []


def test_no_kind_is_left_out() -> None:
    assert set(EXAMPLES) <= {name for name, _, _ in plan()}
    assert {dtype for _, _, dtype in plan()} == {*ALL, *BYTE_TYPES}


def test_a_window_is_replaced_as_numpy_does(answer: dict[str, Any]) -> None:
    assert answer["windows"] == []


def test_the_verifier_starts_without_triton() -> None:
    code = "import sys; sys.modules['triton'] = None; import bot.verify.appraise, bot.verify.cases"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(SPECS))
def test_a_device_draws_the_bytes_of_the_cpu(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    pytest.importorskip("triton")
    # Integers are not drawn beyond their range, where a conversion is each processor's own.
    dtypes: list[DType] = ["bfloat16", "float16", "float32"] if name == "overflowing" else ALL
    cases: list[tuple[Shape, DType]] = [(shape, dtype) for shape in (SMALL, LARGE, *EMPTY) for dtype in dtypes]
    cases += [((2049, 6, 96), "bfloat16"), ((1023, 5, 129), "float32")]
    if name == "packed":
        cases = [((steps, 2, 64), dtype) for steps in (1, 9, 2049) for dtype in BYTE_TYPES]
    found = [difference(name, shape, dtype, torch.device("cuda")) for shape, dtype in cases]
    assert [wrong for wrong in found if wrong] == []


@pytest.mark.gpu
def test_a_device_replaces_a_window_as_numpy_does() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    pytest.importorskip("triton")
    assert windows_differ(torch.device("cuda")) == []


if __name__ == "__main__":
    sys.stdout.write(json.dumps(interpreted()))
