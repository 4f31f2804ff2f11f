#pragma once

// A file that is written under another name and takes its place when it is whole: what was there
// before is lost to nothing but success.

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct atomic_file {
    FILE * file;
    char * path;
    char * temporary;
};

bool atomic_file_open(struct atomic_file * f, const char * path, char * err, size_t err_size);
bool atomic_file_write(
        struct atomic_file * f, const void * data, size_t size, char * err, size_t err_size);
bool atomic_file_commit(struct atomic_file * f, char * err,
        size_t err_size);                        // closes it, whether it succeeds or not
void atomic_file_cancel(struct atomic_file * f); // the same without a result; harmless after commit
