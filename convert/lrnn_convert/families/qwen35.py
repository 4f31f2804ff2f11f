"""Qwen3.5 (transformers `qwen3_5_text` and `qwen3_5_moe_text`, and the text part of `qwen3_5` and
`qwen3_5_moe`) and Qwen3-Next (`qwen3_next`): Gated DeltaNet layers, every fourth layer gated
attention; with an MLP or with a mixture of experts.

The file has llama.cpp's architecture qwen35, qwen35moe or qwen3next. In the first two it has
llama.cpp's order of value heads: head r of key head k is value head r·H + k there, and k·(HV/H) + r
in the checkpoint.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_number
from ..transforms import CONV, NEG_EXP_FLAT, SAME, Transform, conv_width
from .experts import (expert_width, read_counts, write_expert_keys, write_experts, write_shared,
                      write_shared_gate)
from .layer_parts import (SWISH, attention_fact, check_groups, mixer_facts, write_embedding,
                          write_swiglu)
from .llama_cpp import write_common
from .transformer import read_trained_length

FAMILY = Family("qwen35", Range.UNSIGNED)
MIXTURE = Family("qwen35moe", Range.UNSIGNED)
NEXT = Family("qwen3next", Range.UNSIGNED)
ALSO = (MIXTURE, NEXT)

KEYS = """
    hidden_act rms_norm_eps num_attention_heads num_key_value_heads head_dim attention_bias
    rope_theta rope_scaling rope_parameters partial_rotary_factor layer_types
    full_attention_interval attn_output_gate linear_conv_kernel_dim linear_key_head_dim
    linear_value_head_dim linear_num_key_heads linear_num_value_heads mtp_num_hidden_layers
    mtp_use_dedicated_embeddings mamba_ssm_dtype moe_intermediate_size num_experts
    num_experts_per_tok output_router_logits router_aux_loss_coef shared_expert_intermediate_size
    norm_topk_prob decoder_sparse_step mlp_only_layers
"""
ROPE_KEYS = ("rope_type", "rope_theta", "partial_rotary_factor", "mrope_section",
             "mrope_interleaved")
SECTIONS = [11, 11, 10]                    # of transformers; text has equal positions in all


# the norms of the checkpoint multiply by 1 + w
PLUS_ONE = Transform(SAME.shape, lambda a: a[0] + np.float32(1))


def _tiled(x: np.ndarray, H: int, HV: int, axis: int) -> np.ndarray:
    """Value heads along an axis in llama.cpp's order."""
    parts = list(x.shape)
    parts[axis:axis + 1] = [H, HV // H, x.shape[axis] // HV]
    return np.ascontiguousarray(np.swapaxes(x.reshape(parts), axis, axis + 1)).reshape(x.shape)


def _heads(H: int, HV: int, first: int = 0, axis: int = 0, inner: Transform = SAME) -> Transform:
    """Reorders the value heads from row (or column) `first` on."""

    def apply(a: list[np.ndarray]) -> np.ndarray:
        x = inner.apply(a)
        if H == HV:
            return x
        if first == 0:
            return _tiled(x, H, HV, axis)
        return np.concatenate([x[:first], _tiled(x[first:], H, HV, 0)])

    return Transform(inner.shape, apply, any_rank=inner.any_rank)


def _read_rope(m: Model) -> tuple[float, float, list[int]]:
    """(theta, share of a head that turns, sections)"""
    params = m.get("rope_parameters", m.get("rope_scaling", {}))
    if not isinstance(params, dict):
        raise ModelError(f"config.json: rope_parameters is {shown(params)}; expected an object")
    for key, value in params.items():
        if key not in ROPE_KEYS and value is not None:
            raise ModelError(f"config.json: unknown key rope_parameters.{key} = {shown(value)}; it "
                             "may change what the model computes")
    kind = params.get("rope_type") or "default"
    if kind != "default":
        raise ModelError(f"config.json: rope_type is {shown(kind)}; expected 'default'")
    theta = params.get("rope_theta", m.get("rope_theta", 10000.0))
    share = params.get("partial_rotary_factor", m.get("partial_rotary_factor", 0.25))
    for name, value in (("rope_theta", theta), ("partial_rotary_factor", share)):
        if not is_number(value) or value <= 0:
            raise ModelError(f"config.json: {name} is {shown(value)}; expected a positive number")
    sections = params.get("mrope_section", SECTIONS)
    if (not isinstance(sections, list) or len(sections) > 4
            or not all(isinstance(x, int) and 0 <= x < 1 << 16 for x in sections)):
        raise ModelError(f"config.json: mrope_section is {shown(sections)}; expected a list of "
                         "numbers")
    return float(theta), float(share), sections


def _read_kinds(m: Model, layers: int) -> list[str]:
    kinds = m.get("layer_types")
    if kinds is None:
        interval = m.count("full_attention_interval", 4)
        kinds = ["linear_attention" if (i + 1) % interval else "full_attention"
                 for i in range(layers)]
    if (not isinstance(kinds, list) or len(kinds) != layers
            or not all(k in ("linear_attention", "full_attention") for k in kinds)):
        raise ModelError(f"config.json: layer_types is {shown(kinds)}; expected linear_attention "
                         f"or full_attention for each of {layers} layers")
    if len(set(kinds)) != 2:
        raise ModelError("config.json: layer_types has only one kind of layer; expected both")
    return kinds


def _recurrent_layer(m: Model, dst: str, src: str, D: int, H: int, HV: int, K: int, W: int) -> None:
    E, qk = HV * K, 2 * H * K
    m.rows(dst, src, [
        ("attn_qkv.weight",   "in_proj_qkv.weight", (qk + E, D),    _heads(H, HV, qk)),
        ("attn_gate.weight",  "in_proj_z.weight",   (E, D),         _heads(H, HV)),
        ("ssm_conv1d.weight", "conv1d.weight",      (qk + E, 1, W), _heads(H, HV, qk, inner=CONV)),
        ("ssm_beta.weight",   "in_proj_b.weight",   (HV, D),        _heads(H, HV)),
        ("ssm_alpha.weight",  "in_proj_a.weight",   (HV, D),        _heads(H, HV)),
        ("ssm_a",             "A_log",              (HV,), _heads(H, HV, inner=NEG_EXP_FLAT)),
        ("ssm_dt.bias",       "dt_bias",            (HV,),          _heads(H, HV)),
        ("ssm_norm.weight",   "norm.weight",        (K,)),          # not 1 + w
        ("ssm_out.weight",    "out_proj.weight",    (D, E),         _heads(H, HV, axis=1)),
    ])


def _part(H: int, sizes: list[int], *parts: int) -> Transform:
    """Parts of a matrix that has, for each of H key heads, parts of these numbers of rows: each of
    them for all heads, one after the other."""
    ends = np.cumsum(sizes)

    def apply(a: list[np.ndarray]) -> np.ndarray:
        x = a[0].reshape(H, ends[-1], -1)
        return np.concatenate([x[:, ends[i] - sizes[i]:ends[i]].reshape(H * sizes[i], -1)
                               for i in parts])

    return Transform(lambda s: (H * sum(sizes[i] for i in parts), s[0][1]), apply)


def _next_layer(m: Model, dst: str, src: str, D: int, H: int, HV: int, K: int, W: int) -> None:
    """A recurrent layer of Qwen3-Next: q, k, v and z of a key head are neighbors, and so are its b
    and a, also in the file."""
    E, qk = HV * K, 2 * H * K
    qkvz = ("in_proj_qkvz.weight", (qk + 2 * E, D))
    sizes = [K, K, E // H, E // H]
    m.rows(dst, src, [
        ("attn_qkv.weight",   *qkvz, _part(H, sizes, 0, 1, 2)),
        ("attn_gate.weight",  *qkvz, _part(H, sizes, 3)),
        ("ssm_conv1d.weight", "conv1d.weight",     (qk + E, 1, W), CONV),
        ("ssm_ba.weight",     "in_proj_ba.weight", (2 * HV, D)),
        ("ssm_a",             "A_log",             (HV,), NEG_EXP_FLAT),
        ("ssm_dt.bias",       "dt_bias",           (HV,)),
        ("ssm_norm.weight",   "norm.weight",       (K,)),              # not 1 + w
        ("ssm_out.weight",    "out_proj.weight",   (D, E)),
    ])


def _attention_layer(m: Model, dst: str, src: str, D: int, heads: int, kv: int, L: int) -> None:
    m.rows(dst, src, [
        ("attn_q.weight",      "q_proj.weight", (2 * heads * L, D)),         # per head: q, gate
        ("attn_k.weight",      "k_proj.weight", (kv * L, D)),
        ("attn_v.weight",      "v_proj.weight", (kv * L, D)),
        ("attn_output.weight", "o_proj.weight", (D, heads * L)),
        ("attn_q_norm.weight", "q_norm.weight", (L,), PLUS_ONE),
        ("attn_k_norm.weight", "k_norm.weight", (L,), PLUS_ONE),
    ])


def _count_draft_blocks(m: Model) -> int:
    """The draft block (multi-token prediction): one more attention layer that guesses tokens."""
    if not m.has("mtp.fc.weight"):
        return 0
    m.refuse_unless("mtp_use_dedicated_embeddings", (None, False),
                    "the draft block has the embedding of the model")
    return 1


def _write_draft_block(m: Model, arch: str, layers: int, D: int) -> None:
    """What it has besides its layer. `layers`: those of the model"""
    m.set_u32(f"{arch}.block_count", layers + 1)
    m.set_u32(f"{arch}.nextn_predict_layers", 1)
    m.rows(f"blk.{layers}.nextn.", "mtp.", [
        ("eh_proj.weight",          "fc.weight",                    (D, 2 * D)),
        ("enorm.weight",            "pre_fc_norm_embedding.weight", (D,), PLUS_ONE),
        ("hnorm.weight",            "pre_fc_norm_hidden.weight",    (D,), PLUS_ONE),
        ("shared_head_norm.weight", "norm.weight",                  (D,), PLUS_ONE),
    ])
    m.fact("draft block", "1 attention layer (multi-token prediction)")


def _sizes(m: Model, first: str) -> tuple[int, int, int, int]:
    """Heads H and HV, their length and the width of the convolution."""
    H = m.count("linear_num_key_heads", 16)
    HV = m.shape(first + "dt_bias", 1)[0]
    E = m.shape(first + "out_proj.weight", 2)[1]
    C, _, W = m.shape(first + "conv1d.weight", 3)
    check_groups(m, H, HV)
    K = E // HV
    if E != HV * K or C != 2 * H * K + E:
        raise ModelError(f"{m.checkpoint.name}: tensor {first}conv1d.weight has {C} channels with "
                         f"{H} key heads, {HV} value heads and {E} value channels; expected keys "
                         "and values of the same length")
    return H, HV, K, W


def convert(checkpoint: Checkpoint, option: str) -> Model:
    mixture = "model.layers.0.mlp.gate.weight" in checkpoint.tensors
    is_next = checkpoint.config["model_type"] == "qwen3_next"
    m = Model(checkpoint, NEXT if is_next else MIXTURE if mixture else FAMILY, KEYS)
    eigenvalues.decide(m, option)
    m.refuse_unless("attention_bias", (None, False), "the architecture has no biases")
    m.refuse_unless("attn_output_gate", (None, True), "the architecture has an output gate")
    m.refuse_unless("norm_topk_prob", (None, True), "llama.cpp always normalizes these weights")
    for key, allowed in (("decoder_sparse_step", (None, 1)), ("mlp_only_layers", (None, []))):
        m.refuse_unless(key, allowed, "every layer of the architecture is a mixture")
    layers = m.count_layers("model.layers.")
    kinds = _read_kinds(m, layers)
    D, V = write_embedding(m, "model.embed_tokens.weight")
    if mixture:
        X, k = read_counts(m, "num_experts", "num_experts_per_tok")
        F = expert_width(m, "model.layers.0.mlp.experts.")
        shared = m.shape("model.layers.0.mlp.shared_expert.down_proj.weight", 2)[1]
    else:
        F = m.shape("model.layers.0.mlp.down_proj.weight", 2)[1]
    eps = m.positive("rms_norm_eps", 1e-6)
    read_trained_length(m)

    recurrent = kinds.index("linear_attention")
    H, HV, K, W = _sizes(m, f"model.layers.{recurrent}.linear_attn.")
    attention = f"model.layers.{kinds.index('full_attention')}.self_attn."
    heads = m.count("num_attention_heads", 16)
    L = m.shape(attention + "o_proj.weight", 2)[1] // heads
    kv = m.shape(attention + "k_proj.weight", 2)[0] // max(L, 1)
    theta, share, sections = _read_rope(m)

    m.put("output_norm.weight", "model.norm.weight", (D,), PLUS_ONE)
    drafts = _count_draft_blocks(m)
    for i, kind in enumerate(kinds + ["full_attention"] * drafts):
        dst, src = f"blk.{i}.", f"model.layers.{i}." if i < layers else "mtp.layers.0."
        m.put(dst + "attn_norm.weight", src + "input_layernorm.weight", (D,), PLUS_ONE)
        if kind == "linear_attention":
            write = _next_layer if is_next else _recurrent_layer
            write(m, dst, src + "linear_attn.", D, H, HV, K, W)
        else:
            _attention_layer(m, dst, src + "self_attn.", D, heads, kv, L)
        m.put(dst + "post_attention_norm.weight", src + "post_attention_layernorm.weight", (D,),
              PLUS_ONE)
        if mixture:
            m.put(dst + "ffn_gate_inp.weight", src + "mlp.gate.weight", (X, D))
            write_experts(m, dst, src + "mlp.experts.", X, D, F, gated=True)
            write_shared(m, dst, src + "mlp.shared_expert.", D, shared, gated=True)
            write_shared_gate(m, dst, src + "mlp.shared_expert_gate.weight", D)
        else:
            write_swiglu(m, dst, src + "mlp.", D, F)

    arch = m.family.name
    write_common(m, arch, layers, D, V, F)
    if drafts:
        _write_draft_block(m, arch, layers, D)
    if mixture:
        m.choice("hidden_act", "silu", SWISH)
        write_expert_keys(m, arch, X, k, F, shared)
    m.set_u32(f"{arch}.attention.head_count", heads)
    m.set_u32(f"{arch}.attention.head_count_kv", kv)
    m.set_u32(f"{arch}.attention.key_length", L)
    m.set_u32(f"{arch}.attention.value_length", L)
    m.set_u32(f"{arch}.rope.dimension_count", int(L * share))
    m.set_u32(f"{arch}.ssm.conv_kernel", conv_width(W))
    m.set_u32(f"{arch}.ssm.state_size", K)
    m.set_u32(f"{arch}.ssm.group_count", H)
    m.set_u32(f"{arch}.ssm.time_step_rank", HV)
    m.set_u32(f"{arch}.ssm.inner_size", HV * K)
    m.set_f32(f"{arch}.attention.layer_norm_rms_epsilon", eps)
    m.set_f32(f"{arch}.rope.freq_base", theta)
    if not is_next:
        m.set_array(f"{arch}.rope.dimension_sections", "i32", (sections + [0] * 4)[:4])
    m.set_array(f"{arch}.attention.recurrent_layers", "bool",
                [kind == "linear_attention" for kind in kinds] + [False] * drafts)
    mixer_facts(m, "n_h 1", f"{H} (value heads {HV}), d_k × d_v {K} × {K}", "one per head", W)
    attention_fact(m, [i for i, kind in enumerate(kinds) if kind == "full_attention"])
    return m


def _without(checkpoint: Checkpoint, skipped: Callable[[str], bool]) -> tuple[Checkpoint, int]:
    kept = {name: t for name, t in checkpoint.tensors.items() if not skipped(name)}
    return replace(checkpoint, tensors=kept), len(checkpoint.tensors) - len(kept)


def convert_text(checkpoint: Checkpoint, option: str) -> Model:
    """Qwen3_5ForCausalLM, Qwen3NextForCausalLM"""
    prefix = "model.mtp."
    names = {name: name.removeprefix("model.") if name.startswith(prefix) else name
             for name in checkpoint.tensors}
    return convert(replace(checkpoint, tensors={names[name]: t for name, t
                                                in checkpoint.tensors.items()}), option)


def convert_multimodal(checkpoint: Checkpoint, option: str) -> Model:
    """The text part of Qwen3_5ForConditionalGeneration"""
    text = checkpoint.config.get("text_config")
    if not isinstance(text, dict):
        raise ModelError(f"config.json: text_config is {shown(text)}; expected an object")
    prefix = "model.language_model."
    c, n_vision = _without(checkpoint, lambda name: name.startswith(("model.visual.", "visual.")))
    if not any(name.startswith(prefix) for name in c.tensors):
        raise ModelError(f"{checkpoint.name}: no tensor begins with {prefix}; expected a language "
                         "model, not only its vision part")
    tied = checkpoint.config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    names = {name: "model." + name.removeprefix(prefix) if name.startswith(prefix) else name
             for name in c.tensors}
    c = replace(c, config=text | {"tie_word_embeddings": tied},
                tensors={names[name]: t for name, t in c.tensors.items()})
    m = convert_text(c, option)
    if n_vision:
        m.notes.append(f"{n_vision} tensors of the vision part are skipped")
    return m


MODEL_TYPES = {"qwen3_next": convert_text,
               "qwen3_5_text": convert_text, "qwen3_5": convert_multimodal,
               "qwen3_5_moe_text": convert_text, "qwen3_5_moe": convert_multimodal}
