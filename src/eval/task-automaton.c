// Automata, in the format of `lrnn-convert automaton`: one line "states: …", one line "start: …",
// and one line "LETTER: …" per letter with the next state for each state; # begins a comment.

#include "base/error.h"
#include "eval/task-impl.h"

#include <stdlib.h>
#include <string.h>

struct line {
    int    number; // from 1
    char * key;
    char * words[TASK_STATES_MAX];
    int    n;
};

// Splits a text into words, each shorter than TASK_NAME_MAX. Returns their number, or −1 if there
// are too many or one is too long.
static int split(char * text, char ** words, int max) {
    int    n = 0;
    char * rest;
    for (char * w = strtok_r(text, " \t\r", &rest); w != NULL; w = strtok_r(NULL, " \t\r", &rest)) {
        if (n == max || strlen(w) >= TASK_NAME_MAX) {
            return -1;
        }
        words[n++] = w;
    }
    return n;
}

// Parses "KEY: WORD …". An empty line has no key.
static bool parse_line(struct line * line, char * text, char * err, size_t err_size) {
    text[strcspn(text, "#")] = '\0';
    line->key                = NULL;
    if (text[strspn(text, " \t\r")] == '\0') {
        return true;
    }
    char * colon = strchr(text, ':');
    if (colon != NULL) {
        *colon  = '\0';
        line->n = split(text, &line->key, 1) == 1 ? split(colon + 1, line->words, TASK_STATES_MAX)
                                                  : 0;
    }
    return (colon != NULL && line->n > 0) ||
           error_set(err, err_size,
                   "line %d of the automaton is not 'states: …', 'start: …' or 'LETTER: …' with at "
                   "most %d words",
                   line->number, TASK_STATES_MAX);
}

static bool add_states(struct task * t, const struct line * line, char * err, size_t err_size) {
    for (int i = 0; i < line->n; ++i) {
        if (t->n_symbols > i || task_find_symbol(t, line->words[i]) >= 0) {
            return error_set(err, err_size,
                    "line %d of the automaton: expected one line of different states",
                    line->number);
        }
        task_add_symbol(t, line->words[i], true);
    }
    return true;
}

// Adds the start, or a letter.
static bool add_transitions(
        struct task * t, const struct line * line, int n_states, char * err, size_t err_size) {
    const bool is_start = strcmp(line->key, "start") == 0;
    const int  expected = is_start ? 1 : n_states;
    if (line->n != expected) {
        return error_set(err, err_size, "line %d of the automaton: '%s' has %d words, expected %d",
                line->number, line->key, line->n, expected);
    }
    for (int i = 0; i < line->n; ++i) {
        const int state = task_find_symbol(t, line->words[i]);
        if (state < 0 || state >= n_states) {
            return error_set(err, err_size,
                    "line %d of the automaton: '%s' is not one of its states", line->number,
                    line->words[i]);
        }
        *(is_start ? &t->start : &t->next[t->n_letters * TASK_STATES_MAX + i]) = state;
    }
    if (!is_start) {
        const int letter = task_find_symbol(t, line->key); // may also be the name of a state
        t->letters[t->n_letters++] = letter >= 0 ? letter : task_add_symbol(t, line->key, false);
    }
    return true;
}

bool task_make_automaton(struct task * t, char * text, char * err, size_t err_size) {
    struct line line     = { 0 };
    int         n_states = 0, n_lines = 1;

    for (const char * c = text; *c != '\0'; ++c) {
        n_lines += *c == '\n';
    }
    t->kind  = TASK_AUTOMATON;
    t->start = -1;
    t->next  = calloc((size_t) n_lines * TASK_STATES_MAX, sizeof(*t->next));
    if (t->next == NULL || !task_reserve(t, n_lines + TASK_STATES_MAX)) {
        return error_set(err, err_size, "out of memory for an automaton of %d lines", n_lines);
    }
    for (char *p = text, *end; p != NULL; p = end) {
        end = strchr(p, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        line.number++;
        if (!parse_line(&line, p, err, err_size)) {
            return false;
        }
        if (line.key != NULL && strcmp(line.key, "states") == 0) {
            if (!add_states(t, &line, err, err_size)) {
                return false;
            }
            n_states = line.n;
        } else if (line.key != NULL && !add_transitions(t, &line, n_states, err, err_size)) {
            return false;
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
