#pragma once

// Hashes that are fast rather than secure; for a digest that nobody can forge, see base/sha256.h.

#include <stddef.h>
#include <stdint.h>

// FNV-1a, 64 bits: h ← (h ⊕ byte) · prime. Checksums in state files and score files, and the
// identity of a model file, are this hash. Start with HASH_START; data may be added in pieces.
#define HASH_START UINT64_C(0xcbf29ce484222325)

uint64_t hash_add(uint64_t hash, const void * data, size_t size);

// Mixes the bits of a number so that every bit of the result depends on every bit of x: the last
// step of splitmix64 (base/random.h). For hash tables, and for numbers that only have to look
// random.
static inline uint64_t hash_mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
