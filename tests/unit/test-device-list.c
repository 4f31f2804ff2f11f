// A CUDA device is refused while GGML_CUDA_GRAPH_OPT is 1, and if it is older than the build. A
// device that computes nothing stands in for one.

#include "kit/check.h"
#include "lrnn.h"
#include "ops/glue.h"

#include "ggml-backend-impl.h"

static const char * reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "CUDA";
}

static size_t no_devices(ggml_backend_reg_t reg) {
    (void) reg;
    return 0;
}

static const char * dev_name(ggml_backend_dev_t dev) {
    (void) dev;
    return "CUDA7";
}

static void dev_memory(ggml_backend_dev_t dev, size_t * free_bytes, size_t * total_bytes) {
    (void) dev;
    *free_bytes = *total_bytes = 1 << 30;
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static int capability = 80; // of the device; the build is for 80

static bool is_too_old(ggml_backend_dev_t dev, int * found, int * oldest) {
    (void) dev;
    *found = capability;
    *oldest = 80;
    return *found < *oldest;
}

static void * get_proc_address(ggml_backend_reg_t reg, const char * name) {
    (void) reg;
    const ggml_lrnn_cuda_is_too_old_t function = is_too_old;
    void *                            address = NULL;
    if (strcmp(name, "ggml_lrnn_cuda_is_too_old") == 0) {
        memcpy(&address, &function, sizeof(address)); // C11 has no such conversion
    }
    return address;
}

static struct ggml_backend_reg reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = { .get_name = reg_name,
            .get_device_count = no_devices,
            .get_proc_address = get_proc_address },
};

static struct ggml_backend_device dev = {
    .iface = { .get_name = dev_name,
            .get_description = dev_name,
            .get_memory = dev_memory,
            .get_type = dev_type },
    .reg = &reg,
};

static void check(struct test * t, const char * value, bool expected) {
    const struct lrnn_model_params params = { .n_gpu_layers = -1, .devices = "CUDA7" };
    struct lrnn_error              err = { LRNN_ERROR_NONE, "" };
    if (value != NULL) {
        setenv("GGML_CUDA_GRAPH_OPT", value, 1);
    } else {
        unsetenv("GGML_CUDA_GRAPH_OPT");
    }
    const bool ok = lrnn_model_params_check(&params, &err);
    test_check(t, ok == expected, "GGML_CUDA_GRAPH_OPT=%s: %s", value != NULL ? value : "(unset)",
            ok ? "accepted" : err.text);
    test_check(t,
            ok || (strstr(err.text, "GGML_CUDA_GRAPH_OPT") != NULL && strstr(err.text, "CUDA7")),
            "the message does not name the variable and the device: %s", err.text);
}

static void check_age(struct test * t, const char * devices, int found, bool expected) {
    const struct lrnn_model_params params = { .n_gpu_layers = -1, .devices = devices };
    struct lrnn_error              err = { LRNN_ERROR_NONE, "" };
    capability = found;
    const bool ok = lrnn_model_params_check(&params, &err);
    test_check(t, ok == expected, "compute capability %d: %s", found, ok ? "accepted" : err.text);
    test_check(t,
            ok || (strstr(err.text, "CUDA7") != NULL && strstr(err.text, "7.5") != NULL &&
                          strstr(err.text, "8.0") != NULL &&
                          strstr(err.text, "CUDAARCHS=75") != NULL),
            "the message does not name the device and what it needs: %s", err.text);
}

int main(void) {
    struct test t = { 0 };
    ggml_backend_device_register(&dev);
    check(&t, NULL, true);
    check(&t, "0", true);
    check(&t, "1", false);
    unsetenv("GGML_CUDA_GRAPH_OPT");
    check_age(&t, "CUDA7", 75, false);
    check_age(&t, NULL, 75, false);
    check_age(&t, "CPU", 75, true);
    check_age(&t, "CUDA7", 80, true);
    check_age(&t, "CUDA7", 120, true);
    printf("a CUDA device is refused with GGML_CUDA_GRAPH_OPT=1, and if it is older than the "
           "build\n");
    return test_end(&t, "test-device-list");
}
