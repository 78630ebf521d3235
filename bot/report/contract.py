"""A contract at a terminal: what is wrong with it, what its kernels measure, and what it declares."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from bot import floor
from bot.contract import schema
from bot.contract.appraisal import Calibrated, Checked, ControlMargin, Measured, Sketch, Sketched, Trial
from bot.contract.distribution import Between, Choice, Param
from bot.contract.schema import Contract, Limit, Output, Regime, ScalarInput, TensorInput
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


def _table(*heads: str | Column) -> Table:
    """Columns without lines; what names something is folded on narrow terminals, never cut."""
    first, *others = heads
    return Table(Column(first, overflow="fold") if isinstance(first, str) else first, *others, box=None, pad_edge=False)


def _measured(measured: Sequence[Measured]) -> Table:
    table = _table("units", "under", "median", "p99", "max")
    for entry in measured:
        cells = [
            Text(f"{figures.units(w.value)} {plain_line(w.where)}") for w in (entry.median, entry.p99, entry.maximum)
        ]
        table.add_row(Text(entry.file), Text(entry.path), *cells)
    return table


def _controls(controls: Sequence[ControlMargin]) -> Table:
    table = _table("control", "misses by", "as proposed", "best place of its worst draw")
    for entry in controls:
        margins = (_margin(entry.current), _margin(entry.proposed))
        table.add_row(Text(entry.file), *margins, Text(plain_line(entry.where)))
    return table


def _limits(limits: "dict[str, Limit]", head: str) -> Table:
    table = _table(head, "median", "p99", "max", "floor ulps", "source")
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
    rounding = f"operands may be rounded to {contract.compute.operands}, sums are kept in {contract.compute.accumulate}"
    console.print(Text(f"{rounding}{'; may use ' if contract.may_use else ''}{', '.join(contract.may_use)}"))
    tables = [_interface(contract), _axes(contract), _workloads(contract)]
    limits = {f"limits.{name}": limit for name, limit in contract.limits.items()}
    limits |= {f"{probe.name}: {name}": limit for probe in contract.probes for name, limit in probe.limits.items()}
    tables.append(_limits(limits, "limit"))
    for table in tables:
        console.print()
        console.print(table)
    for name, regime in contract.regimes.items():
        console.print()
        console.print(Text(f"regime {name} on {drawn.workload}: {plain_line(regime.doc, _REASON)}{_given(regime)}"))
        console.print(_sketches([sketch for sketch in drawn.sketches if sketch.regime == name]))
    for table in _kernels_and_probes(contract):
        if table.row_count:
            console.print()
            console.print(table)


def _interface(contract: Contract) -> Table:
    table = _table("argument", "shape", "dtype", "lifetime", "")
    for name, spec in contract.inputs.items():
        match spec:
            case ScalarInput():
                ends = f" ({spec.low:g} to {spec.high:g})" if spec.low is not None and spec.high is not None else ""
                table.add_row(name, f"{spec.value:g}{ends}", spec.dtype, "call", Text(plain_line(spec.doc)))
            case TensorInput():
                doc = "; ".join([*_domain(spec), *([spec.doc] if spec.doc else [])])
                table.add_row(name, _shape(spec), spec.dtype, spec.lifetime, Text(plain_line(doc)))
    for name, output in contract.outputs.items():
        table.add_row(name, _shape(output), output.dtype, "output", Text(plain_line(output.doc)))
    return table


def _domain(spec: TensorInput) -> Iterator[str]:
    """What a tensor may hold, as far as the contract says it by keys."""
    if spec.optional:
        yield "may be absent"
    if spec.offsets_of is not None:
        yield f"where each of {spec.offsets_of} begins and the last ends"
    if spec.below is not None:
        yield f"from -1 up, below {spec.below}"
    if spec.infinite:
        yield "infinities are legal"


def _given(regime: Regime) -> str:
    """What else a regime says: scalars, and inputs that are absent."""
    said = [f"{name} {_param(value)}" for name, value in regime.values.items()]
    said += [f"no {name}" for name in regime.absent]
    return f" [{'; '.join(said)}]" if said else ""


def _param(value: Param) -> str:
    match value:
        case Between(between=ends):
            return " to ".join(f"{end:g}" for end in ends)
        case Choice(choice=options):
            return f"one of {', '.join(f'{option:g}' for option in options)}"
        case _:
            return f"{value:g}"


def _shape(tensor: TensorInput | Output) -> Text:
    return Text(f"[{', '.join(map(str, tensor.shape))}]")


def _axes(contract: Contract) -> Table:
    table = _table("axis", "is")
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
    table = _table("workload", "devices", "scored", "bytes", "operations", "axes")
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
    plot = Column("middle 99 %", no_wrap=True, min_width=max((len(sketch.bins) for sketch in sketches), default=0))
    ends = (Column("from", no_wrap=True, justify="right"), plot, Column("to", no_wrap=True))
    table = _table("input", *ends, "mean ± deviation", "all")
    for sketch in sketches:
        name = f"{sketch.input}\n  {sketch.part}".rstrip()
        low, high, mean, deviation, least, most = (
            _number(sketch, value)
            for value in (sketch.low, sketch.high, sketch.mean, sketch.deviation, sketch.minimum, sketch.maximum)
        )
        notes = "".join(f"; {note}" for note in _notes(sketch))
        table.add_row(name, low, bars(sketch.bins), high, f"{mean} ± {deviation}", f"{least} to {most}{notes}")
    return table


def _number(sketch: Sketch, value: float) -> str:
    """Three digits, or an integer in full."""
    return f"{value:,.0f}" if sketch.whole else f"{value:.3g}"


def _notes(sketch: Sketch) -> Iterator[str]:
    if sketch.logarithmic:
        yield "bars by logarithm"
    if sketch.none:
        yield f"{figures.percent(sketch.none)} are -1"
    if sketch.infinite:
        yield f"{figures.percent(sketch.infinite)} are infinite"


def bars(bins: Sequence[int]) -> str:
    """Counts as bars; a bin that holds anything shows at least the lowest."""
    most = max([*bins, 1])
    return "".join(_BARS[max(math.ceil(count / most * (len(_BARS) - 1)), 0)] for count in bins)


def _kernels_and_probes(contract: Contract) -> Iterator[Table]:
    hidden = _table("hidden draws", "draws", "devices", "axes")
    for entry in contract.hidden:
        sizes = "; ".join(f"{name}: {_secret(choice)}" for name, choice in entry.axes.items())
        hidden.add_row(entry.name, str(entry.draws), " ".join(entry.device), Text(plain_line(sizes)))
    probes = _table("probe", "devices", "regime", "breaks")
    for probe in contract.probes:
        probes.add_row(probe.name, " ".join(probe.device), probe.regime, Text(plain_line(probe.breaks)))
    relations = _table("relation", "kind", "devices", "regime", "breaks")
    for relation in contract.relations:
        breaks = Text(plain_line(relation.breaks))
        relations.add_row(relation.name, relation.kind, " ".join(relation.device), relation.regime, breaks)
    baselines = _table("baseline", "role", "devices", Column("file", overflow="fold"), "")
    for baseline in contract.baselines:
        doc = Text(plain_line(baseline.doc))
        baselines.add_row(baseline.name, baseline.role, " ".join(baseline.device), baseline.file, doc)
    controls = _table("control", "cheat", "fails in")
    for control in contract.controls:
        controls.add_row(control.file, Text(plain_line(control.cheat)), Text(plain_line(", ".join(control.fails))))
    faithful = _table("faithful variant")
    for file in contract.faithful:
        faithful.add_row(file)
    yield from (hidden, probes, relations, baselines, controls, faithful)


def _secret(choice: schema.HiddenAxis) -> str:
    if isinstance(choice, schema.HiddenInt):
        return f"one of {', '.join(map(str, choice.choice))}"
    if isinstance(choice, schema.HiddenRange):
        return _reach(*choice.between)
    return f"{_reach(*choice.count)} lengths that sum to {_reach(*choice.total)}"
