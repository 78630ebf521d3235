"""A few rows at a time, so that the fp32 copies stay in the cache; all arithmetic in place, the exponential by hand."""

ROWS = 16


def run(x, output):
    for first in range(0, x.shape[0], ROWS):
        gate, value = x[first : first + ROWS].float().unbind(1)
        below = gate.neg().exp_().add_(1.0)
        output[first : first + ROWS] = gate.div_(below).mul_(value)
