import re

import pytest

from bot.contract import schema
from tests.contracts.judging import CONTRACTS

MODELS = [
    *(schema.ConstAxis, schema.VarAxis, schema.RaggedAxis, schema.TotalAxis, schema.CountAxis, schema.DerivedAxis),
    *(schema.TensorInput, schema.ScalarInput, schema.Output, schema.Compute, schema.Limit, schema.Regime),
    *(schema.Workload, schema.HiddenInt, schema.HiddenRange, schema.HiddenLengths, schema.Hidden, schema.Probe),
    *(schema.Requires, schema.Baseline, schema.Control, schema.Work, schema.Contract),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_of_a_contract_is_documented(model):
    code = " ".join(re.findall(r"`([^`]+)`", (CONTRACTS / "README.md").read_text(encoding="utf-8")))
    words = set(re.findall(r"\w+", code))
    assert set(model.model_fields) - words == set()
