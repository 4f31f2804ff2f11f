#include "file/quantize-policy.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/slice.h"
#include "lrnn.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- Types --------------------------------------------------------------------------------------

// A mix of llama.cpp: more bits for the output (always Q6_K), and for the values of attention and
// the last matrix of the feed-forward part, most of all in some layers.
struct quantize_mix {
    bool           spread;      // some layers: at both ends, and every third; false: the first ones
    enum ggml_type some;        // values and last matrices in these layers
    enum ggml_type others;      // and in the other layers
    enum ggml_type attn_output; // the output projection of attention
};

static const struct quantize_mix Q5_K_M = { true, GGML_TYPE_Q6_K, GGML_TYPE_Q5_K, GGML_TYPE_Q5_K };
static const struct quantize_mix Q4_K_M = { true, GGML_TYPE_Q6_K, GGML_TYPE_Q4_K, GGML_TYPE_Q4_K };
static const struct quantize_mix Q3_K_M = { false, GGML_TYPE_Q5_K, GGML_TYPE_Q4_K, GGML_TYPE_Q4_K };

// The one list of quantization types. Help texts, error messages and the report read it through
// lrnn_quantize_type.
static const struct quantize_type TYPES[] = {
    { "Q8_0", GGML_TYPE_Q8_0, 7, GGML_TYPE_F16, NULL },
    { "Q6_K", GGML_TYPE_Q6_K, 18, GGML_TYPE_Q8_0, NULL },
    { "Q5_K_M", GGML_TYPE_Q5_K, 17, GGML_TYPE_Q5_1, &Q5_K_M },
    { "Q5_K", GGML_TYPE_Q5_K, 16, GGML_TYPE_Q5_1, NULL },
    { "Q5_1", GGML_TYPE_Q5_1, 9, GGML_TYPE_F16, NULL },
    { "Q5_0", GGML_TYPE_Q5_0, 8, GGML_TYPE_F16, NULL },
    { "Q4_K_M", GGML_TYPE_Q4_K, 15, GGML_TYPE_Q5_0, &Q4_K_M },
    { "Q4_K", GGML_TYPE_Q4_K, 14, GGML_TYPE_Q5_0, NULL },
    { "Q4_0", GGML_TYPE_Q4_0, 2, GGML_TYPE_F16, NULL },
    { "Q3_K_M", GGML_TYPE_Q3_K, 12, GGML_TYPE_Q4_0, &Q3_K_M },
    { "Q3_K", GGML_TYPE_Q3_K, 11, GGML_TYPE_Q4_0, NULL },
    { "F16", GGML_TYPE_F16, 1, GGML_TYPE_F16, NULL },
    { "BF16", GGML_TYPE_BF16, 32, GGML_TYPE_BF16, NULL },
    { "F32", GGML_TYPE_F32, 0, GGML_TYPE_F32, NULL },
};

enum { N_TYPES = sizeof(TYPES) / sizeof(TYPES[0]) };

const struct quantize_type * quantize_type_find(const char * name) {
    for (int i = 0; i < N_TYPES; ++i) {
        if (strcasecmp(name, TYPES[i].name) == 0) {
            return &TYPES[i];
        }
    }
    return NULL;
}

// llama.cpp has more types and mixes. We have none below three bits.
const char * quantize_type_nearest(const char * name) {
    const char * digits = strpbrk(name, "0123456789");
    if (digits == NULL || strchr("QqIi", name[0]) == NULL) {
        return NULL;
    }
    switch (digits[0]) {
        case '4': return "Q4_K_M";
        case '5': return "Q5_K_M";
        case '6': return "Q6_K";
        case '8': return "Q8_0";
        default: return "Q3_K_M";
    }
}

const char * lrnn_quantize_type(int32_t i) {
    return i >= 0 && i < N_TYPES ? TYPES[i].name : NULL;
}

const char * quantize_type_names(char * text, size_t size, bool with_mixes) {
    size_t n = 0;
    for (int i = 0; i < N_TYPES && n < size; ++i) {
        const char * before = i == 0 ? "" : i + 1 < N_TYPES ? ", " : " or ";
        if (with_mixes || TYPES[i].mix == NULL) {
            n += (size_t) snprintf(text + n, size - n, "%s%s", before, TYPES[i].name);
        }
    }
    return text;
}

static const struct quantize_type * find(enum ggml_type type) {
    for (int i = 0; i < N_TYPES; ++i) {
        if (TYPES[i].type == type && TYPES[i].mix == NULL) {
            return &TYPES[i];
        }
    }
    return NULL;
}

const char * quantize_type_name(enum ggml_type type) {
    const struct quantize_type * t = find(type);
    return t != NULL ? t->name : ggml_type_name(type);
}

// The type itself, or the next one whose blocks make up a row.
static enum ggml_type fitting(enum ggml_type type, int64_t n_per_row) {
    while (n_per_row % ggml_blck_size(type) != 0) {
        type = find(type)->next; // ends at F16: its blocks are single values
    }
    return type;
}

// ---- Roles --------------------------------------------------------------------------------------

// names without "blk.N." and ".weight"
static const char * const MATRICES[] = {
#include "quantize-matrices.inc"
};

// Also weights of matrix products, but their results become part of the transition: β, gates and
// decays, Δ with B and C, the factors of RWKV's low-rank corrections.
static const char * const RECURRENT[] = { "ssm_beta", "ssm_alpha", "ssm_ba", "ssm_f", "ssm_f_a",
    "ssm_f_b", "ssm_igate", "ssm_fgate", "ssm_x", "ssm_dt", "time_mix_w1", "time_mix_w2",
    "time_mix_decay_w1", "time_mix_decay_w2", "time_mix_a1", "time_mix_a2", "time_mix_v1",
    "time_mix_v2", "time_mix_g1", "time_mix_g2" };

static bool contains(const char * const * list, size_t n, struct slice stem) {
    for (size_t i = 0; i < n; ++i) {
        if (slice_is(stem, list[i])) {
            return true;
        }
    }
    return false;
}

// The name without "blk.N." and ".weight", and N, or −1. Empty if the name does not end so: a bias,
// ssm_a, ssm_d.
static struct slice stem_of(const char * name, int * layer) {
    static const char end[] = ".weight";
    size_t            size = strlen(name);
    *layer = -1;
    if (size < sizeof(end) || strcmp(name + size - (sizeof(end) - 1), end) != 0) {
        return (struct slice) { "", 0 };
    }
    size -= sizeof(end) - 1;
    if (strncmp(name, "blk.", 4) == 0) {
        const char * stem = name + 4 + strspn(name + 4, "0123456789");
        if (stem > name + 4 && *stem == '.') {
            *layer = atoi(name + 4);
            stem++;
            size -= (size_t) (stem - name);
            name = stem;
        }
    }
    return (struct slice) { name, size };
}

enum quantize_role quantize_role_of(const char * name) {
    int                layer;
    const struct slice stem = stem_of(name, &layer);
    return contains(MATRICES, sizeof(MATRICES) / sizeof(MATRICES[0]), stem) ? QUANTIZE_MATRIX
           : contains(RECURRENT, sizeof(RECURRENT) / sizeof(RECURRENT[0]), stem)
                   ? QUANTIZE_RECURRENT
                   : QUANTIZE_VECTOR;
}

// ---- Mixes --------------------------------------------------------------------------------------

enum part { PART_OTHER, PART_OUTPUT, PART_VALUE, PART_KEY, PART_DOWN, PART_ATTN_OUTPUT };

static enum part part_of(const struct model_file * file, struct slice stem) {
    static const char down[] = "ffn_down"; // also of experts
    if (slice_is(stem, "output") ||
            (slice_is(stem, "token_embd") &&
                    model_file_find_tensor(file, "output.weight") == NULL)) {
        return PART_OUTPUT;
    }
    return slice_is(stem, "attn_v") || slice_is(stem, "attn_qkv") ? PART_VALUE
           : slice_is(stem, "attn_k")                             ? PART_KEY
           : slice_is(stem, "attn_output")                        ? PART_ATTN_OUTPUT
           : stem.size >= sizeof(down) - 1 && memcmp(stem.data, down, sizeof(down) - 1) == 0
                   ? PART_DOWN
                   : PART_OTHER;
}

// The type of a matrix in a mix, as llama.cpp's quantizer chooses it.
static enum ggml_type mixed(const struct quantize_type * wanted, const struct model_file * file,
        const struct model_tensor * tensor) {
    const struct quantize_mix * mix = wanted->mix;
    int                         layer;
    const enum part             part = part_of(file, stem_of(tensor->name, &layer));
    if (part == PART_OTHER || part == PART_OUTPUT) {
        return part == PART_OUTPUT ? GGML_TYPE_Q6_K : wanted->type;
    }
    // tensors of the same part: before this one, layer by layer, and all
    int     before = 0, all = 0, n_layers = 0;
    int64_t n_experts = 0;
    for (size_t i = 0; i < model_file_n_tensors(file); ++i) {
        const struct model_tensor * other = model_file_tensor(file, i);
        int                         at;
        const struct slice          stem = stem_of(other->name, &at);
        n_layers = at >= n_layers ? at + 1 : n_layers;
        n_experts = slice_is(stem, "ffn_down_exps") ? other->ne[2] : n_experts;
        if (part_of(file, stem) == part) {
            before += at < layer || (at == layer && strcmp(other->name, tensor->name) < 0);
            all++;
        }
    }
    const bool is_down = part == PART_DOWN;
    const int  i = is_down && n_experts > 1 ? layer : before;
    const int  n = is_down ? n_layers : all;
    const bool is_some = mix->spread ? i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
                                     : i < (is_down ? n / 16 : 2);
    if (n_experts == 8 && !is_down) { // attention is a small part of such a model
        return part == PART_ATTN_OUTPUT ? GGML_TYPE_Q5_K : GGML_TYPE_Q8_0;
    }
    switch (part) {
        case PART_KEY: return wanted->type;
        case PART_ATTN_OUTPUT: return mix->attn_output;
        default: return is_some ? mix->some : mix->others;
    }
}

// ---- Overrides ----------------------------------------------------------------------------------

struct override {
    char *         text;
    regex_t        regex;
    enum ggml_type type;
    bool           used;
};

struct quantize_overrides {
    struct override * list;
    size_t            capacity;
    int               n;
};

struct quantize_overrides * quantize_overrides_new(void) {
    return calloc(1, sizeof(struct quantize_overrides));
}

void quantize_overrides_free(struct quantize_overrides * overrides) {
    for (int i = 0; overrides != NULL && i < overrides->n; ++i) {
        regfree(&overrides->list[i].regex);
        free(overrides->list[i].text);
    }
    if (overrides != NULL) {
        free(overrides->list);
    }
    free(overrides);
}

bool quantize_overrides_add(
        struct quantize_overrides * overrides, const char * text, struct lrnn_error * err) {
    const char * sign = strrchr(text, '='); // the last one: the expression may contain others
    const struct quantize_type * type = sign != NULL ? quantize_type_find(sign + 1) : NULL;
    if (sign == text || type == NULL || type->mix != NULL) {
        char names[128];
        return error_bad_input(err, "'%s' is not REGEX=TYPE with TYPE %s", text,
                quantize_type_names(names, sizeof(names), false));
    }
    struct override o = { .type = type->type, .text = strdup(text) };
    if (o.text == NULL || !array_grow(&overrides->list, &overrides->capacity,
                                  (size_t) overrides->n + 1, sizeof(*overrides->list))) {
        free(o.text);
        return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory");
    }
    o.text[sign - text] = '\0';
    const int code = regcomp(&o.regex, o.text, REG_EXTENDED | REG_NOSUB);
    if (code != 0) {
        char why[256];
        regerror(code, &o.regex, why, sizeof(why));
        error_bad_input(err, "'%s' is not a valid regular expression: %s", o.text, why);
        free(o.text);
        return false;
    }
    overrides->list[overrides->n++] = o;
    return true;
}

const char * quantize_overrides_unused(const struct quantize_overrides * overrides) {
    for (int i = 0; i < overrides->n; ++i) {
        if (!overrides->list[i].used) {
            return overrides->list[i].text;
        }
    }
    return NULL;
}

struct quantize_choice quantize_choose(struct quantize_overrides * overrides,
        const struct model_file * file, const struct model_tensor * tensor,
        const struct quantize_type * wanted) {
    const char * const       name = tensor->name;
    const enum ggml_type     from = tensor->type;
    const enum quantize_role role = quantize_role_of(name);
    struct quantize_choice   choice = { .wanted = role != QUANTIZE_MATRIX ? from
                                                  : wanted->mix == NULL
                                                          ? wanted->type
                                                          : mixed(wanted, file, tensor) };

    for (int i = 0; overrides != NULL && i < overrides->n && role != QUANTIZE_VECTOR; ++i) {
        struct override * o = &overrides->list[i];
        if (regexec(&o->regex, name, 0, NULL, 0) == 0) {
            o->used = true;
            choice.wanted = o->type;
            choice.recurrent =
                    role == QUANTIZE_RECURRENT && o->type != GGML_TYPE_F32 && o->type != from;
            break;
        }
    }
    choice.to = choice.wanted == from ? from : fitting(choice.wanted, tensor->ne[0]);
    return choice;
}
