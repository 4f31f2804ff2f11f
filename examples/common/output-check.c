#include "output-check.h"

#include "lrnn.h"
#include "base/atomic-file.h"
#include "program.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_same_file(const struct stat * output, const char * input) {
    struct stat st;
    const int   found = strcmp(input, "-") == 0 ? fstat(STDIN_FILENO, &st) : stat(input, &st);
    return found == 0 && st.st_dev == output->st_dev && st.st_ino == output->st_ino;
}

enum exit_code output_check_inputs(
        const char * path, const char * const * inputs, int64_t n_inputs) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        return EXIT_CODE_OK; // a terminal or /dev/null may well be both
    }
    for (int64_t i = 0; i < n_inputs; ++i) {
        if (inputs[i] != NULL && is_same_file(&st, inputs[i])) {
            return program_fail(EXIT_CODE_USAGE,
                    "the output file %s is also an input (%s); expected another file", path,
                    inputs[i]);
        }
    }
    return EXIT_CODE_OK;
}

enum exit_code output_check(const char * path, const char * const * inputs, int64_t n_inputs) {
    struct atomic_file file;
    struct lrnn_error  err;

    if (path[0] == '\0') {
        return program_fail(EXIT_CODE_USAGE, "the name of the output file is empty");
    }
    const enum exit_code code = output_check_inputs(path, inputs, n_inputs);
    if (code != EXIT_CODE_OK) {
        return code;
    }
    if (!atomic_file_open(&file, path, &err)) {
        return program_fail(EXIT_CODE_SYSTEM, "%s", err.text);
    }
    atomic_file_cancel(&file);
    return EXIT_CODE_OK;
}
