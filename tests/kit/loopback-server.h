#pragma once

// A ggml-rpc server on the loopback interface, in a process of its own: a backend that has no
// memory in common with the test.

#include <stdbool.h>
#include <sys/types.h>

struct loopback_server {
    pid_t pid;
    int lifeline; // write end of a pipe: closes when the test ends, in whatever way, and then the server ends too
    char endpoint[32];
};

// Starts a server with the CPU as its device and waits until it answers. Call it before the process
// has threads.
bool loopback_server_start(struct loopback_server * server);
void loopback_server_stop(struct loopback_server * server);
