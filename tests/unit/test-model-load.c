// The loader rejects golden models with one wrong key or tensor. Each message names the key or
// tensor, the value found and the value expected. test-gguf-check tests malformed files.
//
//     test-model-load                      all tests
//     test-model-load DIRECTORY            only the rejected models; leaves the files there
//     test-model-load --seeds DIRECTORY    writes seeds for fuzz-model

#include "ggml.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "kit/rng.h"
#include "lrnn.h"
#include "model/families.h"

struct rejection {
    const char * model;
    const char * changes;  // as model_edit_change reads them
    const char * sentence; // after "<file>: "; {families} and {llama.cpp} are replaced
};

static const struct rejection REJECTIONS[] = {
    { "delta_net_neg", "drop general.architecture",
            "key 'general.architecture' is missing; expected string" },
    { "delta_net_neg", "general.architecture = 'llama'",
            "key 'general.architecture' is 'llama'; expected one of lrnn, {llama.cpp}" },
    { "delta_net_neg", "general.architecture = 'a\nb\x1b[31m'",
            "key 'general.architecture' is 'a?b?[31m'; expected one of lrnn, {llama.cpp}" },
    { "delta_net_neg", "general.architecture = 1",
            "key 'general.architecture' is of type u32; expected string" },
    { "delta_net_neg", "drop lrnn.format_version",
            "key 'lrnn.format_version' is missing; expected an integer" },
    { "delta_net_neg", "lrnn.format_version = 2",
            "key 'lrnn.format_version' is 2; expected 1 to 1" },
    { "delta_net_neg", "drop lrnn.family", "key 'lrnn.family' is missing; expected string" },
    { "delta_net_neg", "lrnn.family = 'lstm'",
            "key 'lrnn.family' is 'lstm'; expected one of {families}" },

    { "delta_net_neg", "drop lrnn.eigenvalues",
            "key 'lrnn.eigenvalues' is missing; expected string" },
    { "delta_net_neg", "lrnn.eigenvalues = '[0,2]'",
            "key 'lrnn.eigenvalues' is '[0,2]'; expected one of '[0,1]', '[-1,1]', 'family'" },
    { "delta_net_neg", "lrnn.eigenvalues = true",
            "key 'lrnn.eigenvalues' is of type bool; expected string" },
    { "retnet", "lrnn.eigenvalues = '[-1,1]'",
            "key 'lrnn.eigenvalues' is '[-1,1]'; expected '[0,1]' for family retnet" },
    { "delta_net_neg", "lrnn.eigenvalues = 'family'",
            "key 'lrnn.eigenvalues' is 'family'; expected '[0,1]' or '[-1,1]' for family "
            "delta_net" },
    { "rwkv7", "lrnn.eigenvalues = '[0,1]'",
            "key 'lrnn.eigenvalues' is '[0,1]'; expected 'family' for family rwkv7" },

    { "delta_net_neg", "lrnn.block_count = 0", "key 'lrnn.block_count' is 0; expected 1 to 4096" },
    { "delta_net_neg", "lrnn.block_count = 4097",
            "key 'lrnn.block_count' is 4097; expected 1 to 4096" },
    { "delta_net_neg", "lrnn.block_count = 4294967295",
            "key 'lrnn.block_count' is 4294967295; expected 1 to 4096" },
    { "delta_net_neg", "lrnn.block_count = -2",
            "key 'lrnn.block_count' is -2; expected 1 to 4096" },
    { "delta_net_neg", "lrnn.block_count = '2'",
            "key 'lrnn.block_count' is of type string; expected an integer" },
    { "delta_net_neg", "lrnn.block_count = 2.0",
            "key 'lrnn.block_count' is of type f32; expected an integer" },
    { "delta_net_neg", "lrnn.block_count = 3", "tensor blk.2.attn_norm.weight is missing" },
    { "xlstm", "lrnn.block_count = 1",
            "found 15 unknown tensors: 'blk.1.attn_norm.weight', 'blk.1.attn_q.weight', "
            "'blk.1.attn_k.weight', ..." },
    { "delta_net_neg", "drop lrnn.embedding_length",
            "key 'lrnn.embedding_length' is missing; expected an integer" },
    { "delta_net_neg", "lrnn.embedding_length = 64",
            "tensor token_embd.weight has shape [32, 48]; expected [64, any]" },
    { "delta_net_neg", "lrnn.vocab_size = 50",
            "key 'lrnn.vocab_size' is 50; expected 48, the rows of token_embd.weight" },
    { "delta_net_neg", "drop lrnn.feed_forward_length",
            "key 'lrnn.feed_forward_length' is missing" },
    { "delta_net_neg", "lrnn.context_length_trained = 0",
            "key 'lrnn.context_length_trained' is 0; expected 1 to 9223372036854775807" },
    { "delta_net_neg", "lrnn.norm_epsilon = 0.0",
            "key 'lrnn.norm_epsilon' is 0; expected 1e-12 to 1" },
    { "delta_net_neg", "lrnn.norm_epsilon = -1.0e-5",
            "key 'lrnn.norm_epsilon' is -1e-05; expected 1e-12 to 1" },
    { "delta_net_neg", "lrnn.norm_epsilon = nan",
            "key 'lrnn.norm_epsilon' is nan; expected 1e-12 to 1" },
    { "delta_net_neg", "lrnn.layer_kinds = ['recurrent']",
            "key 'lrnn.layer_kinds' has 1 elements; expected 2" },
    { "delta_net_neg", "lrnn.layer_kinds = ['recurrent', 'r\x1b']",
            "key 'lrnn.layer_kinds' has element 1 = 'r?'; expected 'recurrent' or 'attention'" },
    { "megatron_gdp", "lrnn.layer_kinds = ['recurrent', 'mlp', 'attention', 'E']",
            "key 'lrnn.layer_kinds' has element 3 = 'E'; expected 'recurrent', 'attention' or "
            "'mlp'" },
    { "megatron_gdp", "lrnn.output_gate = 'sigmoid'",
            "key 'lrnn.output_gate' is 'sigmoid'; expected 'silu' with 'gated_group' in "
            "lrnn.output_norm" },
    { "delta_net_neg", "lrnn.layer_kinds = [0, 1]",
            "key 'lrnn.layer_kinds' is an array of u32; expected an array of string" },
    { "transformer", "lrnn.layer_kinds = ['attention', 'recurrent']",
            "key 'lrnn.layer_kinds' has element 1 = 'recurrent'; expected 'attention' for family "
            "transformer" },

    { "delta_net_neg", "lrnn.head_count = 0", "key 'lrnn.head_count' is 0; expected 1 to 4096" },
    { "delta_net_neg", "lrnn.head_count = 3",
            "tensor blk.0.attn_q.weight has shape [32, 16]; expected [32, 24]" },
    { "gated_deltanet_gqa", "lrnn.head_count = 3",
            "key 'lrnn.head_count_value' is 4; expected a multiple of lrnn.head_count = 3" },
    { "delta_net_neg", "lrnn.key_length = 0", "key 'lrnn.key_length' is 0; expected 1 to 65536" },
    { "delta_net_neg", "lrnn.key_length = 65536",
            "tensor blk.0.attn_q.weight has shape [32, 16]; expected [32, 131072]" },
    { "retnet", "lrnn.key_length = 7",
            "key 'lrnn.key_length' is 7; expected an even number, for RoPE" },
    { "deltaproduct3_neg", "lrnn.householder_count = 0",
            "key 'lrnn.householder_count' is 0; expected 1 to 256" },
    { "deltaproduct3_neg", "lrnn.householder_count = -1",
            "key 'lrnn.householder_count' is -1; expected 1 to 256" },
    { "deltaproduct3_neg", "lrnn.householder_count = 257",
            "key 'lrnn.householder_count' is 257; expected 1 to 256" },
    { "gated_deltaproduct2_neg", "lrnn.householder_count = 3",
            "tensor blk.0.attn_k.weight has shape [32, 32]; expected [32, 48]" },
    { "delta_net_neg", "lrnn.conv_width = 1", "key 'lrnn.conv_width' is 1; expected 0 or 2 to 64" },
    { "delta_net_neg", "lrnn.conv_width = 65", "key 'lrnn.conv_width' is 65; expected 0 to 64" },
    { "delta_net_neg", "lrnn.conv_width = 3",
            "tensor blk.0.ssm_conv1d_q.weight has shape [4, 16]; expected [3, 16]" },
    { "delta_net_neg", "lrnn.conv_width = 0",
            "found 6 unknown tensors: 'blk.0.ssm_conv1d_q.weight', 'blk.0.ssm_conv1d_k.weight', "
            "'blk.0.ssm_conv1d_v.weight', ..." },
    { "deltaproduct3_neg", "lrnn.gate = 'channel'",
            "key 'lrnn.gate' is 'channel'; expected one of 'none', 'head'" },
    { "delta_net_neg", "lrnn.output_gate = 'tanh'",
            "key 'lrnn.output_gate' is 'tanh'; expected one of 'none', 'silu', 'sigmoid'" },
    { "mamba", "mamba.ssm.state_size = 0", "key 'mamba.ssm.state_size' is 0; expected 1 to 65536" },
    { "mamba2_groups", "mamba2.ssm.group_count = 3",
            "key 'mamba2.ssm.group_count' is 3; expected a divisor of mamba2.ssm.time_step_rank = "
            "4" },
    { "qwen35moe", "qwen35moe.expert_used_count = 5",
            "key 'qwen35moe.expert_used_count' is 5; expected at most qwen35moe.expert_count = 4" },
    { "qwen35moe", "qwen35moe.expert_count = 0",
            "key 'qwen35moe.expert_count' is 0; expected 1 to 65536" },
    { "qwen35moe", "qwen35moe.expert_count = 5",
            "tensor blk.0.ffn_gate_inp.weight has shape [32, 4]; expected [32, 5]" },
    { "qwen35moe", "blk.1.ffn_up_exps.weight: f32 [32, 8, 3]",
            "tensor blk.1.ffn_up_exps.weight has shape [32, 8, 3]; expected [32, 8, 4]" },
    { "qwen35moe", "blk.0.ffn_gate_inp.weight: f16",
            "tensor blk.0.ffn_gate_inp.weight has type f16; expected f32" },
    { "qwen35moe", "drop blk.0.ffn_down_exps.weight",
            "tensor blk.0.ffn_down_exps.weight is missing" },
    { "qwen35moe", "qwen35moe.expert_gating_func = 3",
            "key 'qwen35moe.expert_gating_func' is 3; expected 1 to 2" },
    { "nemotron_h_moe", "nemotron_h_moe.expert_group_count = 4",
            "key 'nemotron_h_moe.expert_group_count' is 4; expected a divisor of "
            "nemotron_h_moe.expert_count = 6" },
    { "nemotron_h_moe", "nemotron_h_moe.expert_group_used_count = 1",
            "key 'nemotron_h_moe.expert_group_used_count' is 1 with groups of 2 experts; expected "
            "at least 2 in a group and 3 in all used groups" },
    { "qwen35", "qwen35.ssm.inner_size = 33",
            "key 'qwen35.ssm.inner_size' is 33; expected 32, the product of time_step_rank and "
            "state_size" },
    { "qwen35", "qwen35.ssm.group_count = 3",
            "key 'qwen35.ssm.time_step_rank' is 4; expected a multiple of qwen35.ssm.group_count "
            "= 3" },
    { "qwen35", "qwen35.rope.dimension_count = 10",
            "key 'qwen35.rope.dimension_count' is 10; expected an even number up to 8" },
    { "qwen35", "qwen35.attention.recurrent_layers = [true, true, true]",
            "key 'qwen35.attention.recurrent_layers' has 3 elements; expected 4" },
    { "qwen35",
            "qwen35.block_count = 5; qwen35.nextn_predict_layers = 1; blk.4.nextn.eh_proj.weight: "
            "f32 [64, 32]; qwen35.attention.recurrent_layers = [true, true, true, false, false]",
            "tensor blk.4.nextn.enorm.weight is missing" },
    { "bailingmoe3",
            "bailingmoe3.block_count = 3; bailingmoe3.nextn_predict_layers = 1; "
            "blk.2.nextn.eh_proj.weight: f32 [64, 32]; blk.3.nextn.eh_proj.weight: f32 [64, 32]",
            "found 1 unknown tensor: 'blk.3.nextn.eh_proj.weight'" },
    { "mamba2", "mamba2.dt_min = 2.0; mamba2.dt_max = 1.0",
            "key 'mamba2.dt_min' is 2; expected at most mamba2.dt_max = 1" },
    { "granite_h", "granitehybrid.attention.head_count_kv = [0, 2]",
            "key 'granitehybrid.attention.head_count_kv' has 2 elements; expected at least 3" },
    { "granite_h", "drop granitehybrid.attention.head_count_kv",
            "key 'granitehybrid.attention.head_count_kv' is missing; expected an integer" },
    { "granite_h", "granitehybrid.attention.head_count_kv = [0, -1, 0]",
            "key 'granitehybrid.attention.head_count_kv' has element 1 = -1; expected 0 to 4096" },
    { "granite_h", "granitehybrid.attention.head_count_kv = [0, 3, 0]",
            "key 'granitehybrid.attention.head_count_kv' is 3; expected a divisor of "
            "granitehybrid.attention.head_count = 4" },
    { "granite_h", "drop granitehybrid.rope.scaling.finetuned",
            "key 'granitehybrid.rope.freq_base' is missing; expected f32 or f64" },
    { "bamba", "granitehybrid.rope.dimension_count = 3",
            "key 'granitehybrid.rope.dimension_count' is 3; expected an even number up to 8" },
    { "granite_h", "granitehybrid.attention.head_count_kv = [0, 0, 0]",
            "tensor blk.1.ssm_in.weight is missing" },
    { "granite_h", "granitehybrid.residual_scale = -1.0",
            "key 'granitehybrid.residual_scale' is -1; expected 0 to 1e+06" },
    { "nemotron_h", "nemotron_h.feed_forward_length = [0, 12, 12, 0]",
            "layer 2 has 2 key heads and a feed-forward length of 12; expected one of the two to "
            "be 0" },
    { "nemotron_h", "nemotron_h.feed_forward_length = [0, 12, 0]",
            "key 'nemotron_h.feed_forward_length' has 3 elements; expected at least 4" },
    { "nemotron_h", "blk.1.ffn_gate.weight: f32 [32, 12]",
            "found 1 unknown tensor: 'blk.1.ffn_gate.weight'" },
    { "nemotron_h", "drop blk.0.ssm_norm.weight", "tensor blk.0.ssm_norm.weight is missing" },
    { "falcon_h1", "falcon-h1.ssm.group_count = 3",
            "key 'falcon-h1.ssm.group_count' is 3; expected a divisor of "
            "falcon-h1.ssm.time_step_rank = 4" },
    { "falcon_h1", "falcon-h1.attention.value_length = 8",
            "key 'falcon-h1.attention.value_length' is 8; expected 6" },
    { "qwen3next", "drop blk.0.ssm_ba.weight", "tensor blk.0.ssm_ba.weight is missing" },
    { "kimi_linear", "kimi-linear.rope.dimension_count = 3",
            "key 'kimi-linear.rope.dimension_count' is 3; expected an even number below "
            "kimi-linear.attention.key_length_mla = 10" },
    { "kimi_linear", "kimi-linear.rope.dimension_count = 10",
            "key 'kimi-linear.rope.dimension_count' is 10; expected an even number below "
            "kimi-linear.attention.key_length_mla = 10" },
    { "kimi_linear", "kimi-linear.attention.kv_lora_rank = 11",
            "tensor blk.1.attn_kv_a_mqa.weight has shape [32, 14]; expected [32, 15]" },
    { "kimi_linear", "kimi-linear.kda.gate_lower_bound = -5.0",
            "key 'kimi-linear.kda.gate_lower_bound' is present; expected none" },
    { "kimi_linear", "blk.0.ssm_conv1d_q.weight: f32 [4, 2, 8]",
            "tensor blk.0.ssm_conv1d_q.weight has shape [4, 2, 8]; expected [4, 16]" },
    { "bailingmoe3", "drop bailingmoe3.kda.gate_lower_bound",
            "key 'bailingmoe3.kda.gate_lower_bound' is missing; expected a bound" },
    { "bailingmoe3", "bailingmoe3.swiglu_clamp_exp = [0.0, -7.0]",
            "key 'bailingmoe3.swiglu_clamp_exp' has element 1 = -7; expected 0 to 1e+06" },
    { "bailingmoe3", "bailingmoe3.swiglu_clamp_shexp = [7.0]",
            "key 'bailingmoe3.swiglu_clamp_shexp' has 1 elements; expected at least 2" },
    { "nemotron_h_latent", "nemotron_h_moe.moe_latent_size = 16",
            "tensor blk.1.ffn_latent_down.weight has shape [32, 12]; expected [32, 16]" },
    { "nemotron_h_latent", "drop nemotron_h_moe.moe_latent_size",
            "tensor blk.1.ffn_up_exps.weight has shape [12, 8, 6]; expected [32, 8, 6]" },
    { "nemotron_h_latent", "drop blk.1.ffn_latent_up.weight",
            "tensor blk.1.ffn_latent_up.weight is missing" },
    { "bailingmoe3_q", "drop bailingmoe3.attention.q_lora_rank",
            "tensor blk.1.attn_q.weight is missing" },
    { "rwkv6qwen2", "rwkv6qwen2.attention.head_count_kv = 3",
            "key 'rwkv6qwen2.attention.head_count_kv' is 3; expected a divisor of the number of "
            "heads = 4" },
    { "rwkv6qwen2", "rwkv6qwen2.attention.head_count_kv = 0",
            "tensor blk.0.time_mix_key.weight has shape [32, 16]; expected [32, 32]" },
    { "arwkv7", "arwkv7.wkv.head_size = 7",
            "key 'arwkv7.wkv.head_size' is 7; expected a divisor of arwkv7.embedding_length = 32" },
    { "arwkv7", "blk.1.time_mix_lerp_fused.weight: f32 [32, 1, 1, 4]",
            "tensor blk.1.time_mix_lerp_fused.weight has shape [32, 1, 1, 4]; expected [32, 1, 1, "
            "6]" },
    { "arwkv7", "drop blk.0.time_mix_ln.bias", "tensor blk.0.time_mix_ln.bias is missing" },
    { "arwkv7",
            "drop blk.1.time_mix_g1.weight; blk.1.time_mix_lerp_fused.weight: f32 [32, 1, 1, 5]",
            "found 1 unknown tensor: 'blk.1.time_mix_g2.weight'" },
    { "delta_net_hybrid", "lrnn.attention.head_count_kv = 3",
            "key 'lrnn.attention.head_count_kv' is 3; expected a divisor of "
            "lrnn.attention.head_count = 4" },
    { "delta_net_hybrid", "lrnn.attention.window = 0",
            "key 'lrnn.attention.window' is 0; expected 1 to 9223372036854775807" },
    { "delta_net_hybrid", "lrnn.rope_theta = 0.0",
            "key 'lrnn.rope_theta' is 0; expected 1 to 1e+12" },

    { "delta_net_neg", "drop blk.1.attn_v.weight", "tensor blk.1.attn_v.weight is missing" },
    { "delta_net_neg", "blk.0.attn_o.weight: f32 [32, 1]",
            "found 1 unknown tensor: 'blk.0.attn_o.weight'" },
    { "delta_net_neg", "x: f32 [32, 1]; blk.2.attn_norm.weight: f32 [32]",
            "found 2 unknown tensors: 'x', 'blk.2.attn_norm.weight'" },
    { "delta_net_neg", "blk.0.attn_q.weight: f32 [16, 32]",
            "tensor blk.0.attn_q.weight has shape [16, 32]; expected [32, 16]" },
    { "delta_net_neg", "blk.0.attn_q.weight: f32 [32, 16, 2]",
            "tensor blk.0.attn_q.weight has shape [32, 16, 2]; expected [32, 16]" },
    { "delta_net_neg", "token_embd.weight: f32 [31, 48]",
            "tensor token_embd.weight has shape [31, 48]; expected [32, any]" },
    { "delta_net_neg", "output.weight: f32 [32, 47]",
            "tensor output.weight has shape [32, 47]; expected [32, 48]" },
    { "delta_net_neg", "blk.0.attn_norm.weight: f16",
            "tensor blk.0.attn_norm.weight has type f16; expected f32" },
    { "gated_deltanet_neg", "blk.0.ssm_a: f16", "tensor blk.0.ssm_a has type f16; expected f32" },
    { "delta_net_neg", "blk.0.ssm_conv1d_q.weight: f16",
            "tensor blk.0.ssm_conv1d_q.weight has type f16; expected f32" },
    { "delta_net_neg", "blk.0.attn_q.weight: i32 [32, 16]",
            "tensor blk.0.attn_q.weight has type i32; expected f32, f16, bf16, q8_0 or another "
            "type that ggml multiplies" },
    { "delta_net_neg", "blk.0.attn_q.weight: f64 [32, 16]",
            "tensor blk.0.attn_q.weight has type f64; expected f32, f16, bf16, q8_0 or another "
            "type that ggml multiplies" },
    { "delta_net_neg", "token_embd.weight: i32 [32, 48]",
            "tensor token_embd.weight has type i32; expected f32, f16, bf16, q8_0 or another type "
            "that ggml multiplies" },
    { "mamba", "blk.0.ssm_in.weight: f32 [32, 65]",
            "tensor blk.0.ssm_in.weight has 65 rows; expected an even number" },

    { "delta_net_neg", "output_norm.weight[31] = nan",
            "tensor output_norm.weight has nan as element 31; expected finite numbers" },
    { "gated_deltanet_neg", "blk.1.ssm_a[1] = -inf",
            "tensor blk.1.ssm_a has -inf as element 1; expected finite numbers, none above 0" },
    { "gated_deltanet_neg", "blk.0.ssm_a[0] = 0.25",
            "tensor blk.0.ssm_a has 0.25 as element 0; expected finite numbers, none above 0" },
    { "kda", "blk.0.ssm_a[0] = 0.25",
            "tensor blk.0.ssm_a has 0.25 as element 0; expected finite numbers, none above 0" },
    { "mamba", "blk.0.ssm_a[5] = 0.001",
            "tensor blk.0.ssm_a has 0.001 as element 5; expected finite numbers, none above 0" },
    { "mamba2", "blk.0.ssm_a[0] = 0.25",
            "tensor blk.0.ssm_a has 0.25 as element 0; expected finite numbers, none above 0" },
    { "hgrn2", "blk.1.ssm_lower_bound.weight[2] = 1.5",
            "tensor blk.1.ssm_lower_bound.weight has 1.5 as element 2; expected finite numbers "
            "from 0 to 1" },
    { "mamba2", "blk.0.ssm_dt.bias[0] = inf",
            "tensor blk.0.ssm_dt.bias has inf as element 0; expected finite numbers" },
    { "gated_deltanet_neg", "blk.0.ssm_alpha.weight[63] = nan",
            "tensor blk.0.ssm_alpha.weight has nan as element 63; expected finite numbers" },
    { "delta_net_neg", "blk.0.ssm_beta.weight[0] = nan",
            "tensor blk.0.ssm_beta.weight has nan as element 0; expected finite numbers" },
    { "delta_net_neg", "blk.1.ssm_conv1d_k.weight[7] = nan",
            "tensor blk.1.ssm_conv1d_k.weight has nan as element 7; expected finite numbers" },
    { "rwkv7", "blk.0.time_mix_lerp_fused.weight[3] = nan",
            "tensor blk.0.time_mix_lerp_fused.weight has nan as element 3; expected finite "
            "numbers" },
    { "rwkv6", "blk.0.time_mix_decay.weight[3] = nan",
            "tensor blk.0.time_mix_decay.weight has nan as element 3; expected finite numbers" },
    { "xlstm", "blk.0.ssm_igate.bias[0] = nan",
            "tensor blk.0.ssm_igate.bias has nan as element 0; expected finite numbers" },

    { "delta_net_neg", "tokenizer.ggml.model = 'bert\x07'",
            "tokenizer: tokenizer.ggml.model is 'bert?'; expected llama, gpt2, rwkv, lrnn-bytes "
            "or lrnn-symbols" },
    { "delta_net_neg", "tokenizer.ggml.model = 1",
            "key 'tokenizer.ggml.model' is of type u32; expected string" },
    { "delta_net_neg", "tokenizer.ggml.model = 'lrnn-bytes'",
            "tokenizer: tokenizer.ggml.tokens has 0 tokens; expected 1 to 16777216" },
    { "delta_net_neg", "bytes 256",
            "tokenizer.ggml.tokens has 256 tokens; token_embd.weight has 48 rows" },
    { "delta_net_neg", "bytes 48",
            "tokenizer: tokenizer.ggml.tokens has 48 tokens; expected at least the 256 bytes" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.tokens = [0, 1]",
            "key 'tokenizer.ggml.tokens' is an array of u32; expected an array of string" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.token_type = [0.0, 0.0]",
            "key 'tokenizer.ggml.token_type' is an array of f32; expected an array of integers" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.token_type = [1, 1]",
            "tokenizer: tokenizer.ggml.token_type has 2 numbers; expected 48, one per token" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.token_type = [1, 256]",
            "key 'tokenizer.ggml.token_type' has element 1 = 256; expected 0 to 255" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.scores = [0.0, nan]",
            "key 'tokenizer.ggml.scores' has element 1 = nan; expected -1e+30 to 1e+30" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.eos_token_id = 48",
            "tokenizer: tokenizer.ggml.eos_token_id is 48; expected a token from 0 to 47" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.eos_token_id = 4294967295",
            "key 'tokenizer.ggml.eos_token_id' is 4294967295; expected 0 to 2147483647" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.bos_token_id = -1",
            "key 'tokenizer.ggml.bos_token_id' is -1; expected 0 to 2147483647" },
    { "delta_net_neg", "symbols 48; tokenizer.ggml.add_bos_token = 1",
            "key 'tokenizer.ggml.add_bos_token' is of type u32; expected bool" },
};

enum { N_REJECTIONS = sizeof(REJECTIONS) / sizeof(REJECTIONS[0]) };

// "<path>: <sentence>" with the names of families in place of {families} or {llama.cpp}.
static void fill_in(char * text, size_t size, const char * path, const char * sentence) {
    const size_t start = strcspn(sentence, "{");
    char         names[512];
    if (sentence[start] == '\0') {
        snprintf(text, size, "%s: %s", path, sentence);
        return;
    }
    family_names(strcmp(sentence + start, "{llama.cpp}") == 0, names, sizeof(names));
    snprintf(text, size, "%s: %.*s%s", path, (int) start, sentence, names);
}

static void check_rejection(struct test * t, const struct golden_list * list,
        const struct rejection * r, const char * path) {
    const struct golden * g = golden_find(list, r->model);
    struct model_edit     e;
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    char                  want[2048];
    if (!test_check(t, g != NULL && model_edit_open(&e, g->path), "cannot read %s", r->model)) {
        return;
    }
    model_edit_change(&e, r->changes);
    fill_in(want, sizeof(want), path, r->sentence);
    if (test_check(t, model_edit_write(&e, path), "cannot write %s", path)) {
        struct lrnn_model * model = lrnn_model_load(path, NULL, &err);
        test_check(t, model == NULL, "%s: accepted; expected: %s", r->model, want);
        test_check(t, model != NULL || strcmp(err.text, want) == 0,
                "%s: said: %s\n    expected: %s", r->model, err.text, want);
        lrnn_model_free(model);
    }
    model_edit_close(&e);
}

// A golden model that is read and written without a change loads: the changes above are the cause
// of the rejections.
static void check_unchanged(struct test * t, const struct golden_list * list, const char * path) {
    for (int i = 0; i < list->n; ++i) {
        struct model_edit e;
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };
        if (test_check(t, model_edit_open(&e, list->models[i].path), "cannot read %s",
                    list->models[i].path)) {
            struct lrnn_model * model =
                    model_edit_write(&e, path) ? lrnn_model_load(path, NULL, &err) : NULL;
            test_check(t, model != NULL, "%s: %s", list->models[i].name, err.text);
            lrnn_model_free(model);
            model_edit_close(&e);
        }
    }
}

// Changes after which a model loads and computes finite logits: matrices of types that we do not
// write.
static const char * const ACCEPTED[] = {
    "blk.0.attn_qkv.weight: iq4_nl",
    "blk.3.attn_q.weight: q5_1",
    "blk.1.ssm_beta.weight: mxfp4",
};

static void check_accepted(
        struct test * t, const struct golden_list * list, const char * path, const char * changes) {
    const struct golden * g = golden_find(list, "qwen35");
    struct model_edit     e;
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    if (!test_check(t, model_edit_open(&e, g->path), "cannot read %s", g->path)) {
        return;
    }
    model_edit_change(&e, changes);
    struct lrnn_model * model =
            model_edit_write(&e, path) ? lrnn_model_load(path, NULL, &err) : NULL;
    struct lrnn_session *   s = model != NULL ? lrnn_session_new(model, NULL, &err) : NULL;
    const struct lrnn_input input = { .tokens = g->tokens, .n_tokens = g->n_tokens, .n_logits = 1 };
    if (test_check(t, s != NULL && lrnn_eval(s, &input, 1, &err), "%s", err.text)) {
        double sum = 0.0;
        for (int64_t i = 0; i < g->n_vocab; ++i) {
            sum += (double) lrnn_logits(s, 0)[i];
        }
        test_check(t, isfinite(sum), "logits are not finite");
    }
    lrnn_session_free(s);
    lrnn_model_free(model);
    model_edit_close(&e);
}

// Random changes of each golden model.
static void write_seeds(const struct golden_list * list, const char * folder) {
    struct test_rng rng = { 1 };
    for (int i = 0; i < list->n; ++i) {
        char    path[4096];
        uint8_t bytes[1 + 4 * 8] = { (uint8_t) i };
        for (size_t k = 1; k < sizeof(bytes); ++k) {
            bytes[k] = (uint8_t) test_next(&rng);
        }
        snprintf(path, sizeof(path), "%s/%s", folder, list->models[i].name);
        test_write_file(path, bytes, 9 + 8 * ((size_t) i % 4));
    }
}

int main(int argc, char ** argv) {
    struct test        t = { 0 };
    struct golden_list list;
    const char *       folder = argc == 2 ? argv[1] : NULL;
    golden_list_load(&list);
    if (argc == 3) {
        write_seeds(&list, argv[2]);
        golden_list_free(&list);
        return 0;
    }
    char path[1024];
    test_own_path(path, sizeof(path), "test-model-load.gguf");
    for (int i = 0; i < N_REJECTIONS; ++i) {
        if (folder != NULL) {
            snprintf(path, sizeof(path), "%s/%03d.gguf", folder, i);
        }
        check_rejection(&t, &list, &REJECTIONS[i], path);
    }
    if (folder == NULL) {
        check_unchanged(&t, &list, path);
        for (size_t i = 0; i < sizeof(ACCEPTED) / sizeof(ACCEPTED[0]); ++i) {
            check_accepted(&t, &list, path, ACCEPTED[i]);
        }
        remove(path);
    }
    golden_list_free(&list);
    return test_end(&t, "model-load");
}
