"""DeltaNet (fla `delta_net`):  S = (I - β k kᵀ) S + β k vᵀ,  o = Sᵀ q / √K."""

from .. import eigenvalues
from ..model import Model
from .layer_parts import SHELL_KEYS, conv_fact, convert_shell, divide, write_conv

KEYS = SHELL_KEYS + """
    expand_k expand_v num_heads use_gate use_short_conv use_beta qk_norm qk_activation allow_neg_eigval use_output_norm
"""                                        # use_output_norm is never read by fla: the norm is always there


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "delta_net", KEYS)
    eigenvalues.decide(m, option, "allow_neg_eigval", default=False)
    convert_shell(m, _mixer)
    return m


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 16)
    key_dim, value_dim = m.shape(src + "q_proj.weight", 2)[0], m.shape(src + "v_proj.weight", 2)[0]
    K = divide(m, src + "q_proj.weight", key_dim, H, "num_heads")
    P = divide(m, src + "v_proj.weight", value_dim, H, "num_heads")
    beta = m.flag(("use_beta",), src + "b_proj.weight")
    gate = m.flag(("use_gate",), src + "g_proj.weight")

    m.rows(dst, src, [
        ("attn_q.weight", "q_proj.weight", (key_dim, D)),
        ("attn_k.weight", "k_proj.weight", (key_dim, D)),
        ("attn_v.weight", "v_proj.weight", (value_dim, D)),
    ])
    if beta:
        m.put(dst + "ssm_beta.weight", src + "b_proj.weight", (H, D))
    width = write_conv(m, dst, src, [
        ("ssm_conv1d_q", "q_conv1d", key_dim),
        ("ssm_conv1d_k", "k_conv1d", key_dim),
        ("ssm_conv1d_v", "v_conv1d", value_dim),
    ])
    if gate:
        m.put(dst + "attn_gate.weight", src + "g_proj.weight", (value_dim, D))
    m.put(dst + "ssm_norm.weight", src + "o_norm.weight", (P,))            # one weight, shared by all heads
    m.put(dst + "attn_output.weight", src + "o_proj.weight", (D, value_dim))

    if "lrnn.head_count" not in m.kv:
        activation = m.choice("qk_activation", "silu", {a: a for a in ("silu", "relu", "elu", "identity")})
        norm = m.choice("qk_norm", "l2", {"l2": "l2", "sum": "sum"})
        m.set_u32("lrnn.head_count", H)
        m.set_u32("lrnn.key_length", K)
        m.set_u32("lrnn.value_length", P)
        m.set_bool("lrnn.beta", beta)
        m.set_str("lrnn.qk_activation", activation)
        m.set_str("lrnn.qk_norm", norm)
        m.set_u32("lrnn.conv_width", width)
        m.set_str("lrnn.output_gate", "silu" if gate else "none")
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        m.fact("factors", "n_h 1")
        m.fact("heads", f"{H}, d_k × d_v {K} × {P}")
        m.fact("gate", "none" if beta else "none, β = 1")
        m.fact("conv", conv_fact(width))
        m.fact("keys", f"activation {activation}, norm {norm}")
