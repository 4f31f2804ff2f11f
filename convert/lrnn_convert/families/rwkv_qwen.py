"""Qwen2.5 whose attention became a time mix of RWKV, with its RMSNorms and its MLP: QRWKV-6
(`rwkv6qwen2`) with that of RWKV-6, ARWKV (`rwkv_hybrid`) with that of RWKV-7.

    QRWKV-6: y = K^-1/2 Sᵀ r,  S = diag(w) S + ((1 - w) k) vᵀ
    ARWKV:   as RWKV-7
"""

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError
from ..family import Family, Range
from ..model import Model
from ..transforms import FLAT, TRANSPOSE, Transform
from .layer_parts import DIAGONAL, mixer_facts, write_embedding, write_swiglu
from .llama_cpp import write_common
from .rwkv_parts import stack

FAMILY = Family("rwkv6qwen2", Range.UNSIGNED)
ALSO = (Family("arwkv7", Range.OWN),)

# without attention, keys of positions and windows do nothing; use_rope would turn r and k
KEYS = """
    attention_bias attention_output_bias balance_state gate_rank_type groupnorm_att head_size
    head_size_divisor hidden_act layer_types lora_rank_decay lora_rank_gate lora_rank_tokenshift
    max_window_layers num_attention_heads num_key_value_heads num_wkv_heads rms_norm_eps
    rope_parameters rope_scaling rope_theta sliding_window use_rope use_sliding_window wkv_has_gate
    wkv_has_group_norm wkv_layers wkv_version
"""

# the checkpoint mixes in the order r,k,v,w,g, the file in w,k,v,r,g
TO_FILE = [3, 1, 2, 0, 4]


def _reorder_rows(r: int) -> Transform:
    """[D, 5r] to [5r, D] with its groups in the order of the file."""
    return Transform(lambda s: s[0][::-1],
                     lambda a: a[0].T.reshape(5, r, -1)[TO_FILE].reshape(5 * r, -1))


# [5, r, D] to [5, D, r] in the order of the file
REORDER_GROUPS = Transform(lambda s: (s[0][0], s[0][2], s[0][1]),
                           lambda a: a[0][TO_FILE].transpose(0, 2, 1).copy())


def _shell(m: Model, arch: str) -> tuple[int, int]:
    """Writes everything but the time mixes; returns the number of layers and the width."""
    layers = m.count_layers("model.layers.")
    D, V = write_embedding(m, "model.embed_tokens.weight")
    F = m.shape("model.layers.0.mlp.down_proj.weight", 2)[1]
    if not any(out.name == "output.weight" for out in m.outs):             # llama.cpp requires it
        m.put("output.weight", "model.embed_tokens.weight", (V, D))
    m.put("output_norm.weight", "model.norm.weight", (D,))
    for i in range(layers):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        m.put(dst + "attn_norm.weight", src + "input_layernorm.weight", (D,))
        m.put(dst + "ffn_norm.weight", src + "post_attention_layernorm.weight", (D,))
        write_swiglu(m, dst, src + "mlp.", D, F)
    write_common(m, arch, layers, D, V, F)
    m.set_f32(f"{arch}.attention.layer_norm_rms_epsilon", m.positive("rms_norm_eps", 1e-6))
    return layers, D


def convert_qrwkv(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option)
    for key, allowed in (("use_rope", (None, False)), ("groupnorm_att", (None, False)),
                         ("gate_rank_type", (None, 1)), ("balance_state", (None, True))):
        m.refuse_unless(key, allowed, "the architecture has no such form")
    layers, D = _shell(m, "rwkv6qwen2")
    H = m.count("num_attention_heads")
    if D % H != 0:
        raise ModelError(f"config.json: num_attention_heads is {H}; expected a divisor of the "
                         f"width, {D}")
    K = D // H
    first = "model.layers.0.self_attn."
    n_kv = m.shape(first + "k_proj.weight", 2)[0]
    R = m.shape(first + "time_maa_w2", 3)[1]
    R2 = m.shape(first + "time_decay_w1", 2)[1]
    for i in range(layers):
        dst, src = f"blk.{i}.time_mix_", f"model.layers.{i}.self_attn."
        m.rows(dst, src, [
            ("lerp_x.weight",      "time_maa_x", (D,), FLAT),
            ("lerp_fused.weight",  [f"time_maa_{c}" for c in "wkvrg"], (D,), stack(5, D)),
            ("w1.weight",          "time_maa_w1", (D, 5 * R), _reorder_rows(R)),
            ("w2.weight",          "time_maa_w2", (5, R, D), REORDER_GROUPS),
            ("decay.weight",       "time_decay", (D,), FLAT),
            ("decay_w1.weight",    "time_decay_w1", (D, R2), TRANSPOSE),
            ("decay_w2.weight",    "time_decay_w2", (R2, D), TRANSPOSE),
            ("receptance.weight",  "q_proj.weight", (D, D)),
            ("key.weight",         "k_proj.weight", (n_kv, D)),
            ("value.weight",       "v_proj.weight", (n_kv, D)),
            ("gate.weight",        "gate.weight", (D, D)),
            ("output.weight",      "o_proj.weight", (D, D)),
        ])
        for name, proj, n in (("receptance", "q", D), ("key", "k", n_kv), ("value", "v", n_kv)):
            m.put_optional(f"{dst}{name}.bias", f"{src}{proj}_proj.bias", (n,))
    m.set_u32("rwkv6qwen2.wkv.head_size", K)
    m.set_u32("rwkv6qwen2.token_shift_count", 1)
    m.set_u32("rwkv6qwen2.time_mix_extra_dim", R)
    m.set_u32("rwkv6qwen2.time_decay_extra_dim", R2)
    m.set_u32("rwkv6qwen2.attention.head_count_kv", n_kv // K)
    mixer_facts(m, DIAGONAL, f"{H}, {n_kv // K} of keys and values, d_k × d_v {K} × {K}",
                "one per key channel", "none (token shift)")
    return m


def convert_arwkv(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, ALSO[0], KEYS)
    eigenvalues.decide(m, option)
    m.refuse_unless("wkv_version", (None, 7), "only RWKV-7 is supported")
    m.refuse_unless("head_size_divisor", (None, 8), "the eps of the group norm is 64e-5")
    layers, D = _shell(m, "arwkv7")
    mixer = "model.layers.{}.self_attn.time_mixer."
    H, K = m.shape(mixer.format(0) + "r_k", 2)
    gated = m.flag(("wkv_has_gate",), mixer.format(0) + "g1")
    normed = m.flag(("wkv_has_group_norm",), mixer.format(0) + "ln_x.weight")
    lerps, maps = ("rwkvag", "wavg") if gated else ("rwkva", "wav")
    ranks = {c: m.shape(f"{mixer.format(int(layers > 1))}{c}1", 2)[1] for c in maps}
    for i in range(layers):
        dst, src = f"blk.{i}.time_mix_", mixer.format(i)
        m.put(dst + "lerp_fused.weight", [f"{src}x_{c}" for c in lerps], (D,), stack(len(lerps), D))
        for c in maps:
            # llama.cpp reads v0, v1 and v2 of layer 0, with the rank of a, but does not use them
            source, r = ("a", ranks["a"]) if c == "v" and i == 0 else (c, ranks[c])
            for j, shape, layout in ((0, (D,), FLAT), (1, (D, r), TRANSPOSE),
                                     (2, (r, D), TRANSPOSE)):
                if c != "g" or j > 0:      # the output gate has no bias
                    m.put(f"{dst}{c}{j}.weight", f"{src}{source}{j}", shape, layout)
        m.rows(dst, src, [
            ("k_k.weight",        "k_k", (D,), FLAT),
            ("k_a.weight",        "k_a", (D,), FLAT),
            ("r_k.weight",        "r_k", (H, K), FLAT),
            ("receptance.weight", "receptance.weight", (D, D)),
            ("key.weight",        "key.weight", (D, D)),
            ("value.weight",      "value.weight", (D, D)),
            ("output.weight",     "output.weight", (D, D)),
        ])
        if normed:
            m.put(dst + "ln.weight", src + "ln_x.weight", (D,))
            m.put(dst + "ln.bias", src + "ln_x.bias", (D,))
    for j in range(3):
        m.drop(f"{mixer.format(0)}v{j}")   # never read there
    if not gated:
        for i in range(layers):
            m.drop(f"{mixer.format(i)}x_g")
    m.set_u32("arwkv7.wkv.head_size", K)
    m.set_u32("arwkv7.token_shift_count", 1)
    m.set_u32("arwkv7.attention.decay_lora_rank", ranks["w"])
    m.set_u32("arwkv7.attention.iclr_lora_rank", ranks["a"])
    m.set_u32("arwkv7.attention.value_residual_mix_lora_rank", ranks["v"])
    m.set_u32("arwkv7.attention.gate_lora_rank", ranks.get("g", 0))
    mixer_facts(m, "n_h 1 (diagonal plus rank one)", f"{H}, d_k × d_v {K} × {K}",
                "one per key channel", "none (token shift)")
    return m


MODEL_TYPES = {"rwkv6qwen2": convert_qrwkv, "rwkv_hybrid": convert_arwkv}
