#pragma once

// Which tensor gets which type: the one place that knows.
//
// The matrices that dominate a file's size are quantised: projections, feed-forward layers,
// embedding, output. Whatever else shapes the recurrence stays as it is: gates, decays, β, A, Δ,
// convolutions, norms, token shifts, biases. They are few, and an error in the transition is
// applied again at every token that follows. Keys, of which Householder transitions are made, are
// projections, large, and quantised with the others; models that track a state need them kept.
// docs/quantization.md has the measurements behind all of this.
//
// A row must be whole blocks of its type. Where it is not, the nearest type that fits is taken, by
// this ladder:
//
//     Q4_K → Q5_0     Q5_K → Q5_1     Q6_K → Q8_0     Q4_0, Q5_0, Q5_1, Q8_0 → F16

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The type of a word, "Q8_0" or "q8_0"; false if it is none that this quantiser makes.
bool quantize_type_find(const char * word, enum ggml_type * type);

// Lists the words that quantize_type_find accepts, "Q8_0, ..., BF16 or F32". Returns text.
const char * quantize_type_words(char * text, size_t size);

// The word of a type, "Q8_0"; of one that is not made here ggml's own name.
const char * quantize_type_word(enum ggml_type type);

// llama.cpp's number for files that are mostly of a type, general.file_type.
uint32_t quantize_file_type(enum ggml_type type);

enum quantize_role {
    QUANTIZE_MATRIX,    // dominates the size: quantised
    QUANTIZE_RECURRENT, // a matrix that shapes the recurrence: stays, unless it is named
    QUANTIZE_VECTOR,    // no matrix product's weight: no op takes it in another type
};

// By the name in the file, "blk.0.attn_q.weight".
enum quantize_role quantize_role_of(const char * name);

// Exceptions that a user makes, in order; the first that fits a name counts. They are about
// matrices: whatever else a regular expression fits stays as it is, so that one may name a whole
// layer.
struct quantize_overrides;

struct quantize_overrides * quantize_overrides_new(void); // NULL: out of memory
void quantize_overrides_free(struct quantize_overrides * overrides);

// "REGEX=TYPE": an extended regular expression of POSIX, found anywhere in the name, and one of the
// words above.
bool quantize_overrides_add(
        struct quantize_overrides * overrides, const char * text, char * err, size_t err_size);

// The first regular expression that chose nothing for any of the names asked for so far; NULL if
// there is none.
const char * quantize_overrides_unused(const struct quantize_overrides * overrides);

struct quantize_choice {
    enum ggml_type to;
    enum ggml_type wanted; // differs from `to` where the rows do not fit
    bool recurrent; // leaves F32, because a user said so, though it shapes the recurrence: worth a warning
};

// What becomes of a tensor, in a file of type `wanted`.
struct quantize_choice quantize_choose(struct quantize_overrides * overrides, const char * name,
        enum ggml_type from, int64_t n_per_row, enum ggml_type wanted);
