#pragma once

// Numbers of columns at which the CPU changes the kernel of a matrix product, and with it the bits
// of a column. src/run/graph.h asserts that small batches stay below them.

enum {
    // From this many columns on, weights are converted to F32. For fewer, less than three register
    // tiles, that costs too much. And a column of a product with few columns must be bit-identical
    // to the same column computed alone, if the weights are Q8_0 or Q4_0: sequences that are
    // decoded together do not affect each other.
    PRODUCT_MANY_COLUMNS = 48,

    // Up to this many columns, weights in blocks of 256 are multiplied row by row, with the bits of
    // ggml's dot products; with more, strip by strip.
    PRODUCT_FEW_COLUMNS_K = 12,
};
