"""RetNet (fla `retnet`):  S = γ_h S + k vᵀ with γ_h = 1 - 2^(-5-h), rotated q and k."""

from ..family import Family, Range
from ..model import Model
from ..transforms import SAME, repeat_heads
from .gla import FEATURE_MAPS, write_gated_output
from .layer_parts import (DIAGONAL, convert_fla, count_kv_heads, head_length, mixer_facts,
                          write_heads)

FAMILY = Family("retnet", Range.UNSIGNED)

# use_short_conv: fla does not pass it to the layer, so it has no effect
KEYS = """
    expand_k expand_v num_heads num_kv_heads feature_map use_short_conv use_output_gate
    elementwise_affine
"""

ROPE_THETA = 10000.0                       # fixed in the layer


def convert(checkpoint, option: str) -> Model:
    return convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 8)
    KV = count_kv_heads(m, H)
    key_dim, K = head_length(m, src + "q_proj.weight", H)
    _, P = head_length(m, src + "v_proj.weight", KV, "num_kv_heads")
    # the gate differs between heads, so shared keys and values share no state: repeat them
    repeat = SAME if KV == H else repeat_heads(KV, H // KV)
    m.rows(dst, src, [
        ("attn_q.weight", "q_proj.weight", (key_dim, D)),
        ("attn_k.weight", "k_proj.weight", (KV * K, D), repeat),
        ("attn_v.weight", "v_proj.weight", (KV * P, D), repeat),
    ])
    gate = write_gated_output(m, dst, src, D, H * P, P)

    if "lrnn.head_count" not in m.kv:
        write_heads(m, H, K, P)
        m.set_str("lrnn.feature_map", m.choice("feature_map", "identity", FEATURE_MAPS))
        m.set_str("lrnn.output_gate", gate)
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        m.set_f32("lrnn.rope_theta", ROPE_THETA)
        mixer_facts(m, DIAGONAL, f"{H}, d_k × d_v {K} × {P}", "one constant per head", "none")


MODEL_TYPES = {"retnet": convert}
