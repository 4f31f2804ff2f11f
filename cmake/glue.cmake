# The glue: the edits of ggml. The ops themselves are in src/ops; most inserted lines only call
# functions of src/ops/glue.h. The edits
#
# - add our ops to ggml, to its backends for CPUs, CUDA and Vulkan, and to ggml-rpc;
# - load backends from our folder, where they are libraries (GGML_BACKEND_DL);
# - replace attention, matrix products, activations and argsort on the CPU, and plan the barriers
#   between nodes;
# - compile only the part of ggml-cuda that our graphs reach, add attention where it has no kernel,
#   and multiply F32 matrices in F32;
# - tell ggml-vulkan that scans write their states, and make it compute in F32;
# - make a client of ggml-rpc survive interrupted calls, and a server drop a client that sends
#   malformed messages;
# - make a graph that did not fit the memory of a device an error that can be repeated.
#
#     name, file, number of occurrences of the anchor, position of the text
#     the anchor
#     the text
#
# Every anchor exists in ggml 0.25.3. The new enumerators are the last ones, because
# ggml-rpc sends the numbers of the stock ops.

include("${CMAKE_CURRENT_LIST_DIR}/glue-apply.cmake")

set(GLUE_EDITS "")

# ---- ggml-base: the enumerators and their names

glue_edit(op-enum include/ggml.h 1 before
[[
        GGML_OP_COUNT,
]]
[[
        GGML_OP_HOUSEHOLDER_SCAN,
        GGML_OP_SIGNED_SCAN,
        GGML_OP_SHORT_CONV,
        GGML_OP_LSTM_SCAN,

]])

glue_edit(op-name src/ggml.c 1 after
[[
    "GLU",
]]
[[

    [GGML_OP_HOUSEHOLDER_SCAN] = "HOUSEHOLDER_SCAN",
    [GGML_OP_SIGNED_SCAN]      = "SIGNED_SCAN",
    [GGML_OP_SHORT_CONV]       = "SHORT_CONV",
    [GGML_OP_LSTM_SCAN]        = "LSTM_SCAN",
]])

glue_edit(op-symbol src/ggml.c 1 after
[[
    "glu(x)",
]]
[[

    [GGML_OP_HOUSEHOLDER_SCAN] = "householder_scan(S,x)",
    [GGML_OP_SIGNED_SCAN]      = "signed_scan(S,x)",
    [GGML_OP_SHORT_CONV]       = "short_conv(S,x)",
    [GGML_OP_LSTM_SCAN]        = "lstm_scan(S,x)",
]])

glue_edit(op-count src/ggml.c 2 replace
    "static_assert(GGML_OP_COUNT == "
    "static_assert(GGML_OP_COUNT - 4 == ")

# ---- ggml: backends that are loaded at run time (GGML_BACKEND_DL)
#
# They are in the folder lrnn beside this library, and loaded by the first use of the registry,
# which also fills it in other builds. ggml would look beside the program and in the current folder.

glue_edit(dl-variants src/CMakeLists.txt 1 after
[[
function(ggml_add_cpu_backend_variant tag_name)
]]
[[
    if (GGML_SYSTEM_ARCH STREQUAL "x86" AND NOT tag_name IN_LIST LRNN_X86_VARIANTS)
        return()
    endif()
]])

glue_edit(dl-include src/ggml-backend-reg.cpp 1 before
[[
namespace fs = std::filesystem;
]]
[[
#ifdef GGML_BACKEND_DL
#include <dlfcn.h>
#include <mutex>

static void ggml_lrnn_load_backends();
#endif

]])

glue_edit(dl-load src/ggml-backend-reg.cpp 1 replace
[[
    static ggml_backend_registry reg;
    return reg;
]]
[[
    static ggml_backend_registry reg;
#ifdef GGML_BACKEND_DL
    static std::once_flag once;
    static thread_local bool is_loading; // the functions that load use the registry
    if (!is_loading) {
        is_loading = true;
        std::call_once(once, ggml_lrnn_load_backends);
        is_loading = false;
    }
#endif
    return reg;
]])

glue_edit(dl-folder src/ggml-backend-reg.cpp 1 before
[[
void ggml_backend_load_all() {
]]
[[
#ifdef GGML_BACKEND_DL
static void ggml_lrnn_load_backends() {
    Dl_info info;
    if (dladdr((void *) ggml_lrnn_load_backends, &info) != 0) {
        const std::string folder = path_str(fs::path(info.dli_fname).parent_path() / "lrnn");
        for (const char * name : { "cuda", "rpc", "cpu" }) { // the order of the registry
            ggml_backend_load_best(name, true, folder.c_str());
        }
    }
}
#endif

]])

glue_edit(dl-prefix src/ggml-backend-reg.cpp 1 replace
[[fs::u8path("libggml-")]]
[[fs::u8path("liblrnn-ggml-")]])

glue_edit(dl-silent src/ggml-backend-reg.cpp 1 before
[[
        GGML_LOG_INFO("%s: loaded %s backend from %s\n", ]]
[[
        if (!silent)
]])

# ---- ggml-rpc: the same wire format
#
# The patch version tells a client that a server has our ops: it is 100 or more. Increase 101 with
# every new op.

glue_edit(rpc-op-count include/ggml-rpc.h 1 replace
    "static_assert(GGML_OP_COUNT == "
    "static_assert(GGML_OP_COUNT - 4 == ")

glue_edit(rpc-patch-version include/ggml-rpc.h 1 replace
    "#define RPC_PROTO_PATCH_VERSION "
[[
#define RPC_PROTO_PATCH_VERSION    (101 + RPC_PROTO_PATCH_VERSION_GGML)
#define RPC_PROTO_PATCH_VERSION_GGML ]])

# ---- ggml-rpc: interrupted calls
#
# A socket with a time-out returns EINTR when its process is stopped and continued (Ctrl-Z and fg),
# even without a signal handler. ggml-rpc would take it for a lost connection.

glue_edit(rpc-errno src/ggml-rpc/transport.cpp 1 before
[[
#include <cstdlib>
]]
[[
#include <cerrno>
]])

glue_edit(rpc-send-interrupted src/ggml-rpc/transport.cpp 1 after
[[
        ssize_t n = send(fd, (const char *)data + bytes_sent, size_to_send, 0);
]]
[[
        if (n < 0 && errno == EINTR) {
            continue;
        }
]])

glue_edit(rpc-recv-interrupted src/ggml-rpc/transport.cpp 1 after
[[
        ssize_t n = recv(fd, (char *)data + bytes_recv, size_to_recv, 0);
]]
[[
        if (n < 0 && errno == EINTR) {
            continue;
        }
]])

# ---- ggml-rpc: malformed messages
#
# The server asserts what a client sends, and ends. Here it drops the client instead. The rules are
# in src/ops/rpc-check.c.

glue_edit(rpc-include src/ggml-rpc/ggml-rpc.cpp 1 after
[[
#include "ggml-rpc.h"
]]
[[
#include "glue.h"
]])

# The memory for a message grows with the bytes that arrive, not with the announced size.
glue_edit(rpc-receive src/ggml-rpc/ggml-rpc.cpp 1 replace
[[
    try {
        input.resize(size);
    } catch (const std::bad_alloc & e) {
        GGML_LOG_ERROR("Failed to allocate input buffer of size %" PRIu64 "\n", size);
        return false;
    }
    return sock->recv_data(input.data(), size);
]]
[[
    if (size > UINT32_MAX) {
        GGML_LOG_ERROR("[%s] message of %" PRIu64 " bytes; expected less than 4 GiB\n",
                       __func__, size);
        return false;
    }
    for (uint64_t n = 0, part; n < size; n += part) {
        part = std::min<uint64_t>(size - n, 64u << 20);
        input.resize(n + part);
        if (!sock->recv_data(input.data() + n, part)) {
            return false;
        }
    }
    return true;
]])

glue_edit(rpc-source-size src/ggml-rpc/ggml-rpc.cpp 1 after
[[
            tensor->src[i] = deserialize_tensor(ctx, &request.srcs[i]);
]]
[[
            if (tensor->src[i] == nullptr) {
                return false;
            }
]])

glue_edit(rpc-alloc src/ggml-rpc/ggml-rpc.cpp 1 replace
[[
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(buft, request.size);
]]
[[
    uint64_t in_use = 0;
    for (auto other : buffers) {
        in_use += other->size;
    }
    ggml_backend_buffer_t buffer = nullptr;
    if (ggml_lrnn_rpc_alloc_ok(backends[dev_id], request.size, buffers.size(), in_use)) {
        buffer = ggml_backend_buft_alloc_buffer(buft, request.size);
    }
]])

glue_edit(rpc-tensor src/ggml-rpc/ggml-rpc.cpp 1 before
[[
    ggml_tensor * result = ggml_new_tensor_4d(ctx, (ggml_type) tensor->type,
]]
[[
    uint32_t ne[GGML_MAX_DIMS], nb[GGML_MAX_DIMS];
    memcpy(ne, tensor->ne, sizeof(ne));
    memcpy(nb, tensor->nb, sizeof(nb));
    if (!ggml_lrnn_rpc_tensor_ok(tensor->type, tensor->op, ne, nb, tensor->data)) {
        GGML_LOG_ERROR("[%s] malformed tensor\n", __func__);
        return nullptr;
    }

]])

glue_edit(rpc-tensor-range src/ggml-rpc/ggml-rpc.cpp 1 before
[[
        GGML_ASSERT(tensor->data + tensor_size >= tensor->data); // check for overflow
]]
[[
        if (tensor->data < buffer_start || tensor->data - buffer_start > buffer_size ||
                tensor_size > buffer_size - (tensor->data - buffer_start)) {
            GGML_LOG_ERROR("[%s] tensor outside of its buffer\n", __func__);
            return nullptr;
        }
]])

glue_edit(rpc-set-range src/ggml-rpc/ggml-rpc.cpp 1 replace
    "if (in_tensor->data + offset < p0 ||"
[[
if (offset > ggml_nbytes(tensor) || size > ggml_nbytes(tensor) - offset ||
            in_tensor->data + offset < p0 ||]])

glue_edit(rpc-hash-range src/ggml-rpc/ggml-rpc.cpp 1 replace
[[
        if (request.tensor.data + request.offset < p0
]]
[[
        if (request.offset > ggml_nbytes(tensor) || size > ggml_nbytes(tensor) - request.offset
         || request.tensor.data + request.offset < p0
]])

glue_edit(rpc-get-range src/ggml-rpc/ggml-rpc.cpp 1 replace
[[
        if (request.tensor.data + request.offset < p0 ||
]]
[[
        if (request.offset > ggml_nbytes(tensor) ||
            request.size > ggml_nbytes(tensor) - request.offset ||
            request.tensor.data + request.offset < p0 ||
]])

glue_edit(rpc-init src/ggml-rpc/ggml-rpc.cpp 1 before
[[
    if (buffer && buffer->iface.init_tensor) {
]]
[[
    if (buffer && !ggml_lrnn_rpc_init_ok(buffer, tensor)) {
        GGML_LOG_ERROR("[%s] no room for the padding of a tensor\n", __func__);
        return false;
    }
]])

glue_edit(rpc-copy src/ggml-rpc/ggml-rpc.cpp 1 replace
    "if (dst_data + src_size > dst_base + dst_buf_sz) {"
    "if (!ggml_lrnn_rpc_copy_ok(src, dst) || dst_data + src_size > dst_base + dst_buf_sz) {")

# create_node calls itself for each source. The nodes of a graph are in the order of computation, so
# that it is deep only for sources that another server computed.
glue_edit(rpc-depth src/ggml-rpc/ggml-rpc.cpp 1 before
[[
    // Safely find the tensor pointer
    auto it_ptr = tensor_ptrs.find(id);
]]
[[
    static thread_local int depth = 0;
    struct one_deeper {
        one_deeper()  { ++depth; }
        ~one_deeper() { --depth; }
    } one_deeper;
    if (depth > 10000) {
        GGML_LOG_ERROR("[%s] sources of sources are nested too deeply\n", __func__);
        return nullptr;
    }
]])

glue_edit(rpc-graph-size src/ggml-rpc/ggml-rpc.cpp 1 before
[[
    size_t buf_size = ggml_tensor_overhead()*(n_nodes + n_tensors) + ]]
[[
    if (!ggml_lrnn_rpc_graph_size_ok(n_nodes, n_tensors)) {
        GGML_LOG_ERROR("[%s] graph of %u nodes and %u tensors\n", __func__, n_nodes, n_tensors);
        return false;
    }
]])

glue_edit(rpc-graph-null src/ggml-rpc/ggml-rpc.cpp 1 replace
    "if (graph->nodes[i] == nullptr && id != 0) {"
    "if (graph->nodes[i] == nullptr) {")

glue_edit(rpc-graph-twice src/ggml-rpc/ggml-rpc.cpp 1 before
[[
            graph->use_counts[hash_pos] = tensor_ptrs.at(id)->use_count;
]]
[[
            if (hash_pos == GGML_HASHSET_ALREADY_EXISTS) {
                GGML_LOG_ERROR("[%s] node %d occurs twice\n", __func__, i);
                return false;
            }
]])

glue_edit(rpc-graph-compute src/ggml-rpc/ggml-rpc.cpp 1 replace
[[
        }
    }
    ggml_status status = ggml_backend_graph_compute(backends[device], graph);
]]
[[
        }
    }
    if (!ggml_lrnn_rpc_graph_ok(backends[device], graph, false)) {
        return false;
    }
    ggml_status status = ggml_backend_graph_compute(backends[device], graph);
]])

glue_edit(rpc-graph-recompute src/ggml-rpc/ggml-rpc.cpp 1 replace
[[
    LOG_DBG("[%s] device: %u\n", __func__, device);
    ggml_status status = ggml_backend_graph_compute(backends[device], graph);
]]
[[
    LOG_DBG("[%s] device: %u\n", __func__, device);
    if (!ggml_lrnn_rpc_graph_ok(backends[device], graph, true)) {
        return false;
    }
    ggml_status status = ggml_backend_graph_compute(backends[device], graph);
]])

glue_edit(rpc-graph-status src/ggml-rpc/ggml-rpc.cpp 2 before
[[
    GGML_ASSERT(status == GGML_STATUS_SUCCESS && "Unsuccessful graph computations ]]
[[
    if (status != GGML_STATUS_SUCCESS) {
        GGML_LOG_ERROR("[%s] the graph was not computed: %s\n",
                       __func__, ggml_status_to_string(status));
        return false;
    }
]])

# Lack of memory, mostly.
glue_edit(rpc-exceptions src/ggml-rpc/ggml-rpc.cpp 1 replace
[[
        rpc_serve_client(backends, cache_dir, client_socket);
]]
[[
        try {
            rpc_serve_client(backends, cache_dir, client_socket);
        } catch (const std::exception & e) {
            GGML_LOG_ERROR("[%s] client dropped: %s\n", __func__, e.what());
        }
]])

# ---- ggml-cpu: compute, number of threads, work buffer, supported ops

glue_edit(cpu-include src/ggml-cpu/ggml-cpu.c 1 after
[[
#include "ops.h"
]]
[[
#include "glue.h"
]])

glue_edit(cpu-forward src/ggml-cpu/ggml-cpu.c 1 after
[[
                ggml_compute_forward_rwkv_wkv7(params, tensor);
            } break;
]]
[[
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN:
        case GGML_OP_SHORT_CONV:
        case GGML_OP_LSTM_SCAN:
            {
                ggml_lrnn_cpu_forward(params, tensor);
            } break;
]])

glue_edit(cpu-n-tasks src/ggml-cpu/ggml-cpu.c 1 before
[[
        case GGML_OP_NONE:
            {
                n_tasks = 1;
]]
[[
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN:
        case GGML_OP_SHORT_CONV:
        case GGML_OP_LSTM_SCAN:
            {
                n_tasks = ggml_lrnn_cpu_n_tasks(node, n_threads);
            } break;
]])

glue_edit(cpu-work-size src/ggml-cpu/ggml-cpu.c 1 before
[[
                case GGML_OP_CROSS_ENTROPY_LOSS:
                    {
                        cur = ]]
[[
                case GGML_OP_HOUSEHOLDER_SCAN:
                case GGML_OP_SIGNED_SCAN:
                case GGML_OP_SHORT_CONV:
                case GGML_OP_LSTM_SCAN:
                    {
                        cur = ggml_lrnn_cpu_work_size(node, n_tasks);
                    } break;
]])

glue_edit(cpu-attention src/ggml-cpu/ggml-cpu.c 1 replace
[[
                ggml_compute_forward_flash_attn_ext(params, tensor);
]]
[[
                if (!ggml_lrnn_cpu_attention(params, tensor)) {
                    ggml_compute_forward_flash_attn_ext(params, tensor);
                }
]])

# Matrix products.
glue_edit(cpu-mul-mat src/ggml-cpu/ggml-cpu.c 1 replace
[[
                ggml_compute_forward_mul_mat(params, tensor);
]]
[[
                if (!ggml_lrnn_cpu_mul_mat(params, tensor)) {
                    ggml_compute_forward_mul_mat(params, tensor);
                }
]])

glue_edit(cpu-mul-mat-id src/ggml-cpu/ggml-cpu.c 1 replace
[[
                ggml_compute_forward_mul_mat_id(params, tensor);
]]
[[
                if (!ggml_lrnn_cpu_mul_mat(params, tensor)) {
                    ggml_compute_forward_mul_mat_id(params, tensor);
                }
]])

# Activations in vectors.
glue_edit(cpu-unary src/ggml-cpu/ggml-cpu.c 1 replace
[[
                ggml_compute_forward_unary(params, tensor);
]]
[[
                if (!ggml_lrnn_cpu_unary(params, tensor)) {
                    ggml_compute_forward_unary(params, tensor);
                }
]])

# The choice of experts.
glue_edit(cpu-argsort src/ggml-cpu/ggml-cpu.c 1 replace
[[
                ggml_compute_forward_argsort(params, tensor);
]]
[[
                if (!ggml_lrnn_cpu_argsort(params, tensor)) {
                    ggml_compute_forward_argsort(params, tensor);
                }
]])

glue_edit(cpu-other-work-sizes src/ggml-cpu/ggml-cpu.c 1 before
[[
        work_size = MAX(work_size, cur);
]]
[[
        cur = MAX(cur, ggml_lrnn_cpu_attention_size(node, n_tasks));
        cur = MAX(cur, ggml_lrnn_cpu_mul_mat_work_size(node, n_tasks));
]])

# libgomp's barrier spins for milliseconds before it sleeps, and ggml's own spins forever. On a busy
# machine the other thread may not even be scheduled meanwhile.
glue_edit(cpu-barrier src/ggml-cpu/ggml-cpu.c 1 replace
[[
#ifdef GGML_USE_OPENMP
    #pragma omp barrier
#else
    int n_passed]]
[[
    int n_passed]])

glue_edit(cpu-barrier-end src/ggml-cpu/ggml-cpu.c 1 replace
[[
    #endif
#endif
}

void ggml_threadpool_chunk_set]]
[[
    #endif
}

void ggml_threadpool_chunk_set]])

glue_edit(cpu-barrier-wait src/ggml-cpu/ggml-cpu.c 1 replace
[[
    while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed) {
        ggml_thread_cpu_relax();
    }
]]
[[
    int n_spins = 0;
    while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed) {
        ggml_lrnn_cpu_wait(&n_spins, thread);
    }
]])

glue_edit(cpu-barrier-thread src/ggml-cpu/ggml-cpu.c 1 replace
[[
void ggml_barrier(struct ggml_threadpool * tp) {
]]
[[
void ggml_barrier(struct ggml_threadpool * tp) {
    ggml_lrnn_cpu_barrier(tp, NULL);
}

void ggml_lrnn_cpu_barrier(struct ggml_threadpool * tp, struct ggml_lrnn_cpu_thread * thread) {
]])

glue_edit(cpu-params-thread src/ggml-cpu/ggml-cpu-impl.h 1 after
[[
    // use reference implementation
    bool use_ref;
]]
[[

    // of a planned graph; NULL: the threads wait for each other after every node
    struct ggml_lrnn_cpu_thread * thread;
]])

glue_edit(cpu-params-init src/ggml-cpu/ggml-cpu.c 1 after
[[
        /*.use_ref    =*/ cplan->use_ref,
]]
[[
        /*.thread     =*/ NULL,
]])

# Barriers only where a node needs them, and small nodes on one thread (src/ops/cpu/barriers.c). An
# abort callback needs all barriers: all threads must see the same node as the last one. So does
# use_ref, which lets ggml compute every node.
glue_edit(cpu-begin src/ggml-cpu/ggml-cpu.c 1 before
[[
    for (int node_n = 0; node_n < cgraph->n_nodes && atomic_load_explicit(&tp->abort]]
[[
    if (cplan->abort_callback == NULL && !cplan->use_ref) {
        params.thread = ggml_lrnn_cpu_begin(cplan->lrnn_plan, &params);
    }

]])

glue_edit(cpu-before-node src/ggml-cpu/ggml-cpu.c 1 replace
[[
        const int n_fused = ggml_cpu_try_fuse_ops(cgraph, node_n, &params, cplan);
        if (n_fused > 0) {
            node_n += n_fused;
        } else {
            ggml_compute_forward(&params, node);
        }
]]
[[
        const bool alone = params.thread != NULL &&
                           ggml_lrnn_cpu_before_node(params.thread, &params, node_n);
        if (alone && state->ith != 0) {
            continue;
        }
        struct ggml_compute_params node_params = params;
        node_params.nth                        = alone ? 1 : params.nth;
        const int n_fused = alone ? 0 : ggml_cpu_try_fuse_ops(cgraph, node_n, &params, cplan);
        if (n_fused > 0) {
            node_n += n_fused;
        } else {
            ggml_compute_forward(&node_params, node);
        }
]])

glue_edit(cpu-after-node src/ggml-cpu/ggml-cpu.c 1 replace
[[
        if (node_n + 1 < cgraph->n_nodes) {
            ggml_barrier(state->threadpool);
        }
]]
[[
        if (params.thread == NULL && node_n + 1 < cgraph->n_nodes) {
            ggml_barrier(state->threadpool);
        }
]])

# The plan of the last graph belongs to the backend, next to its work buffer.
glue_edit(cpu-plan-field include/ggml-cpu.h 1 after
[[
        // use only reference implementations
        bool use_ref;
]]
[[

        // barriers; NULL: the threads wait for each other after every node
        struct ggml_lrnn_cpu_plan * lrnn_plan;
]])

glue_edit(cpu-plan-kept src/ggml-cpu/ggml-cpu.cpp 1 after
[[
struct ggml_backend_cpu_context {
]]
[[
    struct ggml_lrnn_cpu_plan * plan = NULL;

]])

glue_edit(cpu-plan src/ggml-cpu/ggml-cpu.cpp 1 replace
[[
    struct ggml_cplan cplan = ggml_graph_plan(cgraph, cpu_ctx->n_threads, cpu_ctx->threadpool);
]]
[[
    struct ggml_cplan cplan = ggml_lrnn_cpu_plan_graph(
        &cpu_ctx->plan, cgraph, cpu_ctx->n_threads, cpu_ctx->threadpool);
]])

glue_edit(cpu-plan-free src/ggml-cpu/ggml-cpu.cpp 1 before
[[
    delete[] cpu_ctx->work_data;
    delete cpu_ctx;
]]
[[
    ggml_lrnn_cpu_plan_free(cpu_ctx->plan);
]])

glue_edit(cpu-device-include src/ggml-cpu/ggml-cpu.cpp 1 after
[[
#include "traits.h"
]]
[[
#include "glue.h"
]])

# Without memory for the work buffer, ggml returns an error only if operator new does not throw.
glue_edit(cpu-work-data src/ggml-cpu/ggml-cpu.cpp 1 replace
    "cpu_ctx->work_data = new uint8_t[cplan.work_size];"
    "cpu_ctx->work_data = new (std::nothrow) uint8_t[cplan.work_size];")

glue_edit(cpu-supports-op src/ggml-cpu/ggml-cpu.cpp 1 before
[[
        case GGML_OP_CPY:
        case GGML_OP_SET_ROWS:
]]
[[
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN:
        case GGML_OP_SHORT_CONV:
        case GGML_OP_LSTM_SCAN:
            return ggml_lrnn_cpu_supports_op(op);
]])

# ---- ggml-base: a device without memory

# The old buffer is gone, but the graph is remembered as allocated: the next one, if it has as many
# nodes, would be placed in no buffer, and ggml would abort.
glue_edit(alloc-failed src/ggml-alloc.c 1 after
[[
ggml_backend_buft_name(galloc->bufts[i]), new_size);
]]
[[
                    galloc->n_nodes = -1;
]])

# ---- ggml-cuda: compute, supported ops

glue_edit(cuda-include src/ggml-cuda/ggml-cuda.cu 1 after
[[
#include "ggml-cuda/wkv.cuh"
]]
[[
#include "glue.h"
]])

glue_edit(cuda-forward src/ggml-cuda/ggml-cuda.cu 1 after
[[
            ggml_cuda_op_rwkv_wkv7(ctx, dst);
            break;
]]
[[
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN:
        case GGML_OP_SHORT_CONV:
        case GGML_OP_LSTM_SCAN:
            if (!ggml_lrnn_cuda_forward(ctx, dst)) {
                return false;
            }
            break;
]])

glue_edit(cuda-supports-op src/ggml-cuda/ggml-cuda.cu 1 after
[[
        case GGML_OP_RWKV_WKV7:
            return true;
]]
[[
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN:
        case GGML_OP_SHORT_CONV:
        case GGML_OP_LSTM_SCAN:
            return ggml_lrnn_cuda_supports_op(op);
]])

# lrnn asks by name, so that it need not link ggml-cuda
glue_edit(cuda-too-old src/ggml-cuda/ggml-cuda.cu 1 after
[[
static void * ggml_backend_cuda_reg_get_proc_address(ggml_backend_reg_t reg, const char * name) {
    GGML_UNUSED(reg);
]]
[[
    if (strcmp(name, "ggml_lrnn_cuda_is_too_old") == 0) {
        return (void *)ggml_lrnn_cuda_is_too_old;
    }
]])

# ---- ggml-cuda: F32 matrices
#
# ggml-cuda rounds both operands to TF32, with 10 fraction bits, if the matrix is F32 and multiplies
# more than 3 columns. A tensor is F32 in a model file because it shapes the recurrence (gates, β,
# Δ), or because its user wants exact results.

glue_edit(cuda-cublas-f32 src/ggml-cuda/common.cuh 1 replace
    "CUBLAS_TF32_TENSOR_OP_MATH"
    "CUBLAS_DEFAULT_MATH")

# ---- ggml-cuda: only what our graphs reach
#
# ggml-cuda compiles for half an hour, mostly kernels that no graph of ours uses. src/ops/cuda/
# reach.h says which ones are left; cmake/ggml.cmake lists the files.

glue_edit(cuda-reach-include src/ggml-cuda/common.cuh 1 before
[[
#include "ggml-cuda.h"
]]
[[
#include "cuda/reach.h"
]])

glue_edit(cuda-reach-op src/ggml-cuda/ggml-cuda.cu 1 before
[[
    switch (op->op) {
        case GGML_OP_UNARY:
            switch (ggml_get_unary_op(op)) {
                case GGML_UNARY_OP_ABS:
                case GGML_UNARY_OP_SGN:
                case GGML_UNARY_OP_NEG:
                case GGML_UNARY_OP_STEP:
                case GGML_UNARY_OP_GELU:
                case GGML_UNARY_OP_SILU:
                case GGML_UNARY_OP_RELU:
]]
[[
    if (!ggml_lrnn_cuda_reaches_op(op->op)) {
        return false;
    }
]])

# Attention: our kernel for what ggml-cuda has none for.
glue_edit(cuda-attention src/ggml-cuda/ggml-cuda.cu 1 replace
[[
            ggml_cuda_flash_attn_ext(ctx, dst);
]]
[[
            if (!ggml_lrnn_cuda_attention(ctx, dst)) {
                ggml_cuda_flash_attn_ext(ctx, dst);
            }
]])

glue_edit(cuda-attention-supports src/ggml-cuda/ggml-cuda.cu 1 replace
    "return ggml_cuda_flash_attn_ext_supported(dev_ctx->device, op);"
    "return ggml_lrnn_cuda_attention_supports(op);")

glue_edit(cuda-attention-mma src/ggml-cuda/fattn-mma-f16.cuh 1 before
[[
    constexpr int ncols = ncols1 * ncols2;

    const int  nthreads       = ggml_cuda_fattn_mma_get_nthreads      (DKQ, DV, ncols, cc);
]]
[[
    if constexpr (!ggml_lrnn_cuda_reaches_head(DKQ)) {
        GGML_UNUSED(cc);
        GGML_ABORT("attention with heads of %d is not compiled", DKQ);
    } else {
]])

glue_edit(cuda-attention-mma-end src/ggml-cuda/fattn-mma-f16.cuh 1 after
    "nbatch_fa, true, true, true, use_sparse, warp_size_host);"
[[

    }]])

# No model of ours caps scores.
glue_edit(cuda-attention-mma-cap src/ggml-cuda/fattn-mma-f16.cuh 1 replace
[[
        constexpr bool use_logit_softcap = true;
        constexpr bool use_sparse_kernel = false;
]]
[[
        GGML_ABORT("capped scores are not compiled");
        constexpr bool use_logit_softcap = false;
        constexpr bool use_sparse_kernel = false;
]])

glue_edit(cuda-attention-vec-cap src/ggml-cuda/fattn-vec.cuh 2 replace
    "constexpr bool use_logit_softcap = true;"
    "GGML_ABORT(\"capped scores are not compiled\"); constexpr bool use_logit_softcap = false;")

# Products with quantized matrices of other types convert them to F16 first.
glue_edit(cuda-mmvq src/ggml-cuda/mmvq.cu 1 replace
[[
    if (!ggml_is_quantized(type)) {
        return false;
    }
    // k-quants cost more]]
[[
    if (!ggml_lrnn_cuda_reaches_type(type)) {
        return false;
    }
    // k-quants cost more]])

glue_edit(cuda-mmvq-experts src/ggml-cuda/mmvq.cu 1 before
[[
    // NVIDIA: Volta, Ada Lovelace, and Blackwell always use MMVQ for MUL_MAT_ID.
]]
[[
    if (!ggml_lrnn_cuda_reaches_type(type)) {
        return 0;
    }
]])

glue_edit(cuda-mmvq-fused src/ggml-cuda/ggml-cuda.cu 1 replace
    "bool use_mul_mat_vec_q = ggml_is_quantized(src0->type) &&"
    "bool use_mul_mat_vec_q = ggml_lrnn_cuda_reaches_type(src0->type) &&")

glue_edit(cuda-mmvq-kernel src/ggml-cuda/mmvq.cu 1 before
[[
    if constexpr (c_ncols_dst == 1) {
        if (has_fusion) {
]]
[[
    GGML_UNUSED(has_fusion);
    if constexpr (ggml_lrnn_cuda_reaches_type(type)) {
]])

glue_edit(cuda-mmvq-kernel-end src/ggml-cuda/mmvq.cu 1 replace
[[
        sample_ratio, stride_sample_x, stride_sample_y, stride_sample_dst, ids_stride);
}
]]
[[
        sample_ratio, stride_sample_x, stride_sample_y, stride_sample_dst, ids_stride);
    }
}
]])

glue_edit(cuda-mmvq-moe src/ggml-cuda/mmvq.cu 1 before
[[
    constexpr int rows_per_block = 2; // 2 gives best perf based on tuning
]]
[[
    if constexpr (ggml_lrnn_cuda_reaches_type(type)) {
]])

glue_edit(cuda-mmvq-moe-end src/ggml-cuda/mmvq.cu 1 replace
[[
            ncols_dst, ids_stride);
    }
}
]]
[[
            ncols_dst, ids_stride);
    }
    }
}
]])

glue_edit(cuda-mmq src/ggml-cuda/mmq.cu 1 before
[[
    bool mmq_supported;
]]
[[
    if (!ggml_lrnn_cuda_reaches_type(type)) {
        return false;
    }

]])

glue_edit(cuda-mmq-kernel src/ggml-cuda/mmq.cuh 1 replace
[[
    if (args.nrows_x % 128 == 0) {
        constexpr bool fallback = false;
]]
[[
    if constexpr (!ggml_lrnn_cuda_reaches_type(type)) {
        GGML_UNUSED_VARS(ctx, args, stream);
        GGML_ABORT("products with this type are not compiled");
    } else if (args.nrows_x % 128 == 0) {
        constexpr bool fallback = false;
]])

# Tiles of 8, 16, 32, 64 and 128 columns instead of all multiples of 8.
glue_edit(cuda-mmq-tile src/ggml-cuda/mmq.cuh 1 replace
    "for (int J = 8; J <= 128 && ntiles_J_best > 1; J += 8) {"
    "for (int J = 8; J <= 128 && ntiles_J_best > 1; J *= 2) {")

glue_edit(cuda-mmq-tile-24 src/ggml-cuda/mmq.cuh 1 replace
[[
        case  24:
            launch_mul_mat_q<type,  24, fallback, prec_src1>(ctx, args, stream);
            break;
]]
    "        // 24: not compiled\n")

glue_edit(cuda-mmq-tile-40 src/ggml-cuda/mmq.cuh 1 replace
[[
        case  40:
            launch_mul_mat_q<type,  40, fallback, prec_src1>(ctx, args, stream);
            break;
        case  48:
            launch_mul_mat_q<type,  48, fallback, prec_src1>(ctx, args, stream);
            break;
        case  56:
            launch_mul_mat_q<type,  56, fallback, prec_src1>(ctx, args, stream);
            break;
]]
    "        // 40 to 56: not compiled\n")

glue_edit(cuda-mmq-tile-72 src/ggml-cuda/mmq.cuh 1 replace
[[
        case  72:
            launch_mul_mat_q<type,  72, fallback, prec_src1>(ctx, args, stream);
            break;
        case  80:
            launch_mul_mat_q<type,  80, fallback, prec_src1>(ctx, args, stream);
            break;
        case  88:
            launch_mul_mat_q<type,  88, fallback, prec_src1>(ctx, args, stream);
            break;
        case  96:
            launch_mul_mat_q<type,  96, fallback, prec_src1>(ctx, args, stream);
            break;
        case 104:
            launch_mul_mat_q<type, 104, fallback, prec_src1>(ctx, args, stream);
            break;
        case 112:
            launch_mul_mat_q<type, 112, fallback, prec_src1>(ctx, args, stream);
            break;
        case 120:
            launch_mul_mat_q<type, 120, fallback, prec_src1>(ctx, args, stream);
            break;
]]
    "        // 72 to 120: not compiled\n")

# ggml-cuda uses this kernel for up to 4 columns on the GPUs that lrnn supports.
foreach (n RANGE 5 8)
    glue_edit(cuda-mmvf-${n} src/ggml-cuda/mmvf.cu 1 replace
        "launch_mul_mat_vec_f_cuda<T, type_acc, ${n}>"
        "GGML_ABORT(\"${n} columns are not compiled\"); launch_mul_mat_vec_f_cuda<T, type_acc, 4>")
endforeach()

# Experts in F32, F16 and BF16: ggml-cuda would wait for the ids on the host, and could not capture
# the graph. Its kernel for single columns needs neither.
glue_edit(cuda-experts-sync src/ggml-cuda/ggml-cuda.cu 1 replace
[[
        } else if (GGML_CUDA_CC_IS_AMD(cc)) {
            return false;
]]
[[
        } else if (src0->ne[0] % 2 == 0) {
            return false;
]])

glue_edit(cuda-experts src/ggml-cuda/ggml-cuda.cu 1 replace
[[
                if (GGML_CUDA_CC_IS_AMD(cc)) {
                    ggml_cuda_mul_mat_vec_f(ctx, src0, src1, ids, dst);
]]
[[
                if (src0->ne[0] % 2 == 0) {
                    ggml_cuda_mul_mat_vec_f(ctx, src0, src1, ids, dst);
]])

# CUB sorts rows of more than 1024 numbers; ours are the scores of experts.
glue_edit(cuda-cub src/ggml-cuda/common.cuh 1 replace
[[
#    define GGML_CUDA_USE_CUB
]]
    "//  GGML_CUDA_USE_CUB is not defined\n")

# ---- ggml-vulkan: pipelines, dispatch, hazards, supported ops

glue_edit(vk-include src/ggml-vulkan/ggml-vulkan.cpp 1 after
[[
#include "ggml-vulkan-common.h"
]]
[[
#include "vulkan/vulkan-glue.h"
]])

glue_edit(vk-pipeline-map src/ggml-vulkan/ggml-vulkan-types.h 1 after
[[
    std::map<vk_solve_tri_pipeline_state, vk_pipeline> pipeline_solve_tri_f32;
]]
[[
    std::map<std::vector<uint32_t>, vk_pipeline> pipeline_lrnn; // see vulkan-glue.h
]])

glue_edit(vk-pipelines src/ggml-vulkan/ggml-vulkan.cpp 1 before
[[
    for (auto &s : device->pipeline_solve_tri_f32) {
        const vk_solve_tri_pipeline_state &state = s.first;
]]
[[
    for (auto & s : device->pipeline_lrnn) {
        const ggml_lrnn_vk_shader shader = ggml_lrnn_vk_shader_of(s.first);
        ggml_vk_create_pipeline(
            device, s.second, shader.name, shader.size, shader.code, "main", shader.n_bindings,
            shader.push_size, {1, 1, 1}, { s.first.begin() + 1, s.first.end() }, 1, false,
            shader.subgroups, shader.subgroups ? device->subgroup_size : 0);
    }
]])

glue_edit(vk-forward src/ggml-vulkan/ggml-vulkan.cpp 1 after
[[
    case GGML_OP_SSM_CONV:
        ggml_vk_ssm_conv(ctx, compute_ctx, cgraph, node_idx);

        break;
]]
[[

    case GGML_OP_HOUSEHOLDER_SCAN:
    case GGML_OP_SIGNED_SCAN:
    case GGML_OP_SHORT_CONV:
        ggml_lrnn_vk_forward(ctx, compute_ctx, node);

        break;
]])

glue_edit(vk-supports-op src/ggml-vulkan/ggml-vulkan.cpp 1 before
[[
        case GGML_OP_SSM_CONV:
            return op->src[0]->type == GGML_TYPE_F32;
]]
[[
        case GGML_OP_HOUSEHOLDER_SCAN:
        case GGML_OP_SIGNED_SCAN:
        case GGML_OP_SHORT_CONV:
            return ggml_lrnn_vk_supports_op(device, op);
]])

# ggml-vulkan inserts a barrier before a node that reads what an earlier node wrote, or writes what
# one read. It takes a node to write only its result; ours also write their state.
glue_edit(vk-hazard-check src/ggml-vulkan/ggml-vulkan.cpp 1 before
[[
            for (uint32_t j = 0; j < GGML_MAX_SRC; ++j) {
                if (!cur_node->src[j]) {
                    continue;
                }
                if (overlaps_unsynced(cur_node->src[j], ctx->unsynced_nodes_written)) {
]]
[[
            if (ggml_is_scan(cur_node) &&
                    overlaps_unsynced(cur_node->src[0], ctx->unsynced_nodes_read)) {
                need_sync = true;
                break;
            }
]])

glue_edit(vk-hazard-write src/ggml-vulkan/ggml-vulkan.cpp 1 after
[[
            if (ctx->fused_ops_write_mask & (1 << i)) {
                ctx->unsynced_nodes_written.push_back(cur_node);
            }
]]
[[
            if (ggml_is_scan(cur_node)) {
                ctx->unsynced_nodes_written.push_back(cur_node->src[0]);
            }
]])

# On a device with 16-bit arithmetic ggml-vulkan rounds operands to F16, also those of F32 matrices,
# which shape the recurrence (gates, β, Δ). Ours computes in F32 unless it is told otherwise.
glue_edit(vk-f16 src/ggml-vulkan/ggml-vulkan.cpp 1 replace
    "bool force_disable_f16 = getenv(\"GGML_VK_DISABLE_F16\")"
    "bool force_disable_f16 = ggml_lrnn_vk_disable_f16()")

glue_edit(vk-f16-printed src/ggml-vulkan/ggml-vulkan.cpp 1 replace
    "GGML_VK_DISABLE_F16 = getenv(\"GGML_VK_DISABLE_F16\")"
    "GGML_VK_DISABLE_F16 = ggml_lrnn_vk_disable_f16()")

foreach (matrices IN ITEMS "" 2)
    glue_edit(vk-f16-matrices${matrices} src/ggml-vulkan/ggml-vulkan.cpp 2 replace
        "!getenv(\"GGML_VK_DISABLE_COOPMAT${matrices}\")"
        "!ggml_lrnn_vk_disable_f16() && !getenv(\"GGML_VK_DISABLE_COOPMAT${matrices}\")")
endforeach()

# It also rounds the right operand of a product with many columns if it is a view with gaps, as
# Mamba's Δ is.
glue_edit(vk-view-f32 src/ggml-vulkan/ggml-vulkan.cpp 1 replace
[[
    const bool y_f32_kernel = src1->type == GGML_TYPE_F32 && !y_non_contig;

    if (mmp_map == nullptr) {
]]
[[
    const bool y_f32_kernel = src1->type == GGML_TYPE_F32 &&
        (!y_non_contig || (!ctx->device->fp16 && src0->type != GGML_TYPE_BF16));

    if (mmp_map == nullptr && y_f32_kernel) {
        mmp_map = ggml_vk_get_mul_mat_mat_pipeline_map(
            ctx, src0->type, GGML_TYPE_F32, (ggml_prec)dst->op_params[0]);
    }
    if (mmp_map == nullptr) {
]])

glue_edit(vk-view-copy src/ggml-vulkan/ggml-vulkan.cpp 1 replace
    "to_fp16_vk_1 = ggml_vk_get_cpy_pipeline(ctx, src1, nullptr, f16_type);"
    "to_fp16_vk_1 =
            ggml_vk_get_cpy_pipeline(ctx, src1, nullptr, y_f32_kernel ? GGML_TYPE_F32 : f16_type);")

# ggml-vulkan binds the result of a matrix product and everything behind it in the buffer. The
# validation layer then reports the nodes between barriers that use what is behind it.
glue_edit(vk-result-range src/ggml-vulkan/ggml-vulkan.cpp 1 replace
[[
        ggml_vk_subbuffer(ctx, d_D, d_buf_offset), { ctx->prealloc_split_k, 0, d_sz * split_k },
]]
[[
        { d_D, d_buf_offset, d_sz }, { ctx->prealloc_split_k, 0, d_sz * split_k },
]])

# Vulkan headers before 1.3.275 lack the extension, which only GGML_VULKAN_VALIDATE needs.
glue_edit(vk-layer-settings src/ggml-vulkan/ggml-vulkan.cpp 1 replace
[[
    VkBool32 enable_best_practice = layer_settings;
]]
[[
#if VK_HEADER_VERSION < 275
    vk::InstanceCreateInfo instance_create_info(
        vk::InstanceCreateFlags{}, &app_info, layers, extensions);
#else
    VkBool32 enable_best_practice = layer_settings;
]])

glue_edit(vk-layer-settings-end src/ggml-vulkan/ggml-vulkan.cpp 1 after
[[
, extensions, &layer_setting_info);
]]
[[
#endif
]])
