// Model files with tokenizers whose keys are changed: lengths, strings, scores, types, merges, ids
// and flags. The file around them is well formed, so that every change reaches the tokenizer. A
// file is rejected with a message, or its tokenizer encodes and decodes any text.
//
// An input is one byte that selects the tokenizer, then changes of 8 bytes each: kind of change,
// key, element (two bytes), value (four bytes). Its bytes are also a text to encode.

#include "fuzz/fuzz.h"
#include "base/unicode.h"
#include "kit/files.h"
#include "kit/gguf-bytes.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "kit/tokenizer-data.h"
#include "lrnn.h"

#include <time.h>

enum { N_KINDS = 9, MAX_CHANGES = 6, MAX_MADE = 1 << 17, MAX_TEXTS = 6, SECONDS_MAX = 30 };

enum { MORE = 8, ROOM = MORE * MAX_CHANGES }; // elements that a change and all of them add

static const char * const KINDS[N_KINDS] = { "bytes", "gpt-2", "gpt-neox", "llama-bpe", "qwen2",
    "qwen35", "rwkv", "spm", "symbols" };

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

static struct tokenizer_data kinds[N_KINDS];
static struct bytes          files[N_KINDS]; // model files without tokenizer, with enough ids
static char                  path[64];

static void remove_file(void) {
    unlink(path);
}

static void no_log(enum ggml_log_level level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

static struct bytes read_file(const char * name) {
    struct bytes b = { 0 };
    b.data = test_read_file(name, &b.n);
    return b;
}

// A model with at least n ids: the rows of its embedding and its output are repeated.
static struct bytes make_model(const char * from, int64_t n) {
    struct model_edit e;
    require_of(model_edit_open(&e, from), from, "cannot be read");
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
    require_of(model_edit_write(&e, path), path, "cannot be written");
    model_edit_close(&e);
    return read_file(path);
}

static void prepare(void) {
    struct golden_list golden;
    make_path(path, "tokenizer.gguf");
    atexit(remove_file);
    ggml_log_set(no_log, NULL);
    golden_list_load(&golden);
    const struct golden * model = golden_find(&golden, "delta_net_neg");
    for (int i = 0; i < N_KINDS; ++i) {
        static struct bytes data[N_KINDS]; // the definitions point into it
        char                name[1024];
        snprintf(name, sizeof(name), "%s/%s.bin", LRNN_TOKENIZER_DATA, KINDS[i]);
        data[i] = read_file(name);
        require_of(tokenizer_data_read(&kinds[i], data[i].data, data[i].n), name, "wrong format");
        files[i] = make_model(model->path, (int64_t) kinds[i].def.n_tokens + 4);
    }
    golden_list_free(&golden);
}

// ---- the keys of a tokenizer

struct value {
    struct slice text;
    int64_t      integer;
    double       number;
};

struct key {
    const char *   name;
    uint32_t       type; // GGUF type of the value or of its elements
    bool           is_array;
    bool           dropped;
    size_t         n;
    struct value * values; // [n + ROOM]
};

enum { TOKENS, MERGES, TYPES, SCORES, WORD_KEYS, IDS = WORD_KEYS + 3, FLAGS = IDS + 4, KEYS = 14 };

struct keys {
    struct key all[KEYS];
    char *     made; // memory for new strings
    size_t     n_made;
};

static struct key * add_key(
        struct keys * k, int i, const char * name, uint32_t type, bool is_array, size_t n) {
    struct key * key = &k->all[i];
    *key = (struct key) { .name = name, .type = type, .is_array = is_array, .n = n };
    key->values = calloc(n + ROOM, sizeof(*key->values));
    require(key->values != NULL, "out of memory");
    return key;
}

static void add_strings(
        struct keys * k, int i, const char * name, const struct slice * strings, size_t n) {
    struct key * key = add_key(k, i, name, GGUF_TYPE_STRING, true, n);
    for (size_t e = 0; e < n; ++e) {
        key->values[e].text = strings[e];
    }
}

// A key that is absent if its value is negative
static void add_integer(struct keys * k, int i, const char * name, uint32_t type, int64_t integer) {
    struct key * key = add_key(k, i, name, type, false, 1);
    key->dropped = integer < 0;
    key->values[0].integer = integer;
    key->values[0].number = (double) integer;
}

static void keys_open(struct keys * k, const struct tokenizer_def * def) {
    static const char * const WORD_NAMES[] = { "tokenizer.ggml.model", "tokenizer.ggml.pre",
        "lrnn.tokenizer.normalizer" };
    static const char * const ID_NAMES[] = { "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id", "tokenizer.ggml.unknown_token_id",
        "tokenizer.ggml.padding_token_id" };
    static const char * const FLAG_NAMES[] = { "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix" };
    const char * const        words[] = { def->model, def->pre, def->normalizer };
    const int64_t ids[] = { def->bos_id, def->eos_id, def->unknown_id, def->padding_id };
    const int     flags[] = { def->add_bos, def->add_eos, def->add_space_prefix };

    *k = (struct keys) { .made = malloc(MAX_MADE) };
    require(k->made != NULL, "out of memory");
    add_strings(k, TOKENS, "tokenizer.ggml.tokens", def->tokens, def->n_tokens);
    add_strings(k, MERGES, "tokenizer.ggml.merges", def->merges, def->n_merges);
    add_key(k, TYPES, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, true, def->n_types);
    add_key(k, SCORES, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, true, def->n_scores);
    for (size_t i = 0; i < def->n_types; ++i) {
        k->all[TYPES].values[i] = (struct value) { { "", 0 }, def->types[i], def->types[i] };
    }
    for (size_t i = 0; i < def->n_scores; ++i) {
        k->all[SCORES].values[i] =
                (struct value) { { "", 0 }, (int64_t) i, (double) def->scores[i] };
    }
    for (int i = 1; i < WORD_KEYS; ++i) {
        k->all[i].dropped = k->all[i].n == 0;
    }
    for (int i = 0; i < 3; ++i) {
        struct key * key = add_key(k, WORD_KEYS + i, WORD_NAMES[i], GGUF_TYPE_STRING, false, 1);
        key->dropped = words[i] == NULL;
        key->values[0].text = words[i] != NULL ? slice_of(words[i]) : (struct slice) { "", 0 };
    }
    for (int i = 0; i < 4; ++i) {
        add_integer(k, IDS + i, ID_NAMES[i], GGUF_TYPE_UINT32, ids[i]);
    }
    for (int i = 0; i < 3; ++i) {
        add_integer(k, FLAGS + i, FLAG_NAMES[i], GGUF_TYPE_BOOL, flags[i]);
    }
}

static void keys_close(struct keys * k) {
    for (int i = 0; i < KEYS; ++i) {
        free(k->all[i].values);
    }
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
    const struct key * tokens = &k->all[TOKENS];
    return tokens->n > 0 ? tokens->values[value % tokens->n].text : (struct slice) { "", 0 };
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

static void change_element(struct keys * k, int i, size_t e, uint32_t value) {
    struct key *   key = &k->all[i];
    struct value * v = &key->values[e];
    const uint8_t  detail = (uint8_t) (value >> 24);
    if (i == MERGES && detail % 2 == 0) {
        v->text = join(k, some_token(k, value), " ", 1, some_token(k, value >> 8));
    } else if (i >= WORD_KEYS && i < IDS && detail % 4 > 0) {
        v->text = slice_of(WORDS[value % N(WORDS)]);
    } else if (key->type == GGUF_TYPE_STRING) {
        v->text = change_string(k, v->text, detail, value);
    } else if (key->type == GGUF_TYPE_FLOAT32) {
        v->number = (double) FLOATS[value % N(FLOATS)];
    } else { // types, ids, flags: mostly in range
        const size_t range = i >= FLAGS ? 3 : i >= IDS ? k->all[TOKENS].n + 2 : 8;
        v->integer = detail % 4 > 0 ? (int64_t) (value % range) : INTS[value % N(INTS)];
        v->number = (double) v->integer;
    }
    key->dropped = false;
}

static void apply(struct keys * k, const uint8_t * change) {
    const int    i = change[1] % KEYS;
    struct key * key = &k->all[i];
    uint16_t     which;
    uint32_t     value;
    memcpy(&which, change + 2, sizeof(which));
    memcpy(&value, change + 4, sizeof(value));
    switch (change[0] % 6) {
        case 0: key->dropped = true; break;
        case 1: key->type = value % (GGUF_TYPE_FLOAT64 + 1); break;
        case 2: {
            const size_t n = key->is_array ? change_count(key->n, MORE, value) : key->n;
            for (size_t e = key->n; e < n; ++e) {
                key->values[e] = key->values[e > 0 ? e - 1 : 0];
                change_element(k, i, e, value + (uint32_t) e);
            }
            key->n = n;
        } break;
        default:
            if (key->n > 0) {
                change_element(k, i, which % key->n, value);
            }
            break;
    }
}

// ---- the file

static void put_value(struct bytes * b, uint32_t type, const struct value * v) {
    const float    f32 = (float) v->number;
    const uint8_t  u8 = (uint8_t) v->integer;
    const uint16_t u16 = (uint16_t) v->integer;
    switch (type) {
        case GGUF_TYPE_UINT8:
        case GGUF_TYPE_INT8:
        case GGUF_TYPE_BOOL: put(b, &u8, 1); break;
        case GGUF_TYPE_UINT16:
        case GGUF_TYPE_INT16: put(b, &u16, 2); break;
        case GGUF_TYPE_FLOAT32: put(b, &f32, 4); break;
        case GGUF_TYPE_FLOAT64: put(b, &v->number, 8); break;
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64: put_u64(b, (uint64_t) v->integer); break;
        case GGUF_TYPE_STRING: put_text_n(b, v->text.data, v->text.size); break;
        default: put_u32(b, (uint32_t) v->integer); break;
    }
}

// An array becomes a number if its type is that of arrays, and a number becomes an array.
static void put_whole_key(struct bytes * b, const struct key * key) {
    const bool     is_odd = key->type == GGUF_TYPE_ARRAY;
    const uint32_t type = is_odd ? GGUF_TYPE_UINT32 : key->type;
    const size_t   n = key->is_array && is_odd ? 1 : key->n;
    if (key->is_array == is_odd) {
        put_key(b, key->name, type);
    } else {
        put_array(b, key->name, type, n);
    }
    for (size_t i = 0; i < n; ++i) {
        put_value(b, type, &key->values[i]);
    }
}

// The keys of the tokenizer, in front of all others. A last key fills up to a multiple of the
// alignment, so that the offsets of tensors stay valid. Returns the number of keys.
static uint64_t put_keys(struct bytes * b, const struct keys * k) {
    uint64_t n = 0;
    for (int i = 0; i < KEYS; ++i) {
        if (!k->all[i].dropped) {
            put_whole_key(b, &k->all[i]);
            ++n;
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
    require_of(
            file != NULL && fwrite(model->data, 1, AT_KEYS, file) == AT_KEYS &&
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
        require_of(err.text[0] != '\0' && strchr(err.text, '\n') == NULL,
                "a text was refused without a reason", err.text);
        return;
    }
    struct lrnn_decoder * decoder = lrnn_decoder_new(model, (flags & 1) != 0, NULL);
    size_t *              spans = malloc(((size_t) n + 1) * sizeof(*spans));
    require_of(decoder != NULL && spans != NULL, "out of memory", "");
    for (int64_t i = 0; i < n; ++i) {
        size_t n_bytes = 0;
        require_of(lrnn_token_bytes(model, tokens[i], &n_bytes) != NULL, "no such token", "");
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
        require_of(all == size || n == 0 || utf8_valid(text, size) != size,
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
    require_of(info.bos < info.n_vocab && info.eos < info.n_vocab,
            "a special token is out of range", "");
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
        require_of(size >= 9, "a valid tokenizer was rejected", err.text);
        require_reason(err.text, path);
    }
    require_of((clock() - start) / CLOCKS_PER_SEC <= SECONDS_MAX, KINDS[kind], "took too long");
    return 0;
}
