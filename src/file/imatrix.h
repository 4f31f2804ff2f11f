#pragma once

// The importance matrix: how much each column of a weight matters, from what flows through it.
//
//     y = W x      error of y_i after W is rounded = Σ_j δW_ij x_j      its mean square, for independent columns: Σ_j δW_ij² E[x_j²]
//
// so a rounding that weighs column j with E[x_j²] costs the output least. The file holds the sums
// of x_j² and how many x there were: a GGUF with llama.cpp's names, so that either program reads
// the other's.
//
//     general.type                string   "imatrix"
//     imatrix.datasets            strings  what the text was
//     imatrix.chunk_count, .chunk_size     windows, and tokens of each
//     <tensor>.in_sum2            f32 [n_per_row, n_matrices]
//     <tensor>.counts             f32 [1, n_matrices]

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct imatrix_entry {
    char     name[64]; // of the weight
    int64_t  n_per_row;
    int64_t  n_matrices; // of a weight with more than two dimensions
    double * sum2;       // [n_matrices][n_per_row]
    double * counts;     // [n_matrices]
};

struct imatrix {
    struct imatrix_entry * entries;
    int                    n_entries;
    int64_t                n_chunks, chunk_size;
    char                   dataset[256];
};

void imatrix_free(struct imatrix * m);

// Adds n vectors x [n][n_per_row], one behind the other, to what matrix number `matrix` of the
// weight has seen. The entry is made when it is first named. False if the shape is another than
// before, or without memory.
bool imatrix_add(struct imatrix * m, const char * name, int64_t n_per_row, int64_t n_matrices,
        int64_t matrix, const float * x, int64_t n, char * err, size_t err_size);

const struct imatrix_entry * imatrix_find(
        const struct imatrix * m, const char * name); // NULL: none

bool imatrix_write(const struct imatrix * m, const char * path, char * err, size_t err_size);
bool imatrix_read(struct imatrix * m, const char * path, char * err,
        size_t err_size); // m holds nothing before, and if it fails

// The weights for one matrix, mean squares [n_per_row]. A column in which nothing was ever seen
// counts a millionth of the mean: a block of them alone is then rounded as if there were no
// importance, and not divided by nothing. False if no vector was seen at all.
bool imatrix_weights(const struct imatrix_entry * e, int64_t matrix, float * weights);
