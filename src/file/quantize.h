#pragma once

// Quantizes a model file. The file is mapped and processed one tensor at a time, so that memory
// holds one tensor in its new type. Metadata is copied; keys that describe the quantization are
// added.

#include "file/imatrix.h"
#include "file/model-file.h"
#include "file/quantize-policy.h"
#include "lrnn.h"

struct quantize_params {
    const struct quantize_type * type;      // of the large matrices
    struct quantize_overrides *  overrides; // NULL: none
    const char *           overrides_text;  // as the user wrote them, for the metadata; NULL: none
    const struct imatrix * imatrix;         // NULL: none
    const char *           imatrix_file;    // its name, for the metadata
    const char *           imatrix_sha256;  // its hash, for the metadata
    bool                   allow_requantize;
    int                    n_threads; // 0: one per core
};

struct quantize_tensor {
    const struct model_tensor *  source;
    struct quantize_choice       choice;
    const struct imatrix_entry * importance; // NULL: none
    size_t                       bytes;      // in its new type
    double error; // relative RMS error √(Σ (w − w')² / Σ w²), set by quantize_run; 0 if copied
};

struct quantize_plan {
    size_t                   n_tensors;
    struct quantize_tensor * tensors;
};

// Chooses the type of every tensor. Call quantize_plan_free after success and failure.
bool quantize_plan_make(struct quantize_plan * plan, const struct model_file * file,
        const struct quantize_params * params, struct lrnn_error * err);
void quantize_plan_free(struct quantize_plan * plan);

// Quantizes the tensors and sets their errors. The output does not depend on the number of threads.
// - path: the new file, complete or absent afterwards; NULL: only compute the errors
// - done: called after each tensor, in the order of the file; NULL: none
bool quantize_run(struct quantize_plan * plan, const struct model_file * file,
        const struct quantize_params * params, const char * path, lrnn_quantize_done done,
        void * user, struct lrnn_error * err);

// The public description of a tensor of the plan.
struct lrnn_quantize_tensor quantize_describe(const struct quantize_tensor * tensor);
