// The draft block: its logits are those of the oracle (tests/golden/make.py) at every position,
// however the tokens were fed, after rewinds, forks and state files, and in company. State files
// with and without its memory load in sessions with and without it.

#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "lrnn.h"
#include "run/session.h"

enum { CHAIN = 4 }; // guesses at the end of the tokens of a golden file

static const double LIMIT = 1e-4; // of a logit; logits are about 1 to 10

static struct test t;

static struct lrnn_session * open_session(struct lrnn_model * model, bool draft_block) {
    return test_session(model, &(struct lrnn_session_params) { .n_threads = 1,
                                       .n_seqs = 3,
                                       .n_rewind = 6,
                                       .n_batch = 7,
                                       .n_cache = 64,
                                       .cache_type = LRNN_CACHE_F32,
                                       .draft_block = draft_block });
}

// The difference between the logits of the last guess, in row `row` of its batch, and golden ones.
static double difference(
        const struct lrnn_session * s, int32_t row, const struct golden * g, int64_t position) {
    const struct ggml_tensor * logits = s->draft.forward.logits;
    float *                    found = malloc(logits->nb[1]);
    double                     worst = 0.0;
    ggml_backend_tensor_get(logits, found, (size_t) row * logits->nb[1], logits->nb[1]);
    for (int64_t i = 0; i < g->n_vocab; ++i) {
        const double d = fabs((double) found[i] - (double) g->logits[position * g->n_vocab + i]);
        worst = d <= worst ? worst : d; // NaN wins
    }
    free(found);
    return worst;
}

// Guesses n tokens after the next token of a sequence that has the tokens of the golden file.
// Returns the difference of the last one.
static double guess(struct lrnn_session * s, int32_t seq, const struct golden * g, int32_t n) {
    struct lrnn_error    err = { LRNN_ERROR_NONE, "" };
    const int64_t        at = lrnn_seq_length(s, seq);
    int32_t              tokens[2 + CHAIN] = { g->tokens[at] };
    struct session_draft draft = { .seq = seq, .n = n, .tokens = tokens };
    test_check(&t, session_may_draft(s, seq), "%s: no draft after %d tokens", g->name, (int) at);
    test_check(&t, session_draft(s, &draft, 1, &err), "%s: %s", g->name, err.text);
    for (int32_t i = 1; n > 1 && i < n; ++i) {
        test_check(&t, tokens[i] == g->tokens[at + i], "%s: guess %d is %d; expected %d", g->name,
                (int) i, tokens[i], g->tokens[at + i]);
    }
    return difference(s, 0, g, at + n - 1);
}

static void check_guess(struct lrnn_session * s, int32_t seq, const struct golden * g, int32_t n,
        const char * where) {
    const double d = guess(s, seq, g, n);
    test_check(&t, d <= LIMIT,
            "%s, %s: guess %d after %d tokens differs by %g; expected at most %g", g->name, where,
            n, (int) lrnn_seq_length(s, seq), d, LIMIT);
}

static void feed(struct lrnn_session * s, int32_t seq, const struct golden * g, int64_t n) {
    test_eval(s, seq, g->tokens + lrnn_seq_length(s, seq), n, 0);
}

// Feeds tokens in pieces, and guesses after each, with wrong tokens that are rewound in between.
static void test_positions(struct lrnn_model * model, const struct golden * g) {
    const int64_t end = g->n_tokens - CHAIN - 1;
    for (int64_t piece = 1; piece <= 9; piece += 4) { // 9 tokens are two batches
        struct lrnn_session * s = open_session(model, true);
        test_check(&t, !session_may_draft(s, 0), "%s: a draft without tokens", g->name);
        while (lrnn_seq_length(s, 0) < end) {
            const int64_t left = end - lrnn_seq_length(s, 0);
            feed(s, 0, g, left < piece ? left : piece);
            check_guess(s, 0, g, 1, "pieces");
            test_eval(s, 0, (const int32_t[3]) { 1, 2, 3 }, 3, 3);
            lrnn_seq_rewind(s, 0, 3, NULL);
            check_guess(s, 0, g, 1, "after a rewind");
        }
        for (int32_t n = 1; n <= CHAIN + 1; ++n) {
            check_guess(s, 0, g, n, "a chain");
        }
        lrnn_session_free(s);
    }
}

// Three sequences of different lengths guess different numbers of tokens at once.
static void test_company(struct lrnn_model * model, const struct golden * g) {
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    struct lrnn_session * s = open_session(model, true);
    const int64_t         end = g->n_tokens - CHAIN - 1;
    int32_t tokens[3][2 + CHAIN] = { { g->tokens[5] }, { g->tokens[end] }, { g->tokens[9] } };
    struct session_draft drafts[3] = { { 0, 1, tokens[0], 0 }, { 1, CHAIN + 1, tokens[1], 0 },
        { 2, 1, tokens[2], 0 } };
    feed(s, 0, g, 5);
    feed(s, 1, g, end);
    feed(s, 2, g, 9);
    test_check(&t, session_draft(s, drafts, 3, &err), "%s: %s", g->name, err.text);
    for (int32_t i = 1; i <= CHAIN; ++i) {
        test_check(&t, tokens[1][i] == g->tokens[end + i], "%s: guess %d in company", g->name, i);
    }
    test_check(&t, difference(s, 0, g, end + CHAIN) <= LIMIT, "%s: a chain in company", g->name);
    drafts[1].n = 1;
    test_check(&t, session_draft(s, drafts, 3, &err), "%s: %s", g->name, err.text);
    test_check(&t,
            difference(s, 0, g, 5) <= LIMIT && difference(s, 1, g, end) <= LIMIT &&
                    difference(s, 2, g, 9) <= LIMIT,
            "%s: guesses in company", g->name);
    lrnn_session_free(s);
}

// Forks and files keep what the block knows; a file without it loads, and drafts begin later.
static void test_copies(struct lrnn_model * model, const struct golden * g) {
    enum { N = 8 };
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    struct lrnn_session * with = open_session(model, true);
    struct lrnn_session * without = open_session(model, false);
    const char *          files[2] = { "with.state", "without.state" };
    feed(with, 0, g, N);
    feed(without, 0, g, N);
    test_check(&t, lrnn_seq_fork(with, 0, 2, &err), "%s", err.text);
    check_guess(with, 2, g, 1, "a fork");
    test_check(&t,
            lrnn_seq_save(with, 0, NULL, files[0], &err) &&
                    lrnn_seq_save(without, 0, NULL, files[1], &err),
            "%s", err.text);

    test_check(&t, lrnn_seq_load(with, 1, NULL, files[0], &err), "%s", err.text);
    check_guess(with, 1, g, 1, "a file");
    feed(with, 1, g, 3);
    check_guess(with, 1, g, 1, "after a file");

    for (int i = 0; i < 2; ++i) { // both give the model's own memory
        test_check(&t, lrnn_seq_load(without, 1, NULL, files[i], &err), "%s", err.text);
        test_check(&t, lrnn_seq_size(without, 1) == lrnn_seq_size(without, 0), "size of a file");
        test_check(&t, !session_may_draft(without, 1), "a draft without a draft block");
    }

    test_check(&t, lrnn_seq_load(with, 1, NULL, files[1], &err), "%s", err.text);
    test_check(&t, !session_may_draft(with, 1), "a draft without the last h");
    feed(with, 1, g, 4);
    lrnn_seq_fork(with, 1, 2, NULL);
    test_check(&t, session_may_draft(with, 1) && session_may_draft(with, 2), "no draft");
    // other rows than the golden ones, and the same in the copy
    test_check(&t, guess(with, 1, g, 1) > 0.0 && guess(with, 1, g, 1) == guess(with, 2, g, 1),
            "a fork of a sequence that the block has not seen");
    remove(files[0]);
    remove(files[1]);
    lrnn_session_free(with);
    lrnn_session_free(without);
}

static void test_refusals(struct lrnn_model * model) {
    struct lrnn_error                   err;
    struct lrnn_session *               s = open_session(model, true);
    struct lrnn_session *               plain = open_session(model, false);
    const struct lrnn_generation_params both = { .n_draft = 2, .n_draft_mtp = 2 };
    const struct lrnn_generation_params one = { .n_draft_mtp = 2 };
    const struct lrnn_generation_params many = { .n_draft_mtp = 6 };
    test_check(&t, lrnn_generation_new(s, 0, &both, &err) == NULL, "both drafts");
    test_check(&t, strcmp(err.text, "n_draft_mtp is 2; expected 0 if there is n_draft") == 0, "%s",
            err.text);
    test_check(&t, lrnn_generation_new(plain, 0, &one, &err) == NULL, "no draft block");
    test_check(&t,
            strcmp(err.text, "n_draft_mtp is 2; expected 0 in a session without draft_block") == 0,
            "%s", err.text);
    test_check(&t, lrnn_generation_new(s, 0, &many, &err) == NULL, "too many");
    lrnn_session_free(s);
    lrnn_session_free(plain);

    struct lrnn_model * other = golden_load_model("qwen35");
    test_check(&t,
            lrnn_session_new(other, &(struct lrnn_session_params) { .draft_block = true }, &err) ==
                    NULL,
            "a model without draft block");
    test_check(&t, strcmp(err.text, "the model has no draft block (multi-token prediction)") == 0,
            "%s", err.text);
    lrnn_model_free(other);
}

int main(void) {
    static const char * const names[] = { "draft/qwen35", "draft/qwen35moe", "draft/qwen3next" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        struct golden       g;
        struct lrnn_model * model = golden_load_model(names[i]);
        golden_read(&g, names[i]);
        test_check(&t, lrnn_model_get_info(model).has_draft_block, "%s: no draft block", names[i]);
        test_positions(model, &g);
        test_company(model, &g);
        test_copies(model, &g);
        test_refusals(model);
        golden_free(&g);
        lrnn_model_free(model);
    }
    return test_end(&t, "test-draft-block");
}
