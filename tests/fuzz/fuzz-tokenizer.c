// Definitions of tokenizers with texts, in the format of tokenizer-data.h. A definition is refused
// with a message, or it encodes any text, and the tokens decode to the text.

#include "fuzz/fuzz.h"
#include "lrnn.h"
#include "base/unicode.h"
#include "kit/tokenizer-data.h"

static void append(struct buffer * b, struct slice bytes) {
    require(buffer_append(b, bytes.data, bytes.size), "out of memory");
}

static bool equal(const struct buffer * b, const char * data, size_t size) {
    return b->n == size && (size == 0 || memcmp(b->data, data, size) == 0);
}

static void check_nfc(const char * text, size_t len) {
    struct buffer valid = { 0 }, once = { 0 }, twice = { 0 };
    require(utf8_replace(text, len, false, &valid) && nfc_normalize(valid.data, valid.n, &once) &&
                    nfc_normalize(once.data, once.n, &twice),
            "out of memory");
    require(utf8_valid(once.data, once.n) == once.n, "NFC is not UTF-8");
    require(equal(&once, twice.data, twice.n), "NFC of NFC differs");
    buffer_free(&valid);
    buffer_free(&once);
    buffer_free(&twice);
}

static void check_text(const struct tokenizer * tok, const struct tokenizer_def * def,
        const char * text, size_t len, unsigned flags) {
    struct token_ids  ids = { 0 };
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    if (!tokenizer_encode(tok, text, len, flags, &ids, &err)) {
        require(strcmp(def->model, "lrnn-symbols") == 0 && err.text[0] != '\0',
                "a text was refused");
        token_ids_free(&ids);
        return;
    }
    struct buffer         all = { 0 }, normal = { 0 }, decoded = { 0 }; // bytes of the tokens
    struct lrnn_decoder * d = decoder_new(tok, true);
    require(d != NULL, "out of memory");
    for (size_t i = 0; i < ids.n; ++i) {
        const int32_t id = ids.data[i];
        require(id >= 0 && id < tokenizer_n_tokens(tok), "an id is not in the vocabulary");
        append(&all, tokenizer_token_bytes(tok, id));
        if (!tokenizer_is_special(tok, id)) {
            append(&normal, tokenizer_token_bytes(tok, id));
        }
        append(&decoded, decode(d, id));
    }
    append(&decoded, decode_end(d));
    if (strcmp(def->model, "lrnn-symbols") != 0) { // the decoder adds spaces between symbols
        require(equal(&decoded, normal.data, normal.n), "the decoder changed the bytes of tokens");
    }
    const bool keeps = strcmp(def->model, "rwkv") == 0 || strcmp(def->model, "lrnn-bytes") == 0 ||
                       (strcmp(def->model, "gpt2") == 0 && def->normalizer == NULL &&
                               utf8_valid(text, len) == len);
    if (keeps && (flags & (LRNN_TOKENIZE_ADD_BOS | LRNN_TOKENIZE_ADD_EOS)) == 0) {
        require(equal(&all, text, len), "the tokens are not the text");
    }
    lrnn_decoder_free(d);
    buffer_free(&all);
    buffer_free(&normal);
    buffer_free(&decoded);
    token_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    struct tokenizer_data t;
    if (!tokenizer_data_read(&t, data, size)) {
        return 0;
    }
    struct tokenizer * tok;
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    if (tokenizer_new(&t.def, &tok, &err)) {
        for (size_t i = 0; i < t.n_cases; ++i) {
            const struct slice text = t.cases[i].text;
            check_nfc(text.data, text.size);
            check_text(tok, &t.def, text.data, text.size, t.cases[i].flags);
        }
        tokenizer_free(tok);
    } else {
        require(tok == NULL && err.text[0] != '\0' && strchr(err.text, '\n') == NULL,
                "a definition was refused without a message");
    }
    tokenizer_data_free(&t);
    return 0;
}
