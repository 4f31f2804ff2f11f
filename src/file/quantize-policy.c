#include "file/quantize-policy.h"

#include "base/error.h"
#include "lrnn.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- Types --------------------------------------------------------------------------------------

// The one list of quantization types. Help texts, error messages and the report read it through
// lrnn_quantize_type.
static const struct type {
    const char *   name;
    enum ggml_type type;
    uint32_t       file_type; // enum llama_ftype of llama.cpp
    enum ggml_type next;      // used if the rows do not fit
} TYPES[] = {
    { "Q8_0", GGML_TYPE_Q8_0, 7, GGML_TYPE_F16 },
    { "Q6_K", GGML_TYPE_Q6_K, 18, GGML_TYPE_Q8_0 },
    { "Q5_K", GGML_TYPE_Q5_K, 16, GGML_TYPE_Q5_1 },
    { "Q5_1", GGML_TYPE_Q5_1, 9, GGML_TYPE_F16 },
    { "Q5_0", GGML_TYPE_Q5_0, 8, GGML_TYPE_F16 },
    { "Q4_K", GGML_TYPE_Q4_K, 14, GGML_TYPE_Q5_0 },
    { "Q4_0", GGML_TYPE_Q4_0, 2, GGML_TYPE_F16 },
    { "F16", GGML_TYPE_F16, 1, GGML_TYPE_F16 },
    { "BF16", GGML_TYPE_BF16, 32, GGML_TYPE_BF16 },
    { "F32", GGML_TYPE_F32, 0, GGML_TYPE_F32 },
};

enum { N_TYPES = sizeof(TYPES) / sizeof(TYPES[0]) };

bool quantize_type_find(const char * name, enum ggml_type * type) {
    for (int i = 0; i < N_TYPES; ++i) {
        if (strcasecmp(name, TYPES[i].name) == 0) {
            *type = TYPES[i].type;
            return true;
        }
    }
    return false;
}

// llama.cpp mixes types: Q4_K_M is mostly Q4_K. We have the types, and none below four bits.
const char * quantize_type_nearest(const char * name) {
    const char * digits = strpbrk(name, "0123456789");
    if (digits == NULL || strchr("QqIi", name[0]) == NULL) {
        return NULL;
    }
    switch (digits[0]) {
        case '5': return "Q5_K";
        case '6': return "Q6_K";
        case '8': return "Q8_0";
        default: return "Q4_K";
    }
}

const char * lrnn_quantize_type(int32_t i) {
    return i >= 0 && i < N_TYPES ? TYPES[i].name : NULL;
}

const char * quantize_type_names(char * text, size_t size) {
    size_t n = 0;
    for (int i = 0; i < N_TYPES && n < size; ++i) {
        const char * before = i == 0 ? "" : i + 1 < N_TYPES ? ", " : " or ";
        n += (size_t) snprintf(text + n, size - n, "%s%s", before, TYPES[i].name);
    }
    return text;
}

static const struct type * find(enum ggml_type type) {
    for (int i = 0; i < N_TYPES; ++i) {
        if (TYPES[i].type == type) {
            return &TYPES[i];
        }
    }
    return NULL;
}

const char * quantize_type_name(enum ggml_type type) {
    const struct type * t = find(type);
    return t != NULL ? t->name : ggml_type_name(type);
}

uint32_t quantize_file_type(enum ggml_type type) {
    const struct type * t = find(type);
    return t != NULL ? t->file_type : 0;
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

static bool contains(const char * const * list, size_t n, const char * stem, size_t size) {
    for (size_t i = 0; i < n; ++i) {
        if (strlen(list[i]) == size && memcmp(list[i], stem, size) == 0) {
            return true;
        }
    }
    return false;
}

enum quantize_role quantize_role_of(const char * name) {
    static const char end[] = ".weight";
    size_t            size = strlen(name);
    if (size < sizeof(end) || strcmp(name + size - (sizeof(end) - 1), end) != 0) {
        return QUANTIZE_VECTOR; // a bias, ssm_a, ssm_d
    }
    size -= sizeof(end) - 1;
    if (strncmp(name, "blk.", 4) == 0) {
        const char * stem = name + 4 + strspn(name + 4, "0123456789");
        if (stem > name + 4 && *stem == '.') {
            stem++;
            size -= (size_t) (stem - name);
            name = stem;
        }
    }
    return contains(MATRICES, sizeof(MATRICES) / sizeof(MATRICES[0]), name, size) ? QUANTIZE_MATRIX
           : contains(RECURRENT, sizeof(RECURRENT) / sizeof(RECURRENT[0]), name, size)
                   ? QUANTIZE_RECURRENT
                   : QUANTIZE_VECTOR;
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
    const char *    sign = strrchr(text, '='); // the last one: the expression may contain others
    struct override o = { 0 };
    if (sign == NULL || sign == text || !quantize_type_find(sign + 1, &o.type)) {
        char names[128];
        return error_bad_input(err, "'%s' is not REGEX=TYPE with TYPE %s", text,
                quantize_type_names(names, sizeof(names)));
    }
    struct override * more = realloc(overrides->list, (size_t) (overrides->n + 1) * sizeof(*more));
    if (more != NULL) {
        overrides->list = more;
        o.text = strdup(text);
    }
    if (more == NULL || o.text == NULL) {
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

struct quantize_choice quantize_choose(struct quantize_overrides * overrides, const char * name,
        enum ggml_type from, int64_t n_per_row, enum ggml_type wanted) {
    const enum quantize_role role = quantize_role_of(name);
    struct quantize_choice   choice = { .wanted = role == QUANTIZE_MATRIX ? wanted : from };

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
    choice.to = choice.wanted == from ? from : fitting(choice.wanted, n_per_row);
    return choice;
}
