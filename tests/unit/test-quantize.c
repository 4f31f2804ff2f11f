// Quantized files: every tensor has the type and the error that the plan states, and everything
// else is kept.
//
// The test computes the error from both files with ggml's to_float, and checks each value against
// the bound that follows from the definition of its type.

#include "base/error.h"
#include "base/read-file.h"
#include "file/quantize.h"
#include "ggml.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/model-edit.h"
#include "kit/nmse.h"
#include "kit/rng.h"
#include "lrnn.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

// in a folder of this process
static const char IN[] = "in.gguf";
static const char OUT[] = "out.gguf";

//
// Files
//

// Removes files, including those that an earlier run left.
static void empty_folder(void) {
    DIR * d = opendir(".");
    for (struct dirent * e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') {
            unlink(e->d_name);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

static int count_files(void) {
    int   n = 0;
    DIR * d = opendir(".");
    for (struct dirent * e; d != NULL && (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

// Rows of 256, of 96 (fit blocks of 32, not of 256) and of 40 (fit neither); a matrix with three
// dimensions; tensors that must not change.
static const struct {
    const char * name;
    int64_t      ne[3];
    bool         is_matrix; // quantized by the policy
} MADE[] = {
    { "token_embd.weight", { 256, 40, 1 }, true }, { "output_norm.weight", { 256, 1, 1 }, false },
    { "blk.0.attn_q.weight", { 256, 33, 1 }, true },
    { "blk.0.ffn_down.weight", { 96, 17, 1 }, true }, { "blk.0.ffn_up.weight", { 40, 9, 1 }, true },
    { "blk.0.ssm_beta.weight", { 256, 4, 1 }, false },
    { "blk.0.ssm_conv1d_q.weight", { 4, 64, 1 }, false }, { "blk.0.ssm_a", { 4, 1, 1 }, false },
    { "blk.0.time_mix_w2.weight", { 32, 6, 5 }, false },
    { "blk.12.attn_output.weight", { 256, 300, 1 }, true }, // several pieces of work
};

enum { N_MADE = sizeof(MADE) / sizeof(MADE[0]) };

static void make_file(const char * path, int i_spoiled, float spoiled) {
    struct test_rng       rng = { 7 };
    struct ggml_context * ctx = ggml_init((struct ggml_init_params) { .mem_size = 4 << 20 });
    struct gguf_context * gguf = gguf_init_empty();
    const char *          words[] = { "a", "", "c" };

    gguf_set_val_str(gguf, "general.architecture", "lrnn");
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", words, 3);
    gguf_set_arr_data(
            gguf, "lrnn.numbers", GGUF_TYPE_FLOAT32, (const float[3]) { 1.0f, -2.0f, 0.5f }, 3);
    gguf_set_val_bool(gguf, "lrnn.flag", true);
    gguf_set_val_u32(gguf, "general.file_type", 0);
    for (int i = 0; i < N_MADE; ++i) {
        const int            n_dims = MADE[i].ne[2] > 1 ? 3 : MADE[i].ne[1] > 1 ? 2 : 1;
        struct ggml_tensor * x = ggml_new_tensor(ctx, GGML_TYPE_F32, n_dims, MADE[i].ne);
        ggml_set_name(x, MADE[i].name);
        for (int64_t j = 0; j < ggml_nelements(x); ++j) {
            ((float *) x->data)[j] = (float) (0.3 * test_normal(&rng));
        }
        if (i == i_spoiled) {
            ((float *) x->data)[ggml_nelements(x) - 1] = spoiled;
        }
        gguf_add_tensor(gguf, x);
    }
    gguf_write_to_file(gguf, path, false);
    gguf_free(gguf);
    ggml_free(ctx);
}

//
// One run of the quantizer
//

struct run {
    enum lrnn_error_kind status;
    struct quantize_plan plan;
    struct lrnn_error    err;
};

static bool stop_at_third(const struct lrnn_quantize_tensor * tensor, int64_t i, void * user) {
    (void) tensor;
    (void) user;
    return i < 2;
}

// Plans and runs. The caller frees the plan while the file is open.
static struct run run_file(const struct model_file * file, struct quantize_params params,
        const char * out, lrnn_quantize_done done) {
    struct run r = { 0 };
    if (quantize_plan_make(&r.plan, file, &params, &r.err)) {
        quantize_run(&r.plan, file, &params, out, done, NULL, &r.err);
    }
    r.status = r.err.kind;
    return r;
}

// The same on IN; returns only the status.
static enum lrnn_error_kind status_of(struct test * t, struct quantize_params params,
        const char * out, lrnn_quantize_done done, struct lrnn_error * err) {
    struct model_file * file = model_file_open(IN, err);
    if (!test_check(t, file != NULL, "%s", err->text)) {
        return LRNN_ERROR_SYSTEM;
    }
    struct run r = run_file(file, params, out, done);
    *err = r.err;
    quantize_plan_free(&r.plan);
    model_file_free(file);
    return r.status;
}

static struct quantize_overrides * overrides_of(struct test * t, const char * const * texts) {
    struct quantize_overrides * o = quantize_overrides_new();
    struct lrnn_error           err = { LRNN_ERROR_NONE, "" };
    for (int i = 0; texts[i] != NULL; ++i) {
        test_check(t, quantize_overrides_add(o, texts[i], &err), "%s", err.text);
    }
    return o;
}

//
// Bounds
//

static float * floats_of(const struct model_tensor * x, int64_t * n) {
    *n = x->ne[0] * x->ne[1] * x->ne[2] * x->ne[3];
    float * f = malloc((size_t) *n * sizeof(float));
    if (x->type == GGML_TYPE_F32) {
        memcpy(f, x->data, (size_t) *n * sizeof(float));
    } else {
        ggml_get_type_traits(x->type)->to_float(x->data, f, *n);
    }
    return f;
}

// The largest error of a value, relative to the largest value of its block: half a step, plus 2⁻¹¹
// because the scale is rounded to F16. Q4_0 and Q5_0 range from −8 to 7 and from −16 to 15 steps:
// on one side the error is a whole step. For F16 and BF16 it is relative to the value itself.
static double bound_of(enum ggml_type type) {
    const double scale = 0x1p-11;
    switch (type) {
        case GGML_TYPE_Q8_0: return 0.5 / 127 + scale;
        case GGML_TYPE_Q5_0: return 1.0 / 16 + scale;
        case GGML_TYPE_Q4_0: return 1.0 / 8 + scale;
        case GGML_TYPE_Q5_1:
            return 1.0 / 31 + 2 * scale; // half of (max − min)/31 ≤ 2 amax/31; two scales
        case GGML_TYPE_F16: return 0x1p-11;
        case GGML_TYPE_BF16: return 0x1p-8;
        default: return 0.0;
    }
}

// A bound for the relative RMS error of the K types on normal weights. A range of about ±3 σ in 15,
// 31 and 63 steps gives 6, 3 and 1.5 % (half a step / √3). Coarse scales add less than a third.
// Q3_K has half the steps of Q4_K.
static double rms_of(enum ggml_type type) {
    return type == GGML_TYPE_Q3_K   ? 0.16
           : type == GGML_TYPE_Q4_K ? 0.08
           : type == GGML_TYPE_Q5_K ? 0.04
           : type == GGML_TYPE_Q6_K ? 0.02
                                    : INFINITY;
}

static void check_tensor(struct test * t, const struct quantize_tensor * plan,
        const struct model_tensor * to, const char * what) {
    const struct model_tensor * from = plan->source;
    test_check(t,
            to->type == plan->choice.to && to->size == plan->bytes &&
                    memcmp(to->ne, from->ne, sizeof(to->ne)) == 0,
            "%s: %s is %s with %zu bytes; planned %s with %zu", what, to->name,
            ggml_type_name(to->type), to->size, ggml_type_name(plan->choice.to), plan->bytes);
    if (to->type == from->type) {
        test_check(t, plan->error == 0.0 && memcmp(to->data, from->data, to->size) == 0,
                "%s: %s should have been copied", what, to->name);
        return;
    }
    int64_t n;
    float * a = floats_of(from, &n);
    float * b = floats_of(to, &n);
    double  error2 = 0.0;
    double  sum2 = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        error2 += ((double) b[i] - (double) a[i]) * ((double) b[i] - (double) a[i]);
        sum2 += (double) a[i] * (double) a[i];
    }
    const double error = sqrt(error2 / sum2);
    test_check(t, fabs(plan->error - error) <= 1e-9 * error,
            "%s: %s has error %.12g; planned %.12g", what, to->name, error, plan->error);
    test_check(t, error <= rms_of(to->type), "%s: %s, %s, has error %g", what, to->name,
            ggml_type_name(to->type), error);

    const int64_t block = bound_of(to->type) > 0.0 ? ggml_blck_size(to->type) : 0;
    for (int64_t i = 0; block > 0 && i < n; i += block) {
        float max = 0.0f;
        for (int64_t j = i; j < i + block; ++j) {
            max = fmaxf(max, fabsf(a[j]));
        }
        for (int64_t j = i; j < i + block; ++j) {
            const double least = to->type == GGML_TYPE_F16 ? 0x1p-25 : 0.0; // subnormal F16
            if (!(fabs((double) b[j] - (double) a[j]) <=
                        bound_of(to->type) * (double) max * (1.0 + 1e-6) + least)) {
                test_check(t, false, "%s: %s, %s: %g became %g in a block up to %g", what, to->name,
                        ggml_type_name(to->type), (double) a[j], (double) b[j], (double) max);
                i = n;
                break;
            }
        }
    }
    free(a);
    free(b);
}

//
// Tests
//

// The type of a row of this length, for every type that a user can choose.
static enum ggml_type expected_type(enum ggml_type wanted, int64_t row) {
    const bool fits256 = row % 256 == 0;
    const bool fits32 = row % 32 == 0;
    switch (wanted) {
        case GGML_TYPE_Q3_K: return fits256 ? wanted : fits32 ? GGML_TYPE_Q4_0 : GGML_TYPE_F16;
        case GGML_TYPE_Q4_K: return fits256 ? wanted : fits32 ? GGML_TYPE_Q5_0 : GGML_TYPE_F16;
        case GGML_TYPE_Q5_K: return fits256 ? wanted : fits32 ? GGML_TYPE_Q5_1 : GGML_TYPE_F16;
        case GGML_TYPE_Q6_K: return fits256 ? wanted : fits32 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16: return wanted;
        default: return fits32 ? wanted : GGML_TYPE_F16;
    }
}

// The type of a tensor of MADE in a mix that is mostly of this type: 13 layers, no output.weight.
static enum ggml_type mixed_type(enum ggml_type type, const char * name) {
    const bool is_q3 = type == GGML_TYPE_Q3_K;
    return strcmp(name, "token_embd.weight") == 0       ? GGML_TYPE_Q6_K
           : strcmp(name, "blk.0.ffn_down.weight") == 0 ? is_q3 ? GGML_TYPE_Q4_K : GGML_TYPE_Q6_K
           : strcmp(name, "blk.12.attn_output.weight") == 0 ? is_q3 ? GGML_TYPE_Q4_K : type
                                                            : type;
}

// Field by field: padding bytes are undefined.
static bool same_plans(const struct quantize_plan * a, const struct quantize_plan * b) {
    bool same = a->n_tensors == b->n_tensors;
    for (size_t i = 0; same && i < a->n_tensors; ++i) {
        const struct quantize_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        same = x->source == y->source && x->choice.to == y->choice.to &&
               x->choice.wanted == y->choice.wanted && x->choice.recurrent == y->choice.recurrent &&
               x->importance == y->importance && x->bytes == y->bytes && x->error == y->error;
    }
    return same;
}

static void test_types(struct test * t) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    make_file(IN, -1, 0.0f);
    struct model_file * file = model_file_open(IN, &err);
    if (!test_check(t, file != NULL, "%s", err.text)) {
        return;
    }
    int          n_types = 0;
    const char * what;
    for (int i = 0; (what = lrnn_quantize_type(i)) != NULL; ++i) {
        const struct quantize_type * type = quantize_type_find(what);
        if (!test_check(t, type != NULL, "%s: not found", what) || type->type == GGML_TYPE_F32) {
            continue;
        }
        n_types++;
        struct run dry = run_file(
                file, (struct quantize_params) { .type = type, .n_threads = 1 }, NULL, NULL);
        struct run wet = run_file(
                file, (struct quantize_params) { .type = type, .n_threads = 5 }, OUT, NULL);
        test_check(t, dry.status == LRNN_ERROR_NONE && wet.status == LRNN_ERROR_NONE, "%s: %s%s",
                what, dry.err.text, wet.err.text);
        test_check(t, same_plans(&dry.plan, &wet.plan), "%s: the plan of a dry run differs", what);

        struct model_file * out = model_file_open(OUT, &err);
        if (test_check(t, out != NULL, "%s: %s", what, err.text)) {
            for (size_t j = 0; j < N_MADE; ++j) {
                const struct model_tensor * x = model_file_tensor(out, j);
                check_tensor(t, &wet.plan.tensors[j], x, what);
                const enum ggml_type wanted =
                        type->mix != NULL ? mixed_type(type->type, MADE[j].name) : type->type;
                const enum ggml_type expected =
                        MADE[j].is_matrix ? expected_type(wanted, MADE[j].ne[0]) : GGML_TYPE_F32;
                test_check(t, x->type == expected, "%s: %s is %s; expected %s", what, x->name,
                        ggml_type_name(x->type), ggml_type_name(expected));
            }

            // metadata: old keys are kept, new keys describe the quantization
            int64_t                  version = 0, file_type = -1;
            bool                     flag = false;
            struct slice             text = { "", 0 };
            const struct model_key * words = model_file_find_key(out, "tokenizer.ggml.tokens");
            const struct model_key * numbers = model_file_find_key(out, "lrnn.numbers");
            test_check(t,
                    words != NULL && words->n == 3 && slice_is(model_key_text(words, 0), "a") &&
                            model_key_text(words, 1).size == 0 &&
                            slice_is(model_key_text(words, 2), "c"),
                    "%s: lost the strings", what);
            test_check(t, numbers != NULL && numbers->n == 3 && model_key_float(numbers, 1) == -2.0,
                    "%s: lost the numbers", what);
            test_check(t, model_file_bool(out, "lrnn.flag", &flag, &err) == KEY_OK && flag,
                    "%s: lost the flag", what);
            test_check(t,
                    model_file_int(out, "general.quantization_version", 2, 2, &version, &err) ==
                            KEY_OK,
                    "%s: %s", what, err.text);
            test_check(t,
                    model_file_int(out, "general.file_type", 0, 99, &file_type, &err) == KEY_OK &&
                            file_type == type->file_type,
                    "%s: file type %d", what, (int) file_type);
            test_check(t,
                    model_file_text(out, "lrnn.quantize.type", &text, &err) == KEY_OK &&
                            slice_is(text, what),
                    "%s: lrnn.quantize.type does not state it", what);
            model_file_free(out);
        }
        // the output does not depend on the number of threads
        char       again[] = "again.gguf";
        struct run one = run_file(
                file, (struct quantize_params) { .type = type, .n_threads = 1 }, again, NULL);
        test_check(t, test_same_files(OUT, again),
                "%s: one thread and five threads write different files", what);
        unlink(again);
        quantize_plan_free(&one.plan);
        quantize_plan_free(&dry.plan);
        quantize_plan_free(&wet.plan);
    }
    test_check(t, n_types >= 9, "%d types besides F32; expected at least 9", n_types);
    model_file_free(file);
}

// The types that llama-quantize (of the package that ggml comes from) chose by layer, as the digit
// of Q3_K … Q6_K and Q8_0; '-': no such tensor. The first three files have the shape of
// Qwen3.5-0.8B, the others are mixtures of eight experts.
static const struct {
    const char * name;
    int64_t      n_experts;
    const char * value; // attn_qkv, or attn_v in the layers that have attn_k
    const char * key;
    const char * attn_output;
    const char * down;
} MIXES[] = {
    { "Q3_K_M", 0, "554444444444444444444444", "---3---3---3---3---3---3",
            "---4---4---4---4---4---4", "544444444444444444444444" },
    { "Q4_K_M", 0, "666446446446446446446666", "---4---4---4---4---4---4",
            "---4---4---4---4---4---4", "666446446446446446446666" },
    { "Q5_K_M", 0, "666556556556556556556666", "---5---5---5---5---5---5",
            "---5---5---5---5---5---5", "666556556556556556556666" },
    { "Q3_K_M", 8, "88", "-8", "-5", "44" },
    { "Q4_K_M", 8, "88", "-8", "-5", "46" },
    { "Q5_K_M", 8, "88", "-8", "-5", "56" },
};

// A file with a mixture's tensors of one row, the last layer first.
static void make_mix_file(size_t i) {
    struct ggml_context * ctx = ggml_init((struct ggml_init_params) { .mem_size = 4 << 20 });
    struct gguf_context * gguf = gguf_init_empty();
    gguf_set_val_str(gguf, "general.architecture", "lrnn");
    for (int layer = (int) strlen(MIXES[i].value) - 1; layer >= 0; --layer) {
        const bool         is_attention = MIXES[i].key[layer] != '-';
        const char * const stems[] = { is_attention ? "attn_v" : "attn_qkv", "attn_k",
            "attn_output", MIXES[i].n_experts > 0 ? "ffn_down_exps" : "ffn_down", "ffn_up" };
        for (int j = 0; j < 5; ++j) {
            const int64_t n = j >= 3 && MIXES[i].n_experts > 0 ? MIXES[i].n_experts : 1;
            if (is_attention || (j != 1 && j != 2)) {
                struct ggml_tensor * x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 256, 1, n);
                ggml_format_name(x, "blk.%d.%s.weight", layer, stems[j]);
                memset(x->data, 0, ggml_nbytes(x));
                gguf_add_tensor(gguf, x);
            }
        }
    }
    gguf_write_to_file(gguf, IN, false);
    gguf_free(gguf);
    ggml_free(ctx);
}

static void test_mixes(struct test * t) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    for (size_t i = 0; i < sizeof(MIXES) / sizeof(MIXES[0]); ++i) {
        make_mix_file(i);
        struct model_file *          file = model_file_open(IN, &err);
        const struct quantize_params params = { .type = quantize_type_find(MIXES[i].name) };
        struct quantize_plan         plan = { 0 };
        test_check(t, file != NULL && quantize_plan_make(&plan, file, &params, &err), "%s: %s",
                MIXES[i].name, err.text);
        for (size_t j = 0; j < plan.n_tensors; ++j) {
            const char * name = plan.tensors[j].source->name;
            const char * stem = strchr(name + 4, '.') + 1;
            const char   up[2] = { MIXES[i].name[1], '\0' };
            const char * digits = strncmp(stem, "attn_k", 6) == 0     ? MIXES[i].key
                                  : strncmp(stem, "attn_o", 6) == 0   ? MIXES[i].attn_output
                                  : strncmp(stem, "attn", 4) == 0     ? MIXES[i].value
                                  : strncmp(stem, "ffn_down", 8) == 0 ? MIXES[i].down
                                                                      : up;
            const char   expected = digits[digits == up ? 0 : atoi(name + 4)];
            const char * found = quantize_type_name(plan.tensors[j].choice.to);
            test_check(t, found[1] == expected, "%s: %s is %s; expected Q%c", MIXES[i].name, name,
                    found, expected);
        }
        quantize_plan_free(&plan);
        model_file_free(file);
    }
}

static void test_overrides(struct test * t) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    make_file(IN, -1, 0.0f);
    struct model_file *         file = model_file_open(IN, &err);
    struct quantize_overrides * o =
            overrides_of(t, (const char * const[]) { "^token_embd\\.weight$=F32",
                                    "blk\\.(0|7)\\.(attn_q|ssm_beta)=q8_0", "blk\\.0\\.=F16",
                                    "time_mix_w2=BF16", NULL });
    // the third also matches tensors of the second, and vectors, which stay; the fourth matches
    // only tensors of the third
    struct run r = run_file(file,
            (struct quantize_params) { .type = quantize_type_find("Q4_0"), .overrides = o }, NULL,
            NULL);
    test_check(t, r.status == LRNN_ERROR_BAD_INPUT && strstr(r.err.text, "'time_mix_w2'") != NULL,
            "an expression that applies to nothing: %s", r.err.text);
    quantize_plan_free(&r.plan);
    quantize_overrides_free(o);

    o = overrides_of(t, (const char * const[]) { "^token_embd\\.weight$=F32",
                                "blk\\.(0|7)\\.(attn_q|ssm_beta)=q8_0", "blk\\.0\\.=F16", NULL });
    r = run_file(file,
            (struct quantize_params) { .type = quantize_type_find("Q4_0"), .overrides = o }, OUT,
            NULL);
    test_check(t, r.status == LRNN_ERROR_NONE, "%s", r.err.text);
    const enum ggml_type expected[N_MADE] = { GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_Q8_0,
        GGML_TYPE_F16, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F16,
        GGML_TYPE_Q4_0 };
    for (int i = 0; i < N_MADE && r.status == LRNN_ERROR_NONE; ++i) {
        const bool recurrent = strstr(MADE[i].name, "ssm_beta") != NULL ||
                               strstr(MADE[i].name, "time_mix_w2") != NULL;
        test_check(t, r.plan.tensors[i].choice.to == expected[i], "%s becomes %s; expected %s",
                MADE[i].name, ggml_type_name(r.plan.tensors[i].choice.to),
                ggml_type_name(expected[i]));
        test_check(t, r.plan.tensors[i].choice.recurrent == recurrent, "%s: .recurrent is wrong",
                MADE[i].name);
    }
    quantize_plan_free(&r.plan);
    quantize_overrides_free(o);

    o = quantize_overrides_new();
    static const char * const BAD[] = { "attn_q", "=Q8_0", "attn_q=", "attn_q=Q9_9", "attn_(q=Q8_0",
        "[a=Q8_0" };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); ++i) {
        test_check(t, !quantize_overrides_add(o, BAD[i], &err), "'%s' was accepted", BAD[i]);
    }
    quantize_overrides_free(o);
    o = overrides_of(t, (const char * const[]) { "ssm_a=F16", NULL }); // not a matrix
    test_check(t,
            status_of(t,
                    (struct quantize_params) { .type = quantize_type_find("Q8_0"), .overrides = o },
                    OUT, NULL, &err) == LRNN_ERROR_BAD_INPUT,
            "a vector changed its type: %s", err.text);
    quantize_overrides_free(o);
    model_file_free(file);
}

// Quantized tensors are quantized again only if the user allows it. Tensors that already have their
// type are copied.
static void test_requantize(struct test * t) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    make_file(IN, -1, 0.0f);
    test_check(t,
            status_of(t, (struct quantize_params) { .type = quantize_type_find("Q8_0") }, OUT, NULL,
                    &err) == LRNN_ERROR_NONE,
            "%s", err.text);
    test_check(t, rename(OUT, IN) == 0, "rename: %s", strerror(errno));
    test_check(t,
            status_of(t, (struct quantize_params) { .type = quantize_type_find("Q4_0") }, OUT, NULL,
                    &err) == LRNN_ERROR_BAD_INPUT &&
                    strstr(err.text, "token_embd.weight") != NULL,
            "Q8_0 to Q4_0: %s", err.text);
    test_check(t,
            status_of(t,
                    (struct quantize_params) {
                            .type = quantize_type_find("Q4_0"), .allow_requantize = true },
                    OUT, NULL, &err) == LRNN_ERROR_NONE,
            "%s", err.text);

    struct model_file * in = model_file_open(IN, &err);
    struct run          r = run_file(
            in, (struct quantize_params) { .type = quantize_type_find("Q8_0") }, OUT, NULL);
    struct model_file * out = model_file_open(OUT, &err);
    if (test_check(t, r.status == LRNN_ERROR_NONE && out != NULL, "%s%s", r.err.text, err.text)) {
        for (size_t i = 0; i < N_MADE; ++i) {
            const struct model_tensor * a = model_file_tensor(in, i);
            const struct model_tensor * b = model_file_tensor(out, i);
            test_check(t,
                    a->type == b->type && a->size == b->size &&
                            memcmp(a->data, b->data, a->size) == 0,
                    "Q8_0 to Q8_0 changes %s", a->name);
        }
    }
    quantize_plan_free(&r.plan);
    model_file_free(out);
    model_file_free(in);

    // F16 as input, and an F16 tensor that the policy does not change
    make_file(IN, -1, 0.0f);
    struct quantize_overrides * o =
            overrides_of(t, (const char * const[]) { "ssm_beta=F16", NULL });
    test_check(t,
            status_of(t,
                    (struct quantize_params) { .type = quantize_type_find("F16"), .overrides = o },
                    OUT, NULL, &err) == LRNN_ERROR_NONE,
            "%s", err.text);
    quantize_overrides_free(o);
    test_check(t, rename(OUT, IN) == 0, "rename: %s", strerror(errno));
    in = model_file_open(IN, &err);
    r = run_file(in, (struct quantize_params) { .type = quantize_type_find("Q8_0") }, OUT, NULL);
    out = model_file_open(OUT, &err);
    if (test_check(t, r.status == LRNN_ERROR_NONE && out != NULL, "%s%s", r.err.text, err.text)) {
        for (size_t i = 0; i < N_MADE; ++i) {
            check_tensor(t, &r.plan.tensors[i], model_file_tensor(out, i), "from F16");
        }
        test_check(t, model_file_find_tensor(out, "blk.0.ssm_beta.weight")->type == GGML_TYPE_F16,
                "F16 to Q8_0 does not keep β");
    }
    quantize_plan_free(&r.plan);
    model_file_free(out);
    model_file_free(in);
}

// A failure leaves existing files unchanged and creates none.
static void test_failures(struct test * t) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    make_file(OUT, -1, 0.0f); // must survive
    static const char kept[] = "kept.gguf";
    make_file(kept, -1, 0.0f);

    static const struct {
        int                  tensor;
        float                value;
        const char *         type;
        lrnn_quantize_done   done;
        enum lrnn_error_kind status;
        const char *         word;
    } CASES[] = {
        { 2, NAN, "Q8_0", NULL, LRNN_ERROR_NOT_FINITE,
                "blk.0.attn_q.weight has values that are not finite" },
        { 9, INFINITY, "Q4_K", NULL, LRNN_ERROR_NOT_FINITE,
                "blk.12.attn_output.weight has values that are not finite" },
        { 0, 70000.0f, "F16", NULL, LRNN_ERROR_NOT_FINITE, "BF16" },
        { -1, 0.0f, "Q8_0", stop_at_third, LRNN_ERROR_CANCELLED, "3 of" },
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); ++i) {
        make_file(IN, CASES[i].tensor, CASES[i].value);
        const enum lrnn_error_kind status = status_of(t,
                (struct quantize_params) {
                        .type = quantize_type_find(CASES[i].type), .n_threads = 3 },
                OUT, CASES[i].done, &err);
        test_check(t, status == CASES[i].status && strstr(err.text, CASES[i].word) != NULL,
                "case %zu: %d, %s", i, (int) status, err.text);
        test_check(t, test_same_files(OUT, kept), "case %zu: the existing file changed", i);
        test_check(t, count_files() == 3, "case %zu: %d files in the folder; expected 3", i,
                count_files());
    }
    make_file(IN, 0, 70000.0f); // outside the range of F16, inside that of BF16
    test_check(t,
            status_of(t, (struct quantize_params) { .type = quantize_type_find("BF16") }, OUT, NULL,
                    &err) == LRNN_ERROR_NONE,
            "%s", err.text);
    make_file(IN, 1, NAN); // a tensor that is copied unread
    test_check(t,
            status_of(t, (struct quantize_params) { .type = quantize_type_find("Q8_0") }, OUT, NULL,
                    &err) == LRNN_ERROR_NONE,
            "%s", err.text);
    unlink(kept);
}

//
// Importance
//

// Σ_j c_j Σ_i (w − w')², over the rows of one matrix
static double weighted_error(const struct model_tensor * from, const struct model_tensor * to,
        int64_t matrix, const double * c) {
    int64_t n;
    float * a = floats_of(from, &n);
    float * b = floats_of(to, &n);
    double  sum = 0.0;
    for (int64_t i = matrix * from->ne[1] * from->ne[0];
            i < (matrix + 1) * from->ne[1] * from->ne[0]; ++i) {
        sum += c[i % from->ne[0]] * ((double) b[i] - (double) a[i]) *
               ((double) b[i] - (double) a[i]);
    }
    free(a);
    free(b);
    return sum;
}

// Importance must reduce the weighted error, of every matrix by its own importance.
static void test_importance(struct test * t) {
    static const char * const NAMES[] = { "blk.12.attn_output.weight", "blk.0.time_mix_w2.weight" };
    static const char         path[] = "imatrix.gguf";
    struct lrnn_error         err = { LRNN_ERROR_NONE, "" };
    struct imatrix            m = { .n_windows = 3, .window_size = 5 };
    struct imatrix            back = { 0 };

    snprintf(m.dataset, sizeof(m.dataset), "a text");
    make_file(IN, -1, 0.0f);
    struct model_file * in = model_file_open(IN, &err);
    for (int i = 0; i < 2; ++i) {
        const struct model_tensor * x = model_file_find_tensor(in, NAMES[i]);
        for (int64_t matrix = 0; matrix < x->ne[2]; ++matrix) {
            float v[2][256] = { { 0 } };
            for (int64_t j = 0; j < x->ne[0]; ++j) {
                v[0][j] = (j + matrix) % 4 == 0 ? 30.0f : 0.5f; // different columns for each matrix
                v[1][j] = -v[0][j];
            }
            float rows[2 * 256];
            memcpy(rows, v[0], (size_t) x->ne[0] * sizeof(float));
            memcpy(rows + x->ne[0], v[1], (size_t) x->ne[0] * sizeof(float));
            test_check(t, imatrix_add(&m, NAMES[i], x->ne[0], x->ne[2], matrix, rows, 2, &err),
                    "%s", err.text);
        }
    }
    test_check(t, !imatrix_add(&m, NAMES[0], 7, 1, 0, (const float[7]) { 0 }, 1, &err),
            "an input of another length was accepted");

    // write and read
    test_check(t, imatrix_write(&m, path, &err) && imatrix_read(&back, path, &err), "%s", err.text);
    test_check(t,
            back.n_entries == 2 && back.n_windows == 3 && back.window_size == 5 &&
                    strcmp(back.dataset, "a text") == 0,
            "the header differs after reading");
    for (int i = 0; i < back.n_entries && back.n_entries == m.n_entries; ++i) {
        const struct imatrix_entry * a = &m.entries[i];
        const struct imatrix_entry * b = imatrix_find(&back, a->name);
        if (!test_check(t,
                    b != NULL && b->n_per_row == a->n_per_row && b->n_matrices == a->n_matrices,
                    "%s is missing", a->name)) {
            continue;
        }
        for (int64_t j = 0; j < a->n_per_row * a->n_matrices; ++j) {
            const double x =
                    (j % a->n_per_row + j / a->n_per_row) % 4 == 0 ? 1800.0 : 0.5; // 2·30², 2·0.5²
            test_check(t, a->sum2[j] == x && b->sum2[j] == x,
                    "%s: Σx² of column %d is %g, in the file %g; expected %g", a->name, (int) j,
                    a->sum2[j], b->sum2[j], x);
        }
        for (int64_t j = 0; j < a->n_matrices; ++j) {
            test_check(t, a->counts[j] == 2.0 && b->counts[j] == 2.0, "%s: %g inputs; expected 2",
                    a->name, a->counts[j]);
        }
    }

    static const char * const WITH[] = { "Q4_0", "Q5_0", "Q3_K", "Q4_K", "Q5_K", "Q6_K" };
    static const char         plain_path[] = "plain.gguf";
    for (size_t k = 0; k < sizeof(WITH) / sizeof(WITH[0]); ++k) {
        const char * const texts[] = { WITH[k][3] == '0' ? "time_mix_w2=Q4_0" : "time_mix_w2=Q5_0",
            NULL };
        struct quantize_overrides * o = overrides_of(t, texts);
        struct quantize_params      p = { .type = quantize_type_find(WITH[k]), .overrides = o };
        test_check(t, status_of(t, p, plain_path, NULL, &err) == LRNN_ERROR_NONE, "%s", err.text);
        p.imatrix = &back;
        p.imatrix_file = "imatrix.gguf";
        p.imatrix_sha256 = "00";
        test_check(t, status_of(t, p, OUT, NULL, &err) == LRNN_ERROR_NONE, "%s", err.text);
        struct model_file * plain = model_file_open(plain_path, &err);
        struct model_file * with = model_file_open(OUT, &err);
        for (int i = 0; i < 2 && plain != NULL && with != NULL; ++i) {
            const struct model_tensor * x = model_file_find_tensor(in, NAMES[i]);
            for (int64_t matrix = 0; matrix < x->ne[2]; ++matrix) {
                double c[256];
                for (int64_t j = 0; j < x->ne[0]; ++j) {
                    c[j] = (j + matrix) % 4 == 0 ? 900.0 : 0.25;
                }
                const double before =
                        weighted_error(x, model_file_find_tensor(plain, NAMES[i]), matrix, c);
                const double after =
                        weighted_error(x, model_file_find_tensor(with, NAMES[i]), matrix, c);
                test_check(t, after < 0.9 * before,
                        "%s, %s, matrix %d: the weighted error is %g with importance, %g without",
                        WITH[k], NAMES[i], (int) matrix, after, before);
            }
        }
        struct slice text = { "", 0 };
        test_check(t,
                with != NULL &&
                        model_file_text(with, "quantize.imatrix.file", &text, &err) == KEY_OK &&
                        slice_is(text, "imatrix.gguf"),
                "quantize.imatrix.file is wrong: %s", err.text);
        model_file_free(plain);
        model_file_free(with);
        quantize_overrides_free(o);
    }
    unlink(plain_path);
    imatrix_free(&back);

    // an importance matrix of another model; a file that is none
    m.entries[0].n_per_row = 128;
    test_check(t,
            status_of(t,
                    (struct quantize_params) { .type = quantize_type_find("Q4_K"), .imatrix = &m },
                    OUT, NULL, &err) == LRNN_ERROR_BAD_FILE,
            "an importance matrix of another shape was accepted: %s", err.text);
    m.entries[0].name[0] = 'x';
    test_check(t,
            status_of(t,
                    (struct quantize_params) { .type = quantize_type_find("Q4_K"), .imatrix = &m },
                    OUT, NULL, &err) == LRNN_ERROR_BAD_FILE,
            "an importance matrix without any of the tensors was accepted: %s", err.text);
    test_check(t, !imatrix_read(&back, IN, &err), "a model was accepted as an importance matrix");
    imatrix_free(&m);
    model_file_free(in);
    unlink(path);
}

int main(void) {
    struct test t = { 0 };
    char        folder[64];
    mkdir(test_own_path(folder, sizeof(folder), "test-quantize.work"), 0700);
    if (!test_check(&t, chdir(folder) == 0, "cannot enter %s", folder)) {
        return test_end(&t, "test-quantize");
    }
    empty_folder();
    test_types(&t);
    test_mixes(&t);
    test_overrides(&t);
    test_requantize(&t);
    test_failures(&t);
    test_importance(&t);
    unlink(IN);
    unlink(OUT);
    test_check(&t, chdir("..") == 0 && rmdir(folder) == 0, "%s is not empty", folder);
    return test_end(&t, "test-quantize");
}
