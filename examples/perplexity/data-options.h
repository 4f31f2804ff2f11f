#pragma once

// The data of a command: the options that select text and cut it into windows of tokens, and the
// windows.
//
//     struct data_options data = DATA_DEFAULTS;
//     const struct option options[] = { …, DATA_OPTIONS(data), WINDOW_OPTIONS(data, ""), … };
//     …                                                          // parse the command line
//     if (!data_options_check(&data, &err)) …        // EXIT_CODE_USAGE

#include "lrnn.h"
#include "eval/data/windows.h"
#include "exit-code.h"
#include "options.h"

struct data_options {
    struct option_strings paths;
    struct dataset_params data;
    struct window_params  window;
    int64_t               shuffle;        // seed; -1: file order
    int                   mode, bos, eos; // enum window_*; -1: unset
};

#define DATA_DEFAULTS                                      \
    { .data = { .preset = "text", .max_bad_share = 0.01 }, \
        .window = { .length = 2048, .max_windows = 16 },   \
        .shuffle = -1 }

#define DATA_OPTIONS(d)                                                                           \
    opt_group("Data"),                                                                            \
            opt_strings("--data", "PATH", &(d).paths,                                             \
                    "file or folder of text or JSON, plain, gzip or zstd; -: stdin; repeatable"), \
            opt_string("--dataset", "NAME", &(d).data.preset,                                     \
                    "format of the records; lrnn-perplexity run --list-datasets prints all"),     \
            opt_string("--template", "TEXT", &(d).data.template,                                  \
                    "text of a record, fields in braces: 'Problem: {problem}, Solution: "         \
                    "{solution}' (default: of the data set)"),                                    \
            opt_string("--text-field", "FIELD", &(d).data.text_field,                             \
                    "same as --template '{FIELD}'"),                                              \
            opt_string("--where", "FIELD=VALUE", &(d).data.where,                                 \
                    "use only matching records; FIELD!=VALUE: the others (default: of the data "  \
                    "set)"),                                                                      \
            opt_int("--start-doc", "N", &(d).data.start_doc, 0, 1e12,                             \
                    "skip the first N documents"),                                                \
            opt_int("--max-docs", "N", &(d).data.max_docs, 0, 1e12, "documents to read; 0: all"), \
            opt_int("--shuffle-docs", "SEED", &(d).shuffle, 0, 1e15,                              \
                    "shuffle the documents (default: file order)"),                               \
            opt_float("--max-bad", "FRACTION", &(d).data.max_bad_share, 0, 1,                     \
                    "fraction of malformed records to tolerate")

// - of: note on the default of options that may be unset, " (default: …)" or ""
#define WINDOW_OPTIONS(d, of)                                                                     \
    opt_group("Windows"),                                                                         \
            opt_int("-w, --window", "W", &(d).window.length, 2, WINDOW_MAX_LENGTH,                \
                    "tokens per window" of),                                                      \
            opt_choice("--mode", "packed|document|llama", &(d).mode,                              \
                    "packed: cut the stream of all documents; document: the start of each "       \
                    "document; llama: like llama-perplexity" of),                                 \
            opt_choice("--bos", "auto|doc|window|none", &(d).bos,                                 \
                    "where to insert the bos token; auto: before each document if the tokenizer " \
                    "does so" of),                                                                \
            opt_choice("--eos", "none|doc", &(d).eos, "where to insert the eos token" of),        \
            opt_int("--min-doc-tokens", "N", &(d).window.min_doc_tokens, 2, WINDOW_MAX_LENGTH,    \
                    "document mode: skip shorter documents (default: W)"),                        \
            opt_int("--max-windows", "N", &(d).window.max_windows, 0, 1e12,                       \
                    "windows to use; 0: all"),                                                    \
            opt_int("--max-tokens", "N", &(d).window.max_tokens, 0, 1e15,                         \
                    "tokens to use; 0: all"),                                                     \
            opt_flag("--skip-special", &(d).window.skip_special, "do not score special tokens")

// Checks the options and completes data and window, once all choices are set.
bool data_options_check(struct data_options * d, struct lrnn_error * err);

// Whether an output file is one of the data files. Prints an error if so.
enum exit_code data_check_output(const struct data_options * d, const char * path);

// Prints the data sets that --dataset knows.
void data_options_list(void);

// Reads the data and cuts it into windows of tokens of the model. NULL after an error message on
// stderr: exit with *code.
// - folder: for a temporary file; NULL: TMPDIR
// - progress: NULL: none; Ctrl-C stops in any case
// - quiet: do not call data_complain
struct windows * data_windows(const struct data_options * d, const struct lrnn_model * model,
        const char * folder, windows_progress progress, void * user, bool quiet,
        enum exit_code * code);

// Calls f for every window, with progress unless quiet, until one fails; its error is printed.
// Ctrl-C stops between windows.
typedef bool (*data_window_callback)(
        const struct window * window, void * user, struct lrnn_error * err);
enum exit_code data_for_each(struct windows * ws, bool quiet, data_window_callback f, void * user);

// Prints the first complaints about the data to stderr, and the number of malformed records if
// there are more.
void data_complain(const struct windows * windows);

// Parses "log2" as 0, or a number of positions per bucket from 1 on.
bool parse_bucket(const char * text, int64_t * bucket, struct lrnn_error * err);
