#pragma once

// The options shared by all programs that run a model: where and how to compute.
//
//     struct device_options device = DEVICE_OPTIONS_DEFAULTS;
//     const struct option options[] = { …, opt_group("Computation"), DEVICE_THREADS(device),
//         DEVICE_OPTIONS(device), DEVICE_BATCH(batch), … };
//     …                                                                // parse the command line
//     if (!device_options_check(&device, &err)) …                // EXIT_CODE_USAGE
//     struct lrnn_model * model = device_options_load(&device, path, quiet, &err);
//     if (model == NULL) return program_error(&err);

#include "lrnn.h"
#include "options.h"

struct device_options {
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

#define DEVICE_OPTIONS_DEFAULTS { .n_gpu_layers = -1, .rpc_timeout = 120 }
#define DEVICE_OPTIONS_EXACT \
    { .n_gpu_layers = -1, .rpc_timeout = 120, .cache_type = LRNN_CACHE_F32 } // F16 rounds

#define DEVICE_OPTIONS(c) \
    DEVICE_CACHE_TYPE(c), DEVICE_HUGE_PAGES(c), DEVICE_LAYERS(c), DEVICE_PLACES(c)

#define DEVICE_THREADS(c)                                \
    opt_int("-t, --threads", "N", &(c).threads, 0, 4096, \
            "number of CPU threads (default: one per core)")

#define DEVICE_CACHE_TYPE(c)                                    \
    opt_choice("--cache-type", "f16|f32|q8_0", &(c).cache_type, \
            "number format of the attention cache")

#define DEVICE_HUGE_PAGES(c)                                                                 \
    opt_flag("--no-huge-pages", &(c).no_huge_pages,                                          \
            "leave the weights in the mapped file, where processes share them (default: on " \
            "the CPU, copy them to huge pages if memory allows: faster generation)")

#define DEVICE_LAYERS(c)                                                                         \
    opt_int("-ngl, --gpu-layers", "N", &(c).n_gpu_layers, -1, 1 << 20,                           \
            "layers to offload, counted from the last; the output layer counts as one more; 0: " \
            "none, -1: as many as fit")

#define DEVICE_PLACES(c)                                                                \
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

#define DEVICE_BATCH(n)                                                               \
    opt_alias("--batch, --ubatch", opt_int("-b, --batch-size", "N", &(n), 1, 1 << 20, \
                                           "maximum number of tokens computed together"))

// The parameters of a session that the options choose; the program sets the others.
struct lrnn_session_params device_session_params(const struct device_options * o);

// Connects to the servers. Fails if a server or device cannot be used, or if the split does not
// match the devices.
bool device_options_check(const struct device_options * o, struct lrnn_error * err);

// Loads a model, with progress on a terminal; NULL after an error message on stderr. Prints a
// message if GPUs were requested and there are none.
// - quiet: no progress, no warnings
struct lrnn_model * device_options_load(
        const struct device_options * o, const char * path, bool quiet, struct lrnn_error * err);
