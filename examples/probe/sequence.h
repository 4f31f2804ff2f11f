#pragma once

// What a model says after each letter of a given sequence.

#include "eval/tasks/task.h"
#include "json-write.h"
#include "lrnn.h"

#include <stdio.h>

enum { SEQUENCE_NAME_MAX = 64 };

// Names of tokens; an empty one: none.
struct sequence_letter {
    char letter[SEQUENCE_NAME_MAX];
    char answer[SEQUENCE_NAME_MAX]; // the true one
    char said[SEQUENCE_NAME_MAX];   // by the model
};

struct sequence {
    int64_t                  n; // 0: not asked
    struct sequence_letter * letters;
};

// Asks the model. A word of `text` is a letter. A sequence that the task cannot have is an error of
// the kind bad input.
bool sequence_ask(struct lrnn_model * model, const struct task * task,
        const struct lrnn_session_params * session, const char * text, struct sequence * s,
        struct lrnn_error * err);
void sequence_free(struct sequence * s);

void sequence_print(FILE * out, const char * model, const struct sequence * s);
void sequence_json(struct json_writer * w, const struct sequence * s);
