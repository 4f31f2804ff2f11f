#pragma once

// Where and how a program computes: options that every program which runs a model has, and the
// model they load.
//
//     struct compute compute = COMPUTE_DEFAULTS;
//     const struct option options[] = { …, { .group = "Computation", COMPUTE_THREADS(compute) }, COMPUTE_OPTIONS(compute), … };
//     …                                                                                       // options_parse
//     if (!compute_check(&compute, "lrnn-cli", err, sizeof(err))) …                           // EXIT_CODE_USAGE
//     struct lrnn_model * model = compute_load(&compute, "lrnn-cli", path, quiet);            // NULL: EXIT_CODE_MODEL

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

#define COMPUTE_DEFAULTS { .n_gpu_layers = -1, .rpc_timeout = 120 }

// The inside of an option, so that it can begin a group.
#define COMPUTE_THREADS(c)                                                                      \
    .names = "-t, --threads", .value = "N", .type = OPTION_INT, .dest = &(c).threads, .min = 0, \
    .max = 4096, .help = "threads of the CPU", .unset = "one for each core"

// The others, as they follow it.
#define COMPUTE_OPTIONS(c) COMPUTE_LAYERS(c), COMPUTE_DEVICES(c)

#define COMPUTE_LAYERS(c)                                                                                                           \
    {                                                                                                                               \
        .names = "-ngl, --gpu-layers",                                                                                              \
        .value = "N",                                                                                                               \
        .type  = OPTION_INT,                                                                                                        \
        .dest  = &(c).n_gpu_layers,                                                                                                 \
        .min   = -1,                                                                                                                \
        .max   = 1 << 20,                                                                                                           \
        .help = "layers on devices, from the last one back, the output being one more; 0: none, -1: as many as there is memory for" \
    }

#define COMPUTE_SERVERS(c)                                                                                                   \
    {                                                                                                                        \
        .names = "--rpc",                                                                                                    \
        .value = "LIST",                                                                                                     \
        .type  = OPTION_STRING,                                                                                              \
        .dest  = &(c).rpc,                                                                                                   \
        .help = "servers, HOST:PORT between commas, where lrnn-rpc-server runs: their devices are then GPUs of this machine" \
    },                                                                                                                       \
            { .names   = "--rpc-timeout",                                                                                    \
                .value = "S",                                                                                                \
                .type  = OPTION_INT,                                                                                         \
                .dest  = &(c).rpc_timeout,                                                                                   \
                .min   = 1,                                                                                                  \
                .max   = 86400,                                                                                              \
                .help  = "seconds without an answer after which a server counts as lost" }

#define COMPUTE_DEVICES(c)                                                                      \
    { .names   = "--device",                                                                    \
        .value = "LIST",                                                                        \
        .type  = OPTION_STRING,                                                                 \
        .dest  = &(c).devices,                                                                  \
        .help  = "the devices, between commas, by the names that lrnn-inspect --devices shows", \
        .unset = "every GPU" },                                                                 \
            { .names   = "--tensor-split",                                                      \
                .value = "LIST",                                                                \
                .type  = OPTION_STRING,                                                         \
                .dest  = &(c).split,                                                            \
                .help  = "shares of the layers for each of them, as in 3,1",                    \
                .unset = "in proportion to free memory" },                                      \
            COMPUTE_SERVERS(c),                                                                 \
            { .names  = "-v, --verbose",                                                        \
                .type = OPTION_FLAG,                                                            \
                .dest = &(c).verbose,                                                           \
                .help = "say on stderr which layers lie where" }

// The same as COMPUTE_OPTIONS, for a table that is filled as it runs: puts them there and returns
// their number.
enum { COMPUTE_N_OPTIONS = 6 };
int compute_options(struct compute * c, struct option * options);

// Connects to the servers. False if one of them cannot be used, there are no such devices, or the
// split does not fit them.
// - program: lives as long as the process
bool compute_check(const struct compute * c, const char * program, char * err, size_t err_size);

// A model, loaded with progress on a terminal; NULL after a sentence on stderr. Says if devices
// were meant and there are none.
// - quiet: no progress, no warning
struct lrnn_model * compute_load(
        const struct compute * c, const char * program, const char * path, bool quiet);
