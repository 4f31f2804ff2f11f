#include "program.h"

#include "lrnn.h"

#include "interrupt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char * name = "lrnn"; // one program per process

const char * program_name(void) {
    return name;
}

FILE * program_stderr(void) {
    fflush(stdout); // program_main reports an error
    return stderr;
}

static void say(const char * format, va_list args) {
    FILE * out = program_stderr();
    fprintf(out, "%s: ", name);
    vfprintf(out, format, args);
    fprintf(out, "\n");
}

void program_say(const char * format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

enum exit_code program_fail(enum exit_code code, const char * format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return code;
}

enum exit_code program_error(const struct lrnn_error * err) {
    return program_fail(exit_code_of(err->kind), "%s", err->text);
}

enum exit_code program_main(const struct program * program, int argc, char ** argv,
        enum exit_code (*run)(void * args), void * args) {
    struct lrnn_error err;

    name = program->name;
    interrupt_begin();
    switch (options_parse(program, argc, argv, &err)) {
        case OPTIONS_OK: break;
        case OPTIONS_DONE: return EXIT_CODE_OK;
        case OPTIONS_ERROR: return program_fail(EXIT_CODE_USAGE, "%s", err.text);
    }
    const enum exit_code code = run(args);
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return code;
    }
    program_say("cannot write to stdout: %s", errno != 0 ? strerror(errno) : "write error");
    return code != EXIT_CODE_OK ? code : EXIT_CODE_SYSTEM;
}
