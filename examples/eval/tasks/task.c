#include "eval/tasks/task-impl.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool task_reserve(struct task * t, int n) {
    t->symbols   = calloc((size_t) n, sizeof(*t->symbols));
    t->is_answer = calloc((size_t) n, sizeof(*t->is_answer));
    t->letters   = calloc((size_t) n, sizeof(*t->letters));
    return t->symbols != NULL && t->is_answer != NULL && t->letters != NULL;
}

int task_add_symbol(struct task * t, const char * name, bool is_answer) {
    snprintf(t->symbols[t->n_symbols], TASK_NAME_MAX, "%s", name);
    t->is_answer[t->n_symbols] = is_answer;
    t->n_answers += is_answer;
    return t->n_symbols++;
}

static void add_numbers(struct task * t, int m) {
    for (int i = 0; i < m; ++i) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        task_add_symbol(t, name, true);
    }
}

static bool make_sum(struct task * t, int m) {
    t->kind    = TASK_SUM;
    t->modulus = m;
    if (!task_reserve(t, m)) {
        return false;
    }
    add_numbers(t, m);
    for (int i = 0; i < m; ++i) {
        t->letters[t->n_letters++] = i;
    }
    return true;
}

static bool make_arithmetic(struct task * t, int m, bool brackets) {
    t->kind    = brackets ? TASK_BRACKETS : TASK_ARITHMETIC;
    t->modulus = m;
    if (!task_reserve(t, m + 6)) {
        return false;
    }
    t->first_digit = t->n_symbols;
    add_numbers(t, m);
    t->plus   = task_add_symbol(t, "+", false);
    t->minus  = task_add_symbol(t, "-", false);
    t->times  = task_add_symbol(t, "*", false);
    t->equals = task_add_symbol(t, "=", false);
    if (brackets) {
        t->open  = task_add_symbol(t, "(", false);
        t->close = task_add_symbol(t, ")", false);
    }
    return true;
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
    const int    m5   = number_after(tail, 5, 2, TASK_MODULUS_MAX);
    const int    m    = number_after(tail, -1, 2, TASK_MODULUS_MAX);

    if (strcmp(spec, "parity") == 0 || (has_name(spec, "mod") && m > 0)) {
        return make_sum(t, spec[0] == 'p' ? 2 : m);
    }
    if ((has_name(spec, "mod-arith") || has_name(spec, "mod-brackets")) && m5 > 0) {
        return make_arithmetic(t, m5, has_name(spec, "mod-brackets"));
    }
    if (tail - spec == 2 && (spec[0] == 'S' || spec[0] == 'A') && spec[1] >= '2' &&
            spec[1] <= '0' + TASK_POINTS_MAX) {
        const int swaps = strcmp(tail, ":swaps") == 0
                                  ? 1
                                  : number_after(tail, TASK_POINTS_MAX, 1, TASK_POINTS_MAX);
        if (swaps > 0) {
            return task_make_group(t, spec[0] == 'A', spec[1] - '0', swaps);
        }
    }
    if (strcmp(spec, "automaton") != 0) {
        return error_set(err, LRNN_ERROR_BAD_INPUT,
                "there is no task '%s'; expected parity, mod:M, S3 to S%d, A3 to A%d, mod-arith, "
                "mod-brackets or automaton",
                spec, TASK_POINTS_MAX, TASK_POINTS_MAX);
    }
    if (automaton == NULL) {
        return error_set(err, LRNN_ERROR_BAD_INPUT,
                "the task 'automaton' needs a table: --automaton FILE, or a model that has one");
    }
    char *     text = calloc(1, automaton_size + 1);
    const bool made = text != NULL &&
                      (memcpy(text, automaton, automaton_size), task_make_automaton(t, text, err));
    free(text);
    return made;
}

struct task * task_new(
        const char * name, const char * automaton, size_t automaton_size, struct lrnn_error * err) {
    struct task * t = calloc(1, sizeof(*t));
    error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for a task");
    if (t == NULL || !make(t, name, automaton, automaton_size, err)) {
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
