"""Kimi delta attention (fla `kda`): the gated delta rule with a gate for every key channel."""

from .. import eigenvalues
from ..errors import ModelError
from ..model import Model
from ..transforms import FLAT, NEG_EXP_FLAT
from .layer_parts import SHELL_KEYS, conv_fact, convert_shell, divide, write_conv

KEYS = SHELL_KEYS + " expand_v head_dim num_heads num_v_heads use_short_conv allow_neg_eigval safe_gate lower_bound"
# safe_gate only selects a kernel


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "kda", KEYS)
    eigenvalues.decide(m, option, "allow_neg_eigval", default=False)
    convert_shell(m, _mixer)
    return m


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 16)
    key_dim, value_dim = m.shape(src + "q_proj.weight", 2)[0], m.shape(src + "v_proj.weight", 2)[0]
    HV = m.shape(src + "b_proj.weight", 2)[0]
    K = divide(m, src + "q_proj.weight", key_dim, H, "num_heads")
    P = divide(m, src + "v_proj.weight", value_dim, HV, "value heads")
    if HV % H:
        raise ModelError(f"{m.checkpoint.name}: {HV} value heads, expected a multiple of {H} key heads")
    R = m.shape(src + "f_proj.0.weight", 2)[0]
    G = m.shape(src + "g_proj.0.weight", 2)[0]

    m.rows(dst, src, [
        ("attn_q.weight",   "q_proj.weight",   (key_dim, D)),
        ("attn_k.weight",   "k_proj.weight",   (key_dim, D)),
        ("attn_v.weight",   "v_proj.weight",   (value_dim, D)),
        ("ssm_beta.weight", "b_proj.weight",   (HV, D)),
        # gate: low rank, then g = -exp(A_log) softplus(f + dt_bias), or lower_bound σ(exp(A_log) (f + dt_bias))
        ("ssm_f_a.weight",  "f_proj.0.weight", (R, D)),
        ("ssm_f_b.weight",  "f_proj.1.weight", (HV * K, R)),
        ("ssm_a",           "A_log",           (HV,), NEG_EXP_FLAT),       # Kimi-Linear keeps [1, 1, H, 1]
        ("ssm_dt.bias",     "dt_bias",         (HV * K,), FLAT),
        # output gate: low rank, sigmoid
        ("ssm_g_a.weight",  "g_proj.0.weight", (G, D)),
        ("ssm_g_b.weight",  "g_proj.1.weight", (value_dim, G)),
    ])
    m.put_if_there(dst + "ssm_g_b.bias", src + "g_proj.1.bias", (value_dim,))
    width = write_conv(m, dst, src, [
        ("ssm_conv1d_q", "q_conv1d", key_dim),
        ("ssm_conv1d_k", "k_conv1d", key_dim),
        ("ssm_conv1d_v", "v_conv1d", value_dim),
    ])
    m.put(dst + "ssm_norm.weight", src + "o_norm.weight", (P,))
    m.put(dst + "attn_output.weight", src + "o_proj.weight", (D, value_dim))

    if "lrnn.head_count" not in m.kv:
        m.set_u32("lrnn.head_count", H)
        m.set_u32("lrnn.head_count_value", HV)
        m.set_u32("lrnn.key_length", K)
        m.set_u32("lrnn.value_length", P)
        m.set_u32("lrnn.conv_width", width)
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        bound = m.get("lower_bound")
        if bound is not None:
            m.set_f32("lrnn.gate_lower_bound", m.number("lower_bound"))
        m.fact("factors", "n_h 1")
        m.fact("heads", f"{H} (value heads {HV}), d_k × d_v {K} × {P}")
        m.fact("gate", "one a key channel" + ("" if bound is None else f", bounded below by {bound}"))
        m.fact("conv", conv_fact(width))
