// Memory use is constant: 100,000 tokens in calls of all sizes, for every golden model without
// attention layers. Logits stay finite, because no eigenvalue is outside the unit circle. The
// address sanitizer is slow and keeps freed memory: with it the test runs a tenth of the tokens and
// does not measure memory.

#include "kit/check.h"
#include "kit/golden.h"
#include "kit/rng.h"
#include "lrnn.h"

#if LRNN_SANITIZE
enum { N_TOKENS = 10000 };
#else
enum { N_TOKENS = 100000 };
#endif
enum { N_WARM = 2000, N_CALL = 64 };

static const int64_t LIMIT_GROWTH = 1 << 20; // bytes

#if defined(__linux__) && !LRNN_SANITIZE
#    include <unistd.h>

// resident memory of this process, in bytes; -1: unknown
static int64_t resident(void) {
    FILE * f = fopen("/proc/self/statm", "r");
    long   total = 0, pages = -1;
    if (f != NULL) {
        if (fscanf(f, "%ld %ld", &total, &pages) != 2) {
            pages = -1;
        }
        fclose(f);
    }
    return pages >= 0 ? (int64_t) pages * sysconf(_SC_PAGESIZE) : -1;
}
#else
static int64_t resident(void) {
    return -1;
}
#endif

static bool finite_logits(const float * logits, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if (!isfinite(logits[i])) {
            return false;
        }
    }
    return true;
}

// The sizes of the calls repeat, the largest first, so that after N_WARM tokens the session has
// allocated everything that it needs.
static void run(
        struct test * t, const char * name, struct lrnn_session * session, int64_t n_vocab) {
    static const int64_t sizes[] = { N_CALL, 1, 1, 33, 1, 7, N_CALL, 2, 1, 48 };
    struct test_rng      rng = { 1 };
    struct lrnn_error    err;
    int64_t              warm = -1;
    float                last = 0.0f;
    for (int64_t at = 0, call = 0; at < N_TOKENS; ++call) {
        int32_t       tokens[N_CALL];
        const int64_t n = sizes[call % (int64_t) (sizeof(sizes) / sizeof(sizes[0]))];
        for (int64_t i = 0; i < n; ++i) {
            tokens[i] = (int32_t) test_below(&rng, n_vocab);
        }
        const struct lrnn_input in = { .seq = 0, .tokens = tokens, .n_tokens = n, .n_logits = 1 };
        if (!test_check(t, lrnn_eval(session, &in, 1, &err), "%s: after %lld tokens: %s", name,
                    (long long) at, err.text) ||
                !test_check(t, finite_logits(lrnn_logits(session, 0), n_vocab),
                        "%s: a logit is not finite within %lld tokens", name,
                        (long long) (at + n))) {
            return;
        }
        last = lrnn_logits(session, 0)[0];
        at += n;
        if (warm < 0 && at >= N_WARM) {
            warm = resident();
        }
    }
    const int64_t growth = resident() - warm;
    test_check(t, warm < 0 || growth < LIMIT_GROWTH,
            "%s: memory grew by %lld bytes from %d to %d tokens", name, (long long) growth, N_WARM,
            N_TOKENS);
    if (warm < 0) {
        printf("%-28s last logit %8.3f   memory not measured\n", name, last);
    } else {
        printf("%-28s last logit %8.3f   memory grew by %lld bytes\n", name, last,
                (long long) growth);
    }
}

int main(void) {
    struct test        t = { 0 };
    struct golden_list list;
    int                n = 0;
    golden_list_load(&list);
    for (int i = 0; i < list.n; ++i) {
        struct lrnn_model *          model = test_load_model(list.models[i].path, NULL);
        const struct lrnn_model_info info = lrnn_model_get_info(model);
        if (info.n_layer_attention == 0) {
            const struct lrnn_session_params params = { .n_threads = 1, .n_rewind = 2 };
            struct lrnn_session *            session = test_session(model, &params);
            run(&t, list.models[i].name, session, info.n_vocab);
            lrnn_session_free(session);
            n++;
        }
        lrnn_model_free(model);
    }
    test_check(&t, n > 0, "no model without attention layers");
    golden_list_free(&list);
    return test_end(&t, "test-constant-memory");
}
