// The reader of model files on arbitrary bytes: accepted files are consistent, and all others are
// rejected with a message.

#include "fuzz/fuzz.h"
#include "lrnn.h"
#include "kit/model-file-walk.h"

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    struct model_file * f = model_file_from_memory("fuzz", data, size, &err);
    if (f == NULL) {
        require_reason(err.text, "fuzz: ");
        return 0;
    }
    require_of(model_file_walk(f, &err), "accepted, but", err.text);
    model_file_free(f);
    return 0;
}
