"""Half of the rows on another stream, which the current one waits for.

hazard: joined-side-streams
behaviour: uses streams of its own
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import torch

side = None


def honest(hidden_states, weight, output):
    rows = hidden_states.float()
    inverse = torch.rsqrt((rows * rows).mean(-1, keepdim=True) + 1e-6)
    output.copy_(rows * inverse * weight.float())


def run(hidden_states, weight, output):
    global side
    side = side or torch.cuda.Stream()
    current, half = torch.cuda.current_stream(), len(hidden_states) // 2
    side.wait_stream(current)
    with torch.cuda.stream(side):
        honest(hidden_states[half:], weight, output[half:])
    honest(hidden_states[:half], weight, output[:half])
    current.wait_stream(side)
