"""HGRN2 (fla `hgrn2`):  g = lb + (1 - lb) σ(f),  k = 1 - g,  S[k] = g[k] S[k] + k[k] v."""

import numpy as np

from .. import eigenvalues
from ..model import Model
from ..transforms import How
from .layer_parts import SHELL_KEYS, conv_fact, convert_shell, divide, write_conv

KEYS = SHELL_KEYS + " expand_ratio num_heads use_lower_bound use_short_conv elementwise_affine"

OUTPUT_NORM_EPS = 1e-5                     # the fused call drops norm_eps


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "hgrn2", KEYS)
    eigenvalues.decide(m, option)
    convert_shell(m, _mixer)
    return m


def _lower_bound(layer: int, n: int) -> How:
    """lb = cumsum over layers of softmax over layers, less layer 0: what the network computes once from all layers' logits."""

    def apply(a):
        x = a[0].astype(np.float64)
        p = np.exp(x - x.max(axis=0))
        p /= p.sum(axis=0)
        return p[1 : layer + 1].sum(axis=0).astype(np.float32)

    return How(lambda s: (n,), apply)


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    key_dim, value_dim = m.shape(src + "f_proj.weight", 2)[0], m.shape(src + "i_proj.weight", 2)[0]
    H = m.count("num_heads", max(1, key_dim // m.count("expand_ratio", 128)))
    K = divide(m, src + "f_proj.weight", key_dim, H, "num_heads")
    P = divide(m, src + "i_proj.weight", value_dim, H, "num_heads")
    m.rows(dst, src, [
        ("attn_q.weight",      "q_proj.weight", (key_dim, D)),
        ("ssm_f.weight",       "f_proj.weight", (key_dim, D)),             # k = 1 - gate: there is no key projection
        ("attn_v.weight",      "i_proj.weight", (value_dim, D)),
        ("attn_output.weight", "o_proj.weight", (D, value_dim)),
    ])
    if m.flag(("elementwise_affine",), src + "g_norm.weight"):
        m.put(dst + "ssm_norm.weight", src + "g_norm.weight", (value_dim,))    # over all heads at once
    else:
        m.constant(dst + "ssm_norm.weight", (value_dim,), 1.0)
    width = write_conv(m, dst, src, [
        ("ssm_conv1d_q", "q_conv1d", key_dim),
        ("ssm_conv1d_f", "f_conv1d", key_dim),
        ("ssm_conv1d_v", "i_conv1d", value_dim),
    ])
    bounded = m.flag(("use_lower_bound",), "model.lower_bounds")
    if bounded:
        layers = m.kv["lrnn.block_count"][1]
        m.drop("model.lower_bounds")
        if layer > 0:                      # layer 0 has no bound
            m.put(dst + "ssm_lower_bound.weight", "model.lower_bounds", (layers, key_dim), _lower_bound(layer, key_dim))

    if "lrnn.head_count" not in m.kv:
        m.set_u32("lrnn.head_count", H)
        m.set_u32("lrnn.key_length", K)
        m.set_u32("lrnn.value_length", P)
        m.set_u32("lrnn.conv_width", width)
        m.set_f32("lrnn.output_norm_epsilon", OUTPUT_NORM_EPS)
        m.fact("factors", "n_h 0 (diagonal)")
        m.fact("heads", f"{H}, d_k × d_v {K} × {P}")
        m.fact("gate", "one a key channel" + (", bounded below" if bounded else ""))
        m.fact("conv", conv_fact(width))
