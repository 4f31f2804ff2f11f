// ggml_scan_ids_check against a direct implementation of its rules, on hand-made and random ids.

#include "lrnn.h"
#include "kit/scan-case.h"

enum { MAX_IDS = 64 };

// The rules, one by one: slots and tokens are in range, every token belongs to exactly one
// sequence, no slot is written twice, and no slot is written by one sequence and read by another.
static bool valid(const int32_t * ids, int n_snap, int n_seqs, int n_slots, int n_tokens) {
    const int stride = GGML_SCAN_SNAPS + n_snap;
    for (int s = 0; s < n_seqs; ++s) {
        const int32_t * id = ids + s * stride;
        if (id[GGML_SCAN_SLOT_IN] < -1 || id[GGML_SCAN_SLOT_IN] >= n_slots) {
            return false;
        }
        if (id[GGML_SCAN_SLOT_OUT] < 0 || id[GGML_SCAN_SLOT_OUT] >= n_slots) {
            return false;
        }
        if (id[GGML_SCAN_FIRST] < 0 || id[GGML_SCAN_COUNT] < 0) {
            return false;
        }
        if ((int64_t) id[GGML_SCAN_FIRST] + id[GGML_SCAN_COUNT] > n_tokens) {
            return false;
        }
        for (int i = 0; i < n_snap; ++i) {
            if (id[GGML_SCAN_SNAPS + i] < -1 || id[GGML_SCAN_SNAPS + i] >= n_slots) {
                return false;
            }
        }
    }
    for (int token = 0; token < n_tokens; ++token) {
        int owners = 0;
        for (int s = 0; s < n_seqs; ++s) {
            const int32_t * id = ids + s * stride;
            owners += token >= id[GGML_SCAN_FIRST] &&
                      token < id[GGML_SCAN_FIRST] + id[GGML_SCAN_COUNT];
        }
        if (owners != 1) {
            return false;
        }
    }
    for (int slot = 0; slot < n_slots; ++slot) {
        int writes = 0, writer = -1;
        for (int s = 0; s < n_seqs; ++s) {
            const int32_t * id = ids + s * stride;
            for (int i = GGML_SCAN_SLOT_OUT; i < stride; ++i) {
                if ((i == GGML_SCAN_SLOT_OUT || i >= GGML_SCAN_SNAPS) && id[i] == slot) {
                    ++writes;
                    writer = s;
                }
            }
        }
        if (writes > 1) {
            return false;
        }
        for (int s = 0; s < n_seqs && writes == 1; ++s) {
            if (s != writer && ids[s * stride + GGML_SCAN_SLOT_IN] == slot) {
                return false;
            }
        }
    }
    return true;
}

static bool check(const int32_t * ids, int n_snap, int n_seqs, int n_slots, int n_tokens,
        struct lrnn_error * err) {
    err->text[0] = '\0';
    return ggml_scan_ids_check(ids, n_snap, n_seqs, n_slots, n_tokens, err);
}

static void test_ids_by_hand(struct test * t) {
    static const struct {
        const char * what;
        bool         ok;
        int          n_snap, n_seqs, n_slots, n_tokens;
        int32_t      ids[18];
    } cases[] = {
        { "one sequence in place", true, 0, 1, 1, 5, { 0, 0, 0, 5 } },
        { "from the zero state", true, 0, 1, 1, 5, { -1, 0, 0, 5 } },
        { "a fork", true, 0, 1, 2, 5, { 0, 1, 0, 5 } },
        { "two forks of one source", true, 0, 2, 3, 5, { 0, 1, 0, 2, 0, 2, 2, 3 } },
        { "sequences in any order", true, 0, 2, 2, 5, { 1, 1, 3, 2, 0, 0, 0, 3 } },
        { "a sequence without tokens", true, 0, 2, 3, 5, { 0, 2, 0, 0, 1, 1, 0, 5 } },
        { "one without tokens after the last", true, 0, 2, 2, 5, { 0, 0, 5, 0, 1, 1, 0, 5 } },
        { "snapshots", true, 2, 1, 4, 5, { 0, 1, 0, 5, 2, 3 } },
        { "no snapshots", true, 2, 1, 1, 5, { 0, 0, 0, 5, -1, -1 } },
        { "a ring: a snapshot in its own source", true, 1, 1, 2, 5, { 0, 1, 0, 5, 0 } },
        { "slot_in -2", false, 0, 1, 2, 5, { -2, 0, 0, 5 } },
        { "slot_in too large", false, 0, 1, 2, 5, { 2, 0, 0, 5 } },
        { "slot_out -1", false, 0, 1, 2, 5, { 0, -1, 0, 5 } },
        { "slot_out too large", false, 0, 1, 2, 5, { 0, 2, 0, 5 } },
        { "slot_out far too large", false, 0, 1, 2, 5, { 0, INT32_MAX, 0, 5 } },
        { "a snapshot too large", false, 1, 1, 2, 5, { 0, 0, 0, 5, 2 } },
        { "a snapshot -2", false, 1, 1, 2, 5, { 0, 0, 0, 5, -2 } },
        { "first -1", false, 0, 1, 2, 5, { 0, 0, -1, 5 } },
        { "count -1", false, 0, 1, 2, 5, { 0, 0, 0, -1 } },
        { "tokens beyond the end", false, 0, 1, 2, 5, { 0, 0, 1, 5 } },
        { "first + count overflows", false, 0, 1, 2, 5, { 0, 0, INT32_MAX, INT32_MAX } },
        { "a token of no sequence", false, 0, 1, 2, 5, { 0, 0, 1, 4 } },
        { "a token of no sequence between two", false, 0, 2, 2, 5, { 0, 0, 0, 2, 1, 1, 3, 2 } },
        { "a token of two sequences", false, 0, 2, 2, 5, { 0, 0, 0, 3, 1, 1, 2, 3 } },
        { "the same tokens twice", false, 0, 2, 2, 5, { 0, 0, 0, 5, 1, 1, 0, 5 } },
        { "no sequence", false, 0, 0, 2, 5, { 0 } },
        { "two outputs in one slot", false, 0, 2, 2, 5, { 0, 0, 0, 2, 1, 0, 2, 3 } },
        { "an output in the source of another", false, 0, 2, 3, 5, { 0, 1, 0, 2, 1, 2, 2, 3 } },
        { "an output in the source of an earlier", false, 0, 2, 3, 5, { 0, 1, 0, 2, 2, 0, 2, 3 } },
        { "both read a slot that one writes", false, 0, 2, 3, 5, { 0, 0, 0, 2, 0, 1, 2, 3 } },
        { "a snapshot in its own output", false, 1, 1, 2, 5, { 0, 1, 0, 5, 1 } },
        { "two snapshots in one slot", false, 2, 1, 3, 5, { 0, 1, 0, 5, 2, 2 } },
        { "a snapshot in the output of another", false, 1, 2, 4, 5,
                { 0, 0, 0, 2, 1, 1, 1, 2, 3, -1 } },
        { "a snapshot in the source of another", false, 1, 2, 4, 5,
                { 0, 0, 0, 2, 1, 1, 2, 2, 3, -1 } },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct lrnn_error err;
        const bool ok = check(cases[i].ids, cases[i].n_snap, cases[i].n_seqs, cases[i].n_slots,
                cases[i].n_tokens, &err);
        test_check(t, ok == cases[i].ok, "%s: %s", cases[i].what, ok ? "accepted" : err.text);
        test_check(t,
                ok == valid(cases[i].ids, cases[i].n_snap, cases[i].n_seqs, cases[i].n_slots,
                              cases[i].n_tokens),
                "the rules: %s", cases[i].what);
        test_check(t, ok || (strlen(err.text) > 10 && strchr(err.text, '\n') == NULL),
                "expected one sentence: %s: \"%s\"", cases[i].what, err.text);
    }
    // the message names the slot
    struct lrnn_error err;
    const int32_t     clash[] = { 0, 7, 0, 2, 1, 7, 2, 3 };
    test_check(t,
            !check(clash, 0, 2, 9, 5, &err) && test_has_word(err.text, "7") &&
                    test_has_word(err.text, "slot"),
            "the message does not name slot 7: %s", err.text);
    test_check(t, !ggml_scan_ids_check(clash, 0, 2, 9, 5, NULL),
            "accepted without a message "
            "buffer");
    printf("ggml_scan_ids_check: %d cases by hand\n", (int) (sizeof(cases) / sizeof(cases[0])));
}

static void test_ids_random(struct test * t) {
    struct test_rng rng = { 1 };
    int             n_valid = 0, n_wrong = 0;
    const int       n = 300000;
    for (int c = 0; c < n; ++c) {
        const int n_snap = (int) test_below(&rng, 3);
        const int n_seqs = 1 + (int) test_below(&rng, 3);
        const int n_slots = 1 + (int) test_below(&rng, 12);
        const int n_tokens = 1 + (int) test_below(&rng, 6);
        const int stride = GGML_SCAN_SNAPS + n_snap;
        int32_t   ids[MAX_IDS];
        int       next = 0; // mostly a partition of the tokens
        for (int s = 0; s < n_seqs; ++s) {
            int32_t *     id = ids + s * stride;
            const int32_t in = (int32_t) test_below(&rng, n_slots + 1) - 1;
            id[GGML_SCAN_SLOT_IN] = in;
            id[GGML_SCAN_SLOT_OUT] =
                    test_below(&rng, 2) == 0 && in >= 0 ? in : (int32_t) test_below(&rng, n_slots);
            id[GGML_SCAN_FIRST] = next;
            id[GGML_SCAN_COUNT] = s == n_seqs - 1 ? n_tokens - next
                                                  : (int32_t) test_below(&rng, n_tokens - next + 1);
            next += id[GGML_SCAN_COUNT];
            for (int i = 0; i < n_snap; ++i) {
                id[GGML_SCAN_SNAPS + i] =
                        (int32_t) test_below(&rng, n_slots + 2) - 2 + (test_below(&rng, 20) != 0);
            }
        }
        if (test_below(&rng, 4) == 0) {
            ids[test_below(&rng, n_seqs * stride)] += (int32_t) test_below(&rng, 5) - 2;
        }
        struct lrnn_error err;
        const bool        want = valid(ids, n_snap, n_seqs, n_slots, n_tokens);
        n_valid += want;
        n_wrong += check(ids, n_snap, n_seqs, n_slots, n_tokens, &err) != want;
    }
    test_check(t, n_wrong == 0, "%d of %d random ids give a wrong result", n_wrong, n);
    test_check(t, n_valid > n / 20 && n_valid < n * 19 / 20,
            "the random ids test too little: %d of %d are valid", n_valid, n);
    printf("ggml_scan_ids_check: %d random ids, %d of them valid, agree with the rules\n", n,
            n_valid);
}

int main(void) {
    struct test t = { 0 };
    test_ids_by_hand(&t);
    test_ids_random(&t);
    return test_end(&t, "test-scan-ids");
}
