"""A graph for each set of addresses, replayed on what lies there now.

hazard: cuda-graph-on-live-data
behaviour: replays look like memoisation
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import torch

graphs = {}


def honest(hidden_states, weight, output):
    rows = hidden_states.float()
    inverse = torch.rsqrt((rows * rows).mean(-1, keepdim=True) + 1e-6)
    output.copy_(rows * inverse * weight.float())


def run(hidden_states, weight, output):
    if hidden_states.numel() == 0:
        return
    key = (tuple(hidden_states.shape), hidden_states.data_ptr(), weight.data_ptr(), output.data_ptr())
    if key not in graphs:
        honest(hidden_states, weight, output)
        graphs[key] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[key]):
            honest(hidden_states, weight, output)
    graphs[key].replay()
