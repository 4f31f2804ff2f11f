// Tokenizers small enough to know their ids by hand: merges whose order is not that of the ids,
// tokens without merges, user-defined tokens, SentencePiece without a token for the space.

#include "kit/check.h"
#include "lrnn.h"
#include "model/model.h"
#include "text/tokenizer-impl.h"
#include "text/tokenizer.h"

enum { N_BYTES = 256, MAX_TOKENS = 320 };

struct vocabulary {
    char         text[MAX_TOKENS][16];
    struct slice tokens[MAX_TOKENS];
    int32_t      types[MAX_TOKENS];
    float        scores[MAX_TOKENS];
    int32_t      n;
};

static int32_t add(struct vocabulary * v, const char * text, enum token_type type, float score) {
    snprintf(v->text[v->n], sizeof(v->text[0]), "%s", text);
    v->tokens[v->n] = (struct slice) { v->text[v->n], strlen(text) };
    v->types[v->n] = type;
    v->scores[v->n] = score;
    return v->n++;
}

static struct tokenizer * make(
        struct test * t, const struct vocabulary * v, struct tokenizer_def def) {
    struct tokenizer * tok = NULL;
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    def.tokens = v->tokens;
    def.types = v->types;
    def.scores = v->scores;
    def.n_tokens = (size_t) v->n;
    def.n_types = (size_t) v->n;
    def.n_scores = (size_t) v->n;
    test_check(t, tokenizer_new(&def, &tok, &err), "%s", err.text);
    return tok;
}

static void check_ids(struct test * t, const struct tokenizer * tok, const char * text,
        const int32_t * expected, size_t n) {
    struct token_ids  ids = { 0 };
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    if (tok != NULL && test_check(t, tokenizer_encode(tok, text, strlen(text), 0, &ids, &err),
                               "'%s': %s", text, err.text)) {
        test_check(t, ids.n == n, "'%s': %zu tokens, expected %zu", text, ids.n, n);
        for (size_t i = 0; i < n && i < ids.n; ++i) {
            test_check(t, ids.data[i] == expected[i], "'%s': token %zu is %d, expected %d", text, i,
                    ids.data[i], expected[i]);
        }
    }
    token_ids_free(&ids);
}

#define IDS(...) \
    (const int32_t[]){ __VA_ARGS__ }, sizeof((const int32_t[]) { __VA_ARGS__ }) / sizeof(int32_t)

//
// Byte-level BPE
//

// The 256 bytes in GPT-2's alphabet: printable ones as Latin-1, the others from U+0100 on.
static void add_alphabet(struct vocabulary * v) {
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < N_BYTES; ++byte) {
        const bool     printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        const unsigned cp = printable ? byte : next++;
        char           text[3] = { (char) cp };
        if (cp >= 0x80) {
            text[0] = (char) (0xC0 | cp >> 6);
            text[1] = (char) (0x80 | (cp & 0x3F));
        }
        add(v, text, TOKEN_NORMAL, 0.0f);
    }
}

static void test_merge_order(struct test * t) {
    static const struct slice merges[] = { { "b c", 3 }, { "a b", 3 }, { "c d", 3 },
        { "a bc", 4 } };
    static struct vocabulary  v;
    add_alphabet(&v);
    // the ids rise where the ranks fall
    const int32_t cd = add(&v, "cd", TOKEN_NORMAL, 0.0f), ab = add(&v, "ab", TOKEN_NORMAL, 0.0f);
    const int32_t abc = add(&v, "abc", TOKEN_NORMAL, 0.0f), bc = add(&v, "bc", TOKEN_NORMAL, 0.0f);
    struct tokenizer_def def = TOKENIZER_DEF_NONE;
    def.model = "gpt2";
    def.pre = "gpt-2";
    def.merges = merges;
    def.n_merges = sizeof(merges) / sizeof(merges[0]);
    struct tokenizer * tok = make(t, &v, def);
    check_ids(t, tok, "ab", IDS(ab));
    check_ids(t, tok, "abb", IDS(ab, 'b'));
    check_ids(t, tok, "bcd", IDS(bc, 'd')); // "b c" comes before "c d"
    check_ids(t, tok, "abc", IDS(abc));     // "b c", then "a bc"
    check_ids(t, tok, "abcd", IDS(abc, 'd'));
    check_ids(t, tok, "abd", IDS(ab, 'd'));
    check_ids(t, tok, "acd", IDS('a', cd));
    check_ids(t, tok, "bcbc", IDS(bc, bc));
    tokenizer_free(tok);
}

// A token without merges: only Llama 3 and its relatives look up whole pieces. U+00AD is not in the
// alphabet, in which U+0143 is the byte 0xAD: a token with it is plain text.
static void test_pieces_and_alphabet(struct test * t) {
    static const struct slice merges[] = { { "x y", 3 } };
    static struct vocabulary  v;
    add_alphabet(&v);
    const int32_t        xy = add(&v, "xy", TOKEN_NORMAL, 0.0f);
    const int32_t        xyz = add(&v, "xyz", TOKEN_NORMAL, 0.0f);
    const int32_t        plain = add(&v, "\xC2\xADq", TOKEN_NORMAL, 0.0f);
    const int32_t        byte = add(&v, "\xC5\x83q", TOKEN_NORMAL, 0.0f);
    struct tokenizer_def def = TOKENIZER_DEF_NONE;
    def.model = "gpt2";
    def.merges = merges;
    def.n_merges = 1;
    def.pre = "gpt-2";
    struct tokenizer * tok = make(t, &v, def);
    check_ids(t, tok, "xyz", IDS(xy, 'z'));
    test_check(t, slice_is(tokenizer_token_bytes(tok, plain), "\xC2\xADq"), "U+00AD was decoded");
    test_check(t, slice_is(tokenizer_token_bytes(tok, byte), "\xADq"), "U+0143 was not decoded");
    tokenizer_free(tok);

    // where whole pieces are looked up, and bos is added by default, as in llama.cpp
    static const struct {
        const char * pre;
        bool         whole, bos;
    } names[] = { { "llama-bpe", true, true }, { "pixtral", true, true },
        { "falcon-h1", true, true }, { "lfm2", true, true }, { "kimi-k2", true, false },
        { "dbrx", false, false }, { "bailingmoe2", false, false }, { "qwen2", false, false } };
    def.bos_id = xy;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        def.pre = names[i].pre;
        tok = make(t, &v, def);
        if (names[i].whole) {
            check_ids(t, tok, "xyz", IDS(xyz));
        } else {
            check_ids(t, tok, "xyz", IDS(xy, 'z'));
        }
        check_ids(t, tok, "xyzz", IDS(xy, 'z', 'z'));
        test_check(t, tok != NULL && tokenizer_adds_bos(tok) == names[i].bos, "%s: bos is %sadded",
                def.pre, names[i].bos ? "not " : "");
        tokenizer_free(tok);
    }
}

//
// SentencePiece
//

enum { SPM_BYTES = 1 }; // id of <0x00>

static int32_t byte_id(unsigned byte) {
    return SPM_BYTES + (int32_t) byte;
}

// A definition without a space prefix, and the tokens that every vocabulary has.
static struct tokenizer_def spm(struct vocabulary * v) {
    struct tokenizer_def def = TOKENIZER_DEF_NONE;
    char                 text[8];
    def.model = "llama";
    def.unknown_id = add(v, "<unk>", TOKEN_UNKNOWN, 0.0f);
    def.add_bos = 0;
    def.add_space_prefix = 0;
    for (unsigned byte = 0; byte < N_BYTES; ++byte) {
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        add(v, text, TOKEN_BYTE, 0.0f);
    }
    return def;
}

static void check_spans(struct test * t, struct tokenizer * tok, const char * text,
        const int32_t * expected, size_t n) {
    struct lrnn_model model = { .tokenizer = tok };
    struct token_ids  ids = { 0 };
    size_t            bytes[32];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    if (tok != NULL &&
            test_check(t,
                    tokenizer_encode(tok, text, strlen(text), 0, &ids, &err) && ids.n == n &&
                            lrnn_token_spans(&model, text, strlen(text), ids.data, (int64_t) ids.n,
                                    bytes, &err),
                    "'%s': %zu tokens, %s", text, ids.n, err.text)) {
        for (size_t i = 0; i < n; ++i) {
            test_check(t, bytes[i] == (size_t) expected[i],
                    "'%s': token %zu covers %zu bytes, expected %d", text, i, bytes[i],
                    expected[i]);
        }
    }
    token_ids_free(&ids);
}

// A space becomes U+2581. If no token has this character, its three bytes are the tokens.
static void test_no_space_token(struct test * t) {
    static struct vocabulary v;
    struct tokenizer_def     def = spm(&v);
    const int32_t a = add(&v, "a", TOKEN_NORMAL, -3.0f), b = add(&v, "b", TOKEN_NORMAL, -4.0f);
    const int32_t ab = add(&v, "ab", TOKEN_NORMAL, -1.0f), ba = add(&v, "ba", TOKEN_NORMAL, -2.0f);
    const int32_t m1 = byte_id(0xE2), m2 = byte_id(0x96), m3 = byte_id(0x81);
    struct tokenizer * tok = make(t, &v, def);
    check_ids(t, tok, "a b", IDS(a, m1, m2, m3, b));
    check_ids(t, tok, " ", IDS(m1, m2, m3));
    check_ids(t, tok, "aba", IDS(ab, a)); // the higher score wins
    check_ids(t, tok, "bab", IDS(b, ab));
    check_ids(t, tok, "bba", IDS(b, ba));
    check_ids(t, tok, "a\xC3\xA9", IDS(a, byte_id(0xC3), byte_id(0xA9)));
    check_spans(t, tok, "a b", IDS(1, 1, 0, 0, 1));
    check_spans(t, tok, "  ab", IDS(1, 0, 0, 1, 0, 0, 2));
    check_spans(t, tok,
            "a\xE2\x96\x81"
            "b",
            IDS(1, 1, 1, 1, 1)); // U+2581 in the text itself
    check_spans(t, tok, "a \xC3\xA9", IDS(1, 1, 0, 0, 1, 1));
    tokenizer_free(tok);

    def.add_space_prefix = 1;
    tok = make(t, &v, def);
    check_ids(t, tok, "a b", IDS(m1, m2, m3, a, m1, m2, m3, b));
    check_spans(t, tok, "a b", IDS(0, 0, 0, 1, 1, 0, 0, 1));
    tokenizer_free(tok);
}

// A user-defined token is found first and never merged with its neighbors.
static void test_user_defined(struct test * t) {
    static struct vocabulary v;
    struct tokenizer_def     def = spm(&v);
    const int32_t a = add(&v, "a", TOKEN_NORMAL, -4.0f), b = add(&v, "b", TOKEN_NORMAL, -5.0f);
    const int32_t c = add(&v, "c", TOKEN_NORMAL, -6.0f);
    const int32_t ab = add(&v, "ab", TOKEN_USER_DEFINED, 0.0f);
    const int32_t bc = add(&v, "bc", TOKEN_NORMAL, -2.0f);
    add(&v, "abc", TOKEN_NORMAL, -1.0f);
    const int32_t u = add(&v, "u", TOKEN_USER_DEFINED, 0.0f); // a single character
    add(&v, "au", TOKEN_NORMAL, -1.0f);
    struct tokenizer * tok = make(t, &v, def);
    check_ids(t, tok, "abc", IDS(ab, c));
    check_ids(t, tok, "bc", IDS(bc));
    check_ids(t, tok, "aabcb", IDS(a, ab, c, b));
    check_ids(t, tok, "au", IDS(a, u));
    tokenizer_free(tok);
}

// The pieces of the library tokenizers, separated by |. Ids show a wrong cut only if a merge
// crosses it.
static void test_pieces_of_kimi(struct test * t) {
    static const char * const texts[] = {
        "Hello|World's| ABCdef| ABC",
        "\u0301|ABC| \u0301abc", // a mark alone, before upper case
        "\u4e2d\u6587|English|\u6df7\u5408",
        "\u05d0|A|123|4", // a letter without case
        "\u4e2d|'S| x",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
        char   text[64];
        char   found[64];
        size_t n = 0, n_found = 0;
        for (const char * p = texts[i]; *p != '\0'; ++p) {
            if (*p != '|') {
                text[n++] = *p;
            }
        }
        for (const char * p = text; p < text + n;) {
            const char * next = pre_tokenizer_next(PRE_TOKENIZER_KIMI, p, text + n);
            n_found += (size_t) snprintf(found + n_found, sizeof(found) - n_found, "%s%.*s",
                    p > text ? "|" : "", (int) (next - p), p);
            p = next;
        }
        test_check(t, strcmp(found, texts[i]) == 0, "%s was cut as %s", texts[i], found);
    }
}

int main(void) {
    struct test t = { 0 };
    test_pieces_of_kimi(&t);
    test_merge_order(&t);
    test_pieces_and_alphabet(&t);
    test_user_defined(&t);
    test_no_space_token(&t);
    return test_end(&t, "test-tokenizers-by-hand");
}
