"""DeltaNet (fla `delta_net`):  S = (I - β k kᵀ) S + β k vᵀ,  o = Sᵀ q / √K."""

from ..family import Family, Range
from ..model import Model
from .layer_parts import (convert_fla, head_length, mixer_facts, write_conv, write_heads,
                          write_output, write_projections)

FAMILY = Family("delta_net", Range.BY_KEY)

# use_output_norm: fla never reads it; the norm is always there
KEYS = """
    expand_k expand_v num_heads use_gate use_short_conv use_beta qk_norm qk_activation
    allow_neg_eigval use_output_norm
"""

# goes into the file
UNRELIABLE_KEY = ("fla's DeltaNet ignored allow_neg_eigval in config.json until 2026-04: a model "
                  "trained before may say true and have been trained in [0,1], or say nothing and "
                  "have been trained in [-1,1]; --eigenvalues signed or unsigned overrides")


def convert(checkpoint, option: str) -> Model:
    m = convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)
    if option == "auto":
        m.notes.append(UNRELIABLE_KEY)
    return m


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 16)
    key_dim, K = head_length(m, src + "q_proj.weight", H)
    value_dim, P = head_length(m, src + "v_proj.weight", H)
    beta = m.flag(("use_beta",), src + "b_proj.weight")
    gate = m.flag(("use_gate",), src + "g_proj.weight")

    write_projections(m, dst, src, D, key_dim, key_dim, value_dim)
    if beta:
        m.put(dst + "ssm_beta.weight", src + "b_proj.weight", (H, D))
    width = write_conv(m, dst, src, ("q", key_dim), ("k", key_dim), ("v", value_dim))
    write_output(m, dst, src, D, value_dim, P, gate)

    if "lrnn.head_count" not in m.kv:
        activation = m.choice("qk_activation", "silu",
                              {a: a for a in ("silu", "relu", "elu", "identity")})
        norm = m.choice("qk_norm", "l2", {"l2": "l2", "sum": "sum"})
        write_heads(m, H, K, P)
        m.set_bool("lrnn.beta", beta)
        m.set_str("lrnn.qk_activation", activation)
        m.set_str("lrnn.qk_norm", norm)
        m.set_u32("lrnn.conv_width", width)
        m.set_str("lrnn.output_gate", "silu" if gate else "none")
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        mixer_facts(m, "n_h 1", f"{H}, d_k × d_v {K} × {P}", "none" if beta else "none, β = 1",
                    width)
        m.fact("keys", f"activation {activation}, norm {norm}")


MODEL_TYPES = {"delta_net": convert}
