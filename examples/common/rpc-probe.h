#pragma once

// Checks an RPC server before ggml connects to it.
//
// ggml offers no such check: its client aborts the process if nobody answers or the version
// differs, and waits forever if the server does not respond. So this file speaks the handshake of
// ggml-rpc's wire format itself.
//
// A server is compatible if its protocol version equals ours in all three numbers. ggml raises the
// last number whenever it adds an op, because op numbers are part of the protocol; our build adds
// 100 to it, because our ops are among them (cmake/glue.cmake).

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>

enum { RPC_PROBE_SECONDS = 5, RPC_ADDRESS_SIZE = 32 };

// Resolves HOST:PORT to a numeric address, such as 10.0.0.7:50052.
bool rpc_resolve(const char * server, char address[RPC_ADDRESS_SIZE], struct lrnn_error * err);

// True if the server at this address can compute for this program. Takes at most
// RPC_PROBE_SECONDS.
// - server: its name in error messages
bool rpc_probe(const char * server, const char * address, struct lrnn_error * err);
