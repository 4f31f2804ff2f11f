#pragma once

// Scores windows of a small data set with golden models, for the tests of scoring. A failure that
// leaves nothing to test ends the program.

#include "eval/scores/score.h"
#include "kit/check.h"
#include "kit/golden.h"
#include "kit/model-edit.h"

enum { N_VOCAB = 48 };

// Of the one test in a program.
struct score_bench {
    struct test        t;
    struct golden_list golden;
    char               folder[256], data_path[512];
};

extern struct score_bench bench;

struct score_bench_run {
    struct lrnn_model *  model;
    struct window_params window;
    enum score_reset     reset;
    int64_t              n_batch, group, checkpoint_every;
    int64_t              shard, n_shards;
    const char *         name; // of the file
    bool                 resume;
    bool                 probe;      // also record norms of states
    const char *         warning;    // part of the expected warning; NULL: none
    int                  stop_after; // calls; 0: never
    bool                 killed;     // by SIGKILL instead of a request to stop
    enum lrnn_cache_type cache_type;
    struct score_result  result;
};

// Creates the folder and writes documents of symbols.
bool bench_begin(void);

// Removes the folder, which must be empty but for the data. Returns the exit code of the test.
int bench_end(const char * name);

// A golden model; it gets symbols s0 … s47 (s0 is the bos), and is loaded.
struct model_edit bench_open(const char * name);
void bench_add_symbols(struct model_edit * e);
struct lrnn_model * bench_load(struct model_edit * e, const char * name); // closes e
struct lrnn_model * bench_model(const char * name);                       // all three

struct windows * bench_windows(const struct lrnn_model * model, struct window_params params);

// Runs to the end, or until it is stopped, and checks the warning.
enum lrnn_error_kind bench_run(struct score_bench_run * run);

// Score files by the name of their run
const char * bench_path(const char * name, char path[512]);
struct scores bench_read(const char * name);
bool bench_same_files(const char * a, const char * b);
void bench_forget(const char * name);
