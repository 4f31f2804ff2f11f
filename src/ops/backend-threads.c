#include "lrnn-ops.h"

#include <string.h>

void ggml_backend_set_threads(ggml_backend_t backend, int n_threads) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    void * const address = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    ggml_backend_set_n_threads_t set = NULL;
    memcpy(&set, &address, sizeof(set)); // C11 has no such conversion
    if (set != NULL) {
        set(backend, n_threads);
    }
}
