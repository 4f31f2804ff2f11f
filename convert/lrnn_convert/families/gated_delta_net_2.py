"""Gated DeltaNet-2 (fla's layer `GatedDeltaNet2`): KDA with two gates in place of β, one per key
channel for what is erased and one per value channel for what is written. fla has no model around
it; the checkpoint is its language model with this layer, with the model_type `gdn2`."""

from ..family import Family, Range
from ..model import Model
from ..transforms import FLAT, NEG_EXP_FLAT
from .layer_parts import (check_groups, convert_fla, head_length, mixer_facts, write_conv,
                          write_heads, write_output, write_projections)

FAMILY = Family("gated_delta_net_2", Range.BY_KEY)

KEYS = "expand_v head_dim num_heads num_v_heads use_short_conv allow_neg_eigval"


def convert(checkpoint, option: str) -> Model:
    return convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 16)
    HV = m.count("num_v_heads", H)
    key_dim, K = head_length(m, src + "q_proj.weight", H)
    value_dim, P = head_length(m, src + "v_proj.weight", HV, "num_v_heads")
    check_groups(m, H, HV)
    R = m.shape(src + "f_proj.0.weight", 2)[0]
    G = m.shape(src + "g_proj.0.weight", 2)[0]

    write_projections(m, dst, src, D, key_dim, key_dim, value_dim)
    m.rows(dst, src, [
        ("ssm_erase.weight", "b_proj.weight",   (key_dim, D)),
        ("ssm_write.weight", "w_proj.weight",   (value_dim, D)),
        ("ssm_f_a.weight",   "f_proj.0.weight", (R, D)),
        ("ssm_f_b.weight",   "f_proj.1.weight", (key_dim, R)),
        ("ssm_a",            "A_log",           (H,), NEG_EXP_FLAT),
        ("ssm_dt.bias",      "dt_bias",         (key_dim,), FLAT),
        ("ssm_g_a.weight",   "g_proj.0.weight", (G, D)),
        ("ssm_g_b.weight",   "g_proj.1.weight", (value_dim, G)),
    ])
    m.put_optional(dst + "ssm_g_b.bias", src + "g_proj.1.bias", (value_dim,))
    width = write_conv(m, dst, src, ("q", key_dim), ("k", key_dim), ("v", value_dim))
    write_output(m, dst, src, D, value_dim, P, gate=False)

    if "lrnn.head_count" not in m.kv:
        write_heads(m, H, K, P, ("lrnn.head_count_value", HV))
        m.set_u32("lrnn.conv_width", width)
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        mixer_facts(m, "n_h 1", f"{H} (value heads {HV}), d_k × d_v {K} × {P}",
                    "one per key channel", width)


MODEL_TYPES = {"gdn2": convert}
