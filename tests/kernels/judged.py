"""Has a contract's own judge look at a Triton kernel under Triton's interpreter: `python -m tests.kernels.judged FILE`.

The kernel's folder names the contract. It answers the smallest questions that an exam puts to a GPU; printed is by how
much of its limit it errs in each, as JSON. A process of its own, since TRITON_INTERPRET is read when a kernel is made.
"""

import json
import sys
from pathlib import Path

# First: it says that kernels are to be interpreted.
from tests.kernels.interpreted import ROOT, round_as_the_device_does  # isort: skip

import numpy as np
import torch

from bot.contract.load import load_contract
from bot.verify import oracle
from bot.verify.philox import Stream
from bot.verify.sanitizer import small_cases
from tests.contracts.judging import Drawn, load_kernel


def main() -> None:
    """Print the margins."""
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    round_as_the_device_does()
    file = Path(sys.argv[1])
    loaded = load_contract(ROOT / "contracts", file.parent.name)
    function, run = oracle.load_oracle(loaded.folder), load_kernel(file)
    margins = []
    for number, case in enumerate(small_cases(loaded.contract)[0]):
        expected = oracle.expect(loaded.contract, function, case, Stream.from_salt(b"judged", str(number)))
        margins.append([case.where, Drawn(loaded, case, expected).margin(run)])
    sys.stdout.write(json.dumps(margins))


if __name__ == "__main__":
    main()
