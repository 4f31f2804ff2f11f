"""Jamba (transformers `jamba`): Mamba layers whose dt, B and C have norms with weights, and a few
attention layers without positions, each with an MLP or a mixture of experts."""

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError
from ..family import Family, Range
from ..model import Model
from ..transforms import conv_width
from . import mamba
from .experts import expert_width, read_counts, write_expert_keys, write_experts
from .layer_parts import DIAGONAL, SWISH, attention_fact, write_embedding, write_swiglu
from .llama_cpp import HybridAttention, refuse_one_kind, write_common

FAMILY = Family("jamba", Range.UNSIGNED)

# the tensors say which layers are attention and which are mixtures
KEYS = """
    attn_layer_offset attn_layer_period expert_layer_offset expert_layer_period hidden_act
    mamba_conv_bias mamba_d_conv mamba_d_state mamba_dt_rank mamba_expand mamba_inner_layernorms
    mamba_proj_bias num_attention_heads num_experts num_experts_per_tok num_key_value_heads
    num_local_experts num_logits_to_keep output_router_logits rms_norm_eps router_aux_loss_coef
    sliding_window use_associative_scan use_mamba_kernels use_mambapy
"""


def convert(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option)
    m.choice("hidden_act", "silu", SWISH)
    m.refuse_unless("mamba_proj_bias", (None, False), "the architecture has no such biases")
    m.refuse_unless("sliding_window", (None,), "windows are not supported in this architecture")
    layers = m.count_layers("model.layers.")
    kinds = ["attention" if m.has(f"model.layers.{i}.self_attn.q_proj.weight") else "recurrent"
             for i in range(layers)]
    refuse_one_kind(m, kinds)
    D, V = write_embedding(m, "model.embed_tokens.weight")
    first = f"model.layers.{kinds.index('recurrent')}.mamba."
    E, N = m.shape(first + "A_log", 2)
    R = m.shape(first + "dt_proj.weight", 2)[1]
    W = m.shape(first + "conv1d.weight", 3)[2]
    if E != 2 * D:
        raise ModelError(f"{checkpoint.name}: tensor {first}A_log has {E} rows; expected {2 * D}, "
                         "twice the width, the only size that llama.cpp has")
    a = HybridAttention.read(m, f"model.layers.{kinds.index('attention')}.self_attn.")
    mixtures = [i for i in range(layers) if m.has(f"model.layers.{i}.feed_forward.router.weight")]
    if mixtures:
        X, k = read_counts(m, "num_experts", "num_experts_per_tok")

    m.put("output_norm.weight", "model.final_layernorm.weight", (D,))
    F = 0
    for i, kind in enumerate(kinds):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        m.put(dst + "attn_norm.weight", src + "input_layernorm.weight", (D,))
        if kind == "recurrent":
            mamba.write_mixer(m, dst, src + "mamba.", D, E, N, R, W)
            m.rows(dst, src + "mamba.", [
                ("ssm_dt_norm.weight", "dt_layernorm.weight", (R,)),
                ("ssm_b_norm.weight",  "b_layernorm.weight",  (N,)),
                ("ssm_c_norm.weight",  "c_layernorm.weight",  (N,)),
                ("ssm_conv1d.bias",    "conv1d.bias",         (E,)),
            ])
        else:
            a.write_layer(m, dst, src + "self_attn.", D)
        m.put(dst + "ffn_norm.weight", src + "pre_ff_layernorm.weight", (D,))
        src += "feed_forward."
        if i in mixtures:
            F = expert_width(m, src + "experts.")
            m.put(dst + "ffn_gate_inp.weight", src + "router.weight", (X, D))
            write_experts(m, dst, src + "experts.", X, D, F, gated=True)
        else:
            F = m.shape(src + "down_proj.weight", 2)[1]
            write_swiglu(m, dst, src, D, F)            # of the same width as an expert

    write_common(m, "jamba", layers, D, V, F)
    if mixtures:
        write_expert_keys(m, "jamba", X, k, F, 0)
    m.set_u32("jamba.ssm.conv_kernel", conv_width(W))
    m.set_u32("jamba.ssm.inner_size", E)
    m.set_u32("jamba.ssm.state_size", N)
    m.set_u32("jamba.ssm.time_step_rank", R)
    m.set_f32("jamba.attention.layer_norm_rms_epsilon", m.positive("rms_norm_eps", 1e-6))
    a.write_keys(m, "jamba", [kind == "attention" for kind in kinds])
    m.fact("factors", DIAGONAL)
    m.fact("channels", f"{E}, state {N}")
    attention_fact(m, [i for i, kind in enumerate(kinds) if kind == "attention"])
    return m


MODEL_TYPES = {"jamba": convert}
