#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

// clang-format off
static const uint32_t K[64] = { // fractional parts of the cube roots of the first 64 primes
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
// clang-format on

static uint32_t rotate(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void compress(uint32_t h[8], const uint8_t * block) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
        w[i] = (uint32_t) block[4 * i] << 24 | (uint32_t) block[4 * i + 1] << 16 |
               (uint32_t) block[4 * i + 2] << 8 | block[4 * i + 3];
    }
    for (int i = 16; i < 64; ++i) {
        const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], x = h[7];
    for (int i = 0; i < 64; ++i) {
        const uint32_t t1 = x + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                            ((e & f) ^ (~e & g)) + K[i] + w[i];
        const uint32_t t2 =
                (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        x = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
    h[5] += f;
    h[6] += g;
    h[7] += x;
}

void sha256_begin(struct sha256 * s) {
    *s = (struct sha256) {
        .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                0x5be0cd19 },
    };
}

void sha256_add(struct sha256 * s, const void * data, size_t size) {
    const uint8_t * p = data;
    size_t          used = s->n_bytes % 64;
    s->n_bytes += size;
    if (used > 0) {
        const size_t n = size < 64 - used ? size : 64 - used;
        if (n > 0) {
            memcpy(s->block + used, p, n);
        }
        if (used + n < 64) {
            return;
        }
        compress(s->h, s->block);
        p += n;
        size -= n;
    }
    for (; size >= 64; p += 64, size -= 64) {
        compress(s->h, p);
    }
    if (size > 0) {
        memcpy(s->block, p, size);
    }
}

void sha256_end(const struct sha256 * s, uint8_t digest[32]) {
    // the message is padded with a 1 bit, zeros, and its length in bits
    struct sha256  t = *s;
    const uint64_t n = s->n_bytes * 8;
    const size_t   used = s->n_bytes % 64;
    uint8_t        tail[72] = { 0x80 };
    const size_t   zeros = (used < 56 ? 56 : 120) - used;
    for (int i = 0; i < 8; ++i) {
        tail[zeros + (size_t) i] = (uint8_t) (n >> (56 - 8 * i));
    }
    sha256_add(&t, tail, zeros + 8);
    for (int i = 0; i < 32; ++i) {
        digest[i] = (uint8_t) (t.h[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void sha256_hex(const struct sha256 * s, char hex[65]) {
    uint8_t digest[32];
    sha256_end(s, digest);
    for (int i = 0; i < 32; ++i) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
}
