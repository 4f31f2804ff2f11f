#pragma once

// A whole file in memory.

#include <stdbool.h>
#include <stddef.h>

// *data is made with malloc, the caller frees it. A path of "-" is stdin.
bool read_file(const char * path, char ** data, size_t * size, char * err, size_t err_size);
