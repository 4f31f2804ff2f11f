"""HGRN2 (fla `hgrn2`):  g = lb + (1 - lb) σ(f),  k = 1 - g,  S[k] = g[k] S[k] + k[k] v."""

import numpy as np

from ..family import Family, Range
from ..model import Model
from ..transforms import Transform
from .layer_parts import DIAGONAL, convert_fla, head_length, mixer_facts, write_conv, write_heads

FAMILY = Family("hgrn2", Range.UNSIGNED)

KEYS = "expand_ratio num_heads use_lower_bound use_short_conv elementwise_affine"

OUTPUT_NORM_EPS = 1e-5                     # the fused call ignores norm_eps


def convert(checkpoint, option: str) -> Model:
    return convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)


def _lower_bound(layer: int, n: int) -> Transform:
    """lb = cumulative sum over layers of softmax over layers, without layer 0. The network computes
    it once from the logits of all layers."""

    def apply(a):
        x = a[0].astype(np.float64)
        p = np.exp(x - x.max(axis=0))
        p /= p.sum(axis=0)
        return p[1 : layer + 1].sum(axis=0).astype(np.float32)

    return Transform(lambda s: (n,), apply)


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    key_dim = m.shape(src + "f_proj.weight", 2)[0]
    H = m.count("num_heads", max(1, key_dim // m.count("expand_ratio", 128)))
    _, K = head_length(m, src + "f_proj.weight", H)
    value_dim, P = head_length(m, src + "i_proj.weight", H)
    m.rows(dst, src, [
        ("attn_q.weight",      "q_proj.weight", (key_dim, D)),
        ("ssm_f.weight",       "f_proj.weight", (key_dim, D)),  # k = 1 - gate: no key projection
        ("attn_v.weight",      "i_proj.weight", (value_dim, D)),
        ("attn_output.weight", "o_proj.weight", (D, value_dim)),
    ])
    if m.flag(("elementwise_affine",), src + "g_norm.weight"):
        m.put(dst + "ssm_norm.weight", src + "g_norm.weight", (value_dim,))    # over all heads
    else:
        m.constant(dst + "ssm_norm.weight", (value_dim,), 1.0)
    width = write_conv(m, dst, src, ("q", key_dim), ("f", key_dim), ("vi", value_dim))
    bounded = m.flag(("use_lower_bound",), "model.lower_bounds")
    if bounded:
        layers = m.kv["lrnn.block_count"][1]
        m.drop("model.lower_bounds")
        if layer > 0:                      # layer 0 has no bound
            m.put(dst + "ssm_lower_bound.weight", "model.lower_bounds", (layers, key_dim),
                  _lower_bound(layer, key_dim))

    if "lrnn.head_count" not in m.kv:
        write_heads(m, H, K, P)
        m.set_u32("lrnn.conv_width", width)
        m.set_f32("lrnn.output_norm_epsilon", OUTPUT_NORM_EPS)
        mixer_facts(m, DIAGONAL, f"{H}, d_k × d_v {K} × {P}",
                    "one per key channel" + (", bounded below" if bounded else ""), width)


MODEL_TYPES = {"hgrn2": convert}
