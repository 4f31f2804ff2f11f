#!/usr/bin/env python3
"""Makes random models of every family, of width 256, for docs/notes/quantization.md, not for tests.

    python tests/golden/wide.py OUT [name...]

Needs the packages of make.py. The models have two layers and one token per byte. Parameters that a
library initializes with a purpose keep these values: A, the bias of Δ, decays, low-rank gates,
convolutions, norms, token shifts. Projections and feed-forward layers, which libraries initialize
near zero, are drawn with unit gain, so that β, gates and logits spread as in a trained model.
"""

import math
import sys
import zlib
from pathlib import Path

from make import SIGNED, SIGNED_OPTION, chosen, convert, from_fla, from_transformers

import numpy as np
import torch

WIDE = dict(hidden_size=256, num_hidden_layers=2, vocab_size=256, tie_word_embeddings=False)
FLA = WIDE | dict(intermediate_size=512)
HEADS = dict(num_heads=4, head_dim=64, expand_v=1.0)
MAMBA2 = dict(state_size=64, num_heads=8, head_dim=64, n_groups=1, expand=2)
WIDE_OLMO = WIDE | dict(
    intermediate_size=512, num_attention_heads=4, num_key_value_heads=4, linear_num_key_heads=4,
    linear_num_value_heads=4, linear_key_head_dim=48, linear_value_head_dim=64,
    max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    layer_types=["linear_attention", "full_attention"],
    rope_parameters=dict(rope_theta=10000.0, rope_type="default"))

# name: function that builds the model; those of transformers come first, which must not see fla
MODELS = {
    "mamba": lambda: from_transformers("Mamba", **WIDE, state_size=16),
    "mamba_neg": lambda: from_transformers("Mamba", **WIDE, state_size=16),
    "mamba2": lambda: from_transformers("Mamba2", **WIDE, **MAMBA2),
    "mamba2_neg": lambda: from_transformers("Mamba2", **WIDE, **MAMBA2),
    "mlstm": lambda: from_transformers("xLSTM", **WIDE, num_heads=4, num_blocks=2),
    "olmo_hybrid": lambda: from_transformers("OlmoHybrid", **WIDE_OLMO),
    "delta_net_pos": lambda: from_fla("DeltaNet", **FLA, num_heads=4, allow_neg_eigval=False),
    "delta_net_neg": lambda: from_fla("DeltaNet", **FLA, **SIGNED, num_heads=4),
    "gated_delta_net_neg": lambda: from_fla("GatedDeltaNet", **FLA, **HEADS, **SIGNED),
    "deltaproduct2_neg": lambda: from_fla(
        "GatedDeltaProduct", **FLA, **HEADS, **SIGNED, num_householder=2, use_forget_gate=False),
    "gated_deltaproduct2_neg": lambda: from_fla(
        "GatedDeltaProduct", **FLA, **HEADS, **SIGNED, num_householder=2, use_forget_gate=True),
    "kda_neg": lambda: from_fla("KDA", **FLA, **HEADS, **SIGNED),
    "gla": lambda: from_fla("GLA", **FLA, num_heads=4),
    "gla_neg": lambda: from_fla("GLA", **FLA, num_heads=4),
    "hgrn2": lambda: from_fla("HGRN2", **FLA, num_heads=4, expand_ratio=64),
    "retnet": lambda: from_fla("RetNet", **FLA, num_heads=4),
    "rwkv6": lambda: from_fla("RWKV6", **FLA, num_heads=4),
    "rwkv7": lambda: from_fla("RWKV7", **FLA, head_dim=64),
}

# options of the converter
OPTIONS = {name: SIGNED_OPTION for name in ("mamba_neg", "mamba2_neg", "gla_neg")}

# parameters that are initialized with a purpose, by parts of their names
KEPT = ("A_log", "dt_bias", "dt_proj", "lora", "lower_bounds", "bonus", "r_k", "k_k", "k_a",
        "conv1d", "norm", "x_bias", "mu", ".x_", "gk_proj", "gate_preact", ".D", "f_proj.1",
        "g_proj.1")


def draw_projections(model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.dim() == 2 and not any(part in name for part in KEPT):
                gain = math.sqrt(p.shape[-1]) if "embed" in name else 1.0
                value = gain / math.sqrt(p.shape[-1]) * rng.standard_normal(tuple(p.shape))
                p.copy_(torch.from_numpy(value).float())


def make(name: str, out: Path) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().float().eval()
    draw_projections(model, zlib.crc32(name.encode()))
    convert(model, name, out / f"{name}.gguf", "--tokenizer", "bytes", *OPTIONS.get(name, ()))
    n = sum(p.numel() for p in model.parameters())
    print(f"{name:<28}{n:>9} parameters", flush=True)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in chosen(sys.argv[2:], MODELS):
        make(name, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
