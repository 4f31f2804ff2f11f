#include "exit-code.h"

const char * const EXIT_CODE_TEXT[N_EXIT_CODES] = {
    [EXIT_CODE_OK]      = "done",
    [EXIT_CODE_SYSTEM]  = "system error (memory, disk, device)",
    [EXIT_CODE_USAGE]   = "usage error",
    [EXIT_CODE_DATA]    = "bad data",
    [EXIT_CODE_MODEL]   = "bad model",
    [EXIT_CODE_STOPPED] = "stopped, can be resumed",
    [EXIT_CODE_NUMBERS] = "non-finite or wrong results",
};
