#pragma once

#include "exit-code.h"
#include "lrnn.h"

// Asks a model of a regular expression whether it matches the lines of a text, each as a whole.
// Prints "yes" or "no" for each. EXIT_CODE_DATA: some line does not match.
enum exit_code match_lines(const struct lrnn_model * model, struct lrnn_session * session,
        const char * text, size_t size);
