#pragma once

// A job: what one request asks of the scheduler. It has one choice per answer, each a sequence of
// its own. The HTTP thread makes the job, waits for results and frees it; the scheduler fills in
// the results under the job's lock.

#include "base/buffer.h"
#include "generate/state-file.h"
#include "lrnn.h"
#include "request.h"

#include <pthread.h>
#include <stdatomic.h>

// The log-probability of a token, and the most likely tokens in its place.
struct token_score {
    int32_t token;
    float   log_prob; // NaN: unknown, the first token of a prompt
    int32_t n_top;
    int32_t top[REQUEST_TOP_MAX];
    float   top_log_prob[REQUEST_TOP_MAX];
};

enum choice_phase { CHOICE_WAITING, CHOICE_PROMPT, CHOICE_DECODE, CHOICE_DONE };

struct choice {
    struct job *    job;
    struct choice * next;   // in the lists of the scheduler
    struct choice * leader; // another choice with the same prompt, which computes it; NULL: none
    const int32_t * prompt; // [n_prompt], shared by the choices of a prompt; -1: unknown tokens
    int64_t         n_prompt;
    bool            follows; // the text follows that of the prompt, which is not empty
    uint64_t        seed;

    // results
    struct token_score * scores; // [n_scores]: of the prompt if wanted, then of every new token
    int64_t              n_scores;
    int64_t              n_prompt_scores; // 0 or n_prompt
    int64_t              n_cached;        // prompt tokens that were not computed
    int64_t              n_new;           // generated tokens, eos included
    struct buffer        text;            // generated, without the stop string
    enum lrnn_finish     finish;

    // of the scheduler
    enum choice_phase     phase;
    int32_t               seq;       // -1: none
    int64_t               order;     // of arrival
    bool                  has_begun; // its sequence is set
    int64_t               n_branch;  // length of the prefix shared with another prompt; 0: unknown
    int64_t               n_fed;     // tokens in the sequence
    int32_t *             tokens;    // [n_prompt + n_new]
    struct choice_tools * tools;
    struct lrnn_generation * generation; // NULL: not begun, or done
};

struct job_params {
    struct lrnn_generation_params generation; // without the seed
    int32_t                       n_top;      // -1: no log-probabilities
    bool                          score_prompt;
    const struct token_bias *     biases;
    int64_t                       n_biases;
    float frequency_penalty; // subtracted from a logit for every time that the token was generated
    float presence_penalty;  // subtracted once if it was
    int64_t n_stable;        // store the state after this many tokens of the prompt; 0: none
    bool    keep_state;      // copy the state to `state`
    const struct state_file * base; // a state of the first tokens of each prompt; NULL: none
};

struct job {
    struct job_params params;
    struct choice *   choices; // [n_choices]
    int64_t           n_choices;

    pthread_mutex_t   mutex; // guards the results
    pthread_cond_t    cond;  // signaled when there are new ones
    int64_t           n_done;
    struct lrnn_error err;   // of the first choice that failed
    struct state_file state; // of choice 0 before the last token of its prompt

    atomic_bool cancelled; // nobody waits for the results
};

// A job with n_choices empty choices; NULL: out of memory.
struct job * job_new(int64_t n_choices);

// Only when every choice is done, or the job was not submitted.
void job_free(struct job * job);

// Waits until there are more than n_seen results (see job_n_results), or the time is over. Returns
// their number. The caller holds the lock.
int64_t job_wait(struct job * job, int64_t n_seen, int64_t timeout_ms);

// The number of tokens generated and choices done: changes when there is something to send.
int64_t job_n_results(const struct job * job);
