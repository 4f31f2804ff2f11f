"""Kimi delta attention (fla `kda`): the gated delta rule with one gate per key channel."""

from ..family import Family, Range
from ..model import Model
from ..transforms import FLAT, NEG_EXP_FLAT
from .layer_parts import (check_groups, convert_fla, head_length, mixer_facts, write_conv,
                          write_heads, write_output, write_projections)

FAMILY = Family("kda", Range.BY_KEY)

# safe_gate only selects a kernel
KEYS = """
    expand_v head_dim num_heads num_v_heads use_short_conv allow_neg_eigval safe_gate lower_bound
"""


def convert(checkpoint, option: str) -> Model:
    return convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 16)
    key_dim, K = head_length(m, src + "q_proj.weight", H)
    HV = m.shape(src + "b_proj.weight", 2)[0]
    value_dim, P = head_length(m, src + "v_proj.weight", HV, "value heads")
    check_groups(m, H, HV)
    write_projections(m, dst, src, D, key_dim, key_dim, value_dim)
    m.rows(dst, src, [("ssm_beta.weight", "b_proj.weight", (HV, D))])
    write_gates(m, dst, src, D, HV, HV * K, value_dim)
    width = write_conv(m, dst, src, ("q", key_dim), ("k", key_dim), ("v", value_dim))
    write_output(m, dst, src, D, value_dim, P, gate=False)

    if "lrnn.head_count" not in m.kv:
        bound = m.get("lower_bound")
        write_keys(m, H, HV, K, P, width, "" if bound is None else f", bounded below by {bound}")
        if bound is not None:
            m.set_f32("lrnn.gate_lower_bound", m.number("lower_bound"))


def write_gates(m: Model, dst: str, src: str, D: int, n_gates: int, gate_dim: int,
                value_dim: int) -> None:
    """The gates of the state and of the output. n_gates: numbers in A_log."""
    R = m.shape(src + "f_proj.0.weight", 2)[0]
    G = m.shape(src + "g_proj.0.weight", 2)[0]
    m.rows(dst, src, [
        # gate: low rank, then g = -exp(A_log) softplus(f + dt_bias),
        # or with lower_bound g = lower_bound σ(exp(A_log) (f + dt_bias))
        ("ssm_f_a.weight",  "f_proj.0.weight", (R, D)),
        ("ssm_f_b.weight",  "f_proj.1.weight", (gate_dim, R)),
        ("ssm_a",           "A_log",           (n_gates,), NEG_EXP_FLAT),  # Kimi: [1, 1, H, 1]
        ("ssm_dt.bias",     "dt_bias",         (gate_dim,), FLAT),
        # output gate: low rank, sigmoid
        ("ssm_g_a.weight",  "g_proj.0.weight", (G, D)),
        ("ssm_g_b.weight",  "g_proj.1.weight", (value_dim, G)),
    ])
    m.put_optional(dst + "ssm_g_b.bias", src + "g_proj.1.bias", (value_dim,))


def write_keys(m: Model, H: int, HV: int, K: int, P: int, width: int, bound: str = "") -> None:
    write_heads(m, H, K, P, ("lrnn.head_count_value", HV))
    m.set_u32("lrnn.conv_width", width)
    m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
    mixer_facts(m, "n_h 1", f"{H} (value heads {HV}), d_k × d_v {K} × {P}",
                "one per key channel" + bound, width)


MODEL_TYPES = {"kda": convert}
