#include "eval/data/data-files.h"

#include "base/error.h"
#include "eval/data/folder-walk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// −1: unknown, because it is a pipe or device
static int64_t file_bytes(const struct stat * info) {
    return S_ISREG(info->st_mode) ? (int64_t) info->st_size : -1;
}

static bool no_memory(const char * path, struct lrnn_error * err) {
    return error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", path);
}

static bool add_file(struct data_files * f, const char * path, int64_t bytes, bool in_folder,
        struct lrnn_error * err) {
    if (f->n == f->capacity) {
        const int64_t      capacity = f->capacity > 0 ? 2 * f->capacity : 64;
        struct data_file * files    = realloc(f->files, (size_t) capacity * sizeof(*files));
        if (files == NULL) {
            return no_memory(path, err);
        }
        f->files    = files;
        f->capacity = capacity;
    }
    char * copy = malloc(strlen(path) + 1);
    if (copy == NULL) {
        return no_memory(path, err);
    }
    strcpy(copy, path);
    f->files[f->n++] = (struct data_file) { copy, in_folder };
    f->bytes         = f->bytes < 0 || bytes < 0 ? -1 : f->bytes + bytes;
    return true;
}

static bool add_found(
        void * user, const char * path, const struct stat * info, struct lrnn_error * err) {
    if (info == NULL) {
        return error_set(err, LRNN_ERROR_SYSTEM, "%s: %s", path, strerror(errno));
    }
    return add_file(user, path, file_bytes(info), true, err);
}

// A path given by name.
static bool add_path(struct data_files * f, const char * path, struct lrnn_error * err) {
    struct stat info;
    if (strcmp(path, "-") == 0) {
        return add_file(f, path, -1, false, err);
    }
    if (stat(path, &info) != 0) {
        return error_set(err, LRNN_ERROR_SYSTEM, "%s: %s", path, strerror(errno));
    }
    return S_ISDIR(info.st_mode) ? folder_walk(path, FOLDER_BYTEWISE, add_found, f, err)
                                 : add_file(f, path, file_bytes(&info), false, err);
}

bool data_files_find(
        struct data_files * f, const char * const * paths, int n_paths, struct lrnn_error * err) {
    *f = (struct data_files) { 0 };
    for (int i = 0; i < n_paths; ++i) {
        const int64_t before = f->n;
        bool          ok     = paths[i][0] != '\0';
        if (!ok) {
            error_set(err, LRNN_ERROR_BAD_FILE, "a data path is empty");
        }
        ok = ok && add_path(f, paths[i], err);
        if (ok && f->n == before) {
            error_set(err, LRNN_ERROR_BAD_FILE, "%s: the folder is empty", paths[i]);
            ok = false;
        }
        if (!ok) {
            data_files_free(f);
            return false;
        }
    }
    return true;
}

void data_files_free(struct data_files * f) {
    for (int64_t i = 0; i < f->n; ++i) {
        free(f->files[i].path);
    }
    free(f->files);
    *f = (struct data_files) { 0 };
}
