"""Ling 3.0 (transformers `bailing_hybrid`): as Kimi-Linear, with other gates, RoPE in the latent
attention, and experts in groups.

The file has llama.cpp's architecture bailingmoe3. The last layers of the largest model have limits
inside SwiGLU; its modeling code ignores them, vLLM and llama.cpp apply them.
"""

from dataclasses import replace

import numpy as np

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_count, is_number
from ..transforms import FLAT, Transform, reshape
from .experts import expert_width, read_counts, write_experts, write_shared
from .kimi_linear import Latent, first_key, read_kinds, write_delta, write_router_keys
from .layer_parts import SWISH, attention_fact, mixer_facts, write_embedding, write_swiglu
from .llama_cpp import write_common
from .transformer import read_trained_length

FAMILY = Family("bailingmoe3", Range.UNSIGNED)
ARCH = "bailingmoe3"

# Dropouts, the window of no layer, losses and the draft layer do not matter here. RoPE turns all of
# qk_rope_head_dim, whatever partial_rotary_factor says.
KEYS = """
    attention_bias embedding_dropout expert_swiglu_limit_list first_k_dense_replace
    gated_attention_proj_granularity_type group_norm_size head_dim hidden_act kda_lower_bound
    kda_safe_gate kv_lora_rank layer_group_size layer_types linear_conv_kernel_dim linear_head_dim
    linear_num_heads linear_silu max_window_layers mlp_layer_types model_max_length
    moe_intermediate_size moe_renormalize moe_router_enable_expert_bias
    moe_shared_expert_intermediate_size mtp_loss_scaling_factor mtp_use_kda n_group
    n_shared_experts no_kda_lora norm_topk_prob num_attention_heads num_expert_group num_experts
    num_experts_per_tok num_experts_per_token num_key_value_heads num_kv_heads_for_linear_attn
    num_mtp_layers num_nextn_predict_layers num_shared_experts output_dropout
    output_router_logits partial_rotary_factor q_lora_rank qk_head_dim qk_nope_head_dim
    qk_rope_head_dim rms_norm_eps rope_interleave rope_parameters rope_scaling rope_theta
    rotary_dim routed_scaling_factor router_dtype scale_router_input score_function scoring_func
    seq_aux share_expert_swiglu_limit_list short_conv_kernel_size topk_group topk_method
    up_proj_norm use_bias use_kda_lora use_mla_nope use_nGPT use_qk_norm use_qkv_bias v_head_dim
    value_norm
"""
NEVER = ("scale_router_input", "up_proj_norm", "use_kda_lora", "use_mla_nope", "use_nGPT",
         "value_norm")
# llama.cpp has the positive sign here
EXP_FLAT = Transform(FLAT.shape, lambda a: np.exp(a[0].reshape(-1)), any_rank=True)


def _read_theta(m: Model) -> float:
    params = m.get("rope_parameters", m.get("rope_scaling", {}))
    if not isinstance(params, dict) or params.get("rope_type", "default") != "default":
        raise ModelError(f"config.json: rope_parameters is {shown(params)}; expected an object "
                         "with rope_type 'default'")
    theta = params.get("rope_theta", m.get("rope_theta", 6e6))
    if not is_number(theta) or theta <= 0:
        raise ModelError(f"config.json: rope_theta is {shown(theta)}; expected a positive number")
    return float(theta)


def _without_drafts(checkpoint: Checkpoint) -> tuple[Checkpoint, int]:
    """Without the layers after the last one, which predict several tokens, and how many tensors
    those have."""
    layers = checkpoint.config.get("num_hidden_layers")
    if not is_count(layers):
        return checkpoint, 0

    def is_draft(name: str) -> bool:
        number = name.removeprefix("model.layers.").split(".")[0]
        return name.startswith("model.layers.") and number.isdecimal() and int(number) >= layers

    kept = {n: t for n, t in checkpoint.tensors.items() if not is_draft(n)}
    return replace(checkpoint, tensors=kept), len(checkpoint.tensors) - len(kept)


def _limits(m: Model, key: str, layers: int) -> list[float]:
    """The limit of SwiGLU in each layer; 0: none."""
    stated = m.get(key, [])
    limits = [0 if x is None else x for x in stated] if isinstance(stated, list) else [None]
    if not all(is_number(x) and x >= 0 for x in limits) or 0 < len(limits) < layers:
        raise ModelError(f"config.json: {key} is {shown(stated)}; expected a number of at "
                         f"least 0 for each of {layers} layers")
    return [float(x) for x in limits[:layers]]


def _write_limits(m: Model, layers: int) -> None:
    experts = _limits(m, "expert_swiglu_limit_list", layers)
    if any(experts):
        m.set_array(f"{ARCH}.swiglu_clamp_exp", "f32", experts)
        m.fact("limits of SwiGLU, experts", f"{sorted(set(experts) - {0})}")
    shared = _limits(m, "share_expert_swiglu_limit_list", layers)
    if any(shared):
        m.set_array(f"{ARCH}.swiglu_clamp_shexp", "f32", shared)
        m.fact("limits of SwiGLU, MLP and shared expert", f"{sorted(set(shared) - {0})}")


def convert(checkpoint: Checkpoint, option: str) -> Model:
    checkpoint, skipped = _without_drafts(checkpoint)
    m = Model(checkpoint, FAMILY, KEYS)
    if skipped:
        m.notes.append(f"{skipped} tensors for the prediction of several tokens are skipped")
    eigenvalues.decide(m, option)
    m.choice("hidden_act", "silu", SWISH)
    for key in ("score_function", "scoring_func"):
        m.choice(key, "sigmoid", {"sigmoid": "sigmoid"})
    m.choice("topk_method", "noaux_tc", {"noaux_tc": "noaux_tc"})
    m.choice("router_dtype", "fp32", {"fp32": "fp32"})
    m.choice("gated_attention_proj_granularity_type", "head_wise", {"head_wise": "head_wise"})
    for key in ("attention_bias", "use_bias", "use_qkv_bias"):
        m.refuse_unless(key, (None, False), "the architecture has no biases")
    for key in ("kda_safe_gate", "no_kda_lora", "rope_interleave"):
        m.refuse_unless(key, (None, True), "llama.cpp has no other form in this architecture")
    for key in NEVER:
        m.refuse_unless(key, (None, False), "no known model of this architecture has it")
    for key in ("linear_silu", "use_qk_norm"):
        m.refuse_unless(key, (None, True), "all known models of this architecture have it")
    m.refuse_unless("group_norm_size", (None, 1), "the output norm is that of each head")
    m.refuse_unless("num_kv_heads_for_linear_attn", (None, 0), "KDA has as many heads of k as of q")
    layers = m.count_layers("model.layers.")
    attends, dense = read_kinds(m, layers, "attention.", "mlp.")
    D, V = write_embedding(m, "model.word_embeddings.weight", tied_default=None)
    H = m.count("num_attention_heads")
    a = Latent.read(m, f"model.layers.{attends.index(True)}.attention.", "dense.weight")
    m.refuse_unless("rotary_dim", (None, a.r), f"RoPE turns {a.r} values, qk_rope_head_dim")
    read_trained_length(m)
    if m.trained_length is None and m.get("model_max_length") is not None:
        m.trained_length = m.count("model_max_length")
    X, k = read_counts(m, "num_experts",
                       first_key(m, "num_experts_per_tok", "num_experts_per_token"))
    mlp = f"model.layers.{layers - 1}.mlp."
    FX = expert_width(m, mlp + "experts.")
    shared = m.shape(mlp + "shared_experts.down_proj.weight", 2)[1]

    m.put("output_norm.weight", "model.norm.weight", (D,))
    F = 0
    for i in range(layers):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        mixer, mlp = src + "attention.", src + "mlp."
        m.put(dst + "attn_norm.weight", src + "input_layernorm.weight", (D,))
        if attends[i]:
            a.write_layer(m, dst, mixer, D, "dense.weight")
            m.put(dst + "attn_gate.weight", mixer + "g_proj.weight", (H, D))
        else:
            # as in the release, or as saved by transformers
            output = "o_proj.weight" if m.has(mixer + "o_proj.weight") else "dense.weight"
            K, W = write_delta(m, dst, mixer, D, H, output)
            m.rows(dst, mixer, [
                ("ssm_f_a.weight", "f_proj.weight", (H * K, D)),
                ("ssm_a",          "A_log",         (H,), reshape((H, 1), EXP_FLAT)),
                ("ssm_g_a.weight", "g_proj.weight", (H * K, D)),
            ])
        m.put(dst + "ffn_norm.weight", src + "post_attention_layernorm.weight", (D,))
        if i < dense:
            F = m.shape(mlp + "down_proj.weight", 2)[1]
            write_swiglu(m, dst, mlp, D, F)
        else:
            m.put(dst + "ffn_gate_inp.weight", mlp + "gate.weight", (X, D))
            m.put(dst + "exp_probs_b.bias", mlp + "gate.expert_bias", (X,))
            write_experts(m, dst, mlp + "experts.", X, D, FX, gated=True)
            write_shared(m, dst, mlp + "shared_experts.", D, shared, gated=True)

    write_common(m, ARCH, layers, D, V, F)
    a.write_keys(m, ARCH, attends)
    m.set_f32(f"{ARCH}.rope.freq_base", _read_theta(m))
    m.set_u32(f"{ARCH}.kda.head_dim", K)
    m.set_bool(f"{ARCH}.kda.safe_gate", True)
    m.set_f32(f"{ARCH}.kda.gate_lower_bound", m.number("kda_lower_bound", -5.0))
    m.set_u32(f"{ARCH}.ssm.conv_kernel", W)
    m.set_f32(f"{ARCH}.attention.layer_norm_rms_epsilon", m.positive("rms_norm_eps", 1e-6))
    write_router_keys(m, ARCH, X, k, FX, shared, dense, (8, 4), 2.5)
    _write_limits(m, layers)
    mixer_facts(m, "n_h 1", f"{H}, d_k × d_v {K} × {K}",
                f"one per key channel, bounded below by {m.number('kda_lower_bound', -5.0):g}", W)
    attention_fact(m, [i for i, x in enumerate(attends) if x])
    return m


MODEL_TYPES = {"bailing_hybrid": convert}
