// Tokens to text, one token at a time. The output never ends inside a UTF-8 character: bytes that
// may still become a character are held back. Bytes that cannot are passed on unchanged.
//
// SentencePiece prepends a space to the text, which the decoder removes again. Symbols are
// separated by spaces. Special tokens produce no text.

#include "lrnn.h"
#include "text/tokenizer-impl.h"

#include <stdlib.h>
#include <string.h>

struct lrnn_decoder {
    const struct tokenizer * tok;
    bool                     started; // there is earlier text
    size_t                   n_ready; // bytes of `text` that the last call returned
    size_t                   n;       // bytes of `text`
    char                     text[];  // room for an incomplete character, a space and a token
};

struct lrnn_decoder * decoder_new(const struct tokenizer * tok, bool continues) {
    struct lrnn_decoder * d = malloc(sizeof(*d) + tok->max_len + 8);
    if (d != NULL) {
        *d = (struct lrnn_decoder) { .tok = tok, .started = continues };
    }
    return d;
}

void lrnn_decoder_free(struct lrnn_decoder * d) {
    free(d);
}

// Drops the bytes that the last call returned.
static void advance(struct lrnn_decoder * d) {
    memmove(d->text, d->text + d->n_ready, d->n - d->n_ready);
    d->n -= d->n_ready;
    d->n_ready = 0;
}

const char * lrnn_decoder_push(struct lrnn_decoder * d, int32_t id, size_t * size) {
    advance(d);

    struct slice s = tokenizer_token_bytes(d->tok, id);
    if (s.size > 0 && !tokenizer_is_special(d->tok, id)) {
        if (d->started && d->tok->kind == TOKENIZER_SYMBOLS) {
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
    d->n_ready = utf8_complete(d->text, d->n);
    *size = d->n_ready;
    return d->text;
}

const char * lrnn_decoder_end(struct lrnn_decoder * d, size_t * size) {
    advance(d);
    d->n_ready = d->n;
    *size = d->n;
    return d->text;
}
