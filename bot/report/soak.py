"""Many exams of a contract's own kernels as a table for `reports/<op>/soak.md`. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.contract.appraisal import Missed, Soaked, Tally
from bot.evaluation import MUST_SEE
from bot.report import templates

KINDS = ("plain", "gated", "graded", "faithful")


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel's tallies by kind; None where it has none of that kind."""

    kernel: str
    plain: Tally | None
    gated: Tally | None
    graded: Tally | None
    faithful: Tally | None


def rows(soaked: Soaked) -> list[Row]:
    """Controls first, then faithful variants."""
    found: dict[str, dict[str, Tally]] = {}
    for tally in soaked.tallies:
        found.setdefault(tally.kernel, {})[tally.kind] = tally
    made = [Row(kernel, *(of.get(kind) for kind in KINDS)) for kernel, of in found.items()]
    return sorted(made, key=lambda row: (row.faithful is not None, row.kernel))


def severity(soaked: Soaked) -> float | None:
    """The least severity above which no graded control passed in any exam; None: none passed."""
    passed = [m.severity for t in soaked.tallies if t.kind == "graded" for m in t.missed if m.severity is not None]
    return max(passed, default=None)


def missed(soaked: Soaked) -> list[tuple[str, Missed]]:
    """What went wrong: all but mild graded controls, which are honest kernels."""
    return [
        (tally.kernel, one)
        for tally in soaked.tallies
        for one in tally.missed
        if one.severity is None or one.severity >= MUST_SEE
    ]


def render_soak(contract: str, soaked: Soaked) -> str:
    """The table, and everything that was missed with the salt that shows it again."""
    totals = {kind: _total([t for t in soaked.tallies if t.kind == kind]) for kind in KINDS}
    page = {"contract": contract, "soaked": soaked, "rows": rows(soaked), "totals": totals}
    return templates.render("soak.md.j2", **page, severity=severity(soaked), missed=missed(soaked))


def added(known: Soaked | None, new: Soaked) -> Soaked:
    """Counts of one judge and contract together; those of another are replaced."""
    if known is None or (known.judge_digest, known.contract_digest) != (new.judge_digest, new.contract_digest):
        return new
    tallies: dict[tuple[str, str], Tally] = {}
    for tally in (*known.tallies, *new.tallies):
        key = (tally.kind, tally.kernel)
        tallies[key] = _both(tallies[key], tally) if key in tallies else tally
    return new.model_copy(
        update={
            "exams": known.exams + new.exams,
            "tallies": [tallies[key] for key in sorted(tallies)],
            "seconds": round(known.seconds + new.seconds, 1),
            "salts": [*known.salts, *new.salts],
        }
    )


def _both(one: Tally, other: Tally) -> Tally:
    margins = [tally.weakest for tally in (one, other) if tally.weakest is not None]
    worst = max if one.kind == "faithful" else min
    return one.model_copy(
        update={
            "asked": one.asked + other.asked,
            "refused": one.refused + other.refused,
            "weakest": worst(margins) if margins else None,
            "missed": [*one.missed, *other.missed],
        }
    )


def _total(tallies: Sequence[Tally]) -> tuple[int, int]:
    return sum(t.refused for t in tallies), sum(t.asked for t in tallies)
