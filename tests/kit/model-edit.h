#pragma once

// Reads a model file with ggml, changes it and writes it again. Tests change one thing of a valid
// model.

#include "ggml.h"
#include "gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

struct model_edit {
    struct gguf_context * gguf;    // the keys: gguf_set_*, gguf_remove_key
    struct ggml_context * ctx;     // holds the tensors of the file
    struct ggml_context * more;    // holds added tensors
    struct ggml_tensor ** tensors; // in the order of the file
    int64_t               n_tensors;
};

bool model_edit_open(struct model_edit * e, const char * path);
void model_edit_close(struct model_edit * e);
bool model_edit_write(const struct model_edit * e, const char * path);

// NULL if there is no tensor of this name.
struct ggml_tensor * model_edit_find(const struct model_edit * e, const char * name);

void model_edit_drop(struct model_edit * e, const char * name);
void model_edit_rename(struct model_edit * e, const char * name, const char * to);

// Replaces the tensor of this name, or appends one, with zeros of this type and shape.
struct ggml_tensor * model_edit_put(struct model_edit * e, const char * name, enum ggml_type type,
        int n_dims, const int64_t * ne);

// Converts an F32 tensor to another type.
void model_edit_convert(struct model_edit * e, const char * name, enum ggml_type type);

#ifdef __cplusplus
}
#endif
