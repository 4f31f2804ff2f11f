// ggml-vulkan puts a barrier between a scan and another node on the same state, although the state
// is a source of the scan and not its result: before a node that reads what the scan wrote, and
// before a scan that writes what a node has read. lavapipe computes one node after the other, so a
// missing barrier would not change a result there: the test reads ggml-vulkan's log of barriers.
// Skipped without a Vulkan device.
//
// Vulkan's validation layer also reports missing barriers, if it is told to. With --control, the
// program computes what the layer must report: two writes without a barrier between them.

#include "kit/check.h"
#include "kit/device.h"
#include "kit/files.h"
#include "lrnn-ops.h"
#include "lrnn.h"

#include <unistd.h>

static char log_path[64];

enum { CHANNELS = 32, TOKENS = 4 };

static struct ggml_tensor * shift(struct test * t, struct ggml_context * ctx,
        struct ggml_tensor * state, struct ggml_tensor * ids, struct ggml_tensor * x) {
    struct lrnn_error                 err = { 0 };
    const struct ggml_short_conv_args args = { .state = state, .ids = ids, .x = x };
    struct ggml_tensor *              op = ggml_short_conv(ctx, &args, &err);
    test_check(t, op != NULL, "%s", err.text);
    return op;
}

// Computes the graph with stderr in a file, which receives a line per node and per barrier.
static void compute(ggml_backend_t device, struct ggml_cgraph * graph) {
    fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    if (freopen(log_path, "w", stderr) != NULL) {
        ggml_backend_graph_compute(device, graph);
        fflush(stderr);
    }
    dup2(saved, STDERR_FILENO);
    close(saved);
}

// Reads the log as one letter per line: c for a convolution, s for SCALE, | for a barrier.
static void read_log(char * text, size_t size) {
    char   line[256];
    size_t n = 0;
    FILE * f = fopen(log_path, "r");
    while (f != NULL && n + 1 < size && fgets(line, sizeof(line), f) != NULL) {
        if (strcmp(line, "sync\n") == 0) {
            text[n++] = '|';
        } else if (test_has_word(line, "SHORT_CONV")) {
            text[n++] = 'c';
        } else if (test_has_word(line, "SCALE")) {
            text[n++] = 's';
        }
    }
    text[n] = '\0';
    if (f != NULL) {
        fclose(f);
    }
    remove(log_path);
}

// Doubles the two parts of a tensor. The parts do not overlap, so ggml-vulkan needs no barrier; but
// the second begins between two multiples of the alignment of a binding, so that its binding begins
// in the first, and the layer only sees bindings.
static void run_control(ggml_backend_t device, struct ggml_context * ctx) {
    enum { FIRST = CHANNELS + 1 };
    struct ggml_tensor * x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 2 * CHANNELS);
    struct ggml_tensor * first = ggml_view_1d(ctx, x, FIRST, 0);
    struct ggml_tensor * second = ggml_view_1d(ctx, x, 2 * CHANNELS - FIRST, FIRST * sizeof(float));
    struct ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, ggml_scale_inplace(ctx, first, 2.0f));
    ggml_build_forward_expand(graph, ggml_scale_inplace(ctx, second, 2.0f));
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, device);
    ggml_backend_graph_compute(device, graph);
    ggml_backend_buffer_free(buffer);
}

static void run(struct test * t, ggml_backend_t device, struct ggml_context * ctx) {
    struct ggml_tensor * state = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, CHANNELS, 1);
    struct ggml_tensor * ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, GGML_SCAN_SNAPS, 1);
    struct ggml_tensor * x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, CHANNELS, TOKENS);

    struct ggml_tensor * first = shift(t, ctx, state, ids, x);
    struct ggml_tensor * read = ggml_scale(ctx, ggml_scan_state_after(ctx, first), 2.0f);
    struct ggml_tensor * second = shift(t, ctx, ggml_scan_state_after(ctx, first), ids, x);
    struct ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, read);
    ggml_build_forward_expand(graph, second);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, device);

    const int32_t sequence[GGML_SCAN_SNAPS] = { -1, 0, 0, TOKENS };
    float         inputs[CHANNELS * TOKENS], got[CHANNELS];
    for (int i = 0; i < CHANNELS * TOKENS; ++i) {
        inputs[i] = (float) i;
    }
    ggml_backend_tensor_set(ids, sequence, 0, sizeof(sequence));
    ggml_backend_tensor_set(x, inputs, 0, sizeof(inputs));
    compute(device, graph);
    ggml_backend_tensor_get(read, got, 0, sizeof(got));
    for (int i = 0; i < CHANNELS; ++i) {
        const float want = 2.0f * inputs[CHANNELS * (TOKENS - 1) + i];
        test_check(t, got[i] == want, "channel %d is %g; expected %g", i, got[i], want);
    }
    char log[32];
    read_log(log, sizeof(log));
    test_check(
            t, strcmp(log, "c|s|c") == 0, "the nodes and barriers are '%s'; expected 'c|s|c'", log);
    printf("convolution, reader of its state, convolution: %s\n", log);

    ggml_backend_buffer_free(buffer);
}

int main(int argc, char ** argv) {
    setenv("GGML_VK_SYNC_LOGGER", "1", 1);
    setenv("LRNN_TEST_DEVICE", "Vulkan0", 0);
    ggml_backend_t device = test_device();
    struct test    t = { 0 };
    test_own_path(log_path, sizeof(log_path), "test-vulkan-barriers.log");
    struct ggml_context * ctx = ggml_init((struct ggml_init_params) {
            .mem_size = 32 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true });
    if (argc > 1 && strcmp(argv[1], "--control") == 0) {
        run_control(device, ctx);
    } else {
        run(&t, device, ctx);
    }
    ggml_free(ctx);
    ggml_backend_free(device);
    return test_end(&t, "test-vulkan-barriers");
}
