#pragma once

// SHA-256 hashes of files, remembered from run to run: a large model takes longer to read than to
// load. A hash is kept in ~/.cache/lrnn/hashes (or $XDG_CACHE_HOME/lrnn/hashes) and used again as
// long as the file has the same path, size, inode and time of modification.

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>

// Sets hex to the hash of a file. A cache that cannot be read or written is ignored.
// - stop: called now and then, true stops; may be NULL
bool hash_of_file(const char * path, bool (*stop)(void), char hex[65], struct lrnn_error * err);
