#pragma once

// What mul-mat-bytes.c expects from the kernels of its types.

#include "product-bytes.h"

#include <stdint.h>

#if MUL_MAT_BYTES

enum { PANEL_ROWS_MAX = 32 };

// A panel of rows and the columns it is multiplied with.
struct panel {
    enum ggml_type type;
    const char *   rows[PANEL_ROWS_MAX]; // those past the end repeat the last one
    const char *   next;                 // rows of the next panel, neighbors; may be NULL
    int64_t        n_rows;               // that exist
    int64_t        n_blocks;             // of a row and of a column
    int64_t        n_columns;
    const void *   x;    // block 0 of the first column
    int64_t        step; // blocks from a column to the next; from a block to the next if by_block
    char *         y;    // the first row
    int64_t        nb1;  // bytes between columns of y
};

struct byte_kernel {
    int64_t block;      // weights
    int64_t height;     // rows of a panel
    int64_t width;      // columns that are multiplied with a panel before the next panel
    size_t  block_size; // bytes of a block of a column
    bool    by_block;   // block b of all columns, then block b + 1, …; otherwise column by column
    void (*round)(enum ggml_type type, const float * x, int64_t n, char * out,
            int64_t stride); // n blocks of a column, which are then `stride` bytes apart
    void (*multiply)(const struct panel * p);
};

extern const struct byte_kernel byte_kernel_32;  // Q8_0 and Q4_0: mul-mat-bytes-32.c
extern const struct byte_kernel byte_kernel_256; // Q4_K, Q5_K, Q6_K, …: mul-mat-bytes-256.c

#endif
