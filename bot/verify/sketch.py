"""Draw each regime once and say how its inputs are distributed, for people to look at. Needs no torch."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bot.contract.appraisal import Order, Sketch, Sketched
from bot.contract.load import LoadedContract
from bot.contract.schema import TensorInput
from bot.errors import UsageError
from bot.verify.cases import cell_recipe, make_case
from bot.verify.draws import values_of
from bot.verify.philox import Stream

BINS = 24
EDGE = 0.005
"""Share of the values left out at either end: one outlier would flatten the rest into a single bar."""
FEW = 200
"""So few values are all shown."""


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
                sketches.append(_sketch(regime, name, values_of(held, spec.dtype).reshape(-1)))
    return Sketched(workload=workload.name, sketches=sketches)


def _sketch(regime: str, name: str, values: npt.NDArray[np.float64]) -> Sketch:
    edge = EDGE if values.size >= FEW else 0.0
    low, high = (float(end) for end in np.quantile(values, [edge, 1 - edge]))
    counts, _ = np.histogram(values, bins=BINS, range=(low, high) if low < high else (low - 0.5, low + 0.5))
    return Sketch(
        regime=regime,
        input=name,
        minimum=float(values.min()),
        maximum=float(values.max()),
        mean=float(values.mean()),
        deviation=float(values.std()),
        low=low,
        high=high,
        bins=[int(count) for count in counts],
    )
