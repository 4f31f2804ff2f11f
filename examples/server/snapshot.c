#include "scheduler.h"

#include "choice.h"
#include "generate/prefix-tree.h"

#include <string.h>

// After the state: the head, the logits [n_vocab] and the scores [n_scores], each a
// log-probability, n_top tokens and their n_top log-probabilities. Nothing if the tokens are not
// scored.
struct head {
    int64_t n_scores;
    int64_t n_top;
};

static size_t score_size(int64_t n_top) {
    return sizeof(float) + (size_t) n_top * (sizeof(int32_t) + sizeof(float));
}

int32_t snapshot_rank(const struct choice * c) {
    return c->job->params.score_prompt ? c->job->params.n_top + 1 : 0;
}

//
// Writing
//

static char * put(char * to, const void * data, size_t size) {
    memcpy(to, data, size);
    return to + size;
}

void * snapshot_new(struct lrnn_session * session, const struct choice * c, const float * logits,
        int64_t n_vocab, size_t * size) {
    const struct head head = { .n_scores = c->n_fed,
        .n_top = c->job->params.n_top < n_vocab ? c->job->params.n_top : n_vocab };
    const size_t      n_extra = logits != NULL ? sizeof(head) + (size_t) n_vocab * sizeof(float) +
                                                    (size_t) head.n_scores * score_size(head.n_top)
                                               : 0;
    void *            extra;
    void *            snapshot = stored_state_new(session, c->seq, n_extra, size, &extra);
    if (snapshot == NULL || logits == NULL) {
        return snapshot;
    }
    char * at = put(extra, &head, sizeof(head));
    at = put(at, logits, (size_t) n_vocab * sizeof(float));
    for (int64_t i = 0; i < head.n_scores; ++i) {
        const struct token_score * score = &c->scores[i];
        at = put(at, &score->log_prob, sizeof(float));
        at = put(at, score->top, (size_t) head.n_top * sizeof(int32_t));
        at = put(at, score->top_log_prob, (size_t) head.n_top * sizeof(float));
    }
    return snapshot;
}

//
// Reading
//

// The scores of tokens 1 to n − 1, and that of token n, which the logits give.
static bool restore_scores(const struct head * head, const char * at, struct choice_tools * t,
        struct choice * c, int64_t n, struct lrnn_error * err) {
    const int64_t V = t->info.n_vocab;
    const float * logits = t->changed;
    memcpy(t->changed, at, (size_t) V * sizeof(float));
    at += (size_t) V * sizeof(float) + score_size(head->n_top); // token 0 has no score
    for (int64_t i = 1; i < n; ++i, at += score_size(head->n_top)) {
        struct token_score score = { .token = c->prompt[i] };
        score.n_top = c->job->params.n_top < V ? c->job->params.n_top : (int32_t) V;
        const size_t n_bytes = (size_t) score.n_top * sizeof(int32_t);
        const char * top = at + sizeof(float);
        memcpy(&score.log_prob, at, sizeof(float));
        memcpy(score.top, top, n_bytes);
        memcpy(score.top_log_prob, top + (size_t) head->n_top * sizeof(int32_t), n_bytes);
        if (!choice_add_score(c, &score, err)) {
            return false;
        }
    }
    return choice_score(t, c, c->prompt[n], logits, err);
}

bool snapshot_restore(const void * snapshot, struct lrnn_session * session, struct choice_tools * t,
        struct choice * c, int64_t n, struct lrnn_error * err) {
    const char * extra = stored_state_restore(snapshot, session, c->seq, n, err);
    struct head  head;
    if (extra == NULL || !c->job->params.score_prompt) {
        return extra != NULL;
    }
    memcpy(&head, extra, sizeof(head));
    return restore_scores(&head, extra + sizeof(head), t, c, n, err);
}
