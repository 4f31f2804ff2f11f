#pragma once

// Where and how a program computes: the options shared by all programs that run a model, and the
// model that they load.
//
//     struct compute compute = COMPUTE_DEFAULTS;
//     const struct option options[] = { …, opt_group("Computation"), COMPUTE_THREADS(compute),
//         COMPUTE_OPTIONS(compute), … };
//     …                                                               // parse the command line
//     if (!compute_check(&compute, err, sizeof(err))) …               // EXIT_CODE_USAGE
//     struct lrnn_model * model = compute_load(&compute, path, quiet); // NULL: EXIT_CODE_MODEL

#include "lrnn.h"
#include "options.h"

struct compute {
    int64_t      threads;      // 0: one for each core
    int64_t      n_gpu_layers; // -1: as many as there is memory for
    const char * devices;      // NULL: every GPU
    const char * split;        // NULL: in proportion to free memory
    const char * rpc;          // servers, HOST:PORT between commas; NULL: none
    int64_t      rpc_timeout;  // seconds
    bool         verbose;
};

#define COMPUTE_DEFAULTS   { .n_gpu_layers = -1, .rpc_timeout = 120 }

#define COMPUTE_OPTIONS(c) COMPUTE_LAYERS(c), COMPUTE_DEVICES(c)

#define COMPUTE_THREADS(c)                               \
    opt_int("-t, --threads", "N", &(c).threads, 0, 4096, \
            "threads of the CPU (default: one for each core)")

#define COMPUTE_LAYERS(c)                                                                     \
    opt_int("-ngl, --gpu-layers", "N", &(c).n_gpu_layers, -1, 1 << 20,                        \
            "layers on devices, from the last one back, the output being one more; 0: none, " \
            "-1: as many as there is memory for")

#define COMPUTE_DEVICES(c)                                                                  \
    opt_string("--device", "LIST", &(c).devices,                                            \
            "the devices, between commas, by the names that lrnn-inspect --devices shows "  \
            "(default: every GPU)"),                                                        \
            opt_string("--tensor-split", "LIST", &(c).split,                                \
                    "shares of the layers for each of them, as in 3,1 "                     \
                    "(default: in proportion to free memory)"),                             \
            opt_string("--rpc", "LIST", &(c).rpc,                                           \
                    "servers, HOST:PORT between commas, where lrnn-rpc-server runs: their " \
                    "devices are then GPUs of this machine"),                               \
            opt_int("--rpc-timeout", "S", &(c).rpc_timeout, 1, 86400,                       \
                    "seconds without an answer after which a server counts as lost"),       \
            opt_flag("-v, --verbose", &(c).verbose, "say on stderr which layers lie where")

// The same as COMPUTE_OPTIONS, for a table filled at run time. Returns their number.
enum { COMPUTE_N_OPTIONS = 6 };
int compute_options(struct compute * c, struct option * options);

// Connects to the servers. False if a server or device cannot be used, or if the split does not
// match the devices.
bool compute_check(const struct compute * c, char * err, size_t err_size);

// Loads a model, with progress on a terminal; NULL after an error message on stderr. Prints a
// message if GPUs were requested and there are none.
// - quiet: no progress, no warnings
struct lrnn_model * compute_load(const struct compute * c, const char * path, bool quiet);
