#include "kit/backends.h"

#include "ggml-cpu.h"
#include "ggml-rpc.h"

static ggml_backend_sched_t new_sched(ggml_backend_t a, ggml_backend_t b, bool parallel) {
    ggml_backend_t backends[] = { a, b };
    return ggml_backend_sched_new(
            backends, NULL, b == NULL ? 1 : 2, GGML_DEFAULT_GRAPH_SIZE, parallel, true);
}

bool test_backends_open(struct test_backends * b) {
    if (!loopback_server_start(&b->server)) {
        return false;
    }
    b->rpc = ggml_backend_rpc_init(b->server.endpoint, 0);
    b->cpu = ggml_backend_cpu_init();
    b->cpu_2 = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(b->cpu, 1); // tiny graphs: more threads would only wait
    ggml_backend_cpu_set_n_threads(b->cpu_2, 1);

    b->rpc_cpu = new_sched(b->rpc, b->cpu, false);
    b->rpc_cpu_pipelined = new_sched(b->rpc, b->cpu, true);
    b->cpu_cpu = new_sched(b->cpu, b->cpu_2, false);
    b->only_cpu = new_sched(b->cpu, NULL, false);
    return true;
}

void test_backends_close(struct test_backends * b) {
    ggml_backend_sched_free(b->only_cpu);
    ggml_backend_sched_free(b->cpu_cpu);
    ggml_backend_sched_free(b->rpc_cpu_pipelined);
    ggml_backend_sched_free(b->rpc_cpu);
    ggml_backend_free(b->cpu_2);
    ggml_backend_free(b->cpu);
    ggml_backend_free(b->rpc);
    loopback_server_stop(&b->server);
}

struct ggml_context * test_graph_context(void) {
    return ggml_init((struct ggml_init_params) {
            .mem_size = 256 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true });
}
