#include "snapshot.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

// The layout: the head, the state, the logits [n_vocab] and the scores [n_scores], each score a
// log-probability, n_top tokens and their n_top log-probabilities. Without scores, no logits.
struct head {
    size_t  state_size;
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
    struct lrnn_error err;
    struct head       head = { .state_size = lrnn_seq_size(session, c->seq) };
    *size                  = sizeof(head) + head.state_size;
    if (logits != NULL) {
        head.n_scores = c->n_fed;
        head.n_top    = c->job->params.n_top < n_vocab ? c->job->params.n_top : n_vocab;
        *size += (size_t) n_vocab * sizeof(float) + (size_t) head.n_scores * score_size(head.n_top);
    }
    char * snapshot = malloc(*size);
    if (snapshot == NULL) {
        return NULL;
    }
    char * at = put(snapshot, &head, sizeof(head));
    if (!lrnn_seq_get(session, c->seq, at, head.state_size, &err)) {
        free(snapshot);
        return NULL;
    }
    at += head.state_size;
    if (logits != NULL) {
        at = put(at, logits, (size_t) n_vocab * sizeof(float));
    }
    for (int64_t i = 0; i < head.n_scores; ++i) {
        const struct token_score * score = &c->scores[i];
        at                               = put(at, &score->log_prob, sizeof(float));
        at = put(at, score->top, (size_t) head.n_top * sizeof(int32_t));
        at = put(at, score->top_log_prob, (size_t) head.n_top * sizeof(float));
    }
    return snapshot;
}

void * snapshot_of_state(void * state, size_t state_size, size_t * size) {
    const struct head head = { .state_size = state_size };
    *size                  = sizeof(head) + state_size;
    char * snapshot        = realloc(state, *size);
    if (snapshot == NULL) {
        free(state);
        return NULL;
    }
    memmove(snapshot + sizeof(head), snapshot, state_size);
    memcpy(snapshot, &head, sizeof(head));
    return snapshot;
}

//
// Reading
//

// The scores of tokens 1 to n − 1, and that of token n, which the logits give.
static bool restore_scores(const struct head * head, const char * at, struct choice_tools * t,
        struct choice * c, int64_t n, struct lrnn_error * err) {
    const int64_t V      = t->info.n_vocab;
    const float * logits = t->changed;
    memcpy(t->changed, at, (size_t) V * sizeof(float));
    at += (size_t) V * sizeof(float) + score_size(head->n_top); // token 0 has no score
    for (int64_t i = 1; i < n; ++i, at += score_size(head->n_top)) {
        struct token_score score = { .token = c->prompt[i] };
        score.n_top              = c->job->params.n_top < V ? c->job->params.n_top : (int32_t) V;
        const size_t n_bytes     = (size_t) score.n_top * sizeof(int32_t);
        const char * top         = at + sizeof(float);
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
    const char * at = snapshot;
    struct head  head;
    memcpy(&head, at, sizeof(head));
    at += sizeof(head);
    if (!lrnn_seq_set(session, c->seq, n, at, head.state_size, err)) {
        return false;
    }
    return !c->job->params.score_prompt ||
           restore_scores(&head, at + head.state_size, t, c, n, err);
}
