# The glue: the edits that add our three ops to ggml, and make ggml-cuda multiply F32 matrices in
# F32. The ops themselves are in src/ops; an inserted case only calls a function of src/ops/glue.h.
#
#     name, file, number of occurrences of the anchor, position of the text
#     the anchor
#     the text
#
# Every anchor exists in ggml 0.21.0 and 0.25.3. The new enumerators are the last ones, because
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

]])

glue_edit(op-name src/ggml.c 1 after
[[
    "GLU",
]]
[[

    [GGML_OP_HOUSEHOLDER_SCAN] = "HOUSEHOLDER_SCAN",
    [GGML_OP_SIGNED_SCAN]      = "SIGNED_SCAN",
    [GGML_OP_SHORT_CONV]       = "SHORT_CONV",
]])

glue_edit(op-symbol src/ggml.c 1 after
[[
    "glu(x)",
]]
[[

    [GGML_OP_HOUSEHOLDER_SCAN] = "householder_scan(S,x)",
    [GGML_OP_SIGNED_SCAN]      = "signed_scan(S,x)",
    [GGML_OP_SHORT_CONV]       = "short_conv(S,x)",
]])

glue_edit(op-count src/ggml.c 2 replace
    "static_assert(GGML_OP_COUNT == "
    "static_assert(GGML_OP_COUNT - 3 == ")

# ---- ggml-rpc: the same wire format
#
# The patch version tells a client that a server has our ops: it is 100 or more. Increase 100 with
# every new op.

glue_edit(rpc-op-count include/ggml-rpc.h 1 replace
    "static_assert(GGML_OP_COUNT == "
    "static_assert(GGML_OP_COUNT - 3 == ")

glue_edit(rpc-patch-version include/ggml-rpc.h 1 replace
    "#define RPC_PROTO_PATCH_VERSION "
[[
#define RPC_PROTO_PATCH_VERSION    (100 + RPC_PROTO_PATCH_VERSION_GGML)
#define RPC_PROTO_PATCH_VERSION_GGML ]])

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
                    {
                        cur = ggml_lrnn_cpu_work_size(node, n_tasks);
                    } break;
]])

# libgomp's barrier spins for milliseconds before it sleeps, and ggml's own spins forever. On a busy
# machine the other thread may not even be scheduled meanwhile.
glue_edit(cpu-barrier src/ggml-cpu/ggml-cpu.c 1 replace
[[
#ifdef GGML_USE_OPENMP
    #pragma omp barrier
#else
]]
[[
#if 0
#else
]])

glue_edit(cpu-barrier-wait src/ggml-cpu/ggml-cpu.c 1 replace
[[
    while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed) {
        ggml_thread_cpu_relax();
    }
]]
[[
    for (int n = 0;
            atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed; ++n) {
        ggml_lrnn_cpu_wait(n);
    }
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
            return ggml_lrnn_cpu_supports_op(op);
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
            return ggml_lrnn_cuda_supports_op(op);
]])

# ---- ggml-cuda: F32 matrices
#
# ggml-cuda rounds both operands to TF32, with 10 fraction bits, if the matrix is F32 and multiplies
# more than 3 columns. A tensor is F32 in a model file because it shapes the recurrence (gates, β,
# Δ), or because its user wants exact results.

glue_edit(cuda-cublas-f32 src/ggml-cuda/common.cuh 1 replace
    "CUBLAS_TF32_TENSOR_OP_MATH"
    "CUBLAS_DEFAULT_MATH")

glue_edit(cuda-cublas-f32-again src/ggml-cuda/solve_tri.cu 1 replace
[[
    // revert to standard mode from common.cuh
    CUBLAS_CHECK(cublasSetMathMode(ctx.cublas_handle(), CUBLAS_TF32_TENSOR_OP_MATH));
]]
[[
    // keep the standard mode from common.cuh
]])

glue_edit(cuda-mma-f32 src/ggml-cuda/mmf.cu 1 replace
[[
            return ampere_mma_available(cc) || amd_mfma_available(cc);
        case GGML_TYPE_F16:
]]
[[
            return false;
        case GGML_TYPE_F16:
]])
