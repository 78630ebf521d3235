"""Scales by a power of two and back, so that tiny rows keep their bits; nothing is flushed.

hazard: bf16-tiny-values
behaviour: values near zero, where a relative or an absolute test alone would fail
contract: rmsnorm
mode: quick
expected: no_gain
"""

import torch


def run(hidden_states, weight, output):
    rows = hidden_states.float() * 2.0**-20
    inverse = torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-6 * 2.0**-40)
    output.copy_(rows * inverse * weight.float())
