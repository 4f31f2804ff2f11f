#pragma once

// Output files, the same rules for every program: an output never replaces an input, a device, a
// pipe or a folder. Programs check before they begin to work.

#include "exit-code.h"

#include <stdint.h>

// Whether `path` and one of the inputs are the same file, also through links. Prints an error if
// so. The input "-" is stdin; NULL is none.
enum exit_code output_check_inputs(
        const char * path, const char * const * inputs, int64_t n_inputs);

// The same, and whether the file can be written.
enum exit_code output_check(const char * path, const char * const * inputs, int64_t n_inputs);
