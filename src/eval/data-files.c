#include "eval/data-files.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 32 }; // of folders; ends loops of links

static bool no_memory(const char * path, char * err, size_t err_size) {
    return error_set(err, err_size, "%s: out of memory", path);
}

static bool add_file(struct data_files * f, const char * path, int64_t bytes, bool in_folder,
        char * err, size_t err_size) {
    if (f->n == f->capacity) {
        const int64_t      capacity = f->capacity > 0 ? 2 * f->capacity : 64;
        struct data_file * files    = realloc(f->files, (size_t) capacity * sizeof(*files));
        if (files == NULL) {
            return no_memory(path, err, err_size);
        }
        f->files    = files;
        f->capacity = capacity;
    }
    char * copy = malloc(strlen(path) + 1);
    if (copy == NULL) {
        return no_memory(path, err, err_size);
    }
    strcpy(copy, path);
    f->files[f->n++] = (struct data_file) { copy, in_folder };
    f->bytes         = f->bytes < 0 || bytes < 0 ? -1 : f->bytes + bytes;
    return true;
}

static int compare_names(const void * a, const void * b) {
    return strcmp(*(char * const *) a, *(char * const *) b);
}

static void free_names(char ** names, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        free(names[i]);
    }
    free(names);
}

// The sorted paths of the files in a folder.
static bool list_folder(
        const char * folder, char *** names, size_t * n, char * err, size_t err_size) {
    *names    = NULL;
    *n        = 0;
    DIR * dir = opendir(folder);
    if (dir == NULL) {
        return error_set(err, err_size, "%s: cannot open the folder: %s", folder, strerror(errno));
    }
    size_t capacity = 0;
    bool   ok       = true;
    errno           = 0;
    for (struct dirent * e; ok && (e = readdir(dir)) != NULL; errno = 0) {
        if (e->d_name[0] == '.') {
            continue;
        }
        if (*n == capacity) {
            capacity     = capacity > 0 ? 2 * capacity : 64;
            char ** more = realloc(*names, capacity * sizeof(**names));
            ok           = more != NULL;
            *names       = ok ? more : *names;
        }
        const size_t size = strlen(folder) + strlen(e->d_name) + 2;
        char *       path = ok ? malloc(size) : NULL;
        ok                = path != NULL;
        if (ok) {
            const bool slash = folder[strlen(folder) - 1] == '/';
            snprintf(path, size, "%s%s%s", folder, slash ? "" : "/", e->d_name);
            (*names)[(*n)++] = path;
        } else {
            no_memory(folder, err, err_size);
        }
    }
    if (ok && errno != 0) {
        snprintf(err, err_size, "%s: cannot read the folder: %s", folder, strerror(errno));
        ok = false;
    }
    closedir(dir);
    if (!ok) {
        free_names(*names, *n);
        return false;
    }
    if (*n > 1) {
        qsort(*names, *n, sizeof(**names), compare_names);
    }
    return true;
}

// - depth: number of folders around the path; 0: given by name
static bool add_path(
        struct data_files * f, const char * path, int depth, char * err, size_t err_size) {
    struct stat info;
    if (depth == 0 && strcmp(path, "-") == 0) {
        return add_file(f, path, -1, false, err, err_size);
    }
    if (stat(path, &info) != 0) {
        return error_set(err, err_size, "%s: %s", path, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return add_file(f, path, S_ISREG(info.st_mode) ? (int64_t) info.st_size : -1, depth > 0,
                err, err_size);
    }
    if (depth == MAX_DEPTH) {
        return error_set(err, err_size,
                "%s: more than %d nested folders; is there a loop of links?", path, MAX_DEPTH);
    }
    char ** names;
    size_t  n;
    if (!list_folder(path, &names, &n, err, err_size)) {
        return false;
    }
    bool ok = true;
    for (size_t i = 0; i < n && ok; ++i) {
        ok = add_path(f, names[i], depth + 1, err, err_size);
    }
    free_names(names, n);
    return ok;
}

bool data_files_find(struct data_files * f, const char * const * paths, int n_paths, char * err,
        size_t err_size) {
    *f = (struct data_files) { 0 };
    for (int i = 0; i < n_paths; ++i) {
        const int64_t before = f->n;
        bool          ok     = paths[i][0] != '\0';
        if (!ok) {
            snprintf(err, err_size, "a data path is empty");
        }
        ok = ok && add_path(f, paths[i], 0, err, err_size);
        if (ok && f->n == before) {
            snprintf(err, err_size, "%s: the folder is empty", paths[i]);
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
