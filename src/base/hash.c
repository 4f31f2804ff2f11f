#include "base/hash.h"

uint64_t hash_add(uint64_t hash, const void * data, size_t size) {
    const uint8_t * p = data;
    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}
