#include "named-states.h"

#include "base/error.h"
#include "reply.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".state"

enum { PATH_SIZE = 4096 };

static bool path_of(
        char path[PATH_SIZE], const char * dir, const char * name, struct lrnn_error * err) {
    const int n = snprintf(path, PATH_SIZE, "%s/%s" SUFFIX, dir, name);
    return (n >= 0 && n < PATH_SIZE) ||
           error_bad_input(err, "the path of state '%s' is too long", name);
}

// Returns false.
static bool hide(const char * path, struct lrnn_error * err) {
    error_hide_folder(err, path);
    return false;
}

bool named_state_save(const char * dir, const char * name, const struct lrnn_model_info * info,
        const struct state_file * state, struct lrnn_error * err) {
    char path[PATH_SIZE];
    return path_of(path, dir, name, err) &&
           (state_file_write(state, path, info, err) || hide(path, err));
}

bool named_state_load(const char * dir, const char * name, struct lrnn_session * session,
        struct state_file * state, struct lrnn_error * err) {
    char path[PATH_SIZE];
    *state = (struct state_file) { 0 };
    return path_of(path, dir, name, err) &&
           (state_file_read(state, path, session, err) || hide(path, err));
}

bool named_state_delete(const char * dir, const char * name, struct lrnn_error * err) {
    char path[PATH_SIZE];
    if (!path_of(path, dir, name, err)) {
        return false;
    }
    return unlink(path) == 0 ||
           error_set(err, errno == ENOENT ? LRNN_ERROR_NOT_FOUND : LRNN_ERROR_SYSTEM,
                   "state '%s': %s", name, strerror(errno));
}

//
// The list
//

static int by_name(const void * a, const void * b) {
    return strcmp(((const struct state_entry *) a)->name, ((const struct state_entry *) b)->name);
}

// Describes a file; false if its name is not that of a state.
static bool describe(const char * dir, const char * file_name, struct lrnn_session * session,
        struct state_entry * entry) {
    const size_t size = strlen(file_name), suffix = strlen(SUFFIX);
    char         path[PATH_SIZE];
    struct stat  st;
    if (size <= suffix || strcmp(file_name + size - suffix, SUFFIX) != 0 ||
            !state_name_is_valid((struct slice) { file_name, size - suffix })) {
        return false;
    }
    *entry = (struct state_entry) { .n_tokens = -1 };
    memcpy(entry->name, file_name, size - suffix);
    if (path_of(path, dir, entry->name, NULL)) {
        entry->size = stat(path, &st) == 0 ? (int64_t) st.st_size : 0;
        entry->n_tokens = state_file_count_tokens(path, session, NULL);
    }
    return true;
}

bool named_state_list(const char * dir, struct lrnn_session * session, struct state_entry ** list,
        int64_t * n, struct lrnn_error * err) {
    DIR * folder = opendir(dir);
    *list = NULL;
    *n = 0;
    if (folder == NULL) {
        return error_set(err, LRNN_ERROR_SYSTEM, "the folder of states: %s", strerror(errno));
    }
    for (struct dirent * e; (e = readdir(folder)) != NULL;) {
        struct state_entry entry;
        if (!describe(dir, e->d_name, session, &entry)) {
            continue;
        }
        struct state_entry * more = realloc(*list, (size_t) (*n + 1) * sizeof(*more));
        if (more == NULL) {
            closedir(folder);
            free(*list);
            *list = NULL;
            return error_no_memory(err, "the list of states");
        }
        more[(*n)++] = entry;
        *list = more;
    }
    closedir(folder);
    if (*n > 0) {
        qsort(*list, (size_t) *n, sizeof(**list), by_name);
    }
    return true;
}
