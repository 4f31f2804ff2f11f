#include "text/tokenizer-impl.h"

#include <string.h>

// Byte-level BPE: text is cut into pieces, each byte of a piece is a symbol, and symbols are merged
// in the order of the list of merges.

//
// GPT-2's alphabet
//
// Vocabularies write bytes as printable characters: a byte that is printable in Latin-1 stands for
// itself, the others are U+0100 and up in their order.

static int alphabet_byte(uint32_t cp) { // -1: not in the alphabet
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

static bool in_alphabet(struct lrnn_text text) {
    if (lrnn_utf8_valid(text.data, text.size) != text.size) {
        return false;
    }
    bool         all = true;
    const char * end = text.data + text.size;
    for (const char * p = text.data; all && p < end;) {
        all = alphabet_byte(lrnn_utf8_next(&p)) >= 0;
    }
    return all;
}

// Appends the bytes that a text of the alphabet stands for. False: out of memory.
static bool alphabet_decode(struct lrnn_text text, struct lrnn_buffer * out) {
    bool         ok  = true;
    const char * end = text.data + text.size;
    for (const char * p = text.data; ok && p < end;) {
        const char c = (char) alphabet_byte(lrnn_utf8_next(&p));
        ok           = lrnn_buffer_append(out, &c, 1);
    }
    return ok;
}

//
// Definition
//

bool lrnn_bpe_token(struct lrnn_text text, enum lrnn_token_type type, struct lrnn_buffer * out,
        char * err, size_t err_size) {
    // added tokens are written as they are, and so does the reference library read a token with a
    // character outside the alphabet
    const bool ok = type == LRNN_TOKEN_NORMAL && in_alphabet(text)
                            ? alphabet_decode(text, out)
                            : lrnn_buffer_append(out, text.data, text.size);
    return ok ? true : lrnn_refuse(err, err_size, "out of memory for the tokens");
}

static int32_t find_part(
        const struct lrnn_tokenizer * tok, struct lrnn_text part, struct lrnn_buffer * bytes) {
    bytes->n = 0;
    return in_alphabet(part) && alphabet_decode(part, bytes)
                   ? lrnn_symbol_find(tok, bytes->data, bytes->n)
                   : -1;
}

static bool add_merge(struct lrnn_tokenizer * tok, struct lrnn_text merge, size_t rank,
        struct lrnn_buffer * bytes, char * err, size_t err_size) {
    char quote[LRNN_QUOTE_SIZE];

    const char * space = merge.size > 0 ? memchr(merge.data, ' ', merge.size) : NULL;
    const size_t n     = space != NULL ? (size_t) (space - merge.data) : 0;
    if (n == 0 || n + 1 == merge.size || memchr(space + 1, ' ', merge.size - n - 1) != NULL) {
        return lrnn_refuse(err, err_size,
                "tokenizer.ggml.merges[%zu] is %s; expected two tokens with one space between them",
                rank, lrnn_text_quote(quote, sizeof(quote), merge));
    }
    const struct lrnn_text part[2] = { { merge.data, n }, { space + 1, merge.size - n - 1 } };

    int32_t id[2];
    for (int i = 0; i < 2; ++i) {
        id[i] = find_part(tok, part[i], bytes);
        if (id[i] < 0) {
            return lrnn_refuse(err, err_size,
                    "tokenizer.ggml.merges[%zu] has the part %s, which is not a token", rank,
                    lrnn_text_quote(quote, sizeof(quote), part[i]));
        }
    }
    bytes->n = 0;
    if (!alphabet_decode(part[0], bytes) || !alphabet_decode(part[1], bytes)) {
        return lrnn_refuse(err, err_size, "out of memory for the merges");
    }
    const int32_t result = lrnn_symbol_find(tok, bytes->data, bytes->n);
    if (result < 0) {
        return lrnn_refuse(err, err_size,
                "tokenizer.ggml.merges[%zu] is %s, whose result is not a token", rank,
                lrnn_text_quote(quote, sizeof(quote), merge));
    }
    // of two merges of the same parts the last one counts, as in the reference library
    return lrnn_merges_put(&tok->merges, id[0], id[1], (uint32_t) rank, result) ||
           lrnn_refuse(err, err_size, "out of memory for the merges");
}

bool lrnn_bpe_init(struct lrnn_tokenizer * tok, const struct lrnn_tokenizer_def * def, char * err,
        size_t err_size) {
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        // others are never made from text
        if (tok->type[id] == LRNN_TOKEN_NORMAL && in_alphabet(def->tokens[id]) &&
                !lrnn_symbol_insert(tok, id, err, err_size)) {
            return false;
        }
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char c       = (char) byte;
        tok->byte_id[byte] = lrnn_symbol_find(tok, &c, 1);
        // the bytes that UTF-8 does not have never occur, and vocabularies may lack them
        if (tok->byte_id[byte] < 0 && byte != 0xC0 && byte != 0xC1 && byte < 0xF5) {
            return lrnn_refuse(
                    err, err_size, "tokenizer.ggml.tokens has no token for the byte 0x%02X", byte);
        }
    }

    struct lrnn_buffer bytes = { 0 };
    bool               ok    = true;
    for (size_t i = 0; ok && i < def->n_merges; ++i) {
        ok = add_merge(tok, def->merges[i], i, &bytes, err, err_size);
    }
    lrnn_buffer_free(&bytes);
    return ok;
}

//
// Text
//

static bool encode_piece(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        struct lrnn_tokenize_work * w) {
    if (len == 1) {
        return lrnn_ids_push(w->ids, tok->byte_id[(uint8_t) *text]);
    }
    if (tok->pre ==
            LRNN_PRETOK_LLAMA3) { // a piece that is a token needs no merges to be one ("ignore_merges")
        const int32_t id = len <= tok->max_len ? lrnn_symbol_find(tok, text, len) : -1;
        if (id >= 0) {
            return lrnn_ids_push(w->ids, id);
        }
    }
    w->merge.n_symbols = 0;
    for (size_t i = 0; i < len; ++i) {
        if (!lrnn_merge_work_push(&w->merge, tok->byte_id[(uint8_t) text[i]], (uint32_t) i)) {
            return false;
        }
    }
    bool ok = lrnn_merge(&tok->merges, &w->merge);
    for (int32_t i = 0; ok && i >= 0; i = w->merge.symbols[i].next) {
        ok = lrnn_ids_push(w->ids, w->merge.symbols[i].id);
    }
    return ok;
}

bool lrnn_bpe_encode(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        struct lrnn_tokenize_work * w) {
    const char * end = text + len;
    while (text < end) {
        const char * next = lrnn_pretok_next(tok->pre, text, end);
        if (!encode_piece(tok, text, (size_t) (next - text), w)) {
            return false;
        }
        text = next;
    }
    return true;
}
