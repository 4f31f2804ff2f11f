"""RWKV-6 (official .pth, its transformers export, fla `rwkv6`).

    y = Sᵀ r + (r · (u k)) v,  S = diag(w) S + k vᵀ
"""

import numpy as np

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..family import Family, Range
from ..model import Model
from ..transforms import FLAT, SAME, TRANSPOSE, Transform
from .layer_parts import DIAGONAL, head_length, mixer_facts, write_embedding
from .llama_cpp import explain, reasons_against, write_common
from .rwkv_parts import (OFFICIAL_GROUP_EPS, check_fla, group_eps_reason, outer_reasons, stack,
                         write_keys, write_norm, write_outer_norms)

FAMILY = Family("rwkv6", Range.UNSIGNED)

FLA_KEYS = """
    attn expand_k expand_v gate_low_rank_dim proj_low_rank_dim hidden_act norm_bias norm_eps
    norm_first num_heads
"""
HF_KEYS = """
    attention_hidden_size head_size head_size_divisor layer_norm_epsilon rescale_every
    num_attention_heads
"""

# fla mixes in the order r,w,k,v,g; the model file and the official code in w,k,v,r,g
FLA_TO_FILE = [1, 2, 3, 0, 4]


def recognize(c: Checkpoint):
    official = any(f"{att}time_maa_w1" in c.tensors
                   for att in ("blocks.0.att.", "rwkv.blocks.0.attention."))
    return convert_official if official else None


def convert_official(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, HF_KEYS)
    eigenvalues.decide(m, option)
    # transformers' export has the same tensors under longer names
    if m.has("rwkv.embeddings.weight"):
        prefix, att, ffn, ln0 = "rwkv.blocks.", "attention.", "feed_forward.", "pre_ln"
        embedding, final = "rwkv.embeddings.weight", "rwkv.ln_out"
    else:
        prefix, att, ffn, ln0 = "blocks.", "att.", "ffn.", "ln0"
        embedding, final = "emb.weight", "ln_out"
    layers = m.count_layers(prefix)
    D, V = write_embedding(m, embedding, head="head.weight")
    H, N = m.shape(f"{prefix}0.{att}time_faaaa", 2)
    F = m.shape(f"{prefix}0.{ffn}key.weight", 2)[0]
    R = m.shape(f"{prefix}0.{att}time_maa_w1", 2)[1] // 5
    R2 = m.shape(f"{prefix}0.{att}time_decay_w1", 2)[1]
    pre_norm = m.has(f"{prefix}0.{ln0}.weight")
    write_outer_norms(m, f"{prefix}0.{ln0}" if pre_norm else None, final, D)
    for i in range(layers):
        dst, src = f"blk.{i}.", f"{prefix}{i}."
        write_norm(m, dst + "attn_norm", src + "ln1", D)
        write_norm(m, dst + "attn_norm_2", src + "ln2", D)
        # x @ W, not a Linear: w1, w2, decay_w1 and decay_w2 are transposed
        m.rows(dst, src + att, [
            ("time_mix_lerp_x.weight",     "time_maa_x", (D,), FLAT),
            ("time_mix_lerp_fused.weight", [f"time_maa_{c}" for c in "wkvrg"], (D,), stack(5, D)),
            ("time_mix_w1.weight",         "time_maa_w1", (D, 5 * R), TRANSPOSE),
            ("time_mix_w2.weight",         "time_maa_w2", (5, R, D), BATCH_TRANSPOSE),
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
    # rescale_every avoids f16 overflow at run time; the weights in the file are not rescaled
    eps = m.positive("layer_norm_epsilon", 1e-5)
    _finish(m, layers, D, V, F, H, N, N, R, R2, eps, OFFICIAL_GROUP_EPS, pre_norm)
    return m


BATCH_TRANSPOSE = Transform(lambda s: (s[0][0], s[0][2], s[0][1]),
                            lambda a: np.ascontiguousarray(a[0].transpose(0, 2, 1)))


def _reorder_lerps(width: int) -> Transform:
    """[5, D] to [5, 1, 1, D] in the order of the file."""
    return Transform(lambda s: (5, 1, 1, width),
                     lambda a: a[0][FLA_TO_FILE].reshape(5, 1, 1, width))


def _reorder_rows(r: int) -> Transform:
    """[5r, D] with its groups in the order of the file."""
    return Transform(lambda s: s[0],
                     lambda a: a[0].reshape(5, r, -1)[FLA_TO_FILE].reshape(5 * r, -1))


def _reorder_columns(r: int, width: int) -> Transform:
    """[D, 5r], that is [D, 5, r], to [5, D, r] with its groups in the order of the file."""

    def apply(a):
        groups = a[0].reshape(width, 5, r).transpose(1, 0, 2)
        return np.ascontiguousarray(groups[FLA_TO_FILE])

    return Transform(lambda s: (5, width, r), apply)


def convert_fla(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, FLA_KEYS)
    eigenvalues.decide(m, option)
    check_fla(m, "attention layers are not supported in rwkv6")
    prefix = "model.layers."
    layers = m.count_layers(prefix)
    D, V = write_embedding(m, "model.embeddings.weight")
    H = m.count("num_heads", 4)
    key_dim, K = head_length(m, f"{prefix}0.attn.r_proj.linear.weight", H)
    value_dim, P = head_length(m, f"{prefix}0.attn.v_proj.linear.weight", H)
    F = m.shape(f"{prefix}0.ffn.key.linear.weight", 2)[0]
    R = m.shape(f"{prefix}0.attn.x_proj.0.linear.weight", 2)[0] // 5
    R2 = m.shape(f"{prefix}0.attn.w_proj.linear.lora.0.weight", 2)[0]
    pre_norm = m.flag(("norm_first",), f"{prefix}0.pre_norm.weight")
    write_outer_norms(m, f"{prefix}0.pre_norm" if pre_norm else None, "model.norm", D)
    for i in range(layers):
        dst, src = f"blk.{i}.", f"{prefix}{i}."
        write_norm(m, dst + "attn_norm", src + "attn_norm", D)
        write_norm(m, dst + "attn_norm_2", src + "ffn_norm", D)
        m.rows(dst, src + "attn.", [
            ("time_mix_lerp_x.weight",     "x_proj.0.mu", (D,), FLAT),
            ("time_mix_lerp_fused.weight", "x_bias", (5, D), _reorder_lerps(D)),
            ("time_mix_w1.weight",         "x_proj.0.linear.weight", (5 * R, D), _reorder_rows(R)),
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
    eps = m.positive("norm_eps", 1e-5)     # of fla's group norm, too
    _finish(m, layers, D, V, F, H, K, P, R, R2, eps, eps, pre_norm)
    return m


def _finish(m, layers, D, V, F, H, K, P, R, R2, eps, group_eps, pre_norm) -> None:
    reasons = reasons_against(
        (f"d_k × d_v is {K} × {P}, not square and the width of the model", K != P or H * K != D),
        group_eps_reason(group_eps),
        *outer_reasons(m, pre_norm),
    )
    if reasons:
        write_keys(m, layers, D, V, F, H, K, P, eps, group_eps, pre_norm)
        explain(m, "rwkv6", reasons)
    else:
        write_common(m, "rwkv6", layers, D, V, F)
        m.set_u32("rwkv6.wkv.head_size", K)
        m.set_u32("rwkv6.time_mix_extra_dim", R)
        m.set_u32("rwkv6.time_decay_extra_dim", R2)
        m.set_u32("rwkv6.rescale_every_n_layers", 0)
        m.set_f32("rwkv6.attention.layer_norm_epsilon", eps)
    mixer_facts(m, DIAGONAL, f"{H}, d_k × d_v {K} × {P}", "one per key channel",
                "none (token shift)")


MODEL_TYPES = {"rwkv6": convert_fla}
