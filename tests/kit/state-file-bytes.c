#include "kit/state-file-bytes.h"

#include "base/hash.h"

#include <string.h>

const char * const state_models[STATE_N_MODELS] = { "delta_net_neg", "delta_net_hybrid", "retnet",
    "xlstm" };

void state_put_sum(uint8_t * file, size_t size) {
    if (size < STATE_SUM_BYTES) {
        return;
    }
    const uint64_t sum = hash_add(HASH_START, file, size - STATE_SUM_BYTES);
    memcpy(file + size - STATE_SUM_BYTES, &sum, STATE_SUM_BYTES);
}
