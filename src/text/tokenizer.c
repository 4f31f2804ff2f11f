// Tokenizers of all kinds: checking a definition, finding special tokens in text. The rest depends
// on the kind: tokenizer-spm.c, -bpe.c, -world.c, -bytes.c and -symbols.c.

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "lrnn.h"
#include "text/tokenizer-impl.h"

#include <stdlib.h>
#include <string.h>

// ---- Symbols by their bytes ---------------------------------------------------------------------

uint64_t symbol_hash(const char * data, size_t len) {
    uint64_t h = 0;
    for (size_t i = 0; i < len; ++i) {
        h = h * SYMBOL_HASH_BASE + (uint8_t) data[i] + 1;
    }
    return h;
}

// Returns the slot of the symbol, or the free slot where it belongs.
static size_t slot_find(
        const struct tokenizer * tok, const char * data, size_t len, uint64_t hash) {
    const size_t mask = tok->n_slots - 1;
    for (size_t i = (size_t) hash_mix(hash) & mask;; i = (i + 1) & mask) {
        if (tok->slots[i] == 0) {
            return i;
        }
        const struct slice s = symbol_bytes(tok, (int32_t) tok->slots[i] - 1);
        if (s.size == len && memcmp(s.data, data, len) == 0) {
            return i;
        }
    }
}

int32_t symbol_find_hashed(
        const struct tokenizer * tok, const char * data, size_t len, uint64_t hash) {
    return tok->n_slots > 0 ? (int32_t) tok->slots[slot_find(tok, data, len, hash)] - 1 : -1;
}

int32_t symbol_find(const struct tokenizer * tok, const char * data, size_t len) {
    return symbol_find_hashed(tok, data, len, symbol_hash(data, len));
}

static bool slots_grow(struct tokenizer * tok) {
    uint32_t *   old = tok->slots;
    const size_t n_old = tok->n_slots;
    const size_t n = n_old == 0 ? 1024 : n_old * 2;
    uint32_t *   slots = calloc(n, sizeof(*slots));
    if (slots == NULL) {
        return false;
    }
    tok->slots = slots;
    tok->n_slots = n;
    for (size_t i = 0; i < n_old; ++i) {
        if (old[i] != 0) {
            const struct slice s = symbol_bytes(tok, (int32_t) old[i] - 1);
            slots[slot_find(tok, s.data, s.size, symbol_hash(s.data, s.size))] = old[i];
        }
    }
    free(old);
    return true;
}

bool symbol_insert(struct tokenizer * tok, int32_t id, struct lrnn_error * err) {
    if (tok->n_used * 2 >= tok->n_slots && !slots_grow(tok)) {
        return error_no_memory(err, "a vocabulary of %d tokens", (int) tok->n_tokens);
    }
    const struct slice s = symbol_bytes(tok, id);
    uint32_t * slot = &tok->slots[slot_find(tok, s.data, s.size, symbol_hash(s.data, s.size))];
    if (*slot != 0) {
        char quote[QUOTE_SIZE];
        return error_bad_model(err, "tokenizer.ggml.tokens[%d] and [%d] are both %s",
                (int) *slot - 1, (int) id, slice_quote(quote, sizeof(quote), s));
    }
    *slot = (uint32_t) id + 1;
    tok->n_used++;
    return true;
}

// ---- Definition ---------------------------------------------------------------------------------

static bool check_model(
        struct tokenizer * tok, const struct tokenizer_def * def, struct lrnn_error * err) {
    static const char * const names[] = {
        [TOKENIZER_SPM] = "llama",
        [TOKENIZER_BPE] = "gpt2",
        [TOKENIZER_WORLD] = "rwkv",
        [TOKENIZER_BYTES] = "lrnn-bytes",
        [TOKENIZER_SYMBOLS] = "lrnn-symbols",
    };
    char quote[QUOTE_SIZE];

    size_t kind = 0;
    while (kind < sizeof(names) / sizeof(names[0]) && def->model != NULL &&
            strcmp(def->model, names[kind]) != 0) {
        kind++;
    }
    if (def->model == NULL || kind == sizeof(names) / sizeof(names[0])) {
        return error_bad_model(err,
                "tokenizer.ggml.model is %s; "
                "expected llama, gpt2, rwkv, lrnn-bytes or lrnn-symbols",
                def->model == NULL ? "missing"
                                   : slice_quote(quote, sizeof(quote), slice_of(def->model)));
    }
    tok->kind = (enum tokenizer_kind) kind;
    if (tok->kind != TOKENIZER_BPE) {
        if (def->normalizer != NULL) {
            return error_bad_model(err,
                    "lrnn.tokenizer.normalizer is %s; expected none for tokenizer.ggml.model %s",
                    slice_quote(quote, sizeof(quote), slice_of(def->normalizer)), def->model);
        }
        return true;
    }
    const struct named_pre_tokenizer * pre = def->pre != NULL ? pre_tokenizer_find(def->pre) : NULL;
    if (pre == NULL) {
        char known[256];
        return error_bad_model(err, "tokenizer.ggml.pre is %s; expected %s",
                def->pre == NULL ? "missing"
                                 : slice_quote(quote, sizeof(quote), slice_of(def->pre)),
                pre_tokenizer_names(known, sizeof(known)));
    }
    tok->pre = pre->pre;
    tok->whole = pre->whole;
    tok->bos = pre->bos;
    if (def->normalizer != NULL && strcmp(def->normalizer, "nfc") != 0) {
        return error_bad_model(err, "lrnn.tokenizer.normalizer is %s; expected nfc or none",
                slice_quote(quote, sizeof(quote), slice_of(def->normalizer)));
    }
    tok->nfc = def->normalizer != NULL;
    return true;
}

static bool append_token(
        struct tokenizer * tok, struct slice text, int32_t id, struct lrnn_error * err) {
    const enum token_type type = (enum token_type) tok->type[id];
    switch (tok->kind) {
        case TOKENIZER_SPM:
        case TOKENIZER_BYTES: return spm_token(text, id, type, &tok->bytes, err);
        case TOKENIZER_BPE: return bpe_token(text, type, &tok->bytes, err);
        case TOKENIZER_WORLD: return world_token(text, id, type, &tok->bytes, err);
        case TOKENIZER_SYMBOLS: break;
    }
    return buffer_append(&tok->bytes, text.data, text.size) || error_no_memory(err, "the tokens");
}

static bool load_tokens(
        struct tokenizer * tok, const struct tokenizer_def * def, struct lrnn_error * err) {
    if (def->tokens == NULL || def->n_tokens == 0 || def->n_tokens > TOKENIZER_MAX_TOKENS) {
        return error_bad_model(err, "tokenizer.ggml.tokens has %zu tokens; expected 1 to %d",
                def->tokens != NULL ? def->n_tokens : 0, TOKENIZER_MAX_TOKENS);
    }
    if (def->types != NULL && def->n_types != def->n_tokens) {
        return error_bad_model(err,
                "tokenizer.ggml.token_type has %zu numbers; expected %zu, one per token",
                def->n_types, def->n_tokens);
    }
    tok->n_tokens = (int32_t) def->n_tokens;
    tok->n_symbols = tok->n_tokens;
    tok->type = malloc(def->n_tokens);
    tok->offset = malloc((def->n_tokens + 2) * sizeof(*tok->offset));
    if (tok->type == NULL || tok->offset == NULL) {
        return error_no_memory(err, "%zu tokens", def->n_tokens);
    }
    tok->offset[0] = 0;
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        const struct slice text = def->tokens[id];
        const int32_t      type = def->types != NULL ? def->types[id] : TOKEN_NORMAL;
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE) {
            return error_bad_model(err, "tokenizer.ggml.token_type[%d] is %d; expected %d to %d",
                    (int) id, (int) type, TOKEN_NORMAL, TOKEN_BYTE);
        }
        tok->type[id] = (uint8_t) type;
        if (text.size > TOKENIZER_MAX_TOKEN_LEN || (text.size == 0 && type != TOKEN_UNUSED)) {
            return error_bad_model(err, "tokenizer.ggml.tokens[%d] has %zu bytes; expected 1 to %d",
                    (int) id, text.size, TOKENIZER_MAX_TOKEN_LEN);
        }
        if (tok->bytes.n > INT32_MAX - TOKENIZER_MAX_TOKEN_LEN) {
            return error_bad_model(err,
                    "tokenizer.ggml.tokens has more than %zu bytes; expected fewer than 2^31",
                    tok->bytes.n);
        }
        if (!append_token(tok, text, id, err)) {
            return false;
        }
        tok->offset[id + 1] = (uint32_t) tok->bytes.n;

        const uint32_t len = tok->offset[id + 1] - tok->offset[id];
        tok->max_len = len > tok->max_len ? len : tok->max_len;
    }
    return true;
}

static bool load_id(const struct tokenizer * tok, const char * key, int64_t id, int32_t * out,
        struct lrnn_error * err) {
    if (id < -1 || id >= tok->n_tokens) {
        return error_bad_model(err, "tokenizer.ggml.%s is %lld; expected a token from 0 to %d", key,
                (long long) id, (int) tok->n_tokens - 1);
    }
    *out = (int32_t) id;
    return true;
}

static bool load_flags(
        struct tokenizer * tok, const struct tokenizer_def * def, struct lrnn_error * err) {
    const bool is_spm = tok->kind == TOKENIZER_SPM;

    tok->add_bos = def->add_bos < 0 ? (is_spm || tok->bos) && tok->bos_id >= 0 : def->add_bos != 0;
    tok->add_eos = def->add_eos > 0;
    tok->add_space_prefix =
            def->add_space_prefix < 0 ? is_spm : is_spm && def->add_space_prefix != 0;
    if (tok->add_bos && tok->bos_id < 0) {
        return error_bad_model(err,
                "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing");
    }
    if (tok->add_eos && tok->eos_id < 0) {
        return error_bad_model(err,
                "tokenizer.ggml.add_eos_token is true, but tokenizer.ggml.eos_token_id is missing");
    }
    return true;
}

bool tokens_trie(const struct tokenizer * tok, enum token_type type_a, enum token_type type_b,
        struct trie * trie, struct lrnn_error * err) {
    size_t n = 0;
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        n += tok->type[id] == type_a || tok->type[id] == type_b;
    }
    if (n == 0) {
        return true;
    }
    struct trie_entry * entries = malloc(n * sizeof(*entries));
    if (entries == NULL) {
        return error_no_memory(err, "%zu tokens", n);
    }
    n = 0;
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        if (tok->type[id] == type_a || tok->type[id] == type_b) {
            const struct slice s = symbol_bytes(tok, id);
            entries[n++] = (struct trie_entry) { s.data, (uint32_t) s.size, id };
        }
    }
    int32_t    duplicate[2];
    const bool ok = trie_build(trie, entries, n, duplicate);
    free(entries);
    if (ok) {
        return true;
    }
    return duplicate[0] >= 0
                   ? error_bad_model(err, "tokenizer.ggml.tokens[%d] and [%d] are the same bytes",
                             (int) duplicate[0], (int) duplicate[1])
                   : error_no_memory(err, "a trie of %zu tokens", n);
}

static bool load(
        struct tokenizer * tok, const struct tokenizer_def * def, struct lrnn_error * err) {
    if (!check_model(tok, def, err) || !load_tokens(tok, def, err) ||
            !load_id(tok, "bos_token_id", def->bos_id, &tok->bos_id, err) ||
            !load_id(tok, "eos_token_id", def->eos_id, &tok->eos_id, err) ||
            !load_id(tok, "unknown_token_id", def->unknown_id, &tok->unknown_id, err) ||
            !load_id(tok, "padding_token_id", def->padding_id, &tok->padding_id, err) ||
            !load_flags(tok, def, err)) {
        return false;
    }
    bool ok = false;
    switch (tok->kind) {
        case TOKENIZER_SPM: ok = spm_init(tok, def, err); break;
        case TOKENIZER_BPE: ok = bpe_init(tok, def, err); break;
        case TOKENIZER_WORLD: ok = world_init(tok, err); break;
        case TOKENIZER_BYTES: ok = bytes_init(tok, err); break;
        case TOKENIZER_SYMBOLS: return symbols_init(tok, err);
    }
    return ok && tokens_trie(tok, TOKEN_CONTROL, TOKEN_UNKNOWN, &tok->control, err) &&
           tokens_trie(tok, TOKEN_USER_DEFINED, TOKEN_USER_DEFINED, &tok->user, err);
}

bool tokenizer_new(
        const struct tokenizer_def * def, struct tokenizer ** tok, struct lrnn_error * err) {
    *tok = calloc(1, sizeof(**tok));
    if (*tok == NULL) {
        return error_no_memory(err, "a tokenizer");
    }
    if (!load(*tok, def, err)) {
        tokenizer_free(*tok);
        *tok = NULL;
        return false;
    }
    return true;
}

void tokenizer_free(struct tokenizer * tok) {
    if (tok == NULL) {
        return;
    }
    buffer_free(&tok->bytes);
    merges_free(&tok->merges);
    merges_free(&tok->joints);
    trie_free(&tok->words);
    trie_free(&tok->control);
    trie_free(&tok->user);
    free(tok->slots);
    free(tok->offset);
    free(tok->type);
    free(tok);
}

int32_t tokenizer_n_tokens(const struct tokenizer * tok) {
    return tok->n_tokens;
}
int32_t tokenizer_bos_id(const struct tokenizer * tok) {
    return tok->bos_id;
}
int32_t tokenizer_eos_id(const struct tokenizer * tok) {
    return tok->eos_id;
}

bool tokenizer_adds_bos(const struct tokenizer * tok) {
    return tok->add_bos;
}

bool tokenizer_adds_eos(const struct tokenizer * tok) {
    return tok->add_eos;
}

size_t tokenizer_text_size(const struct tokenizer * tok, int32_t id) {
    const size_t size = tokenizer_is_special(tok, id) ? 0 : tokenizer_token_bytes(tok, id).size;
    return size > 0 && tok->kind == TOKENIZER_SYMBOLS ? size + 1 // the space before a symbol
                                                      : size;
}
// ---- Text to ids --------------------------------------------------------------------------------

bool token_ids_push(struct token_ids * ids, int32_t id) {
    if (!array_grow(&ids->data, &ids->capacity, ids->n + 1, sizeof(*ids->data))) {
        return false;
    }
    ids->data[ids->n++] = id;
    return true;
}

void token_ids_free(struct token_ids * ids) {
    free(ids->data);
    *ids = (struct token_ids) { 0 };
}

void work_push(struct tokenize_work * w, int32_t id) {
    w->no_memory |= !token_ids_push(w->ids, id);
}

// Finds the strings of a set in the text, the longest at each position, and passes the text between
// them to `encode`.
static void encode_between(const struct tokenizer * tok, const struct trie * trie,
        encode_function * encode, const char * text, size_t len, struct tokenize_work * w) {
    const char * end = text + len;
    const char * start = text; // of the text not encoded yet
    for (const char * p = text; trie->n_nodes > 0 && p < end;) {
        int32_t      id;
        const size_t n = trie_longest(trie, p, end, &id);
        if (n > 0) {
            encode(tok, start, (size_t) (p - start), w);
            work_push(w, id);
            start = p + n;
        }
        p += n > 0 ? n : 1;
    }
    encode(tok, start, (size_t) (end - start), w);
}

// Encodes text without control tokens. Text is normalized before user-defined tokens are searched;
// SPM searches for them itself.
static void encode_text(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w) {
    static encode_function * const functions[] = {
        [TOKENIZER_BPE] = bpe_encode,
        [TOKENIZER_WORLD] = world_encode,
        [TOKENIZER_BYTES] = bytes_encode,
    };
    if (tok->kind == TOKENIZER_SPM) {
        spm_encode(tok, text, len, w);
        return;
    }
    if (tok->nfc && !nfc_quick_check(text, len)) {
        w->text.n = 0;
        w->no_memory |= !nfc_normalize(text, len, &w->text);
        text = w->text.data;
        len = w->text.n;
    }
    encode_between(tok, &tok->user, functions[tok->kind], text, len, w);
}

bool tokenizer_encode(const struct tokenizer * tok, const char * text, size_t len, unsigned flags,
        struct token_ids * ids, struct lrnn_error * err) {
    if (len > TOKENIZER_MAX_TEXT_LEN) {
        return error_bad_input(
                err, "the text has %zu bytes; expected at most %d", len, TOKENIZER_MAX_TEXT_LEN);
    }
    const size_t n_before = ids->n;
    const size_t n_bytes = len;
    const bool   parse = (flags & LRNN_TOKENIZE_PARSE_SPECIAL) != 0;
    bool         ok = true;

    struct tokenize_work w = { .ids = ids };
    struct buffer        replaced = { 0 };
    if ((flags & LRNN_TOKENIZE_ADD_BOS) != 0 && tok->add_bos) {
        work_push(&w, tok->bos_id);
    }
    if ((tok->kind == TOKENIZER_SPM || tok->kind == TOKENIZER_BPE) &&
            utf8_valid(text, len) != len) {
        w.no_memory |= !utf8_replace(text, len, tok->kind == TOKENIZER_SPM, &replaced);
        text = replaced.data;
        len = replaced.n;
    }
    if (len > 0 && tok->kind == TOKENIZER_SYMBOLS) {
        ok = symbols_encode(tok, text, len, parse, &w, err);
    } else if (len > 0) {
        static const struct trie none = { 0 };
        encode_between(tok, parse ? &tok->control : &none, encode_text, text, len, &w);
    }
    if ((flags & LRNN_TOKENIZE_ADD_EOS) != 0 && tok->add_eos) {
        work_push(&w, tok->eos_id);
    }
    if (ok && w.no_memory) {
        ok = error_no_memory(err, "the tokens of a text of %zu bytes", n_bytes);
    }
    buffer_free(&replaced);
    buffer_free(&w.text);
    merge_work_free(&w.merge);
    ids->n = ok ? ids->n : n_before;
    return ok;
}

// ---- Ids to text --------------------------------------------------------------------------------

enum token_type tokenizer_token_type(const struct tokenizer * tok, int32_t id) {
    return id >= 0 && id < tok->n_tokens ? (enum token_type) tok->type[id] : TOKEN_UNUSED;
}

struct slice tokenizer_token_bytes(const struct tokenizer * tok, int32_t id) {
    return id >= 0 && id < tok->n_tokens ? symbol_bytes(tok, id) : (struct slice) { "", 0 };
}

bool tokenizer_is_special(const struct tokenizer * tok, int32_t id) {
    const enum token_type type = tokenizer_token_type(tok, id);
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_UNUSED;
}
