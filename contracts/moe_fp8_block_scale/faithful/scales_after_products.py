"""Products of 8-bit blocks are summed first and scaled afterwards, block by block of the inner axis."""

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
    states = hidden_states.float()
    total = torch.zeros(output.shape, device=output.device)
    for expert in range(len(gemm1_weights)):
        share = weights[:, local_expert_offset + expert]
        tokens = share.nonzero()[:, 0]
        if len(tokens) == 0:
            continue
        products = product(
            states[tokens], hidden_states_scale.T[tokens], gemm1_weights[expert], gemm1_weights_scale[expert]
        )
        factor, gate = products.chunk(2, dim=1)
        active = torch.nn.functional.silu(gate) * factor
        blocks = active.view(len(active), -1, BLOCK)
        largest = (blocks.abs().amax(dim=-1) / 448).clamp_min(1e-30)
        stored = (blocks / largest[..., None]).to(torch.float8_e4m3fn).float().view(active.shape)
        found = product(stored, largest, gemm2_weights[expert], gemm2_weights_scale[expert])
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


def product(values, scales, stored, stored_scales):
    """values [T,C] times stored [R,C], each block of the inner axis scaled once it is summed."""
    total = torch.zeros(len(values), len(stored), device=values.device)
    for block in range(scales.shape[1]):
        inner = slice(block * BLOCK, (block + 1) * BLOCK)
        part = values[:, inner] @ stored[:, inner].float().T
        total += part * scales[:, block, None] * rows(stored_scales)[None, :, block]
    return total


def rows(scales):
    """Scales of blocks of 128 rows as one of each row."""
    return scales.repeat_interleave(BLOCK, dim=0)
