#pragma once

// Error messages. A function that can fail takes `err` and `err_size` and returns a status.

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Writes a message to `err` and returns false: "return error_set(err, err_size, ...);".
bool error_set(char * err, size_t err_size, const char * fmt, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 3, 4)))
#endif
        ;

#ifdef __cplusplus
}
#endif
