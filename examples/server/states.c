#include "states.h"

#include "base/error.h"
#include "base/atomic-file.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC  "lrnn-srv"
#define SUFFIX ".state"

enum { VERSION = 1, PATH_SIZE = 4096 };

struct header {
    char     magic[8];
    uint32_t version;
    uint32_t zero;
    uint64_t identity;
    int64_t  n_tokens;
    uint64_t size;
};

_Static_assert(sizeof(struct header) == 40, "the header has no padding");

static bool path_of(
        char path[PATH_SIZE], const char * dir, const char * name, struct lrnn_error * err) {
    const int n = snprintf(path, PATH_SIZE, "%s/%s" SUFFIX, dir, name);
    if (n < 0 || n >= PATH_SIZE) {
        error_set(err, LRNN_ERROR_BAD_INPUT, "the path of state '%s' is too long", name);
        return false;
    }
    return true;
}

enum state_status state_save(const char * dir, const char * name, uint64_t identity,
        const struct saved_state * state, struct lrnn_error * err) {
    struct header header = {
        .version  = VERSION,
        .identity = identity,
        .n_tokens = state->n_tokens,
        .size     = state->size,
    };
    char               path[PATH_SIZE];
    struct atomic_file file;
    memcpy(header.magic, MAGIC, sizeof(header.magic));
    if (!path_of(path, dir, name, err) ||
            !atomic_file_may_replace(path, MAGIC, "a saved state", err) ||
            !atomic_file_open(&file, path, err)) {
        return STATE_SYSTEM;
    }
    const struct {
        const void * data;
        size_t       size;
    } parts[] = {
        { &header, sizeof(header) },
        { state->tokens, (size_t) state->n_tokens * sizeof(int32_t) },
        { state->data, state->size },
    };
    uint64_t sum = HASH_START;
    bool     ok  = true;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && ok; ++i) {
        ok  = atomic_file_write(&file, parts[i].data, parts[i].size, err);
        sum = hash_add(sum, parts[i].data, parts[i].size);
    }
    if (!ok || !atomic_file_write(&file, &sum, sizeof(sum), err)) {
        atomic_file_cancel(&file);
        return STATE_SYSTEM;
    }
    return atomic_file_commit(&file, err) ? STATE_OK : STATE_SYSTEM;
}

//
// Loading: nothing of the file is believed before it was checked
//

static enum state_status bad(struct lrnn_error * err, const char * name, const char * what) {
    error_set(err, LRNN_ERROR_BAD_INPUT, "state '%s' %s", name, what);
    return STATE_BAD;
}

// Checks the header against the size of the file.
static enum state_status check_header(const struct header * h, int64_t file_size, uint64_t identity,
        const char * name, struct lrnn_error * err) {
    const int64_t room = file_size - (int64_t) sizeof(*h) - (int64_t) sizeof(uint64_t);
    if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0 || h->zero != 0) {
        return bad(err, name, "is not a saved state");
    }
    if (h->version != VERSION) {
        return bad(err, name, "has another version");
    }
    if (h->n_tokens < 1 || h->n_tokens > room / (int64_t) sizeof(int32_t) ||
            h->size != (uint64_t) (room - h->n_tokens * (int64_t) sizeof(int32_t))) {
        return bad(err, name, "is damaged: its size is wrong");
    }
    if (h->identity != identity) {
        return bad(err, name, "was saved with another model");
    }
    return STATE_OK;
}

static enum state_status read_state(FILE * file, int64_t file_size, const char * name,
        uint64_t identity, int64_t n_vocab, struct saved_state * state, struct lrnn_error * err) {
    struct header header;
    uint64_t      sum;
    if (fread(&header, sizeof(header), 1, file) != 1) {
        return bad(err, name, "is too short");
    }
    const enum state_status status = check_header(&header, file_size, identity, name, err);
    if (status != STATE_OK) {
        return status;
    }
    const size_t n_bytes = (size_t) header.n_tokens * sizeof(int32_t);
    state->n_tokens      = header.n_tokens;
    state->size          = (size_t) header.size;
    state->tokens        = malloc(n_bytes);
    state->data          = malloc(state->size > 0 ? state->size : 1);
    if (state->tokens == NULL || state->data == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for state '%s'", name);
        return STATE_SYSTEM;
    }
    if (fread(state->tokens, 1, n_bytes, file) != n_bytes ||
            fread(state->data, 1, state->size, file) != state->size ||
            fread(&sum, sizeof(sum), 1, file) != 1) {
        return bad(err, name, "cannot be read");
    }
    const uint64_t expected = hash_add(
            hash_add(hash_add(HASH_START, &header, sizeof(header)), state->tokens, n_bytes),
            state->data, state->size);
    if (sum != expected) {
        return bad(err, name, "is damaged: its checksum is wrong");
    }
    for (int64_t i = 0; i < state->n_tokens; ++i) {
        if (state->tokens[i] < 0 || state->tokens[i] >= n_vocab) {
            return bad(err, name, "has a token that is not in the vocabulary");
        }
    }
    return STATE_OK;
}

enum state_status state_load(const char * dir, const char * name, uint64_t identity,
        int64_t n_vocab, struct saved_state * state, struct lrnn_error * err) {
    char        path[PATH_SIZE];
    struct stat st;
    *state = (struct saved_state) { 0 };
    if (!path_of(path, dir, name, err)) {
        return STATE_SYSTEM;
    }
    FILE * file = fopen(path, "rb");
    if (file == NULL) {
        error_set(err, LRNN_ERROR_SYSTEM, "state '%s': %s", name, strerror(errno));
        return errno == ENOENT ? STATE_MISSING : STATE_SYSTEM;
    }
    enum state_status status;
    if (fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode)) {
        status = bad(err, name, "is not a file");
    } else {
        status = read_state(file, (int64_t) st.st_size, name, identity, n_vocab, state, err);
    }
    fclose(file);
    if (status != STATE_OK) {
        saved_state_free(state);
    }
    return status;
}

void saved_state_free(struct saved_state * state) {
    free(state->tokens);
    free(state->data);
    *state = (struct saved_state) { 0 };
}

enum state_status state_delete(const char * dir, const char * name, struct lrnn_error * err) {
    char path[PATH_SIZE];
    if (!path_of(path, dir, name, err)) {
        return STATE_SYSTEM;
    }
    if (unlink(path) != 0) {
        error_set(err, LRNN_ERROR_SYSTEM, "state '%s': %s", name, strerror(errno));
        return errno == ENOENT ? STATE_MISSING : STATE_SYSTEM;
    }
    return STATE_OK;
}

//
// The list
//

static int by_name(const void * a, const void * b) {
    return strcmp(((const struct state_entry *) a)->name, ((const struct state_entry *) b)->name);
}

// Describes a file; false if its name is not that of a state.
static bool describe(
        const char * dir, const char * file_name, uint64_t identity, struct state_entry * entry) {
    const size_t size = strlen(file_name), suffix = strlen(SUFFIX);
    if (size <= suffix || strcmp(file_name + size - suffix, SUFFIX) != 0 ||
            !state_name_is_valid((struct slice) { file_name, size - suffix })) {
        return false;
    }
    char          path[PATH_SIZE];
    struct header header;
    struct stat   st;
    *entry = (struct state_entry) { 0 };
    memcpy(entry->name, file_name, size - suffix);
    FILE * file = path_of(path, dir, entry->name, NULL) ? fopen(path, "rb") : NULL;
    if (file != NULL) {
        if (fstat(fileno(file), &st) == 0 && fread(&header, sizeof(header), 1, file) == 1) {
            entry->size = (int64_t) st.st_size;
            entry->is_valid =
                    check_header(&header, entry->size, identity, entry->name, NULL) == STATE_OK;
            entry->n_tokens = entry->is_valid ? header.n_tokens : 0;
        }
        fclose(file);
    }
    return true;
}

enum state_status state_list(const char * dir, uint64_t identity, struct state_entry ** list,
        int64_t * n, struct lrnn_error * err) {
    DIR * folder = opendir(dir);
    *list        = NULL;
    *n           = 0;
    if (folder == NULL) {
        error_set(err, LRNN_ERROR_SYSTEM, "%s: %s", dir, strerror(errno));
        return STATE_SYSTEM;
    }
    for (struct dirent * e; (e = readdir(folder)) != NULL;) {
        struct state_entry entry;
        if (!describe(dir, e->d_name, identity, &entry)) {
            continue;
        }
        struct state_entry * more = realloc(*list, (size_t) (*n + 1) * sizeof(*more));
        if (more == NULL) {
            closedir(folder);
            free(*list);
            *list = NULL;
            error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for the list of states");
            return STATE_SYSTEM;
        }
        more[(*n)++] = entry;
        *list        = more;
    }
    closedir(folder);
    if (*n > 0) {
        qsort(*list, (size_t) *n, sizeof(**list), by_name);
    }
    return STATE_OK;
}
