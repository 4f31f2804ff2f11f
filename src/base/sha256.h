#pragma once

// SHA-256 (FIPS 180-4) of data that is added in pieces.

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t  block[64]; // the last n_bytes % 64 bytes, not hashed yet
};

void sha256_begin(struct sha256 * s);
void sha256_add(struct sha256 * s, const void * data, size_t size);

// Computes the digest of the data so far. More data may be added afterwards.
void sha256_end(const struct sha256 * s, uint8_t digest[32]);
void sha256_hex(const struct sha256 * s, char hex[65]); // the digest in hexadecimal
