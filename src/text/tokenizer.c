#include "text/tokenizer-impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool lrnn_refuse(char * err, size_t err_size, const char * fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(err, err_size, fmt, args);
    va_end(args);
    return false;
}

static struct lrnn_text text_of(const char * s) {
    return (struct lrnn_text) { s, strlen(s) };
}

//
// Symbols by their bytes
//

uint64_t lrnn_hash(const char * data, size_t len) {
    uint64_t h = 0;
    for (size_t i = 0; i < len; ++i) {
        h = h * LRNN_HASH_BASE + (uint8_t) data[i] + 1;
    }
    return h;
}

// The slot that has the symbol, or the free one where it belongs.
static size_t slot_find(
        const struct lrnn_tokenizer * tok, const char * data, size_t len, uint64_t hash) {
    hash ^= hash >> 29;
    hash *= UINT64_C(0xBF58476D1CE4E5B9);
    for (size_t i = (size_t) (hash >> 32) & (tok->n_slots - 1);; i = (i + 1) & (tok->n_slots - 1)) {
        if (tok->slots[i] == 0) {
            return i;
        }
        const struct lrnn_text s = lrnn_symbol_bytes(tok, (int32_t) tok->slots[i] - 1);
        if (s.size == len && memcmp(s.data, data, len) == 0) {
            return i;
        }
    }
}

int32_t lrnn_symbol_find_hashed(
        const struct lrnn_tokenizer * tok, const char * data, size_t len, uint64_t hash) {
    return tok->n_slots > 0 ? (int32_t) tok->slots[slot_find(tok, data, len, hash)] - 1 : -1;
}

int32_t lrnn_symbol_find(const struct lrnn_tokenizer * tok, const char * data, size_t len) {
    return lrnn_symbol_find_hashed(tok, data, len, lrnn_hash(data, len));
}

static bool slots_grow(struct lrnn_tokenizer * tok) {
    uint32_t *   old   = tok->slots;
    const size_t n_old = tok->n_slots;
    const size_t n     = n_old == 0 ? 1024 : n_old * 2;
    uint32_t *   slots = calloc(n, sizeof(*slots));
    if (slots == NULL) {
        return false;
    }
    tok->slots   = slots;
    tok->n_slots = n;
    for (size_t i = 0; i < n_old; ++i) {
        if (old[i] != 0) {
            const struct lrnn_text s = lrnn_symbol_bytes(tok, (int32_t) old[i] - 1);
            slots[slot_find(tok, s.data, s.size, lrnn_hash(s.data, s.size))] = old[i];
        }
    }
    free(old);
    return true;
}

bool lrnn_symbol_insert(struct lrnn_tokenizer * tok, int32_t id, char * err, size_t err_size) {
    if (tok->n_used * 2 >= tok->n_slots && !slots_grow(tok)) {
        return lrnn_refuse(
                err, err_size, "out of memory for a vocabulary of %d tokens", (int) tok->n_tokens);
    }
    const struct lrnn_text s = lrnn_symbol_bytes(tok, id);
    uint32_t * slot = &tok->slots[slot_find(tok, s.data, s.size, lrnn_hash(s.data, s.size))];
    if (*slot != 0) {
        char quote[LRNN_QUOTE_SIZE];
        return lrnn_refuse(err, err_size, "tokenizer.ggml.tokens[%d] and [%d] both stand for %s",
                (int) *slot - 1, (int) id, lrnn_text_quote(quote, sizeof(quote), s));
    }
    *slot = (uint32_t) id + 1;
    tok->n_used++;
    return true;
}

//
// Definition
//

static bool check_model(struct lrnn_tokenizer * tok, const struct lrnn_tokenizer_def * def,
        char * err, size_t err_size) {
    static const char * const names[] = {
        [LRNN_TOKENIZER_SPM]     = "llama",
        [LRNN_TOKENIZER_BPE]     = "gpt2",
        [LRNN_TOKENIZER_WORLD]   = "rwkv",
        [LRNN_TOKENIZER_BYTES]   = "lrnn-bytes",
        [LRNN_TOKENIZER_SYMBOLS] = "lrnn-symbols",
    };
    char quote[LRNN_QUOTE_SIZE];

    size_t kind = 0;
    while (kind < sizeof(names) / sizeof(names[0]) && def->model != NULL &&
            strcmp(def->model, names[kind]) != 0) {
        kind++;
    }
    if (def->model == NULL || kind == sizeof(names) / sizeof(names[0])) {
        return lrnn_refuse(err, err_size,
                "tokenizer.ggml.model is %s; expected llama, gpt2, rwkv, lrnn-bytes or lrnn-symbols",
                def->model == NULL ? "missing"
                                   : lrnn_text_quote(quote, sizeof(quote), text_of(def->model)));
    }
    tok->kind = (enum lrnn_tokenizer_kind) kind;
    if (tok->kind != LRNN_TOKENIZER_BPE) {
        if (def->normalizer != NULL) {
            return lrnn_refuse(err, err_size,
                    "lrnn.tokenizer.normalizer is %s; expected none with the model %s",
                    lrnn_text_quote(quote, sizeof(quote), text_of(def->normalizer)), def->model);
        }
        return true;
    }
    if (def->pre == NULL || !lrnn_pretok_find(def->pre, &tok->pre)) {
        return lrnn_refuse(err, err_size,
                "tokenizer.ggml.pre is %s; expected gpt-2, gpt-neox, mpt, llama-bpe or qwen2",
                def->pre == NULL ? "missing"
                                 : lrnn_text_quote(quote, sizeof(quote), text_of(def->pre)));
    }
    if (def->normalizer != NULL && strcmp(def->normalizer, "nfc") != 0) {
        return lrnn_refuse(err, err_size, "lrnn.tokenizer.normalizer is %s; expected nfc or none",
                lrnn_text_quote(quote, sizeof(quote), text_of(def->normalizer)));
    }
    tok->nfc = def->normalizer != NULL;
    return true;
}

static bool append_token(struct lrnn_tokenizer * tok, struct lrnn_text text, int32_t id, char * err,
        size_t err_size) {
    const enum lrnn_token_type type = (enum lrnn_token_type) tok->type[id];
    switch (tok->kind) {
        case LRNN_TOKENIZER_SPM:
        case LRNN_TOKENIZER_BYTES:
            return lrnn_spm_token(text, id, type, &tok->bytes, err, err_size);
        case LRNN_TOKENIZER_BPE: return lrnn_bpe_token(text, type, &tok->bytes, err, err_size);
        case LRNN_TOKENIZER_WORLD:
            return lrnn_world_token(text, id, type, &tok->bytes, err, err_size);
        case LRNN_TOKENIZER_SYMBOLS: break;
    }
    return lrnn_buffer_append(&tok->bytes, text.data, text.size) ||
           lrnn_refuse(err, err_size, "out of memory for the tokens");
}

static bool load_tokens(struct lrnn_tokenizer * tok, const struct lrnn_tokenizer_def * def,
        char * err, size_t err_size) {
    if (def->tokens == NULL || def->n_tokens == 0 || def->n_tokens > LRNN_TOKENIZER_MAX_TOKENS) {
        return lrnn_refuse(err, err_size, "tokenizer.ggml.tokens has %zu tokens; expected 1 to %d",
                def->tokens != NULL ? def->n_tokens : 0, LRNN_TOKENIZER_MAX_TOKENS);
    }
    if (def->types != NULL && def->n_types != def->n_tokens) {
        return lrnn_refuse(err, err_size,
                "tokenizer.ggml.token_type has %zu numbers; expected one for each of the %zu tokens",
                def->n_types, def->n_tokens);
    }
    tok->n_tokens  = (int32_t) def->n_tokens;
    tok->n_symbols = tok->n_tokens;
    tok->type      = malloc(def->n_tokens);
    tok->offset    = malloc((def->n_tokens + 2) * sizeof(*tok->offset));
    if (tok->type == NULL || tok->offset == NULL) {
        return lrnn_refuse(err, err_size, "out of memory for %zu tokens", def->n_tokens);
    }
    tok->offset[0] = 0;
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        const struct lrnn_text text = def->tokens[id];
        const int32_t          type = def->types != NULL ? def->types[id] : LRNN_TOKEN_NORMAL;
        if (type < LRNN_TOKEN_NORMAL || type > LRNN_TOKEN_BYTE) {
            return lrnn_refuse(err, err_size,
                    "tokenizer.ggml.token_type[%d] is %d; expected %d to %d", (int) id, (int) type,
                    LRNN_TOKEN_NORMAL, LRNN_TOKEN_BYTE);
        }
        tok->type[id] = (uint8_t) type;
        if (text.size > LRNN_TOKENIZER_MAX_TOKEN_LEN ||
                (text.size == 0 && type != LRNN_TOKEN_UNUSED)) {
            return lrnn_refuse(err, err_size,
                    "tokenizer.ggml.tokens[%d] has %zu bytes; expected 1 to %d", (int) id,
                    text.size, LRNN_TOKENIZER_MAX_TOKEN_LEN);
        }
        if (tok->bytes.n > INT32_MAX - LRNN_TOKENIZER_MAX_TOKEN_LEN) {
            return lrnn_refuse(err, err_size,
                    "tokenizer.ggml.tokens has more than %zu bytes; expected less than 2^31",
                    tok->bytes.n);
        }
        if (!append_token(tok, text, id, err, err_size)) {
            return false;
        }
        tok->offset[id + 1] = (uint32_t) tok->bytes.n;

        const uint32_t len = tok->offset[id + 1] - tok->offset[id];
        tok->max_len       = len > tok->max_len ? len : tok->max_len;
    }
    return true;
}

static bool load_id(const struct lrnn_tokenizer * tok, const char * key, int64_t id, int32_t * out,
        char * err, size_t err_size) {
    if (id < -1 || id >= tok->n_tokens) {
        return lrnn_refuse(err, err_size,
                "tokenizer.ggml.%s is %lld; expected a token from 0 to %d", key, (long long) id,
                (int) tok->n_tokens - 1);
    }
    *out = (int32_t) id;
    return true;
}

static bool load_flags(struct lrnn_tokenizer * tok, const struct lrnn_tokenizer_def * def,
        char * err, size_t err_size) {
    const bool is_spm = tok->kind == LRNN_TOKENIZER_SPM;

    tok->add_bos = def->add_bos < 0 ? is_spm && tok->bos_id >= 0 : def->add_bos != 0;
    tok->add_eos = def->add_eos > 0;
    tok->add_space_prefix =
            def->add_space_prefix < 0 ? is_spm : is_spm && def->add_space_prefix != 0;
    if (tok->add_bos && tok->bos_id < 0) {
        return lrnn_refuse(err, err_size,
                "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
    }
    if (tok->add_eos && tok->eos_id < 0) {
        return lrnn_refuse(err, err_size,
                "tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id");
    }
    return true;
}

// The set of the tokens of one or two types.
static bool build_trie(const struct lrnn_tokenizer * tok, int type_a, int type_b,
        struct lrnn_trie * trie, char * err, size_t err_size) {
    size_t n = 0;
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        n += tok->type[id] == type_a || tok->type[id] == type_b;
    }
    if (n == 0) {
        return true;
    }
    struct lrnn_trie_entry * entries = malloc(n * sizeof(*entries));
    if (entries == NULL) {
        return lrnn_refuse(err, err_size, "out of memory for %zu tokens", n);
    }
    n = 0;
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        if (tok->type[id] == type_a || tok->type[id] == type_b) {
            const struct lrnn_text s = lrnn_symbol_bytes(tok, id);
            entries[n++]             = (struct lrnn_trie_entry) { s.data, (uint32_t) s.size, id };
        }
    }
    int32_t    duplicate[2];
    const bool ok = lrnn_trie_build(trie, entries, n, duplicate);
    free(entries);
    if (ok) {
        return true;
    }
    return duplicate[0] >= 0
                   ? lrnn_refuse(err, err_size,
                             "tokenizer.ggml.tokens[%d] and [%d] stand for the same bytes",
                             (int) duplicate[0], (int) duplicate[1])
                   : lrnn_refuse(err, err_size, "out of memory for a trie of %zu tokens", n);
}

static bool tokenizer_load(struct lrnn_tokenizer * tok, const struct lrnn_tokenizer_def * def,
        char * err, size_t err_size) {
    if (!check_model(tok, def, err, err_size) || !load_tokens(tok, def, err, err_size) ||
            !load_id(tok, "bos_token_id", def->bos_id, &tok->bos_id, err, err_size) ||
            !load_id(tok, "eos_token_id", def->eos_id, &tok->eos_id, err, err_size) ||
            !load_id(tok, "unknown_token_id", def->unknown_id, &tok->unknown_id, err, err_size) ||
            !load_id(tok, "padding_token_id", def->padding_id, &tok->padding_id, err, err_size) ||
            !load_flags(tok, def, err, err_size)) {
        return false;
    }
    bool ok = false;
    switch (tok->kind) {
        case LRNN_TOKENIZER_SPM: ok = lrnn_spm_init(tok, def, err, err_size); break;
        case LRNN_TOKENIZER_BPE: ok = lrnn_bpe_init(tok, def, err, err_size); break;
        case LRNN_TOKENIZER_WORLD: ok = lrnn_world_init(tok, err, err_size); break;
        case LRNN_TOKENIZER_BYTES: ok = lrnn_bytes_init(tok, err, err_size); break;
        case LRNN_TOKENIZER_SYMBOLS: return lrnn_symbols_init(tok, err, err_size);
    }
    // the tries need nothing of the bytes, which may have moved, once they are built
    return ok &&
           build_trie(tok, LRNN_TOKEN_CONTROL, LRNN_TOKEN_UNKNOWN, &tok->control, err, err_size) &&
           build_trie(tok, LRNN_TOKEN_USER_DEFINED, LRNN_TOKEN_USER_DEFINED, &tok->user, err,
                   err_size);
}

bool lrnn_tokenizer_new(const struct lrnn_tokenizer_def * def, struct lrnn_tokenizer ** tok,
        char * err, size_t err_size) {
    *tok = calloc(1, sizeof(**tok));
    if (*tok == NULL) {
        return lrnn_refuse(err, err_size, "out of memory for a tokenizer");
    }
    if (!tokenizer_load(*tok, def, err, err_size)) {
        lrnn_tokenizer_free(*tok);
        *tok = NULL;
        return false;
    }
    return true;
}

void lrnn_tokenizer_free(struct lrnn_tokenizer * tok) {
    if (tok == NULL) {
        return;
    }
    lrnn_buffer_free(&tok->bytes);
    lrnn_merges_free(&tok->merges);
    lrnn_merges_free(&tok->joints);
    lrnn_trie_free(&tok->words);
    lrnn_trie_free(&tok->control);
    lrnn_trie_free(&tok->user);
    free(tok->slots);
    free(tok->offset);
    free(tok->type);
    free(tok);
}

int32_t lrnn_tokenizer_n_tokens(const struct lrnn_tokenizer * tok) {
    return tok->n_tokens;
}
int32_t lrnn_tokenizer_bos_id(const struct lrnn_tokenizer * tok) {
    return tok->bos_id;
}
int32_t lrnn_tokenizer_eos_id(const struct lrnn_tokenizer * tok) {
    return tok->eos_id;
}
int32_t lrnn_tokenizer_unknown_id(const struct lrnn_tokenizer * tok) {
    return tok->unknown_id;
}
int32_t lrnn_tokenizer_padding_id(const struct lrnn_tokenizer * tok) {
    return tok->padding_id;
}
bool lrnn_tokenizer_adds_bos(const struct lrnn_tokenizer * tok) {
    return tok->add_bos;
}
bool lrnn_tokenizer_adds_eos(const struct lrnn_tokenizer * tok) {
    return tok->add_eos;
}

//
// Text to ids
//

bool lrnn_ids_push(struct lrnn_ids * ids, int32_t id) {
    if (ids->n == ids->capacity) {
        const size_t capacity = ids->capacity < 64 ? 64 : ids->capacity * 2;
        int32_t *    p        = realloc(ids->data, capacity * sizeof(*p));
        if (p == NULL) {
            return false;
        }
        ids->data     = p;
        ids->capacity = capacity;
    }
    ids->data[ids->n++] = id;
    return true;
}

void lrnn_ids_free(struct lrnn_ids * ids) {
    free(ids->data);
    *ids = (struct lrnn_ids) { 0 };
}

typedef bool (*encode_fn)(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        struct lrnn_tokenize_work * w);

// Cuts the strings of a set out of the text, the longest first; what lies between them goes to
// `encode`.
static bool encode_between(const struct lrnn_tokenizer * tok, const struct lrnn_trie * trie,
        encode_fn encode, const char * text, size_t len, struct lrnn_tokenize_work * w) {
    const char * end   = text + len;
    const char * start = text; // of what is not encoded yet
    for (const char * p = text; trie->n_nodes > 0 && p < end;) {
        int32_t      id;
        const size_t n = lrnn_trie_longest(trie, p, end, &id);
        if (n == 0) {
            p++;
            continue;
        }
        if (!encode(tok, start, (size_t) (p - start), w) || !lrnn_ids_push(w->ids, id)) {
            return false;
        }
        p += n;
        start = p;
    }
    return encode(tok, start, (size_t) (end - start), w);
}

// Text without control tokens. Normalisation comes before user-defined tokens are looked for; SPM
// looks for them itself.
static bool encode_text(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        struct lrnn_tokenize_work * w) {
    switch (tok->kind) {
        case LRNN_TOKENIZER_SPM: return lrnn_spm_encode(tok, text, len, w);
        case LRNN_TOKENIZER_WORLD:
            return encode_between(tok, &tok->user, lrnn_world_encode, text, len, w);
        case LRNN_TOKENIZER_BYTES:
            return encode_between(tok, &tok->user, lrnn_bytes_encode, text, len, w);
        default: break;
    }
    if (!tok->nfc || lrnn_nfc_quick(text, len)) {
        return encode_between(tok, &tok->user, lrnn_bpe_encode, text, len, w);
    }
    w->text.n = 0;
    return lrnn_nfc(text, len, &w->text) &&
           encode_between(tok, &tok->user, lrnn_bpe_encode, w->text.data, w->text.n, w);
}

bool lrnn_tokenize(const struct lrnn_tokenizer * tok, const char * text, size_t len, unsigned flags,
        struct lrnn_ids * ids, char * err, size_t err_size) {
    if (len > LRNN_TOKENIZER_MAX_TEXT_LEN) {
        return lrnn_refuse(err, err_size, "the text has %zu bytes; expected at most %d", len,
                LRNN_TOKENIZER_MAX_TEXT_LEN);
    }
    const size_t n_before = ids->n;
    const bool   parse    = (flags & LRNN_TOKENIZE_PARSE_SPECIAL) != 0;
    const bool   bos      = (flags & LRNN_TOKENIZE_ADD_BOS) != 0 && tok->add_bos;
    const bool   eos      = (flags & LRNN_TOKENIZE_ADD_EOS) != 0 && tok->add_eos;
    lrnn_refuse(err, err_size, "out of memory for the tokens of a text of %zu bytes",
            len); // if nothing else is wrong

    struct lrnn_tokenize_work work     = { .ids = ids };
    struct lrnn_buffer        replaced = { 0 };

    bool ok = !bos || lrnn_ids_push(ids, tok->bos_id);
    if (ok && (tok->kind == LRNN_TOKENIZER_SPM || tok->kind == LRNN_TOKENIZER_BPE) &&
            lrnn_utf8_valid(text, len) != len) {
        ok   = lrnn_utf8_replace(text, len, tok->kind == LRNN_TOKENIZER_SPM, &replaced);
        text = replaced.data;
        len  = replaced.n;
    }
    if (ok && len > 0) {
        static const struct lrnn_trie none = { 0 };
        ok                                 = tok->kind == LRNN_TOKENIZER_SYMBOLS
                                                     ? lrnn_symbols_encode(tok, text, len, parse, &work, err, err_size)
                                                     : encode_between(
                               tok, parse ? &tok->control : &none, encode_text, text, len, &work);
    }
    ok = ok && (!eos || lrnn_ids_push(ids, tok->eos_id));

    lrnn_buffer_free(&replaced);
    lrnn_buffer_free(&work.text);
    lrnn_merge_work_free(&work.merge);
    if (!ok) {
        ids->n = n_before;
    } else if (err_size > 0) {
        err[0] = '\0';
    }
    return ok;
}

//
// Ids to text
//

enum lrnn_token_type lrnn_token_type_of(const struct lrnn_tokenizer * tok, int32_t id) {
    return id >= 0 && id < tok->n_tokens ? (enum lrnn_token_type) tok->type[id] : LRNN_TOKEN_UNUSED;
}

struct lrnn_text lrnn_token_bytes(const struct lrnn_tokenizer * tok, int32_t id) {
    return id >= 0 && id < tok->n_tokens ? lrnn_symbol_bytes(tok, id)
                                         : (struct lrnn_text) { "", 0 };
}

bool lrnn_token_is_hidden(const struct lrnn_tokenizer * tok, int32_t id) {
    const enum lrnn_token_type type = lrnn_token_type_of(tok, id);
    return type == LRNN_TOKEN_CONTROL || type == LRNN_TOKEN_UNKNOWN || type == LRNN_TOKEN_UNUSED;
}

size_t lrnn_token_n_bytes(const struct lrnn_tokenizer * tok, int32_t id) {
    const size_t size = lrnn_token_is_hidden(tok, id) ? 0 : lrnn_token_bytes(tok, id).size;
    return size > 0 && tok->kind == LRNN_TOKENIZER_SYMBOLS ? size + 1
                                                           : size; // with the space before it
}

struct lrnn_detokenizer {
    const struct lrnn_tokenizer * tok;
    unsigned                      flags;
    bool                          started; // something came out before
    size_t                        n_ready; // bytes of text that were handed out by the last call
    size_t                        n;       // bytes of text
    char                          text[];  // a token, a space, and the start of a character
};

struct lrnn_detokenizer * lrnn_detokenizer_new(const struct lrnn_tokenizer * tok, unsigned flags) {
    struct lrnn_detokenizer * d = malloc(sizeof(*d) + tok->max_len + 8);
    if (d != NULL) {
        d->tok   = tok;
        d->flags = flags;
        lrnn_detokenizer_reset(d);
    }
    return d;
}

void lrnn_detokenizer_free(struct lrnn_detokenizer * d) {
    free(d);
}

void lrnn_detokenizer_reset(struct lrnn_detokenizer * d) {
    d->started = (d->flags & LRNN_DETOKENIZE_CONTINUE) != 0;
    d->n_ready = 0;
    d->n       = 0;
}

// Drops what was handed out.
static void detokenizer_advance(struct lrnn_detokenizer * d) {
    memmove(d->text, d->text + d->n_ready, d->n - d->n_ready);
    d->n -= d->n_ready;
    d->n_ready = 0;
}

struct lrnn_text lrnn_detokenizer_push(struct lrnn_detokenizer * d, int32_t id) {
    detokenizer_advance(d);

    struct lrnn_text s = lrnn_token_bytes(d->tok, id);
    if (s.size > 0 &&
            (!lrnn_token_is_hidden(d->tok, id) || (d->flags & LRNN_DETOKENIZE_SPECIAL) != 0)) {
        if (d->started && d->tok->kind == LRNN_TOKENIZER_SYMBOLS) {
            d->text[d->n++] = ' ';
        }
        if (!d->started && d->tok->add_space_prefix && s.data[0] == ' ') {
            s.data++;
            s.size--;
        }
        d->started = true;
        memcpy(d->text + d->n, s.data, s.size);
        d->n += s.size;
    }
    d->n_ready = lrnn_utf8_complete(d->text, d->n);
    return (struct lrnn_text) { d->text, d->n_ready };
}

struct lrnn_text lrnn_detokenizer_end(struct lrnn_detokenizer * d) {
    detokenizer_advance(d);
    d->n_ready = d->n;
    return (struct lrnn_text) { d->text, d->n };
}
