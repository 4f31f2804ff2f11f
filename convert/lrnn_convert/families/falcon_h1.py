"""Falcon-H1 (transformers): Mamba-2 and attention side by side in every layer.

    h = norm x;   p = μ ∘ (W_in (m_si h))            μ: constants for the rows z, x, B, C, dt
    x += m_so · W_out mamba(p) + m_ao · W_o attend(m_ai h)            keys are multiplied by m_k
    x += m_d · W_down (W_up h' ∘ silu(m_g · W_gate h')),  h' = norm x
    x = m_e · embedding at first;   logits = m_l · W norm x

llama.cpp's architecture falcon-h1 has no multipliers: they become part of the weights.
"""

import numpy as np

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_number
from ..transforms import scaled
from . import mamba2
from .layer_parts import SWISH, attention_fact, write_embedding
from .llama_cpp import HybridAttention, write_common
from .transformer import read_rope, read_trained_length

FAMILY = Family("falcon_h1", Range.UNSIGNED)

KEYS = """
    attention_bias attention_in_multiplier attention_out_multiplier embedding_multiplier head_dim
    hidden_act key_multiplier lm_head_multiplier mamba_chunk_size mamba_conv_bias mamba_d_conv
    mamba_d_head mamba_d_ssm mamba_d_state mamba_expand mamba_n_groups mamba_n_heads
    mamba_norm_before_gate mamba_proj_bias mamba_rms_norm mamba_use_mlp mlp_bias
    mlp_expansion_factor mlp_multipliers num_attention_heads num_key_value_heads num_logits_to_keep
    projectors_bias rms_norm_eps rope_parameters rope_scaling rope_theta sliding_window
    ssm_in_multiplier ssm_multipliers ssm_out_multiplier time_step_floor time_step_limit
    time_step_max time_step_min
"""


def _multipliers(m: Model, key: str, n: int) -> list[float]:
    values = m.get(key, [1.0] * n)
    if not isinstance(values, list) or len(values) != n or not all(map(is_number, values)):
        raise ModelError(f"config.json: {key} is {shown(values)}; expected a list of {n} numbers")
    return values


def convert(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option)
    m.choice("hidden_act", "silu", SWISH)
    m.refuse_unless("sliding_window", (None,), "windows are not supported in this architecture")
    m.refuse_unless("mamba_use_mlp", (None, True), "the architecture has an MLP in every layer")
    for key in ("attention_bias", "mamba_proj_bias", "mlp_bias", "projectors_bias"):
        m.refuse_unless(key, (None, False), "the architecture has no such biases")
    mamba2.refuse_limit(m)
    layers = m.count_layers("model.layers.")
    D, V = write_embedding(m, "model.embed_tokens.weight", tied_default=None, scales=(
        m.number("embedding_multiplier", 1.0), m.number("lm_head_multiplier", 1.0)))
    F = m.shape("model.layers.0.feed_forward.down_proj.weight", 2)[1]
    eps = m.positive("rms_norm_eps", 1e-5)
    s = mamba2.read_sizes(m, "model.layers.0.mamba.", m.count("mamba_n_groups", 1))
    a = HybridAttention.read(m, "model.layers.0.self_attn.")
    theta, factors = read_rope(m, a.length)
    if factors is not None:
        raise ModelError("config.json: rope_parameters scale RoPE; expected rope_type 'default'")
    read_trained_length(m)
    normed = m.flag(("mamba_rms_norm",), "model.layers.0.mamba.norm.weight")
    if normed and m.truth("mamba_norm_before_gate", True):
        raise ModelError("config.json: mamba_norm_before_gate is true; expected false, as in "
                         "llama.cpp and in all released models with a norm")

    parts = _multipliers(m, "ssm_multipliers", 5)
    GN = s.G * s.N
    rows_in = m.number("ssm_in_multiplier", 1.0) * np.repeat(parts, [s.E, s.E, GN, GN, s.H])
    gate, down = _multipliers(m, "mlp_multipliers", 2)
    into = m.number("attention_in_multiplier", 1.0)

    m.put("output_norm.weight", "model.final_layernorm.weight", (D,))
    for i in range(layers):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        m.put(dst + "attn_norm.weight", src + "input_layernorm.weight", (D,))
        mamba2.write_mixer(m, dst, src + "mamba.", D, s, normed, scaled(rows_in[:, None]),
                           scaled(m.number("ssm_out_multiplier", 1.0)))
        m.put_optional(dst + "ssm_conv1d.bias", src + "mamba.conv1d.bias", (s.C,))
        a.write_layer(m, dst, src + "self_attn.", D, into, into * m.number("key_multiplier", 1.0),
                      into, m.number("attention_out_multiplier", 1.0))
        m.rows(dst, src, [
            ("ffn_norm",        "pre_ff_layernorm.weight",       (D,)),    # llama.cpp's name
            ("ffn_gate.weight", "feed_forward.gate_proj.weight", (F, D), scaled(gate)),
            ("ffn_up.weight",   "feed_forward.up_proj.weight",   (F, D)),
            ("ffn_down.weight", "feed_forward.down_proj.weight", (D, F), scaled(down)),
        ])

    write_common(m, "falcon-h1", layers, D, V, F)
    mamba2.write_keys(m, "falcon-h1", s)
    a.write_keys(m, "falcon-h1")
    m.set_f32("falcon-h1.attention.layer_norm_rms_epsilon", eps)
    m.set_f32("falcon-h1.rope.freq_base", theta)
    mamba2.write_facts(m, s)
    attention_fact(m, list(range(layers)))
    return m


MODEL_TYPES = {"falcon_h1": convert}
