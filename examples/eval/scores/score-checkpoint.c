#include "eval/scores/score.h"

#include "base/atomic-file.h"
#include "base/error.h"
#include "base/hash.h"
#include "memory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = { 'L', 'R', 'N', 'N', '-', 'C', 'H', 'K' };

struct header {
    char    magic[8];
    uint8_t identity[32];
    int64_t first, n, n_calls;
};

struct slot_header {
    int64_t n_tokens; // of the window
    int64_t at;
    int64_t has_state;
};

enum { PATH_SIZE = 4096 };

// The path of a file of group `first`.
// - n_calls, s: of the state of window s after this many calls; −1: "partial"
static bool path_of(const struct score_params * params, int64_t first, int64_t n_calls, int64_t s,
        char path[PATH_SIZE], struct lrnn_error * err) {
    const int n =
            n_calls < 0 ? snprintf(path, PATH_SIZE, "%s/%" PRId64 ".partial", params->checkpoints,
                                  first)
                        : snprintf(path, PATH_SIZE, "%s/%" PRId64 ".%" PRId64 ".%" PRId64 ".state",
                                  params->checkpoints, first, n_calls, s);
    return n < PATH_SIZE ||
           error_bad_file(err, "%s: the path is too long for a checkpoint", params->checkpoints);
}

// The number of targets scored so far.
static size_t n_found(const struct score_slot * slot) {
    const int64_t n = slot->window.n_tokens - 1;
    return (size_t) (slot->at < n ? slot->at : n);
}

//
// Saving
//

struct writer {
    struct atomic_file file;
    uint64_t           sum;
};

static bool put(struct writer * w, const void * data, size_t size, struct lrnn_error * err) {
    w->sum = hash_add(w->sum, data, size);
    // a window that has not begun has no arrays
    return size == 0 || atomic_file_write(&w->file, data, size, err);
}

static bool save_partial(const struct score_params * params, const struct score_group * g,
        struct lrnn_session * session, struct lrnn_error * err) {
    char          path[PATH_SIZE];
    struct writer w = { .sum = HASH_START };
    if (!path_of(params, g->first, -1, 0, path, err) || !atomic_file_open(&w.file, path, err)) {
        return false;
    }
    struct header header = { .first = g->first, .n = g->n, .n_calls = g->n_calls };
    memcpy(header.magic, MAGIC, sizeof(header.magic));
    memcpy(header.identity, params->identity, sizeof(header.identity));
    bool ok = put(&w, &header, sizeof(header), err);
    for (int64_t s = 0; s < g->n && ok; ++s) {
        const struct score_slot * slot = &g->slots[s];
        const struct slot_header  h = { slot->window.n_tokens, slot->at,
             lrnn_seq_length(session, (int32_t) s) > 0 };
        ok = put(&w, &h, sizeof(h), err) &&
             put(&w, slot->nll, n_found(slot) * sizeof(*slot->nll), err) &&
             put(&w, slot->flags, n_found(slot), err);
        if (params->state_norm) {
            ok = ok && put(&w, &slot->n_norms, sizeof(slot->n_norms), err) &&
                 put(&w, slot->norms, (size_t) slot->n_norms * sizeof(*slot->norms), err);
        }
    }
    const uint64_t sum = w.sum;
    ok = ok && put(&w, &sum, sizeof(sum), err);
    if (!ok) {
        atomic_file_cancel(&w.file);
        return false;
    }
    return atomic_file_commit(&w.file, err);
}

bool score_checkpoint_save(const struct score_params * params, const struct score_group * g,
        struct lrnn_session * session, struct lrnn_error * err) {
    if (mkdir(params->checkpoints, 0777) != 0 && errno != EEXIST) {
        return error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot create the folder: %s",
                params->checkpoints, strerror(errno));
    }
    for (int64_t s = 0; s < g->n; ++s) {
        char path[PATH_SIZE];
        if (lrnn_seq_length(session, (int32_t) s) > 0 &&
                (!path_of(params, g->first, g->n_calls, s, path, err) ||
                        !lrnn_seq_save(session, (int32_t) s, NULL, path, err))) {
            return false;
        }
    }
    return save_partial(params, g, session, err);
}

//
// Loading
//

struct reader {
    FILE *   file;
    uint64_t sum;
};

static bool get(struct reader * r, void * data, size_t size) {
    if (fread(data, 1, size, r->file) != size) {
        return false;
    }
    r->sum = hash_add(r->sum, data, size);
    return true;
}

static bool load_partial(const struct score_params * params, struct score_group * g,
        struct reader * r, bool * has_state, struct lrnn_error * err) {
    struct header header;
    if (!get(r, &header, sizeof(header)) ||
            memcmp(header.magic, MAGIC, sizeof(header.magic)) != 0) {
        return error_bad_file(err, "not a checkpoint");
    }
    if (memcmp(header.identity, params->identity, sizeof(header.identity)) != 0 ||
            header.first != g->first || header.n != g->n) {
        return error_bad_file(err, "belongs to another run");
    }
    g->n_calls = header.n_calls;
    for (int64_t s = 0; s < g->n; ++s) {
        struct score_slot * slot = &g->slots[s];
        struct slot_header  h;
        if (!get(r, &h, sizeof(h)) || h.n_tokens != slot->window.n_tokens || h.at < 0 ||
                h.at > h.n_tokens) {
            return error_bad_file(err, "damaged");
        }
        slot->at = h.at;
        has_state[s] = h.has_state != 0;
        if (!get(r, slot->nll, n_found(slot) * sizeof(*slot->nll)) ||
                !get(r, slot->flags, n_found(slot))) {
            return error_bad_file(err, "damaged");
        }
        if (params->state_norm &&
                (!get(r, &slot->n_norms, sizeof(slot->n_norms)) || slot->n_norms < 0 ||
                        slot->n_norms > slot->max_norms ||
                        !get(r, slot->norms, (size_t) slot->n_norms * sizeof(*slot->norms)))) {
            return error_bad_file(err, "damaged");
        }
    }
    const uint64_t sum = r->sum;
    uint64_t       stored;
    if (!get(r, &stored, sizeof(stored)) || stored != sum) {
        return error_bad_file(err, "damaged: wrong checksum");
    }
    return true;
}

static bool load_states(const struct score_params * params, struct score_group * g,
        struct lrnn_session * session, const bool * has_state, struct lrnn_error * err) {
    for (int64_t s = 0; s < g->n; ++s) {
        char path[PATH_SIZE];
        if (has_state[s] && (!path_of(params, g->first, g->n_calls, s, path, err) ||
                                    !lrnn_seq_load(session, (int32_t) s, NULL, path, err))) {
            return false;
        }
    }
    return true;
}

enum score_checkpoint score_checkpoint_load(const struct score_params * params,
        struct score_group * g, struct lrnn_session * session, struct lrnn_error * err) {
    char              path[PATH_SIZE];
    struct lrnn_error why;
    if (!path_of(params, g->first, -1, 0, path, err)) {
        return CHECKPOINT_NONE;
    }
    struct reader r = { .file = fopen(path, "rb"), .sum = HASH_START };
    if (r.file == NULL) {
        return CHECKPOINT_NONE;
    }
    bool *     has_state = program_alloc((size_t) g->n, sizeof(*has_state));
    const bool ok = load_partial(params, g, &r, has_state, &why) &&
                    load_states(params, g, session, has_state, &why);
    free(has_state);
    fclose(r.file);
    if (!ok) {
        error_set(err, why.kind, "%s: %s", path, why.text);
        g->n_calls = 0;
        for (int64_t s = 0; s < g->n; ++s) {
            g->slots[s].at = 0;
            g->slots[s].n_norms = 0;
            lrnn_seq_reset(session, (int32_t) s, NULL);
        }
        return CHECKPOINT_BAD;
    }
    return CHECKPOINT_LOADED;
}

// The number of calls of the newest checkpoint of a group; −1: none.
static int64_t newest_calls(const struct score_params * params, int64_t first) {
    char          path[PATH_SIZE];
    struct header header = { .n_calls = -1 };
    FILE *        file = path_of(params, first, -1, 0, path, NULL) ? fopen(path, "rb") : NULL;
    if (file != NULL) {
        if (fread(&header, sizeof(header), 1, file) != 1) {
            header.n_calls = -1;
        }
        fclose(file);
    }
    return header.n_calls;
}

void score_checkpoint_clean(const struct score_params * params, int64_t first) {
    DIR * dir = opendir(params->checkpoints);
    if (dir == NULL) {
        return;
    }
    const int64_t n_calls = first >= 0 ? newest_calls(params, first) : -1;
    char          keep_partial[64], keep_states[64];
    snprintf(keep_partial, sizeof(keep_partial), "%" PRId64 ".partial", first);
    snprintf(keep_states, sizeof(keep_states), "%" PRId64 ".%" PRId64 ".", first, n_calls);
    for (const struct dirent * entry; (entry = readdir(dir)) != NULL;) {
        const char * name = entry->d_name;
        const size_t n = strlen(name);
        const bool   is_state = n > 6 && strcmp(name + n - 6, ".state") == 0;
        // temporary names have something after these endings
        const bool is_ours = strspn(name, "0123456789") > 0 &&
                             (strstr(name, ".partial") != NULL || strstr(name, ".state") != NULL);
        const bool is_kept =
                n_calls >= 0 &&
                (strcmp(name, keep_partial) == 0 ||
                        (is_state && strncmp(name, keep_states, strlen(keep_states)) == 0));
        char path[PATH_SIZE];
        if (is_ours && !is_kept &&
                snprintf(path, sizeof(path), "%s/%s", params->checkpoints, name) <
                        (int) sizeof(path)) {
            unlink(path);
        }
    }
    closedir(dir);
    if (n_calls < 0) {
        rmdir(params->checkpoints);
    }
}
