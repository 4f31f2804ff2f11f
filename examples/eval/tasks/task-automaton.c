// Automata, in the format of `lrnn-convert automaton`: one line "states: …", one line "start: …",
// and lines "LETTER …: …" with the next state for each state, or - for none; # begins a comment.
// The answer of a state is its name, or the word of a line "output: …", or, with a line
// "accept: …", accept or reject.

#include "base/error.h"
#include "eval/tasks/task-impl.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static const char SINK[] = "-";

// An automaton while it is read.
struct reader {
    struct task *       task;
    int                 line; // from 1
    char                states[TASK_STATES_MAX + 1][TASK_NAME_MAX];
    int                 n_states;
    bool                has_sink; // it is not listed, and has the number n_states
    bool                has_accept;
    char                outputs[TASK_STATES_MAX + 1][TASK_NAME_MAX];
    int                 n_outputs; // 0: the names of the states
    struct lrnn_error * err;
};

// Returns the next word of a text and moves *text past it; NULL at the end.
static const char * next_word(char ** text) {
    char * word = *text + strspn(*text, " \t\r");
    if (*word == '\0') {
        return NULL;
    }
    char * end = word + strcspn(word, " \t\r");
    *text = *end == '\0' ? end : end + 1;
    *end = '\0';
    return word;
}

static int count_words(const char * text) {
    int n = 0;
    for (text += strspn(text, " \t\r"); *text != '\0'; text += strspn(text, " \t\r")) {
        text += strcspn(text, " \t\r");
        ++n;
    }
    return n;
}

static int find_state(const struct reader * r, const char * name) {
    for (int i = 0; i < r->n_states; ++i) {
        if (strcmp(r->states[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool expect_state(const struct reader * r, const char * name, int * state) {
    *state = find_state(r, name);
    return *state >= 0 ||
           error_bad_input(r->err, "line %d of the automaton: '%s' is not one of its states",
                   r->line, name);
}

static bool expect_words(const struct reader * r, const char * key, const char * text, int n) {
    const int found = count_words(text);
    return found == n ||
           error_bad_input(r->err, "line %d of the automaton: '%s' has %d words, expected %d",
                   r->line, key, found, n);
}

static bool copy_name(const struct reader * r, char * out, const char * name) {
    if (strlen(name) >= TASK_NAME_MAX) {
        return error_bad_input(r->err,
                "line %d of the automaton: a word has %zu bytes, expected at most %d", r->line,
                strlen(name), TASK_NAME_MAX - 1);
    }
    memcpy(out, name, strlen(name) + 1);
    return true;
}

static bool read_states(struct reader * r, char * text) {
    const int n = count_words(text);
    if (r->n_states > 0 || n == 0 || n > TASK_STATES_MAX) {
        return error_bad_input(r->err,
                "line %d of the automaton: expected one line of 1 to %d different states", r->line,
                TASK_STATES_MAX);
    }
    for (const char * w = next_word(&text); w != NULL; w = next_word(&text)) {
        if (find_state(r, w) >= 0) {
            return error_bad_input(r->err,
                    "line %d of the automaton: expected one line of different states", r->line);
        }
        if (!copy_name(r, r->states[r->n_states], w)) {
            return false;
        }
        r->n_states++;
    }
    return true;
}

static bool read_outputs(struct reader * r, char * text) {
    if (r->n_outputs > 0) {
        return error_bad_input(r->err, "line %d of the automaton: expected one output", r->line);
    }
    if (!expect_words(r, "output", text, r->n_states)) {
        return false;
    }
    for (int i = 0; i < r->n_states; ++i) {
        if (!copy_name(r, r->outputs[i], next_word(&text))) {
            return false;
        }
    }
    r->n_outputs = r->n_states;
    return true;
}

static bool read_accept(struct reader * r, char * text) {
    if (r->n_outputs > 0) {
        return error_bad_input(r->err, "line %d of the automaton: expected one output", r->line);
    }
    for (int i = 0; i < r->n_states; ++i) {
        memcpy(r->outputs[i], "reject", sizeof("reject"));
    }
    for (const char * w = next_word(&text); w != NULL; w = next_word(&text)) {
        int state;
        if (!expect_state(r, w, &state)) {
            return false;
        }
        memcpy(r->outputs[state], "accept", sizeof("accept"));
    }
    r->n_outputs = r->n_states;
    r->has_accept = true;
    return true;
}

// Adds the letters `keys`, which share their targets.
static bool read_letters(struct reader * r, char * keys, char * text) {
    struct task * t = r->task;
    int *         first = &t->next[t->n_letters * (TASK_STATES_MAX + 1)];
    if (!expect_words(r, keys, text, r->n_states)) {
        return false;
    }
    for (int i = 0; i < r->n_states; ++i) {
        const char * w = next_word(&text);
        if (strcmp(w, SINK) == 0 && find_state(r, w) < 0) {
            r->has_sink = true;
            first[i] = r->n_states;
        } else if (!expect_state(r, w, &first[i])) {
            return false;
        }
    }
    first[r->n_states] = r->n_states;
    for (const char * w = next_word(&keys); w != NULL; w = next_word(&keys)) {
        char name[TASK_NAME_MAX];
        if (!copy_name(r, name, w)) {
            return false;
        }
        memcpy(&t->next[t->n_letters * (TASK_STATES_MAX + 1)], first,
                (TASK_STATES_MAX + 1) * sizeof(*first));
        t->letters[t->n_letters++] = task_add_symbol(t, name, false);
    }
    return true;
}

static bool read_line(struct reader * r, char * text) {
    text[strcspn(text, "#")] = '\0';
    char * colon = strchr(text, ':');
    if (count_words(text) == 0) {
        return true;
    }
    if (colon != NULL) {
        *colon = '\0';
    }
    if (colon == NULL || count_words(text) == 0) {
        return error_bad_input(r->err,
                "line %d of the automaton is not 'states: …', 'start: …', 'output: …', 'accept: …' "
                "or 'LETTER: …'",
                r->line);
    }
    char *       rest = text;
    char *       body = colon + 1;
    const bool   one = count_words(text) == 1;
    const char * key = one ? next_word(&rest) : text;
    if (one && strcmp(key, "states") == 0) {
        return read_states(r, body);
    }
    if (one && strcmp(key, "start") == 0) {
        return expect_words(r, key, body, 1) && expect_state(r, next_word(&body), &r->task->start);
    }
    if (one && strcmp(key, "output") == 0) {
        return read_outputs(r, body);
    }
    if (one && strcmp(key, "accept") == 0) {
        return read_accept(r, body);
    }
    return read_letters(r, text, body);
}

// The answers. Symbols with the names of letters exist already.
static void add_answers(struct reader * r) {
    struct task * t = r->task;
    if (r->has_sink) {
        memcpy(r->states[r->n_states], SINK, sizeof(SINK));
        memcpy(r->outputs[r->n_states], r->has_accept ? "reject" : SINK,
                r->has_accept ? sizeof("reject") : sizeof(SINK));
    }
    for (int i = 0; i < r->n_states + r->has_sink; ++i) {
        const char * name = r->n_outputs > 0 ? r->outputs[i] : r->states[i];
        t->output[i] = task_find_symbol(t, name);
        if (t->output[i] < 0) {
            t->output[i] = task_add_symbol(t, name, true);
        } else if (!t->is_answer[t->output[i]]) {
            t->is_answer[t->output[i]] = true;
            t->n_answers++;
        }
    }
}

bool task_make_automaton(struct task * t, char * text, struct lrnn_error * err) {
    struct reader * r = program_alloc(1, sizeof(*r));
    // a letter is a word, and so is an answer; two more for accept and reject
    const int n = count_words(text) + 2 * TASK_STATES_MAX;

    int n_lines = 1;
    for (const char * c = text; *c != '\0'; ++c) {
        n_lines += *c == '\n';
    }
    t->kind = TASK_AUTOMATON;
    t->start = -1;
    t->next = program_alloc((size_t) n * (TASK_STATES_MAX + 1), sizeof(*t->next));
    t->output = program_alloc(TASK_STATES_MAX + 1, sizeof(*t->output));
    task_reserve(t, n + n_lines);
    r->task = t;
    r->err = err;
    bool ok = true;
    for (char *p = text, *end; ok && p != NULL; p = end) {
        end = strchr(p, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        r->line++;
        ok = read_line(r, p);
    }
    if (ok && (r->n_states == 0 || t->start < 0 || t->n_letters == 0)) {
        ok = error_bad_input(err, "the automaton has no %s",
                r->n_states == 0 ? "states"
                : t->start < 0   ? "start"
                                 : "letters");
    }
    if (ok) {
        add_answers(r);
    }
    free(r);
    return ok;
}
