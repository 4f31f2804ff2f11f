#include "data-options.h"

#include "base/error.h"
#include "eval/data/data-files.h"
#include "interrupt.h"
#include "output-check.h"
#include "program.h"
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_COMPLAINTS = 3 };

bool data_options_check(struct data_options * d, struct lrnn_error * err) {
    d->data.paths = d->paths.v;
    d->data.n_paths = d->paths.n;
    d->data.shuffle = d->shuffle >= 0;
    d->data.shuffle_seed = (uint64_t) d->shuffle;
    d->data.max_bad_share =
            d->data.max_bad_share > 0.0 ? d->data.max_bad_share : 1e-12; // 0 is the default
    d->window.mode = (enum window_mode) d->mode;
    d->window.bos = (enum window_bos) d->bos;
    d->window.eos = (enum window_eos) d->eos;
    if (d->paths.n == 0) {
        return error_bad_input(err, "--data is missing; see %s --help", program_name());
    }
    return dataset_preset_find(d->data.preset) != NULL ||
           error_bad_input(err,
                   "--dataset is '%s'; lrnn-perplexity run --list-datasets prints the known ones",
                   d->data.preset);
}

enum exit_code data_check_output(const struct data_options * d, const char * path) {
    struct data_files files;
    enum exit_code    code = EXIT_CODE_OK;
    struct lrnn_error err;

    if (!data_files_find(&files, d->paths.v, d->paths.n, &err)) {
        return EXIT_CODE_OK; // data_windows reports it
    }
    for (int64_t i = 0; i < files.n && code == EXIT_CODE_OK; ++i) {
        code = output_check_inputs(path, (const char * const[]) { files.files[i].path }, 1);
    }
    data_files_free(&files);
    return code;
}

void data_options_list(void) {
    const struct dataset_preset * p;
    for (int i = 0; (p = dataset_preset_at(i)) != NULL; ++i) {
        printf("%-14s %s\n", p->name, p->about);
        for (const char * t = p->templates; *t != '\0';) {
            const size_t n = strcspn(t, "\n");
            printf("%-14s   %.*s\n", "", (int) n, t);
            t += n + (t[n] == '\n');
        }
        if (p->where != NULL) {
            printf("%-14s   where %s\n", "", p->where);
        }
    }
}

static bool stop_on_interrupt(const struct windows_summary * so_far, void * user) {
    (void) so_far;
    (void) user;
    return !interrupt_seen();
}

struct windows * data_windows(const struct data_options * d, const struct lrnn_model * model,
        const char * folder, windows_progress progress, void * user, bool quiet,
        enum exit_code * code) {
    const char *      tmp = getenv("TMPDIR");
    struct lrnn_error err;
    struct windows *  ws = NULL;
    struct dataset *  ds = dataset_open(&d->data, &err);
    if (ds != NULL) {
        tmp = tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp";
        ws = windows_make(ds, model, &d->window, folder != NULL ? folder : tmp,
                progress != NULL ? progress : stop_on_interrupt, user, &err);
    }
    dataset_free(ds);
    if (ws == NULL) {
        *code = program_error(&err);
    } else if (!quiet) {
        data_complain(ws);
    }
    return ws;
}

enum exit_code data_for_each(struct windows * ws, bool quiet, data_window_callback f, void * user) {
    const int64_t     n = windows_get_summary(ws)->n_windows;
    bool              ok = true;
    struct progress   progress;
    struct lrnn_error err;

    progress_begin(&progress, quiet ? 0 : (int) n);
    for (int64_t i = 0; i < n && ok; ++i) {
        struct window window;
        progress_step(&progress, "windows");
        if (interrupt_seen()) {
            ok = error_set(&err, LRNN_ERROR_CANCELLED,
                    "stopped after %" PRId64 " of %" PRId64 " windows", i, n);
        } else {
            ok = windows_read(ws, i, &window, &err) && f(&window, user, &err);
            window_free(&window);
        }
        progress_done(&progress);
    }
    progress_clear(&progress);
    return ok ? EXIT_CODE_OK : program_error(&err);
}

void data_complain(const struct windows * windows) {
    const struct windows_summary * s = windows_get_summary(windows);
    const char *                   c = s->complaints;
    for (int i = 0; i < SHOWN_COMPLAINTS && *c != '\0'; ++i) {
        const size_t n = strcspn(c, "\t");
        program_say("%.*s", (int) n, c);
        c += n + (c[n] == '\t');
    }
    if (s->counts.malformed > SHOWN_COMPLAINTS) {
        program_say("%" PRId64 " of %" PRId64 " records are malformed", s->counts.malformed,
                s->counts.records);
    }
}

bool parse_bucket(const char * text, int64_t * bucket, struct lrnn_error * err) {
    char * end = NULL;
    errno = 0;
    *bucket = strcmp(text, "log2") == 0 ? 0 : strtoll(text, &end, 10);
    return end == NULL || (errno == 0 && *end == '\0' && *bucket >= 1 && *bucket <= INT32_MAX) ||
           error_bad_input(err, "--bucket is '%s'; expected log2 or a number from 1 to %d", text,
                   INT32_MAX);
}
