#pragma once

// What a program of lrnn returns. A script can tell a wrong command line from a bad file from a run
// that may be continued.
enum exit_code {
    EXIT_CODE_OK      = 0,
    EXIT_CODE_SYSTEM  = 1, // the machine refused: no memory, no such device
    EXIT_CODE_USAGE   = 2, // the command line
    EXIT_CODE_DATA    = 3, // an input other than the model
    EXIT_CODE_MODEL   = 4, // the model file
    EXIT_CODE_STOPPED = 5, // stopped, can be resumed
    EXIT_CODE_NUMBERS =
            6, // numbers that are not finite, or not what an independent computation says
};
