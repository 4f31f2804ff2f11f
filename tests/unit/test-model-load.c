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

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rejection {
    const char * model;
    const char * sentence; // after "<file>: "; {families} and {llama.cpp} are replaced
    void (*change)(struct model_edit * e);
};

//
// Changes
//

static void set_u32(struct model_edit * e, const char * key, uint32_t value) {
    gguf_remove_key(e->gguf, key);
    gguf_set_val_u32(e->gguf, key, value);
}

static void set_f32(struct model_edit * e, const char * key, float value) {
    gguf_remove_key(e->gguf, key);
    gguf_set_val_f32(e->gguf, key, value);
}

static void set_text(struct model_edit * e, const char * key, const char * value) {
    gguf_remove_key(e->gguf, key);
    gguf_set_val_str(e->gguf, key, value);
}

static void set_i32(struct model_edit * e, const char * key, int32_t value) {
    gguf_remove_key(e->gguf, key);
    gguf_set_val_i32(e->gguf, key, value);
}

static void set_bool(struct model_edit * e, const char * key, bool value) {
    gguf_remove_key(e->gguf, key);
    gguf_set_val_bool(e->gguf, key, value);
}

static void set_kinds(struct model_edit * e, size_t n, const char * a, const char * b) {
    gguf_set_arr_str(e->gguf, "lrnn.layer_kinds", (const char * [2]) { a, b }, n);
}

static void set_number(struct model_edit * e, const char * name, int64_t i, float value) {
    ((float *) model_edit_find(e, name)->data)[i] = value;
}

static void reshape(struct model_edit * e, const char * name, int64_t ne0, int64_t ne1) {
    model_edit_put(e, name, GGML_TYPE_F32, ne1 > 0 ? 2 : 1, (const int64_t[2]) { ne0, ne1 });
}

static void retype(struct model_edit * e, const char * name, enum ggml_type type) {
    model_edit_put(e, name, type, 2, model_edit_find(e, name)->ne);
}

// general
static void no_architecture(struct model_edit * e) {
    gguf_remove_key(e->gguf, "general.architecture");
}
static void odd_architecture(struct model_edit * e) {
    set_text(e, "general.architecture", "llama");
}
static void ugly_architecture(struct model_edit * e) {
    set_text(e, "general.architecture", "a\nb\x1b[31m");
}
static void int_architecture(struct model_edit * e) {
    set_u32(e, "general.architecture", 1);
}
static void no_version(struct model_edit * e) {
    gguf_remove_key(e->gguf, "lrnn.format_version");
}
static void new_version(struct model_edit * e) {
    set_u32(e, "lrnn.format_version", 2);
}
static void no_family(struct model_edit * e) {
    gguf_remove_key(e->gguf, "lrnn.family");
}
static void odd_family(struct model_edit * e) {
    set_text(e, "lrnn.family", "lstm");
}

// eigenvalues
static void no_range(struct model_edit * e) {
    gguf_remove_key(e->gguf, "lrnn.eigenvalues");
}
static void odd_range(struct model_edit * e) {
    set_text(e, "lrnn.eigenvalues", "[0,2]");
}
static void bool_range(struct model_edit * e) {
    set_bool(e, "lrnn.eigenvalues", true);
}
static void signed_range(struct model_edit * e) {
    set_text(e, "lrnn.eigenvalues", "[-1,1]");
}
static void own_range(struct model_edit * e) {
    set_text(e, "lrnn.eigenvalues", "family");
}
static void plain_range(struct model_edit * e) {
    set_text(e, "lrnn.eigenvalues", "[0,1]");
}

// shape
static void no_layers(struct model_edit * e) {
    set_u32(e, "lrnn.block_count", 0);
}
static void many_layers(struct model_edit * e) {
    set_u32(e, "lrnn.block_count", 4097);
}
static void layers_u32_max(struct model_edit * e) {
    set_u32(e, "lrnn.block_count", UINT32_MAX);
}
static void text_layers(struct model_edit * e) {
    set_text(e, "lrnn.block_count", "2");
}
static void float_layers(struct model_edit * e) {
    set_f32(e, "lrnn.block_count", 2.0f);
}
static void negative_layers(struct model_edit * e) {
    set_i32(e, "lrnn.block_count", -2);
}
static void one_layer_more(struct model_edit * e) {
    set_u32(e, "lrnn.block_count", 3);
}
static void one_layer_less(struct model_edit * e) {
    set_u32(e, "lrnn.block_count", 1);
}
static void no_width(struct model_edit * e) {
    gguf_remove_key(e->gguf, "lrnn.embedding_length");
}
static void other_width(struct model_edit * e) {
    set_u32(e, "lrnn.embedding_length", 64);
}
static void other_vocab(struct model_edit * e) {
    set_u32(e, "lrnn.vocab_size", 50);
}
static void no_feed_forward(struct model_edit * e) {
    gguf_remove_key(e->gguf, "lrnn.feed_forward_length");
}
static void trained_zero(struct model_edit * e) {
    set_u32(e, "lrnn.context_length_trained", 0);
}
static void eps_zero(struct model_edit * e) {
    set_f32(e, "lrnn.norm_epsilon", 0.0f);
}
static void eps_negative(struct model_edit * e) {
    set_f32(e, "lrnn.norm_epsilon", -1e-5f);
}
static void eps_nan(struct model_edit * e) {
    set_f32(e, "lrnn.norm_epsilon", NAN);
}
static void kinds_short(struct model_edit * e) {
    set_kinds(e, 1, "recurrent", "");
}
static void kinds_odd(struct model_edit * e) {
    set_kinds(e, 2, "recurrent", "r\x1b");
}
static void kinds_numbers(struct model_edit * e) {
    gguf_remove_key(e->gguf, "lrnn.layer_kinds");
    gguf_set_arr_data(
            e->gguf, "lrnn.layer_kinds", GGUF_TYPE_UINT32, (const uint32_t[2]) { 0, 1 }, 2);
}
static void kinds_recurrent(struct model_edit * e) {
    set_kinds(e, 2, "attention", "recurrent");
}

// heads, factors, convolution, gates
static void heads_zero(struct model_edit * e) {
    set_u32(e, "lrnn.head_count", 0);
}
static void heads_other(struct model_edit * e) {
    set_u32(e, "lrnn.head_count", 3);
}
static void heads_undivided(struct model_edit * e) {
    set_u32(e, "lrnn.head_count", 3);
}
static void key_length_zero(struct model_edit * e) {
    set_u32(e, "lrnn.key_length", 0);
}
static void key_length_huge(struct model_edit * e) {
    set_u32(e, "lrnn.key_length", 65536);
}
static void key_length_odd(struct model_edit * e) {
    set_u32(e, "lrnn.key_length", 7);
}
static void factors_zero(struct model_edit * e) {
    set_u32(e, "lrnn.householder_count", 0);
}
static void factors_negative(struct model_edit * e) {
    set_i32(e, "lrnn.householder_count", -1);
}
static void factors_many(struct model_edit * e) {
    set_u32(e, "lrnn.householder_count", 257);
}
static void factors_other(struct model_edit * e) {
    set_u32(e, "lrnn.householder_count", 3);
}
static void conv_one(struct model_edit * e) {
    set_u32(e, "lrnn.conv_width", 1);
}
static void conv_huge(struct model_edit * e) {
    set_u32(e, "lrnn.conv_width", 65);
}
static void conv_other(struct model_edit * e) {
    set_u32(e, "lrnn.conv_width", 3);
}
static void conv_none(struct model_edit * e) {
    set_u32(e, "lrnn.conv_width", 0);
}
static void gate_odd(struct model_edit * e) {
    set_text(e, "lrnn.gate", "channel");
}
static void output_gate_odd(struct model_edit * e) {
    set_text(e, "lrnn.output_gate", "tanh");
}
static void state_zero(struct model_edit * e) {
    set_u32(e, "mamba.ssm.state_size", 0);
}
static void groups_undivided(struct model_edit * e) {
    set_u32(e, "mamba2.ssm.group_count", 3);
}
static void dt_reversed(struct model_edit * e) {
    set_f32(e, "mamba2.dt_min", 2.0f);
    set_f32(e, "mamba2.dt_max", 1.0f);
}
static void qwen35_experts(struct model_edit * e) {
    set_text(e, "general.architecture", "qwen35moe");
}
static void qwen35_inner(struct model_edit * e) {
    set_u32(e, "qwen35.ssm.inner_size", 33);
}
static void qwen35_heads(struct model_edit * e) {
    set_u32(e, "qwen35.ssm.group_count", 3);
}
static void qwen35_rope(struct model_edit * e) {
    set_u32(e, "qwen35.rope.dimension_count", 10);
}
static void qwen35_kinds(struct model_edit * e) {
    const bool all[3] = { true, true, true };
    gguf_set_arr_data(e->gguf, "qwen35.attention.recurrent_layers", GGUF_TYPE_BOOL, all, 3);
}
static void qwen35_more(struct model_edit * e) { // a fifth layer that does not belong to the model
    set_u32(e, "qwen35.block_count", 5);
    set_u32(e, "qwen35.nextn_predict_layers", 1);
    model_edit_put(e, "blk.4.nextn.eh_proj.weight", GGML_TYPE_F32, 2, (const int64_t[]) { 64, 32 });
}
static void qwen35_more_unknown(struct model_edit * e) {
    qwen35_more(e);
    model_edit_put(e, "blk.5.nextn.eh_proj.weight", GGML_TYPE_F32, 2, (const int64_t[]) { 64, 32 });
}
// One number per layer, instead of the array or number of the file.
static void set_per_layer(
        struct model_edit * e, const char * key, size_t n, const int32_t numbers[]) {
    gguf_remove_key(e->gguf, key);
    gguf_set_arr_data(e->gguf, key, GGUF_TYPE_INT32, numbers, n);
}
static void kv_heads_short(struct model_edit * e) {
    set_per_layer(e, "granitehybrid.attention.head_count_kv", 2, (const int32_t[]) { 0, 2 });
}
static void kv_heads_missing(struct model_edit * e) {
    gguf_remove_key(e->gguf, "granitehybrid.attention.head_count_kv");
}
static void kv_heads_negative(struct model_edit * e) {
    set_per_layer(e, "granitehybrid.attention.head_count_kv", 3, (const int32_t[]) { 0, -1, 0 });
}
static void kv_heads_layer(struct model_edit * e) {
    set_per_layer(e, "granitehybrid.attention.head_count_kv", 3, (const int32_t[]) { 0, 3, 0 });
}
static void granite_rope(struct model_edit * e) {
    gguf_remove_key(e->gguf, "granitehybrid.rope.scaling.finetuned");
}
static void granite_recurrent(struct model_edit * e) {
    set_per_layer(e, "granitehybrid.attention.head_count_kv", 3, (const int32_t[]) { 0, 0, 0 });
}
static void scale_negative(struct model_edit * e) {
    set_f32(e, "granitehybrid.residual_scale", -1.0f);
}
static void nemotron_both(struct model_edit * e) {
    set_per_layer(e, "nemotron_h.feed_forward_length", 4, (const int32_t[]) { 0, 12, 12, 0 });
}
static void nemotron_short(struct model_edit * e) {
    set_per_layer(e, "nemotron_h.feed_forward_length", 3, (const int32_t[]) { 0, 12, 0 });
}
static void nemotron_gate(struct model_edit * e) {
    model_edit_put(e, "blk.1.ffn_gate.weight", GGML_TYPE_F32, 2, (const int64_t[]) { 32, 12 });
}
static void group_norm_missing(struct model_edit * e) {
    model_edit_drop(e, "blk.0.ssm_norm.weight");
}
static void falcon_groups(struct model_edit * e) {
    set_u32(e, "falcon-h1.ssm.group_count", 3);
}
static void falcon_values(struct model_edit * e) {
    set_u32(e, "falcon-h1.attention.value_length", 8);
}
static void kv_heads(struct model_edit * e) {
    set_u32(e, "lrnn.attention.head_count_kv", 3);
}
static void window_zero(struct model_edit * e) {
    set_u32(e, "lrnn.attention.window", 0);
}
static void theta_zero(struct model_edit * e) {
    set_f32(e, "lrnn.rope_theta", 0.0f);
}

// tensors
static void tensor_missing(struct model_edit * e) {
    model_edit_drop(e, "blk.1.attn_v.weight");
}
static void tensor_extra(struct model_edit * e) {
    reshape(e, "blk.0.attn_o.weight", 32, 1);
}
static void tensor_two_extra(struct model_edit * e) {
    reshape(e, "x", 32, 1);
    reshape(e, "blk.2.attn_norm.weight", 32, 0);
}
static void tensor_transposed(struct model_edit * e) {
    reshape(e, "blk.0.attn_q.weight", 16, 32);
}
static void tensor_3d(struct model_edit * e) {
    model_edit_put(e, "blk.0.attn_q.weight", GGML_TYPE_F32, 3, (const int64_t[3]) { 32, 16, 2 });
}
static void embedding_width(struct model_edit * e) {
    reshape(e, "token_embd.weight", 31, 48);
}
static void output_rows(struct model_edit * e) {
    reshape(e, "output.weight", 32, 47);
}
static void norm_f16(struct model_edit * e) {
    model_edit_convert(e, "blk.0.attn_norm.weight", GGML_TYPE_F16);
}
static void a_f16(struct model_edit * e) {
    model_edit_convert(e, "blk.0.ssm_a", GGML_TYPE_F16);
}
static void conv_f16(struct model_edit * e) {
    model_edit_convert(e, "blk.0.ssm_conv1d_q.weight", GGML_TYPE_F16);
}
static void matrix_i32(struct model_edit * e) {
    retype(e, "blk.0.attn_q.weight", GGML_TYPE_I32);
}
static void matrix_f64(struct model_edit * e) {
    retype(e, "blk.0.attn_q.weight", GGML_TYPE_F64);
}
static void embedding_i32(struct model_edit * e) {
    retype(e, "token_embd.weight", GGML_TYPE_I32);
}
static void ssm_in_odd(struct model_edit * e) {
    reshape(e, "blk.0.ssm_in.weight", 32, 65);
}

// numbers
static void norm_nan(struct model_edit * e) {
    set_number(e, "output_norm.weight", 31, NAN);
}
static void a_inf(struct model_edit * e) {
    set_number(e, "blk.1.ssm_a", 1, -INFINITY);
}
static void a_positive(struct model_edit * e) {
    set_number(e, "blk.0.ssm_a", 0, 0.25f);
}
static void a_mamba_positive(struct model_edit * e) {
    set_number(e, "blk.0.ssm_a", 5, 1e-3f);
}
static void bound_above(struct model_edit * e) {
    set_number(e, "blk.1.ssm_lower_bound.weight", 2, 1.5f);
}
static void dt_bias_inf(struct model_edit * e) {
    set_number(e, "blk.0.ssm_dt.bias", 0, INFINITY);
}
static void gate_nan(struct model_edit * e) {
    set_number(e, "blk.0.ssm_alpha.weight", 63, NAN);
}
static void beta_nan(struct model_edit * e) {
    set_number(e, "blk.0.ssm_beta.weight", 0, NAN);
}
static void conv_nan(struct model_edit * e) {
    set_number(e, "blk.1.ssm_conv1d_k.weight", 7, NAN);
}
static void lerp_nan(struct model_edit * e) {
    set_number(e, "blk.0.time_mix_lerp_fused.weight", 3, NAN);
}
static void decay_nan(struct model_edit * e) {
    set_number(e, "blk.0.time_mix_decay.weight", 3, NAN);
}
static void igate_nan(struct model_edit * e) {
    set_number(e, "blk.0.ssm_igate.bias", 0, NAN);
}

// tokenizer of bytes; the model has 48 tokens
static void set_bytes(struct model_edit * e, size_t n) {
    static char  text[256][8];
    const char * tokens[256];
    int32_t      types[256];
    for (size_t i = 0; i < n; ++i) {
        snprintf(text[i], sizeof(text[i]), "<0x%02X>", (unsigned) i);
        tokens[i] = text[i];
        types[i] = 6;
    }
    set_text(e, "tokenizer.ggml.model", "lrnn-bytes");
    gguf_set_arr_str(e->gguf, "tokenizer.ggml.tokens", tokens, n);
    gguf_set_arr_data(e->gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, n);
}

static void set_symbols(struct model_edit * e) {
    static char  text[48][16];
    const char * tokens[48];
    for (int i = 0; i < 48; ++i) {
        snprintf(text[i], sizeof(text[i]), "s%d", i);
        tokens[i] = text[i];
    }
    set_text(e, "tokenizer.ggml.model", "lrnn-symbols");
    gguf_set_arr_str(e->gguf, "tokenizer.ggml.tokens", tokens, 48);
}

static void set_pair(
        struct model_edit * e, const char * key, enum gguf_type type, const void * two) {
    set_symbols(e);
    gguf_set_arr_data(e->gguf, key, type, two, 2);
}

static void tokenizer_odd(struct model_edit * e) {
    set_text(e, "tokenizer.ggml.model", "bert\x07");
}
static void tokenizer_int(struct model_edit * e) {
    set_u32(e, "tokenizer.ggml.model", 1);
}
static void tokens_missing(struct model_edit * e) {
    set_text(e, "tokenizer.ggml.model", "lrnn-bytes");
}
static void tokens_many(struct model_edit * e) {
    set_bytes(e, 256);
}
static void tokens_few(struct model_edit * e) {
    set_bytes(e, 48);
}
static void tokens_numbers(struct model_edit * e) {
    set_symbols(e);
    gguf_remove_key(e->gguf, "tokenizer.ggml.tokens");
    gguf_set_arr_data(
            e->gguf, "tokenizer.ggml.tokens", GGUF_TYPE_UINT32, (const uint32_t[2]) { 0, 1 }, 2);
}
static void types_float(struct model_edit * e) {
    set_pair(e, "tokenizer.ggml.token_type", GGUF_TYPE_FLOAT32, (const float[2]) { 0 });
}
static void types_short(struct model_edit * e) {
    set_pair(e, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, (const int32_t[2]) { 1, 1 });
}
static void types_high(struct model_edit * e) {
    set_pair(e, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, (const int32_t[2]) { 1, 256 });
}
static void scores_nan(struct model_edit * e) {
    set_pair(e, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, (const float[2]) { 0, NAN });
}
static void eos_high(struct model_edit * e) {
    set_symbols(e);
    set_u32(e, "tokenizer.ggml.eos_token_id", 48);
}
static void eos_u32_max(struct model_edit * e) {
    set_symbols(e);
    set_u32(e, "tokenizer.ggml.eos_token_id", UINT32_MAX);
}
static void bos_negative(struct model_edit * e) {
    set_symbols(e);
    gguf_set_val_i32(e->gguf, "tokenizer.ggml.bos_token_id", -1);
}
static void add_bos_int(struct model_edit * e) {
    set_symbols(e);
    set_u32(e, "tokenizer.ggml.add_bos_token", 1);
}

static const struct rejection REJECTIONS[] = {
    { "delta_net_neg", "key 'general.architecture' is missing; expected string", no_architecture },
    { "delta_net_neg", "key 'general.architecture' is 'llama'; expected one of lrnn, {llama.cpp}",
            odd_architecture },
    { "delta_net_neg",
            "key 'general.architecture' is 'a?b?[31m'; expected one of lrnn, {llama.cpp}",
            ugly_architecture },
    { "delta_net_neg", "key 'general.architecture' is of type u32; expected string",
            int_architecture },
    { "delta_net_neg", "key 'lrnn.format_version' is missing; expected an integer", no_version },
    { "delta_net_neg", "key 'lrnn.format_version' is 2; expected 1 to 1", new_version },
    { "delta_net_neg", "key 'lrnn.family' is missing; expected string", no_family },
    { "delta_net_neg", "key 'lrnn.family' is 'lstm'; expected one of {families}", odd_family },

    { "delta_net_neg", "key 'lrnn.eigenvalues' is missing; expected string", no_range },
    { "delta_net_neg",
            "key 'lrnn.eigenvalues' is '[0,2]'; expected one of '[0,1]', '[-1,1]', 'family'",
            odd_range },
    { "delta_net_neg", "key 'lrnn.eigenvalues' is of type bool; expected string", bool_range },
    { "retnet", "key 'lrnn.eigenvalues' is '[-1,1]'; expected '[0,1]' for family retnet",
            signed_range },
    { "delta_net_neg",
            "key 'lrnn.eigenvalues' is 'family'; expected '[0,1]' or '[-1,1]' for family delta_net",
            own_range },
    { "rwkv7", "key 'lrnn.eigenvalues' is '[0,1]'; expected 'family' for family rwkv7",
            plain_range },

    { "delta_net_neg", "key 'lrnn.block_count' is 0; expected 1 to 4096", no_layers },
    { "delta_net_neg", "key 'lrnn.block_count' is 4097; expected 1 to 4096", many_layers },
    { "delta_net_neg", "key 'lrnn.block_count' is 4294967295; expected 1 to 4096", layers_u32_max },
    { "delta_net_neg", "key 'lrnn.block_count' is -2; expected 1 to 4096", negative_layers },
    { "delta_net_neg", "key 'lrnn.block_count' is of type string; expected an integer",
            text_layers },
    { "delta_net_neg", "key 'lrnn.block_count' is of type f32; expected an integer", float_layers },
    { "delta_net_neg", "tensor blk.2.attn_norm.weight is missing", one_layer_more },
    { "xlstm",
            "found 15 unknown tensors: 'blk.1.attn_norm.weight', 'blk.1.attn_q.weight', "
            "'blk.1.attn_k.weight', ...",
            one_layer_less },
    { "delta_net_neg", "key 'lrnn.embedding_length' is missing; expected an integer", no_width },
    { "delta_net_neg", "tensor token_embd.weight has shape [32, 48]; expected [64, any]",
            other_width },
    { "delta_net_neg", "key 'lrnn.vocab_size' is 50; expected 48, the rows of token_embd.weight",
            other_vocab },
    { "delta_net_neg", "key 'lrnn.feed_forward_length' is missing", no_feed_forward },
    { "delta_net_neg", "key 'lrnn.context_length_trained' is 0; expected 1 to 9223372036854775807",
            trained_zero },
    { "delta_net_neg", "key 'lrnn.norm_epsilon' is 0; expected 1e-12 to 1", eps_zero },
    { "delta_net_neg", "key 'lrnn.norm_epsilon' is -1e-05; expected 1e-12 to 1", eps_negative },
    { "delta_net_neg", "key 'lrnn.norm_epsilon' is nan; expected 1e-12 to 1", eps_nan },
    { "delta_net_neg", "key 'lrnn.layer_kinds' has 1 elements; expected 2", kinds_short },
    { "delta_net_neg",
            "key 'lrnn.layer_kinds' has element 1 = 'r?'; expected 'recurrent' or "
            "'attention'",
            kinds_odd },
    { "delta_net_neg", "key 'lrnn.layer_kinds' is an array of u32; expected an array of string",
            kinds_numbers },
    { "transformer",
            "key 'lrnn.layer_kinds' has element 1 = 'recurrent'; expected 'attention' for family "
            "transformer",
            kinds_recurrent },

    { "delta_net_neg", "key 'lrnn.head_count' is 0; expected 1 to 4096", heads_zero },
    { "delta_net_neg", "tensor blk.0.attn_q.weight has shape [32, 16]; expected [32, 24]",
            heads_other },
    { "gated_deltanet_gqa",
            "key 'lrnn.head_count_value' is 4; expected a multiple of lrnn.head_count = 3",
            heads_undivided },
    { "delta_net_neg", "key 'lrnn.key_length' is 0; expected 1 to 65536", key_length_zero },
    { "delta_net_neg", "tensor blk.0.attn_q.weight has shape [32, 16]; expected [32, 131072]",
            key_length_huge },
    { "retnet", "key 'lrnn.key_length' is 7; expected an even number, for RoPE", key_length_odd },
    { "deltaproduct3_neg", "key 'lrnn.householder_count' is 0; expected 1 to 256", factors_zero },
    { "deltaproduct3_neg", "key 'lrnn.householder_count' is -1; expected 1 to 256",
            factors_negative },
    { "deltaproduct3_neg", "key 'lrnn.householder_count' is 257; expected 1 to 256", factors_many },
    { "gated_deltaproduct2_neg", "tensor blk.0.attn_k.weight has shape [32, 32]; expected [32, 48]",
            factors_other },
    { "delta_net_neg", "key 'lrnn.conv_width' is 1; expected 0 or 2 to 64", conv_one },
    { "delta_net_neg", "key 'lrnn.conv_width' is 65; expected 0 to 64", conv_huge },
    { "delta_net_neg", "tensor blk.0.ssm_conv1d_q.weight has shape [4, 16]; expected [3, 16]",
            conv_other },
    { "delta_net_neg",
            "found 6 unknown tensors: 'blk.0.ssm_conv1d_q.weight', 'blk.0.ssm_conv1d_k.weight', "
            "'blk.0.ssm_conv1d_v.weight', ...",
            conv_none },
    { "deltaproduct3_neg", "key 'lrnn.gate' is 'channel'; expected one of 'none', 'head'",
            gate_odd },
    { "delta_net_neg",
            "key 'lrnn.output_gate' is 'tanh'; expected one of 'none', 'silu', 'sigmoid'",
            output_gate_odd },
    { "mamba", "key 'mamba.ssm.state_size' is 0; expected 1 to 65536", state_zero },
    { "mamba2_groups",
            "key 'mamba2.ssm.group_count' is 3; expected a divisor of "
            "mamba2.ssm.time_step_rank = 4",
            groups_undivided },
    { "qwen35", "key 'general.architecture' is 'qwen35moe'; expected one of lrnn, {llama.cpp}",
            qwen35_experts },
    { "qwen35",
            "key 'qwen35.ssm.inner_size' is 33; expected 32, the product of time_step_rank and "
            "state_size",
            qwen35_inner },
    { "qwen35",
            "key 'qwen35.ssm.time_step_rank' is 4; expected a multiple of qwen35.ssm.group_count = "
            "3",
            qwen35_heads },
    { "qwen35", "key 'qwen35.rope.dimension_count' is 10; expected an even number up to 8",
            qwen35_rope },
    { "qwen35", "key 'qwen35.attention.recurrent_layers' has 3 elements; expected 4",
            qwen35_kinds },
    { "qwen35", "found 1 unknown tensor: 'blk.5.nextn.eh_proj.weight'", qwen35_more_unknown },
    { "mamba2", "key 'mamba2.dt_min' is 2; expected at most mamba2.dt_max = 1", dt_reversed },
    { "granite_h",
            "key 'granitehybrid.attention.head_count_kv' has 2 elements; expected at least 3",
            kv_heads_short },
    { "granite_h", "key 'granitehybrid.attention.head_count_kv' is missing; expected an integer",
            kv_heads_missing },
    { "granite_h",
            "key 'granitehybrid.attention.head_count_kv' has element 1 = -1; expected 0 to 4096",
            kv_heads_negative },
    { "granite_h",
            "key 'granitehybrid.attention.head_count_kv' is 3; expected a divisor of "
            "granitehybrid.attention.head_count = 4",
            kv_heads_layer },
    { "granite_h",
            "key 'granitehybrid.rope.scaling.finetuned' is not false; expected attention without "
            "RoPE",
            granite_rope },
    { "granite_h", "tensor blk.1.ssm_in.weight is missing", granite_recurrent },
    { "granite_h", "key 'granitehybrid.residual_scale' is -1; expected 0 to 1e+06",
            scale_negative },
    { "nemotron_h",
            "layer 2 has 2 key heads and a feed-forward length of 12; expected one of the two to "
            "be 0",
            nemotron_both },
    { "nemotron_h", "key 'nemotron_h.feed_forward_length' has 3 elements; expected at least 4",
            nemotron_short },
    { "nemotron_h", "found 1 unknown tensor: 'blk.1.ffn_gate.weight'", nemotron_gate },
    { "nemotron_h", "tensor blk.0.ssm_norm.weight is missing", group_norm_missing },
    { "falcon_h1",
            "key 'falcon-h1.ssm.group_count' is 3; expected a divisor of "
            "falcon-h1.ssm.time_step_rank = 4",
            falcon_groups },
    { "falcon_h1", "key 'falcon-h1.attention.value_length' is 8; expected 6", falcon_values },
    { "delta_net_hybrid",
            "key 'lrnn.attention.head_count_kv' is 3; "
            "expected a divisor of lrnn.attention.head_count = 4",
            kv_heads },
    { "delta_net_hybrid", "key 'lrnn.attention.window' is 0; expected 1 to 9223372036854775807",
            window_zero },
    { "delta_net_hybrid", "key 'lrnn.rope_theta' is 0; expected 1 to 1e+12", theta_zero },

    { "delta_net_neg", "tensor blk.1.attn_v.weight is missing", tensor_missing },
    { "delta_net_neg", "found 1 unknown tensor: 'blk.0.attn_o.weight'", tensor_extra },
    { "delta_net_neg", "found 2 unknown tensors: 'x', 'blk.2.attn_norm.weight'", tensor_two_extra },
    { "delta_net_neg", "tensor blk.0.attn_q.weight has shape [16, 32]; expected [32, 16]",
            tensor_transposed },
    { "delta_net_neg", "tensor blk.0.attn_q.weight has shape [32, 16, 2]; expected [32, 16]",
            tensor_3d },
    { "delta_net_neg", "tensor token_embd.weight has shape [31, 48]; expected [32, any]",
            embedding_width },
    { "delta_net_neg", "tensor output.weight has shape [32, 47]; expected [32, 48]", output_rows },
    { "delta_net_neg", "tensor blk.0.attn_norm.weight has type f16; expected f32", norm_f16 },
    { "gated_deltanet_neg", "tensor blk.0.ssm_a has type f16; expected f32", a_f16 },
    { "delta_net_neg", "tensor blk.0.ssm_conv1d_q.weight has type f16; expected f32", conv_f16 },
    { "delta_net_neg",
            "tensor blk.0.attn_q.weight has type i32; expected f32, f16, bf16, q8_0 or another "
            "type that ggml multiplies",
            matrix_i32 },
    { "delta_net_neg",
            "tensor blk.0.attn_q.weight has type f64; expected f32, f16, bf16, q8_0 or another "
            "type that ggml multiplies",
            matrix_f64 },
    { "delta_net_neg",
            "tensor token_embd.weight has type i32; expected f32, f16, bf16, q8_0 or another type "
            "that ggml multiplies",
            embedding_i32 },
    { "mamba", "tensor blk.0.ssm_in.weight has 65 rows; expected an even number", ssm_in_odd },

    { "delta_net_neg", "tensor output_norm.weight has nan as element 31; expected finite numbers",
            norm_nan },
    { "gated_deltanet_neg",
            "tensor blk.1.ssm_a has -inf as element 1; expected finite numbers, none above 0",
            a_inf },
    { "gated_deltanet_neg",
            "tensor blk.0.ssm_a has 0.25 as element 0; expected finite numbers, none above 0",
            a_positive },
    { "kda", "tensor blk.0.ssm_a has 0.25 as element 0; expected finite numbers, none above 0",
            a_positive },
    { "mamba", "tensor blk.0.ssm_a has 0.001 as element 5; expected finite numbers, none above 0",
            a_mamba_positive },
    { "mamba2", "tensor blk.0.ssm_a has 0.25 as element 0; expected finite numbers, none above 0",
            a_positive },
    { "hgrn2",
            "tensor blk.1.ssm_lower_bound.weight has 1.5 as element 2; expected finite numbers "
            "from 0 to 1",
            bound_above },
    { "mamba2", "tensor blk.0.ssm_dt.bias has inf as element 0; expected finite numbers",
            dt_bias_inf },
    { "gated_deltanet_neg",
            "tensor blk.0.ssm_alpha.weight has nan as element 63; expected finite numbers",
            gate_nan },
    { "delta_net_neg", "tensor blk.0.ssm_beta.weight has nan as element 0; expected finite numbers",
            beta_nan },
    { "delta_net_neg",
            "tensor blk.1.ssm_conv1d_k.weight has nan as element 7; expected finite numbers",
            conv_nan },
    { "rwkv7",
            "tensor blk.0.time_mix_lerp_fused.weight has nan as element 3; expected finite numbers",
            lerp_nan },
    { "rwkv6", "tensor blk.0.time_mix_decay.weight has nan as element 3; expected finite numbers",
            decay_nan },
    { "xlstm", "tensor blk.0.ssm_igate.bias has nan as element 0; expected finite numbers",
            igate_nan },

    { "delta_net_neg",
            "tokenizer: tokenizer.ggml.model is 'bert?'; expected llama, gpt2, rwkv, lrnn-bytes "
            "or lrnn-symbols",
            tokenizer_odd },
    { "delta_net_neg", "key 'tokenizer.ggml.model' is of type u32; expected string",
            tokenizer_int },
    { "delta_net_neg", "tokenizer: tokenizer.ggml.tokens has 0 tokens; expected 1 to 16777216",
            tokens_missing },
    { "delta_net_neg", "tokenizer.ggml.tokens has 256 tokens; token_embd.weight has 48 rows",
            tokens_many },
    { "delta_net_neg",
            "tokenizer: tokenizer.ggml.tokens has 48 tokens; expected at least the 256 bytes",
            tokens_few },
    { "delta_net_neg",
            "key 'tokenizer.ggml.tokens' is an array of u32; expected an array of string",
            tokens_numbers },
    { "delta_net_neg",
            "key 'tokenizer.ggml.token_type' is an array of f32; expected an array of integers",
            types_float },
    { "delta_net_neg",
            "tokenizer: tokenizer.ggml.token_type has 2 numbers; expected 48, one per token",
            types_short },
    { "delta_net_neg", "key 'tokenizer.ggml.token_type' has element 1 = 256; expected 0 to 255",
            types_high },
    { "delta_net_neg", "key 'tokenizer.ggml.scores' has element 1 = nan; expected -1e+30 to 1e+30",
            scores_nan },
    { "delta_net_neg",
            "tokenizer: tokenizer.ggml.eos_token_id is 48; expected a token from 0 to 47",
            eos_high },
    { "delta_net_neg", "key 'tokenizer.ggml.eos_token_id' is 4294967295; expected 0 to 2147483647",
            eos_u32_max },
    { "delta_net_neg", "key 'tokenizer.ggml.bos_token_id' is -1; expected 0 to 2147483647",
            bos_negative },
    { "delta_net_neg", "key 'tokenizer.ggml.add_bos_token' is of type u32; expected bool",
            add_bos_int },
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
    r->change(&e);
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
// write, and layers of llama.cpp that we do not use.
static void type_iq4_nl(struct model_edit * e) {
    model_edit_convert(e, "blk.0.attn_qkv.weight", GGML_TYPE_IQ4_NL);
}
static void type_q5_1(struct model_edit * e) {
    model_edit_convert(e, "blk.3.attn_q.weight", GGML_TYPE_Q5_1);
}
static void type_mxfp4(struct model_edit * e) {
    model_edit_convert(e, "blk.1.ssm_beta.weight", GGML_TYPE_MXFP4);
}

static void check_accepted(struct test * t, const struct golden_list * list, const char * path,
        void (*change)(struct model_edit * e)) {
    const struct golden * g = golden_find(list, "qwen35");
    struct model_edit     e;
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    if (!test_check(t, model_edit_open(&e, g->path), "cannot read %s", g->path)) {
        return;
    }
    change(&e);
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
    struct lrnn_error  err;
    const char *       folder = argc == 2 ? argv[1] : NULL;
    if (!test_check(&t, golden_list_load(&list, &err), "%s", err.text)) {
        return test_end(&t, "model-load");
    }
    if (argc == 3) {
        write_seeds(&list, argv[2]);
        golden_list_free(&list);
        return test_end(&t, "model-load, seeds");
    }
    char path[1024] = "test-model-load.gguf"; // in the build directory
    for (int i = 0; i < N_REJECTIONS; ++i) {
        if (folder != NULL) {
            snprintf(path, sizeof(path), "%s/%03d.gguf", folder, i);
        }
        check_rejection(&t, &list, &REJECTIONS[i], path);
    }
    if (folder == NULL) {
        check_unchanged(&t, &list, path);
        check_accepted(&t, &list, path, qwen35_more);
        check_accepted(&t, &list, path, type_iq4_nl);
        check_accepted(&t, &list, path, type_q5_1);
        check_accepted(&t, &list, path, type_mxfp4);
        remove(path);
    }
    golden_list_free(&list);
    return test_end(&t, "model-load");
}
