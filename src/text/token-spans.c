// How many bytes of its text each token covers.

#include "lrnn.h"
#include "run/model.h"
#include "text/tokenizer-impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char SPACE_MARK[3] = { '\xE2', '\x96', '\x81' }; // U+2581

// The document and how far tokens have covered it.
struct cover {
    const char * text;
    size_t       size;
    size_t       at;
};

static bool starts_with(const struct cover * c, const char * bytes, size_t n) {
    return c->size - c->at >= n && memcmp(c->text + c->at, bytes, n) == 0;
}

//
// SentencePiece. A space and U+2581 are one symbol to it: in the text either may stand where a
// token has a space, and where the vocabulary has no token for it, the three bytes of U+2581 do.
//

static size_t cover_spm(struct cover * c, struct slice token, bool is_byte, int * in_mark) {
    const size_t before = c->at;
    for (size_t i = 0; i < token.size; ++i) {
        const char b = token.data[i];
        if (*in_mark >
                0) { // the rest of a mark written in bytes, which the first of them has covered
            --*in_mark;
        } else if (starts_with(c, &b, 1)) {
            c->at++;
        } else if (b == ' ' && starts_with(c, SPACE_MARK, sizeof(SPACE_MARK))) {
            c->at += sizeof(SPACE_MARK);
        } else if (is_byte && b == SPACE_MARK[0] && starts_with(c, " ", 1)) {
            c->at++;
            *in_mark = 2;
        }
    }
    return c->at - before;
}

//
// Normalised text. NFC changes nothing across the beginning of an ASCII character that follows
// another kind of character: such stretches are normalised one by one, to see which of them changed
// in length.
//

struct stretch {
    size_t start, raw;    // in the text, its beginning and its bytes
    size_t begin, normal; // the same after normalisation
    bool   same;          // nothing changed
};

static bool next_stretch(const struct cover * c, struct stretch * s, struct buffer * work) {
    const size_t start = s->start + s->raw;
    size_t       end   = start;
    while (end < c->size && ((unsigned char) c->text[end] & 0x80) == 0) {
        end++;
    }
    while (end < c->size && ((unsigned char) c->text[end] & 0x80) != 0) {
        end++;
    }
    const size_t raw    = end - start;
    size_t       normal = raw;
    bool         same   = true;
    if (!nfc_quick_check(c->text + start, raw)) {
        work->n = 0;
        if (!nfc_normalize(c->text + start, raw, work)) {
            return false;
        }
        normal = work->n;
        same   = normal == raw && memcmp(work->data, c->text + start, raw) == 0;
    }
    *s = (struct stretch) {
        .start = start, .raw = raw, .begin = s->begin + s->normal, .normal = normal, .same = same
    };
    return true;
}

// Byte `at` of the normalised text as a byte of the text. Calls come in ascending order.
static bool raw_offset(
        const struct cover * c, struct stretch * s, struct buffer * work, size_t at, size_t * raw) {
    while (at >= s->begin + s->normal && s->start + s->raw < c->size) {
        if (!next_stretch(c, s, work)) {
            return false;
        }
    }
    const size_t in = at - s->begin;
    *raw            = s->start + (in >= s->normal ? s->raw : s->same || in < s->raw ? in : s->raw);
    return true;
}

static bool is_space(char b) {
    return b == ' ' || (b >= '\t' && b <= '\r');
}

static size_t cover_symbol(struct cover * c, bool last) {
    const size_t before = c->at;
    while (c->at < c->size && is_space(c->text[c->at])) {
        c->at++;
    }
    while (c->at < c->size && !is_space(c->text[c->at])) {
        c->at++;
    }
    if (last) {
        c->at = c->size;
    }
    return c->at - before;
}

bool lrnn_token_spans(const struct lrnn_model * model, const char * text, size_t size,
        const int32_t * tokens, int64_t n_tokens, size_t * n_bytes, char * err, size_t err_size) {
    const struct tokenizer * tok = model->tokenizer;
    if (tok == NULL) {
        return error_set(err, err_size, "the model has no tokenizer; it works on token ids only");
    }
    const bool     normalised = tok->nfc && !nfc_quick_check(text, size);
    struct cover   c          = { .text = text, .size = size };
    struct stretch s          = { .same = true };
    struct buffer  work       = { 0 };
    size_t         normal     = 0; // bytes of the tokens so far
    int            in_mark    = 0;
    bool           ok         = true;

    for (int64_t i = 0; i < n_tokens && ok; ++i) {
        struct slice token = tokenizer_token_bytes(tok, tokens[i]);
        size_t       n     = token.size;
        if (tok->kind == TOKENIZER_SPM) {
            if (i == 0 && tok->add_space_prefix && token.size > 0 && token.data[0] == ' ') {
                token.data++;
                token.size--;
            }
            n = cover_spm(&c, token, tokenizer_token_type(tok, tokens[i]) == TOKEN_BYTE, &in_mark);
        } else if (tok->kind == TOKENIZER_SYMBOLS) {
            n = cover_symbol(&c, i == n_tokens - 1);
        } else if (normalised) {
            const size_t before = c.at;
            normal += token.size;
            ok = raw_offset(&c, &s, &work, normal, &c.at);
            n  = c.at - before;
        } else if (starts_with(&c, token.data, token.size)) {
            c.at += token.size;
        }
        n_bytes[i] = n;
    }
    buffer_free(&work);
    if (!ok) {
        snprintf(err, err_size, "out of memory for normalising a text of %zu bytes", size);
    } else if (n_tokens > 0 && c.at != size) {
        snprintf(err, err_size, "its %" PRId64 " tokens stand for %zu bytes; the text has %zu",
                n_tokens, c.at, size);
        ok = false;
    }
    return ok;
}
