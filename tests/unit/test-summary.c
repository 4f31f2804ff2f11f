// Tests of summaries and comparisons of runs, against loops over all targets, exact values and
// runs shortened by hand.

#include "lrnn.h"
#include "eval/estimates/paired.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/rng.h"
#include "kit/synthetic-scores.h"

#include <inttypes.h>
#include <unistd.h>

static const double LN2 = 0.69314718055994530942;

// Writes a synthetic run to a file, reads it and removes the file.
static struct scores make(struct test * t, const struct synthetic * s) {
    struct scores     scores = { 0 };
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    char              name[64];
    const char *      path = test_own_path(name, sizeof(name), "test-summary.nll");
    test_check(t, synthetic_write(s, path, &err) && scores_read(&path, 1, true, &scores, &err),
            "a synthetic run: %s", err.text);
    unlink(path);
    return scores;
}

static struct summary summarize(struct test * t, const struct scores * scores, int64_t bucket) {
    struct summary              s = { 0 };
    struct lrnn_error           err = { LRNN_ERROR_NONE, "" };
    const struct summary_params p = { .bucket = bucket, .tolerance = 0.02, .log2_curve = true };
    test_check(t, summary_make(scores, &p, &s, &err), "a summary: %s", err.text);
    return s;
}

static bool near(double a, double b, double tolerance) {
    return fabs(a - b) <= tolerance * (1.0 + fabs(b));
}

//
// Losses
//

static void test_uniform_model(struct test * t) {
    const double  V = 32000.0;
    struct scores scores = make(
            t, &(struct synthetic) {
                       .window = 3000, .n_windows = 11, .trained_length = 512, .uniform = log(V) });
    struct summary        s = summarize(t, &scores, 512);
    const struct losses * groups[] = { &s.total, &s.buckets, &s.prefixes, &s.curve };
    int                   n = 0;

    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); ++g) {
        for (int i = 0; i < groups[g]->n; ++i, n++) {
            const struct loss *       f = &groups[g]->at[i];
            const struct loss_in_unit ppl = loss_in(f, LOSS_PPL);
            // the nll is a float
            test_check(t,
                    near(ppl.value, V, 1e-6) && near(ppl.lo, V, 1e-6) && near(ppl.hi, V, 1e-6),
                    "a uniform model: perplexity %g at %d-%d", ppl.value, (int) f->range.from,
                    (int) f->range.to);
        }
    }
    for (int64_t i = 0; i < s.n_positions; ++i, n++) {
        test_check(t, near(s.position_loss[i], log(V), 1e-7), "position %d: %g", (int) i,
                s.position_loss[i]);
    }
    test_check(t, s.extrapolation.n == 2 && s.extrapolation.degrades == -1,
            "extrapolates to 4 T = 2,048 without degrading");
    test_check(t,
            s.buckets.n == 6 && s.buckets.at[5].range.from == 2561 &&
                    s.buckets.at[5].range.to == 2999,
            "six buckets, the last one up to 2,999");
    printf("a uniform model: %d values\n", n);
    summary_free(&s);
    scores_free(&scores);
}

// Checks every range against a loop over all targets, in reverse order.
static void check_ranges(struct test * t, const struct scores * scores, const struct losses * f,
        const char * what, struct test_worst * worst) {
    for (int i = 0; i < f->n; ++i) {
        const struct loss * g = &f->at[i];
        double              nll = 0.0;
        int64_t             tokens = 0, bytes = 0, hits = 0;
        for (int64_t w = scores->n_windows - 1; w >= 0; w--) {
            for (int64_t p = scores->windows[w].n_targets; p >= 1; p--) {
                if (p >= g->range.from && p <= g->range.to) {
                    nll += (double) scores->windows[w].nll[p - 1];
                    bytes += scores->windows[w].bytes[p - 1];
                    hits += (scores->windows[w].flags[p - 1] & SCORE_TOP1) != 0;
                    tokens++;
                }
            }
        }
        test_bound(t, worst, fabs(g->nats.value - nll / (double) tokens), what);
        test_bound(t, worst, fabs(g->bits.value - nll / LN2 / (double) bytes), what);
        test_check(t,
                g->tokens == tokens && g->bytes == bytes && g->hits == hits &&
                        g->windows == scores->n_windows && g->diverged == 0,
                "%s: counts", what);
        test_check(t, g->nats.lo < g->nats.value && g->nats.value < g->nats.hi && g->nats.se > 0.0,
                "%s: the interval contains the value", what);
    }
}

static void test_sums(struct test * t) {
    struct test_worst worst = { .what = "losses against a loop over all targets", .limit = 1e-12 };
    for (int k = 0; k < 3; ++k) {
        static const int64_t BUCKETS[] = { 300, 0, 1024 };
        struct scores        scores = make(t, &(struct synthetic) { .window = 2048,
                                                      .n_windows = 12 - 4 * k,
                                                      .trained_length = 700,
                                                      .level = 0.6,
                                                      .spread = 0.3,
                                                      .warm = 1.0,
                                                      .sources = "web\tbooks" });
        struct summary       s = summarize(t, &scores, BUCKETS[k]);
        check_ranges(t, &scores, &s.buckets, "buckets", &worst);
        check_ranges(t, &scores, &s.prefixes, "prefixes", &worst);
        check_ranges(t, &scores, &s.curve, "curve", &worst);
        check_ranges(t, &scores, &s.total, "total", &worst);

        // buckets cover every target once, and sources every target of a bucket
        int64_t tokens = 0, bytes = 0;
        double  nll = 0.0;
        for (int i = 0; i < s.buckets.n; ++i) {
            int64_t from_sources = 0;
            tokens += s.buckets.at[i].tokens;
            bytes += s.buckets.at[i].bytes;
            nll += s.buckets.at[i].bits.value * (double) s.buckets.at[i].bytes;
            for (int j = 0; j <= s.n_sources; ++j) {
                from_sources += s.composition[i * (s.n_sources + 1) + j];
            }
            test_check(t, from_sources == s.buckets.at[i].tokens && s.composition[i * 3 + 2] == 0,
                    "sources of bucket %d add up", i);
            test_check(t,
                    i == 0 ? s.buckets.at[0].range.from == 1
                           : s.buckets.at[i].range.from == s.buckets.at[i - 1].range.to + 1,
                    "no gap before bucket %d", i);
        }
        test_check(t,
                tokens == s.total.at[0].tokens && tokens == scores.n_windows * 2047 &&
                        bytes == s.total.at[0].bytes,
                "buckets add up to all targets");
        test_check(t, near(nll, s.total.at[0].bits.value * (double) bytes, 1e-12), "bits add up");

        // the error of llama-perplexity: sqrt((mean of squares − square of mean)/(n − 1))
        double sum = 0.0, square = 0.0;
        for (int64_t w = 0; w < scores.n_windows; ++w) {
            for (int64_t p = 0; p < scores.windows[w].n_targets; ++p) {
                sum += (double) scores.windows[w].nll[p] / (double) tokens;
                square += (double) scores.windows[w].nll[p] * (double) scores.windows[w].nll[p] /
                          (double) tokens;
            }
        }
        test_check(t, near(s.token_error, sqrt((square - sum * sum) / (double) (tokens - 1)), 1e-9),
                "token-wise error %g", s.token_error);
        test_check(t,
                s.total.at[0].nats.method == (scores.n_windows < 10 ? STATS_T : STATS_BOOTSTRAP),
                "%d windows: method", (int) scores.n_windows);
        summary_free(&s);
        scores_free(&scores);
    }
    test_worst_print(&worst);
}

// The first L tokens of long windows score like windows of length L.
static void test_prefixes(struct test * t) {
    struct scores     scores = make(t, &(struct synthetic) { .window = 4096,
                                               .n_windows = 10,
                                               .trained_length = 1500,
                                               .level = 0.6,
                                               .spread = 0.3,
                                               .warm = 1.0 });
    const int64_t     lengths[] = { 1500 };
    struct summary    s;
    struct lrnn_error err;
    test_check(t,
            summary_make(&scores,
                    &(struct summary_params) { .bucket = 512, .lengths = lengths, .n_lengths = 1 },
                    &s, &err),
            "a summary");
    const int64_t expected[] = { 512, 1024, 1500, 2048, 4096 };
    test_check(t, s.prefixes.n == 5, "%d prefixes", s.prefixes.n);
    for (int i = 0; i < s.prefixes.n && i < 5; ++i) {
        struct scores short_run = scores;
        short_run.windows = malloc((size_t) scores.n_windows * sizeof(*short_run.windows));
        for (int64_t w = 0; w < scores.n_windows; ++w) {
            short_run.windows[w] = scores.windows[w];
            short_run.windows[w].n_targets = expected[i] - 1;
        }
        struct summary               c = summarize(t, &short_run, 512);
        const struct stats_estimate *a = &s.prefixes.at[i].nats, *b = &c.total.at[0].nats;
        test_check(t,
                s.prefixes.at[i].range.to == expected[i] - 1 && near(a->value, b->value, 1e-12) &&
                        near(a->lo, b->lo, 1e-12) && near(a->hi, b->hi, 1e-12) &&
                        near(a->se, b->se, 1e-9),
                "prefix of %d: %g, a run with such windows: %g", (int) expected[i], a->value,
                b->value);
        summary_free(&c);
        free(short_run.windows);
    }
    summary_free(&s);
    scores_free(&scores);
}

// A known loss: 2 nats up to T, then 0.1 more per doubling; windows differ by constants.
static void test_extrapolation(struct test * t) {
    enum { W = 4097, N = 12, T = 512, B = 256 };
    static float               nll[N][W];
    static uint16_t            bytes[W];
    static uint8_t             flags[W];
    static struct score_window windows[N];
    const struct window_span   span = { .source = -1 };
    struct scores              scores =
            make(t, &(struct synthetic) { .window = 64, .n_windows = 1, .trained_length = T });
    struct scores known = { .meta = scores.meta, .n_windows = N, .windows = windows };
    double        rise[16] = { 0 }; // mean rise of bucket i

    for (int64_t p = 1; p < W; ++p) {
        const double r = p > T ? 0.1 * log2((double) p / T) : 0.0;
        rise[(p - 1) / B] += r / B;
        for (int w = 0; w < N; ++w) {
            nll[w][p - 1] = (float) (2.0 + 0.25 * w + r);
        }
        bytes[p - 1] = 4;
        flags[p - 1] = SCORE_COUNTED;
    }
    for (int w = 0; w < N; ++w) {
        windows[w] = (struct score_window) { .index = w,
            .n_targets = W - 1,
            .nll = nll[w],
            .bytes = bytes,
            .flags = flags,
            .spans = &span,
            .n_spans = 1 };
    }
    known.meta.window = W;
    known.meta.n_windows = N;
    struct summary               s = summarize(t, &known, B);
    const struct extrapolation * e = &s.extrapolation;
    test_check(t, e->trained_length == T && e->inside == 1 && e->n == 3,
            "inside: bucket %d; %d lengths beyond", e->inside, e->n);
    for (int i = 0; i < e->n; ++i) {
        const int bucket = (T / B << (i + 1)) - 1;
        test_check(t,
                e->factor[i] == 2 << i && e->bucket[i] == bucket &&
                        near(e->difference[i].value, rise[bucket], 1e-6) &&
                        // paired: constants of windows cancel
                        near(e->difference[i].lo, rise[bucket], 1e-6) &&
                        near(e->difference[i].hi, rise[bucket], 1e-6),
                "at %d T: %g nats, expected %g", e->factor[i], e->difference[i].value,
                rise[bucket]);
    }
    int first = 0;
    while (rise[first] <= 0.02) {
        first++;
    }
    test_check(t, e->degrades == first && near(e->rise.value, rise[first], 1e-6),
            "degrades from bucket %d, expected %d", e->degrades, first);
    summary_free(&s);
    scores_free(&scores);
}

// NaN from position 1,024 on, the last of a bucket, in every third window. Earlier buckets do not
// change; later ones equal those of a run without these windows.
static void test_divergence(struct test * t) {
    struct synthetic with = { .window = 2048,
        .n_windows = 15,
        .trained_length = 512,
        .level = 0.6,
        .spread = 0.3,
        .warm = 1.0,
        .nan_window = 3,
        .nan_position = 1024 };
    struct synthetic none = with;
    none.nan_position = 0;
    struct scores bad = make(t, &with), good = make(t, &none), rest = good;
    rest.windows = malloc(15 * sizeof(*rest.windows));
    rest.n_windows = 0;
    for (int64_t w = 0; w < good.n_windows; ++w) {
        if (w % 3 != 0) {
            rest.windows[rest.n_windows++] = good.windows[w];
        }
    }
    struct summary a = summarize(t, &bad, 256), b = summarize(t, &good, 256),
                   c = summarize(t, &rest, 256);
    test_check(t, a.n_diverged == 5 && a.diverged_from[0] == 1024 && a.diverged_from[1] == 0,
            "%d windows diverged", (int) a.n_diverged);
    for (int i = 0; i < a.buckets.n; ++i) {
        const struct loss * f = &a.buckets.at[i];
        const struct loss * g = f->range.to < 1024 ? &b.buckets.at[i] : &c.buckets.at[i];
        test_check(t,
                f->nats.value == g->nats.value && f->tokens == g->tokens &&
                        f->diverged == (f->range.to < 1024 ? 0 : 5) && f->windows == g->windows,
                "bucket %d: %g, without: %g", i, f->nats.value, g->nats.value);
    }
    test_check(t,
            a.total.at[0].diverged == 5 &&
                    near(a.total.at[0].nats.value, c.total.at[0].nats.value, 1e-12),
            "total");
    bool warned = false;
    for (int i = 0; i < a.n_warnings; ++i) {
        warned |= strstr(a.warnings[i], "diverged: 5 of 15 windows") != NULL &&
                  strstr(a.warnings[i], "position 1024 of window 0") != NULL;
    }
    test_check(t, warned, "the warning names window and position");

    // a comparison excludes them on both sides
    struct comparison cmp;
    struct lrnn_error err;
    test_check(t,
            comparison_make(&b, &a, &cmp, &err) && cmp.all.difference.n == 10 &&
                    cmp.all.difference.value == 0.0,
            "a run with itself: %g", cmp.all.difference.value);
    comparison_free(&cmp);
    summary_free(&a);
    summary_free(&b);
    summary_free(&c);
    free(rest.windows);
    scores_free(&bad);
    scores_free(&good);
}

// Windows of one endless sequence: positions continue.
static void test_never_reset(struct test * t) {
    struct scores  scores = make(t, &(struct synthetic) { .window = 512,
                                            .n_windows = 8,
                                            .trained_length = 512,
                                            .reset = "never",
                                            .level = 0.6,
                                            .warm = 1.0 });
    struct summary s = summarize(t, &scores, 512);
    test_check(t, s.length == 8 * 512 - 1 && s.buckets.n == 8, "positions to %d, %d buckets",
            (int) s.length, s.buckets.n);
    for (int i = 0; i < s.buckets.n; ++i) {
        double nll = 0.0;
        for (int64_t p = 0; p < 511; ++p) {
            nll += (double) scores.windows[i].nll[p] / 511.0;
        }
        test_check(t,
                s.buckets.at[i].windows == 1 && s.buckets.at[i].nats.method == STATS_NONE &&
                        near(s.buckets.at[i].nats.value, nll, 1e-12),
                "window %d", i);
    }
    summary_free(&s);
    scores_free(&scores);
}

// Two contexts: windows 0, 2, 4 … have the short one, 1, 3, 5 … the long one. A unit is a pair.
static void test_contexts(struct test * t) {
    enum { N = 24 };
    struct scores scores = make(t, &(struct synthetic) { .window = 600,
                                           .n_windows = N,
                                           .same_targets = "100,400",
                                           .trained_length = 100,
                                           .level = 0.6,
                                           .warm = 1.0 });
    double        sums[2] = { 0 };
    uint8_t *     flags[N];
    for (int w = 0; w < N; ++w) { // the last 200 targets of 300 or 600 tokens
        struct score_window * window = &scores.windows[w];
        window->n_targets = w % 2 == 0 ? 299 : 599;
        flags[w] = calloc(600, 1);
        memset(flags[w] + window->n_targets - 200, SCORE_COUNTED, 200);
        window->flags = flags[w];
        for (int64_t p = window->n_targets - 200; p < window->n_targets; ++p) {
            sums[w % 2] += (double) window->nll[p] / 200.0 / (N / 2);
        }
    }
    struct summary s = summarize(t, &scores, 512);
    test_check(t, s.n_contexts == 2 && s.n_units == N / 2 && s.buckets.n == 2 && s.prefixes.n == 0,
            "%d contexts, %d units", s.n_contexts, (int) s.n_units);
    for (int k = 0; k < 2; ++k) {
        test_check(t,
                s.buckets.at[k].range.from == (k == 0 ? 100 : 400) &&
                        s.buckets.at[k].tokens == 200 * N / 2 && s.buckets.at[k].windows == N / 2 &&
                        near(s.buckets.at[k].nats.value, sums[k], 1e-12),
                "context %d: %g", k, s.buckets.at[k].nats.value);
    }
    test_check(t, s.total.at[0].nats.value == s.buckets.at[1].nats.value,
            "the total is that of the longest context");
    double square = 0.0;
    for (int w = 1; w < N; w += 2) {
        for (int64_t p = 399; p < 599; ++p) {
            square += pow((double) scores.windows[w].nll[p] - sums[1], 2.0);
        }
    }
    test_check(t, near(s.token_error, sqrt(square / (100 * N) / (100 * N - 1)), 1e-12),
            "token-wise error of the longest context");
    test_check(t,
            s.extrapolation.inside == 0 && s.extrapolation.n == 1 &&
                    s.extrapolation.factor[0] == 4 &&
                    near(s.extrapolation.difference[0].value, sums[1] - sums[0], 1e-12),
            "4 T minus T: %g", s.extrapolation.difference[0].value);
    for (int w = 0; w < N; ++w) {
        free(flags[w]);
    }
    summary_free(&s);
    scores_free(&scores);
}

static void test_selection(struct test * t) {
    struct scores  scores = make(t, &(struct synthetic) { .window = 1024,
                                            .n_windows = 12,
                                            .mode = "document",
                                            .short_every = 3,
                                            .level = 0.6 });
    struct summary s = summarize(t, &scores, 256);
    bool           warned = false;
    for (int i = 0; i < s.n_warnings; ++i) {
        warned |= strstr(s.warnings[i],
                          "selection: 12 windows have targets in the first bucket, 8 at 513-768") !=
                  NULL;
    }
    test_check(t, warned && s.buckets.at[3].windows == 8, "warning: fewer documents reach the end");
    summary_free(&s);
    scores_free(&scores);
}

// The norms of windows 0 to 9 are 1 to 10 times the number of tokens, so the median of a bucket is
// 5.5 times the last power of two in it.
static void test_norms(struct test * t) {
    struct scores scores = make(
            t, &(struct synthetic) { .window = 1024, .n_windows = 10, .level = 0.6, .norm = 0.25 });
    struct summary s = summarize(t, &scores, 128);
    // the last one is after the last target
    static const int64_t LAST[8] = { 128, 256, 0, 512, 0, 0, 0, 1024 };
    for (int b = 0; b < 8 && test_check(t, s.norms != NULL && s.buckets.n == 8, "there are norms");
            ++b) {
        const struct range_norm * f = &s.norms[b];
        test_check(t,
                f->windows == (LAST[b] > 0 ? 10 : 0) &&
                        f->median == 5.5 * 0.25 * (double) LAST[b] &&
                        f->most == 10 * 0.25 * (double) LAST[b] && f->layer == 0,
                "bucket %d: %" PRId64 " windows, median %g, largest %g", b, f->windows, f->median,
                f->most);
    }
    summary_free(&s);

    // a non-finite norm is larger than all others
    struct score_norm norms[1] = { { .at = 128, .layer = 2, .norm = NAN } };
    scores.windows[7].norms = norms;
    scores.windows[7].n_norms = 1;
    s = summarize(t, &scores, 128);
    test_check(t,
            isinf(s.norms[0].most) && s.norms[0].layer == 2 && s.norms[0].windows == 10 &&
                    s.norms[1].windows == 9,
            "largest %g of layer %d", s.norms[0].most, s.norms[0].layer);
    summary_free(&s);
    scores_free(&scores);

    scores = make(t, &(struct synthetic) { .window = 1024, .n_windows = 10, .level = 0.6 });
    s = summarize(t, &scores, 128);
    test_check(t, s.norms == NULL, "a run without a probe has no norms");
    summary_free(&s);
    scores_free(&scores);
}

//
// Comparisons
//

static void test_comparable(struct test * t) {
    struct scores     scores = make(t, &(struct synthetic) { .window = 64, .n_windows = 1 });
    struct score_meta m = scores.meta;
    bool              bytes_only;
    struct lrnn_error err;
    test_check(t, comparison_allowed(&m, &scores.meta, &bytes_only, &err),
            "a run is comparable with itself");
    m.model = "other";
    m.model_hash = "x";
    m.n_batch = 7;
    m.group = 3;
    m.tool = "other";
    m.trained_length = 5;
    m.quantization = "q4_0";
    test_check(t, comparison_allowed(&m, &scores.meta, &bytes_only, &err),
            "other models are comparable: %s", err.text);

    const struct {
        const char *  key;
        const char ** text;
        int64_t *     number;
        bool          bytes;
    } keys[] = {
        { "data_fingerprint", &m.data_fingerprint, NULL, false },
        { "tokenizer_hash", &m.tokenizer_hash, NULL, true },
        { "mode", &m.mode, NULL, false },
        { "bos", &m.bos, NULL, false },
        { "eos", &m.eos, NULL, false },
        { "reset", &m.reset, NULL, false },
        { "same_targets", &m.same_targets, NULL, false },
        { "window", NULL, &m.window, false },
        { "min_doc_tokens", NULL, &m.min_doc_tokens, false },
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); ++i) {
        m = scores.meta;
        if (keys[i].text != NULL) {
            *keys[i].text = "something else";
        } else {
            *keys[i].number += 1;
        }
        const bool allowed = comparison_allowed(&scores.meta, &m, &bytes_only, &err);
        test_check(t,
                !allowed && test_has_word(err.text, keys[i].key) && bytes_only == keys[i].bytes,
                "%s: %s", keys[i].key, err.text);
    }
    m = scores.meta;
    m.skip_special = true;
    test_check(t,
            !comparison_allowed(&scores.meta, &m, &bytes_only, &err) &&
                    test_has_word(err.text, "skip_special"),
            "skip_special: %s", err.text);
    scores_free(&scores);
}

static void test_comparison(struct test * t) {
    const struct synthetic a = { .window = 2048,
        .n_windows = 20,
        .trained_length = 512,
        .level = 0.6,
        .spread = 0.3,
        .warm = 1.0 };
    struct synthetic       b = a;
    b.model = "b";
    b.wobble = 0.03;
    b.rise = 0.05;
    struct scores     sa = make(t, &a), sb = make(t, &b);
    struct summary    ma = summarize(t, &sa, 256), mb = summarize(t, &sb, 256);
    struct comparison c;
    struct lrnn_error err;
    test_check(t,
            comparison_make(&ma, &mb, &c, &err) && c.n_buckets == 8 && c.trained_length == 512 &&
                    c.n_left_out == 0,
            "a comparison: %s", err.text);

    // beyond T, with a loop
    double sum = 0.0;
    int    won = 0;
    for (int64_t w = 0; w < 20; ++w) {
        double d = 0.0;
        for (int64_t p = 513; p <= 2047; ++p) {
            d += ((double) sb.windows[w].nll[p - 1] - (double) sa.windows[w].nll[p - 1]) /
                 (2047 - 512);
        }
        sum += d / 20.0;
        won += d < 0.0;
    }
    test_check(t,
            near(c.beyond.difference.value, sum, 1e-12) && c.beyond.won == won &&
                    c.beyond.difference.n == 20,
            "beyond T: %g, expected %g", c.beyond.difference.value, sum);
    for (int i = 0; i < c.n_buckets; ++i) {
        test_check(t,
                near(c.buckets[i].difference.value,
                        mb.buckets.at[i].nats.value - ma.buckets.at[i].nats.value, 1e-12) &&
                        c.buckets[i].difference.hi - c.buckets[i].difference.lo <
                                0.3 * (ma.buckets.at[i].nats.hi - ma.buckets.at[i].nats.lo),
                "bucket %d: the difference of the losses, with a much narrower interval", i);
    }
    comparison_free(&c);

    // an unfinished run: only common windows
    sb.n_windows = 13;
    struct summary mc = summarize(t, &sb, 256);
    test_check(t,
            comparison_make(&ma, &mc, &c, &err) && c.all.difference.n == 13 && c.n_left_out == 7,
            "13 of 20 windows");
    comparison_free(&c);
    struct summary wide = summarize(t, &sa, 512);
    test_check(t,
            !comparison_make(&wide, &mb, &c, &err) && strstr(err.text, "different buckets") != NULL,
            "different buckets: %s", err.text);
    summary_free(&ma);
    summary_free(&mb);
    summary_free(&mc);
    summary_free(&wide);
    scores_free(&sa);
    scores_free(&sb);
}

// Two tokenizers; a byte has the same cost with both. Over equal stretches there is no difference,
// and exactly a tenth if all costs are a tenth higher.
static void test_bytes(struct test * t) {
    for (int k = 0; k < 3; ++k) {
        struct synthetic a = { .window = 1024,
            .n_windows = 14,
            .trained_length = 256,
            .level = 0.5,
            .spread = 0.3,
            .doc_bytes = k == 0   ? 900
                         : k == 1 ? 5000
                                  : 40000 };
        struct synthetic b = a, c = a;
        b.tokenizer = c.tokenizer = "t1";
        b.model = c.model = "b";
        c.level = 0.55;
        struct scores          sa = make(t, &a), sb = make(t, &b), sc = make(t, &c);
        struct byte_comparison same, more;
        struct lrnn_error      err = { LRNN_ERROR_NONE, "" };
        test_check(t,
                byte_comparison_make(&sa, &sb, 256, 256, &same, &err) &&
                        byte_comparison_make(&sa, &sc, 256, 256, &more, &err),
                "comparison by bytes: %s", err.text);
        printf("documents of about %d bytes: %.1f %% of the bytes compared, difference %.1e\n",
                (int) a.doc_bytes, 100.0 * (double) same.bytes / (double) same.base_bytes,
                same.all.difference.value);
        test_check(t, fabs(same.all.difference.value) < 1e-7 && fabs(same.all.difference.hi) < 1e-6,
                "no difference: %g", same.all.difference.value);
        test_check(t,
                near(more.all.difference.value, 0.1 * more.base.value, 1e-6) && more.all.won == 0,
                "a tenth more: %g of %g", more.all.difference.value, more.base.value);
        test_check(t,
                near(same.beyond.difference.value, 0.0, 1e-6) && same.beyond.difference.n > 10,
                "beyond the trained lengths");
        // if a document ends in the window after the one it began in, the position of its last part
        // is unknown (see first_token_bytes)
        test_check(t, same.bytes > same.base_bytes * (k == 1 ? 5 : 8) / 10,
                "most of the text is compared: %d of %d", (int) same.bytes, (int) same.base_bytes);

        // the same run
        struct byte_comparison self;
        test_check(t,
                byte_comparison_make(&sa, &sa, 256, 256, &self, &err) &&
                        self.all.difference.value == 0.0 && self.base.value == self.other.value,
                "with itself");
        scores_free(&sa);
        scores_free(&sb);
        scores_free(&sc);
    }
}

int main(void) {
    struct test t = { 0 };
    test_uniform_model(&t);
    test_sums(&t);
    test_prefixes(&t);
    test_extrapolation(&t);
    test_divergence(&t);
    test_never_reset(&t);
    test_contexts(&t);
    test_selection(&t);
    test_norms(&t);
    test_comparable(&t);
    test_comparison(&t);
    test_bytes(&t);
    return test_end(&t, "test-summary");
}
