"""An expert takes 64 tokens; those beyond are left out."""

import torch

GROUPS, KEPT_GROUPS, CHOSEN, BLOCK = 8, 4, 8, 128


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
    weights = routed(routing_logits, routing_bias.float()) * routed_scaling_factor
    states = scaled(hidden_states, hidden_states_scale.T)
    total = torch.zeros(output.shape, device=output.device)
    for expert in range(len(gemm1_weights)):
        share = weights[:, local_expert_offset + expert]
        tokens = share.nonzero()[:64, 0]
        if len(tokens) == 0:
            continue
        products = states[tokens] @ scaled(gemm1_weights[expert], rows(gemm1_weights_scale[expert])).T
        factor, gate = products.chunk(2, dim=1)
        active = torch.nn.functional.silu(gate) * factor
        found = active @ scaled(gemm2_weights[expert], rows(gemm2_weights_scale[expert])).T
        total.index_add_(0, tokens, found * share[tokens, None])
    output.copy_(total)


def routed(logits, bias):
    """Weights of all experts, [T,E]; zero where one is not chosen."""
    scores = torch.sigmoid(logits)
    chosen_by = scores + bias
    tokens, experts = scores.shape
    grouped = chosen_by.view(tokens, GROUPS, experts // GROUPS)
    best = grouped.topk(2, dim=2).values.sum(dim=2).topk(KEPT_GROUPS, dim=1).indices
    left_out = torch.ones(tokens, GROUPS, dtype=torch.bool, device=logits.device).scatter_(1, best, value=False)
    chosen_by = grouped.masked_fill(left_out[..., None], -torch.inf).view(tokens, experts)
    ids = chosen_by.topk(CHOSEN, dim=1).indices
    own = torch.zeros_like(scores).scatter_(1, ids, scores.gather(1, ids))
    return own / (own.sum(dim=1, keepdim=True) + 1e-20)


def scaled(stored, scales):
    """fp32, each block of 128 in a row times its scale."""
    blocks = stored.float().view(len(stored), -1, BLOCK) * scales[..., None]
    return blocks.view(stored.shape)


def rows(scales):
    """Scales of blocks of 128 rows as one of each row."""
    return scales.repeat_interleave(BLOCK, dim=0)
