#pragma once

// Errors: see struct lrnn_error. A function that can fail takes `err`, which may be NULL.

#include "lrnn.h"

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#    define ERROR_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#    define ERROR_PRINTF(fmt, first)
#endif

// Sets kind and text and returns false: "return error_set(err, LRNN_ERROR_BAD_FILE, ...);".
bool error_set(struct lrnn_error * err, enum lrnn_error_kind kind, const char * fmt, ...)
        ERROR_PRINTF(3, 4);

// The same for the usual kinds.
#define error_bad_input(err, ...) error_set(err, LRNN_ERROR_BAD_INPUT, __VA_ARGS__)
#define error_bad_file(err, ...)  error_set(err, LRNN_ERROR_BAD_FILE, __VA_ARGS__)
#define error_bad_model(err, ...) error_set(err, LRNN_ERROR_BAD_MODEL, __VA_ARGS__)

bool error_set_args(
        struct lrnn_error * err, enum lrnn_error_kind kind, const char * fmt, va_list args);

// Puts "<prefix>: " before the text of an error that is set. Returns false.
bool error_prefix(struct lrnn_error * err, const char * fmt, ...) ERROR_PRINTF(2, 3);

// Sets "out of memory for <what>" and returns false.
bool error_no_memory(struct lrnn_error * err, const char * fmt, ...) ERROR_PRINTF(2, 3);

// Sets "<what>: <why>" after a call of the system failed, with the reason in errno: not found, out
// of memory, or a system error. Returns false.
bool error_system(struct lrnn_error * err, const char * fmt, ...) ERROR_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
