#pragma once

// Exit codes of all programs. Scripts can tell a wrong command line from a bad file and from a run
// that can be resumed. --help and the man pages print the texts of exit-code.c.
enum exit_code {
    EXIT_CODE_OK,
    EXIT_CODE_SYSTEM,
    EXIT_CODE_USAGE,
    EXIT_CODE_DATA, // an input other than the model
    EXIT_CODE_MODEL,
    EXIT_CODE_STOPPED,
    EXIT_CODE_NUMBERS,
    N_EXIT_CODES,
};

extern const char * const EXIT_CODE_TEXT[N_EXIT_CODES];
