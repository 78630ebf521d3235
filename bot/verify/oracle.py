"""Run a contract's float64 oracle: once exactly, and with noise at its operands to learn what an honest error is.

The oracle is ours (base commit) and runs here, in the verifier; expected values never leave this process.
"""

import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bot.contract.schema import Contract, DType, Output, TensorInput
from bot.errors import DataError, Problem
from bot.verify.cases import Case, Held
from bot.verify.philox import Stream

Tensor = torch.Tensor
Noise = Callable[[Tensor], Tensor]
OracleFunction = Callable[..., Any]

TORCH: dict[DType, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "int64": torch.int64,
    "int32": torch.int32,
    "int8": torch.int8,
    "uint8": torch.uint8,
}
ROUNDING: dict[str, float] = {
    "float8_e4m3fn": 2.0**-5,
    "bfloat16": 2.0**-9,
    "float16": 2.0**-12,
    "float32": 2.0**-25,
}
"""Largest relative error of one rounding to nearest: half a unit in the last place."""
NOISY_RUNS = 8
"""Rows of a head may err together, so that a run is one sample of them all: with three runs a unit is a tenth of its
true value once in a thousand draws, with eight a third (quantiles of chi-square). Measured on honest KDA kernels over
four draws of everything, largest p99 with three and eight runs: 6.1 and 3.6 units."""
QUIET_RUNS = 3
"""After this many, no more are made where their spread is far below the floor in every row: it is the unit then."""
FAR = 8.0
"""How far below: three runs show less than an eighth of the true spread once in 370 rows (chi-square, 3 degrees)."""
FACTORS = {"cpu": 1 << 20, "cuda": 1 << 24}
"""So many factors of noise: more than what one step of a recurrence multiplies, which then is one operation."""
NOISE_USES = 1 << 12
"""An oracle may ask for noise this often in one run."""
USUAL_SHARE = 0.2
"""Runs can agree by chance where a row errs by one scalar (a norm). A fifth of the usual relative spread bounds that
tail without hiding a quiet row."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one draw's outputs must be. `exact`: float64, contract shape; of a set, the scores of all ids. `units`: the
    noise unit of each row, shape of `exact` without its last axis. `runs`: how many noisy ones tell them, with the sums
    of their squares in `squares`."""

    exact: Mapping[str, Tensor]
    units: Mapping[str, Tensor]
    runs: int = 0
    squares: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def to(self, device: torch.device) -> "Expected":
        """The same on another device."""
        exact, units, squares = (
            {name: tensor.to(device) for name, tensor in held.items()}
            for held in (self.exact, self.units, self.squares)
        )
        return Expected(exact, units, self.runs, squares)


def tensor_of(held: Held, dtype: DType) -> Tensor:
    """A torch tensor over the same bytes."""
    if isinstance(held, Tensor):
        return held
    raw = torch.from_numpy(np.ascontiguousarray(held))
    return raw.view(TORCH[dtype])


def load_oracle(folder: Path) -> OracleFunction:
    """The function `oracle` of `oracle.py`.

    Raises:
        DataError: the file does not load or has no such function.
    """
    path = folder / "oracle.py"
    spec = importlib.util.spec_from_file_location(f"proctor_oracle_{folder.name}", path)
    assert spec is not None  # noqa: S101 - a path with a suffix always has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        function: OracleFunction = module.oracle
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's file; whatever it raises is the answer
        raise DataError(
            f"contracts/{folder.name}/oracle.py", [Problem("", f"{type(error).__name__}: {error}")]
        ) from None
    return function


def expect(
    contract: Contract,
    oracle: OracleFunction,
    case: Case,
    stream: Stream,
    *,
    runs: int = NOISY_RUNS,
    known: Expected | None = None,
    on: torch.device | None = None,
) -> Expected:
    """Exact outputs of one case and, unless there are to be no noisy `runs`, the noise unit of each row. `known`: the
    same with fewer runs, of the same stream, which are not made again. `on`: where to compute what is kept where the
    case is.

    Raises:
        DataError: the oracle raised, or its outputs have another structure, shape or dtype than declared.
    """
    home = device_of(case)
    if on is not None and on != home:
        there = None if known is None else known.to(on)
        return _expect(contract, oracle, case, stream, runs, there, on).to(home)
    return _expect(contract, oracle, case, stream, runs, known, home)


def _expect(
    contract: Contract,
    oracle: OracleFunction,
    case: Case,
    stream: Stream,
    runs: int,
    known: Expected | None,
    device: torch.device,
) -> Expected:
    arguments = _arguments(contract, case, device)
    exact = _run(contract, oracle, arguments, case, lambda x: x) if known is None else known.exact
    if not runs:
        return Expected(exact, {})
    squares = {name: torch.zeros(value.shape[:-1], dtype=torch.float64, device=device) for name, value in exact.items()}
    first = 0
    if known is not None and known.squares:
        first, squares = known.runs, {name: square.clone() for name, square in known.squares.items()}
    counted = {name: finite_in(value, unit_dtype(contract.outputs[name])) for name, value in exact.items()}

    def units_after(done: int, *, spread: float = 1.0) -> dict[str, Tensor]:
        return {
            name: noise_units(
                exact[name],
                spread * (square / done).sqrt(),
                unit_dtype(contract.outputs[name]),
                case.recipe.limits[name].floor_ulps,
            )
            for name, square in squares.items()
        }

    for run in range(first, runs):
        noise = _noise(ROUNDING[contract.compute.operands], stream.child("noise", run), device)
        for name, value in _run(contract, oracle, arguments, case, noise).items():
            squares[name] += mean_square(value - exact[name], counted[name])
        if run + 1 == QUIET_RUNS < runs:
            quiet, loud = units_after(QUIET_RUNS, spread=0.0), units_after(QUIET_RUNS, spread=FAR)
            if all(torch.equal(quiet[name], loud[name]) for name in exact):
                return Expected(exact, quiet, runs)
    return Expected(exact, units_after(runs), runs, squares)


def noise_units(exact: Tensor, spread: Tensor, dtype: DType, floor_ulps: float) -> Tensor:
    """The unit of each row: the spread of the noisy runs, but not less than an honest row's rounding, than a share of
    what is usual for a row of its size, or than the type's smallest normal number (hardware may flush the rest).

    Elements without a distance have no say: one infinity would make a unit in which everything beside it is right.
    """
    info = torch.finfo(TORCH[dtype])
    size = mean_square(exact, finite_in(exact, dtype)).sqrt()
    exponent = torch.floor(torch.log2(size.clamp_min(info.tiny)))
    floor = (floor_ulps * torch.exp2(exponent) * info.eps).clamp_min(info.tiny)
    spread = torch.nan_to_num(spread, nan=0.0, posinf=0.0)
    some = size > 0
    if bool(some.any()):
        usual = (spread[some] / size[some]).median()
        floor = torch.maximum(floor, USUAL_SHARE * usual * size)
    return torch.maximum(spread, floor)


def unit_dtype(output: Output) -> DType:
    """The type in whose ulps the least unit is told: a set's scores are kept in float32."""
    return "float32" if output.compare == "set_at_cut" else output.dtype


def finite_in(exact: Tensor, dtype: DType) -> Tensor:
    """Which elements are finite numbers in this type too; the others have a value class and no distance."""
    return torch.isfinite(exact.to(TORCH[dtype]))


def mean_square(rows: Tensor, counted: Tensor) -> Tensor:
    """Mean square of the elements of each row (last axis) that count; 0 where none does."""
    return torch.where(counted, rows, 0.0).square().sum(dim=-1) / counted.sum(dim=-1).clamp_min(1)


def device_of(case: Case) -> torch.device:
    """Where a case is computed: on a GPU when some of its inputs were drawn there."""
    drawn = [held.device for held in case.inputs.values() if isinstance(held, Tensor)]
    return drawn[0] if drawn else torch.device("cpu")


def _arguments(contract: Contract, case: Case, device: torch.device) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, spec in contract.inputs.items():
        held = case.inputs[name]
        if isinstance(spec, TensorInput) and isinstance(held, np.ndarray | Tensor):
            tensor = tensor_of(held, spec.dtype).to(device)
            arguments[name] = tensor.double() if tensor.is_floating_point() else tensor.long()
        else:
            arguments[name] = held
    return arguments


@functools.cache
def _factors(rounding: float, device: torch.device) -> Tensor:
    """Factors uniform within one rounding of 1, made once: drawing them anew was a quarter of an oracle."""
    deviates = torch.rand(FACTORS[device.type], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return (1 + rounding * (2 * deviates - 1)).to(device)


def _noise(rounding: float, stream: Stream, device: torch.device) -> Noise:
    """Relative noise of one rounding; each use reads the shared factors from a place of its own."""
    factors = _factors(rounding, device)
    words = iter(stream.words(NOISE_USES).tolist())

    def noise(x: Tensor) -> Tensor:
        count = x.numel()
        if count < len(factors):
            place = next(words) * (len(factors) - count) >> 32
            return x * factors[place : place + count].view(x.shape)
        # Over and over, from a place on: without a copy as large as x.
        turned = factors.roll(-(next(words) * len(factors) >> 32))
        flat, out = x.reshape(-1), torch.empty(count, dtype=x.dtype, device=x.device)
        whole = count - count % len(factors)
        torch.mul(flat[:whole].view(-1, len(factors)), turned, out=out[:whole].view(-1, len(factors)))
        torch.mul(flat[whole:], turned[: count - whole], out=out[whole:])
        return out.view(x.shape)

    return noise


def _run(
    contract: Contract, oracle: OracleFunction, arguments: Mapping[str, Any], case: Case, noise: Noise
) -> dict[str, Tensor]:
    source = f"contracts/{contract.name}/oracle.py"
    try:
        with torch.no_grad():
            outputs = oracle(**arguments, noise=noise)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        raise DataError(source, [Problem(case.where, f"{type(error).__name__}: {error}")]) from None
    problems = []
    if not isinstance(outputs, dict) or set(outputs) != set(contract.outputs):
        raise DataError(source, [Problem(case.where, f"must return a dict of {', '.join(contract.outputs)}")])
    for name, output in contract.outputs.items():
        if not isinstance(outputs[name], Tensor):
            problems.append(Problem(name, f"must be a tensor, is {type(outputs[name]).__name__} ({case.where})"))
            continue
        shape, given = contract.shape(output, case.axes), tuple(outputs[name].shape)
        wanted = f"{shape}"
        if output.compare == "set_at_cut":
            wanted = f"scores of all ids, {shape[:-1]} and at least one id"
            shape = (*shape[:-1], max([1, *given[-1:]]))
        if outputs[name].dtype != torch.float64 or given != shape:
            problems.append(Problem(name, f"must be float64 {wanted}, is {outputs[name].dtype} {given} ({case.where})"))
        elif output.compare == "set_at_cut" and bool(torch.isnan(outputs[name]).any()):
            problems.append(Problem(name, f"scores must not be NaN ({case.where})"))
    if problems:
        raise DataError(source, problems)
    return {name: outputs[name] for name in contract.outputs}
