"""One judge for each contract, and one thread."""

import pytest
import torch

from bot.contract.load import load_contract
from tests.contracts.judging import CONTRACTS, Judge


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def kda() -> Judge:
    return Judge(load_contract(CONTRACTS, "kda_prefill"), {})


@pytest.fixture(scope="session")
def rmsnorm() -> Judge:
    return Judge(load_contract(CONTRACTS, "rmsnorm"), {})
