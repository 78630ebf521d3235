"""Wraps inputs and scalars in Parameters, subclasses, numpy values and tensors of zero dimensions on the way.

hazard: strict-type-on-parameters
behaviour: other types than plain tensors inside of the kernel
contract: center
mode: quick
expected: no_gain
"""

import numpy
import torch


class Named(torch.Tensor):
    pass


def run(x, offset, scale, cu_seqlens, y):
    factor = torch.nn.Parameter(torch.tensor(numpy.float32(scale)), requires_grad=False)
    rows = x.float().as_subclass(Named)
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        lengths = torch.from_numpy(numpy.diff(cu_seqlens.numpy()))
        rows = (
            rows + torch.repeat_interleave(torch.nn.Parameter(offset, requires_grad=False), lengths, dim=0)[:, None, :]
        )
    y.copy_((factor * rows).as_subclass(torch.Tensor))
