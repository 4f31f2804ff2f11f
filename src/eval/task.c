#include "eval/task.h"

#include "base/error.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POINTS_MAX  = 7, // of a permutation: 5,040 elements
    MODULUS_MAX = 1024,
    STATES_MAX  = 64,
    NAME_MAX    = 64,
};

enum kind { KIND_SUM, KIND_GROUP, KIND_ARITHMETIC, KIND_BRACKETS, KIND_AUTOMATON };

struct task {
    enum kind kind;
    int       modulus;
    int       points;
    int       n_symbols, n_answers;
    char (*symbols)[NAME_MAX];
    bool * is_answer;
    int *  letters; // symbols that are drawn
    int    n_letters;
    uint8_t (*elements)[POINTS_MAX]; // of the group, in order of the symbols
    int   start;                     // of the automaton
    int * next;                      // [letters][states], symbols of states
    int   first_digit, plus, minus, times, open, close, equals; // symbols of arithmetic
};

//
// Permutations
//

static int swaps_of(const uint8_t * p, int n) { // n minus the number of cycles
    bool seen[POINTS_MAX] = { false };
    int  swaps            = n;
    for (int i = 0; i < n; ++i) {
        for (int j = i; !seen[j]; j = p[j]) {
            seen[j] = true;
            swaps -= j == i;
        }
    }
    return swaps;
}

static bool next_permutation(uint8_t * p, int n) { // in lexicographic order
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
    p[i]            = p[j];
    p[j]            = x;
    for (int a = i + 1, b = n - 1; a < b; ++a, --b) {
        const uint8_t y = p[a];
        p[a]            = p[b];
        p[b]            = y;
    }
    return true;
}

static int find_element(const struct task * t, const uint8_t * p) { // the elements are sorted
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

//
// Making a task
//

static bool reserve(struct task * t, int n) {
    t->symbols   = calloc((size_t) n, sizeof(*t->symbols));
    t->is_answer = calloc((size_t) n, sizeof(*t->is_answer));
    t->letters   = calloc((size_t) n, sizeof(*t->letters));
    return t->symbols != NULL && t->is_answer != NULL && t->letters != NULL;
}

static int add_symbol(struct task * t, const char * name, bool is_answer) {
    snprintf(t->symbols[t->n_symbols], NAME_MAX, "%s", name);
    t->is_answer[t->n_symbols] = is_answer;
    t->n_answers += is_answer;
    return t->n_symbols++;
}

static void add_numbers(struct task * t, int m) {
    for (int i = 0; i < m; ++i) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        add_symbol(t, name, true);
    }
}

static bool make_sum(struct task * t, int m) {
    t->kind    = KIND_SUM;
    t->modulus = m;
    if (!reserve(t, m)) {
        return false;
    }
    add_numbers(t, m);
    for (int i = 0; i < m; ++i) {
        t->letters[t->n_letters++] = i;
    }
    return true;
}

static bool make_group(struct task * t, bool even, int n, int max_swaps) {
    int size = 1;
    for (int i = 2; i <= n; ++i) {
        size *= i;
    }
    t->kind     = KIND_GROUP;
    t->points   = n;
    t->elements = calloc((size_t) size, sizeof(*t->elements));
    if (t->elements == NULL || !reserve(t, size)) {
        return false;
    }
    uint8_t p[POINTS_MAX] = { 0, 1, 2, 3, 4, 5, 6 };
    do {
        const int swaps = swaps_of(p, n);
        if (even && swaps % 2 != 0) {
            continue;
        }
        char name[POINTS_MAX + 1] = { 0 };
        for (int i = 0; i < n; ++i) {
            name[i] = (char) ('1' + p[i]);
        }
        memcpy(t->elements[t->n_symbols], p, sizeof(p));
        const int symbol = add_symbol(t, name, true);
        if (swaps <= max_swaps) {
            t->letters[t->n_letters++] = symbol;
        }
    } while (next_permutation(p, n));
    return true;
}

static bool make_arithmetic(struct task * t, int m, bool brackets) {
    t->kind    = brackets ? KIND_BRACKETS : KIND_ARITHMETIC;
    t->modulus = m;
    if (!reserve(t, m + 6)) {
        return false;
    }
    t->first_digit = t->n_symbols;
    add_numbers(t, m);
    t->plus   = add_symbol(t, "+", false);
    t->minus  = add_symbol(t, "-", false);
    t->times  = add_symbol(t, "*", false);
    t->equals = add_symbol(t, "=", false);
    if (brackets) {
        t->open  = add_symbol(t, "(", false);
        t->close = add_symbol(t, ")", false);
    }
    return true;
}

static int find_symbol(const struct task * t, const char * name) {
    for (int i = 0; i < t->n_symbols; ++i) {
        if (strcmp(t->symbols[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

// Words of a line, each shorter than NAME_MAX; returns their number, −1 if there are too many or
// one is too long.
static int split(char * line, char ** words, int max) {
    int    n = 0;
    char * rest;
    for (char * w = strtok_r(line, " \t\r", &rest); w != NULL; w = strtok_r(NULL, " \t\r", &rest)) {
        if (n == max || strlen(w) >= NAME_MAX) {
            return -1;
        }
        words[n++] = w;
    }
    return n;
}

static bool make_automaton(struct task * t, char * text, char * err, size_t err_size) {
    char * words[STATES_MAX + 1];
    int    n_states = 0, n_lines = 1;
    for (const char * c = text; *c != '\0'; ++c) {
        n_lines += *c == '\n';
    }
    t->kind  = KIND_AUTOMATON;
    t->start = -1;
    t->next  = calloc((size_t) n_lines * STATES_MAX, sizeof(*t->next));
    if (t->next == NULL || !reserve(t, n_lines + STATES_MAX)) {
        return false;
    }
    int number = 0;
    for (char *line = text, *end; line != NULL; line = end) {
        ++number;
        end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        line[strcspn(line, "#")] = '\0';
        char * colon             = strchr(line, ':');
        if (line[strspn(line, " \t\r")] == '\0') {
            continue;
        }
        char * key = NULL;
        if (colon != NULL) {
            *colon = '\0';
            if (split(line, &key, 1) != 1) {
                key = NULL;
            }
        }
        const int n = key != NULL ? split(colon + 1, words, STATES_MAX) : -1;
        if (n < 1) {
            return error_set(err, err_size,
                    "line %d of the automaton is not 'states: …', 'start: …' or 'LETTER: …' with at most %d words",
                    number, STATES_MAX);
        }
        if (strcmp(key, "states") == 0) {
            for (int i = 0; i < n; ++i) {
                if (n_states > 0 || find_symbol(t, words[i]) >= 0) {
                    return error_set(err, err_size,
                            "line %d of the automaton: expected one line of different states",
                            number);
                }
                add_symbol(t, words[i], true);
            }
            n_states = n;
            continue;
        }
        const bool is_start = strcmp(key, "start") == 0;
        if (n != (is_start ? 1 : n_states)) {
            return error_set(err, err_size,
                    "line %d of the automaton: '%s' has %d words, expected %d", number, key, n,
                    is_start ? 1 : n_states);
        }
        int letter = -1;
        if (!is_start) {
            letter = find_symbol(t, key); // a state may have the name of a letter
            if (letter < 0) {
                letter = add_symbol(t, key, false);
            }
        }
        for (int i = 0; i < n; ++i) {
            const int state = find_symbol(t, words[i]);
            if (state < 0 || state >= n_states) {
                return error_set(err, err_size,
                        "line %d of the automaton: '%s' is not one of its states", number,
                        words[i]);
            }
            if (is_start) {
                t->start = state;
            } else {
                t->next[t->n_letters * STATES_MAX + i] = state;
            }
        }
        if (!is_start) {
            t->letters[t->n_letters++] = letter;
        }
    }
    if (n_states == 0 || t->start < 0 || t->n_letters == 0) {
        return error_set(err, err_size, "the automaton has no %s",
                n_states == 0  ? "states"
                : t->start < 0 ? "start"
                               : "letters");
    }
    return true;
}

// "name:5": 5; `missing` without a colon; −1 if it is not a number from lo to hi
static int number_after(const char * colon, int missing, int lo, int hi) {
    if (*colon == '\0') {
        return missing;
    }
    char *     end;
    const long n = strtol(colon + 1, &end, 10);
    return *colon == ':' && end != colon + 1 && *end == '\0' && n >= lo && n <= hi ? (int) n : -1;
}

static bool make(struct task * t, const char * spec, const char * automaton, size_t automaton_size,
        char * err, size_t err_size) {
    const size_t name = strcspn(spec, ":");
    const char * tail = spec + name;
    int          n;

    if (strcmp(spec, "parity") == 0) {
        return make_sum(t, 2);
    }
    if (name == 3 && strncmp(spec, "mod", 3) == 0 &&
            (n = number_after(tail, -1, 2, MODULUS_MAX)) > 0) {
        return make_sum(t, n);
    }
    if (name == 9 && strncmp(spec, "mod-arith", 9) == 0 &&
            (n = number_after(tail, 5, 2, MODULUS_MAX)) > 0) {
        return make_arithmetic(t, n, false);
    }
    if (name == 12 && strncmp(spec, "mod-brackets", 12) == 0 &&
            (n = number_after(tail, 5, 2, MODULUS_MAX)) > 0) {
        return make_arithmetic(t, n, true);
    }
    if (name == 2 && (spec[0] == 'S' || spec[0] == 'A') && spec[1] >= '2' &&
            spec[1] <= '0' + POINTS_MAX) {
        n = strcmp(tail, ":swaps") == 0 ? 1 : number_after(tail, POINTS_MAX, 1, POINTS_MAX);
        if (n > 0) {
            return make_group(t, spec[0] == 'A', spec[1] - '0', n);
        }
    }
    if (strcmp(spec, "automaton") == 0 && automaton != NULL) {
        char *     text = calloc(1, automaton_size + 1);
        const bool made = text != NULL && (memcpy(text, automaton, automaton_size),
                                                  make_automaton(t, text, err, err_size));
        free(text);
        return made;
    }
    if (strcmp(spec, "automaton") == 0) {
        snprintf(err, err_size,
                "the task 'automaton' needs its table: --automaton FILE, or a model that carries one");
    } else {
        snprintf(err, err_size,
                "there is no task '%s'; expected parity, mod:M, S3 to S%d, A3 to A%d, mod-arith, mod-brackets or automaton",
                spec, POINTS_MAX, POINTS_MAX);
    }
    return false;
}

struct task * task_new(const char * spec, const char * automaton, size_t automaton_size, char * err,
        size_t err_size) {
    struct task * t = calloc(1, sizeof(*t));
    snprintf(err, err_size, "out of memory for a task");
    if (t == NULL || !make(t, spec, automaton, automaton_size, err, err_size)) {
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

bool task_only_end(const struct task * t) {
    return t->kind == KIND_BRACKETS;
}

int64_t task_length(const struct task * t, int64_t length) {
    switch (t->kind) {
        case KIND_ARITHMETIC: return length / 2 * 2;         // d, d + d, … and =
        case KIND_BRACKETS: return length >= 2 ? length : 0; // an expression and =
        case KIND_SUM:
        case KIND_GROUP:
        case KIND_AUTOMATON: break;
    }
    return length;
}

//
// Streams
//

// An expression in brackets that is under way. Values are on a stack of their own.
struct frame {
    int64_t right; // length of the right side
    int     op;
    int     value;    // of the left side
    bool    has_left; // it is known
};

struct task_stream {
    const struct task * task;
    uint64_t            random[2];
    int64_t             length, done;

    int     sum; // KIND_SUM, KIND_AUTOMATON: the state
    uint8_t product[POINTS_MAX];
    int     terms,
            factor; // KIND_ARITHMETIC: of what stands before the last + or −; of what stands behind it, with its sign
    int op;

    struct frame * frames; // KIND_BRACKETS
    int            n_frames, cap_frames;
    int64_t        pending;          // length of the expression that begins now, 0: none
    int queue[4], n_queue, at_queue; // symbols of a short expression, one after the other
    int value;
};

static int64_t draw(struct task_stream * s,
        int64_t n) { // from 0 to n − 1; n is far below 2^64: the bias is nothing
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
    s->sum     = task->kind == KIND_AUTOMATON ? task->start : 0;
    s->pending = length - 1;
    for (int i = 0; i < POINTS_MAX; ++i) {
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

// d op d op … d =; value = terms + factor
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

static void queue_short(struct task_stream * s, int64_t n) {
    // n = 1: d   2: - d   3: ( d )   4: ( - d )
    const struct task * t = s->task;
    const int           d = (int) draw(s, t->modulus);
    s->n_queue = s->at_queue = 0;
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

// The expression of length n ≥ 5 is ( left op right ), the left one of any length from 1 to n − 4.
static bool next_brackets(struct task_stream * s, int32_t * symbol, int32_t * answer) {
    const struct task * t = s->task;
    *answer               = -1;
    if (s->done == s->length - 1) {
        *symbol = t->equals;
        *answer = t->first_digit + s->value;
        return true;
    }
    if (s->at_queue < s->n_queue) {
        *symbol = s->queue[s->at_queue++];
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
        *symbol    = s->queue[s->at_queue++];
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
        case KIND_SUM: {
            *symbol = t->letters[draw(s, t->n_letters)];
            *answer = s->sum = (s->sum + *symbol) % t->modulus;
        } break;
        case KIND_GROUP: {
            *symbol = t->letters[draw(s, t->n_letters)];
            uint8_t product[POINTS_MAX]; // (y ∘ x)(i) = y(x(i))
            for (int i = 0; i < t->points; ++i) {
                product[i] = s->product[t->elements[*symbol][i]];
            }
            memcpy(s->product, product, (size_t) t->points);
            *answer = find_element(t, s->product);
        } break;
        case KIND_AUTOMATON: {
            const int64_t i = draw(s, t->n_letters);
            *symbol         = t->letters[i];
            *answer = s->sum = t->next[i * STATES_MAX + s->sum];
        } break;
        case KIND_ARITHMETIC: {
            next_arithmetic(s, symbol, answer);
        } break;
        case KIND_BRACKETS: {
            if (!next_brackets(s, symbol, answer)) {
                return false;
            }
        } break;
    }
    s->done++;
    return true;
}
