#include "match.h"

#include "memory.h"
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A line in the notation of the model: as it is, or with a space before each character, if the
// model reads symbols. Sets *size. For the caller to free.
static char * spell(const char * line, size_t * size, bool is_spaced) {
    char * text = program_alloc(2 * *size + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < *size; ++i) {
        if (is_spaced && ((unsigned char) line[i] & 0xc0) != 0x80) { // not inside a character
            text[n++] = ' ';
        }
        text[n++] = line[i];
    }
    *size = n;
    return text;
}

// A tokenizer of symbols drops spaces; one of bytes keeps them.
static bool reads_symbols(const struct lrnn_model * model) {
    int32_t *         tokens = NULL;
    int64_t           n = 0;
    struct lrnn_error err;
    const bool        ok = lrnn_tokenize(model, " ", 1, 0, &tokens, &n, &err);
    free(tokens);
    return ok && n == 0;
}

static bool is_named(const struct lrnn_model * model, int32_t token, const char * name) {
    size_t       size;
    const char * bytes = lrnn_token_bytes(model, token, &size);
    return bytes != NULL && size == strlen(name) && memcmp(bytes, name, size) == 0;
}

// Sets *matches to the answer after a text.
static enum exit_code ask(const struct lrnn_model * model, struct lrnn_session * session,
        const char * text, size_t size, bool * matches) {
    int32_t *         tokens = NULL;
    int64_t           n = 0;
    struct lrnn_error err;
    const bool ok = lrnn_tokenize(model, text, size, LRNN_TOKENIZE_ADD_BOS, &tokens, &n, &err) &&
                    lrnn_seq_reset(session, 0, &err) &&
                    lrnn_eval(session, &(struct lrnn_input) { 0, tokens, n, 1 }, 1, &err);
    free(tokens);
    if (!ok) {
        return program_error(&err);
    }
    const float * logits = lrnn_logits(session, 0); // [n_vocab]
    int32_t       best = 0;
    for (int32_t i = 1; i < lrnn_model_get_info(model).n_vocab; ++i) {
        best = logits[i] > logits[best] ? i : best;
    }
    *matches = is_named(model, best, "accept");
    if (!*matches && !is_named(model, best, "reject")) {
        return program_fail(EXIT_CODE_MODEL,
                "--match: the model answers with token %d; expected accept or reject: make a model "
                "with lrnn-convert automaton --regex",
                best);
    }
    return EXIT_CODE_OK;
}

enum exit_code match_lines(const struct lrnn_model * model, struct lrnn_session * session,
        const char * text, size_t size) {
    const bool     is_spaced = reads_symbols(model);
    enum exit_code all = EXIT_CODE_OK;
    for (size_t first = 0, n; first <= size; first += n + 1) {
        const char * end = memchr(text + first, '\n', size - first);
        n = end != NULL ? (size_t) (end - text) - first : size - first;
        size_t               spelled_size = n;
        char *               spelled = spell(text + first, &spelled_size, is_spaced);
        bool                 matches = false;
        const enum exit_code code = ask(model, session, spelled, spelled_size, &matches);
        free(spelled);
        if (code != EXIT_CODE_OK) {
            return code;
        }
        puts(matches ? "yes" : "no");
        all = matches ? all : EXIT_CODE_DATA;
    }
    return all;
}
