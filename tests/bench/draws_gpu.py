"""How fast inputs are drawn on a GPU: GB/s of stored bytes for each kind of distribution, and whether they are the
CPU's bytes.

    python -m tests.bench.draws_gpu [--tokens 8192] [--rounds 10] [--threads 8] [--unchecked]

A rate is of whole draws, the host's part included, one queued after the other; the first, which compiles, does not
count. Wanted are 1,500 GB/s of bfloat16 normals, and an activation of 8,192 tokens in 10 ms. Not a test: its outcome is
a time. Returns 1 when something is too slow or another byte than the CPU's.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import triton

from bot.contract.schema import DType
from bot.verify.device.draws import draw
from bot.verify.draws import STORAGE
from bot.verify.draws import draw as draw_on_host
from bot.verify.philox import Stream
from tests.bench.draws import CHANNELS, COMPUTED, HEADS, LOOKED_UP, PARSE, say

WANTED = 1500.0
"""GB/s of bfloat16 normals."""
WANTED_MS = 10.0
"""For an activation of 8,192 tokens."""
KINDS: Mapping[str, tuple[Mapping[str, Any], DType]] = {
    **{kind: (spec, "bfloat16") for kind, spec in {**LOOKED_UP, **COMPUTED}.items()},
    "normal f32": (LOOKED_UP["normal"], "float32"),
    "arange i64": (COMPUTED["arange"], "int64"),
    "new normal": ({"kind": "normal", "std": {"between": [0.5, 2.0]}}, "bfloat16"),
}
"""`new normal` needs another table each time, which the host makes."""
DEVICE = torch.device("cuda")


def milliseconds(kind: str, shape: tuple[int, ...], rounds: int) -> float:
    """Of one draw."""
    spec, dtype = KINDS[kind]
    dist, root = PARSE.validate_python(dict(spec)), stream_of(kind)
    for number in range(2):
        draw(dist, shape, dtype, root.child(number), DEVICE)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(rounds):
        draw(dist, shape, dtype, root.child(number), DEVICE)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / rounds * 1e3


def stream_of(kind: str) -> Stream:
    return Stream.from_salt(b"s" * 32, "bench", kind)


def same(kind: str, shape: tuple[int, ...]) -> bool:
    """Whether both devices draw the same bytes."""
    spec, dtype = KINDS[kind]
    dist, stream = PARSE.validate_python(dict(spec)), stream_of(kind).child(0)
    wanted = draw_on_host(dist, shape, dtype, stream)
    kept = {2: torch.int16, 4: torch.int32, 8: torch.int64}[STORAGE[dtype].itemsize]
    found = draw(dist, shape, dtype, stream, DEVICE).view(kept).cpu().numpy()
    return found.shape == wanted.shape and np.array_equal(found, wanted.view(found.dtype))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=8, help="of the CPU's draws; each takes up to 6 GB")
    parser.add_argument("--unchecked", action="store_true", help="leave the CPU's draws out")
    chosen = parser.parse_args(arguments)
    shape = (chosen.tokens, HEADS, CHANNELS)
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}; {list(shape)}")
    say(f"{'kind':12} {'ms':>8} {'GB/s':>6}")
    took = {}
    for kind, (_, dtype) in KINDS.items():
        took[kind] = milliseconds(kind, shape, chosen.rounds)
        rate = np.prod(shape) * STORAGE[dtype].itemsize / 1e6 / took[kind]
        say(f"{kind:12} {took[kind]:8.3f} {rate:6.0f}")
    rate = np.prod(shape) * 2 / 1e6 / took["normal"]
    limit = WANTED_MS * max(chosen.tokens / 8192, 1)
    slow = not (rate >= WANTED and took["activation"] <= limit)
    say(f"normals {rate:.0f} GB/s (wanted {WANTED:.0f}), activation {took['activation']:.2f} ms (wanted {limit:.0f}): "
        f"{'TOO SLOW' if slow else 'enough'}")  # fmt: skip
    if chosen.unchecked:
        return int(slow)
    begun = time.perf_counter()
    with ThreadPoolExecutor(chosen.threads) as pool:
        agree = dict(zip(KINDS, pool.map(lambda kind: same(kind, shape), KINDS), strict=True))
    differing = sorted(kind for kind, agrees in agree.items() if not agrees)
    say(f"the CPU's bytes: {f'NOT of {differing}' if differing else 'all'} ({time.perf_counter() - begun:.0f} s)")
    return int(slow or bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
