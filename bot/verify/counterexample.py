"""The tensors of a counterexample, as a file: inputs, what the candidate left, what the oracle wants.

They are what a refusal rests on; with them anybody can judge again without running the candidate.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from bot.contract.schema import TensorInput
from bot.verify.calls import Answered
from bot.verify.cases import Case
from bot.verify.draws import Array
from bot.verify.exam import Exam, Question
from bot.verify.oracle import Expected, Tensor, device_of, tensor_of

FILE = "counterexample.safetensors"
SMALLEST = "smallest"


def input_tensors(exam: Exam, case: Case) -> dict[str, Tensor]:
    """`input.NAME` for every tensor of a case; numbers and absent inputs are in the plan."""
    found: dict[str, Tensor] = {}
    for name, spec in exam.contract.inputs.items():
        held = case.inputs[name]
        if isinstance(spec, TensorInput) and held is not None and not isinstance(held, float | int):
            found[f"input.{name}"] = tensor_of(held, spec.dtype)
    return found


def answer_tensors(exam: Exam, question: Question, answer: Answered) -> dict[str, Tensor]:
    """Everything a second look at one answer needs."""
    return _stored(exam, question.case, {"candidate": exam.tensors(answer.outputs), "oracle": question.expected.exact})


def smallest_tensors(exam: Exam, case: Case, expected: Expected, answer: Answered) -> dict[str, Tensor]:
    """The same of the smallest case, under names of their own."""
    found = _stored(exam, case, {"candidate": exam.tensors(answer.outputs), "oracle": expected.exact})
    return {f"{SMALLEST}.{name}": value for name, value in found.items()}


def pair_tensors(
    exam: Exam, case: Case, candidate: Mapping[str, Tensor], other: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Two answers that should agree: the candidate's, and the bar's or its own to the question put otherwise."""
    return _stored(exam, case, {"candidate": candidate, "other": other})


def _stored(exam: Exam, case: Case, outputs: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    if device_of(case).type != "cpu":
        return {}  # A gigabyte that anybody can draw again from the salt.
    found = input_tensors(exam, case)
    found |= {f"{whose}.{name}": value for whose, held in outputs.items() for name, value in held.items()}
    return {name: value.clone().contiguous() for name, value in found.items()}


def save(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write them."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / FILE)


def load(folder: Path) -> dict[str, Tensor] | None:
    """Read them; None when the refusal had none."""
    path = folder / FILE
    return load_file(path) if path.is_file() else None


def array_of(tensor: Tensor) -> Array:
    """A stored tensor in storage form."""
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    if tensor.dtype == torch.float8_e4m3fn:
        return tensor.contiguous().view(torch.uint8).numpy()
    return tensor.contiguous().numpy()


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal shape, type and bytes: a NaN equals itself here."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    # By way of numpy: torch cannot view a tensor as bytes whose last axis has one step and another stride.
    return array_of(one).tobytes() == array_of(other).tobytes()
