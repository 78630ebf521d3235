"""The tensors of a counterexample, as a file: inputs, what the candidate left, what the oracle wants.

They are what a refusal rests on; with them anybody can judge again without running the candidate.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from bot.contract.schema import TensorInput
from bot.verify.calls import Answered
from bot.verify.cases import Case
from bot.verify.exam import Exam, Question
from bot.verify.oracle import Tensor, tensor_of

FILE = "counterexample.safetensors"


def input_tensors(exam: Exam, case: Case) -> dict[str, Tensor]:
    """`input.NAME` for every tensor of a case; numbers and absent inputs are in the plan."""
    found: dict[str, Tensor] = {}
    for name, spec in exam.contract.inputs.items():
        held = case.inputs[name]
        if isinstance(spec, TensorInput) and isinstance(held, np.ndarray):
            found[f"input.{name}"] = tensor_of(held, spec.dtype)
    return found


def tensors_of(exam: Exam, question: Question, answer: Answered) -> dict[str, Tensor]:
    """Everything a second look at one answer needs."""
    found = input_tensors(exam, question.case)
    found |= {f"candidate.{name}": value for name, value in exam.tensors(answer.outputs).items()}
    found |= {f"oracle.{name}": value for name, value in question.expected.exact.items()}
    return {name: value.clone().contiguous() for name, value in found.items()}


def save(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write them."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / FILE)


def load(folder: Path) -> dict[str, Tensor] | None:
    """Read them; None when the refusal had none."""
    path = folder / FILE
    return load_file(path) if path.is_file() else None


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal shape, type and bytes: a NaN equals itself here."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
