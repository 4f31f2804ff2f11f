#include "eval/tasks/task-impl.h"

#include "base/error.h"
#include "base/random.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void task_reserve(struct task * t, int n) {
    t->symbols = program_alloc((size_t) n, sizeof(*t->symbols));
    t->is_answer = program_alloc((size_t) n, sizeof(*t->is_answer));
    t->letters = program_alloc((size_t) n, sizeof(*t->letters));
}

int task_add_symbol(struct task * t, const char * name, bool is_answer) {
    snprintf(t->symbols[t->n_symbols], TASK_NAME_MAX, "%s", name);
    t->is_answer[t->n_symbols] = is_answer;
    t->n_answers += is_answer;
    return t->n_symbols++;
}

//
// Groups
//

// The least number of swaps that give p: n minus the number of cycles.
static int swaps_of(const uint8_t * p, int n) {
    bool seen[TASK_POINTS_MAX] = { false };
    int  swaps = n;
    for (int i = 0; i < n; ++i) {
        for (int j = i; !seen[j]; j = p[j]) {
            seen[j] = true;
            swaps -= j == i;
        }
    }
    return swaps;
}

// The next permutation in lexicographic order; false: p is the last.
static bool next_permutation(uint8_t * p, int n) {
    int i = n - 2;
    while (i >= 0 && p[i] > p[i + 1]) {
        --i;
    }
    if (i < 0) {
        return false;
    }
    int j = n - 1;
    while (p[j] < p[i]) {
        --j;
    }
    const uint8_t x = p[i];
    p[i] = p[j];
    p[j] = x;
    for (int a = i + 1, b = n - 1; a < b; ++a, --b) {
        const uint8_t y = p[a];
        p[a] = p[b];
        p[b] = y;
    }
    return true;
}

static int task_find_element(const struct task * t, const uint8_t * p) {
    int lo = 0, hi = t->n_symbols - 1;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (memcmp(t->elements[mid], p, (size_t) t->points) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

// The permutations of n points, or the even ones. Letters have at most max_swaps.
static void task_make_group(struct task * t, bool even, int n, int max_swaps) {
    int size = 1;
    for (int i = 2; i <= n; ++i) {
        size *= i;
    }
    t->kind = TASK_GROUP;
    t->points = n;
    t->elements = program_alloc((size_t) size, sizeof(*t->elements));
    task_reserve(t, size);
    uint8_t p[TASK_POINTS_MAX] = { 0, 1, 2, 3, 4, 5, 6 };
    do {
        const int swaps = swaps_of(p, n);
        if (even && swaps % 2 != 0) {
            continue;
        }
        char name[TASK_POINTS_MAX + 1] = { 0 };
        for (int i = 0; i < n; ++i) {
            name[i] = (char) ('1' + p[i]);
        }
        memcpy(t->elements[t->n_symbols], p, sizeof(p));
        const int symbol = task_add_symbol(t, name, true);
        if (swaps <= max_swaps) {
            t->letters[t->n_letters++] = symbol;
        }
    } while (next_permutation(p, n));
}

//
// Tasks
//

static void add_numbers(struct task * t, int m) {
    for (int i = 0; i < m; ++i) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        task_add_symbol(t, name, true);
    }
}

static void make_sum(struct task * t, int m) {
    t->kind = TASK_SUM;
    t->modulus = m;
    task_reserve(t, m);
    add_numbers(t, m);
    for (int i = 0; i < m; ++i) {
        t->letters[t->n_letters++] = i;
    }
}

static void make_arithmetic(struct task * t, int m, bool brackets) {
    t->kind = brackets ? TASK_BRACKETS : TASK_ARITHMETIC;
    t->modulus = m;
    task_reserve(t, m + 6);
    t->first_digit = t->n_symbols;
    add_numbers(t, m);
    t->plus = task_add_symbol(t, "+", false);
    t->minus = task_add_symbol(t, "-", false);
    t->times = task_add_symbol(t, "*", false);
    t->equals = task_add_symbol(t, "=", false);
    if (brackets) {
        t->open = task_add_symbol(t, "(", false);
        t->close = task_add_symbol(t, ")", false);
    }
}

int task_find_symbol(const struct task * t, const char * name) {
    for (int i = 0; i < t->n_symbols; ++i) {
        if (strcmp(t->symbols[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

// The number in "name:5"; `missing` without a colon; −1 if it is not from lo to hi.
static int number_after(const char * colon, int missing, int lo, int hi) {
    if (*colon == '\0') {
        return missing;
    }
    char *     end;
    const long n = strtol(colon + 1, &end, 10);
    return *colon == ':' && end != colon + 1 && *end == '\0' && n >= lo && n <= hi ? (int) n : -1;
}

static bool has_name(const char * spec, const char * name) {
    const size_t n = strlen(name);
    return strncmp(spec, name, n) == 0 && (spec[n] == ':' || spec[n] == '\0');
}

static bool make(struct task * t, const char * spec, const char * automaton, size_t automaton_size,
        struct lrnn_error * err) {
    const char * tail = spec + strcspn(spec, ":");
    const int    m5 = number_after(tail, 5, 2, TASK_MODULUS_MAX);
    const int    m = number_after(tail, -1, 2, TASK_MODULUS_MAX);

    if (strcmp(spec, "parity") == 0 || (has_name(spec, "mod") && m > 0)) {
        make_sum(t, spec[0] == 'p' ? 2 : m);
        return true;
    }
    if ((has_name(spec, "mod-arith") || has_name(spec, "mod-brackets")) && m5 > 0) {
        make_arithmetic(t, m5, has_name(spec, "mod-brackets"));
        return true;
    }
    if (tail - spec == 2 && (spec[0] == 'S' || spec[0] == 'A') && spec[1] >= '2' &&
            spec[1] <= '0' + TASK_POINTS_MAX) {
        const int swaps = strcmp(tail, ":swaps") == 0
                                  ? 1
                                  : number_after(tail, TASK_POINTS_MAX, 1, TASK_POINTS_MAX);
        if (swaps > 0) {
            task_make_group(t, spec[0] == 'A', spec[1] - '0', swaps);
            return true;
        }
    }
    if (strcmp(spec, "automaton") != 0) {
        return error_bad_input(err,
                "there is no task '%s'; expected parity, mod:M, S3 to S%d, A3 to A%d, mod-arith, "
                "mod-brackets or automaton",
                spec, TASK_POINTS_MAX, TASK_POINTS_MAX);
    }
    if (automaton == NULL) {
        return error_bad_input(
                err, "the task 'automaton' needs an automaton, of a file or of the model");
    }
    char * text = program_alloc(automaton_size + 1, 1);
    memcpy(text, automaton, automaton_size);
    const bool made = task_make_automaton(t, text, err);
    free(text);
    return made;
}

struct task * task_new(
        const char * name, const char * automaton, size_t automaton_size, struct lrnn_error * err) {
    struct task * t = program_alloc(1, sizeof(*t));
    if (!make(t, name, automaton, automaton_size, err)) {
        task_free(t);
        return NULL;
    }
    return t;
}

void task_free(struct task * t) {
    if (t == NULL) {
        return;
    }
    free(t->symbols);
    free(t->is_answer);
    free(t->letters);
    free(t->elements);
    free(t->next);
    free(t->output);
    free(t);
}

int task_n_symbols(const struct task * t) {
    return t->n_symbols;
}

const char * task_symbol(const struct task * t, int i) {
    return t->symbols[i];
}

bool task_is_answer(const struct task * t, int i) {
    return t->is_answer[i];
}

double task_chance(const struct task * t) {
    return 1.0 / t->n_answers;
}

int64_t task_length(const struct task * t, int64_t length) {
    switch (t->kind) {
        case TASK_ARITHMETIC: return length / 2 * 2;         // d, d + d, … and =
        case TASK_BRACKETS: return length >= 2 ? length : 0; // an expression and =
        case TASK_SUM:
        case TASK_GROUP:
        case TASK_AUTOMATON: break;
    }
    return length;
}

//
// Streams
//

// An expression in brackets that has been opened but not closed.
struct bracket {
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

    struct bracket * open_brackets; // TASK_BRACKETS
    int              n_open;
    size_t           cap_open;
    int64_t          pending;                    // length of the next expression; 0: none
    int              queue[4], n_queue, i_queue; // remaining symbols of a short expression
    int              value;                      // of the last complete expression
};

// A number from 0 to n − 1. n is far below 2^64, so that the bias is negligible.
static int64_t draw(struct task_stream * s, int64_t n) {
    return (int64_t) (xoroshiro128(s->random) % (uint64_t) n);
}

struct task_stream * task_stream_new(const struct task * task, uint64_t seed, int64_t length) {
    struct task_stream * s = program_alloc(1, sizeof(*s));
    s->task = task;
    xoroshiro128_seed(s->random, seed);
    s->length = length;
    s->state = task->kind == TASK_AUTOMATON ? task->start : 0;
    s->pending = length - 1;
    for (int i = 0; i < TASK_POINTS_MAX; ++i) {
        s->product[i] = (uint8_t) i;
    }
    return s;
}

void task_stream_free(struct task_stream * s) {
    if (s != NULL) {
        free(s->open_brackets);
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
            s->terms = reduce(t, s->terms + s->factor);
            s->factor = s->done > 0 && s->op == t->minus ? reduce(t, -d) : d;
        }
        *symbol = t->first_digit + d;
        *answer = t->first_digit + reduce(t, s->terms + s->factor);
    } else {
        s->op = t->plus + (int) draw(s, 3);
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
static void next_brackets(struct task_stream * s, int32_t * symbol, int32_t * answer) {
    const struct task * t = s->task;
    *answer = -1;
    if (s->done == s->length - 1) {
        *symbol = t->equals;
        *answer = t->first_digit + s->value;
    } else if (s->i_queue < s->n_queue) {
        *symbol = s->queue[s->i_queue++];
    } else if (s->pending > 4) {
        program_grow(
                &s->open_brackets, &s->cap_open, (size_t) s->n_open + 1, sizeof(*s->open_brackets));
        struct bracket * f = &s->open_brackets[s->n_open++];
        const int64_t    n = s->pending;
        s->pending = 1 + draw(s, n - 4);
        f->right = n - 3 - s->pending;
        f->op = t->plus + (int) draw(s, 3);
        f->has_left = false;
        *symbol = t->open;
    } else if (s->pending > 0) {
        queue_short(s, s->pending);
        s->pending = 0;
        *symbol = s->queue[s->i_queue++];
    } else if (!s->open_brackets[s->n_open - 1].has_left) {
        struct bracket * f = &s->open_brackets[s->n_open - 1];
        f->value = s->value;
        f->has_left = true;
        s->pending = f->right;
        *symbol = f->op;
    } else {
        const struct bracket * f = &s->open_brackets[--s->n_open];
        const int64_t          a = f->value, b = s->value;
        s->value = reduce(t, f->op == t->plus ? a + b : f->op == t->minus ? a - b : a * b);
        *symbol = t->close;
    }
}

void task_stream_next(struct task_stream * s, int32_t * symbol, int32_t * answer) {
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
            *symbol = t->letters[i];
            s->state = t->next[i * (TASK_STATES_MAX + 1) + s->state];
            *answer = t->output[s->state];
        } break;
        case TASK_ARITHMETIC: next_arithmetic(s, symbol, answer); break;
        case TASK_BRACKETS: next_brackets(s, symbol, answer); break;
    }
    s->done++;
}
