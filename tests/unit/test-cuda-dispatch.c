// Models of every family on a software device that computes nothing (kit/cuda-device), in a build
// with CUDA:
//
// - placement: the device computes all of every layer; only the embedding of the tokens, and what
//   precedes the first layer, is on the CPU;
// - limits: grids, blocks and shared memory are valid, and nothing allocates or waits while a graph
//   is captured;
// - capture: after the first few tokens, decode only launches captured graphs, because nothing that
//   changes from token to token is part of a graph;
// - choice of kernels: a long prompt of a Householder family uses the chunk kernels, a single token
//   the step kernel;
// - precision: no product of F32 matrices may be rounded to TF32.
//
// The device ends the program if a limit is exceeded, or cuBLAS may round to TF32.

#include "kit/check.h"
#include "kit/cuda-device/counts.h"
#include "kit/golden.h"
#include "lrnn.h"

#include "ggml-backend.h"
#include "gguf.h"

enum { PROMPT = 160, FEW = 8, STEPS = 8, WARM = 4, N_CACHE = 256 };

// From the log of the scheduler: splits, "## SPLIT #0: CUDA0 # …", and their nodes, "node #  3 (
// MUL_MAT): …"
struct splits {
    bool on_device;       // the current split
    int  n_device, n_cpu; // splits
    char cpu_nodes[256];  // ops on the CPU, without views
    char line[4096];      // the current line
};

static void on_line(struct splits * s, const char * line) {
    char split[64], op[64];
    if (sscanf(line, "## SPLIT #%*d: %63s", split) == 1) {
        s->on_device = strncmp(split, "CUDA", 4) == 0;
        s->n_device += s->on_device;
        s->n_cpu += !s->on_device;
    } else if (sscanf(line, "node #%*d (%63[^)])", op) == 1 && !s->on_device) {
        const size_t used = strlen(s->cpu_nodes);
        snprintf(s->cpu_nodes + used, sizeof(s->cpu_nodes) - used, "%s%s", used == 0 ? "" : " ",
                op + strspn(op, " "));
    }
}

static void on_log(enum ggml_log_level level, const char * text, void * user) {
    struct splits * s = user;
    (void) level;
    for (; *text != '\0'; ++text) {
        const size_t used = strlen(s->line);
        if (*text == '\n') {
            on_line(s, s->line);
            s->line[0] = '\0';
        } else if (used + 1 < sizeof(s->line)) {
            s->line[used] = *text;
            s->line[used + 1] = '\0';
        }
    }
}

static bool eval(struct test * t, struct lrnn_session * s, const struct golden * g, int64_t n) {
    int32_t           tokens[PROMPT];
    struct lrnn_error err;
    for (int64_t i = 0; i < n; ++i) {
        tokens[i] = g->tokens[i % g->n_tokens];
    }
    const struct lrnn_input in = { .tokens = tokens, .n_tokens = n, .n_logits = 1 };
    return test_check(t, lrnn_eval(s, &in, 1, &err), "%s: %s", g->name, err.text);
}

// Returns the number of splits on the device.
static int check_splits(struct test * t, struct splits * s, const char * name, const char * what) {
    const bool embedding =
            strncmp(s->cpu_nodes, "GET_ROWS", 8) == 0 && strstr(s->cpu_nodes, "MUL_MAT") == NULL;
    const int n_device = s->n_device;
    test_check(t, s->n_device == 1 && s->n_cpu == 1 && embedding,
            "%s, %s: %d splits on the device and %d on the CPU (%s)", name, what, s->n_device,
            s->n_cpu, s->cpu_nodes);
    printf("  %-28s %-8s on the CPU: %s\n", name, what, s->cpu_nodes);
    memset(s, 0, sizeof(*s));
    return n_device;
}

// True for a mixture of experts. With more than FEW tokens ggml-cuda sorts them by expert on the
// host, by ids that this runtime does not compute.
static bool has_experts(const struct golden * g) {
    const struct gguf_init_params params = { .no_alloc = true };
    struct gguf_context *         gguf = gguf_init_from_file(g->path, params);
    bool                          found = false;
    for (int64_t i = 0; gguf != NULL && i < gguf_get_n_tensors(gguf); ++i) {
        found = found || strstr(gguf_get_tensor_name(gguf, i), "_exps.") != NULL;
    }
    gguf_free(gguf);
    return found;
}

static void run(struct test * t, const struct golden * g, struct splits * splits) {
    const bool                       experts = has_experts(g);
    const struct lrnn_model_params   model_params = { .n_gpu_layers = -1 };
    struct lrnn_model *              model = test_load_model(g->path, &model_params);
    const struct lrnn_model_info     info = lrnn_model_get_info(model);
    const struct lrnn_session_params params = {
        .n_threads = 1, .n_seqs = 2, .n_rewind = 1, .n_cache = N_CACHE
    };
    struct lrnn_session * s = test_session(model, &params);

    cuda_device_reset();
    memset(splits, 0, sizeof(*splits));
    eval(t, s, g, experts ? FEW : PROMPT);
    check_splits(t, splits, g->name, "prompt");
    test_check(t, cuda_device_get().kernels > 0, "%s: the prompt launched nothing", g->name);
    if (info.n_householder > 0 && !experts) {
        test_check(t,
                cuda_device_ran("chunk_prepare") && cuda_device_ran("10chunk_scanI") &&
                        !cuda_device_ran("householder_step"),
                "%s: a prompt of %d tokens does not use the chunk kernels", g->name, (int) PROMPT);
    }

    eval(t, s, g, FEW); // ggml-cuda has other kernels for a few columns
    test_check(t, !cuda_device_ran("mul_mat_fIf"), "%s: F32 products are rounded to TF32", g->name);
    memset(splits, 0, sizeof(*splits));

    struct cuda_device_counts before = { 0 };
    int                       n_splits = 0;
    for (int i = 0; i < STEPS; ++i) {
        if (i == WARM) {
            before = cuda_device_get();
        }
        eval(t, s, g, 1);
        if (i == 0) {
            n_splits = check_splits(t, splits, g->name, "token");
        }
    }
    const struct cuda_device_counts now = cuda_device_get();
    test_check(t,
            now.kernels == before.kernels && now.captures == before.captures &&
                    now.graphs - before.graphs == (STEPS - WARM) * n_splits,
            "%s: %d tokens launched %d kernels outside of graphs and %d graphs, %d of them "
            "captured "
            "again",
            g->name, STEPS - WARM, (int) (now.kernels - before.kernels),
            (int) (now.graphs - before.graphs), (int) (now.captures - before.captures));
    if (info.n_householder > 0) {
        test_check(t, cuda_device_ran("householder_step"),
                "%s: a token does not use the step kernel", g->name);
    }
    lrnn_session_free(s);
    lrnn_model_free(model);
}

int main(void) {
    struct test        t = { 0 };
    struct splits      splits = { 0 };
    struct golden_list list;

    setenv("LRNN_CUDA_IDLE", "1", 1);
    setenv("GGML_SCHED_DEBUG", "2", 1);
    ggml_log_set(on_log, &splits);
    golden_list_load(&list);
    for (int i = 0; i < list.n; ++i) {
        run(&t, &list.models[i], &splits);
    }
    printf("%d models: a prompt of %d tokens, %d tokens, then %d one by one\n", list.n,
            (int) PROMPT, (int) FEW, (int) STEPS);
    golden_list_free(&list);
    return test_end(&t, "test-cuda-dispatch");
}
