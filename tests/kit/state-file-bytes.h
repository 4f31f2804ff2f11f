#pragma once

// State files byte by byte, so that each byte can be wrong: where what stands (see
// src/state-file.c), and the models whose files are tried.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STATE_AT_VERSION  = 8,  // u32
    STATE_AT_HAS      = 12, // u32: 1 logits, 2 sampler
    STATE_AT_IDENTITY = 16, // u64
    STATE_AT_LENGTH   = 24, // i64
    STATE_AT_SIZE     = 32, // u64
    STATE_AT_PIECES   = 40,

    STATE_SAMPLER_BYTES = 24 + 4 * 4096, // u64 random[2], i64 accepted, i32 recent[4096]
    STATE_SUM_BYTES     = 8,
};

// An input of the fuzz target is a byte and a file. The byte names the model and says what is put
// right before the file is read: a damaged checksum or identity is refused at once, and what lies
// behind them would never be seen.
enum {
    STATE_MODEL        = 3, // mask
    STATE_PUT_IDENTITY = 4,
    STATE_PUT_SUM      = 8,
    STATE_N_MODELS     = 4,
};

// one of each kind of state: matrix with convolutions; a cache of keys and values; a position;
// normaliser and running maximum
extern const char * const state_models[STATE_N_MODELS];

// Writes the checksum of everything before it to the end of a file. Files that are too short stay
// as they are.
void state_put_sum(uint8_t * file, size_t size);

#ifdef __cplusplus
}
#endif
