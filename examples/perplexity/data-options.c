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
        opt_group("Text"),
        opt_required(opt_strings("--data", "PATH", &in->data,
                "file or folder, text or JSON lines, plain, .gz or .zst; - for stdin; may be repeated")),
        opt_string("--dataset", "NAME", &in->dataset,
                "what the records are: text, codeparrot, math-hard, triviaqa, slimpajama …; lrnn-perplexity run --list-datasets names all"),
        opt_string("--template", "T", &in->template,
                "text of a record, '{problem} {solution}' (default: of the data set)"),
        opt_string("--text-field", "F", &in->text_field,
                "short for the template '{F}' (default: none)"),
        opt_string("--where", "F=V", &in->where,
                "only records whose field F is V; F!=V: is not (default: of the data set)"),
        opt_int("--start-doc", "N", &in->start_doc, 0, 1e15, "skip N documents"),
        opt_int("--max-docs", "N", &in->max_docs, 0, 1e15, "read N documents (default: all)"),
        opt_int("--window", "W", &in->window, 2, WINDOW_MAX_LENGTH,
                "tokens that are fed from an empty state"),
        opt_int("--max-windows", "N", &in->max_windows, 0, 1e12, "so many; 0: all"),
        opt_choice("--mode", "packed|document", &in->mode,
                "windows are stretches of all documents in a row, or the first W tokens of each long enough"),
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
