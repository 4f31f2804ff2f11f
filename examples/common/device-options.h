#pragma once

// The options shared by all programs that run a model: where and how to compute. They are stored in
// the parameters of the library, so a new one needs a line in this table and nothing elsewhere.
//
//     struct device_options device = DEVICE_OPTIONS_DEFAULTS;
//     const struct option options[] = { …, opt_group("Computation"), DEVICE_THREADS(device),
//         DEVICE_OPTIONS(device), DEVICE_BATCH(device), … };
//     …                                                                // parse the command line
//     if (!device_options_check(&device, &err)) …                // EXIT_CODE_USAGE
//     struct lrnn_model * model = device_options_load(&device, path, quiet, &err);
//     if (model == NULL) return program_error(&err);
//     struct lrnn_session * session = lrnn_session_new(model, &device.session, &err);

#include "lrnn.h"
#include "options.h"

struct device_options {
    struct lrnn_model_params   model;
    struct lrnn_session_params session;     // the program sets what no option of its own sets
    const char *               rpc;         // servers, HOST:PORT separated by commas; NULL: none
    int64_t                    rpc_timeout; // seconds
    bool                       verbose;
};

// DEVICE_OPTIONS_EXACT: the attention cache does not round.
#define DEVICE_OPTIONS_DEFAULTS DEVICE_OPTIONS_CACHED(LRNN_CACHE_F16)
#define DEVICE_OPTIONS_EXACT    DEVICE_OPTIONS_CACHED(LRNN_CACHE_F32)
#define DEVICE_OPTIONS_CACHED(type)                                           \
    { .model = { .n_gpu_layers = -1 },                                        \
        .session = { .n_batch = 512, .n_cache = 4096, .cache_type = (type) }, \
        .rpc_timeout = 120 }

#define DEVICE_OPTIONS(c) \
    DEVICE_CACHE_TYPE(c), DEVICE_HUGE_PAGES(c), DEVICE_LAYERS(c), DEVICE_PLACES(c)

#define DEVICE_THREADS(c)                                            \
    opt_int32("-t, --threads", "N", &(c).session.n_threads, 0, 4096, \
            "number of CPU threads (default: one per core)")

#define DEVICE_CACHE_TYPE(c)                                                    \
    opt_choice("--cache-type", "f16|f32|q8_0", (int *) &(c).session.cache_type, \
            "number format of the attention cache")

#define DEVICE_STATE_TYPE(c)                                                         \
    opt_choice("--state-type", "f32|bf16|f16|q8_0", (int *) &(c).session.state_type, \
            "round recurrent states to this number format after every token: slow, to measure it")

#define DEVICE_HUGE_PAGES(c)                                                                 \
    opt_flag("--no-huge-pages", &(c).model.no_huge_pages,                                    \
            "leave the weights in the mapped file, where processes share them (default: on " \
            "the CPU, copy them to huge pages if memory allows: faster generation)")

#define DEVICE_LAYERS(c)                                                                         \
    opt_int32("-ngl, --gpu-layers", "N", &(c).model.n_gpu_layers, -1, 1 << 20,                   \
            "layers to offload, counted from the last; the output layer counts as one more; 0: " \
            "none, -1: as many as fit")

#define DEVICE_PLACES(c)                                                                \
    opt_string("--device", "LIST", &(c).model.devices,                                  \
            "devices to use, separated by commas; lrnn-inspect --devices lists them "   \
            "(default: all GPUs)"),                                                     \
            opt_string("--tensor-split", "LIST", &(c).model.tensor_split,               \
                    "shares of the layers for these devices, such as 3,1 "              \
                    "(default: by free memory)"),                                       \
            opt_string("--rpc", "LIST", &(c).rpc,                                       \
                    "lrnn-rpc-server instances to use, HOST:PORT separated by commas; " \
                    "their devices count as GPUs of this machine"),                     \
            opt_int("--rpc-timeout", "S", &(c).rpc_timeout, 1, 86400,                   \
                    "give up on a server after S seconds without an answer"),           \
            opt_flag("-v, --verbose", &(c).verbose, "print the placement of the layers")

#define DEVICE_BATCH(c)                                                  \
    opt_int32("-b, --batch-size", "N", &(c).session.n_batch, 1, 1 << 20, \
            "maximum number of tokens computed together")

// Connects to the servers. Fails if a server or device cannot be used, or if the split does not
// match the devices.
bool device_options_check(const struct device_options * o, struct lrnn_error * err);

// Loads a model, with progress on a terminal; NULL after an error message on stderr. Prints a
// message if GPUs were requested and there are none.
// - quiet: no progress, no warnings
struct lrnn_model * device_options_load(
        const struct device_options * o, const char * path, bool quiet, struct lrnn_error * err);
