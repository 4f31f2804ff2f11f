"""RetNet (fla `retnet`):  S = γ_h S + k vᵀ with γ_h = 1 - 2^(-5-h), rotated q and k."""

from .. import eigenvalues
from ..errors import ModelError
from ..model import Model
from ..transforms import SAME, repeat_heads
from .gla import FEATURE_MAPS, write_output
from .layer_parts import SHELL_KEYS, SWISH, convert_shell, divide

KEYS = SHELL_KEYS + " expand_k expand_v num_heads num_kv_heads feature_map use_short_conv use_output_gate elementwise_affine"
# use_short_conv is not handed to the layer: it has no effect

ROPE_THETA = 10000.0                       # fixed in the layer


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "retnet", KEYS)
    eigenvalues.decide(m, option)
    convert_shell(m, _mixer)
    return m


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 8)
    KV = m.count("num_kv_heads", H)
    if H % KV:
        raise ModelError(f"config.json: num_heads is {H}, expected a multiple of num_kv_heads {KV}")
    key_dim = m.shape(src + "q_proj.weight", 2)[0]
    K = divide(m, src + "q_proj.weight", key_dim, H, "num_heads")
    P = divide(m, src + "v_proj.weight", m.shape(src + "v_proj.weight", 2)[0], KV, "num_kv_heads")
    # the gate differs from head to head, so shared keys and values have no shared state: repeating them loses nothing
    repeat = SAME if KV == H else repeat_heads(KV, H // KV)
    m.rows(dst, src, [
        ("attn_q.weight", "q_proj.weight", (key_dim, D)),
        ("attn_k.weight", "k_proj.weight", (KV * K, D), repeat),
        ("attn_v.weight", "v_proj.weight", (KV * P, D), repeat),
    ])
    gate = write_output(m, dst, src, D, H * P, P)

    if "lrnn.head_count" not in m.kv:
        m.set_u32("lrnn.head_count", H)
        m.set_u32("lrnn.key_length", K)
        m.set_u32("lrnn.value_length", P)
        m.set_str("lrnn.feature_map", m.choice("feature_map", "identity", FEATURE_MAPS))
        m.set_str("lrnn.output_gate", m.choice("hidden_act", "swish", SWISH) if gate else "none")
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        m.set_f32("lrnn.rope_theta", ROPE_THETA)
        m.fact("factors", "n_h 0 (diagonal)")
        m.fact("heads", f"{H}, d_k × d_v {K} × {P}")
        m.fact("gate", "a constant a head")
        m.fact("conv", "none")
