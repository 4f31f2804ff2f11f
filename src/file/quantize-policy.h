#pragma once

// Decides which tensor gets which type.
//
// Large matrices are quantized: projections, MLPs, embedding and output. Everything else that
// shapes the recurrence keeps its type: gates, decays, β, A, Δ, convolutions, norms, token shifts,
// biases. These tensors are small, and an error in the transition is applied again at every later
// token. Householder transitions are made of keys, but keys come from large projections and are
// quantized with the others; models that track a state need them in higher precision.
// docs/quantization.md has the measurements.
//
// A row must consist of whole blocks of its type. If it does not, the table of types names the
// next type to try.

#include "file/model-file.h"
#include "lrnn.h"
#include "ggml.h"

struct quantize_type {
    const char *                name;
    enum ggml_type              type;      // of all matrices; of most in a mix
    uint32_t                    file_type; // enum llama_ftype of llama.cpp
    enum ggml_type              next;      // used if the rows do not fit
    const struct quantize_mix * mix;       // the types of the other matrices; NULL: none
};

// Finds a quantization type by its name, in upper or lower case. Returns NULL if there is none.
const struct quantize_type * quantize_type_find(const char * name);

// The type that is nearest to one of llama.cpp, "Q4_K_M" to "Q4_K_S"; NULL: not such a name.
const char * quantize_type_nearest(const char * name);

// Writes the names of all quantization types, "Q8_0, ..., BF16 or F32". Returns text.
const char * quantize_type_names(char * text, size_t size, bool with_mixes);

// The name of a quantization type, "Q8_0"; ggml's name if the type is not one of them.
const char * quantize_type_name(enum ggml_type type);

enum quantize_role {
    QUANTIZE_MATRIX,    // a large matrix: quantized
    QUANTIZE_RECURRENT, // a matrix that shapes the recurrence: kept unless an override names it
    QUANTIZE_VECTOR,    // not the weight of a matrix product: kept; no op takes another type
};

// The role of a tensor by its name, such as "blk.0.attn_q.weight".
enum quantize_role quantize_role_of(const char * name);

// Types that a user chose for some matrices; the first match wins. Tensors that are not matrices
// are not affected, so that an override may name a whole layer.
struct quantize_overrides;

struct quantize_overrides * quantize_overrides_new(void); // NULL: out of memory
void quantize_overrides_free(struct quantize_overrides * overrides);

// Adds "REGEX=TYPE": a POSIX extended regular expression that is searched in the names of tensors,
// and the name of a quantization type.
bool quantize_overrides_add(
        struct quantize_overrides * overrides, const char * text, struct lrnn_error * err);

// The first regular expression that no call of quantize_choose has applied; NULL if there is none.
const char * quantize_overrides_unused(const struct quantize_overrides * overrides);

struct quantize_choice {
    enum ggml_type to;
    enum ggml_type wanted;    // differs from `to` if rows do not fit the type
    bool           recurrent; // an override quantizes a matrix that shapes the recurrence
};

// Chooses the type of a tensor of a file that becomes one of type `wanted`.
struct quantize_choice quantize_choose(struct quantize_overrides * overrides,
        const struct model_file * file, const struct model_tensor * tensor,
        const struct quantize_type * wanted);
