#include "load-model.h"

#include "backends.h"
#include "program.h"
#include "terminal.h"

#include "ggml.h"

#include <errno.h>

enum { PERCENT = 100 };

static enum exit_code exit_code = EXIT_CODE_MODEL; // of the last load that failed

enum exit_code load_model_exit_code(void) {
    return exit_code;
}

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

static struct lrnn_model * load(
        const char * path, struct lrnn_model_params params, bool is_shown, lrnn_log log) {
    struct progress progress;
    char            err[1024];

    backends_start();
    progress_begin(&progress, PERCENT);
    params.progress           = is_shown ? on_progress : NULL;
    params.progress_user      = &progress;
    params.log                = log;
    struct lrnn_model * model = lrnn_model_load(path, &params, err, sizeof(err));
    if (is_shown) {
        progress_clear(&progress);
    }
    if (model == NULL) {
        exit_code = errno == ENOMEM ? EXIT_CODE_SYSTEM : EXIT_CODE_MODEL;
        program_say("%s", err);
    }
    return model;
}

struct lrnn_model * load_model_on(
        const char * path, const struct lrnn_model_params * params, bool quiet, bool verbose) {
    return load(path, *params, !quiet, verbose ? on_log : quiet ? NULL : on_warning);
}

struct lrnn_model * load_model(const char * path, bool quiet) {
    const struct lrnn_model_params params = { .no_huge_pages = true };
    return load(path, params, false, quiet ? NULL : on_warning);
}
