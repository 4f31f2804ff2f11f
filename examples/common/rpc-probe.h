#pragma once

// Asks a server of ggml-rpc who it is, before ggml does: ggml ends the process if nobody answers,
// and waits for ever if somebody does not.
//
// A server is one of ours if its protocol has our version, to the last number. ggml raises the last
// number whenever an op is added, because the numbers of the ops cross the wire; the build adds 100
// to it, because ours are among them (cmake/glue.cmake).

#include <stdbool.h>
#include <stddef.h>

enum { RPC_PROBE_SECONDS = 5, RPC_ADDRESS_SIZE = 32 };

// Where the server HOST:PORT is, in digits, as in 10.0.0.7:50052; false with a sentence if that
// cannot be told.
bool rpc_resolve(const char * server, char address[RPC_ADDRESS_SIZE], char * err, size_t err_size);

// True if the server at this address can compute for this program; false after at most
// RPC_PROBE_SECONDS, with a sentence.
// - server: what the sentence calls it
bool rpc_probe(const char * server, const char * address, char * err, size_t err_size);
