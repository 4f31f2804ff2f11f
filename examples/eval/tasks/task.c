#include "eval/tasks/task-impl.h"

#include "base/error.h"
#include "base/random.h"
#include "memory.h"

#include <inttypes.h>
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
    int lo = 0, hi = t->n_answers - 1;
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

static int moved_by(const uint8_t * p, int n) {
    int moved = 0;
    for (int i = 0; i < n; ++i) {
        moved += p[i] != i;
    }
    return moved;
}

// The permutations of n points, or the even ones. Letters have at most max_swaps and move at most
// max_moved points.
static void task_make_group(struct task * t, bool even, int n, int max_swaps, int max_moved) {
    int size = 1;
    for (int i = 2; i <= n; ++i) {
        size *= i;
    }
    t->kind = TASK_GROUP;
    t->points = n;
    t->elements = program_alloc((size_t) size, sizeof(*t->elements));
    task_reserve(t, size + 1); // and the blank
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
        if (swaps <= max_swaps && moved_by(p, n) <= max_moved) {
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

// A group by its name, such as S5 or A5, and the part after it: nothing, ":swaps", ":3-cycles",
// ":K-tokens", or ":K" for letters of at most K swaps.
static bool make_group(struct task * t, const char * spec, const char * tail) {
    const int points = spec[1] - '0';
    int       swaps = TASK_POINTS_MAX, moved = TASK_POINTS_MAX, tokens = 1;
    if (tail - spec != 2 || (spec[0] != 'S' && spec[0] != 'A') || points < 2 ||
            points > TASK_POINTS_MAX) {
        return false;
    }
    if (strcmp(tail, ":swaps") == 0) {
        swaps = 1;
    } else if (strcmp(tail, ":3-cycles") == 0) {
        moved = 3;
    } else if (tail[0] == ':' && tail[1] >= '2' && tail[1] <= '0' + TASK_TOKENS_MAX &&
               strcmp(tail + 2, "-tokens") == 0) {
        tokens = tail[1] - '0';
    } else {
        swaps = number_after(tail, swaps, 1, TASK_POINTS_MAX);
    }
    if (swaps < 0) {
        return false;
    }
    task_make_group(t, spec[0] == 'A', points, swaps, moved);
    t->tokens = tokens;
    if (tokens > 1) {
        t->blank = task_add_symbol(t, "_", false);
    }
    return true;
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
    if (make_group(t, spec, tail)) {
        return true;
    }
    if (strcmp(spec, "automaton") != 0) {
        return error_bad_input(err,
                "there is no task '%s'; expected parity, mod:M, S3 to S%d or A3 to A%d (alone or "
                "with :swaps, :3-cycles, :4-tokens), mod-arith, mod-brackets or automaton",
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

// A bracket that has been opened but not closed; the first of a stream is the whole expression.
struct bracket {
    int left; // value before the operator
    int op;   // symbol; −1: none yet
};

// What remains to be drawn: an expression, or one symbol.
struct piece {
    int64_t length; // of the expression; 0: a symbol
    int     symbol;
};

struct task_stream {
    const struct task * task;
    uint64_t            random[2];
    int64_t             length, done;
    bool                ended; // by =

    int state; // TASK_SUM, TASK_AUTOMATON

    uint8_t product[TASK_POINTS_MAX]; // TASK_GROUP
    int     late[TASK_TOKENS_MAX];    // the last letters; answers come after their blanks

    int terms;  // TASK_ARITHMETIC: value of everything before the last + or −
    int factor; // value of the product after it, with its sign
    int op;

    struct piece *   pieces; // TASK_BRACKETS: a stack, to draw
    int              n_pieces;
    size_t           cap_pieces;
    struct bracket * brackets; // a stack, to find the answers
    int              n_brackets;
    size_t           cap_brackets;
    bool             has_value, negative; // the innermost bracket's last operand; its sign
    int              value;
};

// A number from 0 to n − 1. n is far below 2^64, so that the bias is negligible.
static int64_t draw(struct task_stream * s, int64_t n) {
    return (int64_t) (xoroshiro128(s->random) % (uint64_t) n);
}

static void push_piece(struct task_stream * s, int64_t length, int symbol) {
    program_grow(&s->pieces, &s->cap_pieces, (size_t) s->n_pieces + 1, sizeof(*s->pieces));
    s->pieces[s->n_pieces++] = (struct piece) { length, symbol };
}

static void push_bracket(struct task_stream * s) {
    program_grow(&s->brackets, &s->cap_brackets, (size_t) s->n_brackets + 1, sizeof(*s->brackets));
    s->brackets[s->n_brackets++] = (struct bracket) { .op = -1 };
}

struct task_stream * task_stream_new(const struct task * task, uint64_t seed, int64_t length) {
    struct task_stream * s = program_alloc(1, sizeof(*s));
    s->task = task;
    xoroshiro128_seed(s->random, seed);
    s->length = length;
    s->state = task->kind == TASK_AUTOMATON ? task->start : 0;
    s->op = task->plus;
    for (int i = 0; i < TASK_POINTS_MAX; ++i) {
        s->product[i] = (uint8_t) i;
    }
    if (task->kind == TASK_BRACKETS) {
        push_piece(s, length - 1, 0);
        push_bracket(s);
    }
    return s;
}

void task_stream_free(struct task_stream * s) {
    if (s != NULL) {
        free(s->pieces);
        free(s->brackets);
        free(s);
    }
}

//
// Random symbols
//

// An expression of n symbols: 1: d   2: - d   3: ( d )   4: ( - d )
// n ≥ 5: ( left op right ), where left has 1 to n − 4 symbols
static int draw_brackets(struct task_stream * s) {
    const struct task * t = s->task;
    struct piece        p = s->pieces[--s->n_pieces];
    while (p.length > 0) {
        const int64_t n = p.length;
        if (n >= 3) {
            push_piece(s, 0, t->close);
        }
        if (n >= 5) {
            const int64_t left = 1 + draw(s, n - 4);
            push_piece(s, n - 3 - left, 0);
            push_piece(s, 0, t->plus + (int) draw(s, 3));
            push_piece(s, left, 0);
        } else {
            push_piece(s, 0, t->first_digit + (int) draw(s, t->modulus));
            if (n % 2 == 0) {
                push_piece(s, 0, t->minus);
            }
        }
        if (n >= 3) {
            push_piece(s, 0, t->open);
        }
        p = s->pieces[--s->n_pieces];
    }
    return p.symbol;
}

static int draw_symbol(struct task_stream * s) {
    const struct task * t = s->task;
    switch (t->kind) {
        case TASK_GROUP:
            return s->done % t->tokens > 0 ? t->blank : t->letters[draw(s, t->n_letters)];
        case TASK_SUM:
        case TASK_AUTOMATON: return t->letters[draw(s, t->n_letters)];
        case TASK_ARITHMETIC:
            return s->done == s->length - 1 ? t->equals
                   : s->done % 2 == 0       ? t->first_digit + (int) draw(s, t->modulus)
                                            : t->plus + (int) draw(s, 3);
        case TASK_BRACKETS: break;
    }
    return s->done == s->length - 1 ? t->equals : draw_brackets(s);
}

//
// Answers
//

static int reduce(const struct task * t, int64_t x) {
    const int m = t->modulus;
    return (int) ((x % m + m) % m);
}

static bool is_digit(const struct task * t, int symbol) {
    return symbol >= t->first_digit && symbol < t->first_digit + t->modulus;
}

static bool is_operator(const struct task * t, int symbol) {
    return symbol == t->plus || symbol == t->minus || symbol == t->times;
}

// The symbol does not fit.
static bool refuse(
        const struct task_stream * s, int symbol, const char * expected, struct lrnn_error * err) {
    return error_bad_input(err, "letter %" PRId64 " is '%s', expected %s", s->done + 1,
            s->task->symbols[symbol], expected);
}

// value = terms + factor
static bool take_arithmetic(
        struct task_stream * s, int symbol, int32_t * answer, struct lrnn_error * err) {
    const struct task * t = s->task;
    const bool          digit = is_digit(t, symbol);
    if (digit != (s->done % 2 == 0)) {
        return refuse(s, symbol, digit ? "an operator or =" : "a digit", err);
    }
    if (!digit) {
        s->op = symbol;
    } else if (s->op == t->times) {
        s->factor = reduce(t, (int64_t) s->factor * (symbol - t->first_digit));
    } else {
        const int d = symbol - t->first_digit;
        s->terms = reduce(t, s->terms + s->factor);
        s->factor = s->op == t->minus ? reduce(t, -d) : d;
    }
    *answer = t->first_digit + reduce(t, s->terms + s->factor);
    return true;
}

// ( left op right ), with the operands d, - d and ( … ); an answer at each ) and at =
static bool take_brackets(
        struct task_stream * s, int symbol, int32_t * answer, struct lrnn_error * err) {
    const struct task * t = s->task;
    struct bracket *    b = &s->brackets[s->n_brackets - 1];
    const bool          inside = s->n_brackets > 1;
    if (!s->has_value && is_digit(t, symbol)) {
        const int d = symbol - t->first_digit;
        s->value = s->negative ? reduce(t, -d) : d;
        s->negative = false;
        s->has_value = true;
    } else if (!s->has_value && !s->negative && symbol == t->minus) {
        s->negative = true;
    } else if (!s->has_value && !s->negative && symbol == t->open) {
        push_bracket(s);
    } else if (s->has_value && inside && b->op < 0 && is_operator(t, symbol)) {
        *b = (struct bracket) { .left = s->value, .op = symbol };
        s->has_value = false;
    } else if (s->has_value && symbol == (inside ? t->close : t->equals)) {
        const int64_t x = b->left, y = s->value;
        s->value = b->op < 0           ? s->value
                   : b->op == t->plus  ? reduce(t, x + y)
                   : b->op == t->minus ? reduce(t, x - y)
                                       : reduce(t, x * y);
        s->n_brackets -= inside;
        *answer = t->first_digit + s->value;
    } else {
        return refuse(s, symbol,
                s->negative     ? "a digit"
                : !s->has_value ? "a digit, - or ("
                : !inside       ? "=: every operator is inside brackets"
                : b->op < 0     ? "an operator or )"
                                : ")",
                err);
    }
    return true;
}

// Finds the answer after a symbol. Drawn symbols always fit.
static bool take_symbol(
        struct task_stream * s, int symbol, int32_t * answer, struct lrnn_error * err) {
    const struct task * t = s->task;
    bool                ok = true;
    *answer = -1;
    if (s->ended) {
        return refuse(s, symbol, "nothing after =", err);
    }
    switch (t->kind) {
        case TASK_SUM: *answer = s->state = (s->state + symbol) % t->modulus; break;
        case TASK_GROUP: {
            const int  i = (int) (s->done % t->tokens);
            const bool blank = t->tokens > 1 && symbol == t->blank;
            if (blank != (i > 0)) {
                return refuse(s, symbol, blank ? "a permutation" : "_", err);
            }
            s->late[i] = symbol;
            if (i == t->tokens - 1) {
                uint8_t product[TASK_POINTS_MAX]; // (y ∘ x)(i) = y(x(i))
                for (int j = 0; j < t->points; ++j) {
                    product[j] = s->product[t->elements[s->late[0]][j]];
                }
                memcpy(s->product, product, (size_t) t->points);
            }
            *answer = task_find_element(t, s->product);
        } break;
        case TASK_AUTOMATON: {
            int i = 0;
            while (i < t->n_letters && t->letters[i] != symbol) {
                ++i;
            }
            if (i == t->n_letters) {
                return refuse(s, symbol, "a letter of the automaton", err);
            }
            s->state = t->next[i * (TASK_STATES_MAX + 1) + s->state];
            *answer = t->output[s->state];
        } break;
        case TASK_ARITHMETIC: ok = take_arithmetic(s, symbol, answer, err); break;
        case TASK_BRACKETS: ok = take_brackets(s, symbol, answer, err); break;
    }
    s->ended = (t->kind == TASK_ARITHMETIC || t->kind == TASK_BRACKETS) && symbol == t->equals;
    s->done++;
    return ok;
}

void task_stream_next(struct task_stream * s, int32_t * symbol, int32_t * answer) {
    *symbol = draw_symbol(s);
    take_symbol(s, *symbol, answer, NULL);
}

bool task_answers(const struct task * t, const int32_t * symbols, int64_t n, int32_t * answers,
        struct lrnn_error * err) {
    struct task_stream * s = task_stream_new(t, 0, n);
    bool                 ok = true;
    for (int64_t i = 0; i < n && ok; ++i) {
        ok = take_symbol(s, symbols[i], &answers[i], err);
    }
    if (ok && s->n_brackets > 1) {
        ok = error_bad_input(err, "the expression ends with %d open bracket%s", s->n_brackets - 1,
                s->n_brackets > 2 ? "s" : "");
    }
    task_stream_free(s);
    return ok;
}
