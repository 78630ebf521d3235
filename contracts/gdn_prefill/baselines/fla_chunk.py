"""`chunk_gated_delta_rule` of flash-linear-attention (fla-core), Triton. Left to itself it would call FlashQLA where
that is installed. It passes the state of an empty sequence through, so that those are cleared afterwards.
"""

import os

import torch

os.environ["FLA_FLASH_QLA"] = "0"

from fla.ops.gated_delta_rule import chunk_gated_delta_rule


def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    result, final = chunk_gated_delta_rule(
        q[None],
        k[None],
        v[None],
        a[None],
        b[None],
        scale=scale or q.shape[-1] ** -0.5,
        initial_state=state,
        output_final_state=True,
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        state_v_first=True,
        cu_seqlens=cu_seqlens.clone(),  # it keeps what it derives from a tensor for as long as that is the same object
        A_log=A_log,
        dt_bias=dt_bias,
    )
    output.copy_(result[0])
    empty = (cu_seqlens.diff() == 0)[:, None, None, None]
    torch.where(empty, 0.0, final, out=new_state)
