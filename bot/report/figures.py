"""Numbers as text: one way to write a time, a ratio, an error and an interval, whoever prints it. Pure."""

import math
from collections.abc import Mapping, Sequence

from bot import telling
from bot.evaluation import Counterexample, Inspected, Latency
from bot.stats import Interval

MISSING = "–"
_BARS = "▁▂▃▄▅▆▇█"
_WIDE = 0.5


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, never in scientific notation below 10^12."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1e12:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def milliseconds(nanoseconds: float | None) -> str:
    """`0.412` from 412,345 ns."""
    return MISSING if nanoseconds is None else significant(nanoseconds / 1e6)


def ratio(value: float | None) -> str:
    """`1.42x`."""
    return MISSING if value is None else f"{significant(value)}x"


def interval(estimate: Interval | None) -> str:
    """`1.42x (1.39–1.45, n=40)`: an estimate is never shown without its interval and sample count."""
    if estimate is None:
        return MISSING
    low, mid, high = (significant(end, _digits(estimate)) for end in (estimate.low, estimate.mid, estimate.high))
    return f"{mid}x ({low}–{high}, n={estimate.samples:,})"


def percent(fraction: float | None) -> str:
    """`0.6 %` from 0.006."""
    return MISSING if fraction is None else f"{significant(100 * fraction, 2)} %"


def signed(fraction: float | None) -> str:
    """`−0.6 %` from −0.006; what a float's last places leave of nothing is nothing."""
    if fraction is None:
        return MISSING
    kept = round(fraction, 6)
    return f"{'−' if kept < 0 else '+'}{percent(abs(kept))}"


def within(fraction: float | None) -> str:
    """`±0.6 %` from 0.006; from a half on `a factor of 1.8`, as a ratio cannot fall by 100 %."""
    if fraction is None:
        return MISSING
    return f"±{percent(fraction)}" if fraction < _WIDE else f"a factor of {significant(1 + fraction, 2)}"


def tera(value: float) -> str:
    """`4.20` from 4.2e12."""
    return significant(value / 1e12)


def duration(seconds: float | None) -> str:
    """`46 s`, `12 min`."""
    if seconds is None:
        return MISSING
    return f"{significant(seconds, 2)} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def span(values: Sequence[int]) -> str:
    """`36–37` from 37, 36, 36; `36` where all are the same."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def latency(spent: Latency) -> str:
    """`start 3.2 s, compile 4.7, draw 0.4, oracle 1.2, check 2.1, time 0`: where the seconds of an exam went."""
    first, *others = [f"{work} {significant(seconds, 2)}" for work, seconds in spent]
    return ", ".join([f"{first} s", *others])


_KINDS = ("wgmma", "tcgen05", "mma", "tma")


def machine_code(found: Inspected) -> str:
    """`for sm_90a: 4 kernels, at most 168 registers a thread, no spills, 96 KiB of shared memory a block, with wgmma;
    two builds are alike`: the worst of the kernels, figures of ours alone."""
    if not found.builds:
        return "none was found: it was not compiled by Triton or CuTe-DSL"
    builds, spills = found.builds, max(build.spill_bytes for build in found.builds)
    alike = "differ" if found.differences else "are alike"
    kinds = [kind for kind in _KINDS if any(build.instructions.get(kind) for build in builds)]
    return (
        f"for {builds[0].architecture}: {len(builds)} kernel{'s' if len(builds) > 1 else ''}, "
        f"at most {max(build.registers for build in builds)} registers a thread, "
        f"{f'{spills} bytes of spills' if spills else 'no spills'}, "
        f"{significant(max(build.shared_bytes for build in builds) / 1024, 2)} KiB of shared memory a block"
        f"{', with ' + ' and '.join(kinds) if kinds else ''}"
        f"{f'; two builds {alike}' if found.twice else ''}"
    )


def units(value: float | None) -> str:
    """An error in noise units, two digits."""
    return MISSING if value is None else significant(value, 2)


def octaves(errors: Sequence[float], limit: float) -> str:
    """`1.0 → 1.9 ▁▂▃▄`: error by token position in octaves, a full bar is the limit."""
    if not errors:
        return MISSING
    shares = [min(1.0, max(0.0, error / limit)) for error in errors]
    drawn = "".join(_BARS[round(share * (len(_BARS) - 1))] for share in shares)
    return f"{units(errors[0])} → {units(errors[-1])} {drawn}"


def axes(sizes: Mapping[str, int | list[int]]) -> str:
    """`T=16, lengths=[3, 0, 13]`."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def place(found: Counterexample) -> str:
    """Where a counterexample is: draw, sizes, element, group."""
    group = f" ({found.group})" if found.group else ""
    sizes = f" with {axes(found.axes)}" if found.axes else ""
    return f"{found.output}{found.index}{group} in {found.where}{sizes}"


def miss(found: Counterexample) -> str:
    """By how much a counterexample misses; of a class (NaN, inf) there is no distance."""
    if found.error_units is None:
        return f"another class of value ({found.statistic})"
    if found.statistic in {"bar", "leak", "relation", "set"}:
        limit = "" if found.limit_units is None else f", limit {units(found.limit_units)}"
        return f"{units(found.error_units)} units from {_definite(found)}{limit}"
    return f"{units(found.error_units)} units, {found.statistic} limit {units(found.limit_units)}"


def other(found: Counterexample) -> str:
    """What a counterexample is compared with: the oracle, or for some statistics another answer."""
    return telling.other(found.statistic)


def _definite(found: Counterexample) -> str:
    return "the bar" if found.statistic == "bar" else other(found)


def _digits(estimate: Interval) -> int:
    """Enough significant digits to tell the ends of a narrow interval apart, three to five."""
    width = (estimate.high - estimate.low) / estimate.mid
    return 3 if width <= 0 else min(5, max(3, 1 + math.ceil(-math.log10(width))))
