"""Kimi Delta Attention, forward, in two Triton kernels over chunks of 16 tokens.

A chunk has inclusive sums G of its log-decays, the state S [V,K] at its entry, weights b = sigmoid(beta), and

    L[i,j] = b[i] (k[i] e^G[i]) (k[j] e^-G[j]) for i > j         X = (I + L)^-1 diag(b)
    A[i,j] = scale (q[i] e^G[i]) (k[j] e^-G[j]) for i >= j       R = V - (k e^G) S'
    U = X R        out = scale (q e^G) S' + A X R                S <- S e^G[end] + U' (k e^(G[end]-G))

`prepare` forms, for all chunks at once, what does not need the state; `chain` walks the chunks of a sequence with a
block of the state's rows in registers, in fp32. What meets the state is stacked, keys above queries, and so are X and
A X: three matrix products a chunk, each of which needs the one before. Leaving X R to the chain costs it one small
product and spares `prepare` to read v and to write as much again: a quarter of its bytes.

Chunks of a sequence lie in slots of the workspace from cu_seqlens[n] // 16 + n on. A sequence never needs more slots
than there are up to the next one's, so that no sum over lengths is needed, and the host need not know any length.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

CONFIGS = {
    9: {
        "prepare": {"SLICE": 32, "STAGES": 3, "num_warps": 1},
        "chain": {"BLOCK": 64, "STAGES": 6, "num_warps": 4, "maxnreg": 168},
    },
    10: {
        "prepare": {"SLICE": 32, "STAGES": 1, "num_warps": 1},
        "chain": {"BLOCK": 64, "STAGES": 4, "num_warps": 4},
    },
}
"""By major compute capability: channels a step of `prepare` takes, rows of the state in a program of `chain`.

One warp to prepare a chunk: of 16 rows two would each hold all, and wait for each other. Blocks of 64 rows are the
least that wgmma takes; with them and 4 stages a prototype's chain was the fastest on an H200 (0.44 ms, 96 heads, 8192
tokens); 168 registers let three programs share an SM. No entry spills (tests/kernels/test_triton_kda.py)."""

if triton.knobs.runtime.interpret:
    OPERAND = torch.float32
    """Triton 3.6 interprets products of bf16 as products of their bits."""

    def steps(count):
        """An int: numpy 2.4 takes no array of one element for one, which is what interpreted scalars are."""
        return count.handle.data.item()

else:
    OPERAND = torch.bfloat16

    @triton.jit
    def steps(count):
        return count


C = tl.constexpr(16)
D = tl.constexpr(128)
LOG2E = tl.constexpr(1.4426950408889634)
EPSILON = tl.constexpr(1e-6)
FINE = tl.constexpr(256.0)
"""Log-decays are summed as fp16 multiples of 1/256: 5 log2(e) 256 = 1847 is far from its largest number, and the
smallest normal one is a decay of 1.7e-7 a token. Rounding to 2^-12 of x moves e^-x by 1e-4 of what nothing decayed."""


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    tokens, heads, width = q.shape
    sequences = cu_seqlens.numel() - 1
    if tokens == 0:
        final_state.zero_() if initial_state is None else final_state.copy_(initial_state)
        return
    if v.data_ptr() % 16:
        v = v.clone()  # a tensor map refuses such an address
    config = CONFIGS[torch.cuda.get_device_capability(q.device)[0] if q.is_cuda else 9]
    chunks = (tokens // C.value + sequences) * heads
    reads = q.new_empty(chunks * 2 * C.value, width, dtype=OPERAND)
    writes = q.new_empty(chunks * C.value, width, dtype=OPERAND)
    solves = q.new_empty(chunks * 2 * C.value, C.value, dtype=OPERAND)
    keeps = q.new_empty(chunks, width, dtype=torch.float32)
    gates = (g, beta, A_log, dt_bias)
    numbers = (scale, lower_bound, sequences, heads)
    prepare[(chunks,)](q, k, *gates, cu_seqlens, reads, writes, solves, keeps, *numbers, **config["prepare"])
    block = config["chain"]["BLOCK"]
    chain[(sequences * heads * (width // block),)](
        TensorDescriptor.from_tensor(v.view(tokens, -1), [C.value, block]),
        TensorDescriptor.from_tensor(reads, [2 * C.value, width]),
        TensorDescriptor.from_tensor(writes, [C.value, width]),
        TensorDescriptor.from_tensor(solves, [2 * C.value, C.value]),
        TensorDescriptor.from_tensor(keeps, [1, width]),
        initial_state,
        cu_seqlens,
        out,
        final_state,
        heads,
        **config["chain"],
    )


@triton.jit(do_not_specialize=["N", "H"])
def prepare(
    q,
    k,
    g,
    beta,
    A_log,
    dt_bias,
    cu_seqlens,
    reads,
    writes,
    solves,
    keeps,
    scale,
    lower_bound,
    N,
    H,
    SLICE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One chunk of one head: reads [2C,D] = -k e^G above scale q e^G, writes [C,D], solves [2C,C] = X above A X, and
    keeps [D] = e^G[end].
    """
    place = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(0) // H
    h = tl.program_id(0) % H
    n, first, end = sequence_of(slot, cu_seqlens, N)
    start = first + (slot - first // C - n) * C
    if start >= end:
        return  # a slot between two sequences

    r = tl.arange(0, C)
    i = r[:, None]
    j = r[None, :]
    inside = start + r < end
    mask = inside[:, None]
    row = start.to(tl.int64) * H + h
    q += row * D
    k += row * D
    g += row * D
    dt_bias += h * D
    reads += place * (2 * C * D)
    writes += place * (C * D)
    solves += place * (2 * C * C)
    keeps += place * D
    operand = reads.dtype.element_ty

    # Past the end stands a token of zeros with weight 0: it neither decays nor writes.
    weight = tl.sigmoid(tl.load(beta + row + r * H, mask=inside, other=0.0).to(tl.float32))
    weight = tl.where(inside, weight, 0.0)
    bound = tl.where(mask, lower_bound * (LOG2E * FINE), 0.0)
    slope = tl.exp(tl.load(A_log + h)) * LOG2E
    to_query = scale * inverse_norm(q, H, mask, operand)
    to_key = inverse_norm(k, H, mask, operand)

    # Sums of log-decays are matrix products: G, G[end] - G, and G less that of the middle. The last keeps both factors
    # of e^(G[i]-G[j]) inside 2^±58 at 5 a token.
    to_entry = tl.where(j <= i, 1 / FINE, 0.0)
    to_middle = (to_entry - tl.where(j < C // 2, 1 / FINE, 0.0)).to(tl.float16)
    to_end = tl.where(j > i, 1 / FINE, 0.0).to(tl.float16)
    to_entry = to_entry.to(tl.float16)

    couple = tl.zeros([C, C], tl.float32)
    attend = tl.zeros([C, C], tl.float32)
    d = tl.arange(0, SLICE)
    given = i * (H * D) + d[None, :]
    tile = i * D + d[None, :]
    for at in tl.range(0, D, SLICE, num_stages=STAGES):
        gate = tl.load(g + at + given, mask=mask, other=0.0).to(tl.float32)
        key = to_key * tl.load(k + at + given, mask=mask, other=0.0).to(tl.float32)
        query = to_query * tl.load(q + at + given, mask=mask, other=0.0).to(tl.float32)
        gate = slope * (gate + tl.load(dt_bias + at + d)[None, :])
        root = tl.rsqrt(1.0 + tl.exp2(-gate))  # squared it is the sigmoid, for two instructions where a division is six
        fall = bound * root * root
        # What the state itself is multiplied by is summed in fp32: nothing else would round that as coarsely.
        tl.store(keeps + at + d, tl.exp2(tl.sum(fall, 0) / FINE))
        fall = fall.to(tl.float16)

        x = tl.dot(to_middle, fall)
        grown = tl.exp2(x)
        columns = tl.trans((key * tl.exp2(-x)).to(operand))
        couple = tl.dot((key * grown).to(operand), columns, couple)
        attend = tl.dot((query * grown).to(operand), columns, attend)

        grown = tl.exp2(tl.dot(to_entry, fall))
        tl.store(reads + at + tile, (-key * grown).to(operand))
        tl.store(reads + C * D + at + tile, (query * grown).to(operand))
        tl.store(writes + at + tile, (key * tl.exp2(tl.dot(to_end, fall))).to(operand))

    solve = inverse(tl.where(i > j, couple * weight[:, None], 0.0), operand)
    solve = (solve * weight[None, :]).to(operand)
    attend = tl.dot(tl.where(i >= j, attend, 0.0).to(operand), solve)
    tl.store(solves + i * C + j, solve)
    tl.store(solves + C * C + i * C + j, attend.to(operand))


@triton.jit(do_not_specialize=["H"])
def chain(
    v,
    reads,
    writes,
    solves,
    keeps,
    initial_state,
    cu_seqlens,
    out,
    final_state,
    H,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """All chunks of one sequence for BLOCK rows of one head's state. The first five come as tensor maps: what is loaded
    through one is fetched stages ahead, whatever it is used for.
    """
    PARTS: tl.constexpr = D // BLOCK
    part = tl.program_id(0) % PARTS
    h = tl.program_id(0) // PARTS % H
    n = tl.program_id(0) // PARTS // H
    first = tl.load(cu_seqlens + n).to(tl.int32)
    end = tl.load(cu_seqlens + n + 1).to(tl.int32)
    slot = first // C + n

    r = tl.arange(0, C)
    e = part * BLOCK + tl.arange(0, BLOCK)
    tile = r[:, None] * (H * D) + e[None, :]
    rows = e[:, None] * D + tl.arange(0, D)[None, :]
    place = (n * H + h).to(tl.int64) * (D * D)
    state = tl.zeros([BLOCK, D], tl.float32) if initial_state is None else tl.load(initial_state + place + rows)
    for c in tl.range(0, steps(tl.cdiv(end - first, C)), num_stages=STAGES):
        start = first + c * C
        at = (slot + c) * H + h
        read = reads.load([at * (2 * C), 0])
        write = writes.load([at * C, 0])
        solve = solves.load([at * (2 * C), 0])
        value = v.load([start, h * D + part * BLOCK])
        keep = keeps.load([at, 0])
        mask = (start + r < end)[:, None]

        known, result = halves(tl.dot(state.to(read.dtype), tl.trans(read)), BLOCK)
        value = tl.where(mask, value, 0.0)  # past the end are the next sequence's, NaN perhaps
        rest = (tl.trans(value).to(tl.float32) + known).to(read.dtype)
        update, added = halves(tl.dot(rest, tl.trans(solve)), BLOCK)
        state = tl.dot(update.to(read.dtype), write, state * keep)
        row = start.to(tl.int64) * H + h
        tl.store(out + row * D + tile, tl.trans((result + added).to(tl.bfloat16)), mask=mask)
    tl.store(final_state + place + rows, state)


@triton.jit
def sequence_of(slot, cu_seqlens, N):
    """The last sequence whose slots begin at or before `slot`, with its first token and the one past its end."""
    low = 0
    high = N
    while high - low > 1:
        middle = (low + high) // 2
        begun = tl.load(cu_seqlens + middle) // C + middle <= slot
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle)
    return low, tl.load(cu_seqlens + low).to(tl.int32), tl.load(cu_seqlens + low + 1).to(tl.int32)


@triton.jit
def inverse_norm(rows, H, mask, operand: tl.constexpr):
    """[C,1]. Squares are the diagonal of a product, exact in bf16: 140 instructions fewer than a sum across threads."""
    r = tl.arange(0, C)
    x = tl.load(rows + r[:, None] * (H * D) + tl.arange(0, D)[None, :], mask=mask, other=0.0).to(operand)
    squares = tl.where(r[:, None] == r[None, :], tl.dot(x, tl.trans(x)), 0.0)
    return tl.rsqrt(tl.sum(squares, 1) + EPSILON)[:, None]


@triton.jit
def inverse(couple, operand: tl.constexpr):
    """(I + couple)^-1 of a strictly lower triangle: of blocks of two at once, then of twice as many rows each time.

    Merging multiplies only inverses, whose entries are at most about one even where keys repeat; powers of `couple`
    would grow to 6435 and round to nothing.
    """
    i = tl.arange(0, C)[:, None]
    j = tl.arange(0, C)[None, :]
    result = tl.where(i == j, 1.0, 0.0) - tl.where(i // 2 == j // 2, couple, 0.0)
    for level in tl.static_range(1, 4):
        merged = (i >> (level + 1) == j >> (level + 1)) & (i >> level != j >> level)
        across = tl.dot(tl.where(merged, couple, 0.0).to(operand), result.to(operand))
        result -= tl.dot(result.to(operand), across.to(operand))
    return result


@triton.jit
def halves(x, rows: tl.constexpr):
    """[rows,2C] as two of [rows,C], without moving anything between threads."""
    return tl.split(tl.permute(tl.reshape(x, [rows, 2, C]), [0, 2, 1]))
