"""A converted copy under the weight's address, made again whenever address or content moved.

hazard: pad-cache-keyed-on-pointer
behaviour: pointer equality in the text, but the content is compared before the copy is used
contract: rmsnorm
mode: quick
expected: no_gain
"""

import torch

padded = {}


def run(hidden_states, weight, output):
    held = padded.get(weight.data_ptr())
    if held is None or not torch.equal(held[0], weight):
        held = padded[weight.data_ptr()] = (weight.clone(), weight.float())
    rows = hidden_states.float()
    output.copy_(rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-6) * held[1])
