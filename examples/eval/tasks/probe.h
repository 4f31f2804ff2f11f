#pragma once

// Probes a model with a task: compares its answers with the true ones at every position, in several
// sequences at once. Memory use does not depend on their length.

#include "eval/tasks/task.h"
#include "lrnn.h"

enum { PROBE_LENGTHS_MAX = 64 };

// Called before each step of a run. Return false to stop it.
typedef bool (*probe_progress)(int64_t done, int64_t total, void * user);

// Called for every answer, in ascending order of the positions of a sequence.
// - position: from 1; answer: the token that is right; logits: [n_vocab]
typedef void (*probe_observe)(int64_t position, int32_t answer, const float * logits, void * user);

struct probe_params {
    int64_t  lengths[PROBE_LENGTHS_MAX]; // ascending
    int      n_lengths;
    int64_t  n_sequences;
    uint64_t seed;
    int32_t  n_batch; // tokens per call, all sequences together

    struct lrnn_session_params session;  // threads and cache type
    probe_progress             progress; // may be NULL
    void *                     user;
    probe_observe              observe; // may be NULL
    void *                     observe_user;
};

// Counts for the positions after the previous length, up to this one.
struct probe_row {
    int64_t length;
    int64_t n_asked, n_right;         // answers
    int64_t n_sequences, n_all_right; // sequences, and those without any error so far
    double  margin; // smallest difference of the logits of the right answer and the best other one
};

struct probe_result {
    int              n_rows;
    struct probe_row rows[PROBE_LENGTHS_MAX];
    int64_t          first_error; // earliest position of a wrong answer, from 1; 0: none
    bool             stopped;     // by the callback; the counts are those until then
};

// Measures the accuracy by position, up to the largest length. A model that has no tokens for the
// task is an error of the kind bad input.
bool probe_by_length(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct probe_result * result, struct lrnn_error * err);

// Measures the score of Grazzi et al.: the last answers of n_sequences whose random lengths, answer
// included, are from lengths[0] to lengths[1]. The result has one row.
bool probe_at_end(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct probe_result * result, struct lrnn_error * err);

// Sets tokens[i] to the most likely token after the first i + 1 of n given symbols.
bool probe_symbols(struct lrnn_model * model, const struct task * task,
        const struct lrnn_session_params * session, const int32_t * symbols, int64_t n,
        int32_t * tokens, struct lrnn_error * err);

// Converts a sequence of the task to tokens, including those that the tokenizer puts before a text.
// The caller frees *tokens.
bool probe_tokens(const struct lrnn_model * model, const struct task * task, uint64_t seed,
        int64_t length, int32_t ** tokens, int64_t * n_tokens, struct lrnn_error * err);

// (accuracy − chance) / (1 − chance): 1 is perfect, 0 is a guess.
double probe_scaled(const struct probe_row * row, double chance);
