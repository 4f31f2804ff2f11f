"""RWKV-7 (official .pth, fla `rwkv7`).

    S = S (diag(w) - kk (kk a)ᵀ) + v kᵀ,  y = S r      (S is [value][key])
"""

from dataclasses import dataclass

from .. import eigenvalues
from ..errors import ModelError
from ..model import Model
from ..transforms import FLAT, SAME, TRANSPOSE, How
from .llama_cpp import explain, write_common
from .rwkv6 import OFFICIAL_GROUP_EPS, stack, write_norm
from .layer_parts import write_embedding, write_sizes

FLA_KEYS = """
    attn a_low_rank_dim decay_low_rank_dim gate_low_rank_dim v_low_rank_dim head_dim hidden_act norm_bias norm_eps norm_first num_heads
    value_dim
"""
FUSED_KEY_NORM_EPS = 1e-6                  # fla with fuse_norm: k / sqrt(Σ k² + eps)
LLAMA_CPP_HEAD = 64                        # its CPU kernel takes so many floats at a time (AVX-512) and reads past heads that end before


@dataclass(frozen=True)
class Sizes:
    layers: int
    D: int
    V: int
    F: int
    H: int
    N: int                                 # head length; H · N = D
    ranks: dict[str, int]                  # of the low-rank maps w, a, v, g


def convert_official(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "rwkv7")
    eigenvalues.decide(m, option)
    layers = m.count_layers("blocks.")
    D, V = write_embedding(m, "emb.weight", head="head.weight")
    H, N = m.shape("blocks.0.att.r_k", 2)
    pre_norm = m.has("blocks.0.ln0.weight")
    if pre_norm:
        write_norm(m, "token_embd_norm", "blocks.0.ln0", D)
    write_norm(m, "output_norm", "ln_out", D)
    F = m.shape("blocks.0.ffn.key.weight", 2)[0]
    names = {
        "attn_norm": "ln1", "attn_norm_2": "ln2", "att": "att.", "ln": "att.ln_x",
        "receptance": "receptance", "key": "key", "value": "value", "output": "output",
    }
    ranks = _lora_ranks(m, lambda c, i: m.shape(f"blocks.{i}.att.{c}1", 2)[1], layers)
    sizes = Sizes(layers, D, V, F, H, N, ranks)
    for i in range(layers):
        src = f"blocks.{i}.att."
        lora = {c: (f"{src}{c}0", f"{src}{c}1", f"{src}{c}2") for c in "wavg"}
        # x @ W, not a Linear: [D, r] and [r, D]
        _layer(m, i, f"blocks.{i}.", sizes, names, lora, TRANSPOSE, [f"{src}x_{c}" for c in "rwkvag"])
        if i == 0:
            for j in range(3):
                m.drop(f"{src}v{j}")       # may exist in layer 0, is never read there
    _finish(m, sizes, 1e-5, OFFICIAL_GROUP_EPS, 0.0, pre_norm)
    return m


def convert_fla(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "rwkv7", FLA_KEYS)
    eigenvalues.decide(m, option)
    m.refuse_unless("attn", (None,), "attention layers in rwkv7 are not defined, fla itself cannot run them")
    m.refuse_unless("hidden_act", (None, "sqrelu"), "only sqrelu is supported")
    prefix = "model.layers."
    layers = m.count_layers(prefix)
    D, V = write_embedding(m, "model.embeddings.weight")
    H, N = m.shape(f"{prefix}0.attn.r_k", 2)
    value_dim = m.get("value_dim", D)
    if any(v != D for v in (value_dim if isinstance(value_dim, list) else [value_dim])):
        raise ModelError(f"config.json: value_dim is {value_dim}, expected hidden_size ({D}) in every layer, fla cannot build others")
    pre_norm = m.flag(("norm_first",), f"{prefix}0.pre_norm.weight")
    if pre_norm:
        write_norm(m, "token_embd_norm", f"{prefix}0.pre_norm", D)
    write_norm(m, "output_norm", "model.norm", D)
    F = m.shape(f"{prefix}0.ffn.key.weight", 2)[0]
    names = {
        "attn_norm": "attn_norm", "attn_norm_2": "ffn_norm", "att": "attn.", "ln": "attn.g_norm",
        "receptance": "r_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj",
    }
    ranks = _lora_ranks(m, lambda c, i: m.shape(f"{prefix}{i}.attn.{c}_lora.lora.0.weight", 2)[0], layers)
    sizes = Sizes(layers, D, V, F, H, N, ranks)
    for i in range(layers):
        src = f"{prefix}{i}.attn."
        lora = {c: (f"{src}{c}_lora.lora.2.bias", f"{src}{c}_lora.lora.0.weight", f"{src}{c}_lora.lora.2.weight") for c in "wavg"}
        # older files keep the six lerps in one tensor, in the file's order already
        lerps = f"{src}x_x" if m.has(f"{src}x_x") else [f"{src}x_{c}" for c in "rwkvag"]
        _layer(m, i, f"{prefix}{i}.", sizes, names, lora, SAME, lerps)
    eps = m.positive("norm_eps", 1e-5)
    key_eps = FUSED_KEY_NORM_EPS if m.get("fuse_norm", True) else 0.0
    _finish(m, sizes, eps, N * eps, key_eps, pre_norm)
    return m


def _lora_ranks(m: Model, rank, layers: int) -> dict[str, int]:
    ranks = {c: rank(c, 0) for c in "wag"}
    ranks["v"] = rank("v", 1) if layers > 1 else ranks["a"]
    return ranks


def _layer(m: Model, i: int, src: str, s: Sizes, names: dict[str, str], lora: dict[str, tuple], layout: How, lerps) -> None:
    D = s.D
    dst = f"blk.{i}."
    att = src + names["att"]
    write_norm(m, dst + "attn_norm", src + names["attn_norm"], D)
    write_norm(m, dst + "attn_norm_2", src + names["attn_norm_2"], D)
    if isinstance(lerps, str):
        m.put(dst + "time_mix_lerp_fused.weight", lerps, (6, D), How(lambda s: (6, 1, 1, D), lambda a: a[0].reshape(6, 1, 1, D), True))
    else:
        m.put(dst + "time_mix_lerp_fused.weight", lerps, (D,), stack(6, D))
    for c in "wavg":
        if c == "v" and i == 0:
            continue                       # layer 0 defines the value that later layers mix in
        zero, one, two = lora[c]
        r = s.ranks[c]
        if c != "g":                       # the output gate has no bias
            m.put(f"{dst}time_mix_{c}0.weight", zero, (D,), FLAT)
        m.put(f"{dst}time_mix_{c}1.weight", one, (D, r) if layout is TRANSPOSE else (r, D), layout)
        m.put(f"{dst}time_mix_{c}2.weight", two, (r, D) if layout is TRANSPOSE else (D, r), layout)
    m.rows(dst, att, [
        ("time_mix_k_k.weight",        "k_k", (D,), FLAT),
        ("time_mix_k_a.weight",        "k_a", (D,), FLAT),
        ("time_mix_r_k.weight",        "r_k", (s.H, s.N), FLAT),
        ("time_mix_receptance.weight", names["receptance"] + ".weight", (D, D)),
        ("time_mix_key.weight",        names["key"] + ".weight", (D, D)),
        ("time_mix_value.weight",      names["value"] + ".weight", (D, D)),
        ("time_mix_output.weight",     names["output"] + ".weight", (D, D)),
    ])
    write_norm(m, dst + "time_mix_ln", src + names["ln"], D)
    m.rows(dst, src + "ffn.", [
        ("channel_mix_lerp_k.weight", "x_k", (D,), FLAT),
        ("channel_mix_key.weight",    "key.weight", (s.F, D)),
        ("channel_mix_value.weight",  "value.weight", (D, s.F)),
    ])


def _finish(m: Model, s: Sizes, eps: float, group_eps: float, key_eps: float, pre_norm: bool) -> None:
    tied = not any(out.name == "output.weight" for out in m.outs)
    reasons = [why for why, true in (
        (f"heads of {s.N}, its kernel needs multiples of {LLAMA_CPP_HEAD}", s.N % LLAMA_CPP_HEAD != 0),
        (f"group norm eps {group_eps:g}, there fixed at 64e-5", abs(group_eps - OFFICIAL_GROUP_EPS) > 1e-9),
        (f"keys are normalised with eps {key_eps:g} inside the root (fuse_norm)", key_eps > 0),
        ("no norm after the embedding", not pre_norm),
        ("tied embeddings", tied),
    ) if true]
    if reasons:
        write_sizes(m, s.layers, s.D, s.V, eps, s.F)
        m.set_u32("lrnn.head_count", s.H)
        m.set_u32("lrnn.key_length", s.N)
        m.set_u32("lrnn.value_length", s.N)
        m.set_f32("lrnn.output_norm_epsilon", group_eps)
        m.set_bool("lrnn.pre_norm", pre_norm)
        m.set_f32("lrnn.key_norm_epsilon", key_eps)
        explain(m, "rwkv7", reasons)
    else:
        # llama.cpp reads v0, v1, v2 of layer 0 without using them, and expects the a-LoRA's rank there
        by_name = {out.name: out for out in m.outs}
        for j in range(3):
            a = by_name[f"blk.0.time_mix_a{j}.weight"]
            m.outs.append(type(a)(f"blk.0.time_mix_v{j}.weight", a.shape, a.sources, a.how))
        write_common(m, "rwkv7", s.layers, s.D, s.V, s.F)
        m.set_u32("rwkv7.wkv.head_size", s.N)
        m.set_u32("rwkv7.attention.decay_lora_rank", s.ranks["w"])
        m.set_u32("rwkv7.attention.iclr_lora_rank", s.ranks["a"])
        m.set_u32("rwkv7.attention.value_residual_mix_lora_rank", s.ranks["v"])
        m.set_u32("rwkv7.attention.gate_lora_rank", s.ranks["g"])
        m.set_f32("rwkv7.attention.layer_norm_epsilon", eps)
    m.fact("factors", "n_h 1 (diagonal plus rank one)")
    m.fact("heads", f"{s.H}, d_k × d_v {s.N} × {s.N}")
    m.fact("gate", "one a key channel")
    m.fact("conv", "none (token shift)")
