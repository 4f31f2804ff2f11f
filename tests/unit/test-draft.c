// Drafts continue the longest earlier match, of equal ones the latest, past the end of the text
// with their own tokens, and adapt their length to what was accepted.

#include "generate/draft.h"
#include "kit/check.h"
#include "kit/rng.h"
#include "lrnn.h"

enum { N = 400, MATCH_MIN = 2, MATCH_MAX = 32 };

static struct test t;

// Where the best match of the last tokens ends, found without shortcuts; n: nowhere.
static int64_t best_match(const int32_t * text, int64_t n) {
    for (int64_t length = MATCH_MAX; length >= MATCH_MIN; --length) {
        for (int64_t end = n - 1; end >= length; --end) {
            if (memcmp(text + end - length, text + n - length, (size_t) length * sizeof(*text)) ==
                    0) {
                return end;
            }
        }
    }
    return n;
}

// Random texts over few tokens, so that they repeat.
static void test_matches(int32_t n_tokens, int32_t n_max) {
    struct test_rng   rng = { (uint64_t) (n_tokens * 100 + n_max) };
    struct lrnn_error err;
    struct draft *    d = draft_new(n_max, &err);
    int32_t           length = n_max, n_known = 0;
    int32_t           text[N], draft[LRNN_DRAFT_MAX];
    test_check(&t, d != NULL, "%s", err.text);
    for (int64_t n = 0; n < N; ++n) {
        const int64_t at = best_match(text, n);
        const int32_t most = 1 + (int32_t) test_below(&rng, LRNN_DRAFT_MAX);
        n_known = draft_propose(d, most, draft);
        int64_t expected = at == n ? 0 : length < most ? length : most;
        bool    same = true;
        for (int64_t i = 0; i < n_known; ++i) {
            same = same && draft[i] == (at + i < n ? text[at + i] : draft[at + i - n]);
        }
        test_check(&t, n_known == expected && same,
                "%d tokens: the draft after %lld has %d tokens or differs; expected %lld", n_tokens,
                (long long) n, n_known, (long long) expected);
        text[n] = (int32_t) test_below(&rng, n_tokens);
        draft_accept(d, text[n]);
        if (n_known > 0 && draft[0] != text[n]) {
            length = length > 1 ? length / 2 : 1;
        } else if (n_known == 1) { // all of it was right
            length = 2 * length < n_max ? 2 * length : n_max;
        }
    }
    draft_free(d);
}

int main(void) {
    struct lrnn_error err;
    for (int32_t n_tokens = 1; n_tokens <= 9; n_tokens += 2) {
        test_matches(n_tokens, 1);
        test_matches(n_tokens, 8);
        test_matches(n_tokens, LRNN_DRAFT_MAX);
    }
    test_check(&t,
            draft_new(0, &err) == NULL &&
                    strcmp(err.text, "a draft has 0 tokens; expected 1 to 31") == 0,
            "found: %s", err.text);
    test_check(&t, draft_new(LRNN_DRAFT_MAX + 1, &err) == NULL, "32 are accepted");
    draft_free(NULL);
    return test_end(&t, "test-draft");
}
