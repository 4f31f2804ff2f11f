#!/usr/bin/env python3
"""Makes random models of width 256 of every family, for docs/quantization.md. No test needs them.

    python tests/golden/wide.py OUT [name...]

Needs what make.py needs. Two layers, 256 ids, one a byte. Whatever a library initialises with a purpose stays as it is initialised: A, Δ's bias,
decays, low-rank gates, convolutions, norms, token shifts. Projections and feed-forward layers, which libraries start near zero, are drawn with unit gain,
so that β, gates and logits spread as they do in a trained model.
"""

import math
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from make import CONVERTER, from_fla, from_transformers

import numpy as np
import torch

WIDE = dict(hidden_size=256, num_hidden_layers=2, vocab_size=256, tie_word_embeddings=False)
FLA = WIDE | dict(intermediate_size=512)
HEADS = dict(num_heads=4, head_dim=64, expand_v=1.0)
NEG = dict(allow_neg_eigval=True)
MAMBA2 = dict(state_size=64, num_heads=8, head_dim=64, n_groups=1, expand=2)
OLMO = dict(intermediate_size=512, num_attention_heads=4, num_key_value_heads=4, linear_num_key_heads=4, linear_num_value_heads=4,
            linear_key_head_dim=48, linear_value_head_dim=64, max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            layer_types=["linear_attention", "full_attention"], rope_parameters=dict(rope_theta=10000.0, rope_type="default"))
SIGNED = ("--eigenvalues", "signed")

# name: (how to build it, options of the converter); those of transformers first, which must not see fla
MODELS = {
    "mamba":                   (lambda: from_transformers("Mamba", **WIDE, state_size=16), ()),
    "mamba_neg":               (lambda: from_transformers("Mamba", **WIDE, state_size=16), SIGNED),
    "mamba2":                  (lambda: from_transformers("Mamba2", **WIDE, **MAMBA2), ()),
    "mamba2_neg":              (lambda: from_transformers("Mamba2", **WIDE, **MAMBA2), SIGNED),
    "mlstm":                   (lambda: from_transformers("xLSTM", **WIDE, num_heads=4, num_blocks=2), ()),
    "olmo_hybrid":             (lambda: from_transformers("OlmoHybrid", **WIDE, **OLMO), ()),
    "delta_net_pos":           (lambda: from_fla("DeltaNet", **FLA, num_heads=4, allow_neg_eigval=False), ()),
    "delta_net_neg":           (lambda: from_fla("DeltaNet", **FLA, **NEG, num_heads=4), ()),
    "gated_delta_net_neg":     (lambda: from_fla("GatedDeltaNet", **FLA, **HEADS, **NEG), ()),
    "deltaproduct2_neg":       (lambda: from_fla("GatedDeltaProduct", **FLA, **HEADS, **NEG, num_householder=2, use_forget_gate=False), ()),
    "gated_deltaproduct2_neg": (lambda: from_fla("GatedDeltaProduct", **FLA, **HEADS, **NEG, num_householder=2, use_forget_gate=True), ()),
    "kda_neg":                 (lambda: from_fla("KDA", **FLA, **HEADS, **NEG), ()),
    "gla":                     (lambda: from_fla("GLA", **FLA, num_heads=4), ()),
    "gla_neg":                 (lambda: from_fla("GLA", **FLA, num_heads=4), SIGNED),
    "hgrn2":                   (lambda: from_fla("HGRN2", **FLA, num_heads=4, expand_ratio=64), ()),
    "retnet":                  (lambda: from_fla("RetNet", **FLA, num_heads=4), ()),
    "rwkv6":                   (lambda: from_fla("RWKV6", **FLA, num_heads=4), ()),
    "rwkv7":                   (lambda: from_fla("RWKV7", **FLA, head_dim=64), ()),
}

# parameters that are initialised with a purpose, by parts of their names
KEPT = ("A_log", "dt_bias", "dt_proj", "lora", "lower_bounds", "bonus", "r_k", "k_k", "k_a", "conv1d", "norm", "x_bias", "mu", ".x_", "gk_proj",
        "gate_preact", ".D", "f_proj.1", "g_proj.1")


def draw_projections(model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.dim() == 2 and not any(part in name for part in KEPT):
                gain = math.sqrt(p.shape[-1]) if "embed" in name else 1.0
                p.copy_(torch.from_numpy(gain / math.sqrt(p.shape[-1]) * rng.standard_normal(tuple(p.shape))).float())


def make(name: str, out: Path) -> None:
    build, options = MODELS[name]
    torch.manual_seed(0)
    model = build().float().eval()
    draw_projections(model, zlib.crc32(name.encode()))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        model.save_pretrained(folder)
        subprocess.run([sys.executable, "-m", "lrnn_convert", str(folder), "-o", str(out / f"{name}.gguf"), "--tokenizer", "bytes", "--quiet", *options],
                       check=True, env=os.environ | {"PYTHONPATH": str(CONVERTER), "PYTHONDONTWRITEBYTECODE": "1"})
    print(f"{name:<28}{sum(p.numel() for p in model.parameters()):>9} parameters", flush=True)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    unknown = [name for name in sys.argv[2:] if name not in MODELS]
    if unknown:
        sys.exit(f"wide.py: no model {unknown[0]}; there are {', '.join(MODELS)}")
    for name in MODELS:
        if name in sys.argv[2:] or len(sys.argv) == 2:
            make(name, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
