"""Kernels of this repository as functions, and drawn cases judged as an exam would judge them."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bot.contract.load import LoadedContract
from bot.contract.schema import FLOATING, Control, Sizes
from bot.verify import cases, compare, oracle
from bot.verify.counterexample import same_bits
from bot.verify.philox import Stream

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / "contracts"
Kernel = Callable[..., None]


def load_kernel(path: Path) -> Kernel:
    spec = importlib.util.spec_from_file_location(f"kernel_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Kernel = module.run
    return run


@dataclass(frozen=True)
class Drawn:
    """A case with its expected values; `margin(kernel)` is the largest error over its limit."""

    loaded: LoadedContract
    case: cases.Case
    expected: oracle.Expected

    def margin(self, kernel: Kernel) -> float:
        return self.judgement(kernel).margin

    def judgement(self, kernel: Kernel) -> compare.Judgement:
        contract = self.loaded.contract
        inputs = [
            oracle.tensor_of(held, spec.dtype) if isinstance(held, np.ndarray) else held  # type: ignore[arg-type]
            for spec, held in ((spec, self.case.inputs[name]) for name, spec in contract.inputs.items())
        ]
        before = [x.clone() if isinstance(x, torch.Tensor) else None for x in inputs]
        outputs = {
            name: torch.full(
                contract.shape(spec, self.case.axes),
                float("nan") if spec.dtype in FLOATING else -(2**30),
                dtype=oracle.TORCH[spec.dtype],
            )
            for name, spec in contract.outputs.items()
        }
        assert kernel(*inputs, *outputs.values()) is None  # type: ignore[func-returns-value]
        for was, now in zip(before, inputs, strict=True):
            assert was is None or (isinstance(now, torch.Tensor) and same_bits(was, now)), "an input was modified"
        setting = compare.Setting(self.case.where, self.case.axes, self.case.recipe.limits)
        return compare.judge(contract, self.expected, outputs, setting)


@dataclass
class Judge:
    """Draws cases of one contract, the same ones in every run, each only once."""

    loaded: LoadedContract
    drawn: dict[str, Drawn]

    def probe(self, name: str) -> Drawn:
        contract = self.loaded.contract
        probe = next(probe for probe in contract.probes if probe.name == name)
        return self._draw(cases.probe_recipe(contract, probe))

    def places(self, name: str, axes: Sizes) -> list[Drawn]:
        """What `fails` of a control may name: a probe, a regime at `axes`, or hidden draws, all of that name."""
        contract = self.loaded.contract
        if name in contract.regimes:
            return [self.cell(name, axes)]
        return [self.probe(name)] if name in {p.name for p in contract.probes} else self.hidden(name)

    def cell(self, regime: str, axes: Sizes) -> Drawn:
        contract = self.loaded.contract
        workload = contract.anchor("cpu").model_copy(update={"name": "small", "axes": axes})
        return self._draw(cases.cell_recipe(contract, workload, regime))

    def hidden(self, name: str) -> list[Drawn]:
        stream = Stream.from_salt(b"\x05" * 32, "hidden")
        recipes = cases.hidden_recipes(self.loaded.contract, "cpu", stream)
        return [self._draw(recipe) for recipe in recipes if recipe.name == name]

    def fresh(self, drawn: Drawn) -> Drawn:
        """Another draw of the same kind at the same axes."""
        return self._draw(drawn.case.recipe, "again")

    def failures(self, control: Control, kernel: Kernel, axes: Sizes) -> dict[str, float]:
        """The largest margin at each place that must see the control, which has met other inputs of that shape."""
        margins: dict[str, float] = {}
        for name in control.fails:
            for drawn in self.places(name, axes):
                self.fresh(drawn).margin(kernel)
                margins[name] = max(drawn.margin(kernel), margins.get(name, 0.0))
        return margins

    def _draw(self, recipe: cases.Recipe, number: str = "") -> Drawn:
        key = f"{recipe.name} {recipe.axes} {number}"
        if key not in self.drawn:
            stream = Stream.from_salt(b"\x07" * 32, key)
            case = cases.make_case(self.loaded.contract, recipe, stream, static=stream.child("static"))
            function = oracle.load_oracle(self.loaded.folder)
            expected = oracle.expect(self.loaded.contract, function, case, stream.child("expected"))
            self.drawn[key] = Drawn(self.loaded, case, expected)
        return self.drawn[key]
