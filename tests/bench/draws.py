"""How fast inputs are drawn: MB/s of bfloat16 storage on one core, for each kind of distribution, at real sizes.

    python -m tests.bench.draws [--tokens 8192] [--rounds 3]

Beside each stands the ratio to numpy's own float32 normals rounded to bfloat16, drawn in turn with it: what else runs
on the machine slows both. Wanted are 200 MB/s for normals, of the best round. Not a test: its outcome is a time. Times
are processor time, that of the kernel (pages given to new arrays) included and told apart.
"""

import argparse
import functools
import math
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from bot.contract.distribution import Distribution
from bot.verify.draws import Array, draw, store
from bot.verify.philox import Stream, normal_table, silu_table

WANTED = 200.0
"""MB/s of bfloat16 normals a core."""
HEADS, CHANNELS = 96, 128
BLOCK = 1 << 15
LOOKED_UP: Mapping[str, Mapping[str, Any]] = {
    "normal": {"kind": "normal", "std": 1.0},
    "uniform": {"kind": "uniform", "low": -1.0, "high": 1.0},
    "log_uniform": {"kind": "log_uniform", "low": 0.001, "high": 100.0},
    "decay_logit": {"kind": "decay_logit", "low": 4, "high": 20000},
    "constant": {"kind": "constant", "value": 1.0},
    "repeated": {"kind": "repeated", "period": 64, "of": {"kind": "normal"}},
    "slab": {"kind": "slab", "width": 16, "of": {"kind": "normal"}},
    "mixed": {"kind": "mixed", "parts": [{"kind": "normal"}, {"kind": "normal", "std": 1000.0}]},
    "spiked": {"kind": "spiked", "value": 1000.0, "of": {"kind": "normal"}},
    "stretch": {"kind": "stretch", "of": {"kind": "normal"}, "other": {"kind": "uniform", "low": 0.0, "high": 1.0}},
}
COMPUTED: Mapping[str, Mapping[str, Any]] = {
    "activation": {"kind": "activation"},
    "one_hot": {"kind": "one_hot", "value": 1.0},
    "arange": {"kind": "arange", "step": 0.5, "period": 997},
}
"""Kinds that pass through float64: of an eighth of the tokens, or they would need tens of GB."""
PARSE: TypeAdapter[Distribution] = TypeAdapter(Distribution)


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one draw: MB/s of storage bytes, and the share of its time that the kernel took."""

    rate: float
    kernel: float


def timed(make: Callable[[], Array]) -> Speed:
    """Make an array; waiting for the core does not count."""
    begun = os.times()
    made = make()
    ended = os.times()
    user, kernel = ended.user - begun.user, ended.system - begun.system
    return Speed(made.nbytes / 1e6 / max(user + kernel, 0.01), kernel / max(user + kernel, 0.01))


def numpy_normals(count: int, generator: np.random.Generator) -> Array:
    """What the draws are held against: in blocks that stay in a cache, or its temporaries would be what is timed."""
    out = np.empty(count, dtype=np.uint16)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        out[start:stop] = store(generator.standard_normal(stop - start, dtype=np.float32), "bfloat16")
    return out


def measured(spec: Mapping[str, Any], shape: tuple[int, ...], rounds: int) -> list[tuple[Speed, Speed]]:
    """A kind of distribution and numpy, in turn."""
    parsed, root = PARSE.validate_python(dict(spec)), Stream.from_salt(b"s" * 32, "bench")
    generator = np.random.default_rng(0)
    return [
        (
            timed(functools.partial(draw, parsed, shape, "bfloat16", root.child(number))),
            timed(functools.partial(numpy_normals, math.prod(shape) // 4, generator)),
        )
        for number in range(rounds)
    ]


def on_one_core() -> int:
    """Stay on the last core that is ours, with one thread."""
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    return core


def main(arguments: list[str]) -> int:
    """Print the table; 1 when normals are slower than wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    core = on_one_core()
    # Tables and pages are made before anything is timed.
    normal_table(), silu_table()
    say(f"core {core} of {os.cpu_count()}, numpy {np.__version__}; MB/s of bfloat16 a core")
    say(f"{'kind':12} {'shape':>15} {'best':>6} {'median':>6} {'kernel':>6} {'numpy':>6} {'ratio':>7}")
    normals = 0.0
    for kind, spec in {**LOOKED_UP, **COMPUTED}.items():
        tokens = chosen.tokens if kind in LOOKED_UP else max(chosen.tokens // 8, 1)
        pairs = measured(spec, (tokens, HEADS, CHANNELS), chosen.rounds)
        ours, theirs = (sorted(speeds, key=lambda speed: speed.rate) for speeds in zip(*pairs, strict=True))
        normals = ours[-1].rate if kind == "normal" else normals
        middle = ours[len(ours) // 2]
        ratio = statistics.median(one.rate / other.rate for one, other in pairs)
        say(
            f"{kind:12} {f'[{tokens}, {HEADS}, {CHANNELS}]':>15} {ours[-1].rate:6.0f} {middle.rate:6.0f} "
            f"{middle.kernel:6.0%} {theirs[-1].rate:6.0f} {ratio:6.2f}x"
        )
    say(f"normals: {normals:.0f} MB/s, wanted {WANTED:.0f}: {'enough' if normals >= WANTED else 'TOO SLOW'}")
    return int(not normals >= WANTED)


def say(line: str) -> None:
    """A line as soon as it is known."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
