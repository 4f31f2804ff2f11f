#include "exit-code.h"

const char * const EXIT_CODE_TEXT[N_EXIT_CODES] = {
    [EXIT_CODE_OK] = "done",
    [EXIT_CODE_SYSTEM] = "system error (memory, disk, device)",
    [EXIT_CODE_USAGE] = "usage error",
    [EXIT_CODE_DATA] = "bad data",
    [EXIT_CODE_MODEL] = "bad model",
    [EXIT_CODE_STOPPED] = "stopped, can be resumed",
    [EXIT_CODE_NOT_FINITE] = "non-finite or wrong results",
};

static const enum exit_code OF_KIND[LRNN_N_ERRORS] = {
    [LRNN_ERROR_NONE] = EXIT_CODE_OK,
    [LRNN_ERROR_BAD_INPUT] = EXIT_CODE_USAGE,
    [LRNN_ERROR_BAD_MODEL] = EXIT_CODE_MODEL,
    [LRNN_ERROR_BAD_FILE] = EXIT_CODE_DATA,
    [LRNN_ERROR_NOT_FOUND] = EXIT_CODE_DATA,
    [LRNN_ERROR_NO_MEMORY] = EXIT_CODE_SYSTEM,
    [LRNN_ERROR_SYSTEM] = EXIT_CODE_SYSTEM,
    [LRNN_ERROR_DEVICE] = EXIT_CODE_SYSTEM,
    [LRNN_ERROR_CANCELLED] = EXIT_CODE_STOPPED,
    [LRNN_ERROR_NOT_FINITE] = EXIT_CODE_NOT_FINITE,
    [LRNN_ERROR_INTERNAL] = EXIT_CODE_SYSTEM,
};

enum exit_code exit_code_of(enum lrnn_error_kind kind) {
    return OF_KIND[kind];
}
