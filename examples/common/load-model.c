#include "load-model.h"

#include "lrnn.h"

#include "backends.h"
#include "program.h"
#include "terminal.h"

#include "ggml.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PERCENT = 100 };

// Most models load faster than this, and show no progress.
static const int64_t PATIENCE_US = 500 * 1000;

static bool on_progress(float done, void * user) {
    struct progress * p = user;
    while (p->n_done < (int) (done * PERCENT) && p->n_done < PERCENT) {
        progress_done(p);
        if (p->n_done < PERCENT && ggml_time_us() - p->start_us > PATIENCE_US) {
            progress_step(p, "loading");
        }
    }
    return true;
}

static void on_log(enum lrnn_log_level level, const char * message, void * user) {
    (void) level;
    (void) user;
    program_say("%s", message);
}

static void on_warning(enum lrnn_log_level level, const char * message, void * user) {
    if (level == LRNN_LOG_WARNING) {
        on_log(level, message, user);
    }
}

// True for what users may take for a model file: a folder, or a file of a checkpoint.
static bool is_checkpoint(const char * path) {
    static const char * const suffixes[] = { ".safetensors", ".bin", ".pt", ".pth", ".ckpt" };
    const size_t              n = strlen(path);
    struct stat               st;
    bool                      found = false;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); ++i) {
        const size_t size = strlen(suffixes[i]);
        found = found || (n > size && strcmp(path + n - size, suffixes[i]) == 0);
    }
    return stat(path, &st) == 0 && (found || S_ISDIR(st.st_mode));
}

static struct lrnn_model * load(const char * path, struct lrnn_model_params params, bool is_shown,
        lrnn_log log, struct lrnn_error * err) {
    struct progress progress;

    backends_start();
    progress_begin(&progress, PERCENT);
    params.progress = is_shown ? on_progress : NULL;
    params.progress_user = &progress;
    params.log = log;
    struct lrnn_model * model = lrnn_model_load(path, &params, err);
    if (model == NULL && err != NULL && is_checkpoint(path)) {
        const size_t n = strlen(err->text);
        snprintf(err->text + n, sizeof(err->text) - n, "; convert the checkpoint: lrnn-convert %s",
                path);
    }
    if (is_shown) {
        progress_clear(&progress);
    }
    return model;
}

struct lrnn_model * load_model_with(const char * path, const struct lrnn_model_params * params,
        bool quiet, bool verbose, struct lrnn_error * err) {
    return load(path, *params, !quiet, verbose ? on_log : quiet ? NULL : on_warning, err);
}

struct lrnn_model * load_model(const char * path, bool quiet, struct lrnn_error * err) {
    const struct lrnn_model_params params = { .no_huge_pages = true };
    return load(path, params, false, quiet ? NULL : on_warning, err);
}
