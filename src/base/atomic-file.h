#pragma once

// A file that is written under a temporary name and renamed when it is complete, so that a failure
// leaves the previous file intact.
//
// The temporary name of "out" is "out.PID.tmp", or "out.PID-N.tmp" while another thread of this
// process writes the same file. A process that is killed may leave one behind; the
// next process that writes the same file deletes it.

#include "lrnn.h"

#include <stdio.h>

struct temporary;

struct atomic_file {
    FILE *             file;
    char *             path;
    struct temporary * temporary;
};

// False, with an error message, if `path` names a file whose content does not begin with `magic`.
// An empty file may be replaced. For formats whose files replace only files of their own kind.
bool atomic_file_may_replace(
        const char * path, const char * magic, const char * kind, struct lrnn_error * err);

// Fails if the path is empty or names a directory, a device or a pipe.
bool atomic_file_open(struct atomic_file * f, const char * path, struct lrnn_error * err);
bool atomic_file_write(
        struct atomic_file * f, const void * data, size_t size, struct lrnn_error * err);

// Renames the file to its path. The file is closed in any case; on failure it is deleted.
bool atomic_file_commit(struct atomic_file * f, struct lrnn_error * err);

// Deletes the temporary file. Does nothing after atomic_file_commit.
void atomic_file_cancel(struct atomic_file * f);

// Deletes the temporary files of all open files of this process. After this call no file can be
// opened or committed. For signal handlers that end the process: it is async-signal-safe.
void atomic_file_remove_temporaries(void);
