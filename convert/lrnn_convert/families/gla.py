"""Gated linear attention (fla `gla`):  S[k] = e^{gk[k]} S[k] + k[k] v,  gk = logσ(low rank x) / 16."""

from .. import eigenvalues
from ..errors import ModelError
from ..model import Model
from .layer_parts import SHELL_KEYS, SWISH, conv_fact, convert_shell, divide, write_conv

KEYS = SHELL_KEYS + """
    expand_k expand_v num_heads num_kv_heads feature_map use_short_conv use_output_gate clamp_min elementwise_affine use_gk use_gv
"""                                        # use_gk, use_gv are ignored by fla: the key gate is always there, the value gate never

FEATURE_MAPS = {"identity": "identity", "relu": "relu", "silu": "silu", "swish": "silu"}

GATE_NORMALIZER = 16.0                     # fixed in the layer, not in config.json


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "gla", KEYS)
    eigenvalues.decide(m, option)
    convert_shell(m, _mixer)
    return m


def write_output(m: Model, dst: str, src: str, D: int, value_dim: int, P: int) -> bool:
    """Output gate, norm and projection, as GLA and RetNet have them; gives whether there is a gate."""
    gate = m.flag(("use_output_gate",), src + "g_proj.weight")
    if gate:
        m.put(dst + "attn_gate.weight", src + "g_proj.weight", (value_dim, D))
    # two names for one norm: the first is the kernel fused with the gate
    norms = [n for n in ("g_norm_swish_gate.weight", "g_norm.weight") if m.has(src + n)]
    if norms:
        m.put(dst + "ssm_norm.weight", src + norms[0], (P,))
    elif m.get("elementwise_affine", True):
        raise ModelError(f"{m.checkpoint.name}: tensor {src}g_norm.weight is missing")
    else:
        m.constant(dst + "ssm_norm.weight", (P,), 1.0)
    m.put(dst + "attn_output.weight", src + "o_proj.weight", (D, value_dim))
    return gate


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 4)
    KV = m.count("num_kv_heads", H)
    if H % KV:
        raise ModelError(f"config.json: num_heads is {H}, expected a multiple of num_kv_heads {KV}")
    key_dim = m.shape(src + "q_proj.weight", 2)[0]
    K = divide(m, src + "q_proj.weight", key_dim, H, "num_heads")
    P = divide(m, src + "v_proj.weight", m.shape(src + "v_proj.weight", 2)[0], KV, "num_kv_heads")
    R = m.shape(src + "gk_proj.0.weight", 2)[0]

    m.rows(dst, src, [
        ("attn_q.weight",  "q_proj.weight",    (key_dim, D)),
        ("attn_k.weight",  "k_proj.weight",    (KV * K, D)),
        ("attn_v.weight",  "v_proj.weight",    (KV * P, D)),
        ("ssm_f_a.weight", "gk_proj.0.weight", (R, D)),
        ("ssm_f_b.weight", "gk_proj.1.weight", (KV * K, R)),
        ("ssm_f_b.bias",   "gk_proj.1.bias",   (KV * K,)),
    ])
    width = write_conv(m, dst, src, [
        ("ssm_conv1d_q", "q_conv1d", key_dim),
        ("ssm_conv1d_k", "k_conv1d", KV * K),
        ("ssm_conv1d_v", "v_conv1d", KV * P),
    ])
    gate = write_output(m, dst, src, D, H * P, P)

    if "lrnn.head_count" not in m.kv:
        m.set_u32("lrnn.head_count", H)
        m.set_u32("lrnn.head_count_kv", KV)
        m.set_u32("lrnn.key_length", K)
        m.set_u32("lrnn.value_length", P)
        m.set_str("lrnn.feature_map", m.choice("feature_map", "identity", FEATURE_MAPS))
        m.set_u32("lrnn.conv_width", width)
        m.set_str("lrnn.output_gate", m.choice("hidden_act", "swish", SWISH) if gate else "none")
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        m.set_f32("lrnn.gate_normalizer", GATE_NORMALIZER)
        if m.get("clamp_min") is not None:
            m.set_f32("lrnn.gate_clamp_min", m.number("clamp_min"))
        m.fact("factors", "n_h 0 (diagonal)")
        m.fact("heads", f"{H} (key and value heads {KV}), d_k × d_v {K} × {P}")
        m.fact("gate", "one a key channel")
        m.fact("conv", conv_fact(width))
