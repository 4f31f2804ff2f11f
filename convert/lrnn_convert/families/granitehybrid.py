"""Granite-4.0-H (transformers `granitemoehybrid`): Mamba-2 layers and a few attention layers
without positions, each with an MLP or a mixture of experts.

    x = m_e · embedding;   x += r · mixer(norm x);   x += r · mlp(norm x);   logits = W x / m_l

Bamba (transformers `bamba`): the same without the factors and experts, and with RoPE, in the pairs
of neighbors of llama.cpp.
"""

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_number
from ..transforms import expert_rows, rows
from . import mamba2
from .experts import read_counts, write_expert_keys
from .layer_parts import SWISH, attention_fact, write_embedding, write_swiglu
from .llama_cpp import HybridAttention, read_kinds, refuse_one_kind, write_common

FAMILY = Family("granitehybrid", Range.UNSIGNED)

KEYS = """
    attention_bias attention_multiplier embedding_multiplier hidden_act init_method layer_types
    logits_scaling mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_state
    mamba_expand mamba_n_groups mamba_n_heads mamba_proj_bias normalization_function
    num_attention_heads num_experts_per_tok num_key_value_heads num_local_experts
    output_router_logits position_embedding_type residual_multiplier rms_norm_eps rope_parameters
    rope_scaling rope_theta router_aux_loss_coef shared_intermediate_size time_step_limit
"""
BAMBA_KEYS = """
    attention_bias attn_layer_indices attn_rotary_emb hidden_act layer_types layers_block_type
    mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_state mamba_expand
    mamba_n_groups mamba_n_heads mamba_proj_bias mlp_bias num_attention_heads num_key_value_heads
    num_logits_to_keep partial_rotary_factor rms_norm_eps rope_parameters rope_scaling rope_theta
    time_step_limit z_loss_coefficient
"""
KINDS = {"mamba": "recurrent", "linear_attention": "recurrent", "attention": "attention",
         "full_attention": "attention"}


def _count_groups(m: Model) -> int:
    G = m.count("mamba_n_groups", 1)
    if G != 1:
        raise ModelError(f"config.json: mamba_n_groups is {shown(G)}; expected 1, because "
                         "llama.cpp and transformers disagree on the norm of several groups")
    return G


def _rope_parameters(m: Model) -> dict:
    params = m.get("rope_parameters", m.get("rope_scaling", {}))
    if not isinstance(params, dict) or params.get("rope_type", "default") != "default":
        raise ModelError(f"config.json: rope_parameters is {shown(params)}; expected an object "
                         "with rope_type 'default'")
    return params


def _write_rope(m: Model, n_rot: int) -> None:
    """n_rot: entries of a head that RoPE turns; 0: no RoPE."""
    m.set_bool("granitehybrid.rope.scaling.finetuned", n_rot > 0)
    if n_rot:
        theta = _rope_parameters(m).get("rope_theta", m.get("rope_theta", 10000.0))
        if not is_number(theta) or theta <= 0:
            raise ModelError(f"config.json: rope_theta is {shown(theta)}; expected a positive "
                             "number")
        m.set_u32("granitehybrid.rope.dimension_count", n_rot)
        m.set_f32("granitehybrid.rope.freq_base", float(theta))
        m.fact("RoPE", f"{n_rot} entries of a head")


def convert(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option)
    m.choice("hidden_act", "silu", SWISH)
    m.choice("normalization_function", "rmsnorm", {"rmsnorm": "rmsnorm"})
    positions = m.choice("position_embedding_type", "nope", {"nope": "nope", "rope": "rope"})
    for key in ("attention_bias", "mamba_proj_bias"):
        m.refuse_unless(key, (None, False), "the architecture has no such biases")
    mamba2.refuse_limit(m)
    layers = m.count_layers("model.layers.")
    kinds = read_kinds(m, "layer_types", KINDS, layers)
    D, V = write_embedding(m, "model.embed_tokens.weight", tied_default=None)
    F = m.shape("model.layers.0.shared_mlp.output_linear.weight", 2)[1]
    mixture = m.has("model.layers.0.block_sparse_moe.router.layer.weight")
    if mixture:
        X, k = read_counts(m, "num_local_experts", "num_experts_per_tok")
        FX = m.shape("model.layers.0.block_sparse_moe.output_linear.weight", 3)[2]
    shared = "_shexp" if mixture else ""
    eps = m.positive("rms_norm_eps", 1e-6)
    G = _count_groups(m)
    refuse_one_kind(m, kinds)
    s = mamba2.read_sizes(m, f"model.layers.{kinds.index('recurrent')}.mamba.", G)
    a = HybridAttention.read(m, f"model.layers.{kinds.index('attention')}.self_attn.")
    n_rot = a.length if positions == "rope" else 0

    m.put("output_norm.weight", "model.norm.weight", (D,))
    for i, kind in enumerate(kinds):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        m.put(dst + "attn_norm.weight", src + "input_layernorm.weight", (D,))
        if kind == "recurrent":
            mamba2.write_mixer(m, dst, src + "mamba.", D, s)
            m.put_optional(dst + "ssm_conv1d.bias", src + "mamba.conv1d.bias", (s.C,))
        else:
            a.write_layer(m, dst, src + "self_attn.", D, n_rot=n_rot)
        m.put(dst + "ffn_norm.weight", src + "post_attention_layernorm.weight", (D,))
        if mixture:
            m.rows(dst, src + "block_sparse_moe.", [
                ("ffn_gate_inp.weight",  "router.layer.weight",  (X, D)),
                ("ffn_gate_exps.weight", "input_linear.weight",  (X, 2 * FX, D),
                 expert_rows(0, FX)),
                ("ffn_up_exps.weight",   "input_linear.weight",  (X, 2 * FX, D),
                 expert_rows(FX, 2 * FX)),
                ("ffn_down_exps.weight", "output_linear.weight", (X, D, FX)),
            ])
        m.rows(dst, src + "shared_mlp.", [
            (f"ffn_gate{shared}.weight", "input_linear.weight",  (2 * F, D), rows(0, F)),
            (f"ffn_up{shared}.weight",   "input_linear.weight",  (2 * F, D), rows(F, 2 * F)),
            (f"ffn_down{shared}.weight", "output_linear.weight", (D, F)),
        ])

    write_common(m, "granitehybrid", layers, D, V, FX if mixture else F)
    if mixture:
        write_expert_keys(m, "granitehybrid", X, k, FX, F)
    mamba2.write_keys(m, "granitehybrid", s)
    a.write_keys(m, "granitehybrid", [kind == "attention" for kind in kinds])
    _write_rope(m, n_rot)
    m.set_f32("granitehybrid.attention.layer_norm_rms_epsilon", eps)
    m.set_f32("granitehybrid.embedding_scale", m.positive("embedding_multiplier", 1.0))
    m.set_f32("granitehybrid.residual_scale", m.positive("residual_multiplier", 1.0))
    m.set_f32("granitehybrid.attention.scale", m.positive("attention_multiplier", 1.0))
    m.set_f32("granitehybrid.logit_scale", m.positive("logits_scaling", 1.0))
    mamba2.write_facts(m, s)
    attention_fact(m, [i for i, kind in enumerate(kinds) if kind == "attention"])
    return m


def _read_bamba_kinds(m: Model, layers: int) -> list[str]:
    """A list of layers with attention, or, as saved by newer versions, of the kinds of all."""
    key = "layers_block_type" if m.get("layers_block_type") is not None else "layer_types"
    if m.get(key) is not None:
        return read_kinds(m, key, KINDS, layers)
    listed = m.get("attn_layer_indices")
    if not isinstance(listed, list) or not all(isinstance(i, int) and 0 <= i < layers
                                               for i in listed):
        raise ModelError(f"config.json: attn_layer_indices is {shown(listed)}; expected numbers "
                         f"from 0 to {layers - 1}")
    return ["attention" if i in listed else "recurrent" for i in range(layers)]


def convert_bamba(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, BAMBA_KEYS)
    eigenvalues.decide(m, option)
    for key in ("attention_bias", "mamba_proj_bias", "mlp_bias"):
        m.refuse_unless(key, (None, False), "the architecture has no such biases")
    mamba2.refuse_limit(m)
    layers = m.count_layers("model.layers.")
    kinds = _read_bamba_kinds(m, layers)
    refuse_one_kind(m, kinds)
    D, V = write_embedding(m, "model.embed_tokens.weight")
    F = m.shape("model.layers.0.feed_forward.down_proj.weight", 2)[1]
    s = mamba2.read_sizes(m, f"model.layers.{kinds.index('recurrent')}.mamba.", _count_groups(m))
    a = HybridAttention.read(m, f"model.layers.{kinds.index('attention')}.self_attn.")
    factor = _rope_parameters(m).get("partial_rotary_factor", 0.5)     # the library fixes it
    if factor != 0.5 or a.length % 4 or m.get("attn_rotary_emb", a.length // 2) != a.length // 2:
        raise ModelError(f"config.json: partial_rotary_factor is {shown(factor)} and "
                         f"attn_rotary_emb {shown(m.get('attn_rotary_emb'))} with heads of "
                         f"{a.length}; expected half of a head")

    m.put("output_norm.weight", "model.final_layernorm.weight", (D,))
    for i, kind in enumerate(kinds):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        m.put(dst + "attn_norm.weight", src + "input_layernorm.weight", (D,))
        if kind == "recurrent":
            mamba2.write_mixer(m, dst, src + "mamba.", D, s)
            m.put_optional(dst + "ssm_conv1d.bias", src + "mamba.conv1d.bias", (s.C,))
        else:
            a.write_layer(m, dst, src + "self_attn.", D, n_rot=a.length // 2)
        m.put(dst + "ffn_norm.weight", src + "pre_ff_layernorm.weight", (D,))
        write_swiglu(m, dst, src + "feed_forward.", D, F)

    write_common(m, "granitehybrid", layers, D, V, F)
    mamba2.write_keys(m, "granitehybrid", s)
    a.write_keys(m, "granitehybrid", [kind == "attention" for kind in kinds])
    _write_rope(m, a.length // 2)
    m.set_f32("granitehybrid.attention.layer_norm_rms_epsilon", m.positive("rms_norm_eps", 1e-5))
    mamba2.write_facts(m, s)
    attention_fact(m, [i for i, kind in enumerate(kinds) if kind == "attention"])
    return m


MODEL_TYPES = {"granitemoehybrid": convert, "bamba": convert_bamba}
