// Model files with tokenizers whose keys are changed: lengths, strings, scores, types, merges, ids
// and flags. The file around them is well formed, so that every change reaches the tokenizer. A
// file is rejected with a message, or its tokenizer encodes and decodes any text.
//
// An input is one byte that selects the tokenizer, then changes of 8 bytes each: kind of change,
// element (two bytes), detail, value (four bytes). Its bytes are also a text to encode.

#include "base/unicode.h"
#include "kit/gguf-bytes.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "kit/tokenizer-data.h"
#include "lrnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

enum { N_KINDS = 9, MAX_CHANGES = 6, MAX_MADE = 1 << 17, MAX_TEXTS = 6, SECONDS_MAX = 30 };

enum { MORE = 8, ROOM = MORE * MAX_CHANGES }; // elements that a change and all of them add

static const char * const KINDS[N_KINDS] = { "bytes", "gpt-2", "gpt-neox", "llama-bpe", "qwen2",
    "qwen35", "rwkv", "spm", "symbols" };

enum change {
    TOKEN_STRING,
    MERGE_STRING,
    TOKEN_TYPE,
    TOKEN_SCORE,
    COUNT_TOKENS,
    COUNT_TYPES,
    COUNT_SCORES,
    COUNT_MERGES,
    SPECIAL_ID,
    FLAG,
    MODEL_NAME,
    PRE_NAME,
    NORMALIZER_NAME,
    DROP_KEY,
    KEY_TYPE,
    CHANGES
};

enum key {
    KEY_MODEL,
    KEY_PRE,
    KEY_NORMALIZER,
    KEY_TOKENS,
    KEY_TYPES,
    KEY_SCORES,
    KEY_MERGES,
    KEY_IDS,
    KEY_FLAGS = KEY_IDS + 4,
    KEYS = KEY_FLAGS + 3
};

static const char * const NAMES[KEYS] = {
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "lrnn.tokenizer.normalizer",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix",
};

static const int64_t INTS[] = { 0, 1, 2, 3, 4, 5, 6, 7, 31, 32, 127, 128, 255, 256, 257, 4095, 4096,
    65535, 65536, 1 << 24, INT32_MAX, UINT32_MAX, INT64_MAX, -1, -2, INT32_MIN, INT64_MIN };

static const float FLOATS[] = { 0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 1e-45f, 1e30f, -1e30f, 3e38f,
    -3e38f, INFINITY, -INFINITY, NAN };

static const char * const WORDS[] = { "", "gpt2", "llama", "rwkv", "lrnn-bytes", "lrnn-symbols",
    "none", "no_vocab", "bert", "gpt-2", "gpt-neox", "mpt", "llama-bpe", "qwen2", "qwen35",
    "default", "nfc", "nfkc", "a\nb\x1b[31m" };

// Strings that are special for one of the kinds.
static const struct slice STRINGS[] = {
    { "", 0 },
    { " ", 1 },
    { "  ", 2 },
    { "\0", 1 },
    { "a\0b", 3 },
    { "\xff", 1 },
    { "\xe2\x96", 2 },
    { "\xe2\x96\x81", 3 },
    { "\xe2\x96\x81\xe2\x96\x81", 6 },
    { "\xed\xa0\x80", 3 },
    { "\xf4\x90\x80\x80", 4 },
    { "<0x00>", 6 },
    { "<0xFF>", 6 },
    { "<0xff>", 6 },
    { "<0xZZ>", 6 },
    { "\xc4\xa0", 2 }, // GPT-2's alphabet: a space
    { "\xc4\xa0 \xc4\xa0", 5 },
    { "a b", 3 },
    { "a  b", 4 },
    { "a b c", 5 },
    { " a", 2 },
    { "\\x", 2 }, // escapes of rwkv
    { "\\xff\\xfe", 8 },
    { "\\xg0", 4 },
    { "\\", 1 },
    { "<s>", 3 },
    { "\n", 1 },
};

#define N(array) (sizeof(array) / sizeof((array)[0]))

static struct tokenizer_data kinds[N_KINDS];
static struct bytes          files[N_KINDS]; // model files without tokenizer, with enough ids
static char                  path[64];       // in /dev/shm if it exists

static void require(bool ok, const char * what, const char * detail) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, detail);
        abort();
    }
}

static void remove_file(void) {
    unlink(path);
}

static void no_log(enum ggml_log_level level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

static void read_file(const char * name, struct bytes * b) {
    FILE * file = fopen(name, "rb");
    require(file != NULL, name, "cannot be read");
    uint8_t part[4096];
    for (size_t n; (n = fread(part, 1, sizeof(part), file)) > 0;) {
        put(b, part, n);
    }
    fclose(file);
}

// A model with at least n ids: the rows of its embedding and its output are repeated.
static void make_model(const char * from, int64_t n, struct bytes * file) {
    struct model_edit e;
    require(model_edit_open(&e, from), from, "cannot be read");
    gguf_remove_key(e.gguf, "tokenizer.ggml.model"); // "none"
    const char * const names[] = { "token_embd.weight", "output.weight" };
    for (size_t i = 0; i < N(names); ++i) {
        struct ggml_tensor * old = model_edit_find(&e, names[i]);
        if (old != NULL && old->ne[1] < n) {
            struct ggml_tensor * made = model_edit_put(
                    &e, names[i], GGML_TYPE_F32, 2, (const int64_t[2]) { old->ne[0], n });
            for (size_t k = 0; k < ggml_nbytes(made); ++k) {
                ((uint8_t *) made->data)[k] = ((const uint8_t *) old->data)[k % ggml_nbytes(old)];
            }
            gguf_set_val_u32(e.gguf, "lrnn.vocab_size", (uint32_t) n);
        }
    }
    require(model_edit_write(&e, path), path, "cannot be written");
    model_edit_close(&e);
    read_file(path, file);
}

static void prepare(void) {
    struct golden_list golden;
    struct lrnn_error  err;
    snprintf(path, sizeof(path), "%s/fuzz-tokenizer-model-%ld.gguf",
            access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long) getpid());
    atexit(remove_file);
    ggml_log_set(no_log, NULL);
    require(golden_list_load(&golden, &err), "golden models", err.text);
    const struct golden * model = golden_find(&golden, "delta_net_neg");
    for (int i = 0; i < N_KINDS; ++i) {
        static struct bytes data[N_KINDS]; // the definitions point into it
        char                name[1024];
        snprintf(name, sizeof(name), "%s/%s.bin", LRNN_TOKENIZER_DATA, KINDS[i]);
        read_file(name, &data[i]);
        require(tokenizer_data_read(&kinds[i], data[i].data, data[i].n), name, "wrong format");
        make_model(model->path, (int64_t) kinds[i].def.n_tokens + 4, &files[i]);
    }
    golden_list_free(&golden);
}

// ---- the keys of a tokenizer

struct keys {
    struct tokenizer_def def;
    struct slice *       tokens;
    struct slice *       merges;
    float *              scores;
    int64_t *            types;
    int64_t              ids[4];
    int                  flags[3];
    bool                 dropped[KEYS];
    uint32_t             as_type[KEYS]; // GGUF type to write it as; 0: its own
    char *               made;          // memory for new strings
    size_t               n_made;
};

static void * copy_of(const void * from, size_t n, size_t size) {
    void * copy = malloc((n + ROOM) * size);
    require(copy != NULL, "out of memory", "");
    memset(copy, 0, (n + ROOM) * size);
    if (from != NULL && n > 0) {
        memcpy(copy, from, n * size);
    }
    return copy;
}

static void keys_open(struct keys * k, const struct tokenizer_def * def) {
    *k = (struct keys) { .def = *def };
    k->tokens = copy_of(def->tokens, def->n_tokens, sizeof(*k->tokens));
    k->merges = copy_of(def->merges, def->n_merges, sizeof(*k->merges));
    k->scores = copy_of(def->scores, def->n_scores, sizeof(*k->scores));
    k->types = copy_of(NULL, def->n_types, sizeof(*k->types));
    for (size_t i = 0; i < def->n_types; ++i) {
        k->types[i] = def->types[i];
    }
    k->made = malloc(MAX_MADE);
    require(k->made != NULL, "out of memory", "");
    const int64_t ids[4] = { def->bos_id, def->eos_id, def->unknown_id, def->padding_id };
    const int     flags[3] = { def->add_bos, def->add_eos, def->add_space_prefix };
    for (int i = 0; i < 4; ++i) {
        k->ids[i] = ids[i];
        k->dropped[KEY_IDS + i] = ids[i] < 0;
    }
    for (int i = 0; i < 3; ++i) {
        k->flags[i] = flags[i];
        k->dropped[KEY_FLAGS + i] = flags[i] < 0;
    }
    k->dropped[KEY_PRE] = def->pre == NULL;
    k->dropped[KEY_NORMALIZER] = def->normalizer == NULL;
    k->dropped[KEY_TYPES] = def->n_types == 0;
    k->dropped[KEY_SCORES] = def->n_scores == 0;
    k->dropped[KEY_MERGES] = def->n_merges == 0;
}

static void keys_close(struct keys * k) {
    free(k->tokens);
    free(k->merges);
    free(k->scores);
    free(k->types);
    free(k->made);
}

// ---- changes

// Two strings, joined. An empty slice if there is no room.
static struct slice join(
        struct keys * k, struct slice a, const char * between, size_t n, struct slice b) {
    if (k->n_made + a.size + n + b.size > MAX_MADE) {
        return (struct slice) { "", 0 };
    }
    char * to = k->made + k->n_made;
    if (a.size > 0) {
        memcpy(to, a.data, a.size);
    }
    memcpy(to + a.size, between, n);
    if (b.size > 0) {
        memcpy(to + a.size + n, b.data, b.size);
    }
    k->n_made += a.size + n + b.size;
    return (struct slice) { to, a.size + n + b.size };
}

static struct slice repeat(struct keys * k, struct slice what, size_t times) {
    struct slice all = { k->made + k->n_made, 0 };
    for (size_t i = 0; i < times && k->n_made + what.size <= MAX_MADE; ++i) {
        if (what.size > 0) {
            memcpy(k->made + k->n_made, what.data, what.size);
        }
        k->n_made += what.size;
        all.size += what.size;
    }
    return all;
}

static struct slice some_token(const struct keys * k, uint32_t value) {
    return k->def.n_tokens > 0 ? k->tokens[value % k->def.n_tokens] : (struct slice) { "", 0 };
}

static struct slice change_string(
        struct keys * k, struct slice old, uint8_t detail, uint32_t value) {
    const struct slice other = some_token(k, value >> 8);
    switch (detail % 10) {
        case 0: return other;
        case 1: return STRINGS[value % N(STRINGS)];
        case 2: return (struct slice) { old.data, old.size > 0 ? value % old.size : 0 };
        case 3: return join(k, old, "", 0, other);
        case 4: return join(k, old, " ", 1, other);
        case 5: return join(k, STRINGS[value % N(STRINGS)], " ", 1, other);
        case 6: {
            const struct slice part = { (const char *) &value, 1 + detail / 10 % 4 };
            return join(k, part, "", 0, (struct slice) { "", 0 });
        }
        case 7: return repeat(k, old, 2 + value % 30);
        case 8: return repeat(k, other, value % 5000);
        default: { // a changed byte
            struct slice copy = join(k, old, "", 0, (struct slice) { "", 0 });
            if (copy.size > 0) {
                k->made[k->n_made - copy.size + value % copy.size] ^= (char) (1 << detail / 10 % 8);
            }
            return copy;
        }
    }
}

static size_t change_count(size_t n, size_t room, uint32_t value) {
    switch (value % 6) {
        case 0: return 0;
        case 1: return n > 0 ? n - 1 : 0;
        case 2: return n + 1;
        case 3: return n + room;
        case 4: return n / 2;
        default: return n > 0 ? value / 6 % n : 0;
    }
}

static void apply(struct keys * k, const uint8_t * change) {
    uint16_t which;
    uint32_t value;
    memcpy(&which, change + 1, sizeof(which));
    memcpy(&value, change + 4, sizeof(value));
    const uint8_t detail = change[3];
    switch ((enum change)(change[0] % CHANGES)) {
        case TOKEN_STRING:
            if (k->def.n_tokens > 0) {
                struct slice * s = &k->tokens[which % k->def.n_tokens];
                *s = change_string(k, *s, detail, value);
            }
            break;
        case MERGE_STRING:
            if (k->def.n_merges > 0) {
                struct slice * s = &k->merges[which % k->def.n_merges];
                *s = detail % 2 == 0 ? join(k, some_token(k, value), " ", 1, some_token(k, which))
                                     : change_string(k, *s, detail / 2, value);
            }
            break;
        case TOKEN_TYPE:
            if (k->def.n_types > 0) {
                k->types[which % k->def.n_types] =
                        detail % 4 > 0 ? value % 8 : INTS[value % N(INTS)];
            }
            break;
        case TOKEN_SCORE:
            if (k->def.n_scores > 0) {
                k->scores[which % k->def.n_scores] = FLOATS[value % N(FLOATS)];
            }
            break;
        case COUNT_TOKENS: {
            const size_t n = change_count(k->def.n_tokens, MORE, value);
            for (size_t i = k->def.n_tokens; i < n; ++i) {
                k->tokens[i] = change_string(k, some_token(k, value), detail, value + (uint32_t) i);
            }
            k->def.n_tokens = n;
        } break;
        case COUNT_TYPES: k->def.n_types = change_count(k->def.n_types, MORE, value); break;
        case COUNT_SCORES: k->def.n_scores = change_count(k->def.n_scores, MORE, value); break;
        case COUNT_MERGES: {
            const size_t n = change_count(k->def.n_merges, MORE, value);
            for (size_t i = k->def.n_merges; i < n; ++i) {
                k->merges[i] = join(k, some_token(k, value), " ", 1, some_token(k, which));
            }
            k->def.n_merges = n;
            k->dropped[KEY_MERGES] = false;
        } break;
        case SPECIAL_ID:
            k->ids[which % 4] = detail % 2 == 0 ? (int64_t) (value % (k->def.n_tokens + 2))
                                                : INTS[value % N(INTS)];
            k->dropped[KEY_IDS + which % 4] = false;
            break;
        case FLAG:
            k->flags[which % 3] = (int) (value % 3);
            k->dropped[KEY_FLAGS + which % 3] = false;
            break;
        case MODEL_NAME: k->def.model = WORDS[value % N(WORDS)]; break;
        case PRE_NAME:
            k->def.pre = WORDS[value % N(WORDS)];
            k->dropped[KEY_PRE] = false;
            break;
        case NORMALIZER_NAME:
            k->def.normalizer = WORDS[value % N(WORDS)];
            k->dropped[KEY_NORMALIZER] = false;
            break;
        case DROP_KEY: k->dropped[which % KEYS] = true; break;
        case KEY_TYPE: k->as_type[which % KEYS] = value % (GGUF_TYPE_FLOAT64 + 1); break;
        default: break;
    }
}

// ---- the file

static void put_value(struct bytes * b, uint32_t type, double number, int64_t integer) {
    const float    f32 = (float) number;
    const uint8_t  u8 = (uint8_t) integer;
    const uint16_t u16 = (uint16_t) integer;
    switch (type) {
        case GGUF_TYPE_UINT8:
        case GGUF_TYPE_INT8:
        case GGUF_TYPE_BOOL: put(b, &u8, 1); break;
        case GGUF_TYPE_UINT16:
        case GGUF_TYPE_INT16: put(b, &u16, 2); break;
        case GGUF_TYPE_FLOAT32: put(b, &f32, 4); break;
        case GGUF_TYPE_FLOAT64: put(b, &number, 8); break;
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64: put_u64(b, (uint64_t) integer); break;
        case GGUF_TYPE_STRING: put_text(b, integer % 2 == 0 ? "" : "1"); break;
        default: put_u32(b, (uint32_t) integer); break;
    }
}

static void put_scalar(struct bytes * b, const struct keys * k, int key, uint32_t own,
        double number, int64_t integer) {
    const uint32_t type = k->as_type[key] != 0 ? k->as_type[key] : own;
    if (type == GGUF_TYPE_ARRAY) {
        put_array(b, NAMES[key], own, 1);
        put_value(b, own, number, integer);
    } else {
        put_key(b, NAMES[key], type);
        put_value(b, type, number, integer);
    }
}

static void put_strings(
        struct bytes * b, const struct keys * k, int key, const struct slice * strings, size_t n) {
    const uint32_t type = k->as_type[key] != 0 ? k->as_type[key] : GGUF_TYPE_STRING;
    if (type == GGUF_TYPE_ARRAY) { // no array
        put_key(b, NAMES[key], GGUF_TYPE_UINT32);
        put_u32(b, (uint32_t) n);
        return;
    }
    put_array(b, NAMES[key], type, n);
    for (size_t i = 0; i < n; ++i) {
        if (type == GGUF_TYPE_STRING) {
            put_text_n(b, strings[i].data, strings[i].size);
        } else {
            put_value(b, type, (double) i, (int64_t) i);
        }
    }
}

static void put_numbers(struct bytes * b, const struct keys * k, int key) {
    const uint32_t own = key == KEY_SCORES ? GGUF_TYPE_FLOAT32 : GGUF_TYPE_INT32;
    const uint32_t type =
            k->as_type[key] != 0 && k->as_type[key] != GGUF_TYPE_ARRAY ? k->as_type[key] : own;
    const size_t n = key == KEY_SCORES ? k->def.n_scores : k->def.n_types;
    put_array(b, NAMES[key], type, n);
    for (size_t i = 0; i < n; ++i) {
        if (key == KEY_SCORES) {
            put_value(b, type, (double) k->scores[i], (int64_t) i);
        } else {
            put_value(b, type, (double) k->types[i], k->types[i]);
        }
    }
}

static void put_word(struct bytes * b, const struct keys * k, int key, const char * word) {
    if (k->as_type[key] != 0) {
        put_scalar(b, k, key, GGUF_TYPE_STRING, 1.0, 1);
    } else {
        put_key(b, NAMES[key], GGUF_TYPE_STRING);
        put_text(b, word);
    }
}

// The keys of the tokenizer, in front of all others. A last key fills up to a multiple of the
// alignment, so that the offsets of tensors stay valid. Returns the number of keys.
static uint64_t put_keys(struct bytes * b, const struct keys * k) {
    uint64_t n = 0;
    for (int key = 0; key < KEYS; ++key) {
        if (k->dropped[key]) {
            continue;
        }
        ++n;
        switch (key) {
            case KEY_MODEL: put_word(b, k, key, k->def.model); break;
            case KEY_PRE: put_word(b, k, key, k->def.pre); break;
            case KEY_NORMALIZER: put_word(b, k, key, k->def.normalizer); break;
            case KEY_TOKENS: put_strings(b, k, key, k->tokens, k->def.n_tokens); break;
            case KEY_MERGES: put_strings(b, k, key, k->merges, k->def.n_merges); break;
            case KEY_TYPES:
            case KEY_SCORES: put_numbers(b, k, key); break;
            default:
                if (key < KEY_FLAGS) {
                    const int64_t id = k->ids[key - KEY_IDS];
                    put_scalar(b, k, key, GGUF_TYPE_UINT32, (double) id, id);
                } else {
                    const int flag = k->flags[key - KEY_FLAGS];
                    put_scalar(b, k, key, GGUF_TYPE_BOOL, (double) flag, flag);
                }
                break;
        }
    }
    enum { ALIGNMENT = 32 };
    put_key(b, "general.description", GGUF_TYPE_STRING);
    const size_t fill = ALIGNMENT - (b->n + 8) % ALIGNMENT;
    char         text[ALIGNMENT + 1];
    memset(text, '.', sizeof(text));
    put_text_n(b, text, fill);
    return n + 1;
}

static void write_file(const struct keys * k, const struct bytes * model) {
    enum { AT_KEYS = 16, HEADER = 24 };
    struct bytes keys = { NULL, 0, 0 };
    uint64_t     n_keys;
    memcpy(&n_keys, model->data + AT_KEYS, sizeof(n_keys));
    n_keys += put_keys(&keys, k);

    FILE * file = fopen(path, "wb");
    require(file != NULL && fwrite(model->data, 1, AT_KEYS, file) == AT_KEYS &&
                    fwrite(&n_keys, 1, sizeof(n_keys), file) == sizeof(n_keys) &&
                    fwrite(keys.data, 1, keys.n, file) == keys.n &&
                    fwrite(model->data + HEADER, 1, model->n - HEADER, file) == model->n - HEADER &&
                    fclose(file) == 0,
            path, "cannot be written");
    free(keys.data);
}

// ---- use

static void check_text(
        const struct lrnn_model * model, const char * text, size_t size, unsigned flags) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    int32_t *         tokens = NULL;
    int64_t           n = 0;
    if (!lrnn_tokenize(model, text, size, flags, &tokens, &n, &err)) {
        require(err.text[0] != '\0' && strchr(err.text, '\n') == NULL,
                "a text was refused without a reason", err.text);
        return;
    }
    struct lrnn_decoder * decoder = lrnn_decoder_new(model, (flags & 1) != 0, NULL);
    size_t *              spans = malloc(((size_t) n + 1) * sizeof(*spans));
    require(decoder != NULL && spans != NULL, "out of memory", "");
    for (int64_t i = 0; i < n; ++i) {
        size_t n_bytes = 0;
        require(lrnn_token_bytes(model, tokens[i], &n_bytes) != NULL, "no such token", "");
        lrnn_token_is_special(model, tokens[i]);
        lrnn_token_text_size(model, tokens[i]);
        decode(decoder, tokens[i]);
    }
    decode_end(decoder);
    if (lrnn_token_spans(model, text, size, tokens, n, spans, &err)) {
        size_t all = 0;
        for (int64_t i = 0; i < n; ++i) {
            all += spans[i];
        }
        require(all == size || n == 0 || utf8_valid(text, size) != size,
                "the spans do not add up to the text", "");
    }
    lrnn_decoder_free(decoder);
    free(spans);
    free(tokens);
}

static void use(const struct lrnn_model * model, const struct tokenizer_data * t,
        const uint8_t * data, size_t size) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    char                         hex[65];
    if (!info.has_tokenizer) {
        return;
    }
    lrnn_model_get_tokenizer_hash(model, hex);
    require(info.bos < info.n_vocab && info.eos < info.n_vocab, "a special token is out of range",
            "");
    for (size_t i = 0; i < MAX_TEXTS && t->n_cases > 0; ++i) {
        const struct tokenizer_case * c = &t->cases[(data[size - 1] * 7u + i) % t->n_cases];
        check_text(model, c->text.data, c->text.size, c->flags);
    }
    for (unsigned flags = 0; flags < 8; ++flags) {
        check_text(model, (const char *) data, size, flags);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    if (files[0].n == 0) {
        prepare();
    }
    if (size == 0) {
        return 0;
    }
    const int                     kind = data[0] % N_KINDS;
    const struct tokenizer_data * t = &kinds[kind];
    const clock_t                 start = clock(); // of this process: others may use the CPU
    struct keys                   keys;
    struct lrnn_error             err = { LRNN_ERROR_NONE, "" };
    keys_open(&keys, &t->def);
    for (size_t at = 1, n = 0; at + 8 <= size && n < MAX_CHANGES; at += 8, ++n) {
        apply(&keys, data + at);
    }
    write_file(&keys, &files[kind]);
    keys_close(&keys);

    struct lrnn_model * model = lrnn_model_load(path, NULL, &err);
    if (model != NULL) {
        use(model, t, data, size);
        lrnn_model_free(model);
    } else {
        require(size >= 9, "a valid tokenizer was rejected", err.text);
        require(strncmp(err.text, path, strlen(path)) == 0 && strchr(err.text, '\n') == NULL &&
                        strchr(err.text, '\x1b') == NULL,
                "rejected without a proper message", err.text);
    }
    require((clock() - start) / CLOCKS_PER_SEC <= SECONDS_MAX, KINDS[kind], "took too long");
    return 0;
}
