// Byte-level BPE (gpt2): the pre-tokenizer cuts text into pieces; each byte of a piece is a symbol,
// and symbols are merged in the order of the list of merges.

#include "base/error.h"
#include "text/tokenizer-impl.h"

#include <string.h>

//
// GPT-2's alphabet
//
// Vocabularies write bytes as printable characters: a byte that is printable in Latin-1 represents
// itself; the others are U+0100 and up, in order.

// Returns the byte of a character, or -1.
static int alphabet_byte(uint32_t cp) {
    if (cp < 0x100) {
        return (cp >= '!' && cp <= '~') || (cp >= 0xA1 && cp != 0xAD) ? (int) cp : -1;
    }
    if (cp <= 0x120) { // 0x00 .. 0x20
        return (int) (cp - 0x100);
    }
    if (cp <= 0x142) { // 0x7F .. 0xA0
        return (int) (cp - 0x121 + 0x7F);
    }
    return cp == 0x143 ? 0xAD : -1;
}

static bool in_alphabet(struct slice text) {
    if (utf8_valid(text.data, text.size) != text.size) {
        return false;
    }
    bool         all = true;
    const char * end = text.data + text.size;
    for (const char * p = text.data; all && p < end;) {
        all = alphabet_byte(utf8_next(&p)) >= 0;
    }
    return all;
}

// Appends the bytes of a text in the alphabet. Returns false if out of memory.
static bool alphabet_decode(struct slice text, struct buffer * out) {
    bool         ok = true;
    const char * end = text.data + text.size;
    for (const char * p = text.data; ok && p < end;) {
        const char c = (char) alphabet_byte(utf8_next(&p));
        ok = buffer_append(out, &c, 1);
    }
    return ok;
}

// ---- Definition ---------------------------------------------------------------------------------

bool bpe_token(
        struct slice text, enum token_type type, struct buffer * out, struct lrnn_error * err) {
    // Added tokens are plain text. The reference library also treats tokens with a character
    // outside the alphabet as plain text.
    const bool ok = type == TOKEN_NORMAL && in_alphabet(text)
                            ? alphabet_decode(text, out)
                            : buffer_append(out, text.data, text.size);
    return ok ? true : error_no_memory(err, "the tokens");
}

static int32_t find_part(const struct tokenizer * tok, struct slice part, struct buffer * bytes) {
    bytes->n = 0;
    return in_alphabet(part) && alphabet_decode(part, bytes)
                   ? symbol_find(tok, bytes->data, bytes->n)
                   : -1;
}

static bool add_merge(struct tokenizer * tok, struct slice merge, size_t rank,
        struct buffer * bytes, struct lrnn_error * err) {
    char quote[QUOTE_SIZE];

    const char * space = merge.size > 0 ? memchr(merge.data, ' ', merge.size) : NULL;
    const size_t n = space != NULL ? (size_t) (space - merge.data) : 0;
    if (n == 0 || n + 1 == merge.size || memchr(space + 1, ' ', merge.size - n - 1) != NULL) {
        return error_bad_model(err,
                "tokenizer.ggml.merges[%zu] is %s; expected two tokens separated by one space",
                rank, slice_quote(quote, sizeof(quote), merge));
    }
    const struct slice part[2] = { { merge.data, n }, { space + 1, merge.size - n - 1 } };

    int32_t id[2];
    for (int i = 0; i < 2; ++i) {
        id[i] = find_part(tok, part[i], bytes);
        if (id[i] < 0) {
            return error_bad_model(err,
                    "tokenizer.ggml.merges[%zu] has the part %s, which is not a token", rank,
                    slice_quote(quote, sizeof(quote), part[i]));
        }
    }
    bytes->n = 0;
    if (!alphabet_decode(part[0], bytes) || !alphabet_decode(part[1], bytes)) {
        return error_no_memory(err, "the merges");
    }
    const int32_t result = symbol_find(tok, bytes->data, bytes->n);
    if (result < 0) {
        return error_bad_model(err, "tokenizer.ggml.merges[%zu] is %s, whose result is not a token",
                rank, slice_quote(quote, sizeof(quote), merge));
    }
    // if two merges have the same parts, the last one counts, as in the reference library
    return merges_put(&tok->merges, id[0], id[1], (uint32_t) rank, result) ||
           error_no_memory(err, "the merges");
}

bool bpe_init(struct tokenizer * tok, const struct tokenizer_def * def, struct lrnn_error * err) {
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        // other tokens are not results of merges
        if (tok->type[id] == TOKEN_NORMAL && in_alphabet(def->tokens[id]) &&
                !symbol_insert(tok, id, err)) {
            return false;
        }
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char c = (char) byte;
        tok->byte_id[byte] = symbol_find(tok, &c, 1);
        // bytes that never occur in UTF-8 may be missing
        if (tok->byte_id[byte] < 0 && byte != 0xC0 && byte != 0xC1 && byte < 0xF5) {
            return error_bad_model(
                    err, "tokenizer.ggml.tokens has no token for the byte 0x%02X", byte);
        }
    }

    struct buffer bytes = { 0 };
    bool          ok = true;
    for (size_t i = 0; ok && i < def->n_merges; ++i) {
        ok = add_merge(tok, def->merges[i], i, &bytes, err);
    }
    buffer_free(&bytes);
    return ok;
}

// ---- Text ---------------------------------------------------------------------------------------

static void encode_piece(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w) {
    // "ignore_merges" of Llama-3: a piece may be a token as a whole
    const bool    whole = tok->whole && len <= tok->max_len;
    const int32_t id = len == 1 ? tok->byte_id[(uint8_t) *text]
                       : whole  ? symbol_find(tok, text, len)
                                : -1;
    if (len == 1 || id >= 0) {
        work_push(w, id);
        return;
    }
    w->merge.n_symbols = 0;
    for (size_t i = 0; i < len; ++i) {
        w->no_memory |= !merge_work_push(&w->merge, tok->byte_id[(uint8_t) text[i]], (uint32_t) i);
    }
    w->no_memory |= !merge_symbols(&tok->merges, &w->merge);
    for (int32_t i = w->merge.n_symbols > 0 ? 0 : -1; i >= 0; i = w->merge.symbols[i].next) {
        work_push(w, w->merge.symbols[i].id);
    }
}

void bpe_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w) {
    const char * end = text + len;
    while (text < end) {
        const char * next = pre_tokenizer_next(tok->pre, text, end);
        encode_piece(tok, text, (size_t) (next - text), w);
        text = next;
    }
}
