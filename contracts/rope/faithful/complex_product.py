"""One complex product: the halves of a head are real and imaginary part."""

import torch


def run(q, k, cos_sin, positions, q_out, k_out):
    turn = torch.complex(*cos_sin[positions].unsqueeze(1).chunk(2, dim=-1))
    for heads, out in ((q.float(), q_out), (k.float(), k_out)):
        turned = torch.complex(*heads.chunk(2, dim=-1)) * turn
        out.copy_(torch.cat([turned.real, turned.imag], dim=-1))
