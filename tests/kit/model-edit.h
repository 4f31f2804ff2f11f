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

// Makes changes that are given as text, separated by semicolons. Ends the program if the text is
// malformed.
//
//     symbols N             a tokenizer of N symbols s0, s1, ...
//     bytes N               a tokenizer of the first N bytes
//     drop NAME             a key or a tensor
//     KEY = VALUE           'text', true, 1.0 or nan (f32), 1 (u32), -1 (i32); [VALUE, VALUE]
//     TENSOR[1] = NUMBER    one element of an F32 tensor
//     TENSOR: TYPE          model_edit_convert
//     TENSOR: TYPE [1, 2]   model_edit_put
void model_edit_change(struct model_edit * e, const char * changes);

#ifdef __cplusplus
}
#endif
