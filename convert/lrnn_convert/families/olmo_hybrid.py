"""OLMo-Hybrid (transformers `olmo_hybrid`): Gated DeltaNet layers, pre-norm, and attention layers, post-norm.

Two layouts exist: the released one, and what transformers 5.22 writes, which renames a norm and cuts the convolutions wrongly.
Both are told by their tensors.
"""

import numpy as np

from .. import eigenvalues
from ..errors import ModelError
from ..model import Model
from ..transforms import CONV, FLAT, NEG_EXP_FLAT, How, conv_taps, conv_width
from .gated_delta_net import write_keys
from .layer_parts import Attention, write_attention_layer, write_embedding, write_sizes, write_swiglu
from .transformer import read_rope

KEYS = """
    hidden_act rms_norm_eps num_attention_heads num_key_value_heads head_dim attention_bias rope_theta rope_scaling rope_parameters
    layer_types linear_allow_neg_eigval linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim linear_num_key_heads
    linear_num_value_heads linear_a_log_max linear_a_log_min linear_dt_init_floor linear_dt_max linear_dt_min
"""
OUTPUT_NORM_EPS = 1e-5                     # fixed in the module, not rms_norm_eps


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "gated_delta_net", KEYS)
    eigenvalues.decide(m, option, "linear_allow_neg_eigval", default=True)
    layers = m.count_layers("model.layers.")
    kinds = m.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) != layers or not all(k in ("linear_attention", "full_attention") for k in kinds):
        raise ModelError(f"config.json: layer_types is {kinds!r}, expected linear_attention or full_attention for each of {layers} layers")
    if "linear_attention" not in kinds:
        raise ModelError("config.json: layer_types has no linear_attention layer")
    D, V = write_embedding(m, "model.embed_tokens.weight")
    F = m.shape("model.layers.0.mlp.down_proj.weight", 2)[1]
    eps = m.positive("rms_norm_eps", 1e-6)
    write_sizes(m, layers, D, V, eps, F, "olmo_hybrid")
    trained = m.get("max_position_embeddings")
    m.trained_length = trained if isinstance(trained, int) else None
    m.set_array("lrnn.layer_kinds", "str", ["recurrent" if k == "linear_attention" else "attention" for k in kinds])

    attention = None
    if "full_attention" in kinds:
        first = f"model.layers.{kinds.index('full_attention')}.self_attn."
        heads = m.count("num_attention_heads")
        hd = m.shape(first + "q_proj.weight", 2)[0] // heads
        # q_norm and k_norm reach over all heads; RoPE only where theta is set (the released model has none)
        theta, factors = read_rope(m, hd, default=None)
        attention = Attention(heads, m.count("num_key_value_heads", heads), hd, None, theta, "all", eps, factors)

    m.put("output_norm.weight", "model.norm.weight", (D,))
    for i, kind in enumerate(kinds):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        if kind == "linear_attention":
            m.put(dst + "attn_norm.weight", src + "attention_layer_norm.weight", (D,))
            _linear_layer(m, dst, src + "linear_attn.", D)
            m.put(dst + "ffn_norm.weight", src + "feedforward_layer_norm.weight", (D,))
        else:
            write_attention_layer(m, attention, dst, src + "self_attn.", D)
            # transformers 5.22 saves this norm under the linear layers' name
            post = "post_attention_layernorm.weight" if m.has(src + "post_attention_layernorm.weight") else "feedforward_layer_norm.weight"
            m.put(dst + "attn_post_norm.weight", src + post, (D,))
            m.put(dst + "ffn_post_norm.weight", src + "post_feedforward_layernorm.weight", (D,))
        write_swiglu(m, dst, src + "mlp.", D, F)
    if attention is not None:
        attention.write(m)
        m.fact("layers", f"attention in {[i for i, k in enumerate(kinds) if k == 'full_attention']}, recurrent in the others")
    return m


def _cut(begin: int, end: int) -> How:
    return How(lambda s: (end - begin, conv_width(s[0][2])), lambda a: conv_taps(np.concatenate(a, axis=0)[begin:end]))


def _linear_layer(m: Model, dst: str, src: str, D: int) -> None:
    H = m.count("linear_num_key_heads")
    HV = m.shape(src + "b_proj.weight", 2)[0]
    key_dim, value_dim = m.shape(src + "q_proj.weight", 2)[0], m.shape(src + "v_proj.weight", 2)[0]
    if key_dim % H or value_dim % HV or HV % H:
        raise ModelError(f"{m.checkpoint.name}: {src} has {key_dim} key and {value_dim} value channels, "
                         f"expected multiples of {H} and {HV} heads")
    m.rows(dst, src, [
        ("attn_q.weight",      "q_proj.weight", (key_dim, D)),
        ("attn_k.weight",      "k_proj.weight", (key_dim, D)),
        ("attn_v.weight",      "v_proj.weight", (value_dim, D)),
        ("ssm_beta.weight",    "b_proj.weight", (HV, D)),
        ("ssm_alpha.weight",   "a_proj.weight", (HV, D)),
        ("ssm_a",              "A_log",         (HV,), NEG_EXP_FLAT),      # g = -exp(A_log) softplus(a + dt_bias)
        ("ssm_dt.bias",        "dt_bias",       (HV,), FLAT),
        ("attn_gate.weight",   "g_proj.weight", (value_dim, D)),
        ("ssm_norm.weight",    "o_norm.weight", (value_dim // HV,)),
        ("attn_output.weight", "o_proj.weight", (D, value_dim)),
    ])
    W = m.shape(src + "q_conv1d.weight", 3)[2]
    convs = [src + f"{c}_conv1d.weight" for c in "qkv"]
    rows = [m.shape(name, 3)[0] for name in convs]
    if rows == [key_dim, key_dim, value_dim]:
        for c, name, n in zip("qkv", convs, rows, strict=True):
            m.put(f"{dst}ssm_conv1d_{c}.weight", name, (n, 1, W), CONV)
    elif sum(rows) == 2 * key_dim + value_dim:
        # three equal thirds of q | k | v: join them and cut where they belong
        shapes = [(n, 1, W) for n in rows]
        at = 0
        for c, n in zip("qkv", (key_dim, key_dim, value_dim), strict=True):
            m.put(f"{dst}ssm_conv1d_{c}.weight", convs, shapes, _cut(at, at + n))
            at += n
        if not any("thirds" in note for note in m.notes):
            m.notes.append("the convolutions were saved in equal thirds (transformers 5.22), they were joined and cut again")
    else:
        raise ModelError(f"{m.checkpoint.name}: tensors {src}q|k|v_conv1d.weight have {rows} channels, "
                         f"expected {[key_dim, key_dim, value_dim]}")
    if "lrnn.head_count" not in m.kv:
        write_keys(m, H, HV, key_dim // H, value_dim // HV, conv_width(W), "silu", OUTPUT_NORM_EPS)
