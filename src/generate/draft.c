// Drafts by lookup: the tokens that followed an earlier occurrence of the last tokens.
//
// The longest match wins, of equal ones the latest. The length doubles after an accepted draft and
// halves after a rejected one, so text that does not repeat costs little. Where the earlier
// occurrence reaches the end of the text, the text repeats itself, and the draft continues with its
// own tokens.

#include "generate/draft.h"

#include "base/buffer.h"
#include "base/error.h"

#include <stdlib.h>

enum {
    MATCH_MIN = 2,       // tokens that must match
    MATCH_MAX = 32,      // longer matches do not count more
    LOOK_BACK = 1 << 16, // tokens that are searched
};

struct draft {
    int32_t   n_max;
    int32_t * text; // the tokens so far
    int64_t   n;
    size_t    room;

    int32_t length;               // of the next draft, at most
    int32_t last[LRNN_DRAFT_MAX]; // the last draft
    int32_t n_draft, n_right;     // its tokens, and those that were accepted so far
};

struct draft * draft_new(int32_t n_max, struct lrnn_error * err) {
    if (n_max < 1 || n_max > LRNN_DRAFT_MAX) {
        error_bad_input(err, "a draft has %d tokens; expected 1 to %d", n_max, LRNN_DRAFT_MAX);
        return NULL;
    }
    struct draft * d = calloc(1, sizeof(*d));
    if (d == NULL) {
        error_no_memory(err, "a draft");
        return NULL;
    }
    d->n_max = n_max;
    d->length = n_max;
    return d;
}

void draft_free(struct draft * d) {
    if (d != NULL) {
        free(d->text);
        free(d);
    }
}

// Compares a token with the last draft and adapts the length of the next one.
static void judge(struct draft * d, int32_t token) {
    if (d->n_right >= d->n_draft) {
        return;
    }
    if (d->last[d->n_right] == token) {
        d->n_right++;
        if (d->n_right == d->n_draft) {
            d->length = 2 * d->length < d->n_max ? 2 * d->length : d->n_max;
        }
    } else {
        d->n_draft = 0;
        d->length = d->length > 1 ? d->length / 2 : 1;
    }
}

void draft_accept(struct draft * d, int32_t token) {
    judge(d, token);
    if (!array_grow(&d->text, &d->room, (size_t) d->n + 1, sizeof(*d->text))) {
        d->n = 0; // a draft is never necessary: forget the text
        return;
    }
    d->text[d->n++] = token;
}

// The number of equal tokens before positions a and b, at most MATCH_MAX.
static int64_t match(const int32_t * text, int64_t a, int64_t b) {
    int64_t n = 0;
    while (n < MATCH_MAX && n < a && text[a - 1 - n] == text[b - 1 - n]) {
        n++;
    }
    return n;
}

int32_t draft_propose(struct draft * d, int32_t n_max, int32_t * tokens) {
    const int64_t first = d->n > LOOK_BACK ? d->n - LOOK_BACK : 0;
    int64_t       best = MATCH_MIN - 1, at = d->n;
    for (int64_t i = d->n - 1; i > first && best < MATCH_MAX; --i) {
        const int64_t n = match(d->text, i, d->n);
        if (n > best) {
            best = n;
            at = i;
        }
    }
    d->n_draft = d->n_right = 0;
    while (d->n_draft < d->length && d->n_draft < n_max && at < d->n) {
        const int64_t i = at + d->n_draft;
        tokens[d->n_draft] = d->last[d->n_draft] = i < d->n ? d->text[i] : d->last[i - d->n];
        d->n_draft++;
    }
    return d->n_draft;
}
