"""RWKV-7 (official .pth, fla `rwkv7`).

    S = S (diag(w) - kk (kk a)ᵀ) + v kᵀ,  y = S r      (S is [value][key])
"""

from dataclasses import dataclass

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, OutputTensor
from ..transforms import FLAT, SAME, TRANSPOSE, Transform, reshape
from .layer_parts import mixer_facts, write_embedding
from .llama_cpp import explain, reasons_against, write_common
from .rwkv_parts import (OFFICIAL_GROUP_EPS, check_fla, group_eps_reason, outer_reasons, stack,
                         write_keys, write_norm, write_outer_norms)

FAMILY = Family("rwkv7", Range.OWN)

FLA_KEYS = """
    attn a_low_rank_dim decay_low_rank_dim gate_low_rank_dim v_low_rank_dim head_dim hidden_act
    norm_bias norm_eps norm_first num_heads value_dim
"""
FUSED_KEY_NORM_EPS = 1e-6                  # fla with fuse_norm: k / sqrt(Σ k² + eps)

# llama.cpp's CPU kernel processes 64 floats at a time (AVX-512) and reads past the end of heads of
# other lengths
LLAMA_CPP_HEAD = 64


@dataclass(frozen=True)
class Sizes:
    layers: int
    D: int
    V: int
    F: int
    H: int
    N: int                                 # head length; H · N = D
    ranks: dict[str, int]                  # of the low-rank maps w, a, v, g


@dataclass(frozen=True)
class Names:
    """Names of a layer's tensors in one layout."""

    attn_norm: str
    attn_norm_2: str
    att: str                               # prefix of the following
    ln: str
    receptance: str
    key: str
    value: str
    output: str


OFFICIAL = Names("ln1", "ln2", "att.", "ln_x", "receptance", "key", "value", "output")
FLA = Names("attn_norm", "ffn_norm", "attn.", "g_norm", "r_proj", "k_proj", "v_proj", "o_proj")


def recognize(c: Checkpoint):
    other = [n for n in c.tensors if ".rosa" in n or n.startswith("rosa") or ".s_emb" in n]
    if other:
        raise ModelError(f"{c.name}: tensor {other[0]} belongs to ROSA or DeepEmbed, which are "
                         "other architectures than RWKV-7")
    return convert_official if "blocks.0.att.r_k" in c.tensors else None


def convert_official(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY)
    eigenvalues.decide(m, option)
    layers = m.count_layers("blocks.")
    D, V = write_embedding(m, "emb.weight", head="head.weight")
    H, N = m.shape("blocks.0.att.r_k", 2)
    pre_norm = m.has("blocks.0.ln0.weight")
    write_outer_norms(m, "blocks.0.ln0" if pre_norm else None, "ln_out", D)
    F = m.shape("blocks.0.ffn.key.weight", 2)[0]
    ranks = _lora_ranks(lambda c, i: m.shape(f"blocks.{i}.att.{c}1", 2)[1], layers)
    sizes = Sizes(layers, D, V, F, H, N, ranks)
    for i in range(layers):
        src = f"blocks.{i}.att."
        lora = {c: (f"{src}{c}0", f"{src}{c}1", f"{src}{c}2") for c in "wavg"}
        # x @ W, not a Linear: [D, r] and [r, D]
        _layer(m, i, f"blocks.{i}.", sizes, OFFICIAL, lora, TRANSPOSE,
               [f"{src}x_{c}" for c in "rwkvag"])
        if i == 0:
            for j in range(3):
                m.drop(f"{src}v{j}")       # may exist in layer 0, but is never read there
    _finish(m, sizes, 1e-5, OFFICIAL_GROUP_EPS, 0.0, pre_norm)
    return m


def convert_fla(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, FLA_KEYS)
    eigenvalues.decide(m, option)
    check_fla(m, "attention layers in rwkv7 are undefined; fla cannot run them")
    prefix = "model.layers."
    layers = m.count_layers(prefix)
    D, V = write_embedding(m, "model.embeddings.weight")
    H, N = m.shape(f"{prefix}0.attn.r_k", 2)
    value_dim = m.get("value_dim", D)
    if any(v != D for v in (value_dim if isinstance(value_dim, list) else [value_dim])):
        raise ModelError(f"config.json: value_dim is {shown(value_dim)}; expected hidden_size, "
                         f"{D}, in every layer, as in fla")
    pre_norm = m.flag(("norm_first",), f"{prefix}0.pre_norm.weight")
    write_outer_norms(m, f"{prefix}0.pre_norm" if pre_norm else None, "model.norm", D)
    F = m.shape(f"{prefix}0.ffn.key.weight", 2)[0]
    ranks = _lora_ranks(lambda c, i: m.shape(f"{prefix}{i}.attn.{c}_lora.lora.0.weight", 2)[0],
                        layers)
    sizes = Sizes(layers, D, V, F, H, N, ranks)
    for i in range(layers):
        src = f"{prefix}{i}.attn."
        parts = ("2.bias", "0.weight", "2.weight")
        lora = {c: tuple(f"{src}{c}_lora.lora.{part}" for part in parts) for c in "wavg"}
        # older checkpoints have the six lerps in one tensor, already in the order of the file
        lerps = f"{src}x_x" if m.has(f"{src}x_x") else [f"{src}x_{c}" for c in "rwkvag"]
        _layer(m, i, f"{prefix}{i}.", sizes, FLA, lora, SAME, lerps)
    eps = m.positive("norm_eps", 1e-5)
    key_eps = FUSED_KEY_NORM_EPS if m.truth("fuse_norm", True) else 0.0
    _finish(m, sizes, eps, N * eps, key_eps, pre_norm)
    return m


def _lora_ranks(rank, layers: int) -> dict[str, int]:
    ranks = {c: rank(c, 0) for c in "wag"}
    ranks["v"] = rank("v", 1) if layers > 1 else ranks["a"]
    return ranks


def _layer(m: Model, i: int, src: str, s: Sizes, names: Names, lora: dict[str, tuple],
           layout: Transform, lerps: str | list[str]) -> None:
    D = s.D
    dst = f"blk.{i}."
    att = src + names.att
    write_norm(m, dst + "attn_norm", src + names.attn_norm, D)
    write_norm(m, dst + "attn_norm_2", src + names.attn_norm_2, D)
    if isinstance(lerps, str):
        m.put(dst + "time_mix_lerp_fused.weight", lerps, (6, D), reshape((6, 1, 1, D)))
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
        ("time_mix_receptance.weight", names.receptance + ".weight", (D, D)),
        ("time_mix_key.weight",        names.key + ".weight", (D, D)),
        ("time_mix_value.weight",      names.value + ".weight", (D, D)),
        ("time_mix_output.weight",     names.output + ".weight", (D, D)),
    ])
    write_norm(m, dst + "time_mix_ln", att + names.ln, D)
    m.rows(dst, src + "ffn.", [
        ("channel_mix_lerp_k.weight", "x_k", (D,), FLAT),
        ("channel_mix_key.weight",    "key.weight", (s.F, D)),
        ("channel_mix_value.weight",  "value.weight", (D, s.F)),
    ])


def _finish(m: Model, s: Sizes, eps: float, group_eps: float, key_eps: float,
            pre_norm: bool) -> None:
    reasons = reasons_against(
        (f"heads of {s.N}, its kernel needs multiples of {LLAMA_CPP_HEAD}",
         s.N % LLAMA_CPP_HEAD != 0),
        group_eps_reason(group_eps),
        (f"keys are normalised with eps {key_eps:g} inside the root (fuse_norm)", key_eps > 0),
        *outer_reasons(m, pre_norm),
    )
    if reasons:
        write_keys(m, s.layers, s.D, s.V, s.F, s.H, s.N, s.N, eps, group_eps, pre_norm)
        m.set_f32("lrnn.key_norm_epsilon", key_eps)
        explain(m, "rwkv7", reasons)
    else:
        # llama.cpp reads v0, v1 and v2 of layer 0, with the rank of a, but does not use them
        by_name = {out.name: out for out in m.outs}
        for j in range(3):
            a = by_name[f"blk.0.time_mix_a{j}.weight"]
            m.outs.append(OutputTensor(f"blk.0.time_mix_v{j}.weight", a.shape, a.sources,
                                       a.transform))
        write_common(m, "rwkv7", s.layers, s.D, s.V, s.F)
        m.set_u32("rwkv7.wkv.head_size", s.N)
        m.set_u32("rwkv7.attention.decay_lora_rank", s.ranks["w"])
        m.set_u32("rwkv7.attention.iclr_lora_rank", s.ranks["a"])
        m.set_u32("rwkv7.attention.value_residual_mix_lora_rank", s.ranks["v"])
        m.set_u32("rwkv7.attention.gate_lora_rank", s.ranks["g"])
        m.set_f32("rwkv7.attention.layer_norm_epsilon", eps)
    mixer_facts(m, "n_h 1 (diagonal plus rank one)", f"{s.H}, d_k × d_v {s.N} × {s.N}",
                "one per key channel", "none (token shift)")


MODEL_TYPES = {"rwkv7": convert_fla}
