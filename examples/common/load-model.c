#include "load-model.h"

#include "terminal.h"

#include "ggml.h"

#include <stdio.h>

enum { PERCENT = 100 };

// Most models are there before anybody could read how far they are.
static const int64_t PATIENCE_US = 500*1000;

static bool on_progress(float done, void * user) {
    struct progress * p = user;
    while (p->n_done < (int) (done*PERCENT) && p->n_done < PERCENT) {
        progress_done(p);
        if (p->n_done < PERCENT && ggml_time_us() - p->start_us > PATIENCE_US) {
            progress_step(p, "loading");
        }
    }
    return true;
}

// ggml talks on stderr: in builds with assertions about every buffer that it makes anew. A user wants its warnings and errors.
static void on_ggml_log(enum ggml_log_level level, const char * text, void * user) {
    (void) user;
    static bool shown; // a continued line belongs to the line before it
    shown = level == GGML_LOG_LEVEL_CONT ? shown : level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR;
    if (shown) {
        fputs(text, stderr);
    }
}

struct lrnn_model * load_model(const char * program, const char * path, bool quiet) {
    char            err[1024];
    struct progress progress;

    ggml_log_set(on_ggml_log, NULL);
    progress_begin(&progress, PERCENT);
    struct lrnn_model * model = lrnn_model_load(path,
            &(struct lrnn_model_params) { .progress = quiet ? NULL : on_progress, .user = &progress }, err, sizeof(err));
    if (!quiet) {
        progress_clear(&progress);
    }
    if (model == NULL) {
        fprintf(stderr, "%s: %s\n", program, err);
        return NULL;
    }
    const char * warning = lrnn_model_get_info(model).warning;
    if (warning != NULL && !quiet) {
        fprintf(stderr, "%s: %s\n", program, warning);
    }
    return model;
}
