#include "state-file-bytes.h"

#include <string.h>

const char * const state_models[STATE_N_MODELS] = { "delta_net_neg", "delta_net_hybrid", "retnet",
    "xlstm" };

// FNV-1a, 64 bits
void state_put_sum(uint8_t * file, size_t size) {
    if (size < STATE_SUM_BYTES) {
        return;
    }
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size - STATE_SUM_BYTES; ++i) {
        sum = (sum ^ file[i]) * UINT64_C(0x100000001b3);
    }
    memcpy(file + size - STATE_SUM_BYTES, &sum, STATE_SUM_BYTES);
}
