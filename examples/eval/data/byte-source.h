#pragma once

// The bytes of a file or of standard input, decompressed. The first bytes tell gzip and zstd, never
// the name. A file may consist of several gzip members or zstd frames; zstd windows may have any
// size that the format allows.
//
// A damaged or truncated file gives the bytes before the damage, then an error with the offset in
// the file.

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct byte_source;

// - path: "-" for standard input
struct byte_source * byte_source_open(const char * path, struct lrnn_error * err);
void byte_source_free(struct byte_source * s);

// Reads up to size bytes. *n == 0: end of file.
bool byte_source_read(
        struct byte_source * s, void * out, size_t size, size_t * n, struct lrnn_error * err);

// The number of bytes of the (compressed) file used so far.
int64_t byte_source_position(const struct byte_source * s);
