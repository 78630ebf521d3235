"""A contract at a terminal: what is wrong with it, what its kernels measure, and what it declares."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot import floor
from bot.contract import schema
from bot.contract.appraisal import Calibrated, Checked, ControlMargin, Measured, Sketch, Sketched, Trial
from bot.contract.schema import Contract, Limit, Output, ScalarInput, TensorInput
from bot.errors import Problem
from bot.report import figures
from bot.sanitize import plain_line

_BARS = " ▁▂▃▄▅▆▇█"
_REASON = 600
"""Characters of a reason that are shown; an exception of an oracle may carry a page."""


def print_problems(name: str, problems: Sequence[Problem], checked: Checked | None, console: Console) -> None:
    """Each problem under the name of its contract, or one line when there is none."""
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) != 1)}"
        console.print(Text(f"✗ {name}: {count}", style="bold red"))
        for problem in problems:
            console.print(Text(f"  {plain_line(f'{problem.path or name}: {problem.reason}', _REASON)}"), soft_wrap=True)
    if checked is None:
        return
    if not problems:
        console.print(Text(f"✓ {name}", style="bold green"))
    figures_said = [*_kernels(checked), f"{checked.cases} cases in {figures.significant(checked.seconds)} s"]
    console.print(Text(f"  {'; '.join(figures_said)}"), soft_wrap=True)
    console.print(Text(f"  again with --salt {checked.salt}", style="dim"), soft_wrap=True)


def _kernels(checked: Checked) -> Iterator[str]:
    if checked.controls:
        weakest = min(checked.controls, key=lambda trial: _size(trial.margin))
        yield f"{len(checked.controls)} controls, weakest {_margin(weakest.margin)} ({_trial(weakest)})"
    if checked.faithful:
        worst = max(checked.faithful, key=lambda trial: _size(trial.margin))
        yield f"{len(checked.faithful)} faithful, worst at {_margin(worst.margin)} of a limit ({_trial(worst)})"


def _trial(trial: Trial) -> str:
    return f"{plain_line(trial.file)} in {plain_line(trial.where)}"


def _size(margin: float | None) -> float:
    return math.inf if margin is None else margin


def _margin(margin: float | None) -> str:
    return "another class of value" if margin is None else f"{figures.significant(margin, 2)}x"


def print_calibration(name: str, found: Calibrated, console: Console) -> None:
    """Errors of the faithful variants with their places, margins of the controls, proposed limits."""
    print_problems(name, found.problems, None, console)
    console.print(Text(f"{name}: {found.draws} draws, {found.cases} cases, {figures.significant(found.seconds)} s"))
    console.print(_measured(found.measured))
    if found.controls:
        console.print(_controls(found.controls))
    console.print(_limits(found.proposed, "proposed limit"))
    console.print(Text(f"again with --salt {found.salt}", style="dim"), soft_wrap=True)


def _measured(measured: Sequence[Measured]) -> Table:
    table = Table("units", "under", "median", "p99", "max", box=None, pad_edge=False, title_justify="left")
    for entry in measured:
        cells = [
            Text(f"{figures.units(w.value)} {plain_line(w.where)}") for w in (entry.median, entry.p99, entry.maximum)
        ]
        table.add_row(Text(entry.file), Text(entry.path), *cells)
    return table


def _controls(controls: Sequence[ControlMargin]) -> Table:
    table = Table("control", "misses by", "as proposed", "best place of its worst draw", box=None, pad_edge=False)
    for entry in controls:
        margins = (_margin(entry.current), _margin(entry.proposed))
        table.add_row(Text(entry.file), *margins, Text(plain_line(entry.where)))
    return table


def _limits(limits: "dict[str, Limit]", head: str) -> Table:
    table = Table(head, "median", "p99", "max", "floor ulps", "source", box=None, pad_edge=False)
    for path, limit in limits.items():
        numbers = (limit.median, limit.p99, limit.maximum, limit.floor_ulps)
        table.add_row(Text(path), *(f"{number:g}" for number in numbers), Text(plain_line(limit.source, _REASON)))
    return table


def print_contract(contract: Contract, drawn: Sketched, console: Console) -> None:
    """Everything a contract declares, and one draw of each regime."""
    console.print(Text(f"{contract.name}, version {contract.version}", style="bold"))
    console.print(Text(plain_line(contract.summary, _REASON)))
    signature = ", ".join([*contract.inputs, *contract.outputs])
    console.print(Text(f"run({signature})", style="bold"), soft_wrap=True)
    tables = [_interface(contract), _axes(contract), _workloads(contract)]
    tables.append(_limits({f"limits.{name}": limit for name, limit in contract.limits.items()}, "limit"))
    for table in tables:
        console.print()
        console.print(table)
    for name, regime in contract.regimes.items():
        console.print()
        console.print(Text(f"regime {name} on {drawn.workload}: {plain_line(regime.doc, _REASON)}"))
        console.print(_sketches([sketch for sketch in drawn.sketches if sketch.regime == name]))
    for table in _kernels_and_probes(contract):
        if table.row_count:
            console.print()
            console.print(table)


def _interface(contract: Contract) -> Table:
    table = Table("argument", "shape", "dtype", "lifetime", "", box=None, pad_edge=False)
    for name, spec in contract.inputs.items():
        match spec:
            case ScalarInput():
                ends = f" ({spec.low:g} to {spec.high:g})" if spec.low is not None and spec.high is not None else ""
                table.add_row(name, f"{spec.value:g}{ends}", spec.dtype, "call", Text(plain_line(spec.doc)))
            case TensorInput():
                doc = f"{'may be absent; ' if spec.optional else ''}{spec.doc}"
                table.add_row(name, _shape(spec), spec.dtype, spec.lifetime, Text(plain_line(doc)))
    for name, output in contract.outputs.items():
        table.add_row(name, _shape(output), output.dtype, "output", Text(plain_line(output.doc)))
    return table


def _shape(tensor: TensorInput | Output) -> Text:
    return Text(f"[{', '.join(map(str, tensor.shape))}]")


def _axes(contract: Contract) -> Table:
    table = Table("axis", "is", box=None, pad_edge=False)
    for name, axis in contract.axes.items():
        table.add_row(name, _axis(axis))
    return table


def _axis(axis: schema.Axis) -> str:
    match axis:
        case schema.ConstAxis(const=value):
            return str(value)
        case schema.VarAxis():
            return _reach(axis.min, axis.max) + (f", multiples of {axis.multiple}" if axis.multiple > 1 else "")
        case schema.DerivedAxis():
            return _derived(axis)
        case schema.RaggedAxis():
            return f"lengths of {_reach(axis.min_length, axis.max_length)}"
        case schema.TotalAxis(total_of=ragged):
            return f"the sum of {ragged}"
        case schema.CountAxis(count_of=ragged):
            return f"how many {ragged}"


def _derived(axis: schema.DerivedAxis) -> str:
    whole = axis.of if axis.times == 1 else f"{axis.times} × {axis.of}"
    return whole if axis.over == 1 else f"blocks of {axis.over} in {whole}"


def _reach(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _workloads(contract: Contract) -> Table:
    table = Table("workload", "devices", "scored", "bytes", "operations", "axes", box=None, pad_edge=False)
    for workload in contract.workloads:
        work = floor.least_work(contract, workload.axes)
        role = f"{'yes' if workload.scored else 'no'}{', anchor' if workload.anchor else ''}"
        amounts = (_amount(work.bytes), _amount(work.operations) if contract.work else figures.MISSING)
        table.add_row(
            workload.name, " ".join(workload.device), role, *amounts, Text(plain_line(figures.axes(workload.axes)))
        )
    return table


def _amount(count: int) -> str:
    """`1.57 M`."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if count >= 10**power:
            return f"{figures.significant(count / 10**power)} {letter}"
    return str(count)


def _sketches(sketches: Sequence[Sketch]) -> Table:
    table = Table("input", "middle 99 %", "from", "to", "mean", "deviation", "extremes", box=None, pad_edge=False)
    for sketch in sketches:
        ends = (f"{sketch.low:.3g}", f"{sketch.high:.3g}", f"{sketch.mean:.3g}", f"{sketch.deviation:.3g}")
        table.add_row(sketch.input, bars(sketch.bins), *ends, f"{sketch.minimum:.3g} to {sketch.maximum:.3g}")
    return table


def bars(bins: Sequence[int]) -> str:
    """Counts as bars; a bin that holds anything shows at least the lowest."""
    most = max([*bins, 1])
    return "".join(_BARS[max(math.ceil(count / most * (len(_BARS) - 1)), 0)] for count in bins)


def _kernels_and_probes(contract: Contract) -> Iterator[Table]:
    hidden = Table("hidden draws", "draws", "devices", "axes", box=None, pad_edge=False)
    for entry in contract.hidden:
        sizes = "; ".join(f"{name}: {_secret(choice)}" for name, choice in entry.axes.items())
        hidden.add_row(entry.name, str(entry.draws), " ".join(entry.device), Text(plain_line(sizes)))
    probes = Table("probe", "breaks", box=None, pad_edge=False)
    for probe in contract.probes:
        probes.add_row(probe.name, Text(plain_line(probe.breaks)))
    baselines = Table("baseline", "role", "devices", "file", "", box=None, pad_edge=False)
    for baseline in contract.baselines:
        doc = Text(plain_line(baseline.doc))
        baselines.add_row(baseline.name, baseline.role, " ".join(baseline.device), baseline.file, doc)
    controls = Table("control", "cheat", "fails in", box=None, pad_edge=False)
    for control in contract.controls:
        controls.add_row(control.file, Text(plain_line(control.cheat)), Text(plain_line(", ".join(control.fails))))
    faithful = Table("faithful variant", box=None, pad_edge=False)
    for file in contract.faithful:
        faithful.add_row(file)
    yield from (hidden, probes, baselines, controls, faithful)


def _secret(choice: schema.HiddenInt | schema.HiddenLengths) -> str:
    if isinstance(choice, schema.HiddenInt):
        return f"one of {', '.join(map(str, choice.choice))}"
    return f"{_reach(*choice.count)} lengths that sum to {_reach(*choice.total)}"
