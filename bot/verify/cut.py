"""Sets of ids against the scores they were chosen by: top-k, its order free, its ties free, −1 where fewer exist.

Scores are the oracle's, float64, [rows…, M], −inf where an id may not be chosen; ids are the candidate's, [rows…, k]. A
row that is no such set has no distance from one; else its error is how far it strays from the cut, the score of the
last id that belongs. Pure.
"""

from dataclasses import dataclass

import torch

Tensor = torch.Tensor

NOTHING = -1
"""Stands where a row has fewer ids than places."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an output: where it stands, what the candidate left there, what the oracle has against it."""

    index: tuple[int, ...]
    candidate: str
    oracle: str


def best(scores: Tensor, places: int) -> Tensor:
    """The ids of the largest scores of each row, best first, −1 where fewer are eligible."""
    kept = min(places, scores.shape[-1])
    values, ids = scores.topk(kept, dim=-1)
    ids = torch.where(values > -torch.inf, ids, NOTHING)
    return torch.nn.functional.pad(ids, (0, places - kept), value=NOTHING)


def scores_of(scores: Tensor, ids: Tensor) -> Tensor:
    """The scores of a row's ids, largest first, −inf in empty places. Ids must be in range."""
    chosen = scores.gather(-1, ids.clamp_min(0)).masked_fill(ids == NOTHING, -torch.inf)
    return chosen.sort(dim=-1, descending=True).values


def ill_formed(ids: Tensor) -> Element | None:
    """The first element that is no id in any row: below −1, or there already. Whether it exists, only scores tell."""
    repeated = _repeated(ids)
    wrong = (ids < NOTHING) | repeated
    if not bool(wrong.any()):
        return None
    at = _first(wrong)
    text = "each id once" if bool(repeated[at]) else "ids from 0, or -1"
    return Element(at, f"id {int(ids[at])}{' again' if bool(repeated[at]) else ''}", text)


def misfit(scores: Tensor, ids: Tensor) -> Element | None:
    """The first element for which a row is not a set of as many eligible ids as it can hold."""
    many, places = scores.shape[-1], ids.shape[-1]
    if ids.numel() == 0:
        return None
    there = (ids >= 0) & (ids < many)
    eligible = there & (scores.gather(-1, ids.clamp(0, many - 1)) > -torch.inf)
    wrong = (ids != NOTHING) & ~eligible
    if bool(wrong.any()):
        at = _first(wrong)
        text = "not eligible" if bool(there[at]) else f"ids from 0 to {many - 1}, or -1"
        return Element(at, f"id {int(ids[at])}", text)
    found = ill_formed(ids)
    if found is not None:
        return found
    possible = (scores > -torch.inf).sum(dim=-1)
    short = ((ids >= 0).sum(dim=-1) < possible.clamp_max(places))[..., None] & (ids == NOTHING)
    if not bool(short.any()):
        return None
    at = _first(short)
    row = at[:-1]
    left = int(_omitted(scores, ids)[row].argmax())
    return Element(at, f"missing id {left}", f"score {float(scores[row][left]):.6g}, {int(possible[row])} eligible")


def distances(scores: Tensor, ids: Tensor) -> Tensor:
    """How far each row strays from the cut, in scores; 0: it holds what belongs, but for ties. Rows must be sets."""
    if ids.numel() == 0:
        return scores.new_zeros(ids.shape[:-1])
    cut = _cut(scores, ids.shape[-1])
    below, above = _least(scores, ids).amin(dim=-1), _omitted(scores, ids).amax(dim=-1)
    return torch.maximum(_excess(cut, below), _excess(above, cut))


def furthest(scores: Tensor, ids: Tensor, row: tuple[int, ...]) -> Element:
    """What takes one row furthest from the cut: an id chosen, or one left out, shown at the place it could have had."""
    given, chosen = scores[row], ids[row]
    cut, least, omitted = _cut(given, chosen.shape[-1]), _least(given, chosen), _omitted(given, chosen)
    at = (*row, int(least.argmin()))
    below, above = float(_excess(cut, least.amin())), float(_excess(omitted.amax(), cut))
    if below >= above:
        return Element(at, f"id {int(ids[at])}", f"score {float(least.amin()):.6g}, {below:.3g} below the cut")
    missing = int(omitted.argmax())
    return Element(at, f"missing id {missing}", f"score {float(omitted[missing]):.6g}, {above:.3g} above the cut")


def _first(wrong: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in wrong.nonzero()[0])


def _repeated(ids: Tensor) -> Tensor:
    """Which ids stood in their row before."""
    ordered, order = ids.sort(dim=-1, stable=True)
    same = torch.zeros_like(ids, dtype=torch.bool)
    same[..., 1:] = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] != NOTHING)
    return torch.zeros_like(same).scatter(-1, order, same)


def _cut(scores: Tensor, places: int) -> Tensor:
    """The score of the last id that belongs to each row's set; −inf where all eligible ones do and some place is left:
    then none can be left out."""
    return scores.topk(min(places, scores.shape[-1]), dim=-1).values[..., -1]


def _least(scores: Tensor, ids: Tensor) -> Tensor:
    """Scores of the chosen ids; +inf in empty places."""
    return scores.gather(-1, ids.clamp_min(0)).masked_fill(ids == NOTHING, torch.inf)


def _omitted(scores: Tensor, ids: Tensor) -> Tensor:
    """Scores less those of the chosen ids."""
    chosen = scores.new_zeros((*scores.shape[:-1], scores.shape[-1] + 1), dtype=torch.bool)
    # Empty places are scattered beside the scores.
    chosen.scatter_(-1, ids.masked_fill(ids == NOTHING, scores.shape[-1]), torch.ones_like(ids, dtype=torch.bool))
    return scores.masked_fill(chosen[..., :-1], -torch.inf)


def _excess(one: Tensor, other: Tensor) -> Tensor:
    """By how much one score exceeds another; equal infinities do not differ."""
    return torch.where(one > other, one - other, 0.0)
