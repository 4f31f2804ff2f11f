#pragma once

// The number of columns at which the CPU changes the kernel of a matrix product, and with it the
// bits of a column. src/model/graph.h asserts that small batches stay below it.

enum {
    // From this many columns on, weights are converted to F32. For fewer, less than three register
    // tiles, that costs too much. And a column of a product with few columns must be bit-identical
    // to the same column computed alone, if the weights are Q8_0, Q4_0, Q4_K or Q6_K: sequences
    // that are decoded together do not affect each other.
    PRODUCT_MANY_COLUMNS = 48,
};
