#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

bool error_set(char * err, size_t err_size, const char * fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(err, err_size, fmt, args);
    va_end(args);
    return false;
}
