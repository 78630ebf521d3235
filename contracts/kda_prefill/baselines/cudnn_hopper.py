"""Kimi Delta Attention of nvidia-cudnn-frontend, the plan `kda_hopper_cuda`."""

from cudnn.linear_attention.ops import kimi_delta_attention


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    result, state = kimi_delta_attention(
        q,
        k,
        v,
        g,
        beta,
        scale=scale,
        initial_state=initial_state,
        cu_seqlens=cu_seqlens,
        safe_gate=True,
        gate_lower_bound=lower_bound,
        a_log=A_log,
        dt_bias=dt_bias,
        use_qk_l2norm_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        plan_name="kda_hopper_cuda",
    )
    out.copy_(result)
    final_state.copy_(state)
