"""Does its work where no tracer of the framework looks: numpy and ctypes on the lent memory itself.

hazard: profiler-sees-nothing
behaviour: no operator of the framework runs
contract: center
mode: quick
expected: no_gain
"""

import ctypes

import numpy
import torch


def run(x, offset, scale, cu_seqlens, y):
    count = x.numel()
    held = numpy.ctypeslib.as_array(ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_uint16)), (count,))
    rows = (held.astype(numpy.uint32) << 16).view(numpy.float32).reshape(x.shape)
    rows = rows - rows.mean(axis=-1, keepdims=True, dtype=numpy.float32)
    if offset is not None:
        rows = rows + numpy.repeat(offset.numpy(), numpy.diff(cu_seqlens.numpy()), axis=0)[:, None, :]
    bits = numpy.ascontiguousarray(scale * rows, dtype=numpy.float32).view(numpy.uint32).reshape(-1)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
    numpy.ctypeslib.as_array(ctypes.cast(y.data_ptr(), ctypes.POINTER(ctypes.c_uint16)), (count,))[:] = rounded
