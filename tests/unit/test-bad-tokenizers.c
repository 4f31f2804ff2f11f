// Wrong definitions are refused with a message that names the wrong part. Decoding: leading spaces,
// special tokens, incomplete characters.

#include "lrnn.h"
#include "base/read-file.h"
#include "kit/check.h"
#include "kit/tokenizer-data.h"

#define TEXT(s) ((struct slice) { s, sizeof(s) - 1 })

// A definition with arrays that can be changed.
struct draft {
    struct tokenizer_def def;
    struct slice *       tokens;
    int32_t *            types;
    float *              scores;
    struct slice *       merges;
};

struct refusal {
    const char * file;   // a valid definition
    const char * expect; // part of the message
    void (*change)(struct draft * d);
};

static char long_token[TOKENIZER_MAX_TOKEN_LEN + 1];

static void no_model(struct draft * d) {
    d->def.model = NULL;
}
static void odd_model(struct draft * d) {
    d->def.model = "bert";
}
static void no_pre(struct draft * d) {
    d->def.pre = NULL;
}
static void odd_pre(struct draft * d) {
    d->def.pre = "falcon";
}
static void odd_normalizer(struct draft * d) {
    d->def.normalizer = "nfkc";
}
static void spm_normalizer(struct draft * d) {
    d->def.normalizer = "nfc";
}
static void no_tokens(struct draft * d) {
    d->def.n_tokens = 0;
}
static void types_short(struct draft * d) {
    d->def.n_types--;
}
static void type_odd(struct draft * d) {
    d->types[300] = 7;
}
static void scores_short(struct draft * d) {
    d->def.n_scores--;
}
static void scores_none(struct draft * d) {
    d->def.scores = NULL;
}
static void score_nan(struct draft * d) {
    d->scores[300] = NAN;
}
static void bos_high(struct draft * d) {
    d->def.bos_id = (int64_t) d->def.n_tokens;
}
static void eos_negative(struct draft * d) {
    d->def.eos_id = -2;
}
static void unknown_u32(struct draft * d) {
    d->def.unknown_id = INT64_C(0xFFFFFFFF);
}
static void padding_high(struct draft * d) {
    d->def.padding_id = INT64_MAX;
}
static void bos_missing(struct draft * d) {
    d->def.bos_id = -1;
    d->def.add_bos = 1;
}
static void eos_missing(struct draft * d) {
    d->def.eos_id = -1;
    d->def.add_eos = 1;
}
static void token_empty(struct draft * d) {
    d->tokens[400].size = 0;
}
static void token_long(struct draft * d) {
    d->tokens[400] = (struct slice) { long_token, sizeof(long_token) };
}
static void token_twice(struct draft * d) {
    d->tokens[400] = d->tokens[401];
}
static void token_not_utf8(struct draft * d) {
    d->tokens[400] = TEXT("a\xFF");
}
static void byte_negative(struct draft * d) {
    d->types[400] = TOKEN_BYTE;
    d->tokens[400] = TEXT("<0x-1>");
}
static void byte_not_hex(struct draft * d) {
    d->types[400] = TOKEN_BYTE;
    d->tokens[400] = TEXT("<0xZZ>");
}
static void byte_256(struct draft * d) {
    d->types[400] = TOKEN_BYTE;
    d->tokens[400] = TEXT("<0x100>");
}
static void byte_twice(struct draft * d) {
    d->types[400] = TOKEN_BYTE;
    d->tokens[400] = TEXT("<0x41>");
}
static void bytes_none(struct draft * d) {
    for (size_t i = 0; i < d->def.n_tokens; ++i) {
        d->types[i] = d->types[i] == TOKEN_BYTE ? TOKEN_UNUSED : d->types[i];
    }
}
static void merge_no_space(struct draft * d) {
    d->merges[9] = TEXT("ab");
}
static void merge_spaces(struct draft * d) {
    d->merges[9] = TEXT("a b c");
}
static void merge_half(struct draft * d) {
    d->merges[9] = TEXT("a ");
}
static void merge_unknown(struct draft * d) {
    d->merges[9] = TEXT("qqqq b");
}
static void merge_result(struct draft * d) {
    d->merges[9] = TEXT("q \x7E");
}
static void byte_missing(struct draft * d) {
    d->tokens[2] = TEXT("qqqqq");
}
static void escape_cut(struct draft * d) {
    d->tokens[400] = TEXT("a\\");
}
static void escape_not_hex(struct draft * d) {
    d->tokens[400] = TEXT("\\x4");
}
static void bytes_order(struct draft * d) {
    d->tokens[65] = TEXT("<0x42>");
}
static void bytes_normal(struct draft * d) {
    d->types[256] = TOKEN_NORMAL;
}
static void bytes_few(struct draft * d) {
    d->def.n_tokens = d->def.n_types = 255;
    d->def.eos_id = -1;
}
static void symbol_space(struct draft * d) {
    d->tokens[5] = TEXT("g 5");
}
static void symbol_twice(struct draft * d) {
    d->tokens[5] = d->tokens[6];
}

static const struct refusal refusals[] = {
    { "spm", "tokenizer.ggml.model is missing", no_model },
    { "spm", "tokenizer.ggml.model is 'bert'", odd_model },
    { "spm", "lrnn.tokenizer.normalizer is 'nfc'", spm_normalizer },
    { "spm", "tokenizer.ggml.tokens has 0 tokens", no_tokens },
    { "spm", "tokenizer.ggml.token_type has", types_short },
    { "spm", "tokenizer.ggml.token_type[300] is 7", type_odd },
    { "spm", "tokenizer.ggml.scores has", scores_short },
    { "spm", "tokenizer.ggml.scores has 0 numbers", scores_none },
    { "spm", "tokenizer.ggml.scores[300]", score_nan },
    { "spm", "tokenizer.ggml.bos_token_id is", bos_high },
    { "spm", "tokenizer.ggml.eos_token_id is -2", eos_negative },
    { "spm", "unknown_token_id is 4294967295", unknown_u32 },
    { "spm", "tokenizer.ggml.padding_token_id is", padding_high },
    { "spm", "tokenizer.ggml.bos_token_id is missing", bos_missing },
    { "spm", "tokenizer.ggml.eos_token_id is missing", eos_missing },
    { "spm", "tokenizer.ggml.tokens[400] has 0 bytes", token_empty },
    { "spm", "tokenizer.ggml.tokens[400] has 4097", token_long },
    { "spm", "tokenizer.ggml.tokens[400] and [401]", token_twice },
    { "spm", "which is not UTF-8", token_not_utf8 },
    { "spm", "tokens[400] is the byte token '<0x-1>'", byte_negative },
    { "spm", "tokens[400] is the byte token '<0xZZ>'", byte_not_hex },
    { "spm", "tokens[400] is the byte token '<0x100>'", byte_256 },
    { "spm", "are both <0x41>", byte_twice },
    { "spm", "has no byte token <0x00>", bytes_none },
    { "gpt-2", "tokenizer.ggml.pre is missing", no_pre },
    { "gpt-2", "tokenizer.ggml.pre is 'falcon'", odd_pre },
    { "gpt-2", "lrnn.tokenizer.normalizer is 'nfkc'", odd_normalizer },
    { "gpt-2", "tokenizer.ggml.tokens[400] and [401]", token_twice },
    { "gpt-2", "tokenizer.ggml.merges[9] is 'ab'", merge_no_space },
    { "gpt-2", "tokenizer.ggml.merges[9] is 'a b c'", merge_spaces },
    { "gpt-2", "tokenizer.ggml.merges[9] is 'a '", merge_half },
    { "gpt-2", "has the part 'qqqq'", merge_unknown },
    { "gpt-2", "whose result is not a token", merge_result },
    { "gpt-2", "no token for the byte 0x21", byte_missing },
    { "rwkv", "with an incomplete escape", escape_cut },
    { "rwkv", "with an incomplete escape", escape_not_hex },
    { "rwkv", "are the same bytes", token_twice },
    { "bytes", "tokenizer.ggml.tokens[65]", bytes_order },
    { "bytes", "tokenizer.ggml.tokens[256]", bytes_normal },
    { "bytes", "expected at least the 256 bytes", bytes_few },
    { "symbols", "tokenizer.ggml.tokens[5]", symbol_space },
    { "symbols", "tokenizer.ggml.tokens[5] and [6]", symbol_twice },
};

struct loaded {
    char *                file;
    struct tokenizer_data data;
    struct draft          draft;
};

static void * copy(const void * p, size_t size) {
    void * out = malloc(size > 0 ? size : 1);
    return out != NULL && size > 0 ? memcpy(out, p, size) : out;
}

static bool load(struct loaded * l, const char * name) {
    char              path[4096];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    size_t            size;
    snprintf(path, sizeof(path), "%s/%s.bin", LRNN_TOKENIZER_DATA, name);
    memset(l, 0, sizeof(*l));
    if (!read_file(path, &l->file, &size, &err) || !tokenizer_data_read(&l->data, l->file, size)) {
        return false;
    }
    struct draft * d = &l->draft;
    d->def = l->data.def;
    d->def.tokens = d->tokens = copy(d->def.tokens, d->def.n_tokens * sizeof(*d->tokens));
    d->def.types = d->types = copy(d->def.types, d->def.n_types * sizeof(*d->types));
    d->def.scores = d->scores = copy(d->def.scores, d->def.n_scores * sizeof(*d->scores));
    d->def.merges = d->merges = copy(d->def.merges, d->def.n_merges * sizeof(*d->merges));
    return d->tokens != NULL && d->types != NULL && d->scores != NULL && d->merges != NULL;
}

static void unload(struct loaded * l) {
    free(l->draft.tokens);
    free(l->draft.types);
    free(l->draft.scores);
    free(l->draft.merges);
    tokenizer_data_free(&l->data);
    free(l->file);
}

static void check_refusal(struct test * t, const struct refusal * r) {
    struct loaded      l;
    struct tokenizer * tok = NULL;
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    if (test_check(t, load(&l, r->file), "%s: cannot be read", r->file)) {
        r->change(&l.draft);
        const bool ok = tokenizer_new(&l.draft.def, &tok, &err);
        test_check(t,
                !ok && tok == NULL && strstr(err.text, r->expect) != NULL &&
                        strchr(err.text, '\n') == NULL,
                "%s: expected \"%s\", got \"%s\"", r->file, r->expect, ok ? "accepted" : err.text);
        tokenizer_free(tok);
    }
    unload(&l);
}

//
// Decoding
//

static void check_text(struct test * t, const struct tokenizer * tok, bool continues,
        const int32_t * ids, size_t n, const char * want) {
    char                  got[256];
    size_t                size = 0;
    struct lrnn_decoder * d = decoder_new(tok, continues);
    for (size_t i = 0; i <= n; ++i) {
        const struct slice s = i < n ? decode(d, ids[i]) : decode_end(d);
        memcpy(got + size, s.data, s.size);
        size += s.size;
    }
    got[size] = '\0';
    test_check(t, strcmp(got, want) == 0, "%s: expected \"%s\", got \"%s\"",
            continues ? "continued" : "from the start", want, got);
    lrnn_decoder_free(d);
}

static void check_decoder(struct test * t) {
    struct loaded      l;
    struct tokenizer * tok;
    struct token_ids   ids = { 0 };
    struct lrnn_error  err;

    if (test_check(t, load(&l, "spm") && tokenizer_new(&l.draft.def, &tok, &err),
                "spm: cannot be read")) {
        test_check(t,
                tokenizer_encode(tok, "state one", 9, LRNN_TOKENIZE_ADD_BOS | LRNN_TOKENIZE_ADD_EOS,
                        &ids, &err) &&
                        ids.data[0] == 1,
                "%s", err.text);
        check_text(t, tok, false, ids.data, ids.n, "state one");
        check_text(t, tok, true, ids.data, ids.n, " state one");
        check_text(t, tok, false, (const int32_t[]) { -1, INT32_MAX, 0 }, 3, "");
        test_check(t,
                tokenizer_is_special(tok, ids.data[0]) &&
                        slice_is(tokenizer_token_bytes(tok, ids.data[0]), "<s>"),
                "the name of bos is not <s>");

        // U+20AC byte by byte comes out with its last byte; then incomplete characters
        int32_t bytes[256] = { 0 };
        for (int32_t id = 0; id < tokenizer_n_tokens(tok); ++id) {
            if (tokenizer_token_type(tok, id) == TOKEN_BYTE) {
                bytes[(uint8_t) tokenizer_token_bytes(tok, id).data[0]] = id;
            }
        }
        struct lrnn_decoder * d = decoder_new(tok, false);
        static const struct {
            uint8_t byte;
            size_t  size;
        } steps[] = {
            { 'x', 1 },
            { 0xE2, 0 },
            { 0x82, 0 },
            { 0xAC, 3 },
            { 0xF0, 0 },
            { 0x9F, 0 },
            { 'y', 3 },
            { 0x80, 1 },
            { 0xC3, 0 },
        };
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
            const size_t size = decode(d, bytes[steps[i].byte]).size;
            test_check(t, size == steps[i].size, "step %zu: %zu bytes decoded, expected %zu", i,
                    size, steps[i].size);
        }
        test_check(t, decode_end(d).size == 1, "the last byte was not decoded");
        lrnn_decoder_free(d);
        tokenizer_free(tok);
    }
    unload(&l);

    ids.n = 0;
    if (test_check(t, load(&l, "symbols") && tokenizer_new(&l.draft.def, &tok, &err),
                "symbols: cannot be read")) {
        test_check(t, tokenizer_encode(tok, "g1\ng2  =", 8, 0, &ids, &err), "%s", err.text);
        check_text(t, tok, false, ids.data, ids.n, "g1 g2 =");
        check_text(t, tok, true, ids.data, ids.n, " g1 g2 =");

        // a refused text leaves the ids unchanged
        const size_t n = ids.n;
        test_check(t,
                !tokenizer_encode(tok, "g1 g77", 6, 0, &ids, &err) && ids.n == n &&
                        strstr(err.text, "'g77'") != NULL,
                "%s", err.text);
        tokenizer_free(tok);
    }
    unload(&l);
    token_ids_free(&ids);
}

int main(void) {
    struct test t = { 0 };
    memset(long_token, 'a', sizeof(long_token));
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); ++i) {
        check_refusal(&t, &refusals[i]);
    }
    check_decoder(&t);
    return test_end(&t, "test-bad-tokenizers");
}
