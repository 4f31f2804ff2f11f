#include "sequence.h"

#include "base/error.h"
#include "eval/tasks/probe.h"
#include "memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// Splits a text into the symbols of the task. The caller frees *symbols.
static bool read_symbols(const struct task * task, const char * text, int32_t ** symbols,
        int64_t * n, struct lrnn_error * err) {
    const char SPACE[] = " \t\r\n";
    size_t     cap = 0;
    *symbols = NULL;
    *n = 0;
    for (text += strspn(text, SPACE); *text != '\0'; text += strspn(text, SPACE)) {
        const size_t size = strcspn(text, SPACE);
        char         name[SEQUENCE_NAME_MAX];
        snprintf(name, sizeof(name), "%.*s", (int) size, text);
        program_grow(symbols, &cap, (size_t) *n + 1, sizeof(**symbols));
        (*symbols)[*n] = size < sizeof(name) ? task_find_symbol(task, name) : -1;
        if ((*symbols)[(*n)++] < 0) {
            return error_bad_input(err,
                    "letter %" PRId64 " of the sequence is '%s'; expected one of %s, …, %s", *n,
                    name, task_symbol(task, 0), task_symbol(task, task_n_symbols(task) - 1));
        }
        text += size;
    }
    return *n > 0 || error_bad_input(err, "the sequence has no letters, expected at least one");
}

bool sequence_ask(struct lrnn_model * model, const struct task * task,
        const struct lrnn_session_params * session, const char * text, struct sequence * s,
        struct lrnn_error * err) {
    int32_t * symbols;
    int64_t   n;
    bool      ok = read_symbols(task, text, &symbols, &n, err);
    int32_t * answers = program_alloc((size_t) n + 1, sizeof(*answers));
    int32_t * said = program_alloc((size_t) n + 1, sizeof(*said)); // tokens

    ok = ok && task_answers(task, symbols, n, answers, err) &&
         probe_symbols(model, task, session, symbols, n, said, err);
    *s = (struct sequence) { 0 };
    if (ok) {
        s->n = n;
        s->letters = program_alloc((size_t) n, sizeof(*s->letters));
    }
    for (int64_t i = 0; i < s->n; ++i) {
        struct sequence_letter * l = &s->letters[i];
        size_t                   size = 0;
        const char *             token = lrnn_token_bytes(model, said[i], &size);
        const int                most = sizeof(l->said) - 1;
        snprintf(l->letter, sizeof(l->letter), "%s", task_symbol(task, symbols[i]));
        snprintf(l->answer, sizeof(l->answer), "%s",
                answers[i] < 0 ? "" : task_symbol(task, answers[i]));
        snprintf(l->said, sizeof(l->said), "%.*s", size < (size_t) most ? (int) size : most, token);
    }
    free(symbols);
    free(answers);
    free(said);
    return ok;
}

void sequence_free(struct sequence * s) {
    free(s->letters);
}

void sequence_print(FILE * out, const char * model, const struct sequence * s) {
    fprintf(out, "%s\n\n%10s  %-8s %-8s %-8s\n", model, "position", "letter", "answer", "model");
    for (int64_t i = 0; i < s->n; ++i) {
        const struct sequence_letter * l = &s->letters[i];
        const bool                     asked = l->answer[0] != '\0';
        const bool                     right = strcmp(l->answer, l->said) == 0;
        fprintf(out, "%10" PRId64 "  %-8s %-8s %s%s\n", i + 1, l->letter, asked ? l->answer : "-",
                asked ? l->said : "-", asked && !right ? "  wrong" : "");
    }
}

void sequence_json(struct json_writer * w, const struct sequence * s) {
    json_array(json_line(w, 6), "sequence");
    for (int64_t i = 0; i < s->n; ++i) {
        const struct sequence_letter * l = &s->letters[i];
        json_object(json_line(w, 8), NULL);
        json_string(w, "letter", l->letter);
        if (l->answer[0] != '\0') {
            json_string(w, "answer", l->answer);
            json_string(w, "model", l->said);
        }
        json_end(w);
    }
    json_end(json_line(w, 6));
}
