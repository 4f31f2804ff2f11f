// Where the tokens of a window are in the text.

#include "eval/scores/score-file.h"

#include <string.h>

// True if x_0 of a window begins a document.
static bool begins_document(const struct scores * s, int64_t window) {
    const struct score_window * w = &s->windows[window];
    if (w->spans[0].byte != 0 || w->index == 0) {
        return w->spans[0].byte == 0;
    }
    // the last token of the window before may have been the bos
    const struct score_window * before = window > 0 ? w - 1 : NULL;
    return before != NULL && before->index == w->index - 1 && before->n_spans > 0 &&
           before->spans[before->n_spans - 1].document != w->spans[0].document;
}

bool score_first_token_bytes(const struct scores * s, int64_t window, int64_t * n) {
    const struct score_window * w    = &s->windows[window];
    const struct score_window * next = window + 1 < s->n_windows ? w + 1 : NULL;
    *n                               = 0;
    if (strcmp(s->meta.bos, "window") == 0 ||
            (strcmp(s->meta.bos, "doc") == 0 && begins_document(s, window))) {
        return true;
    }
    if (w->n_spans > 1 || next == NULL || next->index != w->index + 1 || next->n_spans < 1 ||
            next->spans[0].document != w->spans[0].document) {
        return false;
    }
    *n = next->spans[0].byte - w->spans[0].byte;
    for (int64_t t = 1; t <= w->n_targets; ++t) {
        *n -= w->bytes[t - 1];
    }
    return *n >= 0;
}
