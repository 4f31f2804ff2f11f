"""OLMo-Hybrid (transformers `olmo_hybrid`): pre-norm Gated DeltaNet layers and post-norm attention
layers.

Two layouts exist, which the tensors distinguish: the released one, and that of transformers 5.22,
which renames a norm and splits the convolutions wrongly.
"""

import numpy as np

from .. import eigenvalues
from ..errors import ModelError, shown
from ..model import Model
from ..transforms import CONV, Transform, conv_taps, conv_width
from .gated_delta_net import FAMILY, write_gates, write_keys
from .layer_parts import (Attention, attention_fact, write_attention_layer, write_embedding,
                          write_output, write_projections, write_sizes, write_swiglu)
from .transformer import read_rope, read_trained_length

KEYS = """
    hidden_act rms_norm_eps num_attention_heads num_key_value_heads head_dim attention_bias
    rope_theta rope_scaling rope_parameters layer_types linear_allow_neg_eigval
    linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim linear_num_key_heads
    linear_num_value_heads linear_a_log_max linear_a_log_min linear_dt_init_floor linear_dt_max
    linear_dt_min
"""
OUTPUT_NORM_EPS = 1e-5                     # fixed in the module, not rms_norm_eps


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option, "linear_allow_neg_eigval", default=True)
    layers = m.count_layers("model.layers.")
    kinds = m.get("layer_types")
    if (not isinstance(kinds, list) or len(kinds) != layers
            or not all(k in ("linear_attention", "full_attention") for k in kinds)):
        raise ModelError(f"config.json: layer_types is {shown(kinds)}; expected linear_attention "
                         f"or full_attention for each of {layers} layers")
    if "linear_attention" not in kinds:
        raise ModelError("config.json: layer_types has no linear_attention layer")
    D, V = write_embedding(m, "model.embed_tokens.weight")
    F = m.shape("model.layers.0.mlp.down_proj.weight", 2)[1]
    eps = m.positive("rms_norm_eps", 1e-6)
    write_sizes(m, layers, D, V, eps, F, "olmo_hybrid")
    read_trained_length(m)
    m.set_array("lrnn.layer_kinds", "str",
                ["recurrent" if k == "linear_attention" else "attention" for k in kinds])

    attention = None
    if "full_attention" in kinds:
        first = f"model.layers.{kinds.index('full_attention')}.self_attn."
        heads = m.count("num_attention_heads")
        hd = m.shape(first + "q_proj.weight", 2)[0] // heads
        # Released files say rope_parameters = null, {"rope_type": null} or {"rope_theta": null} for
        # no RoPE. Without any of these keys transformers had no RoPE at first, and has theta 10000
        # now.
        if not any(key in m.config for key in ("rope_parameters", "rope_theta", "rope_scaling")):
            raise ModelError("config.json: rope_parameters is missing; expected an object, or null "
                             "for no RoPE")
        # q_norm and k_norm span all heads
        theta, factors = read_rope(m, hd, default=None)
        attention = Attention(heads, m.count("num_key_value_heads", heads), hd, None, theta, "all",
                              eps, factors)

    m.put("output_norm.weight", "model.norm.weight", (D,))
    for i, kind in enumerate(kinds):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        if kind == "linear_attention":
            m.put(dst + "attn_norm.weight", src + "attention_layer_norm.weight", (D,))
            _recurrent_layer(m, dst, src + "linear_attn.", D)
            m.put(dst + "ffn_norm.weight", src + "feedforward_layer_norm.weight", (D,))
        else:
            write_attention_layer(m, attention, dst, src + "self_attn.", D)
            # transformers 5.22 saves this norm under the name of the linear layers' norm
            post = src + "post_attention_layernorm.weight"
            if not m.has(post):
                post = src + "feedforward_layer_norm.weight"
            m.put(dst + "attn_post_norm.weight", post, (D,))
            m.put(dst + "ffn_post_norm.weight", src + "post_feedforward_layernorm.weight", (D,))
        write_swiglu(m, dst, src + "mlp.", D, F)
    if attention is not None:
        attention.write(m)
        attention_fact(m, [i for i, k in enumerate(kinds) if k == "full_attention"])
    return m


def _conv_part(begin: int, end: int) -> Transform:
    """Channels of the concatenated convolutions."""
    return Transform(lambda s: (end - begin, conv_width(s[0][2])),
                     lambda a: conv_taps(np.concatenate(a, axis=0)[begin:end]))


def _recurrent_layer(m: Model, dst: str, src: str, D: int) -> None:
    H = m.count("linear_num_key_heads", m.count("num_attention_heads"))
    HV = m.shape(src + "b_proj.weight", 2)[0]
    key_dim = m.shape(src + "q_proj.weight", 2)[0]
    value_dim = m.shape(src + "v_proj.weight", 2)[0]
    if key_dim % H or value_dim % HV or HV % H:
        raise ModelError(f"{m.checkpoint.name}: {src} has {key_dim} key and {value_dim} value "
                         f"channels; expected multiples of {H} and {HV} heads")
    write_projections(m, dst, src, D, key_dim, key_dim, value_dim)
    write_gates(m, dst, src, D, HV)
    write_output(m, dst, src, D, value_dim, value_dim // HV, gate=True)

    W = m.shape(src + "q_conv1d.weight", 3)[2]
    convs = [src + f"{c}_conv1d.weight" for c in "qkv"]
    found = [m.shape(name, 3)[0] for name in convs]
    expected = [key_dim, key_dim, value_dim]
    if found == expected:
        for c, name, n in zip("qkv", convs, found, strict=True):
            m.put(f"{dst}ssm_conv1d_{c}.weight", name, (n, 1, W), CONV)
    elif sum(found) == sum(expected):
        # equal thirds of q | k | v: join them and split them at the right channels
        shapes = [(n, 1, W) for n in found]
        at = 0
        for c, n in zip("qkv", expected, strict=True):
            m.put(f"{dst}ssm_conv1d_{c}.weight", convs, shapes, _conv_part(at, at + n))
            at += n
        if not any("thirds" in note for note in m.notes):
            m.notes.append("the convolutions were saved in equal thirds (transformers 5.22), they "
                           "were joined and cut again")
    else:
        raise ModelError(f"{m.checkpoint.name}: tensors {src}q|k|v_conv1d.weight have {found} "
                         f"channels; expected {expected}")
    if "lrnn.head_count" not in m.kv:
        write_keys(m, H, HV, key_dim // H, value_dim // HV, conv_width(W), "silu", OUTPUT_NORM_EPS)


MODEL_TYPES = {"olmo_hybrid": convert}
