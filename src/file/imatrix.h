#pragma once

// The importance matrix: how much each column of a weight matrix matters, from the inputs that the
// matrix sees.
//
// For y = W x, rounding W changes y_i by Σ_j δW_ij x_j. If the columns are independent, the mean
// square of that is Σ_j δW_ij² E[x_j²]. Rounding that weights column j with E[x_j²] therefore
// changes the output least. The file stores the sums of x_j² and the number of inputs. It is a GGUF
// file with the names of llama.cpp, and both programs read files of the other:
//
//     general.type                string   "imatrix"
//     imatrix.datasets            strings  the data sets
//     imatrix.chunk_count         u32      windows
//     imatrix.chunk_size          u32      tokens per window
//     <tensor>.in_sum2            f32 [n_per_row, n_matrices]
//     <tensor>.counts             f32 [1, n_matrices]

#include "lrnn.h"

struct imatrix_entry {
    char     name[64]; // of the weight
    int64_t  n_per_row;
    int64_t  n_matrices; // more than 1 for a weight with more than two dimensions
    double * sum2;       // [n_matrices][n_per_row]
    double * counts;     // [n_matrices]
};

struct imatrix {
    struct imatrix_entry * entries;
    size_t                 capacity; // of entries
    int                    n_entries;
    int64_t                n_windows, window_size;
    char                   dataset[256];
};

void imatrix_free(struct imatrix * m);

// Adds n inputs x [n][n_per_row] of matrix number `matrix` of a weight. The first call for a weight
// creates its entry. Fails if the shape differs from that of earlier calls, or if memory is out.
bool imatrix_add(struct imatrix * m, const char * name, int64_t n_per_row, int64_t n_matrices,
        int64_t matrix, const float * x, int64_t n, struct lrnn_error * err);

// NULL if there is no entry of this name.
const struct imatrix_entry * imatrix_find(const struct imatrix * m, const char * name);

bool imatrix_write(const struct imatrix * m, const char * path, struct lrnn_error * err);

// Reads into an uninitialized `m`, which is empty after a failure.
bool imatrix_read(struct imatrix * m, const char * path, struct lrnn_error * err);

// Computes the weights of one matrix, the mean squares [n_per_row]. Columns whose inputs were all
// zero count a millionth of the mean, so that a block of such columns is rounded as without
// importance. A matrix without inputs, an expert that no token used, has the mean squares of the
// inputs of all others. Returns false if all inputs were zero or there were none.
bool imatrix_weights(const struct imatrix_entry * e, int64_t matrix, float * weights);
