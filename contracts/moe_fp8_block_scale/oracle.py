"""Float64 reference of a mixture of experts in 8-bit floats with scales by blocks, routed as DeepSeek V3 does."""

import torch

from bot.verify.ground import spread

GROUPS, KEPT_GROUPS, CHOSEN, BLOCK = 8, 4, 8, 128
TINY = 1e-20
"""Added to the sum of a token's weights by the public definition."""
SCORE_ROUNDING = 2.0**-20
"""Scores are numbers near 1: a sigmoid and a sum in float32 err by a fifth of this at most, so that a choice which
float32 leaves open falls to either side in about half of the noisy runs."""


def oracle(
    *,
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
    noise,
):
    """The output in float64, [T,HID]; `noise` stands at the activation, which a kernel may quantise before the second
    product, and at what experts are chosen by.

    Shapes: routing_logits [T,E], routing_bias [E], hidden_states [T,HID], its scale [HID/128,T], gemm1_weights
    [L,2*I,HID], gemm2_weights [L,HID,I], their scales by blocks of 128 x 128. Rows 0 to I-1 of gemm1 are the factor,
    the others its gate. Of 8 groups of experts the 4 count whose two best sum to most.

    Where two experts are as good as each other in float32, an honest kernel may choose either: noise moves scores by
    float32's own rounding, so that the choice falls to one or the other and the row's unit is what that changes.
    """
    scores = torch.sigmoid(routing_logits)
    weights = routed(scores, choosing(scores + routing_bias, noise)) * routed_scaling_factor
    states = hidden_states * spread(hidden_states_scale.T, (hidden_states.shape[1],), BLOCK)
    output = torch.zeros_like(hidden_states)
    for expert in range(len(gemm1_weights)):
        share = weights[:, local_expert_offset + expert]
        tokens = share.nonzero()[:, 0]
        if len(tokens) == 0:
            continue
        first = gemm1_weights[expert] * spread(gemm1_weights_scale[expert], tuple(gemm1_weights[expert].shape), BLOCK)
        second = gemm2_weights[expert] * spread(gemm2_weights_scale[expert], tuple(gemm2_weights[expert].shape), BLOCK)
        factor, gate = (states[tokens] @ first.T).chunk(2, dim=1)
        active = noise(factor * gate * torch.sigmoid(gate))
        output[tokens] += share[tokens, None] * (active @ second.T)
    return {"output": output}


def choosing(scores, noise):
    """What experts are chosen by, [T,E]: the scores, moved by rounding where there is noise."""
    ones = torch.ones_like(scores)
    moved = noise(ones) - ones
    largest = moved.abs().amax().clamp_min(1e-300)
    return scores + moved / largest * SCORE_ROUNDING * scores.abs().clamp_min(1.0)


def routed(scores, chosen_by):
    """The weight of each expert in each token, [T,E]: of those chosen, its own score over their sum; of others zero."""
    tokens, experts = scores.shape
    grouped = chosen_by.view(tokens, GROUPS, experts // GROUPS)
    best = grouped.topk(2, dim=2).values.sum(dim=2).topk(KEPT_GROUPS, dim=1).indices
    none = grouped.new_zeros(tokens, GROUPS, dtype=torch.bool)
    kept = none.scatter(1, best, value=True)[..., None].expand_as(grouped)
    ids = chosen_by.masked_fill(~kept.reshape(tokens, experts), -torch.inf).topk(CHOSEN, dim=1).indices
    own = torch.zeros_like(scores).scatter(1, ids, scores.gather(1, ids))
    return own / (own.sum(dim=1, keepdim=True) + TINY)
