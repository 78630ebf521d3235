"""What the agent is told: its rules, the contract in words, and the request, quoted as data.

Names no limit, no probe and no distribution: an agent that knows them writes for them.
"""

from collections.abc import Iterator
from importlib.resources import files
from string import Template

from bot.agent.task import AgentTask
from bot.contract.schema import (
    Axis,
    ConstAxis,
    Contract,
    CountAxis,
    DerivedAxis,
    Device,
    Output,
    RaggedAxis,
    ScalarInput,
    TensorInput,
    TotalAxis,
    VarAxis,
)
from bot.sanitize import shorten, strip_hidden

GOAL_LIMIT = 4000

CUT = (
    "Your answer hit the length limit. None of its calls were run. Say less, or write the file in a shorter form, "
    "and go on."
)


def system_prompt(task: AgentTask) -> str:
    """The rules, which do not change during a run."""
    return _template("system.md").substitute(op=task.contract.name, device=task.device)


def first_message(task: AgentTask) -> str:
    """The task: the contract in words, where to start, and the request."""
    return _template("task.md").substitute(
        contract=contract_text(task.contract, task.device),
        start="\n".join(_start(task)) or "- none",
        wiki="\n".join(f"- `wiki/{name}`" for name in sorted(task.wiki)) or "- none",
        request=quoted(task.goal) or "> (nothing)",
    )


def _start(task: AgentTask) -> Iterator[str]:
    """Where to start, the incumbents first: an agent is not told the device, and reads which is for which."""
    for target, kernel in task.incumbents.items():
        yield f"- `baselines/{kernel.name}.py` ({kernel.role} on {target})"
    yield from (f"- `baselines/{kernel.name}.py` ({kernel.role})" for kernel in task.baselines)


def starting_files(task: AgentTask) -> dict[str, str]:
    """What the workspace holds at the start: relative path → text."""
    return {
        "contract.md": contract_text(task.contract, task.device),
        **{f"baselines/{b.name}.py": b.source for b in (*task.baselines, *task.incumbents.values())},
        **{f"wiki/{name}": text for name, text in task.wiki.items()},
    }


def quoted(text: str) -> str:
    """Free text from outside as a Markdown quote: what is hidden dropped, every line marked, bounded."""
    visible, _ = strip_hidden(text)
    return "\n".join(f"> {line}" for line in shorten(visible.strip(), GOAL_LIMIT).splitlines())


def contract_text(contract: Contract, device: Device) -> str:
    """The open part of a contract in words: interface, axes, tensors, what is timed on this device."""
    return "\n".join(_contract_lines(contract, device))


def _contract_lines(contract: Contract, device: Device) -> Iterator[str]:
    yield f"# Contract {contract.name}, version {contract.version}\n\n{contract.summary.strip()}\n"
    yield f"    def run({', '.join([*contract.inputs, *contract.outputs])}) -> None\n"
    yield "## Axes\n"
    yield from (f"- {name}: {_axis(axis)}" for name, axis in contract.axes.items())
    yield "\n## Inputs, never to be modified\n"
    yield from (f"- {name}: {_input(tensor)}" for name, tensor in contract.inputs.items())
    yield "\n## Outputs, allocated by the caller, every element to be written\n"
    yield from (f"- {name}: {_tensor(tensor)}" for name, tensor in contract.outputs.items())
    operands, accumulate = contract.compute.operands, contract.compute.accumulate
    yield f"\nMatrix operands may be rounded to {operands}; sums are kept in {accumulate}.\n"
    yield f"## Timed on {device}, each in every regime\n"
    timed = {workload.name: workload for workload, _ in contract.scored(device)}
    for name, workload in timed.items():
        yield f"- {name}: {', '.join(f'{axis}={size}' for axis, size in workload.axes.items())}"
    yield "\n## Regimes\n"
    yield from (f"- {name}: {regime.doc}" for name, regime in contract.regimes.items())


def _axis(axis: Axis) -> str:
    match axis:
        case ConstAxis(const=value):
            return str(value)
        case VarAxis():
            return f"{axis.min} to {axis.max}" + (f", multiples of {axis.multiple}" if axis.multiple > 1 else "")
        case RaggedAxis():
            return f"a list of lengths, each {axis.min_length} to {axis.max_length}"
        case TotalAxis(total_of=ragged):
            return f"the sum of {ragged}"
        case CountAxis(count_of=ragged):
            return f"how many lengths {ragged} has"
        case DerivedAxis():
            return f"{axis.times} * {axis.of}" + (f" / {axis.over}, rounded up" if axis.over > 1 else "")


def _input(value: TensorInput | ScalarInput) -> str:
    if isinstance(value, TensorInput):
        extra = f", cumulative sums of {value.offsets_of}, from 0" if value.offsets_of else ""
        extra += f", integers below {value.below}, -1 for none" if value.below is not None else ""
        return _tensor(value) + extra + (", may be None" if value.optional else "")
    span = "" if value.low is None or value.high is None else f", {value.low} to {value.high}"
    return f"Python {value.dtype}, usually {value.value}{span}" + (f". {value.doc}" if value.doc else "")


def _tensor(tensor: TensorInput | Output) -> str:
    shape = ", ".join(str(extent) for extent in tensor.shape)
    return f"{tensor.dtype} [{shape}]" + (f". {tensor.doc}" if tensor.doc else "")


def _template(name: str) -> Template:
    return Template(files("bot.agent").joinpath("prompts", name).read_text(encoding="utf-8"))
