#pragma once

// A model file taken apart, changed and written again, by ggml's own reader and writer: the tests
// change one thing of a model that works.

#include "ggml.h"
#include "gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

struct model_edit {
    struct gguf_context * gguf;    // the keys: gguf_set_*, gguf_remove_key
    struct ggml_context * ctx;     // where the tensors of the file are
    struct ggml_context * more;    // and those that were added
    struct ggml_tensor ** tensors; // in the order of the file
    int64_t               n_tensors;
};

bool model_edit_open(struct model_edit * e, const char * path);
void model_edit_close(struct model_edit * e);
bool model_edit_write(const struct model_edit * e, const char * path);

// NULL if there is none of that name
struct ggml_tensor * model_edit_find(const struct model_edit * e, const char * name);

void model_edit_drop(struct model_edit * e, const char * name);
void model_edit_rename(struct model_edit * e, const char * name, const char * to);

// A tensor with this type and shape in place of the one of that name, or behind the others; zeros.
struct ggml_tensor * model_edit_put(struct model_edit * e, const char * name, enum ggml_type type,
        int n_dims, const int64_t * ne);

// An F32 tensor of the same numbers in another type, in its place.
void model_edit_convert(struct model_edit * e, const char * name, enum ggml_type type);

#ifdef __cplusplus
}
#endif
