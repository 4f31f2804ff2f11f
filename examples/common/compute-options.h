#pragma once

// The options shared by all programs that run a model: where and how to compute.
//
//     struct compute compute = COMPUTE_DEFAULTS;
//     const struct option options[] = { …, opt_group("Computation"), COMPUTE_THREADS(compute),
//         COMPUTE_OPTIONS(compute), COMPUTE_BATCH(batch), … };
//     …                                                                // parse the command line
//     if (!compute_check(&compute, &err)) …                // EXIT_CODE_USAGE
//     struct lrnn_model * model = compute_load(&compute, path, quiet, &err);
//     if (model == NULL) return program_error(&err);

#include "lrnn.h"
#include "options.h"

struct compute {
    int64_t      threads;      // 0: one per core
    int64_t      n_gpu_layers; // -1: as many as fit
    const char * devices;      // NULL: all GPUs
    const char * split;        // NULL: by free memory
    const char * rpc;          // servers, HOST:PORT separated by commas; NULL: none
    int64_t      rpc_timeout;  // seconds
    int          cache_type;   // enum lrnn_cache_type
    bool         no_huge_pages;
    bool         verbose;
};

#define COMPUTE_DEFAULTS { .n_gpu_layers = -1, .rpc_timeout = 120 }

#define COMPUTE_OPTIONS(c) \
    COMPUTE_CACHE_TYPE(c), COMPUTE_HUGE_PAGES(c), COMPUTE_LAYERS(c), COMPUTE_DEVICES(c)

#define COMPUTE_THREADS(c)                               \
    opt_int("-t, --threads", "N", &(c).threads, 0, 4096, \
            "number of CPU threads (default: one per core)")

#define COMPUTE_CACHE_TYPE(c)                                   \
    opt_choice("--cache-type", "f16|f32|q8_0", &(c).cache_type, \
            "number format of the attention cache")

#define COMPUTE_HUGE_PAGES(c)                                                                \
    opt_flag("--no-huge-pages", &(c).no_huge_pages,                                          \
            "leave the weights in the mapped file, where processes share them (default: on " \
            "the CPU, copy them to huge pages if memory allows: faster generation)")

#define COMPUTE_LAYERS(c)                                                                        \
    opt_int("-ngl, --gpu-layers", "N", &(c).n_gpu_layers, -1, 1 << 20,                           \
            "layers to offload, counted from the last; the output layer counts as one more; 0: " \
            "none, -1: as many as fit")

#define COMPUTE_DEVICES(c)                                                              \
    opt_string("--device", "LIST", &(c).devices,                                        \
            "devices to use, separated by commas; lrnn-inspect --devices lists them "   \
            "(default: all GPUs)"),                                                     \
            opt_string("--tensor-split", "LIST", &(c).split,                            \
                    "shares of the layers for these devices, such as 3,1 "              \
                    "(default: by free memory)"),                                       \
            opt_string("--rpc", "LIST", &(c).rpc,                                       \
                    "lrnn-rpc-server instances to use, HOST:PORT separated by commas; " \
                    "their devices count as GPUs of this machine"),                     \
            opt_int("--rpc-timeout", "S", &(c).rpc_timeout, 1, 86400,                   \
                    "give up on a server after S seconds without an answer"),           \
            opt_flag("-v, --verbose", &(c).verbose, "print the placement of the layers")

#define COMPUTE_BATCH(n)                                                              \
    opt_alias("--batch, --ubatch", opt_int("-b, --batch-size", "N", &(n), 1, 1 << 20, \
                                           "maximum number of tokens computed together"))

// Connects to the servers. Fails if a server or device cannot be used, or if the split does not
// match the devices.
bool compute_check(const struct compute * c, struct lrnn_error * err);

// Loads a model, with progress on a terminal; NULL after an error message on stderr. Prints a
// message if GPUs were requested and there are none.
// - quiet: no progress, no warnings
struct lrnn_model * compute_load(
        const struct compute * c, const char * path, bool quiet, struct lrnn_error * err);
