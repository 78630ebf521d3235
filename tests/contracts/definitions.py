"""Definitions of flashinfer-bench as tests want them: their own, or of public operators, described anew."""

import copy
import json
from typing import Any

Json = dict[str, Any]

RAGGED: Json = {
    "name": "ragged_scale_d64",
    "op_type": "toy",
    "description": "Scales packed rows: by one factor.",
    "tags": ["status:invented"],
    "axes": {
        "tokens": {"type": "var", "description": "all rows"},
        "seqs": {"type": "var"},
        "len_offsets": {"type": "var"},
        "width": {"type": "const", "value": 64},
    },
    "constraints": ["len_offsets == seqs + 1", "tokens == offsets[-1].item()", "width % 2 == 0"],
    "inputs": {
        "x": {"shape": ["tokens", "width"], "dtype": "bfloat16", "description": "rows"},
        "bias": {"shape": ["seqs", "width"], "dtype": "float32", "optional": True},
        "offsets": {"shape": ["len_offsets"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["tokens", "width"], "dtype": "bfloat16"}},
    "reference": "import torch\n\n\n@torch.no_grad()\ndef run(x, bias, offsets, scale):\n    return x * scale\n",
}


def changed(document: Json, *changes: tuple[str, Any]) -> Json:
    """A copy with other values at paths such as `inputs.x.dtype`; `...` takes a key out."""
    found = copy.deepcopy(document)
    for path, value in changes:
        *parents, last = path.split(".")
        held = found
        for key in parents:
            held = held[key]
        if value is ...:
            del held[last]
        else:
            held[last] = value
    return found


def text(document: Json) -> str:
    """As a person attaches it."""
    return json.dumps(document, indent=2)


def line(definition: str = "ragged_scale_d64", inputs: Json | None = None, **axes: int) -> str:
    """One workload as a trace without solution."""
    held = {"uuid": "w", "axes": axes, "inputs": inputs or {"x": {"type": "random"}}}
    return json.dumps({"definition": definition, "workload": held, "solution": None, "evaluation": None})


def _described(name: str, axes: dict[str, int | None], inputs: dict[str, str], outputs: dict[str, str]) -> Json:
    """`axes`: sizes, None where they vary. A tensor is `dtype axis axis…`, a number its type; `?`: optional."""

    def spec(words: str) -> Json:
        dtype, *shape = words.removesuffix("?").split()
        return {"shape": shape or None, "dtype": dtype} | ({"optional": True} if words.endswith("?") else {})

    return {
        "name": name,
        "op_type": "public",
        "axes": {a: {"type": "var"} if n is None else {"type": "const", "value": n} for a, n in axes.items()},
        "inputs": {each: spec(words) for each, words in inputs.items()},
        "outputs": {each: spec(words) for each, words in outputs.items()},
        "reference": f"def run({', '.join(inputs)}):\n    raise NotImplementedError\n",
    }


GDN = _described(
    "gdn_prefill_qk4_v8_d128_k_last",
    {"total": None, "sequences": None, "offsets": None, "heads_q": 4, "heads_k": 4, "heads_v": 8, "size": 128},
    {
        "q": "bfloat16 total heads_q size",
        "k": "bfloat16 total heads_k size",
        "v": "bfloat16 total heads_v size",
        "state": "float32 sequences heads_v size size?",
        "A_log": "float32 heads_v",
        "a": "bfloat16 total heads_v",
        "dt_bias": "float32 heads_v",
        "b": "bfloat16 total heads_v",
        "cu_seqlens": "int64 offsets",
        "scale": "float32",
    },
    {"output": "bfloat16 total heads_v size", "new_state": "float32 sequences heads_v size size"},
)

GDN_DECODE = _described(
    "gdn_decode_qk4_v8_d128_k_last",
    {"batch": None, "one": 1, "heads_q": 4, "heads_k": 4, "heads_v": 8, "size": 128},
    {
        "q": "bfloat16 batch one heads_q size",
        "k": "bfloat16 batch one heads_k size",
        "v": "bfloat16 batch one heads_v size",
        "state": "float32 batch heads_v size size?",
        "A_log": "float32 heads_v",
        "a": "bfloat16 batch one heads_v",
        "dt_bias": "float32 heads_v",
        "b": "bfloat16 batch one heads_v",
        "scale": "float32",
    },
    {"output": "bfloat16 batch one heads_v size", "new_state": "float32 batch heads_v size size"},
)

MOE = _described(
    "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048",
    {
        "tokens": None,
        "experts": 256,
        "local": 32,
        "hidden": 7168,
        "inner": 2048,
        "both": 4096,
        "hidden_blocks": 56,
        "inner_blocks": 16,
        "both_blocks": 32,
    },
    {
        "routing_logits": "float32 tokens experts",
        "routing_bias": "bfloat16 experts",
        "hidden_states": "float8_e4m3fn tokens hidden",
        "hidden_states_scale": "float32 hidden_blocks tokens",
        "gemm1_weights": "float8_e4m3fn local both hidden",
        "gemm1_weights_scale": "float32 local both_blocks hidden_blocks",
        "gemm2_weights": "float8_e4m3fn local hidden inner",
        "gemm2_weights_scale": "float32 local hidden_blocks inner_blocks",
        "local_expert_offset": "int32",
        "routed_scaling_factor": "float32",
    },
    {"output": "bfloat16 tokens hidden"},
)

DSA = _described(
    "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64",
    {"tokens": None, "pages": None, "heads": 16, "ckv": 512, "kpe": 64, "page": 64, "top": 2048},
    {
        "q_nope": "bfloat16 tokens heads ckv",
        "q_pe": "bfloat16 tokens heads kpe",
        "ckv_cache": "bfloat16 pages page ckv",
        "kpe_cache": "bfloat16 pages page kpe",
        "sparse_indices": "int32 tokens top",
        "sm_scale": "float32",
    },
    {"output": "bfloat16 tokens heads ckv", "lse": "float32 tokens heads"},
)

INDEXER = _described(
    "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64",
    {
        "batch": None,
        "pages": None,
        "most_pages": None,
        "heads": 64,
        "size": 128,
        "page": 64,
        "one": 1,
        "packed": 132,
        "top": 2048,
    },
    {
        "q_index_fp8": "float8_e4m3fn batch heads size",
        "k_index_cache_fp8": "int8 pages page one packed",
        "weights": "float32 batch heads",
        "seq_lens": "int32 batch",
        "block_table": "int32 batch most_pages",
    },
    {"topk_indices": "int32 batch top"},
)

PUBLIC: list[tuple[Json, str]] = [
    (GDN, "gdn_prefill"),
    (GDN_DECODE, "gdn_decode"),
    (MOE, "moe_fp8_block_scale"),
    (DSA, "dsa_sparse_attention"),
    (INDEXER, "dsa_topk_indexer"),
]
"""Public operators, after research/peers.md 4.3, and the contracts here that follow them."""
