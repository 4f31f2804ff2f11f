#pragma once

// A model's answers to a task, compared with the true ones: at every position, in several sequences
// at once, in memory that does not depend on their length.

#include "lrnn.h"
#include "eval/task.h"

enum { PROBE_LENGTHS_MAX = 64 };

struct probe_params {
    int64_t  lengths[PROBE_LENGTHS_MAX]; // ascending
    int      n_lengths;
    int64_t  n_sequences;
    uint64_t seed;
    int32_t  n_threads;
    int32_t  n_batch; // tokens a call, all sequences together
    bool     quiet;
};

// Positions above the length before it and up to this one.
struct probe_row {
    int64_t length;
    int64_t n_asked, n_right;         // answers
    int64_t n_sequences, n_all_right; // sequences, and those without an error from the beginning
    double  margin; // least of: logit of the right answer minus the best other one
};

struct probe_result {
    int              n_rows;
    struct probe_row rows[PROBE_LENGTHS_MAX];
    int64_t          first_error; // earliest position of a wrong answer, from 1; 0: none
    double           seconds;
    bool             stopped; // Ctrl-C: what there is until then
};

enum probe_status {
    PROBE_OK,
    PROBE_MISFIT, // the model has no tokens for the task
    PROBE_FAILED,
    PROBE_NUMBERS, // a logit is not finite
};

// Accuracy by position, up to the greatest length.
enum probe_status probe_by_length(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct probe_result * result, char * err,
        size_t err_size);

// The score of Grazzi et al.: n_sequences of a random length from lengths[0] to lengths[1], the
// answer counted, and only the last answer asked for. One row.
enum probe_status probe_at_end(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct probe_result * result, char * err,
        size_t err_size);

// A sequence of the task as the model's tokens, with what the tokenizer puts before a text. *tokens
// is made with malloc.
bool probe_tokens(const struct lrnn_model * model, const struct task * task, uint64_t seed,
        int64_t length, int32_t ** tokens, int64_t * n_tokens, char * err, size_t err_size);

// (accuracy − chance)/(1 − chance): 1 is perfect, 0 is a guess.
double probe_scaled(const struct probe_row * row, double chance);
