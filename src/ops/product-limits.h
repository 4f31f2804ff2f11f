#pragma once

// The number of columns at which the CPU changes the kernel of a matrix product, and with it the
// bits of a column. src/model/graph.h asserts that small batches stay below it.

enum {
    // From this many columns on, weights are converted to F32. For fewer, less than three register
    // tiles, that costs too much. And a column of a product with few columns must be bit-identical
    // to the same column computed alone, so that sequences that are decoded together do not affect
    // each other, if the weights are Q8_0 or Q4_0; with AVX2 or dotprod also Q5_0, IQ4_NL, MXFP4,
    // Q4_K or Q6_K.
    PRODUCT_MANY_COLUMNS = 48,
};
