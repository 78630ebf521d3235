"""The verdict of `proctor verify` for a person at a terminal: first line, stages, cells, accuracy, counterexample."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot import sanitize
from bot.evaluation import Evaluation, Refusal
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
    console.print(_stages(evaluation))
    if verdict.cells:
        console.print(_cells(evaluation, verdict))
    if evaluation.accuracy:
        console.print(_accuracy(evaluation))
    if evaluation.refusal:
        _print_refusal(evaluation.refusal, console)
    grade = tables.grade_row([evaluation])
    if grade:
        weakest = f" (weakest margin {figures.ratio(grade.weakest)})" if grade.weakest else ""
        caught = f"caught {grade.caught}/{grade.controls} controls{weakest}"
        hidden = f"; of gated and graded controls {grade.hidden_caught}/{grade.hidden} caught" if grade.hidden else ""
        console.print(Text(f"{caught}, accepted {grade.accepted}/{grade.faithful} honest variants{hidden}"))


def _stages(evaluation: Evaluation) -> Table:
    table = Table("stage", "", "checks", "seconds", "note", box=None, pad_edge=False)
    for record in evaluation.stages:
        checks = f"{record.done}/{record.planned}"
        seconds = figures.significant(record.seconds)
        table.add_row(record.name, _SIGNS[record.status], checks, seconds, Text(_plain(record.note)))
    return table


def _cells(evaluation: Evaluation, verdict: Verdict) -> Table:
    times = tables.time_table([evaluation], verdict)
    table = Table(box=None, pad_edge=False)
    for name in ("cell", "candidate ms", "bar ms", *(state.name for state in times.columns), "bar ÷ candidate", ""):
        table.add_column(Text(_plain(name)))
    for row in times.rows:
        others = [figures.milliseconds(ns) for ns in row.others]
        own = [figures.milliseconds(row.candidate_ns), figures.milliseconds(row.bar_ns)]
        direction = Text(row.cell.direction, style=_COLOURS.get(row.cell.direction, ""))
        table.add_row(Text(_plain(row.cell.name)), *own, *others, figures.interval(row.cell.ratio), direction)
    return table


def _accuracy(evaluation: Evaluation) -> Table:
    table = Table("units", "median", "p99", "max", "by token position", box=None, pad_edge=False)
    for row in tables.accuracy_rows([evaluation]):
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
    found = refusal.counterexample
    if found:
        console.print(Text(_plain(f"counterexample: {figures.place(found)}")))
        console.print(Text(_plain(f"  candidate {found.candidate}, oracle {found.oracle}; {figures.miss(found)}")))
    for probe in refusal.diagnosis:
        console.print(Text(_plain(f"fails {probe.name}, which breaks {probe.breaks}")))


def _plain(text: str) -> str:
    return sanitize.plain_line(text)
