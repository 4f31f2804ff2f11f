"""LFM2 (transformers `lfm2` and `lfm2_moe`): gated short convolutions and a few layers of
attention, each with an MLP or a mixture of experts.

The file has llama.cpp's architecture lfm2 or lfm2moe.
"""

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_number
from ..transforms import CONV, conv_width
from .experts import read_counts, write_expert_keys, write_experts
from .layer_parts import attention_fact, mixer_facts, write_embedding
from .llama_cpp import HybridAttention, read_kinds, refuse_one_kind, write_common
from .transformer import read_trained_length

FAMILY = Family("lfm2", Range.UNSIGNED)
MIXTURE = Family("lfm2moe", Range.UNSIGNED)
ALSO = (MIXTURE,)

KEYS = """
    block_auto_adjust_ff_dim block_dim block_ff_dim block_ffn_dim_multiplier block_mlp_init_scale
    block_multiple_of block_norm_eps block_out_init_scale block_use_swiglu block_use_xavier_init
    conv_L_cache conv_bias conv_dim conv_dim_out conv_use_xavier_init full_attn_idxs layer_types
    moe_intermediate_size norm_eps norm_topk_prob num_attention_heads num_dense_layers num_experts
    num_experts_per_tok num_heads num_key_value_heads output_router_logits rope_parameters
    rope_theta routed_scaling_factor theta tie_embedding use_expert_bias use_pos_enc
"""
KINDS = {"conv": "recurrent", "full_attention": "attention"}
MLP = ("w1", "w3", "w2")                   # gate, up, down


def _read_theta(m: Model) -> float:
    params = m.get("rope_parameters", {})
    if not isinstance(params, dict) or params.get("rope_type", "default") != "default":
        raise ModelError(f"config.json: rope_parameters is {shown(params)}; expected an object "
                         "with rope_type 'default'")
    theta = params.get("rope_theta", m.get("rope_theta", m.get("theta", 1e6)))
    if not is_number(theta) or theta <= 0:
        raise ModelError(f"config.json: rope_theta is {shown(theta)}; expected a positive number")
    return float(theta)


def convert(checkpoint: Checkpoint, option: str) -> Model:
    mixture = any(name.endswith(".feed_forward.gate.weight") for name in checkpoint.tensors)
    m = Model(checkpoint, MIXTURE if mixture else FAMILY, KEYS)
    eigenvalues.decide(m, option)
    m.refuse_unless("conv_bias", (None, False), "llama.cpp has no such bias in this architecture")
    m.refuse_unless("norm_topk_prob", (None, True), "llama.cpp always normalizes these weights")
    layers = m.count_layers("model.layers.")
    kinds = read_kinds(m, "layer_types", KINDS, layers)
    refuse_one_kind(m, kinds)
    D, V = write_embedding(m, "model.embed_tokens.weight", tied_default=None)
    read_trained_length(m)
    a = HybridAttention.read(m, f"model.layers.{kinds.index('attention')}.self_attn.")
    W = m.shape(f"model.layers.{kinds.index('recurrent')}.conv.conv.weight", 3)[2]
    sparse = [m.has(f"model.layers.{i}.feed_forward.gate.weight") for i in range(layers)]
    dense = sparse.index(True) if mixture else layers
    if sparse != [i >= dense for i in range(layers)] or m.get("num_dense_layers", dense) != dense:
        raise ModelError(f"config.json: num_dense_layers is {shown(m.get('num_dense_layers'))}; "
                         f"layers {[i for i, x in enumerate(sparse) if x]} of {layers} have a "
                         "router")
    F = 0
    if mixture:
        X, k = read_counts(m, "num_experts", "num_experts_per_tok")
        FX = m.shape(f"model.layers.{dense}.feed_forward.experts.0.w2.weight", 2)[1]

    m.put("token_embd_norm.weight", "model.embedding_norm.weight", (D,))   # the output norm
    for i, kind in enumerate(kinds):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        m.put(dst + "attn_norm.weight", src + "operator_norm.weight", (D,))
        if kind == "recurrent":
            m.rows(dst + "shortconv.", src + "conv.", [
                ("in_proj.weight",  "in_proj.weight",  (3 * D, D)),
                ("conv.weight",     "conv.weight",     (D, 1, W), CONV),
                ("out_proj.weight", "out_proj.weight", (D, D)),
            ])
        else:
            a.write_layer(m, dst, src + "self_attn.", D, output="out_proj.weight")
            m.rows(dst, src + "self_attn.", [
                ("attn_q_norm.weight", "q_layernorm.weight", (a.length,)),
                ("attn_k_norm.weight", "k_layernorm.weight", (a.length,)),
            ])
        m.put(dst + "ffn_norm.weight", src + "ffn_norm.weight", (D,))
        mlp = src + "feed_forward."
        if sparse[i]:
            m.put(dst + "ffn_gate_inp.weight", mlp + "gate.weight", (X, D))
            if m.flag(("use_expert_bias",), mlp + "expert_bias"):
                m.put(dst + "exp_probs_b.bias", mlp + "expert_bias", (X,))
            write_experts(m, dst, mlp + "experts.", X, D, FX, gated=True, names=MLP)
        else:
            F = m.shape(mlp + "w2.weight", 2)[1]
            m.rows(dst, mlp, [("ffn_gate.weight", "w1.weight", (F, D)),
                              ("ffn_up.weight",   "w3.weight", (F, D)),
                              ("ffn_down.weight", "w2.weight", (D, F))])

    arch = m.family.name
    write_common(m, arch, layers, D, V, F)
    a.write_keys(m, arch, [kind == "attention" for kind in kinds])
    m.set_u32(f"{arch}.shortconv.l_cache", conv_width(W))
    m.set_f32(f"{arch}.attention.layer_norm_rms_epsilon",
              m.positive("norm_eps", m.get("block_norm_eps", 1e-5)))
    m.set_f32(f"{arch}.rope.freq_base", _read_theta(m))
    if mixture:
        write_expert_keys(m, arch, X, k, FX, 0)
        m.set_u32(f"{arch}.leading_dense_block_count", dense)
        m.set_u32(f"{arch}.expert_gating_func", 2)                         # σ
        m.set_f32(f"{arch}.expert_weights_scale", m.positive("routed_scaling_factor", 1.0))
    mixer_facts(m, "none", "none", "none", conv_width(W))
    attention_fact(m, [i for i, kind in enumerate(kinds) if kind == "attention"])
    return m


MODEL_TYPES = {"lfm2": convert, "lfm2_moe": convert}
