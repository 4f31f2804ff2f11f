// The reader of model files on arbitrary bytes: accepted files are consistent, and all others are
// rejected with a message.

#include "lrnn.h"
#include "kit/model-file-walk.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    struct model_file * f = model_file_from_memory("fuzz", data, size, &err);
    if (f == NULL) {
        if (strncmp(err.text, "fuzz: ", 6) != 0 || strchr(err.text, '\n') != NULL) {
            fprintf(stderr, "rejected without a proper message: %s\n", err.text);
            abort();
        }
        return 0;
    }
    if (!model_file_walk(f, &err)) {
        fprintf(stderr, "accepted, but %s\n", err.text);
        abort();
    }
    model_file_free(f);
    return 0;
}
