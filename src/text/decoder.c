// Tokens to text, one at a time.

#include "text/tokenizer-impl.h"

#include "lrnn.h"
#include "run/model.h"

#include <stdlib.h>
#include <string.h>

struct lrnn_decoder {
    const struct tokenizer * tok;
    unsigned                 flags;
    bool                     started; // something came out before
    size_t                   n_ready; // bytes of text that were handed out by the last call
    size_t                   n;       // bytes of text
    char                     text[];  // a token, a space, and the start of a character
};

struct lrnn_decoder * decoder_new(const struct tokenizer * tok, unsigned flags) {
    struct lrnn_decoder * d = malloc(sizeof(*d) + tok->max_len + 8);
    if (d != NULL) {
        d->tok   = tok;
        d->flags = flags;
        decoder_reset(d);
    }
    return d;
}

struct lrnn_decoder * lrnn_decoder_new(const struct lrnn_model * model, bool continues) {
    return model->tokenizer == NULL
                   ? NULL
                   : decoder_new(model->tokenizer, continues ? DECODER_CONTINUE : 0);
}

void lrnn_decoder_free(struct lrnn_decoder * d) {
    free(d);
}

void decoder_reset(struct lrnn_decoder * d) {
    d->started = (d->flags & DECODER_CONTINUE) != 0;
    d->n_ready = 0;
    d->n       = 0;
}

// Drops what was handed out.
static void advance(struct lrnn_decoder * d) {
    memmove(d->text, d->text + d->n_ready, d->n - d->n_ready);
    d->n -= d->n_ready;
    d->n_ready = 0;
}

const char * lrnn_decoder_push(struct lrnn_decoder * d, int32_t id, size_t * size) {
    advance(d);

    struct slice s = tokenizer_token_bytes(d->tok, id);
    if (s.size > 0 && (!tokenizer_is_special(d->tok, id) || (d->flags & DECODER_SPECIAL) != 0)) {
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
    *size      = d->n_ready;
    return d->text;
}

const char * lrnn_decoder_end(struct lrnn_decoder * d, size_t * size) {
    advance(d);
    d->n_ready = d->n;
    *size      = d->n;
    return d->text;
}
