"""Gated DeltaProduct of Megatron-LM (`gated_delta_product.py`), a mixer in place of Mamba-2 in
Nemotron-H's shell: layers that are one thing each.

    rows of in_proj:  z [HV·P], V [n·HV·P], K [n·G·N], Q [G·N], b [n·HV], a [HV]
    conv1d:           V, K, Q

Distributed checkpoints have one tensor for each part and factor: in_proj.weight.z, .V0, .V1, ….
config.json is written by hand: the model_type `megatron_gdp` and Megatron's own arguments.
"""

import numpy as np

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..model import Model
from ..transforms import (CONCAT, CONCAT_CONV, FLAT, NEG_EXP_FLAT, Transform, conv_taps,
                          conv_width, reshape, rows)
from .gated_delta_product import FAMILY
from .layer_parts import attention_fact, mixer_facts, write_embedding, write_heads, write_sizes

KEYS = """
    allow_neg_eigval apply_layernorm_1p gdp_num_householder hybrid_layer_pattern
    hybrid_override_pattern kv_channels layernorm_epsilon mamba_head_dim mamba_num_groups
    mamba_num_heads mamba_state_dim normalization num_attention_heads num_query_groups
    position_embedding_type squared_relu
"""
LETTERS = {"M": "recurrent", "*": "attention", "-": "mlp"}
FACTORS_OF = {"z": 0, "V": 1, "K": 1, "Q": 0, "b": 1, "a": 0}          # 1: one part per factor


def _read_kinds(m: Model) -> list[str]:
    older = "hybrid_override_pattern"
    key = older if older in m.config else "hybrid_layer_pattern"
    pattern = m.get(key)
    # | separates pipeline stages, / the layers that predict several tokens
    letters = pattern.split("/")[0].replace("|", "") if isinstance(pattern, str) else ""
    if not letters or any(letter not in LETTERS for letter in letters):
        raise ModelError(f"config.json: {key} is {shown(pattern)}; expected the letters "
                         f"{' '.join(LETTERS)}")
    return [LETTERS[letter] for letter in letters]


def _conv_rows(begin: int, end: int) -> Transform:
    return Transform(lambda s: (end - begin, conv_width(s[0][2])),
                     lambda a: conv_taps(a[0][begin:end]))


class Parts:
    """The parts of in_proj and conv1d of a layer, whole or one by one."""

    def __init__(self, m: Model, src: str, n: int, sizes: dict[str, int]):
        self.m, self.src, self.n, self.sizes = m, src, n, sizes

    def put(self, dst: str, name: str, part: str, width: tuple[int, ...]) -> None:
        """Writes a part of the tensor src + name as dst; width: the other dimensions."""
        conv = name.startswith("conv1d")
        parts = [p for p in self.sizes if not conv or p in "VKQ"]
        times = {p: self.n if FACTORS_OF[p] else 1 for p in parts}
        size = self.sizes[part]
        if self.m.has(self.src + name):
            begin = sum(self.sizes[p] * times[p] for p in parts[: parts.index(part)])
            end = begin + size * times[part]
            total = sum(self.sizes[p] * times[p] for p in parts)
            self.m.put(dst, self.src + name, (total, *width),
                       (_conv_rows if conv else rows)(begin, end))
        else:
            names = [f"{self.src}{name}.{part}{j if FACTORS_OF[part] else ''}"
                     for j in range(times[part])]
            join = CONCAT_CONV if conv else CONCAT
            self.m.put(dst, names, (size, *width), join)


def _attention_rows(groups: int, heads: int, length: int, part: slice) -> Transform:
    """Rows of q, k or v of linear_qkv, which has those of `heads` of q, one of k and one of v for
    each of `groups`; part: which of these."""
    n = len(range(heads + 2)[part])

    def apply(a):
        x = a[0].reshape(groups, heads + 2, length, -1)
        return np.ascontiguousarray(x[:, part].reshape(groups * n * length, -1))

    return Transform(lambda s: (groups * n * length, s[0][1]), apply)


def _write_attention(m: Model, kinds: list[str], D: int) -> None:
    layers = [i for i, kind in enumerate(kinds) if kind == "attention"]
    if not layers:
        return
    m.refuse_unless("position_embedding_type", ("none",), "positions are not supported here")
    heads = m.count("num_attention_heads")
    kv = m.count("num_query_groups", heads)
    width = m.shape(f"decoder.layers.{layers[0]}.self_attention.linear_proj.weight", 2)[1]
    if heads % kv or width % heads:
        raise ModelError(f"config.json: num_attention_heads is {heads} and num_query_groups {kv}; "
                         f"expected a divisor of {width} and one of the first")
    length, per = width // heads, heads // kv
    for i in layers:
        dst, src = f"blk.{i}.", f"decoder.layers.{i}.self_attention."
        m.put(dst + "attn_norm.weight", src + "linear_qkv.layer_norm_weight", (D,))
        for name, part in (("q", slice(0, per)), ("k", slice(per, per + 1)),
                           ("v", slice(per + 1, per + 2))):
            m.put(f"{dst}attn_{name}.weight", src + "linear_qkv.weight",
                  ((heads + 2 * kv) * length, D), _attention_rows(kv, per, length, part))
        m.put(dst + "attn_output.weight", src + "linear_proj.weight", (D, width))
    m.set_u32("lrnn.attention.head_count", heads)
    m.set_u32("lrnn.attention.head_count_kv", kv)
    m.set_u32("lrnn.attention.key_length", length)
    m.set_str("lrnn.attention.qk_norm", "none")
    attention_fact(m, layers)


def _write_mixers(m: Model, kinds: list[str], D: int) -> None:
    G, n = m.count("mamba_num_groups", 8), m.count("gdp_num_householder", 3)
    N = m.count("mamba_state_dim", 128)
    first = f"decoder.layers.{kinds.index('recurrent')}.mixer."
    HV, E = m.shape(first + "A_log", 1)[0], m.shape(first + "out_proj.weight", 2)[1]
    if HV % G or E % HV:
        raise ModelError(f"config.json: mamba_num_groups is {G}; expected a divisor of {HV} heads, "
                         f"and they of a width of {E}")
    P = E // HV
    whole = m.has(first + "conv1d.weight")
    W = m.shape(first + ("conv1d.weight" if whole else "conv1d.weight.Q"), 3)[2]
    sizes = {"z": E, "V": E, "K": G * N, "Q": G * N, "b": HV, "a": HV}
    for i, kind in enumerate(kinds):
        if kind != "recurrent":
            continue
        dst, src = f"blk.{i}.", f"decoder.layers.{i}.mixer."
        parts = Parts(m, src, n, sizes)
        m.put(dst + "attn_norm.weight", src + "in_proj.layer_norm_weight", (D,))
        for name, part in (("attn_gate", "z"), ("attn_v", "V"), ("attn_k", "K"), ("attn_q", "Q"),
                           ("ssm_beta", "b"), ("ssm_alpha", "a")):
            parts.put(f"{dst}{name}.weight", "in_proj.weight", part, (D,))
        for part in "VKQ":
            parts.put(f"{dst}ssm_conv1d_{part.lower()}.weight", "conv1d.weight", part, (1, W))
        m.rows(dst, src, [
            ("ssm_a",              "A_log",           (HV,), NEG_EXP_FLAT),
            ("ssm_dt.bias",        "dt_bias",         (HV,), FLAT),
            ("ssm_norm.weight",    "norm.weight",     (E,), reshape((G, E // G))),
            ("attn_output.weight", "out_proj.weight", (D, E)),
        ])
    write_heads(m, G, N, P, ("lrnn.head_count_value", HV))
    m.set_u32("lrnn.householder_count", n)
    m.set_str("lrnn.gate", "head")
    m.set_u32("lrnn.conv_width", conv_width(W))
    m.set_str("lrnn.output_gate", "silu")
    m.set_str("lrnn.output_norm", "gated_group")
    m.set_f32("lrnn.output_norm_epsilon", 1e-5)                # a constant of the code
    mixer_facts(m, f"n_h {n}", f"{G} (value heads {HV}), d_k × d_v {N} × {P}", "one per head", W)


def convert(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option, "allow_neg_eigval")      # our key: Megatron has no signed form
    m.refuse_unless("normalization", ("RMSNorm",), "expected RMSNorm")
    m.refuse_unless("apply_layernorm_1p", (None, False), "norms with 1 + w are not supported")
    kinds = _read_kinds(m)
    if "recurrent" not in kinds:
        raise ModelError(f"{checkpoint.name}: no layer is M; expected at least one")
    layers = m.count_layers("decoder.layers.")
    if layers != len(kinds):
        raise ModelError(f"config.json: the pattern has {len(kinds)} letters; expected {layers}")
    D, V = write_embedding(m, "embedding.word_embeddings.weight", "output_layer.weight", None)
    m.put("output_norm.weight", "decoder.final_norm.weight", (D,))
    _write_mixers(m, kinds, D)
    _write_attention(m, kinds, D)
    F = None
    for i, kind in enumerate(kinds):
        if kind == "mlp":
            m.refuse_unless("squared_relu", (True,), "only MLPs with ReLU² are supported here")
            dst, src = f"blk.{i}.", f"decoder.layers.{i}.mlp."
            F = m.shape(src + "linear_fc2.weight", 2)[1]
            m.rows(dst, src, [("attn_norm.weight", "linear_fc1.layer_norm_weight", (D,)),
                              ("ffn_up.weight",    "linear_fc1.weight",            (F, D)),
                              ("ffn_down.weight",  "linear_fc2.weight",            (D, F))])
    write_sizes(m, layers, D, V, m.positive("layernorm_epsilon", 1e-5), F, "single")
    m.set_array("lrnn.layer_kinds", "str", kinds)
    return m


MODEL_TYPES = {"megatron_gdp": convert}
