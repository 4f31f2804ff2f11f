#pragma once

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

// Visits the files below a folder, without names that begin with '.'. Links are followed. A folder
// that several links lead to is visited once; a link to a folder that contains it is an error.

enum folder_order {
    FOLDER_BYTEWISE,
    FOLDER_NATURAL, // numbers by value: step20000 before step100000
};

// Called for each file. Return false and set err to stop.
// - info: NULL: the file cannot be examined, e.g. a dangling link; errno says why
typedef bool (*folder_visit)(
        void * user, const char * path, const struct stat * info, struct lrnn_error * err);

bool folder_walk(const char * folder, enum folder_order order, folder_visit visit, void * user,
        struct lrnn_error * err);

// Compares names; runs of digits count as numbers. 0: equal bytes.
int compare_natural(const char * a, const char * b);

// The data files of a list of paths. A folder contributes the files below it, sorted bytewise
// folder by folder, without names that begin with '.'.

struct data_file {
    char * path;
    bool   in_folder; // found in a folder, not given by name
};

struct data_files {
    struct data_file * files;
    int64_t            n;
    size_t             capacity;
    int64_t            bytes; // of all files; −1: unknown, because of a pipe
};

bool data_files_find(
        struct data_files * f, const char * const * paths, int n_paths, struct lrnn_error * err);
void data_files_free(struct data_files * f);
