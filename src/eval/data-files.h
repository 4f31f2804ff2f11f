#pragma once

// The files that a list of paths stands for. A folder stands for the files below it, in the order
// of their names, byte by byte, folder by folder; names that begin with '.' are left out.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct data_file {
    char * path;
    bool   in_folder; // found in a folder, not named
};

struct data_files {
    struct data_file * files;
    int64_t            n;
    int64_t            capacity;
    int64_t            bytes; // of all; −1 if one has no size, such as a pipe
};

bool data_files_find(struct data_files * f, const char * const * paths, int n_paths, char * err,
        size_t err_size);
void data_files_free(struct data_files * f);
