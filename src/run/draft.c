// session_draft: guesses of the draft block, one token of every sequence at a time.

#include "base/error.h"
#include "run/session.h"

#include <stdlib.h>
#include <string.h>

bool session_may_draft(const struct lrnn_session * s, int32_t seq) {
    return s->params.draft_block && s->seqs[seq].length > s->seqs[seq].unseen;
}

// h [D] of the last token of a sequence: the state of the block
static void get_hidden(const struct lrnn_session * s, int32_t seq, float * h) {
    const struct ggml_tensor * state = s->states.state[s->model->n_layer][0];
    const int64_t              slot = states_slot(&s->states, seq, s->seqs[seq].length);
    ggml_backend_tensor_get(state, h, (size_t) slot * state->nb[1], state->nb[1]);
}

static int32_t most_likely(const float * logits, int64_t n_vocab) {
    int64_t best = 0;
    for (int64_t i = 1; i < n_vocab; ++i) {
        best = logits[i] > logits[best] ? i : best;
    }
    return (int32_t) best;
}

// The batch of all drafts with more than `step` tokens. Moves their h from the rows of the last
// batch to their rows in this one.
static void make_batch(const struct lrnn_session * s, struct session_draft * drafts, int32_t n,
        int32_t step, struct batch * batch, float * hidden) {
    const int64_t D = s->model->n_embd;
    batch->n_seqs = 0;
    for (int32_t i = 0; i < n; ++i) {
        struct session_draft * d = &drafts[i];
        const struct seq *     q = &s->seqs[d->seq];
        if (step >= d->n) {
            continue;
        }
        memmove(hidden + batch->n_seqs * D, hidden + d->row * D, (size_t) D * sizeof(*hidden));
        d->row = batch->n_seqs++;
        batch->seqs[d->row] = (struct graph_seq) {
            .seq = d->seq,
            .first = d->row,
            .count = 1,
            .position = q->length + step,
            .visible = cache_round_up(q->length + step + 1),
            .n_outputs = 1,
            .tokens = d->tokens + step,
            .hidden = q->unseen + 1, // the row of token `unseen` lacks the h before it
        };
    }
    batch->n_tokens = batch->n_outputs = batch->n_seqs;
}

static bool run(struct lrnn_session * s, struct session_draft * drafts, int32_t n,
        struct batch * batch, float * hidden, float * logits, struct lrnn_error * err) {
    const int64_t          V = s->model->info.n_vocab;
    const struct forward * f = &s->draft.forward;
    for (int32_t i = 0; i < n; ++i) {
        drafts[i].row = i;
        get_hidden(s, drafts[i].seq, hidden + i * s->model->n_embd);
    }
    batch->hidden = hidden;
    for (int32_t step = 0;; ++step) {
        make_batch(s, drafts, n, step, batch, hidden);
        if (batch->n_seqs == 0) {
            return true;
        }
        if (!pass_prepare(s, &s->draft, batch, err) || !pass_compute(s, &s->draft, batch, err)) {
            return false;
        }
        ggml_backend_tensor_get(f->hidden, hidden, 0, ggml_nbytes(f->hidden));
        ggml_backend_tensor_get(f->logits, logits, 0, ggml_nbytes(f->logits));
        for (int32_t i = 0; i < n; ++i) {
            if (step < drafts[i].n) {
                drafts[i].tokens[step + 1] = most_likely(logits + drafts[i].row * V, V);
            }
        }
    }
}

bool session_draft(struct lrnn_session * s, struct session_draft * drafts, int32_t n,
        struct lrnn_error * err) {
    const size_t rows = (size_t) (n > 0 ? n : 1);
    struct batch batch = { .seqs = malloc(rows * sizeof(*batch.seqs)) };
    float *      hidden = malloc(rows * (size_t) s->model->n_embd * sizeof(*hidden));
    float *      logits = malloc(rows * (size_t) s->model->info.n_vocab * sizeof(*logits));
    const bool   ok = batch.seqs != NULL && hidden != NULL && logits != NULL
                              ? run(s, drafts, n, &batch, hidden, logits, err)
                              : error_no_memory(err, "drafts of %d sequences", n);
    free(batch.seqs);
    free(hidden);
    free(logits);
    return ok;
}
