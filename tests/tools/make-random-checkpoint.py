#!/usr/bin/env python3
"""Writes a checkpoint with random weights in the shape of a public model, one shard at a time.

usage: make-random-checkpoint.py SHAPE OUT_FOLDER

SHAPE is one of SHAPES below. The weights are BF16 and need little memory. Matrices
have unit gain, norms are near 1, and the branches of all layers together are as large as an
embedding, so that rounding does not grow from layer to layer. The tokens of the tokenizer are the
bytes. For measurements of a whole conversion; no test needs it.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np

QWEN35 = {
    "model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "max_position_embeddings": 262144,
    "tie_word_embeddings": True, "vocab_size": 248320,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                        "mrope_section": [11, 11, 10], "mrope_interleaved": True}}
SHAPES = {
    "qwen3.5-0.8b": QWEN35 | {
        "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 3584,
        "num_attention_heads": 8, "num_key_value_heads": 2, "linear_num_value_heads": 16},
    # layers of the 0.8B model with twice the value heads, but few, and a small vocabulary
    "qwen3.5-tiny": QWEN35 | {
        "hidden_size": 1024, "num_hidden_layers": 8, "intermediate_size": 3584, "vocab_size": 4096,
        "num_attention_heads": 8, "num_key_value_heads": 2, "linear_num_value_heads": 32},
    "qwen3.5-4b": QWEN35 | {
        "hidden_size": 2560, "num_hidden_layers": 32, "intermediate_size": 9216,
        "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32},
    "olmo-hybrid-7b": {
        "model_type": "olmo_hybrid", "architectures": ["OlmoHybridForCausalLM"],
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "hidden_size": 3840, "num_hidden_layers": 32,
        "intermediate_size": 11008, "num_attention_heads": 30, "num_key_value_heads": 30,
        "linear_num_key_heads": 30, "linear_num_value_heads": 30, "linear_key_head_dim": 96,
        "linear_value_head_dim": 192, "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": True,
        "max_position_embeddings": 65536, "tie_word_embeddings": False, "vocab_size": 100352,
        "rope_parameters": None},
}


PIECE = 1 << 24                            # weights in memory


def is_attention(layer):
    return layer % 4 == 3                  # both models: every fourth layer


def mlp(c):
    D, F = c["hidden_size"], c["intermediate_size"]
    return {"mlp.gate_proj.weight": (F, D), "mlp.up_proj.weight": (F, D),
            "mlp.down_proj.weight": (D, F)}


def qwen35_layer(c, layer):
    D, L = c["hidden_size"], c["head_dim"]
    norms = {"input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,)}
    if is_attention(layer):
        q, kv = c["num_attention_heads"] * L, c["num_key_value_heads"] * L
        mixer = {"q_proj.weight": (2 * q, D), "k_proj.weight": (kv, D), "v_proj.weight": (kv, D),
                 "o_proj.weight": (D, q), "q_norm.weight": (L,), "k_norm.weight": (L,)}
        return norms | {f"self_attn.{n}": s for n, s in mixer.items()} | mlp(c)
    K, HV = c["linear_key_head_dim"], c["linear_num_value_heads"]
    C, E = (2 * c["linear_num_key_heads"] + HV) * K, HV * K
    mixer = {"in_proj_qkv.weight": (C, D), "in_proj_z.weight": (E, D), "in_proj_a.weight": (HV, D),
             "in_proj_b.weight": (HV, D), "conv1d.weight": (C, 1, 4), "A_log": (HV,),
             "dt_bias": (HV,), "norm.weight": (K,), "out_proj.weight": (D, E)}
    return norms | {f"linear_attn.{n}": s for n, s in mixer.items()} | mlp(c)


def olmo_layer(c, layer):
    D = c["hidden_size"]
    if is_attention(layer):
        mixer = {f"{x}_proj.weight": (D, D) for x in "qkvo"} | {
            "q_norm.weight": (D,), "k_norm.weight": (D,)}
        norms = {"post_attention_layernorm.weight": (D,), "post_feedforward_layernorm.weight": (D,)}
        return norms | {f"self_attn.{n}": s for n, s in mixer.items()} | mlp(c)
    H, K, P = (c[f"linear_{x}"] for x in ("num_key_heads", "key_head_dim", "value_head_dim"))
    mixer = {"q_proj.weight": (H * K, D), "k_proj.weight": (H * K, D), "v_proj.weight": (H * P, D),
             "b_proj.weight": (H, D), "a_proj.weight": (H, D), "A_log": (H,), "dt_bias": (H,),
             "q_conv1d.weight": (H * K, 1, 4), "k_conv1d.weight": (H * K, 1, 4),
             "v_conv1d.weight": (H * P, 1, 4), "g_proj.weight": (H * P, D), "o_norm.weight": (P,),
             "o_proj.weight": (D, H * P)}
    norms = {"attention_layer_norm.weight": (D,), "feedforward_layer_norm.weight": (D,)}
    return norms | {f"linear_attn.{n}": s for n, s in mixer.items()} | mlp(c)


def shards(c):
    """The tensors of each shard: the layers, then the rest."""
    layer = qwen35_layer if c["model_type"] == "qwen3_5_text" else olmo_layer
    for i in range(c["num_hidden_layers"]):
        yield {f"model.layers.{i}.{name}": shape for name, shape in layer(c, i).items()}
    D, V = c["hidden_size"], c["vocab_size"]
    rest = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    yield rest if c["tie_word_embeddings"] else rest | {"lm_head.weight": (V, D)}


def values(name, shape, rng, adds_one, branch_gain):
    if "norm" in name:
        x = 0.1 * rng.standard_normal(shape, np.float32)
        return x if adds_one and "linear_attn" not in name else 1 + x
    if name.endswith("A_log"):
        return rng.uniform(-2.0, 1.0, shape).astype(np.float32)
    if name.endswith("dt_bias"):
        return rng.uniform(-4.0, 0.0, shape).astype(np.float32)
    gain = 0.5 if "conv1d" in name else 1.0
    if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
        gain = branch_gain
    fan_in = 1 if "conv1d" in name else shape[-1]
    return gain / math.sqrt(fan_in) * rng.standard_normal(shape, np.float32)


def bf16(x):
    """The upper half of each float, rounded."""
    bits = x.reshape(-1).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def write_shard(path, tensors, rng, adds_one, branch_gain):
    header, at = {}, 0
    for name, shape in tensors.items():
        n = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors.items():
            step = max(1, PIECE // math.prod(shape[1:]))
            for first in range(0, shape[0], step):
                rows = (min(step, shape[0] - first), *shape[1:])
                f.write(bf16(values(name, rows, rng, adds_one, branch_gain)).tobytes())
    return at


def tokenizer():
    """A byte-level BPE without merges, whose tokens are the bytes in the alphabet of GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    letters = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    end = {"id": 256, "content": "<|endoftext|>", "special": True, "normalized": False,
           "single_word": False, "lstrip": False, "rstrip": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end],
            "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "vocab": {letters[b]: b for b in range(256)}, "merges": []}}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: make-random-checkpoint.py SHAPE OUT_FOLDER; SHAPE: {', '.join(SHAPES)}")
    c, folder = SHAPES[sys.argv[1]], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    kinds = ["full_attention" if is_attention(i) else "linear_attention"
             for i in range(c["num_hidden_layers"])]
    (folder / "config.json").write_text(json.dumps(c | {"layer_types": kinds}, indent=1))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    rng = np.random.default_rng(1)
    branch_gain = (2 * c["num_hidden_layers"] * c["hidden_size"]) ** -0.5
    index, total = {}, 0
    parts = list(shards(c))
    for i, tensors in enumerate(parts, 1):
        name = f"model-{i:05d}-of-{len(parts):05d}.safetensors"
        total += write_shard(folder / name, tensors, rng, c["model_type"] == "qwen3_5_text",
                             branch_gain)
        index |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": index}))
    print(f"{folder}: {len(index)} tensors, {total / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
