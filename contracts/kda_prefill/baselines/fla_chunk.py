"""`chunk_kda` of flash-linear-attention (fla-core), Triton, with its safe gate. Left to itself it would call FlashKDA
where where that is installed, which is a baseline of its own here.
"""

import os

os.environ["FLA_FLASH_KDA"] = "0"

from fla.ops.kda import chunk_kda


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    result, state = chunk_kda(
        q[None],
        k[None],
        v[None],
        g[None],
        beta[None],
        scale=scale,
        initial_state=initial_state,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        safe_gate=True,
        lower_bound=lower_bound,
        state_v_first=True,
        # It keeps what it derives from a tensor for as long as that is the same object; and for graphs it finds the
        # chunks on the device, where it would read lengths back to the host, and wait: 5 ms a call in place of 2.7.
        cu_seqlens=cu_seqlens.clone(),
        use_graph=True,
        A_log=A_log,
        dt_bias=dt_bias,
    )
    out.copy_(result[0])
    final_state.copy_(state)
