"""Inputs that keep their value while they are there: never where another one was."""

import pytest

from bot.contract.load import load_contract
from bot.verify.calls import Answered, Worker
from bot.verify.cases import cell_recipe, make_case
from bot.verify.oracle import tensor_of
from tests.contracts.judging import CONTRACTS
from tests.sandbox.conftest import STREAM, everything

pytestmark = pytest.mark.sandbox

KERNEL = """
import torch

kept = {}


def run(hidden_states, weight, output):
    kept.setdefault(weight.data_ptr(), weight.float())
    output.copy_(kept[weight.data_ptr()].expand_as(output))
    output[0, :1] = len(kept)
"""


def test_what_a_kernel_keeps_of_a_weight_by_its_address_is_never_that_of_another():
    contract = load_contract(CONTRACTS, "rmsnorm").contract
    recipe = cell_recipe(contract, contract.anchor("cpu").model_copy(update={"axes": {"B": 2, "H": 64}}), "gaussian")
    with Worker(contract, "bubblewrap", everything()) as worker:
        assert worker.load(KERNEL) is None
        for number in range(1, 6):
            given = make_case(contract, recipe, STREAM.child(number), static=STREAM.child("weight", number))
            answer = worker.run(given, STREAM.child(number))
            assert isinstance(answer, Answered), answer
            output = tensor_of(answer.outputs["output"], "bfloat16").view(2, 64)
            weight = tensor_of(given.inputs["weight"], "bfloat16")  # type: ignore[arg-type] # a tensor
            assert (output[1] == weight).all()
            assert int(output[0, 0]) == number
