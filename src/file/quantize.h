#pragma once

// A model file in other types. The file is mapped, and goes through memory one tensor at a time:
// what is needed is the largest tensor in its new type. Metadata is kept as it is; keys that say
// what was done are added.

#include "file/imatrix.h"
#include "file/model-file.h"
#include "file/quantize-policy.h"
#include "lrnn.h"

struct quantize_params {
    enum ggml_type              type;      // of the matrices that the policy quantises
    struct quantize_overrides * overrides; // NULL: none
    const char * overrides_text;    // the same as the user wrote them, for the file; NULL: none
    const struct imatrix * imatrix; // NULL: columns count alike
    const char *           imatrix_file; // its name and SHA-256, for the file; with imatrix
    const char *           imatrix_sha256;
    bool allow_requantize; // matrices that are quantised already: rounding the rounded
    int  n_threads;        // 0: one for each core
};

// What becomes of one tensor.
struct quantize_tensor {
    const struct model_tensor *  source;
    struct quantize_choice       choice;
    const struct imatrix_entry * importance; // NULL: none
    size_t                       bytes;      // in its new type
    double error; // relative RMS error √(Σ (w − w')² / Σ w²); 0 for what is copied; known when it is done
};

struct quantize_plan {
    size_t                   n_tensors;
    struct quantize_tensor * tensors;
    size_t                   bytes_from, bytes_to; // of all tensors
};

// Decides for every tensor. Nothing is computed or written. Call quantize_plan_free in any case.
enum lrnn_quantize_status quantize_plan_make(struct quantize_plan * plan,
        const struct model_file * file, const struct quantize_params * params, char * err,
        size_t err_size);
void quantize_plan_free(struct quantize_plan * plan);

// Called when a tensor is done, in the order of the file. False stops.
typedef bool (*quantize_callback)(const struct quantize_tensor * tensor, size_t i, void * user);

// Carries the plan out and fills in its errors. The bytes that are written do not depend on the
// number of threads.
// - path: of the new file, which is whole or not there; NULL: the errors alone
enum lrnn_quantize_status quantize_run(struct quantize_plan * plan, const struct model_file * file,
        const struct quantize_params * params, const char * path, quantize_callback done,
        void * user, char * err, size_t err_size);
