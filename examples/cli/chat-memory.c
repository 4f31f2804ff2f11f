#include "chat-memory.h"

#include "lrnn.h"

int32_t chat_memory_count(const struct lrnn_model_info * info, int64_t n_cache) {
    const int64_t bytes = info->state_bytes + info->cache_bytes * n_cache;
    const int64_t n     = ((int64_t) 512 << 20) / (bytes > 0 ? bytes : 1);
    return n < 1 ? 1 : n > CHAT_MAX_COPIES ? CHAT_MAX_COPIES : (int32_t) n;
}

void chat_memory_begin(struct chat_memory * m, struct lrnn_session * session, int32_t n_copies) {
    *m = (struct chat_memory) { .session = session, .n_copies = n_copies };
}

void chat_memory_end(struct chat_memory * m) {
    token_list_free(&m->live);
    for (int32_t i = 0; i < m->n_copies; ++i) {
        token_list_free(&m->copies[i]);
    }
}

bool chat_memory_restore(
        struct chat_memory * m, const int32_t * tokens, int64_t n, struct lrnn_error * err) {
    const bool is_live = token_list_begins(&m->live, tokens, n - 1);
    int64_t    longest = is_live ? m->live.n : 0;
    int32_t    best    = -1;

    for (int32_t i = 0; i < m->n_copies; ++i) {
        if (m->copies[i].n > longest && token_list_begins(&m->copies[i], tokens, n - 1)) {
            longest = m->copies[i].n;
            best    = i;
        }
    }
    if (longest == 0) {
        m->live.n = 0;
        return lrnn_seq_reset(m->session, 0, err);
    }
    if (best < 0) {
        return true;
    }
    if (!lrnn_seq_fork(m->session, 1 + best, 0, err)) {
        return false;
    }
    m->used[best] = ++m->time;
    token_list_set(&m->live, tokens, longest);
    return true;
}

bool chat_memory_keep(struct chat_memory * m, struct lrnn_error * err) {
    int32_t oldest = 0;
    for (int32_t i = 0; i < m->n_copies; ++i) {
        if (m->copies[i].n == m->live.n &&
                token_list_begins(&m->copies[i], m->live.ids, m->live.n)) {
            m->used[i] = ++m->time;
            return true;
        }
        oldest = m->used[i] < m->used[oldest] ? i : oldest;
    }
    if (m->live.n == 0) {
        return true;
    }
    m->copies[oldest].n = 0;
    if (!lrnn_seq_fork(m->session, 0, 1 + oldest, err)) {
        return false;
    }
    token_list_set(&m->copies[oldest], m->live.ids, m->live.n);
    m->used[oldest] = ++m->time;
    return true;
}

void chat_memory_set(struct chat_memory * m, const int32_t * tokens, int64_t n) {
    const int64_t length = lrnn_seq_length(m->session, 0);
    token_list_set(&m->live, tokens, length < n ? length : n);
}
