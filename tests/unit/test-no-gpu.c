// The CUDA backend without a GPU: the program prints one sentence with ggml's reason, once, and
// only if the user did not choose the CPU; the model runs on the CPU. If this build has no CUDA
// backend, one without devices stands in for it.

#include "lrnn.h"
#include "backends.h"
#include "device-options.h"
#include "ggml-backend.h"
#include "kit/check.h"
#include "kit/golden.h"

#include "ggml-backend-impl.h"

#include <unistd.h>

static const char * cuda_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "CUDA";
}

static size_t no_devices(ggml_backend_reg_t reg) {
    (void) reg;
    return 0;
}

static struct ggml_backend_reg stand_in = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = { .get_name = cuda_name, .get_device_count = no_devices },
};

// Loads a model and captures what is printed to stderr.
static bool load(const struct device_options * device, const char * path, bool quiet, char * said,
        size_t said_size) {
    FILE *    file = tmpfile();
    const int stderr_before = dup(STDERR_FILENO);
    said[0] = '\0';
    if (file == NULL || stderr_before < 0) {
        return false;
    }
    dup2(fileno(file), STDERR_FILENO);
    struct lrnn_model * model = device_options_load(device, path, quiet, NULL);
    fflush(stderr);
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    rewind(file);
    said[fread(said, 1, said_size - 1, file)] = '\0';
    fclose(file);
    lrnn_model_free(model);
    return model != NULL;
}

static void check_silent(struct test * t, const struct device_options * device, const char * path,
        bool quiet, const char * how) {
    char said[1024];
    test_check(t, load(device, path, quiet, said, sizeof(said)), "%s: not loaded: %s", how, said);
    test_check(t, strcmp(said, "") == 0, "%s: said '%s', expected nothing", how, said);
}

static const char LINE[] =
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n";

// Registers the stand-in, and logs as ggml does when it starts.
static void start_stand_in(void) {
    ggml_log_callback log;
    void *            user;
    ggml_log_get(&log, &user);
    ggml_backend_register(&stand_in);
    log(GGML_LOG_LEVEL_INFO, "ggml_cuda_init: not an error\n", user);
    log(GGML_LOG_LEVEL_ERROR, LINE, user);
}

static void register_stand_in(void) {
    ggml_backend_register(&stand_in);
}

// is_stand_in: the backend is not ggml's, so that its messages are known
static void check(struct test * t, const char * path, bool is_stand_in) {
    static const char     reason[] = "no CUDA GPU was found (ggml: failed to initialize CUDA: no "
                                     "CUDA-capable device is detected)";
    struct device_options device = DEVICE_OPTIONS_DEFAULTS;
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    char                  text[600], said[1024], expected[1024];

    if (is_stand_in) {
        backends_start_with(register_stand_in);
        test_check(t,
                backends_why_no_gpu(text, sizeof(text)) &&
                        strcmp(text, "no CUDA GPU was found") == 0,
                "ggml gives no reason: '%s'", text);
        backends_start_with(start_stand_in);
        test_check(t, backends_why_no_gpu(text, sizeof(text)) && strcmp(text, reason) == 0,
                "'%s', expected '%s'", text, reason);
    } else {
        test_check(t, backends_why_no_gpu(text, sizeof(text)) && strncmp(text, reason, 55) == 0,
                "the reason that CUDA gives: '%s'", text);
    }

    check_silent(t, &device, path, true, "quiet");
    device.model.n_gpu_layers = 0;
    check_silent(t, &device, path, false, "-ngl 0");
    device = (struct device_options) DEVICE_OPTIONS_DEFAULTS;
    device.model.devices = "CPU";
    check_silent(t, &device, path, false, "--device CPU");

    device.model.devices = "CUDA0";
    snprintf(expected, sizeof(expected), "there is no device 'CUDA0'; there are: CPU; %s", text);
    test_check(t, !device_options_check(&device, &err) && strcmp(err.text, expected) == 0,
            "--device CUDA0: '%s', expected '%s'", err.text, expected);
    device.model.devices = "other";
    test_check(t, !device_options_check(&device, &err) && strstr(err.text, "CUDA") == NULL,
            "--device other: '%s'", err.text);

    device = (struct device_options) DEVICE_OPTIONS_DEFAULTS;
    snprintf(expected, sizeof(expected), "lrnn: %s; everything runs on the CPU\n", text);
    test_check(t, load(&device, path, false, said, sizeof(said)) && strcmp(said, expected) == 0,
            "by default: '%s', expected '%s'", said, expected);
    device.model.n_gpu_layers = 99;
    check_silent(t, &device, path, false, "a second model");
}

int main(void) {
    struct test        t = { 0 };
    struct golden_list models;

    golden_list_load(&models);
    backends_start();
    const bool is_stand_in = ggml_backend_reg_by_name("CUDA") == NULL;
    if (!is_stand_in && ggml_backend_reg_dev_count(ggml_backend_reg_by_name("CUDA")) > 0) {
        printf("SKIPPED: there is a GPU\n");
    } else {
        check(&t, models.models[0].path, is_stand_in);
        printf("no GPU: one sentence with the reason, once; none if quiet or if the CPU was "
               "chosen; a GPU by name is rejected\n");
    }
    golden_list_free(&models);
    return test_end(&t, "test-no-gpu");
}
