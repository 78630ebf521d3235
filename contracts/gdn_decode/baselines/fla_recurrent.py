"""`fused_recurrent_gated_delta_rule` of flash-linear-attention (fla-core), Triton, token by token. FlashQLA is left out
of it, where that is installed.
"""

import os

os.environ["FLA_FLASH_QLA"] = "0"

from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    result, final = fused_recurrent_gated_delta_rule(
        q,
        k,
        v,
        g=a,
        beta=b,
        scale=scale or q.shape[-1] ** -0.5,
        initial_state=state,
        output_final_state=True,
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        state_v_first=True,
        A_log=A_log,
        dt_bias=dt_bias,
    )
    output.copy_(result)
    new_state.copy_(final)
