// lrnn_eval: cuts the inputs of a call into batches and runs the graph of each.

#include "base/error.h"
#include "model/context.h"
#include "run/graph-safety.h"
#include "run/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- One batch ----------------------------------------------------------------------------------

// A graph can be reused if only its inputs differ. The graph of an attention layer also depends on
// the views of the caches.
static bool can_reuse(
        const struct lrnn_session * s, const struct pass * pass, const struct batch * batch) {
    const struct batch * built = &pass->built;
    const bool           attends = s->model->info.n_layer_attention > 0 || batch->hidden != NULL;
    if (!pass->can_compute || built->n_tokens != batch->n_tokens ||
            built->n_seqs != batch->n_seqs || built->n_outputs != batch->n_outputs) {
        return false;
    }
    for (int32_t i = 0; i < batch->n_seqs && attends; ++i) {
        const struct graph_seq *a = &built->seqs[i], *b = &batch->seqs[i];
        if (a->seq != b->seq || a->first != b->first || a->count != b->count ||
                a->visible != b->visible) {
            return false;
        }
    }
    return true;
}

// ggml aborts without memory for the tables of its graph allocator.
static bool check_memory(struct ggml_cgraph * graph, struct lrnn_error * err) {
    const int n = ggml_graph_n_nodes(graph);
    return memory_is_available((size_t) n * 1024 + (1 << 20)) ||
           error_no_memory(err, "a graph of %d nodes", n);
}

static bool build(struct lrnn_session * s, struct pass * pass, const struct batch * batch,
        struct lrnn_error * err) {
    const bool by_token = s->params.exact_cuts || batch->n_tokens <= GRAPH_FEW_TOKENS;
    const enum ggml_scan_path path = by_token ? GGML_SCAN_PATH_STEP : GGML_SCAN_PATH_AUTO;
    struct trace *            trace = pass == &s->main ? s->trace : NULL;
    struct forward *          f = &pass->forward;
    pass->can_compute = false;
    if (!forward_build(f, s->model, &s->states, batch, path, err) ||
            (trace != NULL && !trace_graph(trace, s->model, &s->states, f->graph, err)) ||
            !check_memory(f->graph, err) || !graph_alloc(pass->sched, f->graph, err)) {
        return false;
    }
    struct graph_seq * seqs = pass->built.seqs;
    memcpy(seqs, batch->seqs, (size_t) batch->n_seqs * sizeof(*seqs));
    pass->built = *batch;
    pass->built.seqs = seqs;
    pass->can_compute = true;
    return true;
}

bool pass_compute(struct lrnn_session * s, struct pass * pass, const struct batch * batch,
        struct lrnn_error * err) {
    struct trace * trace = pass == &s->main ? s->trace : NULL;
    if (trace != NULL && !trace_begin(trace, batch)) {
        return error_no_memory(err, "a trace of %d sequences", batch->n_seqs);
    }
    const int64_t start = ggml_time_us();
    ggml_backend_set_threads(
            s->backends[s->n_backends - 1], threads_choose(&pass->threads, batch->n_tokens));
    const enum ggml_status status =
            ggml_backend_sched_graph_compute(pass->sched, pass->forward.graph);
    if (status != GGML_STATUS_SUCCESS) {
        return status == GGML_STATUS_ALLOC_FAILED
                       ? error_no_memory(err, "the work buffer of a graph")
                       : error_set(err, LRNN_ERROR_DEVICE, "the graph could not be computed");
    }
    threads_measure(&pass->threads, (double) (ggml_time_us() - start) * 1e-6);
    return trace == NULL || trace_end(trace, err);
}

bool pass_prepare(struct lrnn_session * s, struct pass * pass, const struct batch * batch,
        struct lrnn_error * err) {
    return (can_reuse(s, pass, batch) || build(s, pass, batch, err)) &&
           graph_inputs_fill(&pass->forward.inputs, s->model, &s->states, batch, err);
}

// Rounds the new states, if they have another format.
static void advance(struct lrnn_session * s, const struct batch * batch) {
    for (int32_t i = 0; i < batch->n_seqs; ++i) {
        struct seq * q = &s->seqs[batch->seqs[i].seq];
        q->length += batch->seqs[i].count;
        states_round(&s->states, s->model, batch->seqs[i].seq, q->length, s->params.state_type);
        q->rewindable += batch->seqs[i].count;
        if (q->rewindable > s->params.n_rewind) {
            q->rewindable = s->params.n_rewind;
        }
    }
}

// ---- One call -----------------------------------------------------------------------------------

struct call {
    const struct lrnn_input * inputs;
    int32_t                   n_inputs;
    int64_t *                 done;     // [n_inputs], tokens computed so far
    int64_t *                 row;      // [n_inputs], next row of the logits
    int32_t *                 of_input; // [sequences of the batch], the input of each
    struct batch              batch;
};

static bool check_input(
        const struct lrnn_session * s, const struct lrnn_input * in, struct lrnn_error * err) {
    if (in->n_tokens < 1) {
        return error_bad_input(err, "sequence %d: n_tokens is %" PRId64 "; expected 1 or more",
                in->seq, in->n_tokens);
    }
    if (in->n_logits < 0 || in->n_logits > in->n_tokens) {
        return error_bad_input(err, "sequence %d: n_logits is %" PRId64 "; expected 0 to %" PRId64,
                in->seq, in->n_logits, in->n_tokens);
    }
    for (int64_t t = 0; t < in->n_tokens; ++t) {
        if (in->tokens[t] < 0 || in->tokens[t] >= s->model->info.n_vocab) {
            return error_bad_input(err,
                    "sequence %d: token %" PRId64 " is %d; expected 0 to %" PRId64, in->seq, t,
                    in->tokens[t], s->model->info.n_vocab - 1);
        }
    }
    const int64_t length = s->seqs[in->seq].length;
    if (in->n_tokens > session_max_length(s) - length) {
        return error_bad_input(err,
                "sequence %d: %" PRId64 " tokens do not fit the attention cache of %d", in->seq,
                length + in->n_tokens, s->params.n_cache);
    }
    return true;
}

static bool check_inputs(const struct lrnn_session * s, const struct lrnn_input * inputs,
        int32_t n_inputs, struct lrnn_error * err) {
    if (n_inputs < 1 || n_inputs > s->params.n_seqs) {
        return error_bad_input(err, "n_inputs is %d; expected 1 to %d", n_inputs, s->params.n_seqs);
    }
    for (int32_t i = 0; i < n_inputs; ++i) {
        if (!session_check_seq(s, inputs[i].seq, err)) {
            return false;
        }
        for (int32_t j = 0; j < i; ++j) {
            if (inputs[j].seq == inputs[i].seq) {
                return error_bad_input(err, "sequence %d appears twice in one call", inputs[i].seq);
            }
        }
        if (!check_input(s, &inputs[i], err)) {
            return false;
        }
    }
    return true;
}

// Takes the next tokens of every input: as many as fit into a batch, or one of each if states are
// rounded.
static void next_batch(const struct lrnn_session * s, struct call * call) {
    const bool     one = s->params.state_type != LRNN_STATE_F32;
    struct batch * batch = &call->batch;
    batch->n_seqs = 0;
    batch->n_tokens = batch->n_outputs = 0;
    for (int32_t i = 0; i < call->n_inputs && batch->n_tokens < s->params.n_batch; ++i) {
        const struct lrnn_input * in = &call->inputs[i];
        const int64_t             begin = call->done[i];
        const int64_t             left = one && begin < in->n_tokens ? 1 : in->n_tokens - begin;
        const int64_t             room = s->params.n_batch - batch->n_tokens;
        const int64_t             count = left < room ? left : room;
        if (count == 0) {
            continue;
        }
        const int64_t end = begin + count;
        const int64_t first_output = in->n_tokens - in->n_logits;
        const int64_t n_outputs =
                end > first_output ? end - (first_output > begin ? first_output : begin) : 0;
        const int64_t length = s->seqs[in->seq].length;
        call->of_input[batch->n_seqs] = i;
        batch->seqs[batch->n_seqs++] = (struct graph_seq) {
            .seq = in->seq,
            .first = batch->n_tokens,
            .count = count,
            .position = length,
            .visible = cache_round_up(length + count),
            .n_outputs = n_outputs,
            .tokens = in->tokens + begin,
        };
        batch->n_tokens += count;
        batch->n_outputs += n_outputs;
    }
}

// Copies the logits of a batch to the rows of their inputs.
static void keep_logits(struct lrnn_session * s, struct call * call) {
    const int64_t V = s->model->info.n_vocab;
    const size_t  row = (size_t) V * sizeof(float);
    int64_t       at = 0;
    for (int32_t i = 0; i < call->batch.n_seqs; ++i) {
        const int64_t n = call->batch.seqs[i].n_outputs;
        int64_t *     next = &call->row[call->of_input[i]];
        if (n > 0) {
            ggml_backend_tensor_get(s->main.forward.logits, s->logits + *next * V,
                    (size_t) at * row, (size_t) n * row);
        }
        *next += n;
        at += n;
    }
}

// Empties the sequences of a call: some of its tokens were computed, and the states of the last
// batch are half written.
static void reset_seqs(struct lrnn_session * s, const struct call * call) {
    for (int32_t i = 0; i < call->n_inputs; ++i) {
        const struct lrnn_input * in = &call->inputs[i];
        const int64_t             end = s->seqs[in->seq].length + in->n_tokens - call->done[i];
        states_clear_cache(&s->states, s->model, in->seq, 0, end);
        s->seqs[in->seq] = (struct seq) { 0 };
    }
}

static bool run_call(
        struct lrnn_session * s, struct call * call, int64_t n_tokens, struct lrnn_error * err) {
    for (int32_t i = 1; i < call->n_inputs; ++i) {
        call->row[i] = call->row[i - 1] + call->inputs[i - 1].n_logits;
    }
    for (int64_t done = 0; done < n_tokens; done += call->batch.n_tokens) {
        next_batch(s, call);
        const bool is_ready = pass_prepare(s, &s->main, &call->batch, err);
        if (!is_ready || !pass_compute(s, &s->main, &call->batch, err)) {
            if (is_ready || done > 0) {
                reset_seqs(s, call);
            }
            return false;
        }
        advance(s, &call->batch);
        keep_logits(s, call);
        for (int32_t i = 0; i < call->batch.n_seqs; ++i) {
            call->done[call->of_input[i]] += call->batch.seqs[i].count;
        }
    }
    for (int32_t i = 0; i < call->n_inputs; ++i) { // row is now past the last one of each input
        s->seqs[call->inputs[i].seq].logits = call->inputs[i].n_logits > 0 ? call->row[i] : 0;
    }
    return true;
}

bool session_reserve_logits(struct lrnn_session * s, int64_t n, struct lrnn_error * err) {
    if (n <= s->cap_logits) {
        return true;
    }
    float * logits =
            realloc(s->logits, (size_t) n * (size_t) s->model->info.n_vocab * sizeof(float));
    if (logits == NULL) {
        return error_no_memory(err, "the logits of %" PRId64 " tokens; request fewer per call", n);
    }
    s->logits = logits;
    s->cap_logits = n;
    return true;
}

void session_forget_logits(struct lrnn_session * s) {
    s->n_logits = 0;
    for (int32_t i = 0; i < s->params.n_seqs; ++i) {
        s->seqs[i].logits = 0;
    }
}

bool lrnn_eval(struct lrnn_session * s, const struct lrnn_input * inputs, int32_t n_inputs,
        struct lrnn_error * err) {
    session_forget_logits(s);
    if (!check_inputs(s, inputs, n_inputs, err)) {
        return false;
    }
    int64_t n_logits = 0;
    int64_t n_tokens = 0;
    for (int32_t i = 0; i < n_inputs; ++i) {
        n_logits += inputs[i].n_logits;
        n_tokens += inputs[i].n_tokens;
    }
    if (!session_reserve_logits(s, n_logits, err)) {
        return false;
    }
    const size_t n = (size_t) n_inputs;
    struct call  call = {
         .inputs = inputs,
         .n_inputs = n_inputs,
         .done = calloc(n, sizeof(*call.done)),
         .row = calloc(n, sizeof(*call.row)),
         .of_input = calloc(n, sizeof(*call.of_input)),
         .batch.seqs = calloc(n, sizeof(*call.batch.seqs)),
    };
    const bool ok = call.done != NULL && call.row != NULL && call.of_input != NULL &&
                                    call.batch.seqs != NULL
                            ? run_call(s, &call, n_tokens, err)
                            : error_no_memory(err, "%d inputs", n_inputs);
    s->n_logits = ok ? n_logits : 0;
    free(call.done);
    free(call.row);
    free(call.of_input);
    free(call.batch.seqs);
    return ok;
}

const float * lrnn_logits(const struct lrnn_session * s, int64_t i) {
    return i >= 0 && i < s->n_logits ? s->logits + i * s->model->info.n_vocab : NULL;
}
