"""Kernels that some contract once let pass, each with the question that sees it now. Those that miss a limit three
times over are controls; these are too near to it, or are seen by a relation."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bot.contract.load import LoadedContract, load_contract
from bot.contract.schema import TensorInput
from bot.verify.calls import Answered
from bot.verify.cases import Case, Held, cell_recipe, make_case
from bot.verify.compare import Setting, noise_level
from bot.verify.draws import STORAGE
from bot.verify.oracle import TORCH, expect, load_oracle, tensor_of
from bot.verify.pairs import apart
from bot.verify.philox import Stream
from bot.verify.relations import Compared, put_twice
from tests.contracts.judging import CONTRACTS, Judge, Kernel, load_kernel

SHORTCUTS = sorted(Path(__file__).parent.glob("shortcuts/*/*.py"))
SEEN_BY = re.compile(r"^seen by: (relation )?(\w+)$", re.MULTILINE)


@pytest.mark.parametrize("path", SHORTCUTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shortcut_that_once_passed_is_seen(path: Path) -> None:
    loaded = load_contract(CONTRACTS, path.parent.name)
    found = SEEN_BY.search(path.read_text())
    assert found is not None
    related, name = found.groups()
    if related:
        assert _differs(loaded, name, load_kernel(path))
        honest = CONTRACTS / loaded.contract.name / loaded.contract.faithful[0]
        assert not _differs(loaded, name, load_kernel(honest))
    else:
        assert Judge(loaded, {}).probe(name).margin(load_kernel(path)) > 1


def _differs(loaded: LoadedContract, name: str, kernel: Kernel) -> bool:
    """Whether the two answers to the question of a relation differ by more than honest ones do."""
    contract = loaded.contract
    relation = next(relation for relation in contract.relations if relation.name == name)
    stream = Stream.from_salt(b"\x09" * 32, name)
    compared = put_twice(contract, relation, stream, lambda case, _: _answer(loaded, kernel, case))
    assert isinstance(compared, Compared)
    anchor = contract.anchor("cpu")
    case = make_case(contract, cell_recipe(contract, anchor, relation.regime), stream, static=stream)
    expected = expect(contract, load_oracle(loaded.folder), case, stream.child("oracle"))
    setting = Setting(name, compared.axes, contract.limits)
    return apart(contract, compared.answers, noise_level(contract, expected), setting) is not None


def _answer(loaded: LoadedContract, kernel: Kernel, case: Case) -> Answered:
    contract = loaded.contract
    inputs = [
        tensor_of(held, spec.dtype) if isinstance(spec, TensorInput) and isinstance(held, np.ndarray) else held
        for spec, held in ((spec, case.inputs[name]) for name, spec in contract.inputs.items())
    ]
    outputs = {
        name: torch.zeros(contract.shape(spec, case.axes), dtype=TORCH[spec.dtype])
        for name, spec in contract.outputs.items()
    }
    kernel(*inputs, *outputs.values())
    stored: dict[str, Held] = {
        name: held.view(torch.uint8).numpy().view(STORAGE[contract.outputs[name].dtype])
        for name, held in outputs.items()
    }
    return Answered(0, 0, stored)
