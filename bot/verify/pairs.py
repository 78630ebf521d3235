"""Two answers held against each other: candidate and bar on the same inputs, before and after a change of inputs, one
question asked in two ways. What an answer alone is worth, against the oracle, is compare.py's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from bot.contract.schema import Contract, Sizes
from bot.evaluation import Counterexample, Statistic
from bot.verify import cut
from bot.verify.compare import (
    Setting,
    Worst,
    class_mismatch,
    example,
    furthest_column,
    groups_of,
    judge_rows,
    row_errors,
    shown,
    unravel,
)
from bot.verify.oracle import Tensor

BAR_SLACK = 4.0
"""A call compared with the bar alone has no noise unit of its own; the cell's level serves, and draws of one cell
differ in it by about this factor. The full check per cell and round has no such slack."""


def against_bar(
    contract: Contract,
    outputs: Mapping[str, Tensor],
    bar: Mapping[str, Tensor],
    level: Mapping[str, float],
    *,
    where: str,
    axes: Sizes,
) -> Counterexample | None:
    """A timed call's outputs against the bar's on the same inputs, per group; the limit is the sum of both sides'.

    Two right sets may differ at the cut, and without scores nobody can say by how much, nor which ids there are. So
    only this is asked of a set: each id once, none below −1. The rest is left to the calls compared with the oracle.
    """
    setting = Setting(where, axes, contract.limits)
    for name, spec in contract.outputs.items():
        if spec.compare == "set_at_cut":
            element = cut.ill_formed(outputs[name].long())
            if element is not None:
                return shown(setting, name, Worst(math.inf, "set", "all", None, None, ()), element)
            continue
        got, held = outputs[name].double(), bar[name].double()
        limit = 2 * contract.limits[name].p99 * BAR_SLACK
        found = _distance(contract, name, (held, got), _Allowed(level[name], limit, "bar"), setting)
        if found is not None:
            return found
    return None


@dataclass(frozen=True, slots=True)
class _Allowed:
    """How far two answers may be apart: `limit` times the relative `level` of noise."""

    level: float
    limit: float
    statistic: Statistic


def _distance(
    contract: Contract, name: str, pair: tuple[Tensor, Tensor], allowed: _Allowed, setting: Setting
) -> Counterexample | None:
    """The first group in which the second of a pair is further from the first than is allowed."""
    held, got = pair
    level, limit = allowed.level, allowed.limit
    element = class_mismatch(held, got)
    if element is not None:
        return example(setting, name, Worst(math.inf, "class", "all", None, None, ()), element, held, got)
    if held.numel() == 0:
        return None
    # Infinities agree by now; as sizes they would make everything beside them right.
    counted = torch.isfinite(held)
    difference = torch.where(counted, got - held, 0.0)
    names, group = groups_of(contract, contract.outputs[name], setting.axes)
    flat, count = group.flatten(), len(names)
    errors, sizes = (x.square().mean(-1).flatten().cpu() for x in (difference, torch.where(counted, held, 0.0)))
    totals = [torch.bincount(flat, weights=x, minlength=count).sqrt() for x in (errors, sizes)]
    # Both are sums over the same rows, so that their ratio is that of the root mean squares.
    beyond = ~(totals[0] <= limit * level * totals[1])
    if not bool(beyond.any()):
        return None
    at = int(beyond.nonzero()[0])
    inside = torch.where(flat == at, errors, -1.0)
    row = unravel(int(inside.argmax()), group.shape)
    place = [*row, int(difference[row].abs().argmax())]
    units = float(totals[0][at] / (level * totals[1][at]))
    return example(
        setting, name, Worst(units / limit, allowed.statistic, names[at], units, limit, ()), place, held, got
    )


def leak(
    contract: Contract,
    exact: Mapping[str, tuple[Tensor, Tensor]],
    outputs: Mapping[str, tuple[Tensor, Tensor]],
    units: Mapping[str, Tensor],
    setting: Setting,
) -> Counterexample | None:
    """What moved when inputs were changed that must not reach it: pairs are before and after the change.

    Groups in which the oracle moves nothing must stay within what an honest kernel errs: one that sums in another order
    each time moves a little. Without groups and sequences every row is one.
    """
    for name, spec in contract.outputs.items():
        if spec.compare != "rows":
            continue
        (was, now), (held, got) = exact[name], (x.double() for x in outputs[name])
        moved = ((was != now) & ~(was.isnan() & now.isnan())).any(dim=-1)
        names, group = groups_of(contract, spec, setting.axes)
        groups_moved = torch.bincount(group[moved], minlength=len(names)).bool()
        still = ~groups_moved[group] if len(names) > 1 else ~moved
        if not bool(still.any()):
            continue
        got = torch.where(still[..., None], got, held)
        element = class_mismatch(held, got)
        if element is not None:
            return example(setting, name, Worst(math.inf, "leak", "all", None, None, ()), element, held, got)
        _, worst = judge_rows(contract, name, row_errors(held, got, units[name]), setting)
        if not (worst.margin <= 1.0):
            column = furthest_column(held[worst.row], got[worst.row])
            return example(setting, name, replace(worst, statistic="leak"), (*worst.row, column), held, got)
    return None


RELATION_SLACK = 2.0
"""Two answers are told apart by the level of noise in cells of the same regime, of other sizes than theirs: honest
kernels differ between sizes by less than this factor (tests/verify/test_relations.py)."""


def apart(
    contract: Contract,
    answers: Mapping[str, tuple[Tensor, Tensor]],
    level: Mapping[str, float],
    setting: Setting,
) -> Counterexample | None:
    """Two answers that must agree, (one, other), group by group: the distance of each group as a root mean square over
    its size times the level of noise; the limit is twice the median's, for both sides err, with some slack."""
    for name, spec in contract.outputs.items():
        if spec.compare != "rows":
            continue
        one, other = (x.double() for x in answers[name])
        limit = 2 * setting.limits[name].median * RELATION_SLACK
        found = _distance(contract, name, (one, other), _Allowed(level[name], limit, "relation"), setting)
        if found is not None:
            return found
        found = _row_apart(contract, name, (one, other), level[name], setting)
        if found is not None:
            return found
    return None


def _row_apart(
    contract: Contract, name: str, pair: tuple[Tensor, Tensor], level: float, setting: Setting
) -> Counterexample | None:
    """The row in which two answers are furthest apart, if that is too far: one wrong row of thousands does not show in
    its group. A row smaller than usual is counted as usual: what it lacks in size it may err by."""
    one, other = pair
    if not one.numel():
        return None
    _, group = groups_of(contract, contract.outputs[name], setting.axes)
    difference = torch.where(torch.isfinite(one), other - one, 0.0)
    # On the host, where the groups are.
    sizes, wrong = (x.square().mean(-1).cpu() for x in (torch.nan_to_num(one), difference))
    usual = torch.bincount(group.flatten(), weights=sizes.flatten()) / torch.bincount(group.flatten()).clamp_min(1)
    unit = level * torch.maximum(sizes, usual[group]).sqrt()
    limit = 2 * setting.limits[name].maximum * RELATION_SLACK
    wrong = wrong.sqrt()
    beyond = ~(wrong <= limit * unit)
    if not bool(beyond.any()):
        return None
    row = unravel(int(torch.where(beyond, wrong / unit, 0.0).nan_to_num(posinf=math.inf).argmax()), group.shape)
    units = float(wrong[row] / unit[row])
    worst = Worst(units / limit, "relation", "all", units, limit, row)
    return example(setting, name, worst, (*row, int(difference[row].abs().argmax())), one, other)
