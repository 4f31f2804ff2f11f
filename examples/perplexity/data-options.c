#include "data-options.h"

#include "interrupt.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct text_input text_input_defaults(void) {
    return (struct text_input) {
        .dataset = "text", .window = 2048, .max_windows = 16, .mode = WINDOW_PACKED
    };
}

int text_input_options(struct text_input * in, struct option * table) {
    const struct option options[TEXT_INPUT_OPTIONS] = {
        { .group          = "Text",
                .names    = "--data",
                .value    = "PATH",
                .type     = OPTION_STRINGS,
                .dest     = &in->data,
                .required = true,
                .help = "file or folder, text or JSON lines, plain, .gz or .zst; - for stdin; may be repeated" },
        { .names       = "--dataset",
                .value = "NAME",
                .type  = OPTION_STRING,
                .dest  = &in->dataset,
                .help = "what the records are: text, codeparrot, math-hard, triviaqa, slimpajama …; lrnn-perplexity run --list-datasets names all" },
        { .names       = "--template",
                .value = "T",
                .type  = OPTION_STRING,
                .dest  = &in->template,
                .help  = "text of a record, '{problem} {solution}'",
                .unset = "of the data set" },
        { .names       = "--text-field",
                .value = "F",
                .type  = OPTION_STRING,
                .dest  = &in->text_field,
                .help  = "short for the template '{F}'",
                .unset = "none" },
        { .names       = "--where",
                .value = "F=V",
                .type  = OPTION_STRING,
                .dest  = &in->where,
                .help  = "only records whose field F is V; F!=V: is not",
                .unset = "of the data set" },
        { .names       = "--start-doc",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &in->start_doc,
                .min   = 0,
                .max   = 1e15,
                .help  = "skip N documents" },
        { .names       = "--max-docs",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &in->max_docs,
                .min   = 0,
                .max   = 1e15,
                .help  = "read N documents",
                .unset = "all" },
        { .names       = "--window",
                .value = "W",
                .type  = OPTION_INT,
                .dest  = &in->window,
                .min   = 2,
                .max   = WINDOW_MAX_LENGTH,
                .help  = "tokens that are fed from an empty state" },
        { .names       = "--max-windows",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &in->max_windows,
                .min   = 0,
                .max   = 1e12,
                .help  = "so many; 0: all" },
        { .names       = "--mode",
                .value = "packed|document",
                .type  = OPTION_CHOICE,
                .dest  = &in->mode,
                .help = "windows are stretches of all documents in a row, or the first W tokens of each long enough" },
    };
    memcpy(table, options, sizeof(options));
    return TEXT_INPUT_OPTIONS;
}

static bool on_progress(const struct windows_summary * so_far, void * user) {
    (void) so_far;
    (void) user;
    return !interrupt_seen();
}

struct windows * text_input_windows(const struct text_input * in, const struct lrnn_model * model,
        const char * program, bool quiet, enum exit_code * code) {
    const char * folder = getenv("TMPDIR");
    char         err[1024];

    if (dataset_preset_find(in->dataset) == NULL) {
        fprintf(stderr,
                "%s: there is no data set '%s'; lrnn-perplexity run --list-datasets names all\n",
                program, in->dataset);
        *code = EXIT_CODE_USAGE;
        return NULL;
    }
    struct dataset * ds = dataset_open(
            &(struct dataset_params) {
                    .paths      = in->data.v,
                    .n_paths    = in->data.n,
                    .preset     = in->dataset,
                    .template   = in->template,
                    .text_field = in->text_field,
                    .where      = in->where,
                    .start_doc  = in->start_doc,
                    .max_docs   = in->max_docs,
            },
            err, sizeof(err));
    struct windows * ws = ds == NULL
                                  ? NULL
                                  : windows_make(ds, model,
                                            &(struct window_params) {
                                                    .mode        = (enum window_mode) in->mode,
                                                    .bos         = WINDOW_BOS_AUTO,
                                                    .length      = in->window,
                                                    .max_windows = in->max_windows,
                                            },
                                            folder != NULL && folder[0] != '\0' ? folder : "/tmp",
                                            on_progress, NULL, err, sizeof(err));
    if (ws != NULL && windows_get_summary(ws)->n_windows == 0) {
        snprintf(err, sizeof(err),
                "the text has %" PRId64 " tokens, not enough for one window of %" PRId64,
                windows_get_summary(ws)->stream_tokens, in->window);
        windows_free(ws);
        ws = NULL;
    }
    if (ws == NULL) {
        fprintf(stderr, "%s: %s\n", program, err);
        *code = interrupt_seen() ? EXIT_CODE_STOPPED : EXIT_CODE_DATA;
    } else if (!quiet) {
        for (int i = 0; dataset_complaint(ds, i) != NULL; ++i) {
            fprintf(stderr, "%s: left out: %s\n", program, dataset_complaint(ds, i));
        }
    }
    dataset_free(ds);
    return ws;
}
