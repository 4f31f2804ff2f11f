#pragma once

// The bytes of a file or of standard input, decompressed as they are read. gzip and zstd are told
// by their first bytes, never by a name; a file may be several gzip members or zstd frames, one
// after the other, and zstd's windows may be as large as the format allows.
//
// A file that ends inside a member or frame, or is damaged, gives what came before and then an
// error with the byte of the file.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct byte_source;

struct byte_source * byte_source_open(
        const char * path, char * err, size_t err_size); // "-": standard input
void byte_source_free(struct byte_source * s);

// Reads up to size bytes; *n == 0: the end.
bool byte_source_read(
        struct byte_source * s, void * out, size_t size, size_t * n, char * err, size_t err_size);

// Bytes of the file, compressed as it is, that were used so far.
int64_t byte_source_position(const struct byte_source * s);
