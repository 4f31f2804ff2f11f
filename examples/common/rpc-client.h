#pragma once

// Connects this process to RPC servers, whose devices then count as its own.
//
// ggml-rpc cannot report errors: it aborts if a connection breaks, and waits forever if a server
// does not respond. So each server is probed first (rpc-probe.c), its connection gets a time-out,
// and ggml's abort becomes an error message that names the server, and EXIT_CODE_SYSTEM. Output
// files stay intact, because programs write them under a temporary name.

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Connects, and registers the devices of the servers with ggml. Call it once per process.
// - servers: HOST:PORT, separated by commas
// - timeout: give up on a server after this many seconds without an answer
bool rpc_client_connect(const char * servers, int64_t timeout, struct lrnn_error * err);

//
// rpc-probe.c: checks an RPC server before ggml connects to it
//
enum { RPC_PROBE_SECONDS = 5, RPC_ADDRESS_SIZE = 32 };

// Resolves HOST:PORT to a numeric address, such as 10.0.0.7:50052.
bool rpc_resolve(const char * server, char address[RPC_ADDRESS_SIZE], struct lrnn_error * err);

// True if the server at this address can compute for this program. Takes at most
// RPC_PROBE_SECONDS.
// - server: its name in error messages
bool rpc_probe(const char * server, const char * address, struct lrnn_error * err);
