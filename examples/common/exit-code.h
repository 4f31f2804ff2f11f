#pragma once

#include "lrnn.h"

// Exit codes of all programs. Scripts can tell a wrong command line from a bad file and from a run
// that can be resumed. --help and the man pages print the texts of exit-code.c.
enum exit_code {
    EXIT_CODE_OK,
    EXIT_CODE_SYSTEM,
    EXIT_CODE_USAGE,
    EXIT_CODE_DATA, // an input other than the model
    EXIT_CODE_MODEL,
    EXIT_CODE_STOPPED,
    EXIT_CODE_NOT_FINITE,
    N_EXIT_CODES,
};

extern const char * const EXIT_CODE_TEXT[N_EXIT_CODES];

// The code of a program that ends with an error of this kind.
enum exit_code exit_code_of(enum lrnn_error_kind kind);
