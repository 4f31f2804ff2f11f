#include "token-ids.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_space(char c) {
    return c == ' ' || c == ',' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Copies the word at p for a message, shortened and without control characters.
static void quote(char * out, size_t out_size, const char * p, const char * end) {
    size_t n = 0;
    while (p < end && !is_space(*p) && n + 1 < out_size) {
        out[n++] = *p >= ' ' && *p <= '~' ? *p : '?';
        p++;
    }
    out[n] = '\0';
}

bool token_ids_parse(
        const char * text, size_t size, int32_t ** ids, int64_t * n_ids, struct lrnn_error * err) {
    const char * end = text + size;

    *n_ids = 0;
    *ids = malloc((size / 2 + 1) * sizeof(**ids)); // an id takes a digit and a separator
    if (*ids == NULL) {
        return error_no_memory(err, "token ids in %zu bytes of text", size);
    }
    for (const char * p = text;;) {
        while (p < end && is_space(*p)) {
            p++;
        }
        if (p == end) {
            return true;
        }
        const char * word = p;
        int64_t      id = 0;
        while (p < end && is_digit(*p) && id <= INT32_MAX) {
            id = 10 * id + (*p++ - '0');
        }
        if (id > INT32_MAX || (p < end && !is_space(*p))) {
            char found[24];
            quote(found, sizeof(found), word, end);
            error_bad_input(err, "token %" PRId64 " is '%s'; expected a decimal id", *n_ids, found);
            free(*ids);
            *ids = NULL;
            return false;
        }
        (*ids)[(*n_ids)++] = (int32_t) id;
    }
}

bool token_ids_check(const int32_t * ids, int64_t n_ids, int64_t n_vocab, struct lrnn_error * err) {
    for (int64_t i = 0; i < n_ids; ++i) {
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            return error_bad_input(err,
                    "token %" PRId64 " has id %" PRId32 "; expected 0 to %" PRId64, i, ids[i],
                    n_vocab - 1);
        }
    }
    return true;
}
