#include "eval/data/data-files.h"

#include "base/buffer.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 32 }; // of folders

struct folder_id {
    dev_t device;
    ino_t inode;
    bool  is_open; // its files are being visited
};

struct walk {
    enum folder_order   order;
    folder_visit        visit;
    void *              user;
    struct folder_id *  seen;
    size_t              n_seen, capacity;
    struct lrnn_error * err;
};

//
// Order
//

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

int compare_natural(const char * a, const char * b) {
    const char * p = a;
    const char * q = b;
    while (*p != '\0' && *q != '\0') {
        if (!is_digit(*p) || !is_digit(*q)) {
            if (*p != *q) {
                break;
            }
            p++;
            q++;
            continue;
        }
        p += strspn(p, "0");
        q += strspn(q, "0");
        const size_t n = strspn(p, "0123456789"), m = strspn(q, "0123456789");
        const int    c = n != m ? (n > m) - (n < m) : strncmp(p, q, n);
        if (c != 0) {
            return c;
        }
        p += n;
        q += m;
    }
    return *p != *q ? ((unsigned char) *p > (unsigned char) *q) -
                              ((unsigned char) *p < (unsigned char) *q)
                    : strcmp(a, b); // 7 and 07
}

static int compare_names_bytewise(const void * a, const void * b) {
    return strcmp(*(char * const *) a, *(char * const *) b);
}

static int compare_names_natural(const void * a, const void * b) {
    return compare_natural(*(char * const *) a, *(char * const *) b);
}

//
// Folders
//

static void free_names(char ** names, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        free(names[i]);
    }
    free(names);
}

static bool read_names(
        const struct walk * w, DIR * dir, const char * folder, char *** names, size_t * n) {
    size_t capacity = 0;
    errno = 0;
    for (struct dirent * e; (e = readdir(dir)) != NULL; errno = 0) {
        if (e->d_name[0] == '.') {
            continue;
        }
        const size_t size = strlen(folder) + strlen(e->d_name) + 2;
        char *       path = malloc(size);
        if (path == NULL || !array_grow(names, &capacity, *n + 1, sizeof(**names))) {
            free(path);
            return error_no_memory(w->err, "the files of %s", folder);
        }
        const bool slash = folder[strlen(folder) - 1] == '/';
        snprintf(path, size, "%s%s%s", folder, slash ? "" : "/", e->d_name);
        (*names)[(*n)++] = path;
    }
    return errno == 0 || error_system(w->err, "%s: cannot read the folder", folder);
}

// The sorted paths of the files in a folder.
static bool list_folder(const struct walk * w, const char * folder, char *** names, size_t * n) {
    *names = NULL;
    *n = 0;
    DIR * dir = opendir(folder);
    if (dir == NULL) {
        return error_system(w->err, "%s: cannot open the folder", folder);
    }
    const bool ok = read_names(w, dir, folder, names, n);
    closedir(dir);
    if (!ok) {
        free_names(*names, *n);
        return false;
    }
    if (*n > 1) {
        qsort(*names, *n, sizeof(**names),
                w->order == FOLDER_NATURAL ? compare_names_natural : compare_names_bytewise);
    }
    return true;
}

static bool add_seen(struct walk * w, const char * path, const struct stat * info) {
    if (!array_grow(&w->seen, &w->capacity, w->n_seen + 1, sizeof(*w->seen))) {
        return error_no_memory(w->err, "the folder %s", path);
    }
    w->seen[w->n_seen++] = (struct folder_id) { info->st_dev, info->st_ino, true };
    return true;
}

// - depth: number of folders around this one
static bool walk_folder(struct walk * w, const char * folder, const struct stat * info, int depth) {
    for (size_t i = 0; i < w->n_seen; ++i) {
        if (w->seen[i].device == info->st_dev && w->seen[i].inode == info->st_ino) {
            return !w->seen[i].is_open ||
                   error_bad_file(w->err,
                           "%s: is a loop of links: it leads to a folder that contains it", folder);
        }
    }
    if (depth == MAX_DEPTH) {
        return error_bad_file(w->err, "%s: more than %d nested folders", folder, MAX_DEPTH);
    }
    const size_t self = w->n_seen;
    char **      names;
    size_t       n;
    if (!add_seen(w, folder, info) || !list_folder(w, folder, &names, &n)) {
        return false;
    }
    bool ok = true;
    for (size_t i = 0; i < n && ok; ++i) {
        struct stat st;
        const bool  found = stat(names[i], &st) == 0;
        if (found && S_ISDIR(st.st_mode)) {
            ok = walk_folder(w, names[i], &st, depth + 1);
        } else {
            ok = w->visit(w->user, names[i], found ? &st : NULL, w->err);
        }
    }
    free_names(names, n);
    w->seen[self].is_open = false;
    return ok;
}

bool folder_walk(const char * folder, enum folder_order order, folder_visit visit, void * user,
        struct lrnn_error * err) {
    struct walk w = { .order = order, .visit = visit, .user = user, .err = err };
    struct stat info;
    const bool  ok = stat(folder, &info) == 0 ? walk_folder(&w, folder, &info, 0)
                                              : error_system(err, "%s", folder);
    free(w.seen);
    return ok;
}

//
// Data files
//

// −1: unknown, because it is a pipe or device
static int64_t file_bytes(const struct stat * info) {
    return S_ISREG(info->st_mode) ? (int64_t) info->st_size : -1;
}

static bool add_file(struct data_files * f, const char * path, int64_t bytes, bool in_folder,
        struct lrnn_error * err) {
    char * copy = malloc(strlen(path) + 1);
    if (copy == NULL ||
            !array_grow(&f->files, &f->capacity, (size_t) f->n + 1, sizeof(*f->files))) {
        free(copy);
        return error_no_memory(err, "the path %s", path);
    }
    f->files[f->n++] = (struct data_file) { strcpy(copy, path), in_folder };
    f->bytes = f->bytes < 0 || bytes < 0 ? -1 : f->bytes + bytes;
    return true;
}

static bool add_found(
        void * user, const char * path, const struct stat * info, struct lrnn_error * err) {
    if (info == NULL) {
        return error_system(err, "%s", path);
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
        return error_system(err, "%s", path);
    }
    return S_ISDIR(info.st_mode) ? folder_walk(path, FOLDER_BYTEWISE, add_found, f, err)
                                 : add_file(f, path, file_bytes(&info), false, err);
}

bool data_files_find(
        struct data_files * f, const char * const * paths, int n_paths, struct lrnn_error * err) {
    *f = (struct data_files) { 0 };
    for (int i = 0; i < n_paths; ++i) {
        const int64_t before = f->n;
        bool          ok;
        if (paths[i][0] != '\0') {
            ok = add_path(f, paths[i], err);
        } else {
            ok = error_set(err, LRNN_ERROR_NOT_FOUND, "a data path is empty");
        }
        if (!ok || (f->n == before && !error_set(err, LRNN_ERROR_NOT_FOUND,
                                              "%s: the folder is empty", paths[i]))) {
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
