#include "backends.h"

#include "program.h"

#include "ggml-backend.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ggml's log and its backends belong to the process, and so does this.
static bool is_starting;
static char startup_errors[512];

// In debug builds ggml reports every buffer that it allocates. Users want warnings and errors.
static void on_log(enum ggml_log_level level, const char * text, void * user) {
    (void) user;
    static bool is_shown; // a continued line belongs to the line before it
    if (level != GGML_LOG_LEVEL_CONT) {
        is_shown = level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR;
    }
    // a lost connection is reported by rpc-client.c, with the name of the server
    if (!is_shown || strncmp(text, "recv failed", 11) == 0 ||
            strncmp(text, "send failed", 11) == 0) {
        return;
    }
    if (is_starting) {
        const size_t used = strlen(startup_errors);
        snprintf(startup_errors + used, sizeof(startup_errors) - used, "%s", text);
    } else {
        fputs(text, program_stderr());
    }
}

static ggml_backend_reg_t cuda_without_gpu(void) {
    ggml_backend_reg_t cuda = ggml_backend_reg_by_name("CUDA");
    return cuda != NULL && ggml_backend_reg_dev_count(cuda) == 0 ? cuda : NULL;
}

void backends_start_with(void (*start)(void)) {
    ggml_log_set(on_log, NULL);
    is_starting = true;
    start();
    is_starting = false;
    if (cuda_without_gpu() == NULL) {
        fputs(startup_errors, program_stderr());
        startup_errors[0] = '\0';
    }
}

static void register_all(void) {
    ggml_backend_reg_count(); // the first use of the registry fills it
}

// ggml aborts where it cannot report an error, mostly because memory is short.
void backends_on_abort(const char * message) {
    fprintf(stderr, "%s: %s; memory may be short\n", program_name(), message);
    _exit(EXIT_CODE_SYSTEM); // not exit: other threads are still running
}

void backends_start(void) {
    static bool is_started;
    if (!is_started) {
        is_started = true;
        ggml_set_abort_callback(backends_on_abort);
        backends_start_with(register_all);
    }
}

bool backends_have_gpu(void) {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU) != NULL ||
           ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU) != NULL;
}

bool backends_why_no_gpu(char * text, size_t text_size) {
    if (cuda_without_gpu() == NULL) {
        return false;
    }
    // the first line, without the name of the function in ggml that wrote it
    const char * colon = strstr(startup_errors, ": ");
    const char * reason = colon != NULL ? colon + 2 : startup_errors;
    snprintf(text, text_size,
            reason[0] != '\0' ? "no CUDA GPU was found (ggml: %.*s)" : "no CUDA GPU was found",
            (int) strcspn(reason, "\n"), reason);
    return true;
}

void backends_cpu_features(char * list, size_t list_size) {
    static const char * const shown[] = { "AVX", "AVX_VNNI", "AVX2", "FMA", "AVX512", "AVX512_VNNI",
        "AVX512_BF16", "AMX_INT8", "NEON", "DOTPROD", "SVE", "RISCV_V", "VSX" };

    ggml_backend_reg_t cpu = ggml_backend_reg_by_name("CPU");
    union {
        void *                      pointer;
        ggml_backend_get_features_t get;
    } found = { .pointer = cpu != NULL ? ggml_backend_reg_get_proc_address(
                                                 cpu, "ggml_backend_get_features")
                                       : NULL };
    size_t used = 0;
    list[0] = '\0';
    if (found.pointer == NULL) {
        return;
    }
    for (const struct ggml_backend_feature * f = found.get(cpu); f->name != NULL; ++f) {
        for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]) && used < list_size; ++i) {
            if (strcmp(f->name, shown[i]) == 0) {
                used += (size_t) snprintf(
                        list + used, list_size - used, "%s%s", used > 0 ? " " : "", f->name);
            }
        }
    }
}

const char * backends_cuda_notice(void) {
#ifdef LRNN_CUDA_COMPILED
    return "CUDA kernels: compiled (" LRNN_CUDA_COMPILED
           "), run on a software device, never on a GPU";
#else
    return "";
#endif
}
