// Byte spans: the number of bytes of the text that each token covers.

#include "base/error.h"
#include "lrnn.h"
#include "text/tokenizer-impl.h"

#include <inttypes.h>
#include <string.h>

// A text and the number of its bytes that tokens have covered so far.
struct cover {
    const char * text;
    size_t       size;
    size_t       at;
};

static bool starts_with(const struct cover * c, const char * bytes, size_t n) {
    return c->size - c->at >= n && memcmp(c->text + c->at, bytes, n) == 0;
}

//
// SentencePiece
//
// SentencePiece treats a space and U+2581 as equal. Where a token has a space, the text may have
// either. If the vocabulary has no token for a space, three byte tokens spell U+2581.

// in_mark: the number of bytes of such a U+2581 that are still to come
static size_t cover_spm(struct cover * c, struct slice token, bool is_byte, int * in_mark) {
    const size_t before = c->at;
    for (size_t i = 0; i < token.size; ++i) {
        const char b = token.data[i];
        if (*in_mark > 0) {
            --*in_mark; // the first byte of the mark has covered the space
        } else if (starts_with(c, &b, 1)) {
            c->at++;
        } else if (b == ' ' && starts_with(c, SPACE_MARK, SPACE_MARK_LEN)) {
            c->at += SPACE_MARK_LEN;
        } else if (is_byte && b == SPACE_MARK[0] && starts_with(c, " ", 1)) {
            c->at++;
            *in_mark = SPACE_MARK_LEN - 1;
        }
    }
    return c->at - before;
}

//
// Normalized text
//
// NFC never acts across the boundary between a non-ASCII character and an ASCII character after it.
// The text is cut into stretches at these boundaries, and each is normalized on its own to find the
// stretches whose length changes.

struct stretch {
    size_t start, raw;    // offset and size in the text
    size_t begin, normal; // offset and size after normalization
    bool   same;          // normalization changes nothing
};

static bool next_stretch(const struct cover * c, struct stretch * s, struct buffer * work) {
    const size_t start = s->start + s->raw;
    size_t       end = start;
    while (end < c->size && ((unsigned char) c->text[end] & 0x80) == 0) {
        end++;
    }
    while (end < c->size && ((unsigned char) c->text[end] & 0x80) != 0) {
        end++;
    }
    const size_t raw = end - start;
    size_t       normal = raw;
    bool         same = true;
    if (!nfc_quick_check(c->text + start, raw)) {
        work->n = 0;
        if (!nfc_normalize(c->text + start, raw, work)) {
            return false;
        }
        normal = work->n;
        same = normal == raw && memcmp(work->data, c->text + start, raw) == 0;
    }
    *s = (struct stretch) {
        .start = start, .raw = raw, .begin = s->begin + s->normal, .normal = normal, .same = same
    };
    return true;
}

// Converts offset `at` of the normalized text to an offset of the text. Offsets must not decrease
// from call to call.
static bool raw_offset(
        const struct cover * c, struct stretch * s, struct buffer * work, size_t at, size_t * raw) {
    while (at >= s->begin + s->normal && s->start + s->raw < c->size) {
        if (!next_stretch(c, s, work)) {
            return false;
        }
    }
    const size_t in = at - s->begin;
    *raw = s->start + (in >= s->normal ? s->raw : s->same || in < s->raw ? in : s->raw);
    return true;
}

// ---- Symbols ------------------------------------------------------------------------------------

static size_t cover_symbol(struct cover * c, bool last) {
    const size_t before = c->at;
    while (c->at < c->size && symbols_is_space(c->text[c->at])) {
        c->at++;
    }
    while (c->at < c->size && !symbols_is_space(c->text[c->at])) {
        c->at++;
    }
    if (last) {
        c->at = c->size;
    }
    return c->at - before;
}

bool tokenizer_spans(const struct tokenizer * tok, const char * text, size_t size,
        const int32_t * tokens, int64_t n_tokens, size_t * n_bytes, struct lrnn_error * err) {
    if (tok->nfc && utf8_valid(text, size) != size) {
        return error_bad_input(
                err, "the text is not valid UTF-8 at byte %zu", utf8_valid(text, size));
    }
    const bool     normalized = tok->nfc && !nfc_quick_check(text, size);
    struct cover   c = { .text = text, .size = size };
    struct stretch s = { .same = true };
    struct buffer  work = { 0 };
    size_t         normal = 0; // bytes of all tokens so far
    int            in_mark = 0;
    bool           ok = true;

    for (int64_t i = 0; i < n_tokens && ok; ++i) {
        struct slice token = tokenizer_token_bytes(tok, tokens[i]);
        size_t       n = token.size;
        if (tok->kind == TOKENIZER_SPM) {
            if (i == 0 && tok->add_space_prefix && token.size > 0 && token.data[0] == ' ') {
                token.data++;
                token.size--;
            }
            n = cover_spm(&c, token, tokenizer_token_type(tok, tokens[i]) == TOKEN_BYTE, &in_mark);
        } else if (tok->kind == TOKENIZER_SYMBOLS) {
            n = cover_symbol(&c, i == n_tokens - 1);
        } else if (normalized) {
            const size_t before = c.at;
            normal += token.size;
            ok = raw_offset(&c, &s, &work, normal, &c.at);
            n = c.at - before;
        } else if (starts_with(&c, token.data, token.size)) {
            c.at += token.size;
        } else {
            n = 0; // such as bos
        }
        n_bytes[i] = n;
    }
    buffer_free(&work);
    if (!ok) {
        return error_no_memory(err, "the NFC of a text of %zu bytes", size);
    }
    return n_tokens == 0 || c.at == size ||
           error_bad_input(err, "the %" PRId64 " tokens cover %zu bytes; the text has %zu",
                   n_tokens, c.at, size);
}
