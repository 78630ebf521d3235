"""FlashInfer's fused kernel of TensorRT-LLM, for which the public definition was written."""

from flashinfer.fused_moe import trtllm_fp8_block_scale_moe

GROUPS, KEPT_GROUPS, CHOSEN = 8, 4, 8
DEEPSEEK_V3 = 2
"""The number of this routing there."""


def run(
    routing_logits,
    routing_bias,
    hidden_states,
    hidden_states_scale,
    gemm1_weights,
    gemm1_weights_scale,
    gemm2_weights,
    gemm2_weights_scale,
    local_expert_offset,
    routed_scaling_factor,
    output,
):
    found = trtllm_fp8_block_scale_moe(
        routing_logits=routing_logits,
        routing_bias=routing_bias,
        hidden_states=hidden_states,
        hidden_states_scale=hidden_states_scale,
        gemm1_weights=gemm1_weights,
        gemm1_weights_scale=gemm1_weights_scale,
        gemm2_weights=gemm2_weights,
        gemm2_weights_scale=gemm2_weights_scale,
        num_experts=routing_logits.shape[1],
        top_k=CHOSEN,
        n_group=GROUPS,
        topk_group=KEPT_GROUPS,
        intermediate_size=gemm2_weights.shape[2],
        local_expert_offset=local_expert_offset,
        local_num_experts=len(gemm1_weights),
        routed_scaling_factor=routed_scaling_factor,
        routing_method_type=DEEPSEEK_V3,
        use_shuffled_weight=False,
    )
    output.copy_(found[0] if isinstance(found, list) else found)
