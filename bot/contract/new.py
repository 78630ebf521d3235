"""The starter of a contract: a small operator, complete, that passes `proctor contract check` and wants replacing."""

import re
from collections.abc import Mapping
from pathlib import Path

from bot.errors import UsageError

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

CONTRACT = """\
# Begun by `proctor contract new`. Replace the operator below by yours, key by key; contracts/README.md lists all keys.
# `proctor contract check NAME` says what is still wrong, `show` draws the distributions, `calibrate` measures limits.
name: NAME
version: 1
summary: >-
  Centre rows: output = gain * (x - mean(x)), the mean over the last axis, in fp32 with one rounding to bfloat16.

# Named dimensions. A workload sets those with `min` and `max`.
axes:
  B: {min: 0, max: 65536}
  D: {min: 2, max: 8192}

# What a kernel gets, in the order of its arguments; then what it fills.
inputs:
  x: {shape: [B, D], dtype: bfloat16, doc: rows to centre}
  gain: {dtype: float, value: 1.0, low: 0.25, high: 4.0, doc: factor of the result}
outputs:
  output: {shape: [B, D], dtype: bfloat16}

# The roundings that an honest kernel may make.
compute: {operands: float32, accumulate: float32}

# Largest honest error, in noise units. Measured: `proctor contract calibrate NAME --draws 12 --write`.
limits:
  output:
    median: 1.3
    p99: 1.7
    maximum: 1.8
    floor_ulps: 0.5
    source: >-
      12 draws of every cpu cell, probe and hidden draw: split_rows at most 0.84, 1.1, 1.2 (odd); limits are 1.5 times
      the worst, rounded up

# Families of input distributions. Each parameter is drawn anew, so that no kernel can compile it in.
regimes:
  gaussian:
    doc: Independent values around zero, whose mean nearly vanishes.
    draws:
      x: {kind: normal, std: {between: [0.5, 2.0]}}
  shifted:
    doc: Rows far from zero, where a mean that is slightly off is far off.
    draws:
      x: {kind: normal, mean: {between: [2.0, 6.0]}, std: {between: [0.5, 1.0]}}
    values: {gain: {between: [0.5, 2.0]}}

# Scored workloads are timed: on a CPU they should take more than 1 ms. Add the real ones with `device: [cuda]`.
workloads:
  - {name: b512_d1024, device: [cpu], anchor: true, axes: {B: 512, D: 1024}}
  - {name: b128_d4096, device: [cpu], axes: {B: 128, D: 4096}}

# Draws at sizes that nobody was told.
hidden:
  - name: odd
    device: [cpu, cuda]
    draws: 3
    axes: {B: {choice: [1, 3, 65]}, D: {choice: [127, 129, 1000]}}

# Inputs made to break one shortcut each.
probes:
  - name: outlier
    breaks: a mean estimated from part of the row
    device: [cpu, cuda]
    axes: {B: 32, D: 512}
    regime: gaussian
    draws:
      x: {kind: spiked, value: 100.0, of: {kind: normal, std: 1.0}}
  - name: gain_moved
    breaks: a gain of one compiled in
    device: [cpu, cuda]
    axes: {B: 32, D: 256}
    regime: gaussian
    values: {gain: {choice: [0.25, 3.0]}}
  - name: no_rows
    breaks: a launch with an empty grid
    device: [cpu, cuda]
    axes: {B: 0, D: 256}
    regime: gaussian

baselines:
  - name: torch_eager
    role: reference
    file: baselines/torch_eager.py
    device: [cpu, cuda]

# One deliberately wrong kernel for each cheat you fear; `fails` names the places that must see it.
controls:
  - file: controls/mean_of_half.py
    cheat: takes the mean of the first half of a row for the mean of the row
    fails: [gaussian, shifted, outlier]
  - file: controls/gain_compiled_in.py
    cheat: takes the gain for one
    fails: [gain_moved]

# Honest kernels that round differently. They must always pass.
faithful:
  - faithful/split_rows.py

# Least operations of a call, as a product; bytes follow from the tensors.
work: {operations: [3, B, D]}
"""

ORACLE = '''\
"""Float64 reference of NAME, written by definition."""


def oracle(*, x, gain, noise):
    """The output in float64; `noise` stands where a faithful kernel rounds a value that it goes on using."""
    return {"output": gain * (x - noise(x.mean(-1, keepdim=True)))}
'''

BASELINE = '''\
"""Straightforward torch operations in fp32."""

import torch


def run(x, gain, output):
    rows = x.float()
    output.copy_((gain * (rows - rows.mean(-1, keepdim=True))).to(torch.bfloat16))
'''

FAITHFUL = '''\
"""Each row in four parts, whose sums are added in the end, as a kernel with several warps a row does."""

import torch


def run(x, gain, output):
    rows = x.float()
    parts = torch.stack([part.sum(-1) for part in rows.tensor_split(4, dim=-1)], dim=-1)
    output.copy_((gain * (rows - parts.sum(-1, keepdim=True) / rows.shape[-1])).to(torch.bfloat16))
'''

MEAN_OF_HALF = '''\
"""The mean of the first half of a row stands for all of it."""

import torch


def run(x, gain, output):
    rows = x.float()
    half = rows[:, : max(rows.shape[-1] // 2, 1)]
    output.copy_((gain * (rows - half.mean(-1, keepdim=True))).to(torch.bfloat16))
'''

GAIN_COMPILED_IN = '''\
"""The gain is taken for one, as in the benchmark."""

import torch


def run(x, gain, output):
    rows = x.float()
    output.copy_((rows - rows.mean(-1, keepdim=True)).to(torch.bfloat16))
'''

FILES: Mapping[str, str] = {
    "contract.yaml": CONTRACT,
    "oracle.py": ORACLE,
    "baselines/torch_eager.py": BASELINE,
    "faithful/split_rows.py": FAITHFUL,
    "controls/mean_of_half.py": MEAN_OF_HALF,
    "controls/gain_compiled_in.py": GAIN_COMPILED_IN,
}


def write_starter(contracts: Path, name: str) -> Path:
    """Begin `contracts/<name>/`; returns the folder.

    Raises:
        UsageError: the name is no contract's, or something is there already.
    """
    return write_new(contracts, name, {file: re.sub(r"\bNAME\b", name, text) for file, text in FILES.items()})


def write_new(contracts: Path, name: str, files: Mapping[str, str]) -> Path:
    """Write the files of a new folder `contracts/<name>/`; returns the folder.

    Raises:
        UsageError: the name is no contract's, or something is there already.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a contract: a small letter, then small letters, digits and _")
    folder = contracts / name
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"contracts/{name} exists already; nothing was changed") from None
    for file, text in files.items():
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
