#include "base/random.h"
#include "eval/tasks/task-impl.h"

#include <stdlib.h>
#include <string.h>

// An expression in brackets that has been opened but not closed.
struct frame {
    int64_t right; // length of the right side
    int     op;
    int     value;    // of the left side
    bool    has_left; // its value is known
};

struct task_stream {
    const struct task * task;
    uint64_t            random[2];
    int64_t             length, done;

    int state; // TASK_SUM, TASK_AUTOMATON

    uint8_t product[TASK_POINTS_MAX]; // TASK_GROUP

    int terms;  // TASK_ARITHMETIC: value of everything before the last + or −
    int factor; // value of the product after it, with its sign
    int op;

    struct frame * frames; // TASK_BRACKETS
    int            n_frames, cap_frames;
    int64_t        pending;                    // length of the next expression; 0: none
    int            queue[4], n_queue, i_queue; // remaining symbols of a short expression
    int            value;                      // of the last complete expression
};

// A number from 0 to n − 1. n is far below 2^64, so that the bias is negligible.
static int64_t draw(struct task_stream * s, int64_t n) {
    return (int64_t) (xoroshiro128(s->random) % (uint64_t) n);
}

struct task_stream * task_stream_new(const struct task * task, uint64_t seed, int64_t length) {
    struct task_stream * s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->task = task;
    xoroshiro128_seed(s->random, seed);
    s->length  = length;
    s->state   = task->kind == TASK_AUTOMATON ? task->start : 0;
    s->pending = length - 1;
    for (int i = 0; i < TASK_POINTS_MAX; ++i) {
        s->product[i] = (uint8_t) i;
    }
    return s;
}

void task_stream_free(struct task_stream * s) {
    if (s != NULL) {
        free(s->frames);
        free(s);
    }
}

static int reduce(const struct task * t, int64_t x) {
    const int m = t->modulus;
    return (int) ((x % m + m) % m);
}

// d op d op … d =, with value = terms + factor
static void next_arithmetic(struct task_stream * s, int32_t * symbol, int32_t * answer) {
    const struct task * t = s->task;
    if (s->done == s->length - 1) {
        *symbol = t->equals;
        *answer = t->first_digit + reduce(t, s->terms + s->factor);
    } else if (s->done % 2 == 0) {
        const int d = (int) draw(s, t->modulus);
        if (s->done > 0 && s->op == t->times) {
            s->factor = reduce(t, (int64_t) s->factor * d);
        } else {
            s->terms  = reduce(t, s->terms + s->factor);
            s->factor = s->done > 0 && s->op == t->minus ? reduce(t, -d) : d;
        }
        *symbol = t->first_digit + d;
        *answer = t->first_digit + reduce(t, s->terms + s->factor);
    } else {
        s->op   = t->plus + (int) draw(s, 3);
        *symbol = s->op;
        *answer = -1;
    }
}

// Queues an expression of n symbols: 1: d   2: - d   3: ( d )   4: ( - d )
static void queue_short(struct task_stream * s, int64_t n) {
    const struct task * t = s->task;
    const int           d = (int) draw(s, t->modulus);
    s->n_queue = s->i_queue = 0;
    if (n >= 3) {
        s->queue[s->n_queue++] = t->open;
    }
    if (n % 2 == 0) {
        s->queue[s->n_queue++] = t->minus;
    }
    s->queue[s->n_queue++] = t->first_digit + d;
    if (n >= 3) {
        s->queue[s->n_queue++] = t->close;
    }
    s->value = n % 2 == 0 ? reduce(t, -d) : d;
}

// An expression of length n ≥ 5 is ( left op right ); the length of its left side is 1 to n − 4.
static bool next_brackets(struct task_stream * s, int32_t * symbol, int32_t * answer) {
    const struct task * t = s->task;
    *answer               = -1;
    if (s->done == s->length - 1) {
        *symbol = t->equals;
        *answer = t->first_digit + s->value;
        return true;
    }
    if (s->i_queue < s->n_queue) {
        *symbol = s->queue[s->i_queue++];
        return true;
    }
    if (s->pending > 4) {
        if (s->n_frames == s->cap_frames) {
            const int      cap  = s->cap_frames == 0 ? 64 : 2 * s->cap_frames;
            struct frame * more = realloc(s->frames, (size_t) cap * sizeof(*more));
            if (more == NULL) {
                return false;
            }
            s->frames     = more;
            s->cap_frames = cap;
        }
        struct frame * f = &s->frames[s->n_frames++];
        const int64_t  n = s->pending;
        s->pending       = 1 + draw(s, n - 4);
        f->right         = n - 3 - s->pending;
        f->op            = t->plus + (int) draw(s, 3);
        f->has_left      = false;
        *symbol          = t->open;
        return true;
    }
    if (s->pending > 0) {
        queue_short(s, s->pending);
        s->pending = 0;
        *symbol    = s->queue[s->i_queue++];
        return true;
    }
    struct frame * f = &s->frames[s->n_frames - 1];
    if (!f->has_left) {
        f->value    = s->value;
        f->has_left = true;
        s->pending  = f->right;
        *symbol     = f->op;
        return true;
    }
    const int64_t a = f->value, b = s->value;
    s->value = reduce(t, f->op == t->plus ? a + b : f->op == t->minus ? a - b : a * b);
    s->n_frames--;
    *symbol = t->close;
    return true;
}

bool task_stream_next(struct task_stream * s, int32_t * symbol, int32_t * answer) {
    const struct task * t = s->task;
    switch (t->kind) {
        case TASK_SUM: {
            *symbol = t->letters[draw(s, t->n_letters)];
            *answer = s->state = (s->state + *symbol) % t->modulus;
        } break;
        case TASK_GROUP: {
            *symbol = t->letters[draw(s, t->n_letters)];
            uint8_t product[TASK_POINTS_MAX]; // (y ∘ x)(i) = y(x(i))
            for (int i = 0; i < t->points; ++i) {
                product[i] = s->product[t->elements[*symbol][i]];
            }
            memcpy(s->product, product, (size_t) t->points);
            *answer = task_find_element(t, s->product);
        } break;
        case TASK_AUTOMATON: {
            const int64_t i = draw(s, t->n_letters);
            *symbol         = t->letters[i];
            s->state        = t->next[i * (TASK_STATES_MAX + 1) + s->state];
            *answer         = t->output[s->state];
        } break;
        case TASK_ARITHMETIC: {
            next_arithmetic(s, symbol, answer);
        } break;
        case TASK_BRACKETS: {
            if (!next_brackets(s, symbol, answer)) {
                return false;
            }
        } break;
    }
    s->done++;
    return true;
}
