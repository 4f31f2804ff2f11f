// Definitions of tokenizers and texts for them, in the format of tokenizer-data.h: a definition is
// refused with a reason or it tokenises any text, and the text comes back.

#include "tokenizer-data.h"
#include "base/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

static void require(bool ok, const char * what) {
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void check_nfc(const char * text, size_t len) {
    struct buffer valid = { 0 }, once = { 0 }, twice = { 0 };
    require(utf8_replace(text, len, false, &valid) && nfc_normalize(valid.data, valid.n, &once) &&
                    nfc_normalize(once.data, once.n, &twice),
            "out of memory");
    require(utf8_valid(once.data, once.n) == once.n, "NFC is not UTF-8");
    require(once.n == twice.n && (once.n == 0 || memcmp(once.data, twice.data, once.n) == 0),
            "NFC of NFC is another");
    buffer_free(&valid);
    buffer_free(&once);
    buffer_free(&twice);
}

static void check_text(const struct tokenizer * tok, const struct tokenizer_def * def,
        const char * text, size_t len, unsigned flags) {
    struct token_ids ids      = { 0 };
    char             err[512] = "";
    if (!tokenizer_encode(tok, text, len, flags, &ids, err, sizeof(err))) {
        require(strcmp(def->model, "lrnn-symbols") == 0 && err[0] != '\0', "a text was refused");
        token_ids_free(&ids);
        return;
    }
    struct buffer         back = { 0 };
    struct lrnn_decoder * d    = decoder_new(tok, DECODER_SPECIAL | DECODER_CONTINUE);
    require(d != NULL, "out of memory");
    for (size_t i = 0; i < ids.n; ++i) {
        require(ids.data[i] >= 0 && ids.data[i] < tokenizer_n_tokens(tok),
                "an id is not in the vocabulary");
        const struct slice s = decode(d, ids.data[i]);
        require(buffer_append(&back, s.data, s.size), "out of memory");
    }
    const struct slice s = decode_end(d);
    require(buffer_append(&back, s.data, s.size), "out of memory");

    const bool keeps = strcmp(def->model, "rwkv") == 0 || strcmp(def->model, "lrnn-bytes") == 0 ||
                       (strcmp(def->model, "gpt2") == 0 && def->normalizer == NULL &&
                               utf8_valid(text, len) == len);
    if (keeps && (flags & (LRNN_TOKENIZE_ADD_BOS | LRNN_TOKENIZE_ADD_EOS)) == 0) {
        require(back.n == len && (len == 0 || memcmp(back.data, text, len) == 0),
                "the text did not come back");
    }
    lrnn_decoder_free(d);
    buffer_free(&back);
    token_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    struct tokenizer_data t;
    if (!tokenizer_data_read(&t, data, size)) {
        return 0;
    }
    struct tokenizer * tok;
    char               err[512] = "";
    if (tokenizer_new(&t.def, &tok, err, sizeof(err))) {
        for (size_t i = 0; i < t.n_cases; ++i) {
            const struct slice text = t.cases[i].text;
            check_nfc(text.data, text.size);
            check_text(tok, &t.def, text.data, text.size, t.cases[i].flags);
        }
        tokenizer_free(tok);
    } else {
        require(tok == NULL && err[0] != '\0' && strchr(err, '\n') == NULL,
                "a definition was refused without a reason");
    }
    tokenizer_data_free(&t);
    return 0;
}
