"""Gated DeltaNet (fla `gated_deltanet`):  S = e^g (I - β k kᵀ) S + β k vᵀ, one gate g a value head."""

from .. import eigenvalues
from ..errors import ModelError
from ..model import Model
from ..transforms import FLAT, NEG_EXP_FLAT
from .layer_parts import SHELL_KEYS, conv_fact, convert_shell, divide, write_conv

KEYS = SHELL_KEYS + " expand_v head_dim num_heads num_v_heads use_gate use_short_conv allow_neg_eigval output_gate_activation"

OUTPUT_GATES = {"swish": "silu", "silu": "silu", "sigmoid": "sigmoid"}


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "gated_delta_net", KEYS)
    eigenvalues.decide(m, option, "allow_neg_eigval", default=False)
    convert_shell(m, _mixer)
    return m


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    m.drop(src + "D")                      # [H], before 2025-03; the network never reads it
    gate = m.choice("output_gate_activation", "swish", OUTPUT_GATES) if m.flag(("use_gate",), src + "g_proj.weight") else "none"
    write_layer(m, dst, src, D, m.count("num_heads", 6), gate, m.positive("norm_eps", 1e-6))


def write_layer(m: Model, dst: str, src: str, D: int, H: int, gate: str, norm_eps: float) -> None:
    key_dim, value_dim = m.shape(src + "q_proj.weight", 2)[0], m.shape(src + "v_proj.weight", 2)[0]
    HV = m.shape(src + "b_proj.weight", 2)[0]
    K = divide(m, src + "q_proj.weight", key_dim, H, "key heads")
    P = divide(m, src + "v_proj.weight", value_dim, HV, "value heads")
    if HV % H:
        raise ModelError(f"{m.checkpoint.name}: {HV} value heads, expected a multiple of {H} key heads")

    m.rows(dst, src, [
        ("attn_q.weight",    "q_proj.weight", (key_dim, D)),
        ("attn_k.weight",    "k_proj.weight", (key_dim, D)),
        # value head h uses key head h / (HV/H), as in the file: rows keep their order
        ("attn_v.weight",    "v_proj.weight", (value_dim, D)),
        ("ssm_beta.weight",  "b_proj.weight", (HV, D)),
        ("ssm_alpha.weight", "a_proj.weight", (HV, D)),
        # g = -exp(A_log) softplus(a + dt_bias)
        ("ssm_a",            "A_log",         (HV,), NEG_EXP_FLAT),
        ("ssm_dt.bias",      "dt_bias",       (HV,), FLAT),
    ])
    width = write_conv(m, dst, src, [
        ("ssm_conv1d_q", "q_conv1d", key_dim),
        ("ssm_conv1d_k", "k_conv1d", key_dim),
        ("ssm_conv1d_v", "v_conv1d", value_dim),
    ])
    if gate != "none":
        m.put(dst + "attn_gate.weight", src + "g_proj.weight", (value_dim, D))
    m.put(dst + "ssm_norm.weight", src + "o_norm.weight", (P,))
    m.put(dst + "attn_output.weight", src + "o_proj.weight", (D, value_dim))

    if "lrnn.head_count" not in m.kv:
        write_keys(m, H, HV, K, P, width, gate, norm_eps)


def write_keys(m: Model, H: int, HV: int, K: int, P: int, width: int, gate: str, norm_eps: float) -> None:
    m.set_u32("lrnn.head_count", H)
    m.set_u32("lrnn.head_count_value", HV)
    m.set_u32("lrnn.key_length", K)
    m.set_u32("lrnn.value_length", P)
    m.set_u32("lrnn.conv_width", width)
    m.set_str("lrnn.output_gate", gate)
    m.set_f32("lrnn.output_norm_epsilon", norm_eps)
    m.fact("factors", "n_h 1")
    m.fact("heads", f"{H} (value heads {HV}), d_k × d_v {K} × {P}")
    m.fact("gate", "one a head")
    m.fact("conv", conv_fact(width))
