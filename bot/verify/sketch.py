"""Draw each regime once and say how its inputs are distributed, for people to look at. Needs no torch."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bot.contract.appraisal import Order, Sketch, Sketched
from bot.contract.distribution import Distribution, Packed
from bot.contract.load import LoadedContract
from bot.contract.schema import FLOATING, DType, TensorInput
from bot.errors import UsageError
from bot.verify.cases import cell_recipe, make_case
from bot.verify.draws import STORAGE, values_of
from bot.verify.philox import Stream

BINS = 20
EDGE = 0.005
"""Share of the values left out at either end: one outlier would flatten the rest into a single bar."""
FEW = 200
"""So few values are all shown."""
SPREAD = 20.0
"""Positive values of which the middle 80 % spread by more than this factor (uniform from zero: 9) would be one bar
and a line: their logarithms are counted."""

Values = npt.NDArray[np.float64]


def sketch(loaded: LoadedContract, order: Order, salt: str) -> Sketched:
    """Every drawn input of the anchor workload in every regime.

    Raises:
        UsageError: no workload is for the device.
    """
    contract = loaded.contract
    if not any(order.device in workload.device for workload in contract.workloads):
        raise UsageError(f"contract {contract.name} has no workload for {order.device}")
    workload, sketches = contract.anchor(order.device), []
    for regime in contract.regimes:
        stream = Stream.from_salt(bytes.fromhex(salt), loaded.digest, "sketch", regime)
        # Cells carry needles from other regimes; a hidden draw shows the regime alone.
        recipe = replace(cell_recipe(contract, workload, regime), kind="hidden")
        case = make_case(contract, recipe, stream, static=stream.child("static"))
        for name, spec in contract.inputs.items():
            held = case.inputs[name]
            if isinstance(spec, TensorInput) and spec.offsets_of is None and isinstance(held, np.ndarray) and held.size:
                drawn = contract.regimes[regime].draws.get(name, contract.draws.get(name))
                for part, dtype, values in _parts(spec, drawn, held):
                    seen = _sketch(values, ids=spec.below is not None)
                    update = {"regime": regime, "input": name, "part": part, "whole": dtype not in FLOATING}
                    sketches.append(seen.model_copy(update=update))
    return Sketched(workload=workload.name, sketches=sketches)


def _parts(
    spec: TensorInput, drawn: Distribution | None, held: npt.NDArray[np.generic]
) -> Iterator[tuple[str, DType, Values]]:
    """The values of an input, or of each part of its records: what the part is, its type, its values in a row."""
    if not isinstance(drawn, Packed):
        yield "", spec.dtype, values_of(held, spec.dtype).reshape(-1)
        return
    steps, begin = np.ascontiguousarray(held).view(np.uint8).reshape(len(held), -1), 0
    for part in drawn.parts:
        end = begin + math.prod(part.shape) * STORAGE[part.dtype].itemsize
        stored = np.ascontiguousarray(steps[:, begin:end]).view(STORAGE[part.dtype])
        yield f"{part.shape} {part.dtype}", part.dtype, values_of(stored, part.dtype).reshape(-1)
        begin = end


def _sketch(drawn: Values, *, ids: bool) -> Sketch:
    finite = drawn[np.isfinite(drawn)]
    some = finite[finite != -1] if ids else finite
    values = some if some.size else np.zeros(1)
    edge = EDGE if values.size >= FEW else 0.0
    low, high = (float(end) for end in np.quantile(values, [edge, 1 - edge]))
    logarithmic = low > 0 and np.quantile(values, 0.9) > SPREAD * np.quantile(values, 0.1)
    ends = (low, high) if low < high else (low - 0.5, low + 0.5)
    inside = values[(values >= low) & (values <= high)]
    scaled, ends = (np.log(inside), (math.log(low), math.log(high))) if logarithmic else (inside, ends)
    counts, _ = np.histogram(scaled, bins=BINS, range=ends)
    return Sketch(
        regime="",
        input="",
        logarithmic=bool(logarithmic),
        none=float((finite.size - some.size) / drawn.size),
        infinite=float((drawn.size - finite.size) / drawn.size),
        minimum=float(values.min()),
        maximum=float(values.max()),
        mean=float(values.mean()),
        deviation=float(values.std()),
        low=low,
        high=high,
        bins=[int(count) for count in counts],
    )
