// The reader of model files on arbitrary bytes: accepted files are consistent, and all others are
// rejected with a message.

#include "kit/model-file-walk.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    char                err[512] = "";
    struct model_file * f        = model_file_from_memory("fuzz", data, size, err, sizeof(err));
    if (f == NULL) {
        if (strncmp(err, "fuzz: ", 6) != 0 || strchr(err, '\n') != NULL) {
            fprintf(stderr, "rejected without a proper message: %s\n", err);
            abort();
        }
        return 0;
    }
    if (!model_file_walk(f, err, sizeof(err))) {
        fprintf(stderr, "accepted, but %s\n", err);
        abort();
    }
    model_file_free(f);
    return 0;
}
