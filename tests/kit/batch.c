#include "kit/scan-case.h"

#include "lrnn-ops.h"

int64_t test_batch_tokens(const struct test_batch * b) {
    int64_t n = 0;
    for (int s = 0; s < b->n_seqs; ++s) {
        n += b->len[s];
    }
    return n;
}

int64_t test_batch_slots(const struct test_batch * b) {
    return (2 + b->n_snap) * b->n_seqs + 2;
}

struct ggml_tensor * test_batch_ids(struct test_arena * a, const struct test_batch * b) {
    const int64_t n_slots = test_batch_slots(b);
    // slots are assigned in steps that share no divisor with their number
    int64_t step = n_slots / 2 + 1;
    for (bool common = true; common;) {
        common = false;
        for (int64_t d = 2; d <= step && !common; ++d) {
            common = step % d == 0 && n_slots % d == 0;
        }
        step += common;
    }
    struct ggml_tensor * ids = test_tensor(
            a, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS + b->n_snap, b->n_seqs, 1, 1);
    int64_t first = test_batch_tokens(b);
    int64_t used = 0;
    for (int s = 0; s < b->n_seqs; ++s) {
        int32_t * id = (int32_t *) ((char *) ids->data + s * ids->nb[1]);
        first -= b->len[s];
        const int32_t slot_a = (int32_t) (step * used++ % n_slots);
        const int32_t slot_b = (int32_t) (step * used++ % n_slots);
        const int     kind = (s + b->turn) % 3;
        id[GGML_SCAN_SLOT_IN] = kind == 2 ? -1 : slot_a;
        id[GGML_SCAN_SLOT_OUT] = kind == 0 ? slot_a : slot_b;
        id[GGML_SCAN_FIRST] = (int32_t) first;
        id[GGML_SCAN_COUNT] = (int32_t) b->len[s];
        for (int i = 0; i < b->n_snap; ++i) {
            id[GGML_SCAN_SNAPS + i] = (int32_t) (step * used++ % n_slots);
        }
    }
    return ids;
}

void test_fill_slots(
        struct ggml_tensor * state, const struct ggml_tensor * ids, struct test_rng * r) {
    for (int64_t slot = 0; slot < state->ne[1]; ++slot) {
        bool read = false;
        for (int64_t s = 0; s < ids->ne[1]; ++s) {
            read = read ||
                   ((const int32_t *) ids->data)[s * ids->ne[0] + GGML_SCAN_SLOT_IN] == slot;
        }
        for (int64_t i = 0; i < state->ne[0]; ++i) {
            test_set(state, i, slot, 0, 0, read ? (float) test_uniform(r, -1.5, 1.5) : NAN);
        }
    }
}
