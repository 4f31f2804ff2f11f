#include "probe.h"

#include "base/error.h"
#include "interrupt.h"
#include "terminal.h"

#include "ggml.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lane { // a sequence under way
    struct task_stream * stream;
    int64_t              length;
    int64_t              position; // symbols so far
    bool                 all_right;
};

struct run {
    struct lrnn_session * session;
    const struct task *   task;
    int32_t *             ids;    // of the task's symbols
    int32_t *             prefix; // what the model's tokenizer puts before a text
    int64_t               n_prefix;
    int64_t               n_vocab;
    int                   n_lanes;  // that there is room for
    int                   n_active; // that are in use
    struct lane *         lanes;
    int64_t               chunk;   // symbols a lane and call
    int32_t *             tokens;  // [n_lanes][chunk]
    int32_t *             answers; // the same, −1: not asked
    struct lrnn_input *   inputs;
    int *                 input_lane;
};

static void run_free(struct run * r) {
    for (int i = 0; r->lanes != NULL && i < r->n_lanes; ++i) {
        task_stream_free(r->lanes[i].stream);
    }
    lrnn_session_free(r->session);
    free(r->ids);
    free(r->prefix);
    free(r->lanes);
    free(r->tokens);
    free(r->answers);
    free(r->inputs);
    free(r->input_lane);
}

static int32_t find_token(const struct lrnn_model * model, int64_t n_vocab, const char * symbol) {
    const size_t size = strlen(symbol);
    for (int32_t id = 0; id < n_vocab; ++id) {
        size_t       n;
        const char * bytes = lrnn_token_bytes(model, id, &n);
        if (bytes != NULL && n == size && memcmp(bytes, symbol, size) == 0) {
            return id;
        }
    }
    return -1;
}

// Ids of the task's symbols [n_symbols], and the tokens before a text.
static bool find_tokens(const struct lrnn_model * model, const struct task * task, int32_t * ids,
        int32_t ** prefix, int64_t * n_prefix, char * err, size_t err_size) {
    const int64_t n_vocab = lrnn_model_get_info(model).n_vocab;
    for (int i = 0; i < task_n_symbols(task); ++i) {
        ids[i] = find_token(model, n_vocab, task_symbol(task, i));
        if (ids[i] < 0) {
            return error_set(err, err_size, "the model has no token '%s', which the task needs",
                    task_symbol(task, i));
        }
    }
    return lrnn_tokenize(model, "", 0, LRNN_TOKENIZE_ADD_BOS, prefix, n_prefix, err, err_size);
}

bool probe_tokens(const struct lrnn_model * model, const struct task * task, uint64_t seed,
        int64_t length, int32_t ** tokens, int64_t * n_tokens, char * err, size_t err_size) {
    int32_t *            ids    = calloc((size_t) task_n_symbols(task), sizeof(*ids));
    int32_t *            prefix = NULL;
    struct task_stream * stream = task_stream_new(task, seed, length = task_length(task, length));
    bool                 done   = false;

    *tokens   = NULL;
    *n_tokens = 0;
    snprintf(err, err_size, "out of memory for a sequence of %" PRId64 " symbols", length);
    if (ids != NULL && stream != NULL &&
            find_tokens(model, task, ids, &prefix, n_tokens, err, err_size)) {
        *tokens = malloc((size_t) (*n_tokens + length) * sizeof(**tokens));
        done    = *tokens != NULL;
        if (done && *n_tokens > 0) {
            memcpy(*tokens, prefix, (size_t) *n_tokens * sizeof(**tokens));
        }
        for (int64_t i = 0; i < length && done; ++i) {
            int32_t symbol, answer;
            done                     = task_stream_next(stream, &symbol, &answer);
            (*tokens)[(*n_tokens)++] = done ? ids[symbol] : 0;
        }
    }
    task_stream_free(stream);
    free(prefix);
    free(ids);
    return done;
}

static enum probe_status run_open(struct run * r, struct lrnn_model * model,
        const struct task * task, const struct probe_params * params, char * err, size_t err_size) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    const int64_t few = 1 << 24; // logits kept at once: a large vocabulary gets shorter calls

    *r            = (struct run) { .task = task, .n_vocab = info.n_vocab };
    r->n_lanes    = (int) (params->n_sequences < 64 ? params->n_sequences : 64);
    r->chunk      = params->n_batch / r->n_lanes;
    r->chunk      = r->chunk < few / (r->n_lanes * info.n_vocab) ? r->chunk
                                                                 : few / (r->n_lanes * info.n_vocab);
    r->chunk      = r->chunk > 0 ? r->chunk : 1;
    r->ids        = calloc((size_t) task_n_symbols(task), sizeof(*r->ids));
    r->lanes      = calloc((size_t) r->n_lanes, sizeof(*r->lanes));
    r->tokens     = calloc((size_t) (r->n_lanes * r->chunk), sizeof(*r->tokens));
    r->answers    = calloc((size_t) (r->n_lanes * r->chunk), sizeof(*r->answers));
    r->inputs     = calloc((size_t) r->n_lanes, sizeof(*r->inputs));
    r->input_lane = calloc((size_t) r->n_lanes, sizeof(*r->input_lane));
    if (r->ids == NULL || r->lanes == NULL || r->tokens == NULL || r->answers == NULL ||
            r->inputs == NULL || r->input_lane == NULL) {
        snprintf(err, err_size, "out of memory for %d sequences", r->n_lanes);
        return PROBE_FAILED;
    }
    if (!find_tokens(model, task, r->ids, &r->prefix, &r->n_prefix, err, err_size)) {
        return PROBE_MISFIT;
    }
    r->session = lrnn_session_new(model,
            &(struct lrnn_session_params) {
                    .n_threads = params->n_threads,
                    .n_seqs    = r->n_lanes,
                    .n_batch   = params->n_batch,
                    .n_cache   = (int32_t) (info.n_layer_attention == 0
                                                    ? 0
                                                    : params->lengths[params->n_lengths - 1] +
                                                            r->n_prefix),
            },
            err, err_size);
    return r->session != NULL ? PROBE_OK : PROBE_FAILED;
}

static enum probe_status lane_start(
        struct run * r, int i, uint64_t seed, int64_t length, char * err, size_t err_size) {
    task_stream_free(r->lanes[i].stream);
    r->lanes[i] = (struct lane) {
        .stream = task_stream_new(r->task, seed, length), .length = length, .all_right = true
    };
    if (r->lanes[i].stream == NULL) {
        snprintf(err, err_size, "out of memory for a sequence");
        return PROBE_FAILED;
    }
    const bool ready = lrnn_seq_reset(r->session, i, err, err_size) &&
                       (r->n_prefix == 0 || lrnn_eval(r->session,
                                                    &(struct lrnn_input) { .seq = i,
                                                            .tokens             = r->prefix,
                                                            .n_tokens           = r->n_prefix },
                                                    1, err, err_size));
    return ready ? PROBE_OK : PROBE_FAILED;
}

// The next symbols of every lane that is not done, through the model; *n_inputs is 0 when all are
// done.
// - n_logits: for each of them, or for the last one of a sequence alone
static enum probe_status advance(
        struct run * r, bool end_only, int * n_inputs, char * err, size_t err_size) {
    *n_inputs = 0;
    for (int i = 0; i < r->n_active; ++i) {
        struct lane * lane = &r->lanes[i];
        const int64_t left = lane->length - lane->position;
        const int64_t n    = left < r->chunk ? left : r->chunk;
        if (n == 0) {
            continue;
        }
        for (int64_t j = 0; j < n; ++j) {
            int32_t symbol, answer;
            if (!task_stream_next(lane->stream, &symbol, &answer)) {
                snprintf(err, err_size, "out of memory for a sequence of %" PRId64 " symbols",
                        lane->length);
                return PROBE_FAILED;
            }
            r->tokens[i * r->chunk + j]  = r->ids[symbol];
            r->answers[i * r->chunk + j] = answer < 0 ? -1 : r->ids[answer];
        }
        r->input_lane[*n_inputs] = i;
        r->inputs[(*n_inputs)++] = (struct lrnn_input) {
            .seq      = i,
            .tokens   = r->tokens + i * r->chunk,
            .n_tokens = n,
            .n_logits = !end_only   ? n
                        : left == n ? 1
                                    : 0,
        };
    }
    return *n_inputs == 0 || lrnn_eval(r->session, r->inputs, *n_inputs, err, err_size)
                   ? PROBE_OK
                   : PROBE_FAILED;
}

// Whether the model's most likely token is the answer, the first of several that are equal; by how
// much it is ahead of the best other one.
static enum probe_status judge(const struct run * r, const float * logits, int32_t answer,
        bool * right, double * margin, char * err, size_t err_size) {
    double  other = -INFINITY;
    int64_t best  = 0;
    for (int64_t k = 0; k < r->n_vocab; ++k) {
        if (!isfinite(logits[k])) {
            snprintf(err, err_size, "logit %" PRId64 " is not a finite number", k);
            return PROBE_NUMBERS;
        }
        if (k != answer && logits[k] > other) {
            other = logits[k];
        }
        best = logits[k] > logits[best] ? k : best;
    }
    *margin = logits[answer] - other;
    *right  = best == answer;
    return PROBE_OK;
}

static void count(struct probe_row * row, bool right, double margin) {
    row->n_asked++;
    row->n_right += right;
    row->margin = margin < row->margin ? margin : row->margin;
}

enum probe_status probe_by_length(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct probe_result * result, char * err,
        size_t err_size) {
    struct run        r;
    struct progress   progress;
    const int64_t     longest = task_length(task, params->lengths[params->n_lengths - 1]);
    const int64_t     start   = ggml_time_us();
    enum probe_status status  = run_open(&r, model, task, params, err, err_size);

    *result = (struct probe_result) { .n_rows = params->n_lengths };
    for (int k = 0; k < params->n_lengths; ++k) {
        result->rows[k] = (struct probe_row) { .length = params->lengths[k], .margin = INFINITY };
    }
    progress_begin(&progress, params->quiet
                                      ? 0
                                      : (int) ((params->n_sequences + r.n_lanes - 1) / r.n_lanes *
                                                ((longest + r.chunk - 1) / r.chunk)));
    for (int64_t first = 0; first < params->n_sequences && status == PROBE_OK && !result->stopped;
            first += r.n_lanes) {
        const int64_t left = params->n_sequences - first;
        r.n_active         = (int) (left < r.n_lanes ? left : r.n_lanes);
        for (int i = 0; i < r.n_active && status == PROBE_OK; ++i) {
            status = lane_start(
                    &r, i, params->seed + (uint64_t) (first + i), longest, err, err_size);
        }
        int n_inputs = 1;
        int row      = 0;
        while (status == PROBE_OK && n_inputs > 0 && !(result->stopped = interrupt_seen())) {
            progress_step(&progress, "asking");
            status = advance(&r, false, &n_inputs, err, err_size);
            // all lanes have the same length and position: position by position, so that rows end
            // where they should
            for (int64_t j = 0; status == PROBE_OK && n_inputs > 0 && j < r.inputs[0].n_tokens;
                    ++j) {
                const int64_t position = r.lanes[0].position + j + 1;
                while (position > result->rows[row].length && row + 1 < result->n_rows) {
                    ++row;
                }
                for (int i = 0; i < n_inputs && status == PROBE_OK; ++i) {
                    const int32_t answer = r.answers[i * r.chunk + j];
                    bool          right;
                    double        margin;
                    if (answer < 0) {
                        continue;
                    }
                    status = judge(&r, lrnn_logits(r.session, i * r.inputs[0].n_tokens + j), answer,
                            &right, &margin, err, err_size);
                    if (status == PROBE_OK) {
                        count(&result->rows[row], right, margin);
                    }
                    if (status == PROBE_OK && !right) {
                        r.lanes[i].all_right = false;
                        if (result->first_error == 0 || position < result->first_error) {
                            result->first_error = position;
                        }
                    }
                }
                if (position == task_length(task, result->rows[row].length)) {
                    for (int i = 0; i < n_inputs; ++i) {
                        result->rows[row].n_sequences++;
                        result->rows[row].n_all_right += r.lanes[i].all_right;
                    }
                }
            }
            for (int i = 0; i < n_inputs; ++i) {
                r.lanes[r.input_lane[i]].position += r.inputs[i].n_tokens;
            }
            progress_done(&progress);
        }
    }
    progress_clear(&progress);
    result->seconds = 1e-6 * (double) (ggml_time_us() - start);
    run_free(&r);
    return status;
}

enum probe_status probe_at_end(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct probe_result * result, char * err,
        size_t err_size) {
    struct run        r;
    struct progress   progress;
    const int64_t     lo = params->lengths[0], hi = params->lengths[1];
    const int64_t     start  = ggml_time_us();
    enum probe_status status = run_open(&r, model, task, params, err, err_size);
    uint64_t          seed   = params->seed;

    *result =
            (struct probe_result) { .n_rows = 1, .rows = { { .length = hi, .margin = INFINITY } } };
    struct probe_row * row = &result->rows[0];
    progress_begin(&progress,
            params->quiet ? 0 : (int) ((params->n_sequences + r.n_lanes - 1) / r.n_lanes));
    for (int64_t first = 0; first < params->n_sequences && status == PROBE_OK && !result->stopped;
            first += r.n_lanes) {
        const int64_t left = params->n_sequences - first;
        r.n_active         = (int) (left < r.n_lanes ? left : r.n_lanes);
        progress_step(&progress, "asking");
        for (int i = 0; i < r.n_active && status == PROBE_OK; ++i, ++seed) {
            // the paper's length counts the answer, which is not shown to the model
            const int64_t spread =
                    (int64_t) ((seed * 0x9e3779b97f4a7c15u >> 32) % (uint64_t) (hi - lo + 1));
            status = lane_start(&r, i, seed, task_length(task, lo + spread - 1), err, err_size);
        }
        int n_inputs = 1;
        while (status == PROBE_OK && n_inputs > 0 && !(result->stopped = interrupt_seen())) {
            status     = advance(&r, true, &n_inputs, err, err_size);
            int64_t at = 0;
            for (int i = 0; i < n_inputs && status == PROBE_OK; ++i) {
                struct lane * lane = &r.lanes[r.input_lane[i]];
                lane->position += r.inputs[i].n_tokens;
                if (r.inputs[i].n_logits == 0) {
                    continue;
                }
                const int32_t answer =
                        r.answers[r.input_lane[i] * r.chunk + r.inputs[i].n_tokens - 1];
                bool   right;
                double margin;
                status = judge(
                        &r, lrnn_logits(r.session, at++), answer, &right, &margin, err, err_size);
                if (status == PROBE_OK) {
                    count(row, right, margin);
                    row->n_sequences++;
                    row->n_all_right += right;
                }
            }
        }
        progress_done(&progress);
    }
    progress_clear(&progress);
    result->seconds = 1e-6 * (double) (ggml_time_us() - start);
    run_free(&r);
    return status;
}

double probe_scaled(const struct probe_row * row, double chance) {
    return row->n_asked == 0
                   ? NAN
                   : ((double) row->n_right / (double) row->n_asked - chance) / (1.0 - chance);
}
