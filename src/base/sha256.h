#pragma once

// SHA-256 (FIPS 180-4), as the bytes come.

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t  block[64]; // the last n_bytes mod 64 bytes, not hashed yet
};

void sha256_begin(struct sha256 * s);
void sha256_add(struct sha256 * s, const void * data, size_t size);
void sha256_end(
        const struct sha256 * s, uint8_t digest[32]);   // leaves s as it is: more can be added
void sha256_hex(const struct sha256 * s, char hex[65]); // the same, in hexadecimal
