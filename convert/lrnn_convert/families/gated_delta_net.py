"""Gated DeltaNet (fla `gated_deltanet`):  S = e^g (I - β k kᵀ) S + β k vᵀ, one gate g per value
head."""

from ..family import Family, Range
from ..model import Model
from ..transforms import FLAT, NEG_EXP_FLAT
from .layer_parts import (check_groups, convert_fla, head_length, mixer_facts, write_conv,
                          write_heads, write_output, write_projections)

FAMILY = Family("gated_delta_net", Range.BY_KEY)

KEYS = """
    expand_v head_dim num_heads num_v_heads use_gate use_short_conv allow_neg_eigval
    output_gate_activation
"""

OUTPUT_GATES = {"swish": "silu", "silu": "silu", "sigmoid": "sigmoid"}


def convert(checkpoint, option: str) -> Model:
    return convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    m.drop(src + "D")                      # [H], before 2025-03; the network never reads it
    gate = "none"
    if m.flag(("use_gate",), src + "g_proj.weight"):
        gate = m.choice("output_gate_activation", "swish", OUTPUT_GATES)
    H = m.count("num_heads", 6)
    key_dim, K = head_length(m, src + "q_proj.weight", H, "key heads")
    HV = m.shape(src + "b_proj.weight", 2)[0]
    value_dim, P = head_length(m, src + "v_proj.weight", HV, "value heads")
    check_groups(m, H, HV)

    # value head h uses key head h / (HV/H), as in the file: rows keep their order
    write_projections(m, dst, src, D, key_dim, key_dim, value_dim)
    write_gates(m, dst, src, D, HV)
    width = write_conv(m, dst, src, ("q", key_dim), ("k", key_dim), ("v", value_dim))
    write_output(m, dst, src, D, value_dim, P, gate != "none")
    if "lrnn.head_count" not in m.kv:
        write_keys(m, H, HV, K, P, width, gate, m.positive("norm_eps", 1e-6))


def write_gates(m: Model, dst: str, src: str, D: int, HV: int) -> None:
    """β, and the gate g = -exp(A_log) softplus(a + dt_bias)."""
    m.put(dst + "ssm_beta.weight", src + "b_proj.weight", (HV, D))
    write_forget_gate(m, dst, src, D, HV)


def write_forget_gate(m: Model, dst: str, src: str, D: int, n: int) -> None:
    m.rows(dst, src, [
        ("ssm_alpha.weight", "a_proj.weight", (n, D)),
        ("ssm_a",            "A_log",         (n,), NEG_EXP_FLAT),
        ("ssm_dt.bias",      "dt_bias",       (n,), FLAT),
    ])


def write_keys(m: Model, H: int, HV: int, K: int, P: int, width: int, gate: str,
               norm_eps: float) -> None:
    write_heads(m, H, K, P, ("lrnn.head_count_value", HV))
    m.set_u32("lrnn.conv_width", width)
    m.set_str("lrnn.output_gate", gate)
    m.set_f32("lrnn.output_norm_epsilon", norm_eps)
    mixer_facts(m, "n_h 1", f"{H} (value heads {HV}), d_k × d_v {K} × {P}", "one per head", width)


MODEL_TYPES = {"gated_deltanet": convert}
