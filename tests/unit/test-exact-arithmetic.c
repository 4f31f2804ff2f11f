// Exact arithmetic. Where nothing rounds, the result is known to the last bit after any number of
// tokens: words in S_5, parity, powers of 2. Where only keys round, the norm of the state stays
// within the error of that rounding.

#include "kit/scan-checks.h"
#include "kit/scan-problem.h"

//
// S_5 as products of transpositions
//
// A column of the state holds one number per point; letter σ makes h'[i] = h[σ(i)]. A permutation
// of 5 points is a product of at most 4 swaps, and the reflection with β = 2 and key (e_i − e_j)/√2
// swaps points i and j. Each point is stored twice. So the key is (e_i + e_i' − e_j − e_j')/2, and
// all multipliers are 1/2 and 2. With plus signs it swaps and negates: a permutation up to sign.
//

enum { POINTS = 5, D_K = 2 * POINTS, D_V = 8, N_LETTERS = 120 };

struct letter {
    int image[POINTS]; // σ(i)
    int n_swaps;
    int swaps[4][2]; // in the order in which they act
};

// All permutations. A swap exchanges the values of two points.
static void letters_make(struct letter * letters) {
    int n = 0;
    for (int code = 0; code < POINTS * POINTS * POINTS * POINTS * POINTS; ++code) {
        struct letter l = { 0 };
        int           seen = 0;
        for (int i = 0, c = code; i < POINTS; ++i, c /= POINTS) {
            l.image[i] = c % POINTS;
            seen |= 1 << l.image[i];
        }
        if (seen != (1 << POINTS) - 1) {
            continue;
        }
        int now[POINTS] = { 0, 1, 2, 3, 4 };
        for (int i = 0; i < POINTS; ++i) {
            int j = i;
            while (now[j] != l.image[i]) {
                ++j;
            }
            if (j != i) {
                l.swaps[l.n_swaps][0] = i;
                l.swaps[l.n_swaps][1] = j;
                ++l.n_swaps;
                const int kept = now[i];
                now[i] = now[j];
                now[j] = kept;
            }
        }
        letters[n++] = l;
    }
}

// The initial value of point i in column j: a one-hot column per point, then small integers, then 0
static float start_value(int i, int j) {
    return j < POINTS        ? (float) (i == j)
           : j == POINTS     ? (float) (i + 1)
           : j == POINTS + 1 ? (float) -(i + 1) * (i + 1)
                             : 0.0f;
}

struct word {
    struct test_arena a;
    struct test_scan  s;
    float *           start;
    float *           want; // [T][POINTS][D_V]: the correct outputs
};

static void word_key(struct test_scan * s, int64_t t, int f, int i, int j, bool positive) {
    for (int c = 0; c < D_K; ++c) {
        const bool at_i = c % POINTS == i, at_j = c % POINTS == j;
        test_set(s->householder.k, c, 0, f, t,
                at_i   ? 0.5f
                : at_j ? (positive ? 0.5f : -0.5f)
                       : 0.0f);
    }
    test_set(s->householder.beta, 0, 0, f, t, 2.0f);
}

// T letters with n_h factors per token; unused factors have β = 0. One head reads each point. The
// correct outputs are tracked as a permutation.
static void word_init(struct word * w, const struct letter * letters, const int * text, int64_t T,
        int n_h, bool positive) {
    memset(w, 0, sizeof(*w));
    test_arena_init(&w->a);
    const struct test_batch batch = { .n_seqs = 1, .len = { T } };
    w->s = test_zero_householder(&w->a, &batch, D_K, D_V, POINTS, n_h, 0);
    snprintf(w->s.text, sizeof(w->s.text), "a word in S_5");
    struct ggml_householder_scan_args * args = &w->s.householder;
    for (int64_t slot = 0; slot < args->state->ne[1]; ++slot) {
        for (int h = 0; h < POINTS; ++h) {
            for (int c = 0; c < D_K; ++c) {
                for (int j = 0; j < D_V; ++j) {
                    test_set(args->state, (h * D_K + c) * D_V + j, slot, 0, 0,
                            start_value(c % POINTS, j));
                }
            }
        }
    }
    w->start = test_copy(args->state);
    w->want = malloc(T * POINTS * D_V * sizeof(float));

    int point[POINTS] = { 0, 1, 2, 3, 4 }; // the initial point whose value is here
    int sign[POINTS] = { 1, 1, 1, 1, 1 };
    for (int64_t t = 0; t < T; ++t) {
        const struct letter * l = &letters[text[t]];
        int                   new_point[POINTS];
        for (int i = 0; i < POINTS; ++i) {
            new_point[i] = point[l->image[i]];
        }
        if (positive) { // each swap also negates both
            for (int f = 0; f < l->n_swaps; ++f) {
                const int i = l->swaps[f][0], j = l->swaps[f][1], kept = sign[i];
                sign[i] = -sign[j];
                sign[j] = -kept;
            }
        }
        memcpy(point, new_point, sizeof(point));
        for (int f = 0; f < l->n_swaps && f < n_h; ++f) {
            word_key(&w->s, t, f, l->swaps[f][0], l->swaps[f][1], positive);
        }
        for (int i = 0; i < POINTS; ++i) {
            test_set(args->q, i, i, 0, t, 1.0f);
            for (int j = 0; j < D_V; ++j) {
                w->want[(t * POINTS + i) * D_V + j] = (float) sign[i] * start_value(point[i], j);
            }
        }
    }
}

static void word_free(struct word * w) {
    free(w->start);
    free(w->want);
    test_arena_free(&w->a);
}

// The number of tokens with a wrong output
static int64_t word_errors(const struct word * w, const struct ggml_tensor * out) {
    int64_t n = 0;
    for (int64_t t = 0; t < out->ne[2]; ++t) {
        bool right = true;
        for (int64_t i = 0; i < POINTS * D_V; ++i) {
            right = right && ((const float *) out->data)[t * POINTS * D_V + i] ==
                                     w->want[t * POINTS * D_V + i];
        }
        n += !right;
    }
    return n;
}

// Computes the word in calls of random length, in place.
static struct ggml_tensor * word_cut(struct test * t, struct word * w, enum ggml_scan_path path,
        int64_t most, struct test_rng * rng) {
    struct ggml_householder_scan_args * args = &w->s.householder;
    const int64_t                       T = args->q->ne[3];
    struct ggml_tensor *                out =
            test_tensor(&w->a, GGML_TYPE_F32, TEST_DENSE, "out", D_V, POINTS, T, 1);
    int32_t * id = args->ids->data;
    test_restore(args->state, w->start);
    for (int64_t done = 0; done < T;) {
        struct test_arena b;
        test_arena_init(&b);
        int64_t n = 1 + test_below(rng, most);
        n = n < T - done ? n : T - done;
        struct test_scan      call = w->s;
        struct ggml_tensor ** views[4] = { &call.householder.q, &call.householder.k,
            &call.householder.v, &call.householder.beta };
        for (int i = 0; i < 4; ++i) {
            struct ggml_tensor * x = *views[i];
            *views[i] = ggml_view_4d(b.ctx, x, x->ne[0], x->ne[1], x->ne[2], n, x->nb[1], x->nb[2],
                    x->nb[3], done * x->nb[3]);
        }
        id[GGML_SCAN_COUNT] = (int32_t) n;
        struct ggml_tensor * op = test_scan_build(t, &b, &call, path);
        test_compute(&b, op, 1);
        memcpy((char *) out->data + done * out->nb[2], op->data, ggml_nbytes(op));
        test_arena_free(&b);
        done += n;
    }
    id[GGML_SCAN_COUNT] = (int32_t) T;
    return out;
}

static void test_words(struct test * t, const struct letter * letters, bool positive) {
    const int64_t   T = 100000;
    int *           text = malloc(T * sizeof(int));
    struct test_rng rng = { 11 + positive };
    for (int64_t i = 0; i < T; ++i) {
        text[i] = (int) test_below(&rng, N_LETTERS);
    }
    struct word w;
    word_init(&w, letters, text, T, 4, positive);
    struct ggml_tensor * state = w.s.householder.state;

    struct ggml_tensor * step = test_scan_build(t, &w.a, &w.s, GGML_SCAN_PATH_STEP);
    float *              step_state = NULL;
    for (int path = GGML_SCAN_PATH_STEP; path <= GGML_SCAN_PATH_REFERENCE + 1; ++path) {
        const int            p = path % 4; // step first, auto last
        struct ggml_tensor * op =
                p == GGML_SCAN_PATH_STEP ? step : test_scan_build(t, &w.a, &w.s, p);
        test_restore(state, w.start);
        test_compute(&w.a, op, p == GGML_SCAN_PATH_CHUNK ? 2 : 1);
        test_check(t, word_errors(&w, op) == 0, "S_5, %s keys, %s: %lld of %lld tokens are wrong",
                positive ? "nonnegative" : "signed", test_path_names[p],
                (long long) word_errors(&w, op), (long long) T);
        if (p == GGML_SCAN_PATH_STEP) {
            step_state = test_copy(state);
        } else {
            test_check(t, memcmp(op->data, step->data, ggml_nbytes(op)) == 0,
                    "S_5: outputs of %s differ from those of step", test_path_names[p]);
            test_check(t, memcmp(state->data, step_state, ggml_nbytes(state)) == 0,
                    "S_5: state of %s differs from that of step", test_path_names[p]);
        }
    }
    for (int c = 0; c < 6; ++c) {
        static const int64_t most[3] = { 300, 2000, 20000 };
        const int            p = c % 2 == 0 ? GGML_SCAN_PATH_STEP
                                 : c == 3   ? GGML_SCAN_PATH_AUTO
                                            : GGML_SCAN_PATH_CHUNK;
        struct ggml_tensor * cut = word_cut(t, &w, p, most[c / 2], &rng);
        test_check(t, memcmp(cut->data, step->data, ggml_nbytes(cut)) == 0,
                "S_5: calls of up to %d tokens, %s: outputs differ from one call",
                (int) most[c / 2], test_path_names[p]);
        test_check(t, memcmp(state->data, step_state, ggml_nbytes(state)) == 0,
                "S_5: calls of up to %d tokens, %s: state differs from one call", (int) most[c / 2],
                test_path_names[p]);
    }

    // eigenvalues in [0, 1]: β = 1 with the same keys projects instead of reflecting
    for (int64_t i = 0; i < T * 4; ++i) {
        ((float *) w.s.householder.beta->data)[i] *= 0.5f;
    }
    test_restore(state, w.start);
    test_compute(&w.a, step, 1);
    const int64_t wrong = word_errors(&w, step);
    test_check(t, wrong > T * 9 / 10,
            "S_5 with beta = 1 should fail, but only %lld of %lld tokens are wrong",
            (long long) wrong, (long long) T);

    printf("exact, S_5, %s keys: %lld random letters, n_h = 4: no error; step, chunk, auto,\n"
           "  reference and any cut bit-identical; with beta = 1 %lld wrong\n",
            positive ? "nonnegative" : "signed", (long long) T, (long long) wrong);
    free(step_state);
    free(text);
    word_free(&w);
}

// A short word token by token, as in decode: equal to the oracle and to one call.
static void test_decode(struct test * t, const struct letter * letters) {
    enum { T = 200 };
    struct test_limits lim = {
        .step = { .what = "S_5 token by token, step and reference", .limit = 0.0 },
        .chunk = { .what = "S_5 token by token, chunk and auto", .limit = 0.0 },
    };
    struct test_rng rng = { 13 };
    int             text[T];
    for (int i = 0; i < T; ++i) {
        text[i] = (int) test_below(&rng, N_LETTERS);
    }
    struct word w;
    word_init(&w, letters, text, T, 4, false);
    test_scan_cuts(t, &w.a, &w.s, &lim, 1, &rng);
    word_free(&w);
    printf("exact, S_5 token by token: %d letters, one per call\n", T);
}

// Three swaps are enough for all letters except the 4! cycles of length 5. Factors act in order:
// reversed, they give the inverse.
static void test_letters(struct test * t, const struct letter * letters) {
    int n_wrong = 0, n_cycles = 0, n_reversed = 0;
    for (int i = 0; i < N_LETTERS; ++i) {
        struct word w;
        word_init(&w, letters, &i, 1, 3, false);
        for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
            struct ggml_tensor * op = test_scan_build(t, &w.a, &w.s, path);
            test_restore(w.s.householder.state, w.start);
            test_compute(&w.a, op, 1);
            const bool wrong = word_errors(&w, op) != 0;
            test_check(t, wrong == (letters[i].n_swaps > 3),
                    "letter %d needs %d swaps and is %s with n_h = 3: %s", i, letters[i].n_swaps,
                    wrong ? "wrong" : "right", test_path_names[path]);
            n_wrong += wrong;
        }
        word_free(&w);

        n_cycles += letters[i].n_swaps == 4;
        struct letter reversed = letters[i];
        for (int f = 0; f < reversed.n_swaps; ++f) {
            memcpy(reversed.swaps[f], letters[i].swaps[reversed.n_swaps - 1 - f],
                    sizeof(reversed.swaps[f]));
        }
        for (int j = 0; j < POINTS; ++j) {
            reversed.image[letters[i].image[j]] = j; // σ⁻¹
        }
        for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
            const int zero = 0;
            word_init(&w, &reversed, &zero, 1, 4, false);
            struct ggml_tensor * op = test_scan_build(t, &w.a, &w.s, path);
            test_compute(&w.a, op, 1);
            test_check(t, word_errors(&w, op) == 0,
                    "letter %d: its factors in reverse order do not give the inverse: %s", i,
                    test_path_names[path]);
            word_free(&w);
        }
        n_reversed += memcmp(reversed.image, letters[i].image, sizeof(reversed.image)) != 0;
    }
    test_check(t, n_cycles == 24, "%d letters need 4 swaps; expected the 24 cycles of length 5",
            n_cycles);
    printf("exact, letters: with n_h = 3 exactly the %d cycles of length 5 are wrong; reversed\n"
           "  factors give the inverse (%d letters are not their own inverse)\n",
            n_wrong / 4, n_reversed);
}

//
// Parity
//

// DeltaNet: bit 1 reflects and adds, S ← −S + c; bit 0 does nothing. With β = 1 the state stays at
// c/2.
static void test_parity_delta(struct test * t) {
    const int64_t     T = 1000000;
    const float       c = 3.0f;
    struct test_arena a;
    test_arena_init(&a);
    const struct test_batch             batch = { .n_seqs = 1, .len = { T }, .turn = 2 };
    struct test_scan                    s = test_zero_householder(&a, &batch, 2, 1, 1, 1, 0);
    struct ggml_householder_scan_args * args = &s.householder;
    struct test_rng                     rng = { 21 };
    float *                             parity = malloc(T * sizeof(float));
    int                                 ones = 0;
    for (int64_t i = 0; i < T; ++i) {
        const int bit = (int) test_below(&rng, 2);
        ones ^= bit;
        parity[i] = (float) ones;
        ((float *) args->q->data)[2 * i] = 1.0f;
        ((float *) args->k->data)[2 * i] = 1.0f;
        ((float *) args->v->data)[i] = bit ? c / 2.0f : 0.0f;
        ((float *) args->beta->data)[i] = bit ? 2.0f : 0.0f;
    }
    for (int range = 0; range < 2; ++range) {
        for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
            struct ggml_tensor * op = test_scan_build(t, &a, &s, path);
            test_compute(&a, op, 1);
            int64_t wrong = 0, stuck = 0;
            for (int64_t i = 0; i < T; ++i) {
                const float y = ((float *) op->data)[i];
                wrong += y != c * parity[i];
                stuck += y == c / 2.0f;
            }
            if (range == 0) {
                test_check(t, wrong == 0, "parity, beta in {0, 2}, %s: %lld of %lld bits are wrong",
                        test_path_names[path], (long long) wrong, (long long) T);
            } else {
                test_check(t, stuck > T - 100 && wrong == stuck,
                        "parity, beta in {0, 1}, %s: the state is c/2 for %lld of %lld bits, %lld "
                        "are wrong; expected c/2 from the first 1 on",
                        test_path_names[path], (long long) stuck, (long long) T, (long long) wrong);
            }
        }
        for (int64_t i = 0; i < T; ++i) {
            ((float *) args->beta->data)[i] *= 0.5f;
        }
    }
    free(parity);
    test_arena_free(&a);
    printf("exact, parity by the delta rule: %lld bits, no error on any path; with beta in {0, 1}\n"
           "  the state stays at c/2\n",
            (long long) T);
}

// Mamba: with A = −1 and dt = 32 the transition 2 exp(dt A) − 1 is −1 in F32, with a tiny dt it is
// 1. The form exp(dt A) forgets instead.
static void test_parity_mamba(struct test * t, bool mamba2) {
    const int64_t     T = 1000000, d_k = 2, d_v = 3;
    const float       c = 3.0f;
    struct test_arena a;
    test_arena_init(&a);
    struct test_scan s = {
        .op = TEST_SIGNED, .batch = { .n_seqs = 1, .len = { T }, .turn = 2 }, .text = "parity"
    };
    struct ggml_signed_scan_args * args = &s.sign;

    *args = (struct ggml_signed_scan_args) {
        .state = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "state", d_k * d_v,
                test_batch_slots(&s.batch), 1, 1),
        .ids = test_batch_ids(&a, &s.batch),
        .c = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "c", d_k, 1, 1, T),
        .b = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "b", d_k, 1, 1, T),
        .x = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "x", d_v, 1, 1, T),
        .dt = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "dt", mamba2 ? 1 : d_v, 1, 1, T),
        .A = test_tensor(
                &a, GGML_TYPE_F32, TEST_DENSE, "A", mamba2 ? 1 : d_v, mamba2 ? 1 : d_k, 1, 1),
        .scale = 0.5f,
    };
    test_fill(args->state, 0.0f);
    test_fill(args->c, 1.0f);
    test_fill(args->b, 1.0f);
    test_fill(args->A, -1.0f);
    struct test_rng rng = { 22 };
    float *         parity = malloc(T * sizeof(float));
    int             ones = 0;
    for (int64_t i = 0; i < T; ++i) {
        const int bit = (int) test_below(&rng, 2);
        ones ^= bit;
        parity[i] = (float) ones;
        for (int64_t j = 0; j < d_v; ++j) {
            test_set(args->x, j, 0, 0, i, bit ? c / 32.0f : 0.0f);
        }
        for (int64_t j = 0; j < args->dt->ne[0]; ++j) {
            test_set(args->dt, j, 0, 0, i, bit ? 32.0f : 0x1p-40f);
        }
    }
    for (int form = 0; form < 2; ++form) {
        args->form = form == 0 ? GGML_SIGNED_SCAN_TWO_EXP_M1 : GGML_SIGNED_SCAN_EXP;
        for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
            if (!test_scan_has_path(&s, path)) {
                continue;
            }
            struct ggml_tensor * op = test_scan_build(t, &a, &s, path);
            test_compute(&a, op, 1);
            int64_t wrong = 0, ever = 0;
            for (int64_t i = 0; i < T; ++i) {
                bool right = true, is_c = true;
                for (int64_t j = 0; j < d_v; ++j) {
                    const float y = ((float *) op->data)[i * d_v + j];
                    right = right && y == c * parity[i];
                    is_c = is_c && y == c;
                }
                wrong += !right;
                ever += is_c;
            }
            if (form == 0) {
                test_check(t, wrong == 0,
                        "parity, 2 exp(dt A) - 1, %s: %lld of %lld bits are wrong",
                        test_path_names[path], (long long) wrong, (long long) T);
            } else {
                test_check(t, ever > T - 100,
                        "parity with exp(dt A), %s: the state is c for %lld of %lld bits; expected "
                        "c from the first 1 on",
                        test_path_names[path], (long long) ever, (long long) T);
            }
        }
    }
    free(parity);
    test_arena_free(&a);
    printf("exact, parity by %s with 2 exp(dt A) - 1: %lld bits, no error; with exp(dt A) the\n"
           "  state stays at c\n",
            mamba2 ? "Mamba-2" : "Mamba", (long long) T);
}

//
// One gate per token, before the first factor; one output, after the last
//

static void test_gate_once(struct test * t) {
    enum { T = 100 };
    for (int n_h = 1; n_h <= 4; ++n_h) {
        struct test_arena a;
        test_arena_init(&a);
        const struct test_batch             batch = { .n_seqs = 1, .len = { T } };
        struct test_scan                    s = test_zero_householder(&a, &batch, 8, 8, 1, n_h, 1);
        struct ggml_householder_scan_args * args = &s.householder;
        test_fill(args->state, 1.0f);
        test_fill(args->beta, 2.0f);
        test_fill(args->gate, 0.5f);
        float * start = test_copy(args->state);
        // factor f of every token negates row f (key e_f): row 0 after t tokens is (−1/2)^t, and an
        // output before the last factor would have row n_h − 1 with the other sign
        for (int64_t i = 0; i < T; ++i) {
            test_set(args->q, n_h - 1, 0, 0, i, 1.0f);
            for (int f = 0; f < n_h; ++f) {
                test_set(args->k, f, 0, f, i, 1.0f);
            }
        }
        for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
            test_restore(args->state, start);
            struct ggml_tensor * op = test_scan_build(t, &a, &s, path);
            test_compute(&a, op, 1);
            bool right = true;
            for (int64_t i = 0; i < T; ++i) {
                for (int64_t j = 0; j < 8; ++j) {
                    right = right && test_get(op, j, 0, i, 0) ==
                                             ldexpf(i % 2 == 0 ? -1.0f : 1.0f, (int) -(i + 1));
                }
            }
            test_check(t, right, "gate 1/2, n_h %d, %s: the output of token t is not (-1/2)^(t+1)",
                    n_h, test_path_names[path]);
            const float * state = (const float *) args->state->data +
                                  64 * ((int32_t *) args->ids->data)[GGML_SCAN_SLOT_OUT];
            right = true;
            for (int64_t i = 0; i < 64; ++i) { // T is even, so all rows have the same sign
                right = right && state[i] == ldexpf(1.0f, -T);
            }
            test_check(t, right, "gate 1/2, n_h %d, %s: the state after %d tokens is not 2^-%d",
                    n_h, test_path_names[path], T, T);
        }
        // token by token: equal to the oracle
        struct test_limits lim = {
            .step = { .what = "gate 1/2, token by token" },
            .chunk = { .what = "gate 1/2, token by token" },
        };
        struct test_rng rng = { 41 };
        test_restore(args->state, start);
        test_scan_cuts(t, &a, &s, &lim, 1, &rng);
        free(start);
        test_arena_free(&a);
    }
    printf("exact, gate 1/2 with n_h 1..4: (-1/2)^t after t tokens on every path, in one call or\n"
           "  token by token: one gate per token, one output, after the last factor\n");
}

//
// The norm of the state, β = 2, unit keys, no gate
//
// With ‖k‖² = 1 + δ the factor I − 2 k kᵀ has the eigenvalue −(1 + 2δ) along k and 1 elsewhere. So
// the exact product changes the logarithm of the Frobenius norm by at most Σ |log|1 + 2δ_t||. A key
// of length 1 rounded to F32 has |δ| ≤ 2^-23 with a random sign, and 1/d_k of the square of the
// state is along it. So the sum is a random walk with a mean of at most 2 |δ| √T / d_k. The kernel
// adds its own rounding: the errors of the steps are independent, and a reflection keeps their
// length. So their squares add up, and the limit on the NMSE is proportional to T: 1e-11 at 4096
// tokens for step, 1e-10 at 512 for chunk. The relative error of the norm is at most its root.
//
static void test_norm(struct test * t) {
    const int64_t     T = 100000, d_k = 64, d_v = 16;
    struct test_arena a;
    test_arena_init(&a);
    const struct test_batch             batch = { .n_seqs = 1, .len = { T } };
    struct test_scan                    s = test_zero_householder(&a, &batch, d_k, d_v, 1, 1, 0);
    struct ggml_householder_scan_args * args = &s.householder;
    struct test_rng                     rng = { 31 };
    test_fill_normal(args->state, &rng, 1.0);
    test_fill_unit(args->k, &rng, 0.0);
    test_fill(args->beta, 2.0f);
    float *       start = test_copy(args->state);
    const int64_t slot = ((int32_t *) args->ids->data)[GGML_SCAN_SLOT_OUT];

    double most = 0.0;
    for (int64_t i = 0; i < T; ++i) {
        double kk = 0.0;
        for (int64_t j = 0; j < d_k; ++j) {
            kk += (double) test_get(args->k, j, 0, 0, i) * test_get(args->k, j, 0, 0, i);
        }
        most += fabs(log(fabs(1.0 - 2.0 * kk)));
    }
    struct oracle o = test_scan_oracle(&s);
    double        before = 0.0, exact = 0.0;
    for (int64_t i = 0; i < d_k * d_v; ++i) {
        before += (double) start[slot * d_k * d_v + i] * start[slot * d_k * d_v + i];
        exact += o.state[slot * d_k * d_v + i] * o.state[slot * d_k * d_v + i];
    }
    const double drift = 0.5 * log(exact / before);
    const double walk = 6.0 * 2.0 * 0x1p-23 * sqrt((double) T) / (double) d_k;
    test_check(t, fabs(drift) <= most, "the exact norm changed by %g; the keys allow at most %g",
            drift, most);
    test_check(t, fabs(drift) <= walk,
            "the exact norm changed by %g; a random walk over %lld steps allows %g", drift,
            (long long) T, walk);

    printf("exact, norm of the state over %lld reflections with keys rounded to F32: relative\n"
           "  change %.2e in exact arithmetic (worst case of the keys %.2e, six sigma of a random\n"
           "  walk %.2e)\n",
            (long long) T, drift, most, walk);
    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        const bool   step = test_scan_is_step(&s, path);
        const double limit = sqrt(step ? 1e-11 * (double) T / 4096.0 : 1e-10 * (double) T / 512.0);
        test_restore(args->state, start);
        test_compute(&a, test_scan_build(t, &a, &s, path), 1);
        double after = 0.0;
        for (int64_t i = 0; i < d_k * d_v; ++i) {
            const double x = ((float *) args->state->data)[slot * d_k * d_v + i];
            after += x * x;
        }
        const double change = 0.5 * log(after / exact);
        test_check(t, fabs(change) <= limit, "the norm after %lld reflections, %s: error %g > %g",
                (long long) T, test_path_names[path], change, limit);
        printf("  %-9s relative error of the norm %9.2e (limit %.2e)\n", test_path_names[path],
                change, limit);
    }
    free(start);
    oracle_free(&o);
    test_arena_free(&a);
}

int main(void) {
    struct test   t = { 0 };
    struct letter letters[N_LETTERS];
    letters_make(letters);
    test_words(&t, letters, false);
    test_words(&t, letters, true);
    test_decode(&t, letters);
    test_letters(&t, letters);
    test_parity_delta(&t);
    test_parity_mamba(&t, false);
    test_parity_mamba(&t, true);
    test_gate_once(&t);
    test_norm(&t);
    return test_end(&t, "test-exact-arithmetic");
}
