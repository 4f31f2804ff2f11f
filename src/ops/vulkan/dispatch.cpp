// From a node to its shader: constants, work groups, and whether ggml-vulkan can run it.

#include "ggml-vulkan/ggml-vulkan-common.h"
#include "scan-common.h"
#include "vulkan/vulkan-glue.h"

enum shader_id {
    SHADER_HOUSEHOLDER, // columns are divided among invocations of a subgroup
    SHADER_HOUSEHOLDER_PLAIN,
    SHADER_SIGNED,
    SHADER_SIGNED_PLAIN,
    SHADER_SHORT_CONV,
};

// glslc made the files
static const uint32_t householder_code[] =
#include "householder.inc"
        ;
static const uint32_t householder_plain_code[] =
#include "householder-plain.inc"
        ;
static const uint32_t signed_code[] =
#include "signed.inc"
        ;
static const uint32_t signed_plain_code[] =
#include "signed-plain.inc"
        ;
static const uint32_t short_conv_code[] =
#include "short-conv.inc"
        ;

enum {
    MAX_BINDINGS = 10,
    THREADS = 128,     // of a work group, at most; Vulkan guarantees that many
    CONV_THREADS = 64, // each has one channel
    CONV_PIECE = 32,   // tokens of an invocation
    MAX_ROW_LANES = 8,
    FEW_ROWS = 16,  // an invocation has a whole column
    MAX_ROWS = 256, // of an invocation
};

struct push_constants { // as in scan.glsl
    int32_t  n_snap, n_slots, n_tokens;
    uint32_t slot_stride;
    float    scale, eps;
    uint32_t offset[MAX_BINDINGS];
};

ggml_lrnn_vk_shader ggml_lrnn_vk_shader_of(const std::vector<uint32_t> & key) {
    const auto shader = [](const char * name, const auto & code, uint32_t n_bindings,
                                bool subgroups) {
        return ggml_lrnn_vk_shader{ name, sizeof(code), code, n_bindings, sizeof(push_constants),
            subgroups };
    };
    switch (key[0]) {
        case SHADER_HOUSEHOLDER: return shader("householder_scan", householder_code, 10, true);
        case SHADER_HOUSEHOLDER_PLAIN:
            return shader("householder_scan_plain", householder_plain_code, 10, false);
        case SHADER_SIGNED: return shader("signed_scan", signed_code, 8, true);
        case SHADER_SIGNED_PLAIN: return shader("signed_scan_plain", signed_plain_code, 8, false);
        default: return shader("short_conv", short_conv_code, 6, false);
    }
}

const char * ggml_lrnn_vk_disable_f16() {
    const char * f16 = getenv("LRNN_VULKAN_F16");
    return f16 != nullptr && strcmp(f16, "0") != 0 && f16[0] != '\0' ? nullptr : "1";
}

// ---- The layout of a state ----------------------------------------------------------------------

// How the columns of a state are divided among invocations.
struct columns {
    uint32_t threads; // of a work group
    uint32_t row_lanes, col_lanes;
    uint32_t groups; // work groups per sequence and head
    bool     fit;    // false: too many rows
};

// Shuffles need whole subgroups of a known size.
static bool can_shuffle(const vk_device & device) {
    return device->subgroup_shuffle && device->subgroup_size_control &&
           device->subgroup_require_full_support && device->subgroup_size >= MAX_ROW_LANES &&
           device->subgroup_size <= THREADS && device->subgroup_min_size <= device->subgroup_size &&
           device->subgroup_size <= device->subgroup_max_size;
}

static columns columns_of(const vk_device & device, int64_t d_k, int64_t d_v) {
    columns    c = {};
    const bool shuffle = d_k > FEW_ROWS && can_shuffle(device);
    c.row_lanes = shuffle ? MAX_ROW_LANES : 1;
    c.fit = CEIL_DIV(d_k, (int64_t) c.row_lanes) <= MAX_ROWS;
    if (shuffle) {
        const uint32_t size = device->subgroup_size;
        c.col_lanes = size / c.row_lanes;
        const int64_t need = CEIL_DIV(d_v, (int64_t) c.col_lanes);
        const int64_t subgroups = std::min<int64_t>(need, THREADS / size);
        c.threads = (uint32_t) subgroups * size;
        c.groups = (uint32_t) CEIL_DIV(need, subgroups);
    } else {
        c.threads = c.col_lanes = (uint32_t) std::min<int64_t>(CEIL_DIV(d_v, 32) * 32, THREADS);
        c.groups = (uint32_t) CEIL_DIV(d_v, (int64_t) c.threads);
    }
    return c;
}

// ---- Constants ----------------------------------------------------------------------------------

static uint32_t floats(size_t bytes) {
    return (uint32_t) (bytes / sizeof(float));
}

// The constants of a tensor of tokens: TOKENS in scan.glsl
static void add_tokens(std::vector<uint32_t> * key, const ggml_tensor * x, const scan_dims & dims) {
    if (x == nullptr) {
        key->insert(key->end(), { 1, 0, 0, 0 });
        return;
    }
    const bool constant = x->ne[3] == 1 && dims.n_tokens > 1;
    key->insert(key->end(), { (uint32_t) (dims.n_head / x->ne[1]), floats(x->nb[1]),
                                    floats(x->nb[2]), constant ? 0 : floats(x->nb[3]) });
}

static std::vector<uint32_t> key_begin(uint32_t shader, const columns & c, const scan_dims & dims) {
    return { shader, c.threads, c.row_lanes, c.col_lanes, (uint32_t) dims.d_k, (uint32_t) dims.d_v,
        (uint32_t) dims.n_head };
}

static std::vector<uint32_t> householder_key(
        const ggml_tensor * op, const scan_dims & dims, const columns & c) {
    const ggml_tensor *   gate = op->src[HOUSEHOLDER_SRC_GATE];
    std::vector<uint32_t> key =
            key_begin(c.row_lanes > 1 ? SHADER_HOUSEHOLDER : SHADER_HOUSEHOLDER_PLAIN, c, dims);
    key.push_back((uint32_t) dims.n_h);
    key.push_back(gate == nullptr ? 0 : gate->ne[0] == 1 ? 1 : 2);
    key.push_back(op->src[HOUSEHOLDER_SRC_R] != nullptr);
    for (int i = HOUSEHOLDER_SRC_Q; i <= HOUSEHOLDER_SRC_W; ++i) {
        add_tokens(&key, op->src[i], dims);
    }
    return key;
}

static std::vector<uint32_t> signed_key(
        const ggml_tensor * op, const scan_dims & dims, const columns & c, bool normalizer) {
    const scan_params     params = ggml_scan_params_get(op);
    const ggml_tensor *   aux = op->src[SIGNED_SRC_AUX];
    std::vector<uint32_t> key =
            key_begin(c.row_lanes > 1 ? SHADER_SIGNED : SHADER_SIGNED_PLAIN, c, dims);
    key.push_back((uint32_t) params.kind);
    key.push_back(params.bonus != 0);
    key.push_back(params.form == GGML_SIGNED_SCAN_TWO_EXP_M1);
    key.push_back(normalizer);
    for (int i = SIGNED_SRC_C; i <= SIGNED_SRC_GATE; ++i) {
        add_tokens(&key, op->src[i], dims);
    }
    if (params.kind == SIGNED_SCAN_ELEMENT || params.kind == SIGNED_SCAN_SCALAR) { // A
        key.insert(key.end(), { (uint32_t) (dims.n_head / aux->ne[2]), floats(aux->nb[2]),
                                      floats(aux->nb[1]), floats(aux->nb[0]) });
    } else {
        add_tokens(&key, aux, dims);
    }
    return key;
}

static std::vector<uint32_t> conv_key(const ggml_tensor * op, const scan_dims & dims) {
    std::vector<uint32_t> key =
            key_begin(SHADER_SHORT_CONV, { CONV_THREADS, 1, CONV_THREADS, 0, true }, dims);
    key.push_back(CONV_PIECE);
    key.push_back(op->src[CONV_SRC_WEIGHT] == nullptr);
    key.push_back(op->src[CONV_SRC_BIAS] != nullptr);
    key.push_back(ggml_scan_params_get(op).activation == GGML_SHORT_CONV_SILU);
    key.insert(key.end(), { 1, 0, 0, floats(op->src[CONV_SRC_X]->nb[1]) });
    return key;
}

// ---- Dispatch -----------------------------------------------------------------------------------

static vk_pipeline pipeline_of(const vk_device & device, const std::vector<uint32_t> & key) {
    std::lock_guard<std::mutex> guard(device->compile_mutex);
    vk_pipeline &               pipeline = device->pipeline_lrnn[key];
    if (pipeline == nullptr) {
        pipeline = std::make_shared<vk_pipeline_struct>();
    }
    return pipeline;
}

// The result is bound after the sources; in place of a tensor that is absent, the ids.
template <size_t... SRC>
static void dispatch(ggml_backend_vk_context * ctx, vk_context & subctx, const ggml_tensor * dst,
        const std::vector<uint32_t> & key, std::array<uint32_t, 3> groups,
        std::index_sequence<SRC...>) {
    const scan_dims   dims = ggml_scan_dims_get(dst);
    const scan_params params = ggml_scan_params_get(dst);

    push_constants push = {};
    push.n_snap = (int32_t) dims.n_snap;
    push.n_slots = (int32_t) dims.n_slots;
    push.n_tokens = (int32_t) dims.n_tokens;
    push.slot_stride = floats(dst->src[SCAN_SRC_STATE]->nb[1]);
    push.scale = params.scale;
    push.eps = params.eps;

    const auto bind = [&](size_t binding, const ggml_tensor * x) {
        push.offset[binding] = floats(get_misalign_bytes(ctx, x));
        return ggml_vk_tensor_subbuffer(ctx, x, true);
    };
    const auto source = [&](size_t i) {
        return bind(i, dst->src[i] != nullptr ? dst->src[i] : dst->src[SCAN_SRC_IDS]);
    };
    const std::array<vk_subbuffer, sizeof...(SRC) + 1> bound = { source(SRC)...,
        bind(sizeof...(SRC), dst) };

    vk_pipeline pipeline = pipeline_of(ctx->device, key);
    ggml_pipeline_request_descriptor_sets(ctx, pipeline, 1);
    ggml_vk_dispatch_pipeline(
            ctx, subctx, pipeline, { bound[SRC]..., bound[sizeof...(SRC)] }, push, groups);
}

void ggml_lrnn_vk_forward(ggml_backend_vk_context * ctx, vk_context & subctx, ggml_tensor * dst) {
    const scan_dims dims = ggml_scan_dims_get(dst);
    const columns   c = columns_of(ctx->device, dims.d_k, dims.d_v);

    const std::array<uint32_t, 3> groups = { (uint32_t) (dims.n_seqs * dims.n_head), c.groups, 1 };
    switch (dst->op) {
        case GGML_OP_HOUSEHOLDER_SCAN:
            dispatch(ctx, subctx, dst, householder_key(dst, dims, c), groups,
                    std::make_index_sequence<HOUSEHOLDER_SRC_W + 1>());
            break;
        case GGML_OP_SIGNED_SCAN:
            dispatch(ctx, subctx, dst, signed_key(dst, dims, c, false), groups,
                    std::make_index_sequence<SIGNED_SRC_AUX + 1>());
            if (ggml_scan_params_get(dst).kind == SIGNED_SCAN_MLSTM) {
                ggml_vk_sync_buffers(ctx, subctx); // every column has read n and m
                dispatch(ctx, subctx, dst, signed_key(dst, dims, c, true), { groups[0], 1, 1 },
                        std::make_index_sequence<SIGNED_SRC_AUX + 1>());
            }
            break;
        default:
            dispatch(ctx, subctx, dst, conv_key(dst, dims),
                    { (uint32_t) dims.n_seqs, (uint32_t) CEIL_DIV(dims.d_v, CONV_THREADS),
                            (uint32_t) CEIL_DIV(dims.n_tokens, CONV_PIECE) },
                    std::make_index_sequence<CONV_SRC_BIAS + 1>());
            break;
    }
}

// ---- Limits -------------------------------------------------------------------------------------

// True if a binding can hold the tensor, wherever it begins.
static bool can_bind(const vk_device & device, const ggml_tensor * x) {
    const vk::PhysicalDeviceLimits & limits = device->properties.limits;
    return x == nullptr ||
           ggml_nbytes(x) <= limits.maxStorageBufferRange - limits.minStorageBufferOffsetAlignment;
}

// The state must be in the memory of this device: the scheduler would copy any other state, and the
// update of the copy would be lost.
static bool is_on(const vk_device & device, const ggml_tensor * state) {
    const ggml_backend_buffer_t buffer =
            state->view_src != nullptr ? state->view_src->buffer : state->buffer;
    return buffer == nullptr ||
           (ggml_backend_buffer_is_vk(buffer) &&
                   ((ggml_backend_vk_buffer_context *) buffer->context)->device.lock() == device);
}

// The shaders support every shape that a builder accepts, within the limits of the device and with
// up to MAX_ROWS rows per invocation.
bool ggml_lrnn_vk_supports_op(const vk_device & device, const ggml_tensor * op) {
    const scan_dims dims = ggml_scan_dims_get(op);
    const auto      max = device->properties.limits.maxComputeWorkGroupCount;
    bool            ok = is_on(device, op->src[SCAN_SRC_STATE]) && can_bind(device, op);
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        ok = ok && can_bind(device, op->src[i]);
    }
    if (op->op == GGML_OP_SHORT_CONV) {
        return ok && dims.n_seqs <= max[0] && CEIL_DIV(dims.d_v, CONV_THREADS) <= max[1] &&
               CEIL_DIV(dims.n_tokens, CONV_PIECE) <= max[2];
    }
    const columns c = columns_of(device, dims.d_k, dims.d_v);
    return ok && c.fit && dims.n_seqs <= max[0] / dims.n_head && c.groups <= max[1];
}
