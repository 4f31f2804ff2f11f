#pragma once

// Backends with and without shared memory, and the schedulers that combine them.

#include "kit/loopback-server.h"

#include "ggml-backend.h"

struct test_backends {
    struct loopback_server server;
    ggml_backend_t         rpc; // the server: shares no memory with the others
    ggml_backend_t         cpu, cpu_2;
    ggml_backend_sched_t   rpc_cpu, rpc_cpu_pipelined, cpu_cpu, only_cpu;
};

// Call it before the process has threads.
bool test_backends_open(struct test_backends * b);
void test_backends_close(struct test_backends * b);

// A context for the headers of a small graph.
struct ggml_context * test_graph_context(void);
