#pragma once

// The parts of `lrnn-perplexity run`: options (run.c), plan (run-plan.c), scoring (run-scoring.c),
// progress (run-progress.c) and results (run-output.c).

#include "lrnn.h"
#include "device-options.h"
#include "data-options.h"
#include "eval/scores/score.h"

struct run_args {
    struct option_strings models, names;
    struct data_options   data;
    int                   protocol;
    int                   reset; // enum score_reset; -1: of the protocol
    struct option_ints    context_lengths;
    bool                  state_norm;
    int64_t               trained_length;
    const char *          out;
    bool                  resume, force, dry_run, list_datasets, quiet;
    const char *          shard;
    const char *          time_limit;
    int64_t               checkpoint_every;
    struct device_options device;
    int64_t               batch, parallel;
};

#define RUN_PROTOCOLS "paper|fla|document|llama"

// The options, checked and completed by the protocol.
struct run_plan {
    const struct run_args * args;
    struct data_options     data; // completed
    enum score_reset        reset;
    const char *            protocol;           // "custom" if an option overrides it
    char                    same_targets[1024]; // "512,1024"
    int64_t                 shard, n_shards;
    double                  limit_s;        // 0: none
    int64_t                 n_batch, group; // set by run_plan_calls
};

bool run_plan_make(const struct run_args * args, struct run_plan * plan, struct lrnn_error * err);

// Decides the calls of the model: windows per group, and tokens of each per call.
void run_plan_calls(struct run_plan * plan, int64_t n_windows);

// The files of one model.
struct run_files {
    const char * model;     // path
    char         name[256]; // of the run, in reports
    char         scores[4096];
    char         checkpoints[4096]; // folder
};

// Names the files of model i. Returns false if a name is too long.
bool run_files_make(const struct run_plan * plan, int i, struct run_files * files);

// Scores the windows of the data with every model.
enum exit_code run_models(struct run_plan * plan);

// Prints the content of a score file on one line of stdout, and to stderr whether it has diverged
// or was stopped. Returns the exit code.
// - n_windows: in the finished file
enum exit_code run_print_result(const struct run_files * files, int64_t n_windows, bool stopped);

// Prints counts and an estimate of the time.
void run_print_dry(const struct run_plan * plan, const struct run_files * files,
        struct lrnn_model * model, struct windows * windows);

// The progress of a run on stderr, and its end: Ctrl-C or the time limit. On a terminal, one line
// overwrites itself; elsewhere, a plain line is printed now and then.
struct run_progress {
    bool    quiet;
    bool    is_terminal;
    double  limit_s;  // since run_progress_begin; 0: none
    int64_t start_us; // of the program
    int64_t shown_us; // time of the last line
    // set for each model:
    const char * model;
    int64_t      n_windows; // of the whole run
    int64_t      n_tokens;  // to evaluate
    int64_t      begun_us;
};

void run_progress_begin(struct run_progress * p, bool quiet, double limit_s);

// Callbacks of windows_make and score_run; user is the run_progress. The time limit stops only
// scoring: a run that has read its data makes at least one call, so that resuming it gets ahead.
bool run_progress_data(const struct windows_summary * so_far, void * user);
bool run_progress_score(const struct score_progress * score, void * user);

// Clears the line on the terminal, before other output.
void run_progress_clear(const struct run_progress * p);
