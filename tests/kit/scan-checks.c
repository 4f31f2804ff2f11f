#include "kit/scan-checks.h"

#include "kit/device.h"
#include "kit/nmse.h"

void test_limits_print(const struct test_limits * l) {
    test_worst_print(&l->step);
    test_worst_print(&l->chunk);
}

static struct test_worst * limit_of(
        struct test_limits * l, const struct test_scan * s, enum ggml_scan_path path) {
    return test_scan_is_step(s, path) ? &l->step : &l->chunk;
}

// True if all slots that the oracle does not write have the bits of `before`.
static bool untouched(
        const struct oracle * o, const struct ggml_tensor * state, const float * before) {
    bool same = true;
    for (int64_t slot = 0; slot < o->n_slots; ++slot) {
        same = same && (o->written[slot] || memcmp((const char *) state->data + slot * state->nb[1],
                                                    (const char *) before + slot * state->nb[1],
                                                    o->slot_size * sizeof(float)) == 0);
    }
    return same;
}

void test_scan_run(struct test * t, struct test_arena * a, struct test_scan * s,
        struct test_limits * l, const int * threads, int n_threads) {
    struct ggml_tensor * state = *test_scan_state(s);
    struct oracle        o = test_scan_oracle(s);
    float *              before = test_copy(state);

    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        if (!test_scan_has_path(s, path)) {
            continue;
        }
        struct ggml_tensor * op = test_scan_build(t, a, s, path);
        float *              first_out = NULL;
        float *              first_state = NULL;
        // auto is one of the others; the reference path is slow; a device has no threads to choose
        const int n = path == GGML_SCAN_PATH_AUTO || test_device() != NULL ||
                                      (path == GGML_SCAN_PATH_REFERENCE && state->ne[0] > 10000)
                              ? 1
                              : n_threads;
        for (int i = 0; i < n; ++i) {
            char where[256];
            snprintf(where, sizeof(where), "%s, %d threads, %s", test_path_names[path], threads[i],
                    s->text);
            test_restore(state, before);
            test_check(t, test_compute(a, op, threads[i]), "compute failed: %s", where);
            test_check(t, untouched(&o, state, before),
                    "a slot that ids do not name was written: %s", where);
            if (i == 0) {
                test_bound(t, limit_of(l, s, path), test_scan_nmse_out(&o, op), where);
                test_bound(t, limit_of(l, s, path), test_scan_nmse_state(&o, s), where);
                first_out = test_copy(op);
                first_state = test_copy(state);
            } else {
                test_check(t, memcmp(first_out, op->data, ggml_nbytes(op)) == 0,
                        "outputs differ from %d threads: %s", threads[0], where);
                test_check(t, memcmp(first_state, state->data, ggml_nbytes(state)) == 0,
                        "states differ from %d threads: %s", threads[0], where);
            }
        }
        free(first_out);
        free(first_state);
    }
    test_restore(state, before);
    free(before);
    oracle_free(&o);
}

int64_t test_scan_cuts(struct test * t, struct test_arena * a, struct test_scan * s,
        struct test_limits * l, int64_t most, struct test_rng * r) {
    struct ggml_tensor * state = *test_scan_state(s);
    struct ggml_tensor * ids = *test_scan_ids(s);
    const int32_t *      id = ids->data;
    const int64_t        n_seqs = ids->ne[1];
    const int64_t        stride = ids->ne[0];
    const int64_t        T = test_batch_tokens(&s->batch);
    struct oracle        o = test_scan_oracle(s);
    float *              before = test_copy(state);
    int64_t *            idx = malloc(T * sizeof(int64_t));
    int64_t              n_calls = 0;

    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        if (!test_scan_has_path(s, path)) {
            continue;
        }
        test_restore(state, before);
        struct ggml_tensor * whole = test_scan_build(t, a, s, path);
        test_compute(a, whole, 1);
        float * whole_state = test_copy(state);

        test_restore(state, before);
        struct ggml_tensor * out = ggml_dup_tensor(a->ctx, whole);
        const size_t         n_row = ggml_nbytes(whole) / T;
        int64_t              done[TEST_MAX_SEQS] = { 0 };
        test_alloc(a, out);
        for (int64_t left = T; left > 0;) {
            struct test_arena b;
            test_arena_init(&b);
            struct ggml_tensor * now = test_tensor(
                    &b, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS, n_seqs, 1, 1);
            int64_t n = 0;
            for (int64_t q = 0; q < n_seqs; ++q) {
                const int32_t * old = id + q * stride;
                int32_t *       cut = (int32_t *) now->data + q * GGML_SCAN_SNAPS;
                const int64_t   rest = old[GGML_SCAN_COUNT] - done[q];
                int64_t         take = most == 1 ? 1 : test_below(r, most + 1);
                take = take < rest ? take : rest;
                cut[GGML_SCAN_SLOT_IN] =
                        done[q] == 0 ? old[GGML_SCAN_SLOT_IN] : old[GGML_SCAN_SLOT_OUT];
                cut[GGML_SCAN_SLOT_OUT] = old[GGML_SCAN_SLOT_OUT];
                cut[GGML_SCAN_FIRST] = (int32_t) n;
                cut[GGML_SCAN_COUNT] = (int32_t) take;
                for (int64_t i = 0; i < take; ++i) {
                    idx[n++] = old[GGML_SCAN_FIRST] + done[q] + i;
                }
                done[q] += take;
            }
            if (n > 0) {
                struct test_scan call = test_scan_gather(&b, s, idx, n);
                *test_scan_ids(&call) = now;
                struct ggml_tensor * op = test_scan_build(t, &b, &call, path);
                test_compute(&b, op, 1 + (int) (n_calls % 2));
                for (int64_t i = 0; i < n; ++i) {
                    memcpy((char *) out->data + idx[i] * n_row, (char *) op->data + i * n_row,
                            n_row);
                }
                n_calls++;
                left -= n;
            }
            test_arena_free(&b);
        }

        char where[256];
        snprintf(where, sizeof(where), "calls of up to %d tokens per sequence, %s, %s", (int) most,
                test_path_names[path], s->text);
        if (test_scan_is_step(s, path)) {
            test_check(t, memcmp(whole->data, out->data, ggml_nbytes(out)) == 0,
                    "outputs differ from those of one call: %s", where);
            test_check(t, memcmp(whole_state, state->data, ggml_nbytes(state)) == 0,
                    "states differ from those of one call: %s", where);
        }
        test_bound(t, limit_of(l, s, path), test_scan_nmse_out(&o, out), where);
        test_bound(t, limit_of(l, s, path), test_scan_nmse_state(&o, s), where);
        free(whole_state);
    }
    test_restore(state, before);
    free(idx);
    free(before);
    oracle_free(&o);
    return n_calls;
}

// A call without snapshots, from the states `before`, has the bits of `op`, which is computed.
static void check_without_snapshots(struct test * t, struct test_arena * a, struct test_scan * s,
        int path, const struct ggml_tensor * op, const float * before) {
    struct ggml_tensor * state = *test_scan_state(s);
    struct ggml_tensor * ids = *test_scan_ids(s);
    const size_t         size = (size_t) state->ne[0] * sizeof(float);
    int32_t *            id = ids->data;
    const int64_t        n_snap = ids->ne[0] - GGML_SCAN_SNAPS;
    int32_t *            wanted = malloc((size_t) n_snap * sizeof(int32_t));
    memcpy(wanted, id + GGML_SCAN_SNAPS, (size_t) n_snap * sizeof(int32_t));
    float * out = test_copy(op);
    float * last = malloc(size);
    memcpy(last, (const char *) state->data + (size_t) id[GGML_SCAN_SLOT_OUT] * size, size);
    for (int64_t i = 0; i < n_snap; ++i) {
        id[GGML_SCAN_SNAPS + i] = -1;
    }
    test_restore(state, before);
    struct ggml_tensor * plain = test_scan_build(t, a, s, path);
    test_compute(a, plain, 2);
    test_check(t,
            memcmp(out, plain->data, ggml_nbytes(plain)) == 0 &&
                    memcmp(last,
                            (const char *) state->data + (size_t) id[GGML_SCAN_SLOT_OUT] * size,
                            size) == 0,
            "snapshots change the results: %s, %s", test_path_names[path], s->text);
    memcpy(id + GGML_SCAN_SNAPS, wanted, (size_t) n_snap * sizeof(int32_t));
    free(last);
    free(out);
    free(wanted);
}

static void check_snapshots(
        struct test * t, struct test_arena * a, struct test_scan * s, struct test_limits * l) {
    struct ggml_tensor * state = *test_scan_state(s);
    struct ggml_tensor * ids = *test_scan_ids(s);
    int32_t *            id = ids->data;
    const int64_t        n_snap = ids->ne[0] - GGML_SCAN_SNAPS;
    const int64_t        size = state->ne[0];
    const int64_t        T = test_batch_tokens(&s->batch); // one sequence
    float *              before = test_copy(state);
    int64_t *            idx = malloc((T + 1) * sizeof(int64_t));
    for (int64_t i = 0; i < T; ++i) {
        idx[i] = i;
    }
    const int32_t skipped = id[GGML_SCAN_SNAPS + 1];
    id[GGML_SCAN_SNAPS + 1] = -1; // not wanted

    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        if (!test_scan_has_path(s, path)) {
            continue;
        }
        test_restore(state, before);
        struct ggml_tensor * op = test_scan_build(t, a, s, path);
        test_compute(a, op, 2);
        float * after = test_copy(state);
        check_without_snapshots(t, a, s, path, op, before);

        for (int64_t i = 0; i < n_snap; ++i) {
            const int64_t slot = i == 1 ? skipped : id[GGML_SCAN_SNAPS + i];
            const int64_t n = T - i - 1;
            const float * got = after + slot * size;
            char          where[256];
            snprintf(where, sizeof(where), "snapshot %d of %d tokens, %s, %s", (int) i, (int) T,
                    test_path_names[path], s->text);
            if (i == 1 || n < 0) {
                test_check(t, memcmp(got, before + slot * size, size * sizeof(float)) == 0,
                        "written, but %s: %s", i == 1 ? "not wanted" : "older than this call",
                        where);
                continue;
            }
            if (n == 0) { // the state before the first token
                float * zero = calloc(size, sizeof(float));
                test_check(t,
                        memcmp(got,
                                id[GGML_SCAN_SLOT_IN] < 0 ? zero
                                                          : before + id[GGML_SCAN_SLOT_IN] * size,
                                size * sizeof(float)) == 0,
                        "differs from the state before the first token: %s", where);
                free(zero);
                continue;
            }
            struct test_arena b;
            test_arena_init(&b);
            struct test_scan     shorter = test_scan_gather(&b, s, idx, n);
            struct ggml_tensor * now =
                    test_tensor(&b, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS, 1, 1, 1);
            memcpy(now->data, id, GGML_SCAN_SNAPS * sizeof(int32_t));
            ((int32_t *) now->data)[GGML_SCAN_COUNT] = (int32_t) n;
            *test_scan_ids(&shorter) = now;
            test_restore(state, before);
            test_compute(&b, test_scan_build(t, &b, &shorter, path), 1);
            const float * want = (const float *) state->data + id[GGML_SCAN_SLOT_OUT] * size;
            if (test_scan_is_step(s, path)) {
                test_check(t, memcmp(got, want, size * sizeof(float)) == 0,
                        "differs from the state after %d tokens: %s", (int) n, where);
            } else {
                test_bound(t, limit_of(l, s, path), test_nmse(got, want, size), where);
            }
            test_arena_free(&b);
        }
        free(after);
    }
    id[GGML_SCAN_SNAPS + 1] = skipped;
    test_restore(state, before);
    free(idx);
    free(before);
}

void test_scan_snapshots(
        struct test * t, struct test_arena * a, struct test_scan * s, struct test_limits * l) {
    check_snapshots(t, a, s, l);
    int32_t * id = (*test_scan_ids(s))->data;
    if (id[GGML_SCAN_SLOT_IN] >= 0 && id[GGML_SCAN_SLOT_IN] != id[GGML_SCAN_SLOT_OUT]) {
        id[GGML_SCAN_SNAPS] = id[GGML_SCAN_SLOT_IN];
        check_snapshots(t, a, s, l);
    }
}

void test_scan_nan(struct test * t, struct test_arena * a, struct test_scan * s,
        struct ggml_tensor * x, int64_t factor, int64_t column, int64_t after) {
    struct ggml_tensor * state = *test_scan_state(s);
    float *              before = test_copy(state);
    struct ggml_tensor * ids = s->op == TEST_SIGNED ? s->sign.ids : s->householder.ids;
    const int64_t        first = ((int32_t *) ids->data)[GGML_SCAN_FIRST];
    const int64_t        token = first + after;
    const float          value = test_get(x, column, 0, factor, token);
    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        if (!test_scan_has_path(s, path)) {
            continue;
        }
        test_restore(state, before);
        struct ggml_tensor * clean = test_scan_build(t, a, s, path);
        test_compute(a, clean, 1);
        test_set(x, column, 0, factor, token, NAN);
        test_restore(state, before);
        struct ggml_tensor * op = test_scan_build(t, a, s, path);
        test_compute(a, op, 2);
        test_set(x, column, 0, factor, token, value);

        bool there = true, same = true;
        for (int64_t i = 0; i < ggml_nelements(op); ++i) {
            const int64_t j = i % op->ne[0], h = i / op->ne[0] % op->ne[1];
            const int64_t tok = i / op->ne[0] / op->ne[1];
            const float   got = test_get(op, j, h, tok, 0);
            if (h == 0 && tok >= token && j == column) {
                there = there && isnan(got);
            } else if (tok < first || (h == 0 && test_scan_is_step(s, path))) {
                same = same && got == test_get(clean, j, h, tok, 0);
            }
        }
        test_check(
                t, there, "a NaN is missing in the output: %s, %s", s->text, test_path_names[path]);
        test_check(t, same, "a NaN changed another column, token or sequence: %s, %s", s->text,
                test_path_names[path]);
    }
    free(before);
}

int test_scan_out_of_range(struct test * t, struct test_arena * a, struct test_scan * s) {
    static const int32_t bad[][2] = {
        // id, value
        { GGML_SCAN_SLOT_IN, -2 },
        { GGML_SCAN_SLOT_IN, 1000 },
        { GGML_SCAN_SLOT_OUT, -1 },
        { GGML_SCAN_SLOT_OUT, 1000 },
        { GGML_SCAN_SLOT_OUT, INT32_MIN },
        { GGML_SCAN_COUNT, INT32_MAX },
        { GGML_SCAN_COUNT, -1 },
        { GGML_SCAN_FIRST, INT32_MAX },
        { GGML_SCAN_FIRST, INT32_MIN },
        { GGML_SCAN_SNAPS, 1000 },
        { GGML_SCAN_SNAPS, -7 },
    };
    struct ggml_tensor * state = *test_scan_state(s);
    struct ggml_tensor * ids = *test_scan_ids(s);
    int32_t *            id = ids->data; // of the last sequence in the batch
    float *              before = test_copy(state);
    int                  n = 0;
    const int64_t        first = id[GGML_SCAN_FIRST];
    const int64_t        count = id[GGML_SCAN_COUNT];

    for (size_t c = 0; c < sizeof(bad) / sizeof(bad[0]); ++c) {
        const int     which = bad[c][0];
        const int32_t good = id[which];
        id[which] = bad[c][1];
        test_restore(state, before);
        struct oracle o = test_scan_oracle(s); // skips such a sequence
        for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
            if (!test_scan_has_path(s, path)) {
                continue;
            }
            char where[256];
            snprintf(where, sizeof(where), "id %d is %d, %s, %s", which, (int) bad[c][1],
                    test_path_names[path], s->text);
            test_restore(state, before);
            struct ggml_tensor * op = test_scan_build(t, a, s, path);
            const int64_t        n_row = ggml_nelements(op) / test_batch_tokens(&s->batch);
            test_compute(a, op, 2);
            float * out = op->data;
            // without a first token or a count, no token belongs to the sequence
            const bool has_tokens =
                    which != GGML_SCAN_FIRST && !(which == GGML_SCAN_COUNT && bad[c][1] < 0);
            if (has_tokens) {
                bool nans = true;
                for (int64_t i = first * n_row; i < (first + count) * n_row; ++i) {
                    nans = nans && isnan(out[i]);
                }
                test_check(t, nans, "an output of the sequence is not NaN: %s", where);
            }
            for (int64_t i = first * n_row; i < (first + count) * n_row; ++i) {
                out[i] = NAN; // as in the oracle
            }
            test_check(t, untouched(&o, state, before), "a slot was written: %s", where);
            test_check(t, test_scan_nmse_out(&o, op) <= 1e-10, "the other sequences are wrong: %s",
                    where);
            test_check(t, test_scan_nmse_state(&o, s) <= 1e-10,
                    "the states of the other sequences are wrong: %s", where);
            n++;
        }
        oracle_free(&o);
        id[which] = good;
    }
    test_restore(state, before);
    free(before);
    return n;
}
