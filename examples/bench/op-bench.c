#include "op-bench.h"

#include "base/error.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

// The reference path is slow. Where it replaces a stock op, it computes at most this many tokens.
enum { REFERENCE_TOKENS_MAX = 1024 };

//
// Selection
//

static bool is_selected(const struct op_bench_params * p, const struct bench_case * c) {
    for (int i = 0; i < p->modes.n; ++i) {
        if (fnmatch(p->modes.v[i], c->name, 0) == 0) {
            return true;
        }
    }
    return p->modes.n == 0;
}

// Case i of the selection; NULL if there are fewer.
static const struct bench_case * case_at(const struct op_bench_params * p, int i) {
    const struct bench_case * tables[] = { cases_householder, cases_signed_gate, cases_short_conv,
        cases_attention, cases_mul_mat };

    for (int f = 0; f < OP_FAMILY_ALL; ++f) {
        for (const struct bench_case * c = tables[f]; c->name != NULL; ++c) {
            if ((p->family == f || p->family == OP_FAMILY_ALL) && is_selected(p, c) && i-- == 0) {
                return c;
            }
        }
    }
    return NULL;
}

// Shape i of a case, one per token count; false if there are fewer. Decode cases keep their single
// token; a list without 1 skips them.
static bool shape_at(
        const struct op_bench_params * p, const struct bench_case * c, int i, struct op_shape * s) {
    const bool is_decode = c->shape.tokens == 1;

    *s = c->shape;
    if (p->d > 0 && s->d_k == s->d_v) {
        s->d_k = s->d_v = p->d;
    }
    s->d_k = p->d_k > 0 ? p->d_k : s->d_k;
    s->d_v = p->d_v > 0 ? p->d_v : s->d_v;
    s->heads = p->heads > 0 && s->heads > 1 ? p->heads : s->heads;
    s->n_h = p->n_h > 0 && c->products ? p->n_h : s->n_h;
    s->seqs = p->seqs > 0 ? p->seqs : s->seqs;
    s->layers = p->layers > 0 ? p->layers : s->layers;

    if (p->tokens.n == 0) {
        return i == 0;
    }
    for (int j = 0; j < p->tokens.n; ++j) {
        if ((!is_decode || p->tokens.v[j] == 1) && i-- == 0) {
            s->tokens = p->tokens.v[j];
            return true;
        }
    }
    return false;
}

int op_bench_count(const struct op_bench_params * p) {
    struct op_shape s;
    int             n = 0;

    for (int i = 0; case_at(p, i) != NULL; ++i) {
        for (int j = 0; shape_at(p, case_at(p, i), j, &s); ++j) {
            n += p->threads.n;
        }
    }
    return n;
}

void op_bench_list(const struct op_bench_params * p, FILE * out) {
    for (int i = 0; case_at(p, i) != NULL; ++i) {
        const struct bench_case * c = case_at(p, i);
        fprintf(out, "%-15s %s\n", c->name, c->what);
    }
}

bool op_result_is_noisy(const struct op_result * r) {
    const double busy_min = 0.9, median_max = 1.25;

    return r->busy < busy_min || r->ours.median > median_max * r->ours.best ||
           r->stock.median > median_max * r->stock.best;
}

//
// Run
//

static bool run_shape(const struct op_bench_params * p, const struct bench_case * c,
        const struct op_shape * s, ggml_backend_t backend, op_bench_progress progress,
        op_result_callback result, void * user, struct lrnn_error * err) {
    if (s->tokens * s->seqs > INT32_MAX) {
        error_bad_input(err,
                "%s: %" PRId64 " sequences of %" PRId64 " tokens are more than 2147483647 tokens",
                c->name, s->seqs, s->tokens);
        return false;
    }

    struct op_shape goal_shape = c->shape;
    goal_shape.layers = s->layers; // the work per layer is the same

    struct op_result r = {
        .c = c,
        .shape = *s,
        .on_device = p->device != NULL,
        .goal = p->device == NULL && memcmp(&goal_shape, s, sizeof(*s)) == 0 ? c->goal : 0.0,
        .flops = c->flops(c, s) * (double) (s->tokens * s->seqs),
    };
    const bool has_stock = op_has_stock(c, s, &r.no_stock);

    struct op_instance it = { 0 };
    bool               ok = true;
    ggml_backend_set_threads(backend, (int) p->threads.v[p->threads.n - 1]);

    // with the reference path, a shorter instance is checked
    if (!has_stock && s->tokens > REFERENCE_TOKENS_MAX) {
        struct op_shape shorter = *s;
        shorter.tokens = REFERENCE_TOKENS_MAX;
        ok = op_instance_build(&it, c, &shorter, backend, p->path, err) &&
             op_instance_check(&it, &r, err);
        if (ok) {
            op_instance_free(&it);
            ok = op_instance_build(&it, c, s, backend, p->path, err);
        }
    } else {
        ok = op_instance_build(&it, c, s, backend, p->path, err) && op_instance_check(&it, &r, err);
    }
    if (it.rejected) {
        r.rejected = err->text;
        ok = true;
    } else if (ok) {
        r.bytes = op_instance_bytes(&it);
    }

    for (int i = 0; ok && i < p->threads.n; ++i) {
        char what[128];
        snprintf(what, sizeof(what), "%s, T = %" PRId64 ", threads = %" PRId64, c->name, s->tokens,
                p->threads.v[i]);
        progress(what, user);

        r.threads = (int) p->threads.v[i];
        ggml_backend_set_threads(backend, r.threads);
        ok = r.rejected != NULL || !r.agrees || op_instance_time(&it, p, &r, err);
        if (ok) {
            result(&r, user);
        }
    }
    op_instance_free(&it);
    return ok;
}

bool op_bench_run(const struct op_bench_params * p, op_bench_progress progress,
        op_result_callback result, void * user, struct lrnn_error * err) {
    ggml_time_init();

    ggml_backend_t backend =
            p->device != NULL ? ggml_backend_init_by_name(p->device, NULL)
                              : ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    bool ok = backend != NULL;
    if (!ok) {
        error_no_memory(err, "ggml's backend %s", p->device != NULL ? p->device : "CPU");
    }

    struct op_shape s;
    for (int i = 0; ok && case_at(p, i) != NULL; ++i) {
        for (int j = 0; ok && shape_at(p, case_at(p, i), j, &s); ++j) {
            ok = run_shape(p, case_at(p, i), &s, backend, progress, result, user, err);
        }
    }
    ggml_backend_free(backend);
    return ok;
}
