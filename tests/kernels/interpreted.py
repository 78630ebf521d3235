"""Runs a Triton kernel of KDA through Triton's interpreter: `python -m tests.kernels.interpreted CASE`, as JSON.

For each output the relative L2 error against the contract's oracle, of the kernel and of a faithful variant with bf16
operands. A process of its own, since TRITON_INTERPRET is read when a kernel is decorated.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from bot.verify.oracle import load_oracle
from tests.contracts.judging import load_kernel

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = ROOT / "contracts" / "kda_prefill"


def main() -> None:
    """Print the errors of one case."""
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    name = sys.argv[1]
    run = load_kernel(ROOT / "kernels" / "kda_prefill" / "triton_two_phase.py")
    if name != "exact":
        # `run` is a function of a module that nothing else holds.
        run.__globals__["OPERAND"] = torch.bfloat16
        round_as_the_device_does()
    given = CASES[name]()
    ours, theirs = outputs(run, given), outputs(load_kernel(CONTRACT / "faithful" / "chunked_bf16_operands.py"), given)
    double = {k: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for k, x in given.items()}
    exact = load_oracle(CONTRACT)(**double, noise=lambda x: x)
    errors = {key: [distance(ours[key], exact[key]), distance(theirs[key], exact[key])] for key in exact}
    if name == "isolated":
        first, last = (int(x) for x in given["cu_seqlens"][1:3])
        given["v"][first:last] = given["k"][first:last] = given["g"][first:last] = float("nan")
        again = outputs(run, given)
        clean = torch.cat([torch.arange(first), torch.arange(last, len(given["v"]))])
        errors["changed"] = [
            float((ours["out"][clean] != again["out"][clean]).sum()),
            float((ours["final_state"][[0, 2]] != again["final_state"][[0, 2]]).sum()),
        ]
    sys.stdout.write(json.dumps(errors))


def outputs(run: Any, given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """What `run` writes over NaN."""
    out = torch.full_like(given["v"], float("nan"))
    final = torch.full((given["cu_seqlens"].numel() - 1, given["v"].shape[1], 128, 128), float("nan"))
    run(**given, out=out, final_state=final)
    return {"out": out, "final_state": final}


def distance(x: torch.Tensor, exact: torch.Tensor) -> float:
    return float((x.double() - exact).norm() / exact.norm().clamp_min(1e-30))


def draw(lengths: list[int], heads: int, *, scale: float = 128**-0.5, lower_bound: float = -5.0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(len(lengths))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    tokens = sum(lengths)
    return {
        **{name: normal(tokens, heads, 128).bfloat16() for name in "qkvg"},
        "beta": normal(tokens, heads).bfloat16(),
        "A_log": 0.5 * normal(heads),
        "dt_bias": normal(heads, 128) - 2,
        "scale": scale,
        "lower_bound": lower_bound,
        "initial_state": normal(len(lengths), heads, 128, 128),
        "cu_seqlens": torch.tensor([0, *lengths]).cumsum(0),
    }


def hard() -> dict[str, Any]:
    """Keys that repeat with weights near one, rows of zeros, gates far outside, and a large state."""
    given = draw([37], 2)
    given["k"][:20] = given["k"][0].clone()
    given["beta"][:20] = 8.0
    given["k"][25] = given["q"][26] = 0.0
    given["g"][:24] = -30.0
    given["g"][30:, :, ::2] = 1e4
    given["initial_state"] *= 1e6
    return given


def stateless() -> dict[str, Any]:
    return {**draw([5, 33], 1, scale=2.0, lower_bound=-0.001), "initial_state": None}


CASES = {
    "exact": lambda: draw([0, 1, 0, 17, 16, 31], 2),
    "ragged": lambda: draw([0, 1, 0, 17, 16, 31], 2),
    "stateless": stateless,
    "empty": lambda: draw([0, 0], 2),
    "hard": hard,
    "isolated": lambda: draw([17, 5, 20], 1),
}


def round_as_the_device_does() -> None:
    """Triton 3.6 interprets bf16 as its bits in matrix products, and cuts off where a conversion should round."""
    cast, dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def rounded(self: Any, x: Any, to: Any) -> Any:
        if (x.dtype.scalar, to.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, x, to)
        bits = np.ascontiguousarray(x.data).view(np.uint32).reshape(x.data.shape)
        return TensorHandle(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16), tl.bfloat16)

    def wide(x: Any) -> Any:
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def product(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, wide(a), wide(b), *rest) if a.dtype.scalar == tl.bfloat16 else dot(self, a, b, *rest)

    InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot = rounded, product


if __name__ == "__main__":
    main()
