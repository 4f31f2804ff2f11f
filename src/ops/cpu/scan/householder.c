// GGML_OP_HOUSEHOLDER_SCAN on the CPU: reads the node and chooses the path.

#include "householder.h"

static struct scan_chunk chunk_of(const struct householder * op) {
    return (struct scan_chunk) {
        .dims = op->dims,
        .k = op->k,
        .q = op->q,
        .gate = op->gate,
        .gate_kind = op->gate_kind,
        .beta = op->beta,
        .scale = op->scale,
    };
}

static void chunk_prepare(const void * op, int64_t h, int64_t t0, int64_t t1, float * prep) {
    const struct scan_chunk chunk = chunk_of(op);
    scan_chunk_prepare(&chunk, h, t0, t1, prep);
}

static void chunk_run(const void * op, const struct tile * tile, const float * prep) {
    const struct scan_chunk chunk = chunk_of(op);
    scan_chunk_run(&chunk, tile, prep);
}

static const struct tile_kernel kernel_step = { 1, householder_step_prepare, householder_step_run,
    householder_token_run };
static const struct tile_kernel kernel_chunk = { CHUNK, chunk_prepare, chunk_run,
    householder_token_run };

static int64_t prep_floats(const struct scan_dims * dims) {
    return most_of(
            householder_step_size(dims), scan_chunk_size(dims), householder_token_size(dims));
}

size_t householder_work_size(const struct ggml_tensor * op, int n_threads) {
    const struct scan_dims dims = ggml_scan_dims_get(op);
    const int64_t          tiles = tile_scan_floats(&dims, prep_floats(&dims));
    const int64_t          reference = dims.head_size + dims.d_v;
    return (size_t) (n_threads * (tiles > reference ? tiles : reference)) * sizeof(float) +
           VEC_BYTES;
}

void householder_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct scan_dims     dims = ggml_scan_dims_get(dst);
    const struct scan_params   p = ggml_scan_params_get(dst);
    const struct ggml_tensor * gate = dst->src[HOUSEHOLDER_SRC_GATE];

    const struct householder op = {
        .dims = dims,
        .path = p.path,
        .q = tokens_of(dst->src[HOUSEHOLDER_SRC_Q], dims.n_head),
        .k = tokens_of(dst->src[HOUSEHOLDER_SRC_K], dims.n_head),
        .v = tokens_of(dst->src[HOUSEHOLDER_SRC_V], dims.n_head),
        .beta = tokens_of(dst->src[HOUSEHOLDER_SRC_BETA], dims.n_head),
        .gate = tokens_of(gate, dims.n_head),
        .r = tokens_of(dst->src[HOUSEHOLDER_SRC_R], dims.n_head),
        .w = tokens_of(dst->src[HOUSEHOLDER_SRC_W], dims.n_head),
        .gate_kind = gate == NULL       ? GATE_NONE
                     : gate->ne[0] == 1 ? GATE_HEAD
                                        : GATE_CHANNEL,
        .scale = p.scale,
    };
    const bool step = op.path == GGML_SCAN_PATH_STEP || op.r.data != NULL;

    struct tile_scan scan = {
        .op = &op,
        .dims = dims,
        .x = { op.v },
        .inputs = { { op.q, dims.d_k, 1 }, { op.k, dims.d_k, dims.n_h },
                { op.v, dims.d_v, dims.n_h } },
        .prep_floats = prep_floats(&dims),
        .kernel = step ? &kernel_step : &kernel_chunk,
    };

    int n_inputs = 3;
    if (op.gate_kind == GATE_CHANNEL) {
        scan.inputs[n_inputs++] = (struct input) { op.gate, dims.d_k, 1 };
    }
    if (op.r.data != NULL) {
        scan.inputs[n_inputs++] = (struct input) { op.r, dims.d_k, 1 };
        scan.inputs[n_inputs++] = (struct input) { op.w, dims.d_k, 1 };
    }
    tile_scan_forward(params, dst, &scan, work_aligned(params->wdata));
}
