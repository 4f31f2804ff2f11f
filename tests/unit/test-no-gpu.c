// The CUDA backend without a card: ggml's line about it becomes one sentence of the program, said
// once, only to those who would have computed on a card, and the model runs on the CPU. Where this
// build has no CUDA backend, one without devices stands in for it.

#include "compute.h"
#include "cuda-card.h"
#include "golden.h"
#include "load-model.h"
#include "util.h"

#include "ggml-backend-impl.h"

#include <stdio.h>
#include <string.h>
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
    .iface       = { .get_name = cuda_name, .get_device_count = no_devices },
};

// What stderr gets while a model is loaded, and whether it was.
static bool load(const struct compute * compute, const char * path, bool quiet, char * said,
        size_t said_size) {
    FILE *    file          = tmpfile();
    const int stderr_before = dup(STDERR_FILENO);
    said[0]                 = '\0';
    if (file == NULL || stderr_before < 0) {
        return false;
    }
    dup2(fileno(file), STDERR_FILENO);
    struct lrnn_model * model = compute_load(compute, path, quiet);
    fflush(stderr);
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    rewind(file);
    said[fread(said, 1, said_size - 1, file)] = '\0';
    fclose(file);
    lrnn_model_free(model);
    return model != NULL;
}

static void check_silent(struct test * t, const struct compute * compute, const char * path,
        bool quiet, const char * how) {
    char said[1024];
    test_check(t, load(compute, path, quiet, said, sizeof(said)), "%s: not loaded: %s", how, said);
    test_check(t, strcmp(said, "") == 0, "%s: said '%s', expected nothing", how, said);
}

// stand_in: the backend is not ggml's, so that what ggml would say is known
static void check(struct test * t, const char * path, bool is_stand_in) {
    static const char line[] =
            "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n";
    static const char reason[] =
            "no CUDA card was found (the CUDA runtime says: no CUDA-capable device is detected)";
    struct compute compute = COMPUTE_DEFAULTS;
    char           text[512], said[1024], err[512], expected[1024];

    load_model_hush_ggml();
    if (is_stand_in) {
        test_check(t,
                cuda_card_is_missing(text, sizeof(text)) &&
                        strcmp(text, "no CUDA card was found") == 0,
                "before ggml has said why: '%s'", text);

        ggml_log_callback log;
        void *            user;
        ggml_log_get(&log, &user);
        log(GGML_LOG_LEVEL_ERROR, line, user); // as ggml does it
        test_check(t, !cuda_card_on_log("ggml_cuda_init: found 1 CUDA devices"),
                "another line is not about a missing card");
        test_check(t, cuda_card_is_missing(text, sizeof(text)) && strcmp(text, reason) == 0,
                "'%s', expected '%s'", text, reason);
    } else {
        test_check(t, cuda_card_is_missing(text, sizeof(text)) && strncmp(text, reason, 47) == 0,
                "the runtime says why: '%s'", text);
    }

    check_silent(t, &compute, path, true, "quiet");
    compute.n_gpu_layers = 0;
    check_silent(t, &compute, path, false, "-ngl 0");
    compute         = (struct compute) COMPUTE_DEFAULTS;
    compute.devices = "CPU";
    check_silent(t, &compute, path, false, "--device CPU");

    compute.devices = "CUDA0";
    snprintf(expected, sizeof(expected), "there is no device 'CUDA0'; there are: CPU; %s", text);
    test_check(t, !compute_check(&compute, err, sizeof(err)) && strcmp(err, expected) == 0,
            "--device CUDA0: '%s', expected '%s'", err, expected);
    compute.devices = "other";
    test_check(t, !compute_check(&compute, err, sizeof(err)) && strstr(err, "CUDA") == NULL,
            "--device other: '%s'", err);

    compute = (struct compute) COMPUTE_DEFAULTS;
    snprintf(expected, sizeof(expected), "lrnn: %s; everything runs on the CPU\n", text);
    test_check(t, load(&compute, path, false, said, sizeof(said)) && strcmp(said, expected) == 0,
            "by default: '%s', expected '%s'", said, expected);
    compute.n_gpu_layers = 99;
    check_silent(t, &compute, path, false, "a second model");
}

int main(void) {
    struct test        t = { 0 };
    struct golden_list models;
    char               err[256];

    if (!golden_list_load(&models, err, sizeof(err))) {
        printf("%s\n", err);
        return 1;
    }
    load_model_hush_ggml();
    const bool is_stand_in = ggml_backend_reg_by_name("CUDA") == NULL;
    if (is_stand_in) {
        ggml_backend_register(&stand_in);
    }
    if (ggml_backend_reg_dev_count(ggml_backend_reg_by_name("CUDA")) > 0) {
        printf("SKIPPED: there is a card\n");
    } else {
        check(&t, models.models[0].path, is_stand_in);
        printf("no card: one sentence with the reason, once, not if quiet, not if the CPU was chosen; a named card is refused\n");
    }
    golden_list_free(&models);
    return test_end(&t, "test-no-gpu");
}
