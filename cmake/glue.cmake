# The glue: what makes ggml know our three ops, and multiply matrices of F32 in F32 on a card. Everything of substance is in src/ops; a case
# inserted here only calls a function that src/ops/glue.h declares.
#
#        name, file, how often the anchor must occur, where the text goes
#        the anchor
#        the text
#
# Each anchor holds in ggml 0.21.0 and in 0.25.3. The new enumerators stand last, so that the numbers of the stock ops, which cross the
# wire in ggml-rpc, do not move.

include("${CMAKE_CURRENT_LIST_DIR}/glue-apply.cmake")

set(GLUE_EDITS "")

# ---- ggml-base: the enumerators and their names --------------------------------------------------------------------------------------

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

# ---- ggml-rpc: same wire format, but a client can tell that a server has our ops: its patch version is 100 or more. One op more of ours: 101 --

glue_edit(rpc-op-count include/ggml-rpc.h 1 replace
    "static_assert(GGML_OP_COUNT == "
    "static_assert(GGML_OP_COUNT - 3 == ")

glue_edit(rpc-patch-version include/ggml-rpc.h 1 replace
    "#define RPC_PROTO_PATCH_VERSION "
    "#define RPC_PROTO_PATCH_VERSION    (100 + RPC_PROTO_PATCH_VERSION_GGML)\n#define RPC_PROTO_PATCH_VERSION_GGML ")

# ---- ggml-cpu: compute, number of threads, work buffer, what can run -------------------------------------------------------------------

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

glue_edit(cpu-device-include src/ggml-cpu/ggml-cpu.cpp 1 after
[[
#include "traits.h"
]]
[[
#include "glue.h"
]])

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

# ---- ggml-cuda: compute, what can run --------------------------------------------------------------------------------------------------

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

# ---- ggml-cuda: F32 means F32 -------------------------------------------------------------------------------------------------------------
#
# ggml-cuda rounds both factors of a product to TF32, 10 bits of fraction, if the matrix is F32 and has more than 3 columns to multiply. What is F32
# in a file was left so because it shapes the recurrence (gates, β, Δ), or because its user wants to compare numbers.

glue_edit(cuda-cublas-f32 src/ggml-cuda/common.cuh 1 replace
    "CUBLAS_TF32_TENSOR_OP_MATH"
    "CUBLAS_DEFAULT_MATH")

glue_edit(cuda-cublas-f32-again src/ggml-cuda/solve_tri.cu 1 replace
[[
    // revert to standard mode from common.cuh
    CUBLAS_CHECK(cublasSetMathMode(ctx.cublas_handle(), CUBLAS_TF32_TENSOR_OP_MATH));
]]
[[
    // the standard mode from common.cuh stays
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
