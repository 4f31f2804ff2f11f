#pragma once

// The frame of a program: parses the command line, runs, checks stdout, reports errors.

#include "exit-code.h"
#include "memory.h"
#include "options.h"

#include <stdio.h>

// Parses the command line and calls run(args), unless the command line is wrong or has an option
// such as --help. Fails if the output of run cannot be written to stdout. Returns the exit code.
enum exit_code program_main(const struct program * program, int argc, char ** argv,
        enum exit_code (*run)(void * args), void * args);

// The name of the running program, for messages; "lrnn" before program_main.
const char * program_name(void);

// stderr, after what was printed to stdout: both may be the same file.
FILE * program_stderr(void);

// Prints "NAME: message" to stderr.
void program_say(const char * format, ...) __attribute__((format(printf, 1, 2)));

// The same, for an error that ends the program. Returns the code.
enum exit_code program_fail(enum exit_code code, const char * format, ...)
        __attribute__((format(printf, 2, 3)));

// Prints an error of the library that ends the program. Returns the code of its kind.
enum exit_code program_error(const struct lrnn_error * err);
