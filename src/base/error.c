#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool error_set_args(
        struct lrnn_error * err, enum lrnn_error_kind kind, const char * fmt, va_list args) {
    if (err != NULL) {
        err->kind = kind;
        vsnprintf(err->text, sizeof(err->text), fmt, args);
    }
    return false;
}

bool error_set(struct lrnn_error * err, enum lrnn_error_kind kind, const char * fmt, ...) {
    va_list args;
    va_start(args, fmt);
    error_set_args(err, kind, fmt, args);
    va_end(args);
    return false;
}

bool error_prefix(struct lrnn_error * err, const char * fmt, ...) {
    if (err != NULL) {
        const struct lrnn_error why = *err;
        va_list                 args;
        va_start(args, fmt);
        vsnprintf(err->text, sizeof(err->text), fmt, args);
        va_end(args);
        const size_t n = strlen(err->text);
        snprintf(err->text + n, sizeof(err->text) - n, ": %s", why.text);
    }
    return false;
}

bool error_no_memory(struct lrnn_error * err, const char * fmt, ...) {
    if (err != NULL) {
        va_list args;
        va_start(args, fmt);
        err->kind = LRNN_ERROR_NO_MEMORY;
        const int n = snprintf(err->text, sizeof(err->text), "out of memory for ");
        vsnprintf(err->text + n, sizeof(err->text) - (size_t) n, fmt, args);
        va_end(args);
    }
    return false;
}

bool error_system(struct lrnn_error * err, const char * fmt, ...) {
    const int why = errno;
    if (err != NULL) {
        va_list args;
        va_start(args, fmt);
        err->kind = why == ENOENT   ? LRNN_ERROR_NOT_FOUND
                    : why == ENOMEM ? LRNN_ERROR_NO_MEMORY
                                    : LRNN_ERROR_SYSTEM;
        vsnprintf(err->text, sizeof(err->text), fmt, args);
        va_end(args);
        const size_t n = strlen(err->text);
        snprintf(err->text + n, sizeof(err->text) - n, ": %s", strerror(why));
    }
    return false;
}
