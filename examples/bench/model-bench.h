#pragma once

// Times a whole model, as llama-bench does: a prompt (pp) and generation (tg), each in an empty
// sequence or, with a depth, after that many tokens.
//
//   pp   n random tokens in one call, computed n_batch at a time; logits of the last one
//   tg   n random tokens, one call per token with its logits; no sampling. "tg128 x16": in each of
//        16 sequences, one token of every sequence per call. "tg128 @ d4096": after 4096 tokens
//
// The result is the mean and standard deviation of the tokens per second of all repetitions.

#include "results.h"
#include "machine.h"
#include "lrnn.h"
#include "options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_bench_params {
    struct option_ints n_prompt; // tokens of pp; 0: no test
    struct option_ints n_gen;    // tokens of tg; 0: no test
    struct option_ints seqs;     // sequences of tg
    struct option_ints depths;   // tokens in each sequence before a test
    struct option_ints threads;
    int64_t            n_batch;
    int64_t            repetitions;

    struct lrnn_session_params session; // the others
};

struct model_test {
    bool    is_generation;
    int64_t n_tokens; // of a sequence
    int64_t depth;    // tokens before them, not timed
    int32_t n_seqs;
    int     threads;
};

// "pp512", "tg128", "tg128 x16", "pp512 @ d4096"
void model_test_name(const struct model_test * test, char * name, size_t name_size);

struct model_result {
    struct model_test test;
    int64_t           n_batch;
    int64_t           n_samples;
    const double *    samples_ns; // [n_samples], one per repetition; valid during the callback
    const double *    samples_ts; // [n_samples] tokens per second
    double            mean_ns, stddev_ns;
    double            mean_ts, stddev_ts;
    double            busy; // share of the time that all threads ran; below 1: other work
};

// Called before and after each test.
typedef void (*model_bench_progress)(const struct model_test * test, void * user);
typedef void (*model_result_callback)(const struct model_result * result, void * user);

// The number of results of model_bench_run.
int model_bench_count(const struct model_bench_params * params);

// Runs all tests on a model.
bool model_bench_run(struct lrnn_model * model, const struct model_bench_params * params,
        model_bench_progress progress, model_result_callback result, void * user,
        struct lrnn_error * err);

//
// model-results.c: the output. CSV columns and JSON keys are those of llama-bench where they have
// the same meaning.
//
struct model_results {
    struct results         results;
    const struct machine * machine;
};

void model_results_begin(struct model_results * out, int format, const struct machine * machine);
void model_results_row(struct model_results * out, const char * path,
        const struct lrnn_model_info * info, const struct model_result * r);
void model_results_end(struct model_results * out);
