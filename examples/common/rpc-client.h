#pragma once

// Servers of ggml-rpc, as devices of this process, and an end to a program whose server is lost.
//
// ggml-rpc has no way to report a failure: it aborts where a connection breaks, and waits for ever
// where a server does not answer. So each server is probed before ggml connects to it
// (rpc-probe.h); its connection gets a time-out; and ggml's abort becomes one sentence on stderr
// that names the server, and EXIT_CODE_SYSTEM. What a program had written by then is whole, since
// outputs are renamed into place.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Connects, and registers the servers' devices with ggml. Once in a process.
// - servers: HOST:PORT between commas
// - timeout: seconds without an answer after which a server counts as lost
bool rpc_client_connect(const char * servers, int64_t timeout, char * err, size_t err_size);
