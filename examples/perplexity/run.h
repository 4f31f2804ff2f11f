#pragma once

// The parts of `lrnn-perplexity run`: options (run.c), plan (run-plan.c), scoring (run-scoring.c)
// and results (run-output.c).

#include "compute-options.h"
#include "data-options.h"
#include "eval/score.h"

struct run_args {
    struct option_strings models, names;
    struct data_options   data;
    int                   protocol;
    int                   reset; // enum score_reset; -1: of the protocol
    struct option_ints    same_targets;
    int                   probe; // -1: none
    int64_t               trained_length;
    const char *          out;
    bool                  resume, force, dry_run, list_datasets, quiet;
    const char *          shard;
    const char *          time_limit;
    int64_t               checkpoint_every;
    struct compute        compute;
    int64_t               batch, group;
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

bool run_plan_make(
        const struct run_args * args, struct run_plan * plan, char * err, size_t err_size);

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
