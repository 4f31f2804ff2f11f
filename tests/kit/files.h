#pragma once

// Files of the tests. No test can continue without its files: if a file cannot be read or written,
// the program prints a message and ends.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The result has a NUL byte after its end. The caller frees it.
uint8_t * test_read_file(const char * path, size_t * size);
void test_write_file(const char * path, const void * data, size_t size);

// Writes to `path` the name of a file in the working folder that no other process uses:
// "test-x.gguf" becomes "test-x-4711.gguf". Returns `path`.
const char * test_own_path(char * path, size_t size, const char * name);

bool test_same_files(const char * a, const char * b);

#ifdef __cplusplus
}
#endif
