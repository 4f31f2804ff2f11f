#include "lrnn.h"
#include "run/states.h"

static enum ggml_type state_ggml_type(enum lrnn_state_type type) {
    switch (type) {
        case LRNN_STATE_BF16: return GGML_TYPE_BF16;
        case LRNN_STATE_F16: return GGML_TYPE_F16;
        case LRNN_STATE_Q8_0: return GGML_TYPE_Q8_0;
        case LRNN_STATE_F32: break;
    }
    return GGML_TYPE_F32;
}

const char * lrnn_state_type_name(enum lrnn_state_type type) {
    return ggml_type_name(state_ggml_type(type));
}

// Rounds n floats of a tensor, possibly on a device. A block of Q8_0 has 32 consecutive floats and
// one scale; the last block is filled up with zeros.
static void round_floats(
        struct ggml_tensor * t, size_t offset, int64_t n, const struct ggml_type_traits * traits) {
    enum { PART = 4096 };
    for (int64_t at = 0; at < n; at += PART) {
        const int64_t count = n - at < PART ? n - at : PART;
        const int64_t whole =
                (count + traits->blck_size - 1) / traits->blck_size * traits->blck_size;
        const size_t begin = offset + (size_t) at * sizeof(float);
        float        values[PART] = { 0 }, rounded[PART]; // no type is larger than F32
        ggml_backend_tensor_get(t, values, begin, (size_t) count * sizeof(float));
        traits->from_float_ref(values, rounded, whole);
        traits->to_float(rounded, values, whole);
        ggml_backend_tensor_set(t, values, begin, (size_t) count * sizeof(float));
    }
}

void states_round(struct states * s, const struct lrnn_model * model, int32_t seq, int64_t length,
        enum lrnn_state_type type) {
    const struct ggml_type_traits * traits = ggml_get_type_traits(state_ggml_type(type));
    for (int32_t il = 0; il < model->n_layer && type != LRNN_STATE_F32; ++il) {
        for (int32_t i = 0; i < model->layers[il].n_states; ++i) {
            struct ggml_tensor * t = s->state[il][i];
            const size_t         slot = (size_t) states_slot(s, seq, length);
            round_floats(t, slot * t->nb[1], t->ne[0], traits);
        }
    }
}
