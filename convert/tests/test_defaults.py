"""Keys that config.json lacks have the defaults of the library that defines the model.

DEFAULTS is what the configuration classes of flash-linear-attention 0.6.0 and transformers 5.22.2
say; where these libraries are installed, a test compares it with them. Every optional key of every
layout is in DEFAULTS, or in one of the lists below with the reason why it has no default here.
"""

import importlib
import inspect
import json
import math

import numpy as np
import pytest
import tiny
from conftest import File
from lrnn_convert import families
from lrnn_convert.families.layer_parts import FLA_KEYS

FLA = {"norm_eps": 1e-6, "hidden_act": "swish", "tie_word_embeddings": False, "attn": None,
       "attnres_block_size": None}
HF = {"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False}
MAMBA = {"layer_norm_epsilon": 1e-5, "hidden_act": "silu", "use_bias": False, "use_conv_bias": True}
FLA_MAMBA = {"norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
             "use_bias": False, "use_conv_bias": True}
LLAMA = HF | {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
QWEN = LLAMA | {"num_key_value_heads": 32, "use_sliding_window": False,
                "layer_types": ["full_attention"] * tiny.L}

# kind: (class, its defaults that are not sizes)
DEFAULTS = {
    "delta_net": ("fla.models.DeltaNetConfig", FLA | {
        "num_heads": 16, "use_gate": False, "use_short_conv": True, "use_beta": True,
        "use_output_norm": True, "qk_norm": "l2", "qk_activation": "silu",
        "allow_neg_eigval": False}),
    "gated_delta_net": ("fla.models.GatedDeltaNetConfig", FLA | {
        "num_heads": 6, "num_v_heads": None, "use_gate": True, "use_short_conv": True,
        "allow_neg_eigval": False, "output_gate_activation": "swish"}),
    "gated_delta_product": ("fla.models.GatedDeltaProductConfig", FLA | {
        "num_heads": 6, "use_output_gate": True, "use_forget_gate": False, "use_short_conv": True,
        "allow_neg_eigval": False, "num_householder": 1}),
    "megatron_gdp": ("megatron.core.transformer.TransformerConfig", {
        "layernorm_epsilon": 1e-5, "mamba_state_dim": 128, "mamba_num_groups": 8,
        "gdp_num_householder": 3}),
    "kda": ("fla.models.KDAConfig", FLA | {
        "num_heads": 16, "num_v_heads": None, "use_short_conv": True, "allow_neg_eigval": False,
        "safe_gate": False, "lower_bound": None}),
    # fla has a layer and no model; the language model is that of KDA
    "gated_delta_net_2": ("fla.models.KDAConfig", FLA | {
        "num_heads": 16, "num_v_heads": None, "use_short_conv": True, "allow_neg_eigval": False}),
    "gla": ("fla.models.GLAConfig", FLA | {
        "num_heads": 4, "num_kv_heads": None, "feature_map": None, "use_short_conv": False,
        "use_output_gate": True, "clamp_min": None, "elementwise_affine": True, "use_gk": True,
        "use_gv": False}),
    "retnet": ("fla.models.RetNetConfig", FLA | {
        "num_heads": 8, "num_kv_heads": None, "feature_map": None, "use_short_conv": False,
        "use_output_gate": True, "elementwise_affine": True}),
    "hgrn2": ("fla.models.HGRN2Config", FLA | {
        "num_heads": None, "expand_ratio": 128, "use_short_conv": False, "use_lower_bound": True,
        "elementwise_affine": True}),
    "rwkv6 of fla": ("fla.models.RWKV6Config", {
        "num_heads": 4, "hidden_act": "sqrelu", "norm_first": True, "norm_bias": True,
        "norm_eps": 1e-5, "attn": None, "tie_word_embeddings": False}),
    "rwkv7 of fla": ("fla.models.RWKV7Config", {
        "num_heads": None, "hidden_act": "sqrelu", "norm_first": True, "norm_bias": True,
        "norm_eps": 1e-5, "attn": None, "fuse_norm": True, "value_dim": None,
        "tie_word_embeddings": False}),
    "transformer of fla": ("fla.models.TransformerConfig", {
        "num_heads": 32, "num_kv_heads": None, "qkv_bias": False, "qk_norm": False,
        "window_size": None, "rope_theta": 10000.0, "hidden_act": "swish", "norm_eps": 1e-6,
        "elementwise_affine": True, "attnres_block_size": None, "tie_word_embeddings": False}),
    "mamba of fla": ("fla.models.MambaConfig", FLA_MAMBA),
    "mamba2 of fla": ("fla.models.Mamba2Config", FLA_MAMBA | {
        "state_size": 128, "n_groups": 1, "D_has_hdim": False, "dt_limit": (0.0, math.inf),
        "norm_before_gate": False, "rmsnorm": True}),
    "mamba": ("transformers.MambaConfig", MAMBA | {"tie_word_embeddings": True}),
    "falcon_mamba": ("transformers.FalconMambaConfig", MAMBA | {
        "tie_word_embeddings": True, "mixer_rms_eps": 1e-6}),
    "mamba2": ("transformers.Mamba2Config", MAMBA | {
        "tie_word_embeddings": False, "state_size": 128, "n_groups": 8,
        "time_step_limit": (0.0, math.inf)}),
    "mlstm": ("transformers.xLSTMConfig", {
        "num_heads": 8, "use_bias": False, "add_out_norm": True, "norm_eps": 1e-6, "eps": 1e-6,
        "gate_soft_cap": 15.0, "output_logit_soft_cap": 30.0, "weight_mode": "single",
        "tie_word_embeddings": False}),
    "olmo_hybrid": ("transformers.OlmoHybridConfig", HF | {
        "attention_bias": False, "linear_allow_neg_eigval": True}),
    "qwen3_5_text": ("transformers.Qwen3_5TextConfig", HF | {
        "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_key_heads": 16,
        "attention_bias": False, "head_dim": 256}),
    "qwen3_5_moe_text": ("transformers.Qwen3_5MoeTextConfig", HF | {
        "num_attention_heads": 16, "num_key_value_heads": 2, "linear_num_key_heads": 16,
        "attention_bias": False, "head_dim": 256}),
    "qwen3_next": ("transformers.Qwen3NextConfig", HF | {
        "num_attention_heads": 16, "num_key_value_heads": 2, "linear_num_key_heads": 16,
        "attention_bias": False, "head_dim": 256, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": []}),
    "kimi_linear": ("transformers.KimiLinearConfig", HF | {
        "rms_norm_eps": 1e-5, "attention_bias": False, "moe_renormalize": True,
        "num_expert_group": 1, "topk_group": 1, "routed_scaling_factor": 2.446,
        "q_lora_rank": None}),
    "bailing_hybrid": ("transformers.BailingHybridConfig", HF | {
        "attention_bias": False, "moe_renormalize": True, "num_expert_group": 8, "topk_group": 4,
        "routed_scaling_factor": 2.5, "kda_lower_bound": -5.0, "kda_safe_gate": True,
        "rope_theta": 6_000_000.0}),
    "lfm2": ("transformers.Lfm2Config", {
        "norm_eps": 1e-5, "conv_bias": False, "tie_word_embeddings": True}),
    "lfm2_moe": ("transformers.Lfm2MoeConfig", {
        "norm_eps": 1e-5, "conv_bias": False, "tie_word_embeddings": True, "norm_topk_prob": True,
        "use_expert_bias": True, "routed_scaling_factor": 1.0}),
    "jamba": ("transformers.JambaConfig", HF | {"mamba_proj_bias": False}),
    "granitemoehybrid": ("transformers.GraniteMoeHybridConfig", HF | {
        "attention_bias": False, "attention_multiplier": 1.0, "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0, "logits_scaling": 1.0, "mamba_n_groups": 1,
        "position_embedding_type": None, "mamba_proj_bias": False,
        "time_step_limit": (0.0, math.inf)}),
    "bamba": ("transformers.BambaConfig", HF | {
        "rms_norm_eps": 1e-5, "attention_bias": False, "mlp_bias": False, "mamba_n_groups": 1,
        "mamba_proj_bias": False, "time_step_limit": (0.0, math.inf)}),
    "nemotron_h": ("transformers.NemotronHConfig", {
        "tie_word_embeddings": False, "layer_norm_epsilon": 1e-5, "mamba_hidden_act": "silu",
        "mlp_hidden_act": "relu2", "n_groups": 8, "mlp_bias": False, "use_bias": False,
        "mamba_proj_bias": False, "attention_bias": False, "sliding_window": None,
        "time_step_limit": (0.0, math.inf), "time_step_min": 1e-3}),
    "falcon_h1": ("transformers.FalconH1Config", HF | {
        "rms_norm_eps": 1e-5, "attention_bias": False, "mlp_bias": False, "mamba_proj_bias": False,
        "projectors_bias": False, "mamba_n_groups": 1, "mamba_rms_norm": False,
        "mamba_norm_before_gate": True, "embedding_multiplier": 1.0, "lm_head_multiplier": 1.0,
        "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0, "ssm_multipliers": [1.0] * 5,
        "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "key_multiplier": 1.0,
        "mlp_multipliers": [1.0, 1.0], "time_step_limit": (0.0, math.inf)}),
    "llama": ("transformers.LlamaConfig", LLAMA | {"attention_bias": False, "mlp_bias": False}),
    "mistral": ("transformers.MistralConfig", LLAMA | {"num_key_value_heads": 8,
                                                       "sliding_window": 4096}),
    "qwen2": ("transformers.Qwen2Config", QWEN),
    "qwen3": ("transformers.Qwen3Config", QWEN | {"attention_bias": False}),
    "rwkv6qwen2": ("recursal's RWKV6Qwen2Config", HF | {
        "use_rope": False, "groupnorm_att": False, "gate_rank_type": 1, "balance_state": True}),
    "rwkv_hybrid": ("RWKVInside's RwkvHybridConfig", HF | {
        "wkv_version": 7, "head_size_divisor": 8, "wkv_has_gate": True,
        "wkv_has_group_norm": True}),
}

# None: the class computes it from another key, or the network from its tensors
DERIVED = {"olmo_hybrid": {"num_key_value_heads": "num_attention_heads",
                           "linear_num_key_heads": "num_attention_heads"},
           "llama": {"num_key_value_heads": "num_attention_heads"},
           "megatron_gdp": {"num_query_groups": "num_attention_heads"}}

SIZES = """
    expand_k expand_v head_dim expand_ratio conv_size conv_bias state_size expand conv_kernel
    time_step_rank d_model n_layer d_inner d_state d_conv dt_rank n_groups num_heads
    pad_vocab_size_multiple qk_dim_factor v_dim_factor ffn_proj_factor ffn_round_up_to_multiple_of
    mlstm_round_up_to_multiple_of embedding_dim num_blocks gate_low_rank_dim proj_low_rank_dim
    a_low_rank_dim decay_low_rank_dim v_low_rank_dim linear_conv_kernel_dim linear_key_head_dim
    linear_value_head_dim linear_num_value_heads num_v_heads num_heads num_householder
    max_window_layers attention_head_dim mamba_d_conv mamba_d_head mamba_d_ssm mamba_d_state
    mamba_expand mamba_n_heads mamba_head_dim mamba_num_heads mamba_conv_bias num_key_value_heads
    shared_intermediate_size ssm_state_size use_conv_bias mlp_expansion_factor kv_lora_rank
    q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim linear_head_dim
    linear_num_heads short_conv_kernel_size first_k_dense_replace mlp_layer_types
    num_shared_experts linear_attn_config layer_group_size block_auto_adjust_ff_dim block_dim
    block_ff_dim block_ffn_dim_multiplier block_multiple_of block_use_swiglu conv_L_cache conv_dim
    conv_dim_out full_attn_idxs num_dense_layers kv_channels
    attn_layer_offset attn_layer_period expert_layer_offset expert_layer_period mamba_dt_rank
    mamba_inner_layernorms head_size num_wkv_heads wkv_layers lora_rank_decay lora_rank_gate
    lora_rank_tokenshift attention_output_bias
""".split()                                # the tensors have them
TRAINING = """
    time_step_scale time_step_min time_step_max time_step_init_scheme time_step_floor
    rescale_prenorm_residual dt_scale dt_min dt_max dt_init_scheme dt_init_floor conv_init
    A_init_range init_method router_aux_loss_coef linear_a_log_max linear_a_log_min
    linear_dt_init_floor linear_dt_max linear_dt_min block_mlp_init_scale block_out_init_scale
    block_use_xavier_init conv_use_xavier_init
""".split()                                # initial values
KERNELS = """
    residual_in_fp32 use_mambapy use_falcon_mambapy use_associative_scan fused_add_norm chunk_size
    chunkwise_kernel sequence_kernel step_kernel mode max_inference_chunksize return_last_states
    mamba_chunk_size mamba_ssm_cache_dtype moe_shared_expert_overlap num_logits_to_keep
    output_router_logits use_mamba_kernels inference_state_dtype autocast_kernel_dtype
    norm_reduction_force_float32
""".split()
# keys of older versions and of state-spaces, which test_state_spaces covers
OTHER = """
    norm_first use_gate ssm_cfg attn_layer_idx attn_cfg d_intermediate rms_norm tie_embeddings
    norm_epsilon norm_eps layer_norm_epsilon rmsnorm rope_scaling rope_theta dt_limit
    time_step_limit norm_before_gate D_has_hdim sliding_window use_sliding_window layer_types
    mlp_bias attention_bias num_v_heads partial_rotary_factor full_attention_interval
    hidden_act normalization_function mamba_use_mlp num_experts_per_tok num_local_experts
    hybrid_override_pattern layers_block_type moe_intermediate_size moe_latent_size
    moe_shared_expert_intermediate_size mtp_hybrid_override_pattern mtp_layers_block_type n_group
    n_routed_experts n_shared_experts norm_topk_prob num_nextn_predict_layers routed_scaling_factor
    topk_group num_experts shared_expert_intermediate_size
    attn_output_gate mtp_num_hidden_layers mtp_use_dedicated_embeddings mamba_ssm_dtype
    gated_attention_proj_granularity_type mla_use_nope model_max_length moe_layer_freq
    moe_router_activation_func moe_router_enable_expert_bias mtp_loss_scaling_factor no_kda_lora
    num_experts_per_token num_mtp_layers rope_interleave score_function use_bias use_grouped_topk
    use_qkv_bias block_norm_eps theta tie_embedding use_pos_enc apply_layernorm_1p
    allow_neg_eigval embedding_dropout output_dropout expert_swiglu_limit_list group_norm_size
    linear_silu max_window_layers mtp_use_kda num_kv_heads_for_linear_attn rotary_dim router_dtype
    scale_router_input scoring_func seq_aux share_expert_swiglu_limit_list topk_method up_proj_norm
    use_kda_lora use_mla_nope use_nGPT use_qk_norm value_norm attn_layer_indices attn_rotary_emb
    z_loss_coefficient
""".split()
REQUIRED = {"num_attention_heads", "layer_types", "rope_parameters", "hybrid_layer_pattern",
            "normalization", "position_embedding_type", "squared_relu"}    # an error names them


def without_parts(config, tensors, *parts):
    return config, {n: x for n, x in tensors.items() if not any(p in n for p in parts)}


def gated_delta_product():
    """Without a forget gate and with an output gate, as the library does by default."""
    config, t = without_parts(*tiny.gated_delta_product(H=6, n=1), "a_proj", "A_log", "dt_bias")
    t |= tiny.randoms({f"model.layers.{i}.attn.g_proj.weight": (30, tiny.D)
                       for i in range(tiny.L)})
    return {"model_type": "gated_deltaproduct"}, t


def rwkv6():
    _, t = tiny.rwkv6(H=4, N=2)
    return tiny.rwkv6_fla_of(t, H=4)


def attention_only(H, KV, hd=2):
    config, t = tiny.transformer(H, KV, hd)
    return config | {"num_attention_heads": H}, t


def fla_transformer():
    _, t = attention_only(32, 32)
    names = {"embed_tokens": "embeddings", "self_attn": "attn", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "mlp_norm"}
    for old, new in names.items():
        t = {n.replace(old, new): x for n, x in t.items()}
    return {"model_type": "transformer"}, t


def tied(config, t):
    return config, {n: x for n, x in t.items() if n != "lm_head.weight"}


# checkpoints whose tensors have the library's default numbers of heads and groups
CHECKPOINTS = {
    "delta_net": lambda: tiny.delta_net(H=16),
    "gated_delta_net": lambda: tiny.gated_delta_net(H=6, HV=6),
    "gated_delta_product": gated_delta_product,
    "megatron_gdp": lambda: tiny.megatron_gdp(G=8, HV=16, N=128, KV=4),
    "kda": lambda: tiny.kda(H=16),
    "gated_delta_net_2": lambda: tiny.gated_delta_net_2(H=16, HV=16),
    "gla": lambda: tiny.gla(H=4, KV=4),
    "retnet": lambda: tiny.retnet(H=8, KV=8),
    "hgrn2": lambda: tiny.hgrn2(H=2, K=128),
    "rwkv6 of fla": rwkv6,
    "rwkv7 of fla": lambda: tiny.rwkv7_fla_of(tiny.rwkv7()[1]),
    "transformer of fla": fla_transformer,
    "mamba of fla": tiny.mamba,
    "mamba2 of fla": lambda: tiny.mamba2(H=4, P=4, G=1, N=128),
    "mamba": lambda: tied(*tiny.mamba()),
    "falcon_mamba": lambda: tied(*tiny.mamba()),
    "mamba2": lambda: tiny.mamba2(H=8, P=4, G=8, N=128),
    "mlstm": lambda: tiny.mlstm(H=8),
    "olmo_hybrid": lambda: tiny.olmo_hybrid(KV=2),
    "qwen3_5_text": lambda: tiny.qwen35(H=16, HV=32, K=2, heads=16, KV=4, hd=8),
    "qwen3_5_moe_text": lambda: tiny.qwen35moe(H=16, HV=32, K=2, heads=16, KV=2, hd=8),
    "qwen3_next": lambda: tiny.qwen3next(H=16, HV=32, K=2, heads=16, KV=2, hd=8),
    "kimi_linear": tiny.kimi_linear,
    "bailing_hybrid": lambda: tiny.bailingmoe3(X=16),
    "lfm2": tiny.lfm2,
    "lfm2_moe": tiny.lfm2moe,
    "jamba": tiny.jamba,
    "granitemoehybrid": tiny.granitehybrid,
    "bamba": tiny.bamba,
    "nemotron_h": lambda: tiny.nemotron_h(H=8, G=8),
    "falcon_h1": lambda: tiny.falcon_h1(G=1, norm=False),
    "llama": lambda: attention_only(4, 4),
    "mistral": lambda: attention_only(16, 8),
    "qwen2": lambda: attention_only(32, 32),
    "qwen3": lambda: attention_only(32, 32),
    "rwkv6qwen2": tiny.rwkv6qwen2,
    "rwkv_hybrid": tiny.arwkv7,
}

MODEL_TYPES = {"gated_delta_net": "gated_deltanet", "gated_delta_product": "gated_deltaproduct",
               "gated_delta_net_2": "gdn2", "mlstm": "xlstm"}
# what remains of config.json; these have no default, or one that depends on the size of the model
KEEP = {"olmo_hybrid": ("num_attention_heads", "layer_types", "rope_parameters"),
        "qwen3_5_text": ("layer_types",),
        "qwen3_5_moe_text": ("layer_types", "num_experts", "num_experts_per_tok"),
        "qwen3_next": ("layer_types", "num_experts", "num_experts_per_tok"),
        "kimi_linear": ("num_attention_heads", "num_experts", "num_experts_per_token"),
        "bailing_hybrid": ("num_attention_heads", "num_experts", "num_experts_per_tok"),
        "lfm2": ("num_attention_heads", "layer_types"),
        "lfm2_moe": ("num_attention_heads", "layer_types", "num_experts", "num_experts_per_tok"),
        "jamba": ("num_attention_heads", "num_experts", "num_experts_per_tok"),
        "granitemoehybrid": ("num_attention_heads", "layer_types"),
        "bamba": ("num_attention_heads", "attn_layer_indices"),
        "nemotron_h": ("num_attention_heads", "layers_block_type"),
        "falcon_h1": ("num_attention_heads",),
        "rwkv6qwen2": ("num_attention_heads",),
        "megatron_gdp": ("hybrid_layer_pattern", "normalization", "num_attention_heads",
                         "position_embedding_type", "squared_relu"),
        **{kind: ("num_attention_heads",) for kind in ("llama", "mistral", "qwen2", "qwen3")}}


@pytest.fixture(autouse=True)
def wide(request, monkeypatch):
    """32 heads need a width of 64."""
    if any(kind in request.node.name for kind in ("qwen", "mistral", "transformer of fla")):
        monkeypatch.setattr(tiny, "D", 64)


def bare(kind):
    """A checkpoint whose config.json has no optional key."""
    config, t = CHECKPOINTS[kind]()
    model_type = MODEL_TYPES.get(kind, kind.removesuffix(" of fla"))
    return {"model_type": model_type, **{k: config[k] for k in KEEP.get(kind, ())}}, t


def converted(bench, config, tensors):
    """Keys and tensors of the file, without the configuration itself and what follows from it."""
    f = bench.convert(config, tensors)
    kv = {k: v for k, v in f.kv.items()
          if k not in ("lrnn.source_config", "lrnn.source", "lrnn.eigenvalues_source")}
    return kv, f.data


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_missing_key_has_the_default_of_the_library(bench, kind):
    config, tensors = bare(kind)
    without = converted(bench, config, tensors)
    defaults = dict(DEFAULTS[kind][1])
    for key, source in DERIVED.get(kind, {}).items():
        defaults[key] = config[source]
    if kind == "mamba2 of fla":
        # both libraries have this model_type; the state size that they share tells the groups
        assert without[0]["mamba2.ssm.group_count"] == 1
    for key, value in [*defaults.items(), (None, None)]:
        more = defaults if key is None else {key: value}   # at last, all of them
        found = converted(bench, config | more, tensors)
        assert found[0] == without[0], key
        assert found[1].keys() == without[1].keys(), key
        for name, x in found[1].items():
            assert np.array_equal(x, without[1][name]), (key, name)


# keys that no option of a configuration without optional keys states
CONSTANTS = {
    "hgrn2": {"lrnn.output_norm_epsilon": 1e-5, "lrnn.key_length": 128, "lrnn.conv_width": 0},
    "kda": {"lrnn.gate_lower_bound": None},
    "mamba of fla": {"mamba.ssm.dt_b_c_rms": False},
    "qwen3_5_text": {"qwen35.rope.freq_base": 10000.0, "qwen35.rope.dimension_count": 2,
                     "qwen35.rope.dimension_sections": [11, 11, 10, 0]},
    "qwen3_5_moe_text": {"qwen35moe.expert_count": 3, "qwen35moe.expert_used_count": 2,
                         "qwen35moe.expert_feed_forward_length": 5},
    "qwen3_next": {"qwen3next.rope.dimension_count": 2, "qwen3next.rope.dimension_sections": None},
    "kimi_linear": {"kimi-linear.attention.head_count_kv": [0, 1],
                    "kimi-linear.leading_dense_block_count": 1,
                    "kimi-linear.expert_group_count": None},
    "falcon_h1": {"falcon-h1.rope.freq_base": 10000.0},
    "lfm2": {"lfm2.rope.freq_base": 1e6, "lfm2.attention.head_count_kv": [0, 1],
             "lfm2.shortconv.l_cache": 3},
    "lfm2_moe": {"lfm2moe.leading_dense_block_count": 1, "lfm2moe.expert_gating_func": 2},
}


@pytest.mark.parametrize("kind", CONSTANTS)
def test_the_file_of_a_configuration_without_optional_keys(bench, kind):
    kv, _ = converted(bench, *bare(kind))
    for key, want in CONSTANTS[kind].items():
        assert kv.get(key) == pytest.approx(want), key


def test_every_kind_is_here():
    known = {t for module in families.MODULES for t in module.MODEL_TYPES}
    # the authors' spelling, and a configuration around that of the text
    aliases = {"gated_delta_product", "qwen3_5", "qwen3_5_moe"}
    assert known - aliases == {MODEL_TYPES.get(k, k.removesuffix(" of fla")) for k in DEFAULTS}
    assert DEFAULTS.keys() == CHECKPOINTS.keys()


def test_every_optional_key_has_a_default():
    """A key that the converter knows is in DEFAULTS of a layout of its family, or has a reason."""
    modules = {families.megatron_gdp: ["megatron_gdp"], families.mlstm: ["mlstm"],
               families.olmo_hybrid: ["olmo_hybrid"],
               families.qwen35: ["qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"],
               families.bailingmoe3: ["bailing_hybrid"],
               families.granitehybrid: ["granitemoehybrid", "bamba"],
               families.lfm2: ["lfm2", "lfm2_moe"],
               families.transformer: ["transformer of fla", "llama", "mistral", "qwen2", "qwen3"],
               families.rwkv6: ["rwkv6 of fla"], families.rwkv7: ["rwkv7 of fla"],
               families.rwkv_qwen: ["rwkv6qwen2", "rwkv_hybrid"],
               families.mamba: ["mamba", "mamba of fla", "falcon_mamba"],
               families.mamba2: ["mamba2", "mamba2 of fla"]}
    for module in families.MODULES:
        if module is families.xlstm:       # its keys are in sections; the tensors have the sizes
            continue
        kinds = modules.get(module, [module.FAMILY.name])
        known = set()
        for name in ("KEYS", "FLA_KEYS", "FALCON_KEYS", "BAMBA_KEYS"):
            known |= set(getattr(module, name, "").split())
        if module is families.transformer:
            known |= set(module.HF_KEYS.split())
        elif not hasattr(module, "FLA_KEYS") and "fla." in DEFAULTS[kinds[0]][0]:
            known |= set(FLA_KEYS.split())
        stated = {key for kind in kinds for key in (*DEFAULTS[kind][1], *DERIVED.get(kind, ()))}
        left = known - stated - REQUIRED - {*SIZES, *TRAINING, *KERNELS, *OTHER}
        assert not left, (module.__name__, left)


@pytest.mark.parametrize("kind", KEEP)
def test_required_keys(bench, kind):
    config, tensors = bare(kind)
    for key in KEEP[kind]:
        code, err = bench.refuse({k: v for k, v in config.items() if k != key}, tensors)
        assert code == 4 and key in err, key


def test_no_rope_in_olmo_hybrid(bench):
    """Three spellings, all of them in released files; a configuration without any is refused."""
    config, tensors = bare("olmo_hybrid")
    for value in (None, {"rope_theta": None}, {"rope_type": None}):
        assert "lrnn.rope_theta" not in bench.convert(config | {"rope_parameters": value},
                                                      tensors).kv
    bench.out.unlink()
    del config["rope_parameters"]
    assert "rope_parameters" in bench.refuse(config, tensors)[1]
    assert bench.convert(config | {"rope_theta": 5000.0}, tensors).kv["lrnn.rope_theta"] == 5000.0
    assert "lrnn.rope_theta" not in bench.convert(config | {"rope_theta": None}, tensors).kv


def test_no_window(bench):
    """null is not the default of Mistral's window, and the others never have one."""
    for kind, value, want in (("mistral", None, None), ("mistral", 64, 64), ("llama", 64, None),
                              ("qwen2", 64, None), ("qwen3", 64, None)):
        config, tensors = tiny.transformer()
        config |= {"model_type": kind, "sliding_window": value}
        f = bench.convert(config, tensors)
        assert f.kv.get("lrnn.attention.window") == want, kind
        assert ("sliding_window" in f.kv["lrnn.source"]) == (kind != "mistral")


def test_groups_of_mamba2(bench):
    """Without n_groups, state_size tells them; without both, a shape that does not fit is refused.
    """
    config, tensors = tiny.mamba2(G=2, N=3)
    del config["n_groups"]
    f = bench.convert(config | {"state_size": 3}, tensors)
    assert f.kv["mamba2.ssm.group_count"] == 2 and f.kv["mamba2.ssm.state_size"] == 3
    bench.out.unlink()
    assert "n_groups" in bench.refuse(config, tensors)[1]
    assert "state_size" in bench.refuse(config | {"n_groups": 2, "state_size": 6}, tensors)[1]


def test_state_spaces(bench):
    """state-spaces' configuration class: rms_norm true, tie_embeddings true, no layers of other
    kinds, Mamba-1; Mamba-2 with one group; eps 1e-5 in the code."""
    bare_config = {"d_model": tiny.D, "n_layer": tiny.L, "ssm_cfg": {}}
    _, t = tied(*tiny.mamba(embedding="backbone.embedding.weight"))
    defaults = {"rms_norm": True, "tie_embeddings": True, "d_intermediate": 0, "attn_layer_idx": [],
                "attn_cfg": {}, "norm_epsilon": 1e-5, "residual_in_fp32": True,
                "fused_add_norm": True, "pad_vocab_size_multiple": 8}
    without = converted(bench, bare_config, t)[0]
    assert math.isclose(without["mamba.attention.layer_norm_rms_epsilon"], 1e-5, rel_tol=1e-6)
    for key, value in defaults.items():
        assert converted(bench, bare_config | {key: value}, t)[0] == without, key
    assert converted(bench, bare_config | {"ssm_cfg": {"layer": "Mamba1"}}, t)[0] == without

    _, t = tied(*tiny.mamba2(H=4, P=4, G=1, N=128))
    cfg = {"layer": "Mamba2"}
    without = converted(bench, bare_config | {"ssm_cfg": cfg}, t)[0]
    assert without["mamba2.ssm.group_count"] == 1 and without["mamba2.ssm.state_size"] == 128
    for key, value in {"ngroups": 1, "d_state": 128, "dt_limit": [0.0, math.inf],
                       "norm_before_gate": False, "D_has_hdim": False, "rmsnorm": True}.items():
        found = converted(bench, bare_config | {"ssm_cfg": cfg | {key: value}}, t)[0]
        assert found == without, key


def test_rwkv6_as_transformers_exports_it(bench):
    _, t = tiny.rwkv6()
    without = bench.convert(None, t)
    assert math.isclose(without.kv["rwkv6.attention.layer_norm_epsilon"], 1e-5, rel_tol=1e-6)
    f = bench.convert({"layer_norm_epsilon": 1e-5, "rescale_every": 6}, t)
    assert f.kv["rwkv6.attention.layer_norm_epsilon"] == (
        without.kv["rwkv6.attention.layer_norm_epsilon"])


def test_defaults_of_attention_in_hybrid_models(bench):
    """fla: num_kv_heads = num_heads, qkv_bias false, no window, rope_theta 10000."""
    config, t = tiny.hybrid()
    t |= tiny.randoms({f"model.layers.1.attn.{c}_proj.weight": (tiny.D, tiny.D) for c in "kv"})
    bare_attn = {"layers": [1], "num_heads": 4}
    without = converted(bench, config | {"attn": bare_attn}, t)[0]
    assert without["lrnn.attention.head_count_kv"] == 4
    assert without["lrnn.rope_theta"] == 10000.0 and "lrnn.attention.window" not in without
    for key, value in {"num_kv_heads": 4, "qkv_bias": False, "window_size": None,
                       "rope_theta": 10000.0}.items():
        assert converted(bench, config | {"attn": bare_attn | {key: value}}, t)[0] == without, key


#
# The libraries
#

def library_defaults(name):
    """{key: default} of a configuration class."""
    module, _, cls = name.rpartition(".")
    config = getattr(importlib.import_module(module), cls)
    if module.startswith("fla"):
        parameters = inspect.signature(config.__init__).parameters
        return {k: p.default for k, p in parameters.items() if p.default is not p.empty}
    return config().to_dict()


@pytest.mark.parametrize("kind", DEFAULTS)
def test_the_table_agrees_with_the_library(kind):
    name, table = DEFAULTS[kind]
    pytest.importorskip("torch", reason="needs torch and the library")
    pytest.importorskip(name.split(".")[0])
    found = library_defaults(name)
    for key, value in table.items():
        assert key in found, key
        if key == "layer_types":
            assert set(found[key]) == set(value)
        else:
            assert json.dumps(found[key]) == json.dumps(value), key
