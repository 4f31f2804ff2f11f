#include "cuda-card.h"

#include "ggml-backend.h"

#include <stdio.h>
#include <string.h>

static char why[256]; // the process's, as the log is; "": ggml has said nothing

bool cuda_card_on_log(const char * line) {
    static const char start[] = "ggml_cuda_init: failed to initialize CUDA: ";
    if (strncmp(line, start, sizeof(start) - 1) != 0) {
        return false;
    }
    const char * reason = line + sizeof(start) - 1;
    snprintf(why, sizeof(why), "%.*s", (int) strcspn(reason, "\n"), reason);
    return true;
}

bool cuda_card_is_missing(char * text, size_t text_size) {
    ggml_backend_reg_t cuda = ggml_backend_reg_by_name("CUDA");
    if (cuda == NULL || ggml_backend_reg_dev_count(cuda) > 0) {
        return false;
    }
    // without a driver the runtime speaks of one that is too old, so these are marked as its words
    snprintf(text, text_size,
            why[0] != '\0' ? "no CUDA card was found (the CUDA runtime says: %s)"
                           : "no CUDA card was found",
            why);
    return true;
}

const char * cuda_notice(void) {
#ifdef LRNN_CUDA_COMPILED
    return "CUDA kernels: compiled (" LRNN_CUDA_COMPILED ") and emulated, not run on a card";
#else
    return "";
#endif
}
