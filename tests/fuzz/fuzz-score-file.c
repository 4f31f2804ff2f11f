// Reads arbitrary bytes as a score file. The result is an error message, or windows with valid
// values. Checksums are corrected first, so that mutations reach the code after them.

#include "fuzz/fuzz.h"
#include "lrnn.h"
#include "eval/scores/score-file.h"
#include "base/hash.h"
#include "base/sha256.h"

static void repair(uint8_t * data, size_t size) {
    uint32_t n_text, n_body;
    if (size < SCORE_PREFIX_SIZE) {
        return;
    }
    memcpy(&n_text, data + 12, 4);
    if (n_text > size || size - n_text < SCORE_PREFIX_SIZE + SCORE_DIGEST_SIZE) {
        return;
    }
    struct sha256 sha;
    sha256_begin(&sha);
    sha256_add(&sha, data + SCORE_PREFIX_SIZE, n_text);
    sha256_end(&sha, data + SCORE_PREFIX_SIZE + n_text);
    for (size_t at = SCORE_PREFIX_SIZE + n_text + SCORE_DIGEST_SIZE; size - at >= 16;
            at += 16 + (size_t) n_body) {
        memcpy(&n_body, data + at + 4, 4);
        if (n_body > size - at - 16) {
            return;
        }
        const uint64_t sum = hash_add(HASH_START, data + at + 8, n_body);
        memcpy(data + at + 8 + n_body, &sum, 8);
    }
}

// Reads all values of a window.
static void use(const struct score_window * w, const struct score_meta * meta) {
    volatile double sum = 0.0;
    for (int64_t i = 0; i < w->n_targets; ++i) {
        sum += (double) w->nll[i] + w->bytes[i] + w->flags[i];
    }
    require(w->index >= 0 && w->index < meta->n_windows && w->n_targets < meta->window &&
                    w->n_spans > 0 && w->spans[0].first == 0,
            "a window is out of range");
    for (int32_t i = 0; i < w->n_spans; ++i) {
        require(w->spans[i].first <= w->n_targets && w->spans[i].file >= 0 &&
                        w->spans[i].source >= -1,
                "a span is out of range");
    }
    for (int32_t i = 0; i < w->n_norms; ++i) {
        require(w->norms[i].at > 0 && w->norms[i].at <= w->n_targets + 1 && w->norms[i].layer >= 0,
                "a norm is out of range");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    uint8_t *         copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        return 0;
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    repair(copy, size);
    size_t at = score_header_check("f.nll", copy, size, &err);
    char * text = NULL;
    if (at == 0) {
        require(err.text[0] != '\0', "rejected without a message");
    } else {
        const size_t      n_text = at - SCORE_PREFIX_SIZE - SCORE_DIGEST_SIZE;
        struct score_meta meta;
        text = malloc(n_text + 1);
        if (text != NULL) {
            memcpy(text, copy + SCORE_PREFIX_SIZE, n_text);
        }
        if (text != NULL && score_meta_parse("f.nll", text, n_text, &meta, &err)) {
            int64_t first, end;
            score_shard_range(&meta, &first, &end);
            require(0 <= first && first <= end && end <= meta.n_windows, "a shard is out of range");
            struct score_window window;
            enum score_record   status;
            while ((status = score_record_read("f.nll", copy, size, &at, &meta, &window, &err)) ==
                    SCORE_RECORD_OK) {
                use(&window, &meta);
            }
            require(status != SCORE_RECORD_BAD || err.text[0] != '\0', "no message");
        }
    }
    free(text);
    free(copy);
    return 0;
}
