"""FlashKDA's forward (package `flash_kda`). Its initial and final states are fp32 at the border and bf16 inside."""

import flash_kda


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    flash_kda.fwd(
        q[None],
        k[None],
        v[None],
        g[None],
        beta[None],
        scale,
        out[None],
        A_log,
        dt_bias,
        lower_bound,
        initial_state=initial_state,
        final_state=final_state,
        cu_seqlens=cu_seqlens,
    )
