#pragma once

// The data files of a list of paths. A folder contributes the files below it, sorted bytewise
// folder by folder, without names that begin with '.' (see folder-walk.h).

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct data_file {
    char * path;
    bool   in_folder; // found in a folder, not given by name
};

struct data_files {
    struct data_file * files;
    int64_t            n;
    int64_t            capacity;
    int64_t            bytes; // of all files; −1: unknown, because of a pipe
};

bool data_files_find(
        struct data_files * f, const char * const * paths, int n_paths, struct lrnn_error * err);
void data_files_free(struct data_files * f);
