// Sequences of a session: length, reset, rewind, fork, and access for state files.

#include "base/error.h"
#include "run/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool exists(const struct lrnn_session * s, int32_t seq) {
    return seq >= 0 && seq < s->params.n_seqs;
}

bool session_check_seq(const struct lrnn_session * s, int32_t seq, struct lrnn_error * err) {
    return exists(s, seq) || error_bad_input(err, "sequence %d does not exist; expected 0 to %d",
                                     seq, s->params.n_seqs - 1);
}

int64_t lrnn_seq_length(const struct lrnn_session * s, int32_t seq) {
    return exists(s, seq) ? s->seqs[seq].length : -1;
}

int64_t lrnn_seq_rewindable(const struct lrnn_session * s, int32_t seq) {
    return exists(s, seq) ? s->seqs[seq].rewindable : -1;
}

// Replaces a sequence. Cache rows past its new length are cleared.
static void replace(struct lrnn_session * s, int32_t seq, struct seq now) {
    states_clear_cache(&s->states, s->model, seq, now.length, s->seqs[seq].length);
    s->seqs[seq] = now;
}

bool lrnn_seq_reset(struct lrnn_session * s, int32_t seq, struct lrnn_error * err) {
    if (!session_check_seq(s, seq, err)) {
        return false;
    }
    replace(s, seq, (struct seq) { 0 });
    return true;
}

bool lrnn_seq_rewind(
        struct lrnn_session * s, int32_t seq, int64_t n_tokens, struct lrnn_error * err) {
    if (!session_check_seq(s, seq, err)) {
        return false;
    }
    const struct seq * q = &s->seqs[seq];
    if (n_tokens < 0 || n_tokens > q->rewindable) {
        return error_bad_input(err,
                "sequence %d: cannot rewind %" PRId64 " tokens; expected 0 to %" PRId64, seq,
                n_tokens, q->rewindable);
    }
    if (n_tokens > 0) {
        replace(s, seq,
                (struct seq) { .length = q->length - n_tokens,
                        .rewindable = q->rewindable - n_tokens,
                        .unseen = q->unseen });
    }
    return true;
}

// ---- Copies of the memory of a sequence ---------------------------------------------------------

// The bytes of a sequence: the memory that states_visit visits, and with a draft block an int64_t,
// the number of tokens that the block has not seen.
struct copy {
    uint8_t *       to;   // NULL: write to the session
    const uint8_t * from; // NULL: read from the session
    size_t          left; // bytes to write; the rest belongs to the draft block and is not known
};

static bool count_bytes(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    (void) tensor;
    (void) offset;
    *(size_t *) user += size;
    return true;
}

static bool copy_bytes(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    struct copy * copy = user;
    if (copy->to != NULL) {
        ggml_backend_tensor_get(tensor, copy->to, offset, size);
        copy->to += size;
    } else if (copy->left >= size) {
        ggml_backend_tensor_set(tensor, copy->from, offset, size);
        copy->from += size;
        copy->left -= size;
    }
    return true;
}

size_t session_bytes_of(const struct lrnn_session * s, int64_t length, size_t * n_draft) {
    const int32_t last = s->states.n_layer - 1;
    size_t        size = 0;
    *n_draft = s->params.draft_block ? sizeof(int64_t) : 0;
    if (s->params.draft_block && length > 0) {
        *n_draft +=
                s->states.state[last][0]->nb[1] +
                (size_t) length * (s->states.cache_k[last]->nb[1] + s->states.cache_v[last]->nb[1]);
    }
    states_visit(&s->states, s->model, 0, length, count_bytes, &size);
    return size + (s->params.draft_block ? sizeof(int64_t) : 0);
}

size_t lrnn_seq_size(const struct lrnn_session * s, int32_t seq) {
    size_t n_draft;
    return exists(s, seq) ? session_bytes_of(s, s->seqs[seq].length, &n_draft) : 0;
}

static bool check_size(const struct lrnn_session * s, int32_t seq, int64_t length, size_t size,
        bool may_lack_draft, struct lrnn_error * err) {
    size_t       n_draft;
    const size_t expected = session_bytes_of(s, length, &n_draft);
    return size == expected || (may_lack_draft && size == expected - n_draft) ||
           error_bad_input(err, "sequence %d: %zu bytes for %" PRId64 " tokens; expected %zu", seq,
                   size, length, expected);
}

bool lrnn_seq_get(
        struct lrnn_session * s, int32_t seq, void * data, size_t size, struct lrnn_error * err) {
    if (!session_check_seq(s, seq, err) ||
            !check_size(s, seq, s->seqs[seq].length, size, false, err)) {
        return false;
    }
    struct copy copy = { .to = data };
    states_visit(&s->states, s->model, seq, s->seqs[seq].length, copy_bytes, &copy);
    if (s->params.draft_block) {
        memcpy(copy.to, &s->seqs[seq].unseen, sizeof(int64_t));
    }
    return true;
}

bool lrnn_seq_set(struct lrnn_session * s, int32_t seq, int64_t length, const void * data,
        size_t size, struct lrnn_error * err) {
    if (!session_check_seq(s, seq, err)) {
        return false;
    }
    if (length < 0 || length > session_max_length(s)) {
        return error_bad_input(err, "sequence %d: length is %" PRId64 "; expected 0 to %" PRId64,
                seq, length, session_max_length(s));
    }
    if (!check_size(s, seq, length, size, true, err)) {
        return false;
    }
    struct seq  now = { .length = length, .unseen = length };
    struct copy copy = { .from = data, .left = size };
    states_visit(&s->states, s->model, seq, length, copy_bytes, &copy);
    if (copy.left == sizeof(now.unseen)) {
        memcpy(&now.unseen, copy.from, sizeof(now.unseen));
    }
    replace(s, seq, now);
    return true;
}

bool lrnn_seq_fork(struct lrnn_session * s, int32_t from, int32_t to, struct lrnn_error * err) {
    if (!session_check_seq(s, from, err) || !session_check_seq(s, to, err)) {
        return false;
    }
    if (from == to) {
        return true;
    }
    const size_t size = lrnn_seq_size(s, from);
    uint8_t *    data = malloc(size > 0 ? size : 1);
    if (data == NULL) {
        return error_no_memory(err, "a copy of sequence %d, %zu bytes", from, size);
    }
    const bool ok = lrnn_seq_get(s, from, data, size, err) &&
                    lrnn_seq_set(s, to, s->seqs[from].length, data, size, err);
    free(data);
    return ok;
}

// ---- For state files and the state norm ---------------------------------------------------------

const float * session_seq_logits(const struct lrnn_session * s, int32_t seq) {
    return s->seqs[seq].logits > 0 ? lrnn_logits(s, s->seqs[seq].logits - 1) : NULL;
}

bool session_set_logits(
        struct lrnn_session * s, int32_t seq, const float * logits, struct lrnn_error * err) {
    session_forget_logits(s);
    if (!session_reserve_logits(s, 1, err)) {
        return false;
    }
    memcpy(s->logits, logits, (size_t) s->model->info.n_vocab * sizeof(float));
    s->n_logits = 1;
    s->seqs[seq].logits = 1;
    return true;
}

struct ggml_tensor * session_seq_state(
        const struct lrnn_session * s, int32_t seq, int32_t il, size_t * offset) {
    const int64_t length = s->seqs[seq].length;
    if (length == 0 || !s->model->layers[il].recurrent) {
        return NULL;
    }
    struct ggml_tensor * t = s->states.state[il][0];
    *offset = (size_t) states_slot(&s->states, seq, length) * t->nb[1];
    return t;
}
