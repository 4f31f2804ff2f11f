"""Gated linear attention (fla `gla`):  S[k] = e^{gk[k]} S[k] + k[k] v,  gk = logσ(low rank x) / 16.
"""

from ..errors import ModelError
from ..family import Family, Range
from ..model import Model
from .layer_parts import (DIAGONAL, SWISH, convert_fla, count_kv_heads, head_length, mixer_facts,
                          write_conv, write_heads, write_projections)

FAMILY = Family("gla", Range.BY_OPTION)

# use_gk, use_gv: fla ignores them; the key gate is always there, the value gate never
KEYS = """
    expand_k expand_v num_heads num_kv_heads feature_map use_short_conv use_output_gate clamp_min
    elementwise_affine use_gk use_gv
"""

FEATURE_MAPS = {"identity": "identity", "relu": "relu", "silu": "silu", "swish": "silu"}

GATE_NORMALIZER = 16.0                     # fixed in the layer, not in config.json


def convert(checkpoint, option: str) -> Model:
    return convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)


def write_gated_output(m: Model, dst: str, src: str, D: int, value_dim: int, P: int) -> str:
    """Writes output gate, norm and projection of GLA and RetNet; returns the gate's activation."""
    gate = m.flag(("use_output_gate",), src + "g_proj.weight")
    if gate:
        m.put(dst + "attn_gate.weight", src + "g_proj.weight", (value_dim, D))
    # two names of one norm: the first belongs to the kernel fused with the gate
    norms = [n for n in ("g_norm_swish_gate.weight", "g_norm.weight") if m.has(src + n)]
    affine = m.truth("elementwise_affine", True)
    if affine != bool(norms):
        state = "present" if norms else "missing"
        raise ModelError(f"config.json: elementwise_affine is {affine}, but tensor "
                         f"{src}g_norm.weight is {state}")
    if affine:
        m.put(dst + "ssm_norm.weight", src + norms[0], (P,))
    else:
        m.constant(dst + "ssm_norm.weight", (P,), 1.0)
    m.put(dst + "attn_output.weight", src + "o_proj.weight", (D, value_dim))
    return m.choice("hidden_act", "swish", SWISH) if gate else "none"


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 4)
    KV = count_kv_heads(m, H)
    key_dim, K = head_length(m, src + "q_proj.weight", H)
    _, P = head_length(m, src + "v_proj.weight", KV, "num_kv_heads")
    R = m.shape(src + "gk_proj.0.weight", 2)[0]

    write_projections(m, dst, src, D, key_dim, KV * K, KV * P)
    m.rows(dst, src, [
        ("ssm_f_a.weight", "gk_proj.0.weight", (R, D)),
        ("ssm_f_b.weight", "gk_proj.1.weight", (KV * K, R)),
        ("ssm_f_b.bias",   "gk_proj.1.bias",   (KV * K,)),
    ])
    width = write_conv(m, dst, src, ("q", key_dim), ("k", KV * K), ("v", KV * P))
    gate = write_gated_output(m, dst, src, D, H * P, P)

    if "lrnn.head_count" not in m.kv:
        write_heads(m, H, K, P, ("lrnn.head_count_kv", KV))
        m.set_str("lrnn.feature_map", m.choice("feature_map", "identity", FEATURE_MAPS))
        m.set_u32("lrnn.conv_width", width)
        m.set_str("lrnn.output_gate", gate)
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        m.set_f32("lrnn.gate_normalizer", GATE_NORMALIZER)
        if m.get("clamp_min") is not None:
            m.set_f32("lrnn.gate_clamp_min", m.number("clamp_min"))
        mixer_facts(m, DIAGONAL, f"{H} (key and value heads {KV}), d_k × d_v {K} × {P}",
                    "one per key channel", width)


MODEL_TYPES = {"gla": convert}
