// Golden models give the golden logits however the tokens are fed: in one call, in one call that
// the session splits into small batches, token by token, in random pieces, next to another
// sequence, with rewinds and forks. The comparison is sensitive to every weight: if one tensor is
// slightly wrong, the logits differ.

#include "base/hash.h"
#include "base/read-file.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/rng.h"
#include "lrnn.h"
#include "model/families.h"

#include "gguf.h"

enum { N_REWIND = 5, N_BATCH = 7 };

// Largest absolute difference between a logit and its golden logit; logits are about 1 to 10. With
// an attention cache in F16, keys and values have 11 bits.
static const double LIMIT_LIBRARY = 1e-4;
static const double LIMIT_F16 = 2e-3;
// The same between two sequences together and each alone: ggml rounds products of one column and of
// several columns differently.
static const double LIMIT_ALONE = 1e-4;
// Smallest change of the logits if a tensor is wrong by up to 20 %.
static const double SEEN = 1e-3;

enum feed {
    FEED_ONE,
    FEED_BATCHES,
    FEED_STEPS,
    FEED_CUTS,
    FEED_TWO,
    FEED_REWIND,
    FEED_REWINDS,
    FEEDS
};

static const char * const feed_names[FEEDS] = { "one call", "batches", "steps", "cuts", "two",
    "rewind", "rewinds" };

struct run {
    struct test *         t;
    const struct golden * g;
    struct lrnn_model *   model;
    struct lrnn_session * session;
    struct test_rng       rng;
    double                limit; // of the difference from the golden logits
    char                  where[160];
    struct lrnn_error     err;
};

static double max_diff(const float * a, const float * b, int64_t n) {
    double worst = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        const double d = fabs((double) a[i] - (double) b[i]);
        worst = d <= worst ? worst : d; // NaN wins
    }
    return worst;
}

static double worse(double a, double b) {
    return isnan(a) || a > b ? a : b;
}

static bool ok(struct run * r, bool done) {
    return test_check(r->t, done, "%s: %s", r->where, r->err.text);
}

static bool open_session(
        struct run * r, enum feed feed, const struct lrnn_session_params * params) {
    snprintf(r->where, sizeof(r->where), "%s, %s, %d threads%s%s", r->g->name, feed_names[feed],
            params->n_threads, params->exact_cuts ? ", exact cuts" : "",
            params->cache_type == LRNN_CACHE_F32 ? "" : ", cache in F16");
    r->session = lrnn_session_new(r->model, params, &r->err);
    return ok(r, r->session != NULL);
}

// The largest difference between the logits of n tokens of the last call, starting with output
// `first`, and the golden logits from position `at` on.
static double against_library(const struct run * r, int64_t first, int64_t at, int64_t n) {
    double worst = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        const float * logits = lrnn_logits(r->session, first + i);
        worst = worse(logits != NULL ? max_diff(logits, r->g->logits + (at + i) * r->g->n_vocab,
                                               r->g->n_vocab)
                                     : NAN,
                worst);
    }
    return worst;
}

// Feeds the tokens to sequence 0 in calls of `most` tokens; or of a random 1 to −most tokens, with
// logits of a random number of them.
static double feed_cut(struct run * r, int64_t most) {
    double  worst = 0.0;
    int64_t at = 0;
    while (at < r->g->n_tokens) {
        int64_t n = most > 0 ? most : 1 + test_below(&r->rng, -most);
        n = n < r->g->n_tokens - at ? n : r->g->n_tokens - at;
        const int64_t           n_logits = most > 0 ? n : test_below(&r->rng, n + 1); // the last
        const struct lrnn_input in = {
            .seq = 0, .tokens = r->g->tokens + at, .n_tokens = n, .n_logits = n_logits
        };
        if (!ok(r, lrnn_eval(r->session, &in, 1, &r->err))) {
            return NAN;
        }
        worst = worse(against_library(r, 0, at + n - n_logits, n_logits), worst);
        test_check(r->t, lrnn_logits(r->session, n_logits) == NULL,
                "%s: more logits than asked for", r->where);
        at += n;
    }
    return worst;
}

// Two sequences of the same text and different lengths in random pieces. The shorter one starts
// later and ends earlier than the other, and comes first in half of the calls.
static double feed_two(struct run * r) {
    const int64_t ends[2] = { r->g->n_tokens, r->g->n_tokens * 3 / 5 };
    int64_t       at[2] = { 0, 0 };
    double        worst = 0.0;
    for (int call = 0; at[0] < ends[0] || at[1] < ends[1]; ++call) {
        struct lrnn_input in[2];
        int32_t           n_in = 0;
        for (int i = 0; i < 2; ++i) {
            const int s = (call + i) % 2;
            int64_t   n = s == 1 && call < 2 ? 0 : test_below(&r->rng, 6);
            n = n < ends[s] - at[s] ? n : ends[s] - at[s];
            if (n > 0) {
                in[n_in++] = (struct lrnn_input) {
                    .seq = s, .tokens = r->g->tokens + at[s], .n_tokens = n, .n_logits = n
                };
            }
        }
        if (n_in == 0) {
            continue;
        }
        if (!ok(r, lrnn_eval(r->session, in, n_in, &r->err))) {
            return NAN;
        }
        int64_t first = 0;
        for (int32_t i = 0; i < n_in; ++i) {
            const int32_t s = in[i].seq;
            worst = worse(against_library(r, first, at[s], in[i].n_tokens), worst);
            first += in[i].n_tokens;
            at[s] += in[i].n_tokens;
        }
    }
    return worst;
}

// Random pieces. After some calls the sequence rewinds by some tokens, in half of the cases after
// wrong tokens; or it continues as a fork while the original is used for other tokens.
static double feed_rewind(struct run * r) {
    const struct golden * g = r->g;
    double                worst = 0.0;
    int64_t               at = 0;
    int32_t               seq = 0;
    int64_t               turns = 0;
    int64_t               can = 0; // rewind by
    while (at < g->n_tokens) {
        int64_t n = 1 + test_below(&r->rng, 9);
        n = n < g->n_tokens - at ? n : g->n_tokens - at;
        const struct lrnn_input in = {
            .seq = seq, .tokens = g->tokens + at, .n_tokens = n, .n_logits = n
        };
        if (!ok(r, lrnn_eval(r->session, &in, 1, &r->err))) {
            return NAN;
        }
        worst = worse(against_library(r, 0, at, n), worst);
        at += n;
        can = can + n < N_REWIND ? can + n : N_REWIND;
        if (!test_check(r->t, lrnn_seq_rewindable(r->session, seq) == can,
                    "%s: can rewind by %lld after %lld tokens; expected %lld", r->where,
                    (long long) lrnn_seq_rewindable(r->session, seq), (long long) at,
                    (long long) can)) {
            return NAN;
        }
        if (++turns > 2 * g->n_tokens) {
            continue; // enough changes; feed the rest
        }
        switch (test_below(&r->rng, 4)) {
            case 0: {
                const int64_t back = 1 + test_below(&r->rng, can);
                if (!ok(r, lrnn_seq_rewind(r->session, seq, back, &r->err))) {
                    return NAN;
                }
                at -= back;
                can -= back;
            } break;
            case 1: { // wrong tokens, then rewind
                const int64_t           wrong = 1 + test_below(&r->rng, N_REWIND);
                const struct lrnn_input bad = {
                    .seq = seq, .tokens = g->tokens, .n_tokens = wrong, .n_logits = 0
                };
                if (!ok(r, lrnn_eval(r->session, &bad, 1, &r->err)) ||
                        !ok(r, lrnn_seq_rewind(r->session, seq, wrong, &r->err))) {
                    return NAN;
                }
                can = (can + wrong < N_REWIND ? can + wrong : N_REWIND) - wrong;
            } break;
            case 2: {
                const int32_t           to = (seq + 1) % 3;
                const struct lrnn_input bad = {
                    .seq = seq, .tokens = g->tokens + 1, .n_tokens = 2, .n_logits = 0
                };
                if (!ok(r, lrnn_seq_fork(r->session, seq, to, &r->err)) ||
                        !ok(r, lrnn_eval(r->session, &bad, 1, &r->err)) ||
                        !ok(r, lrnn_seq_reset(r->session, seq, &r->err))) {
                    return NAN;
                }
                seq = to;
                can = 0; // a fork cannot rewind beyond its start
            } break;
            default: break;
        }
        if (!test_check(r->t, lrnn_seq_length(r->session, seq) == at,
                    "%s: length %lld; expected %lld", r->where,
                    (long long) lrnn_seq_length(r->session, seq), (long long) at)) {
            return NAN;
        }
    }
    return worst;
}

// Every rewind after a call of up to 6 tokens at the start of a sequence and after 4 tokens. The
// tokens that the rewind drops are wrong ones, so that a stale state gives wrong logits.
static double feed_rewinds(struct run * r) {
    enum { MOST = 6, BEFORE = 4, AFTER = 2 };
    const struct golden * g = r->g;
    double                worst = 0.0;
    for (int64_t start = 0; start <= BEFORE; start += BEFORE) {
        for (int64_t n = 1; n <= MOST; ++n) {
            for (int64_t back = 0; back <= N_REWIND && back <= start + n; ++back) {
                const int64_t keep = start + n - back; // right tokens
                int32_t       tokens[BEFORE + MOST];
                for (int64_t i = 0; i < start + n; ++i) {
                    tokens[i] =
                            i < keep ? g->tokens[i] : (int32_t) ((g->tokens[i] + 1) % g->n_vocab);
                }
                const struct lrnn_input in[3] = {
                    { .tokens = tokens, .n_tokens = start },
                    { .tokens = tokens + start, .n_tokens = n },
                    { .tokens = g->tokens + keep, .n_tokens = AFTER, .n_logits = AFTER },
                };
                if (!ok(r, lrnn_seq_reset(r->session, 0, &r->err)) ||
                        (start > 0 && !ok(r, lrnn_eval(r->session, &in[0], 1, &r->err))) ||
                        !ok(r, lrnn_eval(r->session, &in[1], 1, &r->err)) ||
                        !ok(r, lrnn_seq_rewind(r->session, 0, back, &r->err)) ||
                        !ok(r, lrnn_eval(r->session, &in[2], 1, &r->err))) {
                    return NAN;
                }
                const double d = against_library(r, 0, keep, AFTER);
                test_check(r->t, d < r->limit,
                        "%s: %lld tokens, then %lld, rewound by %lld: logits differ by %.3g",
                        r->where, (long long) start, (long long) n, (long long) back, d);
                worst = worse(d, worst);
            }
        }
    }
    return worst;
}

static double feed(struct run * r, enum feed how) {
    switch (how) {
        case FEED_ONE:
        case FEED_BATCHES: return feed_cut(r, r->g->n_tokens);
        case FEED_STEPS: return feed_cut(r, 1);
        case FEED_CUTS: return feed_cut(r, -17);
        case FEED_TWO: return feed_two(r);
        case FEED_REWINDS: return feed_rewinds(r);
        default: return feed_rewind(r);
    }
}

// Decodes one token per sequence and call: the text, and the text backwards, which starts later and
// ends earlier. alone ≥ 0: only this sequence.
static bool decode(struct run * r, int alone, float * out[2]) {
    const struct golden * g = r->g;
    const int64_t         from[2] = { 0, 5 }, to[2] = { g->n_tokens, g->n_tokens - 7 };
    for (int64_t i = 0; i < g->n_tokens; ++i) {
        struct lrnn_input in[2];
        int32_t           tokens[2];
        int32_t           n_in = 0;
        for (int32_t s = 0; s < 2; ++s) {
            if ((alone < 0 || alone == s) && i >= from[s] && i < to[s]) {
                tokens[s] = g->tokens[s == 0 ? i : g->n_tokens - 1 - i];
                in[n_in++] = (struct lrnn_input) {
                    .seq = s, .tokens = &tokens[s], .n_tokens = 1, .n_logits = 1
                };
            }
        }
        if (n_in > 0 && !ok(r, lrnn_eval(r->session, in, n_in, &r->err))) {
            return false;
        }
        for (int32_t k = 0; k < n_in; ++k) {
            memcpy(out[in[k].seq] + i * g->n_vocab, lrnn_logits(r->session, k),
                    (size_t) g->n_vocab * sizeof(float));
        }
    }
    return true;
}

static double together_and_alone(struct run * r, struct lrnn_session_params params) {
    const int64_t n = r->g->n_tokens * r->g->n_vocab;
    float *       all = calloc((size_t) (4 * n), sizeof(float));
    double        d = NAN;
    params.n_seqs = 2;
    if (all != NULL) {
        float *together[2] = { all, all + n }, *alone[2] = { all + 2 * n, all + 3 * n };
        bool   done = true;
        for (int who = -1; who < 2 && done; ++who) {
            done = open_session(r, FEED_TWO, &params) && decode(r, who, who < 0 ? together : alone);
            lrnn_session_free(r->session);
        }
        d = done ? max_diff(all, all + 2 * n, 2 * n) : NAN;
    }
    free(all);
    test_check(r->t, d <= LIMIT_ALONE, "%s: together and alone differ by %.3g > %.0e", r->where, d,
            LIMIT_ALONE);
    return d;
}

// Settings 0 to 3, and 4: the attention cache in F16.
enum { N_SETTINGS = 4, SETTING_F16 = N_SETTINGS };

static void test_setting(struct test * t, const struct golden * g, struct lrnn_model * model,
        int setting, double worst[FEEDS + 1]) {
    const bool f16 = setting == SETTING_F16;
    // every model and every setting has other random pieces
    const uint64_t seed = hash_add(HASH_START, g->name, strlen(g->name)) + (uint64_t) setting;
    const double   limit = f16 ? LIMIT_F16 : LIMIT_LIBRARY;
    struct run     r = { .t = t, .g = g, .model = model, .rng = { seed }, .limit = limit };
    for (int how = 0; how < FEEDS; ++how) {
        const struct lrnn_session_params params = {
            .n_threads = 1 + setting % 2,
            .exact_cuts = setting / 2 == 1,
            .n_seqs = how == FEED_REWIND ? 3 : 2,
            .n_rewind = how == FEED_REWIND || how == FEED_REWINDS ? N_REWIND : 0,
            .n_batch = how == FEED_BATCHES                   ? N_BATCH
                       : how == FEED_REWINDS && setting == 3 ? 4 // split calls
                                                             : 0,
            .n_cache = 64,
            .cache_type = f16 ? LRNN_CACHE_F16 : LRNN_CACHE_F32,
        };
        double d = NAN;
        if (open_session(&r, (enum feed) how, &params)) {
            d = feed(&r, (enum feed) how);
            lrnn_session_free(r.session);
        }
        test_check(t, d < limit, "%s: logits differ by %.3g; expected less than %.0e", r.where, d,
                limit);
        worst[how] = worse(d, worst[how]);
    }
    const struct lrnn_session_params params = {
        .n_threads = 1 + setting % 2,
        .exact_cuts = setting / 2 == 1,
        .n_cache = 64,
        .cache_type = f16 ? LRNN_CACHE_F16 : LRNN_CACHE_F32,
    };
    worst[FEEDS] = worse(together_and_alone(&r, params), worst[FEEDS]);
}

//
// Every tensor matters
//

// The difference from the golden logits with a model file of these bytes.
static double spoiled(struct run * r, const char * file, size_t size) {
    double d = NAN;
    char   path[64];
    test_own_path(path, sizeof(path), "test-golden.gguf");
    test_write_file(path, file, size);
    r->model = lrnn_model_load(path, NULL, &r->err);
    if (ok(r, r->model != NULL)) {
        r->session = lrnn_session_new(r->model,
                &(struct lrnn_session_params) {
                        .n_threads = 1, .n_cache = 64, .cache_type = LRNN_CACHE_F32 },
                &r->err);
        d = ok(r, r->session != NULL) ? feed_cut(r, r->g->n_tokens) : NAN;
        lrnn_session_free(r->session);
    }
    lrnn_model_free(r->model);
    return d;
}

// RWKV-7 files of llama.cpp have v0, v1 and v2 in the first layer, where nothing uses them.
static bool is_unused(const char * name) {
    static const char prefix[] = "blk.0.time_mix_v";
    const size_t      n = sizeof(prefix) - 1;
    return strncmp(name, prefix, n) == 0 && name[n] >= '0' && name[n] <= '2';
}

// Changes every element of each tensor in turn by up to 20 %: more than rounding, less than any
// error in reading it.
static double least_seen(struct test * t, const struct golden * g) {
    struct run            r = { .t = t, .g = g, .rng = { 1 } };
    size_t                size = 0;
    char *                file = NULL;
    struct gguf_context * gguf =
            gguf_init_from_file(g->path, (struct gguf_init_params) { .no_alloc = true });
    double least = INFINITY;
    snprintf(r.where, sizeof(r.where), "%s", g->name);
    if (test_check(t, read_file(g->path, &file, &size, &r.err) && gguf != NULL, "%s: %s", g->path,
                r.err.text)) {
        for (int64_t i = 0; i < gguf_get_n_tensors(gguf); ++i) {
            char *       data = file + gguf_get_data_offset(gguf) + gguf_get_tensor_offset(gguf, i);
            const size_t n = gguf_get_tensor_size(gguf, i) / sizeof(float);
            float *      values = malloc(n * sizeof(float));
            if (!test_check(t, values != NULL && gguf_get_tensor_type(gguf, i) == GGML_TYPE_F32,
                        "%s: a tensor is not F32", r.where)) {
                free(values);
                break;
            }
            memcpy(values, data, n * sizeof(float));
            for (size_t k = 0; k < n; ++k) {
                const float wrong = values[k] * (float) test_uniform(&r.rng, 0.8, 1.2);
                memcpy(data + k * sizeof(float), &wrong, sizeof(wrong));
            }
            snprintf(r.where, sizeof(r.where), "%s with wrong %s", g->name,
                    gguf_get_tensor_name(gguf, i));
            const double d = spoiled(&r, file, size);
            if (is_unused(gguf_get_tensor_name(gguf, i))) {
                test_check(t, d < SEEN, "%s: logits differ by %.3g, but nothing should read it",
                        r.where, d);
            } else {
                test_check(t, d > SEEN, "%s: logits differ by %.3g; expected more than %.0e",
                        r.where, d, SEEN);
                least = d < least ? d : least;
            }
            memcpy(data, values, n * sizeof(float));
            free(values);
        }
    }
    gguf_free(gguf);
    free(file);
    return least;
}

// Every family has a golden model.
#define FAMILY_NAME(name) #name,
static const char * const families[] = { FAMILIES(FAMILY_NAME) };
#undef FAMILY_NAME
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

static void print_row(
        const char * name, const struct lrnn_model_info * info, const double worst[FEEDS + 1]) {
    printf("%-28s %-20s %-7s", name, info->family, info->eigenvalues);
    for (int k = 0; k <= FEEDS; ++k) {
        printf(" %9.1e", worst[k]);
    }
}

// test-golden [NAME...]: all golden models, or some
int main(int argc, char ** argv) {
    struct test        t = { 0 };
    struct golden_list list;
    bool               seen[N_FAMILIES] = { false };
    golden_list_load(&list);
    printf("largest absolute difference from the golden logits; between two sequences together and "
           "each alone; smallest with a wrong tensor\n");
    printf("%-28s %-20s %-7s", "model", "family", "range");
    for (int i = 0; i < FEEDS; ++i) {
        printf(" %9s", feed_names[i]);
    }
    printf(" %9s %9s\n", "together", "wrong");

    for (int i = 0; i < list.n; ++i) {
        const struct golden * g = &list.models[i];
        bool                  asked = argc == 1;
        for (int a = 1; a < argc; ++a) {
            asked = asked || strcmp(argv[a], g->name) == 0;
        }
        if (!asked) {
            continue;
        }
        struct lrnn_model *          model = test_load_model(g->path, NULL);
        const struct lrnn_model_info info = lrnn_model_get_info(model);
        if (test_check(&t, info.n_vocab == g->n_vocab, "%s: vocabulary of %lld, logits of %lld",
                    g->name, (long long) info.n_vocab, (long long) g->n_vocab)) {
            double worst[FEEDS + 1] = { 0.0 };
            for (int setting = 0; setting < N_SETTINGS; ++setting) {
                test_setting(&t, g, model, setting, worst);
            }
            print_row(g->name, &info, worst);
            printf(" %9.1e\n", least_seen(&t, g));
            if (info.n_layer_attention > 0) {
                double rounded[FEEDS + 1] = { 0.0 };
                test_setting(&t, g, model, SETTING_F16, rounded);
                print_row("  with its cache in F16", &info, rounded);
                printf("\n");
            }
        }
        for (int f = 0; f < N_FAMILIES; ++f) {
            seen[f] = seen[f] || strcmp(info.family, families[f]) == 0;
        }
        lrnn_model_free(model);
    }
    for (int f = 0; argc == 1 && f < N_FAMILIES; ++f) {
        test_check(&t, seen[f], "no golden model of family %s", families[f]);
    }
    golden_list_free(&list);
    return test_end(&t, "test-golden");
}
