"""The verdict of `proctor verify` for a person at a terminal: first line, stages, cells, accuracy, counterexample."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot import sanitize, telling
from bot.evaluation import Counterexample, Evaluation, Refusal
from bot.report import figures, tables
from bot.verdict import Verdict

_SIGNS = {"passed": "✓", "refused": "✗", "invalid": "!", "not_run": figures.MISSING}
_COLOURS = {"faster": "green", "slower": "red", "invalid": "red", "unresolved": "yellow"}


def print_verdict(evaluation: Evaluation, verdict: Verdict, console: Console) -> None:
    """Print what was found and decided; candidate text is printed as plain text, never as markup."""
    speed = f" · {figures.interval(verdict.speedup)} over the bar" if verdict.speedup else ""
    colour = "green" if verdict.accepted else "red"
    head = f"{verdict.kind}{speed} · {_plain(evaluation.candidate_name)} under {_plain(evaluation.contract)}"
    console.print(Text(head, style=f"bold {colour}"))
    for reason in verdict.reasons:
        console.print(Text(f"  {_plain(reason)}"))
    runs = evaluation.runs
    console.print(_stages(runs))
    for run in runs:
        if run.latency:
            console.print(Text(f"{figures.units(run.seconds)} s, of them {figures.latency(run.latency)}"))
    if verdict.cells:
        console.print(_cells(runs, verdict))
    if any(run.accuracy for run in runs):
        console.print(_accuracy(runs))
    for refusal in [run.refusal for run in runs if run.refusal]:
        _print_refusal(refusal, console)
    if evaluation.confirmation and not evaluation.confirmation.refusal and not evaluation.confirmation.infrastructure:
        console.print(Text("confirmed with a second salt"))
    grade = tables.grade_row(runs)
    if grade:
        console.print(Text(_grade(grade)))


def _grade(grade: tables.GradeRow) -> str:
    weakest = f" (weakest margin {figures.ratio(grade.weakest)})" if grade.weakest else ""
    told = [
        f"caught {grade.caught}/{grade.controls} controls{weakest}",
        f"accepted {grade.accepted}/{grade.faithful} honest variants",
    ]
    if grade.gated:
        told.append(f"gated caught {grade.gated_caught}/{grade.gated}")
    if grade.graded:
        severity = "" if grade.severity is None else f" (all from severity {figures.significant(grade.severity)} on)"
        told.append(f"graded caught {grade.graded_caught}/{grade.graded}{severity}")
    return ", ".join(told)


def _stages(runs: Sequence[Evaluation]) -> Table:
    table = Table("stage", "", "checks", "seconds", "note", box=None, pad_edge=False)
    for row in tables.stage_rows(runs):
        note = Text(_plain("; ".join(row.notes)))
        table.add_row(row.name, _SIGNS[row.status], f"{row.done}/{row.planned}", figures.significant(row.seconds), note)
    return table


def _cells(runs: Sequence[Evaluation], verdict: Verdict) -> Table:
    times = tables.time_table(runs, verdict)
    table = Table(box=None, pad_edge=False)
    for name in ("cell", "candidate ms", "bar ms", *(state.name for state in times.columns), "bar ÷ candidate", ""):
        table.add_column(Text(_plain(name)))
    for row in times.rows:
        others = [figures.milliseconds(ns) for ns in row.others]
        own = [figures.milliseconds(row.candidate_ns), figures.milliseconds(row.bar_ns)]
        where = f"{row.cell.direction}, launch-bound" if row.launch_bound else row.cell.direction
        direction = Text(where, style=_COLOURS.get(row.cell.direction, ""))
        table.add_row(Text(_plain(row.cell.name)), *own, *others, figures.interval(row.cell.ratio), direction)
    return table


def _accuracy(runs: Sequence[Evaluation]) -> Table:
    table = Table("units", "median", "p99", "max", "by token position", box=None, pad_edge=False)
    for row in tables.accuracy_rows(runs):
        worst = row.worst
        pairs = (
            (worst.median, worst.limit_median),
            (worst.p99, worst.limit_p99),
            (worst.maximum, worst.limit_maximum),
        )
        errors = [f"{figures.units(error)} / {figures.units(limit)}" for error, limit in pairs]
        name = Text(_plain(f"{row.kernel or 'candidate'} · {worst.output}"))
        table.add_row(name, *errors, figures.octaves(worst.octaves, worst.limit_median))
    return table


def _print_refusal(refusal: Refusal, console: Console) -> None:
    if refusal.counterexample:
        _print_counterexample("counterexample", refusal.counterexample, console)
    if refusal.smallest:
        _print_counterexample("the smallest found", refusal.smallest.counterexample, console)
        held = f"inputs {telling.held(refusal.smallest)}; " if refusal.smallest.inputs else ""
        console.print(Text(_plain(f"  {held}{refusal.smallest.tried} smaller ones asked")), soft_wrap=True)
    for probe in refusal.diagnosis:
        console.print(Text(_plain(f"fails {probe.name}, which breaks {probe.breaks}")))
    if refusal.influence:
        where = f" in {refusal.influence_where}" if refusal.influence_where else ""
        console.print(Text(_plain(f"influence{where}: how far each part of an output follows one part of one input")))
        for line in telling.influence_lines(refusal.influence):
            console.print(Text(line), soft_wrap=True)


def _print_counterexample(name: str, found: Counterexample, console: Console) -> None:
    console.print(Text(_plain(f"{name}: {figures.place(found)}")))
    values = f"candidate {found.candidate}, {figures.other(found)} {found.oracle}"
    console.print(Text(_plain(f"  {values}; {figures.miss(found)}")))


def _plain(text: str) -> str:
    return sanitize.plain_line(text)
