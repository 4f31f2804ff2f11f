#include "eval/report/report-model.h"

#include "base/error.h"
#include "eval/data/data-files.h"
#include "eval/scores/score-file.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Score files by path, with their headers.
struct file {
    const char *  path;
    struct scores header; // only meta
    int           run;    // −1: unknown
};

struct file_list {
    int            n;
    size_t         capacity;
    struct file *  v;
    struct arena * arena; // of the paths
};

static void files_free(struct file_list * list) {
    for (int i = 0; i < list->n; ++i) {
        scores_free(&list->v[i].header);
    }
    free(list->v);
}

static bool files_add(struct file_list * list, const char * path, struct lrnn_error * err) {
    for (int i = 0; i < list->n; ++i) {
        if (strcmp(list->v[i].path, path) == 0) { // given twice
            return true;
        }
    }
    struct file f = { .path = program_print_in(list->arena, "%s", path), .run = -1 };
    if (!scores_read_meta(f.path, &f.header, err)) {
        return false;
    }
    program_grow(&list->v, &list->capacity, (size_t) list->n + 1, sizeof(*list->v));
    list->v[list->n++] = f;
    return true;
}

static bool has_suffix(const char * text, const char * suffix) {
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

// Score files in a folder, and their number.
struct search {
    struct file_list * list;
    int                n_found;
};

static bool add_found(
        void * user, const char * path, const struct stat * info, struct lrnn_error * err) {
    struct search * search = user;
    if (info == NULL || !has_suffix(path, ".nll")) {
        return true;
    }
    search->n_found++;
    return files_add(search->list, path, err);
}

static bool files_find(
        struct file_list * list, const char * const * paths, int n_paths, struct lrnn_error * err) {
    for (int i = 0; i < n_paths; ++i) {
        struct stat   st;
        struct search search = { list, 0 };
        if (stat(paths[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            if (!folder_walk(paths[i], FOLDER_NATURAL, add_found, &search, err)) {
                return false;
            }
            if (search.n_found == 0) {
                return error_bad_file(err, "%s: no score files (*.nll) in it", paths[i]);
            }
        } else if (!files_add(list, paths[i], err)) {
            return false;
        }
    }
    return true;
}

// Assigns a run to every file, in the order of their first files. Returns the number of runs.
static int files_group(struct file_list * list) {
    int n_runs = 0;
    for (int i = 0; i < list->n; ++i) {
        for (int j = 0; j < i && list->v[i].run < 0; ++j) {
            char a[64], b[64];
            if (score_meta_difference(
                        &list->v[i].header.meta, &list->v[j].header.meta, false, a, b) == NULL) {
                list->v[i].run = list->v[j].run;
            }
        }
        if (list->v[i].run < 0) {
            list->v[i].run = n_runs++;
        }
    }
    return n_runs;
}

static bool read_runs(
        struct report * r, const struct file_list * list, bool partial, struct lrnn_error * err) {
    const char ** paths = program_alloc_in(r->arena, (size_t) list->n, sizeof(*paths));
    r->files = program_alloc_in(r->arena, (size_t) list->n, sizeof(*r->files));
    r->runs = program_alloc_in(r->arena, (size_t) list->n, sizeof(*r->runs));
    for (int i = 0; i < list->n; ++i) {
        r->files[r->n_files++] = list->v[i].path;
    }
    for (int run = 0; run < r->n_runs; ++run) {
        int n = 0;
        for (int i = 0; i < list->n; ++i) {
            if (list->v[i].run == run) {
                paths[n++] = list->v[i].path;
            }
        }
        if (!scores_read(paths, n, partial, &r->runs[run].scores, err)) {
            return false;
        }
        if (r->runs[run].scores.n_windows == 0) {
            return error_bad_file(err, "%s: no finished window in it yet", paths[0]);
        }
    }
    return true;
}

bool report_find_runs(struct report * r, const char * const * paths, int n_paths, bool partial,
        struct lrnn_error * err) {
    struct file_list list = { .arena = r->arena };
    bool             ok = files_find(&list, paths, n_paths, err);
    if (ok) {
        r->n_runs = files_group(&list);
        ok = read_runs(r, &list, partial, err);
    }
    files_free(&list);
    return ok;
}
