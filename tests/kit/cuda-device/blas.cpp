// libcublas: c = α·op(a)·op(b) + β·c, by loops in double precision. All matrices are stored by
// columns.

#include "device.h"
#include "memory.h"

#include <cublas_v2.h>

#include <cstring>

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace {

struct handle {
    cudaStream_t stream = nullptr;
};

size_t size_of(cudaDataType type) {
    return type == CUDA_R_32F ? 4 : 2;
}

double read(const char * p, cudaDataType type) {
    if (type == CUDA_R_32F) {
        float f;
        memcpy(&f, p, 4);
        return f;
    }
    uint16_t bits;
    memcpy(&bits, p, 2);
    if (type == CUDA_R_16F) {
        _Float16 h;
        memcpy(&h, &bits, 2);
        return (double) h;
    }
    const uint32_t wide = (uint32_t) bits << 16;
    float          f;
    memcpy(&f, &wide, 4);
    return f;
}

void write(char * p, cudaDataType type, double x) {
    if (type == CUDA_R_32F) {
        const float f = (float) x;
        memcpy(p, &f, 4);
    } else if (type == CUDA_R_16F) {
        const _Float16 h = (_Float16) x;
        memcpy(p, &h, 2);
    } else {
        const float f = (float) x;
        uint32_t    bits;
        memcpy(&bits, &f, 4);
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
        memcpy(p, &bits, 2);
    }
}

struct matrix {
    const char * data;
    cudaDataType type;
    int64_t      ld;
    bool         transposed;

    const char * at(int64_t row, int64_t col) const {
        return data + (size_t) (transposed ? col + row * ld : row + col * ld) * size_of(type);
    }
};

// One number at a time, so that a padded row is never read.
double element(const matrix & m, int64_t row, int64_t col, bool * defined) {
    const char * p = m.at(row, col);
    if (device::bytes_of(p, size_of(m.type), false, "cublas") == nullptr) {
        return 0.0;
    }
    *defined = *defined && device::is_defined(p, size_of(m.type));
    return read(p, m.type);
}

void multiply(int m, int n, int k, double alpha, matrix a, matrix b, double beta, matrix c) {
    for (int col = 0; col < n; ++col) {
        for (int row = 0; row < m; ++row) {
            bool   defined = true;
            double sum = 0.0;
            for (int x = 0; x < k; ++x) {
                sum += element(a, row, x, &defined) * element(b, x, col, &defined);
            }
            sum *= alpha;
            sum += beta != 0.0 ? beta * element(c, row, col, &defined) : 0.0;
            char * p = device::bytes_of(c.at(row, col), size_of(c.type), true, "cublas");
            if (p == nullptr) {
                return;
            }
            write(p, c.type, sum);
            device::define(p, size_of(c.type), defined);
        }
    }
}

double scalar(const void * p, cublasComputeType_t compute) {
    return read((const char *) p, compute == CUBLAS_COMPUTE_16F ? CUDA_R_16F : CUDA_R_32F);
}

} // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t * h) {
    *h = (cublasHandle_t) new handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
    delete (handle *) h;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
    ((handle *) h)->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void * p, size_t n) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode) {
    if ((mode & CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_TF32_TENSOR_OP_MATH) {
        device::fail("cublasSetMathMode: F32 products would be rounded to TF32");
    }
    return CUBLAS_STATUS_SUCCESS;
}
const char * cublasGetStatusString(cublasStatus_t status) {
    return "an error of the software device";
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t op_a,
        cublasOperation_t op_b, int m, int n, int k, const void * alpha, const void * a,
        cudaDataType type_a, int lda, long long int sa, const void * b, cudaDataType type_b,
        int ldb, long long int sb, const void * beta, void * c, cudaDataType type_c, int ldc,
        long long int sc, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    if (device::is_idle()) {
        return CUBLAS_STATUS_SUCCESS;
    }
    const double x = scalar(alpha, compute), y = scalar(beta, compute);
    device::submit(device::stream_of(((handle *) h)->stream), [=]() {
        for (int64_t i = 0; i < batch; ++i) {
            multiply(m, n, k, x,
                    { (const char *) a + i * sa * (int64_t) size_of(type_a), type_a, lda,
                            op_a != CUBLAS_OP_N },
                    { (const char *) b + i * sb * (int64_t) size_of(type_b), type_b, ldb,
                            op_b != CUBLAS_OP_N },
                    y,
                    { (const char *) c + i * sc * (int64_t) size_of(type_c), type_c, ldc, false });
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m,
        int n, int k, const void * alpha, const void * a, cudaDataType type_a, int lda,
        const void * b, cudaDataType type_b, int ldb, const void * beta, void * c,
        cudaDataType type_c, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    return cublasGemmStridedBatchedEx(h, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b,
            ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algo);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b,
        int m, int n, int k, const float * alpha, const float * a, int lda, const float * b,
        int ldb, const float * beta, float * c, int ldc) {
    return cublasGemmEx(h, op_a, op_b, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta,
            c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

// The lists of matrices are in the memory of the device.
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b,
        int m, int n, int k, const void * alpha, const void * const a[], cudaDataType type_a,
        int lda, const void * const b[], cudaDataType type_b, int ldb, const void * beta,
        void * const c[], cudaDataType type_c, int ldc, int batch, cublasComputeType_t compute,
        cublasGemmAlgo_t algo) {
    if (device::is_idle()) {
        return CUBLAS_STATUS_SUCCESS;
    }
    const double x = scalar(alpha, compute), y = scalar(beta, compute);
    device::submit(device::stream_of(((handle *) h)->stream), [=]() {
        for (int64_t i = 0; i < batch; ++i) {
            multiply(m, n, k, x, { (const char *) a[i], type_a, lda, op_a != CUBLAS_OP_N },
                    { (const char *) b[i], type_b, ldb, op_b != CUBLAS_OP_N }, y,
                    { (const char *) c[i], type_c, ldc, false });
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
