#include "eval/tasks/probe.h"

#include "base/error.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANES_MAX = 64,
    LOGITS_MAX = 1 << 24, // kept at once; models with a large vocabulary make shorter calls
};

// A sequence of the session.
struct lane {
    struct task_stream * stream;
    int64_t              length;
    int64_t              position; // symbols so far
    bool                 all_right;
};

struct run {
    struct lrnn_session * session;
    const struct task *   task;
    int32_t *             ids;    // of the symbols
    int32_t *             prefix; // tokens before a text
    int64_t               n_prefix;
    int64_t               n_vocab;
    int                   n_lanes;  // allocated
    int                   n_active; // in use
    struct lane *         lanes;
    int64_t               n_step;  // symbols per lane and call
    int32_t *             tokens;  // [n_lanes][n_step]
    int32_t *             answers; // [n_lanes][n_step]; −1: none
    struct lrnn_input *   inputs;
    probe_observe         observe;
    void *                observe_user;
};

static void run_free(struct run * r) {
    for (int i = 0; i < r->n_lanes; ++i) {
        task_stream_free(r->lanes[i].stream);
    }
    lrnn_session_free(r->session);
    free(r->ids);
    free(r->prefix);
    free(r->lanes);
    free(r->tokens);
    free(r->answers);
    free(r->inputs);
}

static int32_t find_bytes(
        const struct lrnn_model * model, int64_t n_vocab, const char * text, size_t size) {
    for (int32_t id = 0; id < n_vocab; ++id) {
        size_t       n;
        const char * bytes = lrnn_token_bytes(model, id, &n);
        if (bytes != NULL && n == size && memcmp(bytes, text, size) == 0) {
            return id;
        }
    }
    return -1;
}

// A letter that a word cannot contain is written \xNN. Models that read bytes have a token for the
// byte, others one with this name.
static int32_t find_token(const struct lrnn_model * model, int64_t n_vocab, const char * symbol) {
    const int32_t id = find_bytes(model, n_vocab, symbol, strlen(symbol));
    if (id >= 0 || strlen(symbol) != 4 || strncmp(symbol, "\\x", 2) != 0 ||
            strspn(symbol + 2, "0123456789abcdef") != 2) {
        return id;
    }
    const char byte = (char) strtol(symbol + 2, NULL, 16);
    return find_bytes(model, n_vocab, &byte, 1);
}

// Finds the ids of the symbols [n_symbols], and the tokens that come before a text.
static bool find_tokens(const struct lrnn_model * model, const struct task * task, int32_t * ids,
        int32_t ** prefix, int64_t * n_prefix, struct lrnn_error * err) {
    const int64_t n_vocab = lrnn_model_get_info(model).n_vocab;
    for (int i = 0; i < task_n_symbols(task); ++i) {
        ids[i] = find_token(model, n_vocab, task_symbol(task, i));
        if (ids[i] < 0) {
            return error_bad_input(
                    err, "the model has no token '%s', which the task needs", task_symbol(task, i));
        }
    }
    return lrnn_tokenize(model, "", 0, LRNN_TOKENIZE_ADD_BOS, prefix, n_prefix, err);
}

bool probe_tokens(const struct lrnn_model * model, const struct task * task, uint64_t seed,
        int64_t length, int32_t ** tokens, int64_t * n_tokens, struct lrnn_error * err) {
    int32_t * ids = program_alloc((size_t) task_n_symbols(task), sizeof(*ids));
    int32_t * prefix = NULL;
    *tokens = NULL;
    *n_tokens = 0;
    length = task_length(task, length);
    if (find_tokens(model, task, ids, &prefix, n_tokens, err)) {
        struct task_stream * stream = task_stream_new(task, seed, length);
        *tokens = program_alloc((size_t) (*n_tokens + length), sizeof(**tokens));
        for (int64_t i = 0; i < *n_tokens; ++i) {
            (*tokens)[i] = prefix[i];
        }
        for (int64_t i = 0; i < length; ++i) {
            int32_t symbol, answer;
            task_stream_next(stream, &symbol, &answer);
            (*tokens)[(*n_tokens)++] = ids[symbol];
        }
        task_stream_free(stream);
    }
    free(prefix);
    free(ids);
    return *tokens != NULL;
}

// Finds the most likely token, the first of equal ones. Sets *margin to the logit of the answer
// minus the best other one.
static bool judge(int64_t n_vocab, const float * logits, int32_t answer, int32_t * token,
        double * margin, struct lrnn_error * err) {
    double  other = -INFINITY;
    int32_t best = 0;
    for (int32_t k = 0; k < n_vocab; ++k) {
        if (!isfinite(logits[k])) {
            return error_set(err, LRNN_ERROR_NOT_FINITE, "logit %" PRId32 " is not finite", k);
        }
        if (k != answer && logits[k] > other) {
            other = logits[k];
        }
        best = logits[k] > logits[best] ? k : best;
    }
    *margin = logits[answer] - other;
    *token = best;
    return true;
}

bool probe_symbols(struct lrnn_model * model, const struct task * task,
        const struct lrnn_session_params * session, const int32_t * symbols, int64_t n,
        int32_t * tokens, struct lrnn_error * err) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    struct lrnn_session_params   params = *session;
    struct lrnn_session *        opened = NULL;
    int32_t *                    ids = program_alloc((size_t) task_n_symbols(task), sizeof(*ids));
    int32_t *                    prefix = NULL;
    int32_t *                    text = NULL; // the prefix and the symbols
    int64_t                      n_prefix = 0;

    bool ok = find_tokens(model, task, ids, &prefix, &n_prefix, err);
    if (ok) {
        text = program_alloc((size_t) (n_prefix + n), sizeof(*text));
        for (int64_t i = 0; i < n_prefix + n; ++i) {
            text[i] = i < n_prefix ? prefix[i] : ids[symbols[i - n_prefix]];
        }
        params.n_cache = info.n_layer_attention > 0 ? (int32_t) (n_prefix + n) : 0;
        opened = lrnn_session_new(model, &params, err);
        const struct lrnn_input input = { .tokens = text, .n_tokens = n_prefix + n, .n_logits = n };
        ok = opened != NULL && lrnn_eval(opened, &input, 1, err);
    }
    for (int64_t i = 0; i < n && ok; ++i) {
        double margin; // not used: the answer may not exist
        ok = judge(info.n_vocab, lrnn_logits(opened, i), 0, &tokens[i], &margin, err);
    }
    lrnn_session_free(opened);
    free(text);
    free(prefix);
    free(ids);
    return ok;
}

static bool run_open(struct run * r, struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct lrnn_error * err) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    const int64_t n_lanes = params->n_sequences < LANES_MAX ? params->n_sequences : LANES_MAX;
    const int64_t n_most = LOGITS_MAX / (n_lanes * info.n_vocab);
    const int64_t n_step = params->n_batch / n_lanes < n_most ? params->n_batch / n_lanes : n_most;

    *r = (struct run) { .task = task,
        .n_vocab = info.n_vocab,
        .n_lanes = (int) n_lanes,
        .observe = params->observe,
        .observe_user = params->observe_user,
        .n_step = n_step > 0 ? n_step : 1 };

    r->ids = program_alloc((size_t) task_n_symbols(task), sizeof(*r->ids));
    r->lanes = program_alloc((size_t) n_lanes, sizeof(*r->lanes));
    r->tokens = program_alloc((size_t) (n_lanes * r->n_step), sizeof(*r->tokens));
    r->answers = program_alloc((size_t) (n_lanes * r->n_step), sizeof(*r->answers));
    r->inputs = program_alloc((size_t) n_lanes, sizeof(*r->inputs));
    if (!find_tokens(model, task, r->ids, &r->prefix, &r->n_prefix, err)) {
        return false;
    }
    const int64_t              longest = params->lengths[params->n_lengths - 1] + r->n_prefix;
    struct lrnn_session_params session = params->session;
    session.n_seqs = r->n_lanes;
    session.n_batch = params->n_batch;
    session.n_cache = info.n_layer_attention > 0 ? (int32_t) longest : 0;
    r->session = lrnn_session_new(model, &session, err);
    return r->session != NULL;
}

static bool lane_start(
        struct run * r, int i, uint64_t seed, int64_t length, struct lrnn_error * err) {
    task_stream_free(r->lanes[i].stream);
    r->lanes[i] = (struct lane) {
        .stream = task_stream_new(r->task, seed, length), .length = length, .all_right = true
    };
    const struct lrnn_input prefix = { .seq = i, .tokens = r->prefix, .n_tokens = r->n_prefix };
    return lrnn_seq_reset(r->session, i, err) &&
           (r->n_prefix == 0 || lrnn_eval(r->session, &prefix, 1, err));
}

// Feeds the next symbols of all lanes that are not done; *n_inputs is 0 when all are.
// - end_only: compute only the logits of the last symbol of each sequence
static bool advance(struct run * r, bool end_only, int * n_inputs, struct lrnn_error * err) {
    *n_inputs = 0;
    for (int i = 0; i < r->n_active; ++i) {
        struct lane * lane = &r->lanes[i];
        const int64_t left = lane->length - lane->position;
        const int64_t n = left < r->n_step ? left : r->n_step;
        if (n == 0) {
            continue;
        }
        for (int64_t j = 0; j < n; ++j) {
            int32_t symbol, answer;
            task_stream_next(lane->stream, &symbol, &answer);
            r->tokens[i * r->n_step + j] = r->ids[symbol];
            r->answers[i * r->n_step + j] = answer < 0 ? -1 : r->ids[answer];
        }
        r->inputs[(*n_inputs)++] = (struct lrnn_input) {
            .seq = i,
            .tokens = r->tokens + i * r->n_step,
            .n_tokens = n,
            .n_logits = end_only ? left == n : n,
        };
    }
    return *n_inputs == 0 || lrnn_eval(r->session, r->inputs, *n_inputs, err);
}

static struct probe_row * row_at(struct probe_result * result, int64_t position) {
    int i = 0;
    while (position > result->rows[i].length && i + 1 < result->n_rows) {
        ++i;
    }
    return &result->rows[i];
}

// Judges the answers of one input.
// - logits: index of the first logits of the input
static bool score(struct run * r, const struct lrnn_input * input, int64_t logits, bool end_only,
        struct probe_result * result, struct lrnn_error * err) {
    struct lane * lane = &r->lanes[input->seq];
    const int64_t first = input->n_tokens - input->n_logits;

    for (int64_t j = first; j < input->n_tokens; ++j) {
        const int64_t      position = lane->position + j + 1;
        const int32_t      answer = r->answers[input->seq * r->n_step + j];
        struct probe_row * row = row_at(result, position);
        bool               right = true;
        double             margin = INFINITY;
        if (answer >= 0) {
            const float * at = lrnn_logits(r->session, logits + j - first);
            int32_t       token = -1;
            if (!judge(r->n_vocab, at, answer, &token, &margin, err)) {
                return false;
            }
            right = token == answer;
            if (r->observe != NULL) {
                r->observe(position, answer, at, r->observe_user);
            }
            row->n_asked++;
            row->n_right += right;
            row->margin = margin < row->margin ? margin : row->margin;
        }
        lane->all_right = lane->all_right && right;
        if (!right && !end_only && (result->first_error == 0 || position < result->first_error)) {
            result->first_error = position;
        }
        if (end_only || position == task_length(r->task, row->length)) {
            row->n_sequences++;
            row->n_all_right += lane->all_right;
        }
    }
    lane->position += input->n_tokens;
    return true;
}

// The length of a sequence. That of the paper counts the answer, which the model does not see.
static int64_t length_of(const struct task * task, const struct probe_params * params,
        bool end_only, uint64_t seed) {
    const int64_t lo = params->lengths[0], hi = params->lengths[params->n_lengths - 1];
    if (!end_only) {
        return task_length(task, hi);
    }
    const uint64_t spread = (seed * 0x9e3779b97f4a7c15u >> 32) % (uint64_t) (hi - lo + 1);
    return task_length(task, lo + (int64_t) spread - 1);
}

// - steps: calls per group of sequences, for progress
static bool run(struct run * r, const struct probe_params * params, bool end_only, int64_t steps,
        struct probe_result * result, struct lrnn_error * err) {
    const int64_t n_groups = (params->n_sequences + r->n_lanes - 1) / r->n_lanes;

    for (int64_t g = 0; g < n_groups; ++g) {
        const int64_t first = g * r->n_lanes;
        const int64_t left = params->n_sequences - first;
        r->n_active = (int) (left < r->n_lanes ? left : r->n_lanes);
        for (int i = 0; i < r->n_active; ++i) {
            const uint64_t seed = params->seed + (uint64_t) (first + i);
            if (!lane_start(r, i, seed, length_of(r->task, params, end_only, seed), err)) {
                return false;
            }
        }
        int n_inputs = 1;
        for (int64_t step = 0; n_inputs > 0; ++step) {
            const int64_t done = g * steps + (step < steps ? step : steps - 1);
            if (params->progress != NULL &&
                    !params->progress(done, n_groups * steps, params->user)) {
                result->stopped = true;
                return true;
            }
            if (!advance(r, end_only, &n_inputs, err)) {
                return false;
            }
            int64_t logits = 0;
            for (int i = 0; i < n_inputs; ++i) {
                if (!score(r, &r->inputs[i], logits, end_only, result, err)) {
                    return false;
                }
                logits += r->inputs[i].n_logits;
            }
        }
    }
    return true;
}

static bool probe(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, bool end_only, struct probe_result * result,
        struct lrnn_error * err) {
    const int64_t longest = params->lengths[params->n_lengths - 1];
    struct run    r;
    const bool    ok = run_open(&r, model, task, params, err) &&
                    run(&r, params, end_only, (longest + r.n_step - 1) / r.n_step, result, err);
    run_free(&r);
    return ok;
}

bool probe_by_length(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct probe_result * result, struct lrnn_error * err) {
    *result = (struct probe_result) { .n_rows = params->n_lengths };
    for (int k = 0; k < params->n_lengths; ++k) {
        result->rows[k] = (struct probe_row) { .length = params->lengths[k], .margin = INFINITY };
    }
    return probe(model, task, params, false, result, err);
}

bool probe_at_end(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct probe_result * result, struct lrnn_error * err) {
    *result = (struct probe_result) { .n_rows = 1,
        .rows = { { .length = params->lengths[1], .margin = INFINITY } } };
    return probe(model, task, params, true, result, err);
}

double probe_scaled(const struct probe_row * row, double chance) {
    return row->n_asked == 0
                   ? NAN
                   : ((double) row->n_right / (double) row->n_asked - chance) / (1.0 - chance);
}
