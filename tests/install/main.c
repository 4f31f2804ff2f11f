// A program outside this project. It uses the installed library, its ops and its ggml.

#include "lrnn.h"
#include "lrnn-ops.h"
#include "ggml-backend.h"

#include <stdio.h>
#include <string.h>

int main(void) {
    ggml_backend_t cpu = ggml_backend_init_by_name("CPU", NULL);
    bool           ok = cpu != NULL;
    ggml_backend_free(cpu);

    const int32_t     ids[GGML_SCAN_SNAPS] = { 7, 7, 0, 0 }; // slot 7 of 1
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    ok = ok && strstr(lrnn_ggml_version(), ggml_version()) &&
         strstr(lrnn_ggml_version(), ggml_commit());
    ok = ok && strcmp(ggml_op_name(GGML_OP_SHORT_CONV), "SHORT_CONV") == 0;
    ok = ok && !ggml_scan_ids_check(ids, 0, 1, 1, 0, &err) && err.kind == LRNN_ERROR_BAD_INPUT &&
         strcmp(err.text, "sequence 0 reads slot 7; expected -1 to 0") == 0;

    printf("lrnn %s with ggml %s: %s\n", lrnn_version(), lrnn_ggml_version(), ok ? "ok" : "FAILED");
    return ok ? 0 : 1;
}
