// GGML_OP_SHORT_CONV on the CPU.
//
//     y_t[c] = f( bias[c] + Σ_w weight[w][c] · x_{t − (width − 1) + w}[c] )
//     y_t[c] = x_{t − 1}[c]                                                   token shift
//
// Channels do not mix: a task is one sequence and one tile of TILE_CHANNELS channels. The tail of
// the sequence and its new inputs are read in place, without concatenating them.

#include "barriers.h"
#include "scan-cpu.h"

enum {
    TILE_CHANNELS = 256,
    WIDTH_UNROLLED = 4, // the width of nearly every model
};

struct conv {
    int64_t       width, channels;
    int64_t       c0, n; // the channels of the tile: c0 .. c0 + n − 1
    const float * tail;  // [width − 1][TILE_CHANNELS], a copy: a new tail may overwrite the old
    const char *  x;     // first token of the sequence
    size_t        nb_token;
    const float * weight;     // [width][TILE_CHANNELS], transposed; NULL: token shift
    const float * bias;       // [TILE_CHANNELS] or NULL
    int32_t       activation; // enum ggml_short_conv_activation
};

// The tile's channels of input i of the sequence; i < 0 counts back into the tail.
SIMD_INLINE const float * conv_input(const struct conv * conv, int64_t i) {
    return i >= 0 ? (const float *) (conv->x + i * conv->nb_token) + conv->c0
                  : conv->tail + (conv->width - 1 + i) * TILE_CHANNELS;
}

SIMD_INLINE vec conv_activate(int32_t activation, vec x) {
    switch (activation) {
        case GGML_SHORT_CONV_SILU: return x / (vec_set1(1.0f) + vec_exp(-x));
        default: return x;
    }
}

// y of one token. `width` is a constant where the compiler shall unroll.
SIMD_INLINE void conv_token(
        const struct conv * conv, int64_t width, const float * const * in, float * y) {
    int64_t c = 0;
    for (; c + VEC <= conv->n; c += VEC) {
        vec sum = conv->bias != NULL ? vec_load(conv->bias + c) : (vec) { 0.0f };
        for (int64_t w = 0; w < width; ++w) {
            sum = vec_fma(vec_load(conv->weight + w * TILE_CHANNELS + c), vec_load(in[w] + c), sum);
        }
        vec_store(y + c, conv_activate(conv->activation, sum));
    }
    if (c < conv->n) { // the last channels use vectors too, so that all channels round alike
        const size_t rest = (size_t) (conv->n - c) * sizeof(float);
        float        x[VEC] = { 0.0f };
        vec          sum = conv->bias != NULL ? vec_load(conv->bias + c) : (vec) { 0.0f };
        for (int64_t w = 0; w < width; ++w) {
            memcpy(x, in[w] + c, rest);
            sum = vec_fma(vec_load(conv->weight + w * TILE_CHANNELS + c), vec_load(x), sum);
        }
        vec_store(x, conv_activate(conv->activation, sum));
        memcpy(y + c, x, rest);
    }
}

// Per thread: weights and bias of a tile, its tail, and pointers to the inputs of a token.
static int64_t thread_floats(int64_t width) {
    const int64_t inputs = width * (int64_t) (sizeof(const float *) / sizeof(float));
    return 2 * width * TILE_CHANNELS + (inputs + VEC - 1) / VEC * VEC;
}

size_t short_conv_work_size(const struct ggml_tensor * op, int n_threads) {
    const size_t size = (size_t) thread_floats(ggml_scan_dims_get(op).d_k + 1) * sizeof(float);
    return private_work_size(size, n_threads);
}

static void tile_load(const struct ggml_tensor * dst, const struct scan_dims * dims,
        const struct scan_seq * seq, struct conv * conv, float * work) {
    const struct ggml_tensor * weight = dst->src[CONV_SRC_WEIGHT];
    const struct ggml_tensor * bias = dst->src[CONV_SRC_BIAS];
    const int64_t              width = conv->width;

    float * packed_w = work;                             // [width][TILE_CHANNELS]
    float * packed_b = packed_w + width * TILE_CHANNELS; // [TILE_CHANNELS]
    float * tail = packed_b + TILE_CHANNELS;             // [width − 1][TILE_CHANNELS]

    memset(work, 0, (size_t) (2 * width * TILE_CHANNELS) * sizeof(float));
    if (weight != NULL) {
        const float * from = (const float *) weight->data + conv->c0 * width; // [n][width]
        for (int64_t w = 0; w < width; ++w) {
            for (int64_t c = 0; c < conv->n; ++c) {
                packed_w[w * TILE_CHANNELS + c] = from[c * width + w];
            }
        }
        conv->weight = packed_w;
    }
    if (bias != NULL) {
        memcpy(packed_b, (const float *) bias->data + conv->c0, (size_t) conv->n * sizeof(float));
        conv->bias = packed_b;
    }
    for (int64_t w = 0; seq->slot_in >= 0 && w < width - 1; ++w) {
        memcpy(tail + w * TILE_CHANNELS,
                slot_head(dst, seq->slot_in, 0, dims->head_size) + w * conv->channels + conv->c0,
                (size_t) conv->n * sizeof(float));
    }
    conv->tail = tail;
}

static void tile_run(struct ggml_tensor * dst, const struct scan_dims * dims,
        const struct scan_seq * seq, struct conv * conv, float * work) {
    const int64_t  width = conv->width;
    const float ** in = (const float **) (work + 2 * width * TILE_CHANNELS); // [width]

    tile_load(dst, dims, seq, conv, work);

    for (int64_t i = 0; i < seq->count; ++i) {
        float * y = (float *) dst->data + (seq->first + i) * conv->channels + conv->c0;
        if (conv->weight == NULL) {
            memcpy(y, conv_input(conv, i - 1), (size_t) conv->n * sizeof(float));
            continue;
        }
        for (int64_t w = 0; w < width; ++w) {
            in[w] = conv_input(conv, i - (width - 1) + w);
        }
        if (width == WIDTH_UNROLLED) {
            conv_token(conv, WIDTH_UNROLLED, in, y);
        } else {
            conv_token(conv, width, in, y);
        }
    }

    // the tail after all tokens, and after all but `back` of them
    for (int64_t back = 0; back <= dims->n_snap && back <= seq->count; ++back) {
        const int64_t slot = back == 0 ? seq->slot_out : seq->snaps[back - 1];
        for (int64_t w = 0; slot >= 0 && w < width - 1; ++w) {
            memcpy(slot_head(dst, slot, 0, dims->head_size) + w * conv->channels + conv->c0,
                    conv_input(conv, seq->count - back - (width - 1) + w),
                    (size_t) conv->n * sizeof(float));
        }
    }
}

void short_conv_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct scan_dims     dims = ggml_scan_dims_get(dst);
    const struct ggml_tensor * x = dst->src[CONV_SRC_X];
    const int64_t              n_tiles = (dims.d_v + TILE_CHANNELS - 1) / TILE_CHANNELS;

    float * work = work_aligned(params->wdata) + params->ith * thread_floats(dims.d_k + 1);

    for (int64_t i = params->ith; i < dims.n_seqs * n_tiles; i += params->nth) {
        const int64_t   tile = i % n_tiles;
        struct scan_seq seq;
        if (!scan_seq_read(dst, &dims, i / n_tiles, tile == 0, &seq)) {
            continue;
        }
        struct conv conv = {
            .width = dims.d_k + 1,
            .channels = dims.d_v,
            .c0 = tile * TILE_CHANNELS,
            .n = dims.d_v - tile * TILE_CHANNELS < TILE_CHANNELS ? dims.d_v - tile * TILE_CHANNELS
                                                                 : TILE_CHANNELS,
            .x = (const char *) x->data + seq.first * x->nb[1],
            .nb_token = x->nb[1],
            .activation = ggml_scan_params_get(dst).activation,
        };
        tile_run(dst, &dims, &seq, &conv, work);
    }
}
