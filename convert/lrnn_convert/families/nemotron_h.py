"""Nemotron-H (transformers `nemotron_h`): layers that are one thing each, Mamba-2, attention
without positions, an MLP with ReLU², or a mixture of such MLPs.

    x += f(norm x)
"""

from dataclasses import replace

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model
from . import mamba2
from .experts import (expert_width, read_counts, write_expert_keys, write_experts,
                      write_group_keys, write_shared)
from .layer_parts import SWISH, attention_fact, backbone_embedding, write_embedding
from .llama_cpp import HybridAttention, read_kinds, refuse_one_kind, write_common

FAMILY = Family("nemotron_h", Range.UNSIGNED)
MIXTURE = Family("nemotron_h_moe", Range.UNSIGNED)
ALSO = (MIXTURE,)

KEYS = """
    attention_bias attention_head_dim chunk_size conv_kernel expand head_dim hybrid_override_pattern
    layer_norm_epsilon layers_block_type mamba_head_dim mamba_hidden_act mamba_num_heads
    mamba_proj_bias mamba_ssm_cache_dtype mlp_bias mlp_hidden_act moe_intermediate_size
    moe_latent_size moe_shared_expert_intermediate_size moe_shared_expert_overlap
    mtp_hybrid_override_pattern mtp_layers_block_type n_group n_groups n_routed_experts
    n_shared_experts norm_eps norm_topk_prob num_attention_heads num_experts_per_tok
    num_key_value_heads num_logits_to_keep num_nextn_predict_layers output_router_logits
    partial_rotary_factor rescale_prenorm_residual residual_in_fp32 rope_theta
    routed_scaling_factor sliding_window ssm_state_size time_step_floor time_step_limit
    time_step_max time_step_min topk_group use_bias use_conv_bias use_mamba_kernels
"""
LETTERS = {"M": "recurrent", "*": "attention", "-": "mlp", "E": "moe"}
KINDS = {"mamba": "recurrent", "linear_attention": "recurrent", "attention": "attention",
         "full_attention": "attention", "mlp": "mlp", "moe": "moe"}


def _read_kinds(m: Model, layers: int) -> list[str]:
    pattern = m.get("hybrid_override_pattern")
    if pattern is None:
        return read_kinds(m, "layers_block_type", KINDS, layers)
    if not isinstance(pattern, str) or any(letter not in LETTERS for letter in pattern):
        raise ModelError(f"config.json: hybrid_override_pattern is {shown(pattern)}; expected the "
                         f"letters {' '.join(LETTERS)}")
    if len(pattern) != layers:
        raise ModelError(f"config.json: hybrid_override_pattern has {len(pattern)} letters; "
                         f"expected {layers}")
    return [LETTERS[letter] for letter in pattern]


def _write_mixture(m: Model, dst: str, src: str, D: int, X: int, R: int) -> int:
    """Returns the width of the experts. R: the width of their input and output; 0: D."""
    F = expert_width(m, src + "experts.")
    if R:
        m.put(dst + "ffn_latent_down.weight", src + "fc1_latent_proj.weight", (R, D))
        m.put(dst + "ffn_latent_up.weight", src + "fc2_latent_proj.weight", (D, R))
    m.put(dst + "ffn_gate_inp.weight", src + "gate.weight", (X, D))
    m.put(dst + "exp_probs_b.bias", src + "gate.e_score_correction_bias", (X,))
    write_experts(m, dst, src + "experts.", X, R or D, F, gated=False)
    shared = m.shape(src + "shared_experts.down_proj.weight", 2)[1]
    write_shared(m, dst, src + "shared_experts.", D, shared, gated=False)
    return F


def convert(checkpoint: Checkpoint, option: str) -> Model:
    kept = {n: t for n, t in checkpoint.tensors.items() if not n.startswith("mtp.")}
    mixture = any(name.endswith(".mixer.gate.weight") for name in kept)
    m = Model(replace(checkpoint, tensors=kept), MIXTURE if mixture else FAMILY, KEYS)
    if len(kept) < len(checkpoint.tensors):
        m.notes.append(f"{len(checkpoint.tensors) - len(kept)} tensors for the prediction of "
                       "several tokens are skipped")
    eigenvalues.decide(m, option)
    m.choice("mamba_hidden_act", "silu", SWISH)
    m.choice("mlp_hidden_act", "relu2", {"relu2": "relu2"})
    m.refuse_unless("sliding_window", (None,), "windows are not supported in this architecture")
    for key in ("attention_bias", "mamba_proj_bias", "use_bias"):
        m.refuse_unless(key, (None, False), "the architecture has no such biases")
    mamba2.refuse_limit(m)
    layers = m.count_layers("backbone.layers.")
    kinds = _read_kinds(m, layers)
    refuse_one_kind(m, kinds)
    D, V = write_embedding(m, backbone_embedding(m), tied_default=None)
    eps = m.positive("layer_norm_epsilon", 1e-5)
    s = mamba2.read_sizes(m, f"backbone.layers.{kinds.index('recurrent')}.mixer.",
                          m.count("n_groups", 8))
    a = HybridAttention.read(m, f"backbone.layers.{kinds.index('attention')}.mixer.")

    if mixture:
        X, k = read_counts(m, "n_routed_experts", "num_experts_per_tok")
        R = 0 if m.get("moe_latent_size") is None else m.count("moe_latent_size")

    m.put("output_norm.weight", "backbone.norm_f.weight", (D,))
    lengths = []                           # of the MLPs
    for i, kind in enumerate(kinds):
        dst, src = f"blk.{i}.", f"backbone.layers.{i}.mixer."
        m.put(dst + "attn_norm.weight", f"backbone.layers.{i}.norm.weight", (D,))
        F = 0
        if kind == "recurrent":
            mamba2.write_mixer(m, dst, src, D, s)
            m.put_optional(dst + "ssm_conv1d.bias", src + "conv1d.bias", (s.C,))
        elif kind == "attention":
            a.write_layer(m, dst, src, D)
        elif kind == "moe":
            F = _write_mixture(m, dst, src, D, X, R)
        else:
            F = m.shape(src + "down_proj.weight", 2)[1]
            m.rows(dst, src, [("ffn_up.weight",   "up_proj.weight",   (F, D)),
                              ("ffn_down.weight", "down_proj.weight", (D, F))])
            m.put_optional(dst + "ffn_up.bias", src + "up_proj.bias", (F,))
            m.put_optional(dst + "ffn_down.bias", src + "down_proj.bias", (D,))
        lengths.append(F)

    arch = m.family.name
    write_common(m, arch, layers, D, V, max(lengths))
    mamba2.write_keys(m, arch, s)
    if m.get("hybrid_override_pattern") is None:
        # a checkpoint of transformers, which limits Δ in training; NVIDIA's own code does not
        m.set_f32(f"{arch}.dt_min", m.number("time_step_min", 1e-3))
        m.notes.append(f"Δ is at least time_step_min = {m.number('time_step_min', 1e-3):g}, as in "
                       "transformers; llama.cpp does not limit it")
    a.write_keys(m, arch, [kind == "attention" for kind in kinds])
    m.set_array(f"{arch}.feed_forward_length", "i32", lengths)
    m.set_f32(f"{arch}.attention.layer_norm_epsilon", eps)
    m.set_f32(f"{arch}.attention.layer_norm_rms_epsilon", eps)
    if mixture:
        first = kinds.index("moe")
        shared = m.shape(f"backbone.layers.{first}.mixer.shared_experts.down_proj.weight", 2)[1]
        write_expert_keys(m, arch, X, k, lengths[first], shared)
        write_group_keys(m, arch, X, k)
        if R:
            m.set_u32(f"{arch}.moe_latent_size", R)
            m.fact("latent width", f"{R}, of the input and output of experts")
        m.set_bool(f"{arch}.expert_weights_norm", m.truth("norm_topk_prob", True))
        m.set_f32(f"{arch}.expert_weights_scale", m.positive("routed_scaling_factor", 1.0))
    mamba2.write_facts(m, s)
    attention_fact(m, [i for i, kind in enumerate(kinds) if kind == "attention"])
    return m


MODEL_TYPES = {"nemotron_h": convert}
