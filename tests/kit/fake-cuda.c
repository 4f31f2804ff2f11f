#include "fake-cuda.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" // most of what it is told, this card ignores

enum {
    MAX_KERNELS  = 16384,
    MAX_GRID_YZ  = 65535,
    MAX_THREADS  = 1024,
    SHARED_BYTES = 48 * 1024,  // without being asked for
    SHARED_MOST  = 163 * 1024, // of a block, sm_80
    MEMORY_BYTES = 1 << 30,
    ALIGNMENT    = 256, // of what cudaMalloc gives
};

struct kernel {
    const void * host;   // the function that stands for it
    const char * name;   // mangled
    size_t       shared; // dynamic shared memory that it was allowed
    bool         ran;
};

static struct kernel          kernels[MAX_KERNELS];
static int                    n_kernels;
static struct fake_card_count count;
static bool                   is_capturing;
static bool                   is_tf32;
static char                   wrong[512];
static int                    thing; // what handles point to

static struct {
    dim3         grid, block;
    size_t       shared;
    cudaStream_t stream;
} configuration;

static void note_wrong(const char * what, const char * who) {
    if (wrong[0] == '\0') {
        snprintf(wrong, sizeof(wrong), "%s: %s", who, what);
    }
}

struct fake_card_count fake_card_get(void) {
    return count;
}
const char * fake_card_wrong(void) {
    return wrong;
}

bool fake_card_ran(const char * part) {
    for (int i = 0; i < n_kernels; ++i) {
        if (kernels[i].ran && strstr(kernels[i].name, part) != NULL) {
            return true;
        }
    }
    return false;
}

void fake_card_reset(void) {
    for (int i = 0; i < n_kernels; ++i) {
        kernels[i].ran = false;
    }
    count    = (struct fake_card_count) { 0 };
    wrong[0] = '\0';
}

//
// Kernels
//

static struct kernel * find(const void * host) {
    for (int i = 0; i < n_kernels; ++i) {
        if (kernels[i].host == host) {
            return &kernels[i];
        }
    }
    return NULL;
}

static cudaError_t launch(struct kernel * k, dim3 grid, dim3 block, size_t shared) {
    if (k == NULL) {
        note_wrong("launched, but not registered", "a kernel");
        return cudaErrorInvalidDeviceFunction;
    }
    const uint64_t threads = (uint64_t) block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > MAX_GRID_YZ ||
            grid.z > MAX_GRID_YZ) {
        note_wrong("no card has such a grid", k->name);
    }
    if (threads == 0 || threads > MAX_THREADS || block.z > 64) {
        note_wrong("no card has such a block", k->name);
    }
    if (shared > SHARED_BYTES && shared > k->shared) {
        note_wrong("more shared memory than it was allowed", k->name);
    }
    k->ran = true;
    count.kernels++;
    return cudaSuccess;
}

// What nvcc generates calls of; no header declares it for C.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

void ** __cudaRegisterFatBinary(void * cubin) {
    static void * handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void ** handle) {}
void __cudaUnregisterFatBinary(void ** handle) {}
void __cudaRegisterVar(void ** handle, char * host, char * device, const char * name, int ext,
        size_t size, int constant, int global) {}

void __cudaRegisterFunction(void ** handle, const char * host, char * device, const char * name,
        int limit, void * tid, void * bid, void * block, void * grid, int * warp) {
    if (n_kernels == MAX_KERNELS) {
        note_wrong("there are more kernels than this card can note", name);
        return;
    }
    kernels[n_kernels++] = (struct kernel) { .host = host, .name = name };
}

unsigned __cudaPushCallConfiguration(
        dim3 grid, dim3 block, size_t shared, struct CUstream_st * stream) {
    configuration.grid   = grid;
    configuration.block  = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 * grid, dim3 * block, size_t * shared, void * stream) {
    *grid                    = configuration.grid;
    *block                   = configuration.block;
    *shared                  = configuration.shared;
    *(cudaStream_t *) stream = configuration.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t * kernel, const void * host) {
    *kernel = (cudaKernel_t) find(host);
    return *kernel == NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void ** args,
        size_t shared, cudaStream_t stream) {
    return launch((struct kernel *) kernel, grid, block, shared);
}

cudaError_t cudaLaunchKernelExC(
        const cudaLaunchConfig_t * config, const void * func, void ** args) {
    return launch(find(func), config->gridDim, config->blockDim, config->dynamicSmemBytes);
}

cudaError_t cudaLaunchKernel(const void * func, dim3 grid, dim3 block, void ** args, size_t shared,
        cudaStream_t stream) { // before CUDA 13
    return launch(find(func), grid, block, shared);
}

cudaError_t cudaLaunchCooperativeKernel(const void * func, dim3 grid, dim3 block, void ** args,
        size_t shared, cudaStream_t stream) {
    return launch(find(func), grid, block, shared);
}

cudaError_t cudaFuncSetAttribute(const void * func, enum cudaFuncAttribute attr, int value) {
    struct kernel * k = find(func);
    if (k != NULL && attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value > SHARED_MOST) {
            note_wrong("asks for more shared memory than the card has", k->name);
        }
        k->shared = (size_t) value;
    }
    return k == NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes * attr, const void * func) {
    memset(attr, 0, sizeof(*attr));
    attr->maxThreadsPerBlock = MAX_THREADS;
    attr->numRegs            = 64;
    return find(func) == NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        int * n, const void * func, int threads, size_t shared, unsigned flags) {
    *n = 1;
    return cudaSuccess;
}

//
// Memory
//

static void not_while_capturing(const char * who) {
    if (is_capturing) {
        note_wrong("called while a graph is captured", who);
    }
}

static cudaError_t allocate(void ** p, size_t size, const char * who) {
    not_while_capturing(who);
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *p   = aligned_alloc(ALIGNMENT, size);
    if (*p == NULL) {
        return cudaErrorMemoryAllocation;
    }
    memset(*p, 0, size);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void ** p, size_t size) {
    return allocate(p, size, "cudaMalloc");
}
cudaError_t cudaMallocHost(void ** p, size_t size) {
    return allocate(p, size, "cudaMallocHost");
}
cudaError_t cudaHostAlloc(void ** p, size_t size, unsigned flags) {
    return allocate(p, size, "cudaHostAlloc");
}
cudaError_t cudaMallocManaged(void ** p, size_t size, unsigned flags) {
    return allocate(p, size, "cudaMallocManaged");
}
cudaError_t cudaFree(void * p) {
    not_while_capturing("cudaFree");
    free(p);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void * p) {
    not_while_capturing("cudaFreeHost");
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void * p, size_t size, unsigned flags) {
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void * p) {
    return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void ** device, void * host, unsigned flags) {
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t * n_free, size_t * n_total) {
    *n_free = *n_total = MEMORY_BYTES;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
        void * to, const void * from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    memmove(to, from, size);
    return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void * to, int to_device, const void * from, int from_device,
        size_t size, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, stream);
}

cudaError_t cudaMemcpy2DAsync(void * to, size_t to_pitch, const void * from, size_t from_pitch,
        size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    for (size_t i = 0; i < height; ++i) {
        cudaMemcpyAsync((char *) to + i * to_pitch, (const char *) from + i * from_pitch, width,
                kind, stream);
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void * p, int value, size_t size, cudaStream_t stream) {
    memset(p, value, size);
    return cudaSuccess;
}

cudaError_t cudaMemset(void * p, int value, size_t size) {
    not_while_capturing("cudaMemset");
    return cudaMemsetAsync(p, value, size, NULL);
}

//
// The device
//

cudaError_t cudaGetDeviceCount(int * n) {
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int * device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaSetDeviceFlags(unsigned flags) {
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int * can, int a, int b) {
    *can = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char * id, int size, int device) {
    snprintf(id, (size_t) size, "0000:00:00.0");
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    not_while_capturing("cudaDeviceSynchronize");
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}
cudaError_t cudaPeekAtLastError(void) {
    return cudaSuccess;
}
const char * cudaGetErrorString(cudaError_t error) {
    return "an error of the card that is none";
}

cudaError_t cudaDeviceGetAttribute(int * value, enum cudaDeviceAttr attr, int device) {
    *value = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp * prop, int device) {
    memset(prop, 0, sizeof(*prop));
    snprintf(prop->name, sizeof(prop->name), "a card that is none");
    prop->major                       = 8;
    prop->minor                       = 0;
    prop->warpSize                    = 32;
    prop->multiProcessorCount         = 108;
    prop->maxThreadsPerBlock          = MAX_THREADS;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->sharedMemPerBlock           = SHARED_BYTES;
    prop->sharedMemPerBlockOptin      = SHARED_MOST;
    prop->totalGlobalMem              = MEMORY_BYTES;
    return cudaSetDevice(device);
}

//
// Streams, events, graphs
//

cudaError_t cudaStreamCreateWithFlags(cudaStream_t * stream, unsigned flags) {
    *stream = (cudaStream_t) &thing;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t * event, unsigned flags) {
    *event = (cudaEvent_t) &thing;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    not_while_capturing("cudaStreamSynchronize");
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    not_while_capturing("cudaEventSynchronize");
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    is_capturing = true;
    count.captures++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t * graph) {
    is_capturing = false;
    *graph       = (cudaGraph_t) &thing;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus * status) {
    *status = is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(
        cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags) {
    *exec = (cudaGraphExec_t) &thing;
    return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(
        cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo * info) {
    memset(info, 0, sizeof(*info)); // cudaGraphExecUpdateSuccess
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    count.graphs++;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return cudaSuccess;
}

//
// cuBLAS
//

// - f32: of factors of F32, which the math mode decides about
static cublasStatus_t multiply(bool f32) {
    count.tf32_products += f32 && is_tf32;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t * handle) {
    *handle = (cublasHandle_t) &thing;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t s) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void * p, size_t n) {
    return CUBLAS_STATUS_SUCCESS;
}
const char * cublasGetStatusString(cublasStatus_t status) {
    return "an error of the card that is none";
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    is_tf32 = (mode & CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_TF32_TENSOR_OP_MATH;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
        int m, int n, int k, const float * alpha, const float * a, int lda, const float * b,
        int ldb, const float * beta, float * c, int ldc) {
    return multiply(true);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a,
        cublasOperation_t op_b, int m, int n, int k, const float * alpha, const float * a, int lda,
        long long int sa, const float * b, int ldb, long long int sb, const float * beta, float * c,
        int ldc, long long int sc, int batch) {
    return cublasSgemm_v2(handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

cublasStatus_t cublasSgemmBatched(cublasHandle_t handle, cublasOperation_t op_a,
        cublasOperation_t op_b, int m, int n, int k, const float * alpha, const float * const a[],
        int lda, const float * const b[], int ldb, const float * beta, float * const c[], int ldc,
        int batch) {
    return cublasSgemm_v2(
            handle, op_a, op_b, m, n, k, alpha, a[0], lda, b[0], ldb, beta, c[0], ldc);
}

cublasStatus_t cublasStrsmBatched(cublasHandle_t handle, cublasSideMode_t side,
        cublasFillMode_t fill, cublasOperation_t op, cublasDiagType_t diag, int m, int n,
        const float * alpha, const float * const a[], int lda, float * const b[], int ldb,
        int batch) {
    return multiply(true);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
        int m, int n, int k, const void * alpha, const void * a, cudaDataType type_a, int lda,
        const void * b, cudaDataType type_b, int ldb, const void * beta, void * c,
        cudaDataType type_c, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    return multiply(type_a == CUDA_R_32F);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
        cublasOperation_t op_b, int m, int n, int k, const void * alpha, const void * a,
        cudaDataType type_a, int lda, long long int sa, const void * b, cudaDataType type_b,
        int ldb, long long int sb, const void * beta, void * c, cudaDataType type_c, int ldc,
        long long int sc, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c,
            type_c, ldc, compute, algo);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
        cublasOperation_t op_b, int m, int n, int k, const void * alpha, const void * const a[],
        cudaDataType type_a, int lda, const void * const b[], cudaDataType type_b, int ldb,
        const void * beta, void * const c[], cudaDataType type_c, int ldc, int batch,
        cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, NULL, type_a, lda, NULL, type_b, ldb,
            beta, NULL, type_c, ldc, compute, algo);
}
