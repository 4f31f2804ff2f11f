"""RWKV-6 (official .pth, its transformers export, fla `rwkv6`).

    y = Sᵀ r + (r · (u k)) v,  S = diag(w) S + k vᵀ
"""

import numpy as np

from .. import eigenvalues
from ..model import Model
from ..transforms import FLAT, SAME, TRANSPOSE, How
from .llama_cpp import explain, write_common
from .layer_parts import divide, write_embedding, write_sizes

FLA_KEYS = """
    attn expand_k expand_v gate_low_rank_dim proj_low_rank_dim hidden_act norm_bias norm_eps norm_first num_heads
"""
HF_KEYS = "attention_hidden_size head_size head_size_divisor layer_norm_epsilon rescale_every num_attention_heads"

OFFICIAL_GROUP_EPS = 64e-5                 # ln_x of the official code, whatever the head size
FLA_TO_FILE = [1, 2, 3, 0, 4]              # fla mixes in the order r,w,k,v,g; the file and the official code in w,k,v,r,g


def stack(n: int, width: int) -> How:
    """n vectors to {width, 1, 1, n}: llama.cpp's fused lerp."""
    return How(lambda s: (n, 1, 1, width), lambda a: np.stack([x.reshape(-1) for x in a]).reshape(n, 1, 1, width), vector=True)


def write_norm(m: Model, dst: str, src: str, width: int) -> None:
    """LayerNorm; norm_bias = false leaves the bias out, which is a bias of zero."""
    m.put(dst + ".weight", src + ".weight", (width,))
    if m.has(src + ".bias"):
        m.put(dst + ".bias", src + ".bias", (width,))
    else:
        m.constant(dst + ".bias", (width,), 0.0)


def convert_official(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "rwkv6", HF_KEYS)
    eigenvalues.decide(m, option)
    # transformers' export has the same tensors under longer names
    exported = m.has("rwkv.embeddings.weight")
    prefix, att, ffn = ("rwkv.blocks.", "attention.", "feed_forward.") if exported else ("blocks.", "att.", "ffn.")
    ln0 = "pre_ln" if exported else "ln0"
    embedding = "rwkv.embeddings.weight" if exported else "emb.weight"
    layers = m.count_layers(prefix)
    D, V = write_embedding(m, embedding, head="head.weight")
    H, N = m.shape(f"{prefix}0.{att}time_faaaa", 2)
    F = m.shape(f"{prefix}0.{ffn}key.weight", 2)[0]
    R = m.shape(f"{prefix}0.{att}time_maa_w1", 2)[1] // 5
    R2 = m.shape(f"{prefix}0.{att}time_decay_w1", 2)[1]
    pre_norm = m.has(f"{prefix}0.{ln0}.weight")
    if pre_norm:
        write_norm(m, "token_embd_norm", f"{prefix}0.{ln0}", D)
    write_norm(m, "output_norm", "rwkv.ln_out" if exported else "ln_out", D)
    for i in range(layers):
        dst, src = f"blk.{i}.", f"{prefix}{i}."
        write_norm(m, dst + "attn_norm", src + "ln1", D)
        write_norm(m, dst + "attn_norm_2", src + "ln2", D)
        m.rows(dst, src + att, [
            ("time_mix_lerp_x.weight",     "time_maa_x", (D,), FLAT),
            ("time_mix_lerp_fused.weight", [f"time_maa_{c}" for c in "wkvrg"], (D,), stack(5, D)),
            ("time_mix_w1.weight",         "time_maa_w1", (D, 5 * R), TRANSPOSE),      # x @ W, not a Linear
            ("time_mix_w2.weight",         "time_maa_w2", (5, R, D), BATCH_TRANSPOSE),  # five of them
            ("time_mix_decay.weight",      "time_decay", (D,), FLAT),
            ("time_mix_decay_w1.weight",   "time_decay_w1", (D, R2), TRANSPOSE),
            ("time_mix_decay_w2.weight",   "time_decay_w2", (R2, D), TRANSPOSE),
            ("time_mix_first.weight",      "time_faaaa", (H, N)),
            ("time_mix_receptance.weight", "receptance.weight", (D, D)),
            ("time_mix_key.weight",        "key.weight", (D, D)),
            ("time_mix_value.weight",      "value.weight", (D, D)),
            ("time_mix_gate.weight",       "gate.weight", (D, D)),
            ("time_mix_output.weight",     "output.weight", (D, D)),
        ])
        write_norm(m, dst + "time_mix_ln", src + att + "ln_x", D)
        m.rows(dst, src + ffn, [
            ("channel_mix_lerp_k.weight",     "time_maa_k", (D,), FLAT),
            ("channel_mix_lerp_r.weight",     "time_maa_r", (D,), FLAT),
            ("channel_mix_key.weight",        "key.weight", (F, D)),
            ("channel_mix_value.weight",      "value.weight", (D, F)),
            ("channel_mix_receptance.weight", "receptance.weight", (D, D)),
        ])
    # rescale_every is a device against f16 overflow at run time; the weights in the file are not rescaled
    eps = m.positive("layer_norm_epsilon", 1e-5)
    _finish(m, layers, D, V, F, H, N, N, R, R2, eps, OFFICIAL_GROUP_EPS, pre_norm)
    return m


BATCH_TRANSPOSE = How(lambda s: (s[0][0], s[0][2], s[0][1]), lambda a: np.ascontiguousarray(a[0].transpose(0, 2, 1)))


def _reorder_rows(r: int) -> How:
    """[5r, D], groups r,w,k,v,g to w,k,v,r,g."""
    return How(lambda s: s[0], lambda a: a[0].reshape(5, r, -1)[FLA_TO_FILE].reshape(5 * r, -1))


def _reorder_columns(r: int, width: int) -> How:
    """[D, 5r] seen as [D, 5, r], to [5, D, r] in the file's order of groups."""
    return How(lambda s: (5, width, r), lambda a: np.ascontiguousarray(a[0].reshape(width, 5, r).transpose(1, 0, 2)[FLA_TO_FILE]))


def convert_fla(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "rwkv6", FLA_KEYS)
    eigenvalues.decide(m, option)
    m.refuse_unless("attn", (None,), "attention layers are not supported in rwkv6")
    m.refuse_unless("hidden_act", (None, "sqrelu"), "only sqrelu is supported")
    prefix = "model.layers."
    layers = m.count_layers(prefix)
    D, V = write_embedding(m, "model.embeddings.weight")
    H = m.count("num_heads", 4)
    key_dim = m.shape(f"{prefix}0.attn.r_proj.linear.weight", 2)[0]
    value_dim = m.shape(f"{prefix}0.attn.v_proj.linear.weight", 2)[0]
    K = divide(m, f"{prefix}0.attn.r_proj.linear.weight", key_dim, H, "num_heads")
    P = divide(m, f"{prefix}0.attn.v_proj.linear.weight", value_dim, H, "num_heads")
    F = m.shape(f"{prefix}0.ffn.key.linear.weight", 2)[0]
    R = m.shape(f"{prefix}0.attn.x_proj.0.linear.weight", 2)[0] // 5
    R2 = m.shape(f"{prefix}0.attn.w_proj.linear.lora.0.weight", 2)[0]
    pre_norm = m.flag(("norm_first",), f"{prefix}0.pre_norm.weight")
    if pre_norm:
        write_norm(m, "token_embd_norm", f"{prefix}0.pre_norm", D)
    write_norm(m, "output_norm", "model.norm", D)
    for i in range(layers):
        dst, src = f"blk.{i}.", f"{prefix}{i}."
        write_norm(m, dst + "attn_norm", src + "attn_norm", D)
        write_norm(m, dst + "attn_norm_2", src + "ffn_norm", D)
        m.rows(dst, src + "attn.", [
            ("time_mix_lerp_x.weight",     "x_proj.0.mu", (D,), FLAT),
            ("time_mix_lerp_fused.weight", "x_bias", (5, D),
             How(lambda s: (5, 1, 1, D), lambda a: a[0][FLA_TO_FILE].reshape(5, 1, 1, D))),
            ("time_mix_w1.weight",         "x_proj.0.linear.weight", (5 * R, D), _reorder_rows(R)),   # already Linear layout
            ("time_mix_w2.weight",         "x_proj.2.weight", (D, 5 * R), _reorder_columns(R, D)),
            ("time_mix_decay.weight",      "w_proj.linear.lora.2.bias", (key_dim,), SAME),
            ("time_mix_decay_w1.weight",   "w_proj.linear.lora.0.weight", (R2, D)),
            ("time_mix_decay_w2.weight",   "w_proj.linear.lora.2.weight", (key_dim, R2)),
            ("time_mix_first.weight",      "bonus", (H, K)),
            ("time_mix_receptance.weight", "r_proj.linear.weight", (key_dim, D)),
            ("time_mix_key.weight",        "k_proj.linear.weight", (key_dim, D)),
            ("time_mix_value.weight",      "v_proj.linear.weight", (value_dim, D)),
            ("time_mix_gate.weight",       "g_proj.linear.weight", (value_dim, D)),
            ("time_mix_output.weight",     "o_proj.weight", (D, value_dim)),
        ])
        write_norm(m, dst + "time_mix_ln", src + "attn.g_norm", value_dim)
        m.rows(dst, src + "ffn.", [
            ("channel_mix_lerp_k.weight",     "key.mu", (D,), FLAT),
            ("channel_mix_lerp_r.weight",     "receptance.mu", (D,), FLAT),
            ("channel_mix_key.weight",        "key.linear.weight", (F, D)),
            ("channel_mix_value.weight",      "value.weight", (D, F)),
            ("channel_mix_receptance.weight", "receptance.linear.weight", (D, D)),
        ])
    eps = m.positive("norm_eps", 1e-5)
    _finish(m, layers, D, V, F, H, K, P, R, R2, eps, eps, pre_norm)        # fla's group norm has norm_eps
    return m


def _finish(m, layers, D, V, F, H, K, P, R, R2, eps, group_eps, pre_norm) -> None:
    tied = not any(out.name == "output.weight" for out in m.outs)
    reasons = [why for why, true in (
        (f"d_k × d_v is {K} × {P}, not square and the width of the model", K != P or H * K != D),
        (f"group norm eps {group_eps:g}, there fixed at 64e-5", abs(group_eps - OFFICIAL_GROUP_EPS) > 1e-9),
        ("no norm after the embedding", not pre_norm),
        ("tied embeddings", tied),
    ) if true]
    if reasons:
        write_sizes(m, layers, D, V, eps, F)
        m.set_u32("lrnn.head_count", H)
        m.set_u32("lrnn.key_length", K)
        m.set_u32("lrnn.value_length", P)
        m.set_f32("lrnn.output_norm_epsilon", group_eps)
        m.set_bool("lrnn.pre_norm", pre_norm)
        explain(m, "rwkv6", reasons)
    else:
        write_common(m, "rwkv6", layers, D, V, F)
        m.set_u32("rwkv6.wkv.head_size", K)
        m.set_u32("rwkv6.time_mix_extra_dim", R)
        m.set_u32("rwkv6.time_decay_extra_dim", R2)
        m.set_u32("rwkv6.rescale_every_n_layers", 0)
        m.set_f32("rwkv6.attention.layer_norm_epsilon", eps)
    m.fact("factors", "n_h 0 (diagonal)")
    m.fact("heads", f"{H}, d_k × d_v {K} × {P}")
    m.fact("gate", "one a key channel")
    m.fact("conv", "none (token shift)")
