#pragma once

// A ggml-rpc server on the loopback interface, in its own process: a backend that shares no memory
// with the test.

#include <stdbool.h>
#include <sys/types.h>

struct loopback_server {
    pid_t pid;
    int   lifeline; // write end of a pipe; the server ends when it is closed, also by a crash
    char  endpoint[32];
};

// Starts a server with the CPU as its device and waits until it answers. Call it before the
// process has threads.
bool loopback_server_start(struct loopback_server * server);
void loopback_server_stop(struct loopback_server * server);
