#pragma once

// The bytes of state files (see src/generate/state-file.c), so that each of them can be changed,
// and the models whose state files are tested.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STATE_AT_VERSION = 8,   // u32
    STATE_AT_HAS = 12,      // u16: 1 logits, 2 sampler, 4 tokens, 8 text; u16: cache type
    STATE_AT_IDENTITY = 16, // u64
    STATE_AT_LENGTH = 24,   // i64
    STATE_AT_SIZE = 32,     // u64
    STATE_AT_PIECES = 40,

    STATE_SAMPLER_BYTES = 24 + 4 * 4096, // u64 random[2], i64 accepted, i32 recent[4096]
    STATE_SUM_BYTES = 8,
};

// An input of the fuzz target is one byte and a state file. The byte selects the model and what is
// repaired before the file is read: a wrong checksum or identity ends reading at once, and the code
// after these checks would never run.
enum {
    STATE_MODEL = 3, // mask
    STATE_PUT_IDENTITY = 4,
    STATE_PUT_SUM = 8,
    STATE_N_MODELS = 4,
};

// One of each kind of state: matrix with convolutions, attention cache, position, normalizer with
// running maximum.
extern const char * const state_models[STATE_N_MODELS];

// Writes the checksum to the end of a file. Does nothing if the file is too short.
void state_put_sum(uint8_t * file, size_t size);

#ifdef __cplusplus
}
#endif
