// The memory of the devices. Every byte has a shadow: not allocated, undefined, or defined.

#include "memory.h"

#include <cstring>
#include <map>
#include <sys/mman.h>

namespace device {

namespace {

enum { MAX_DEVICES = 2, GAP = 256 };
enum : uint8_t { NOT_ALLOCATED, UNDEFINED, DEFINED };
constexpr uint64_t SPACE = (uint64_t) 1 << 34; // addresses of a device

char *    base;   // of device 0; the others follow, then variables of modules
uint8_t * shadow; // of base

std::map<uint64_t, uint64_t> blocks[MAX_DEVICES + 1]; // offset → size
uint64_t                     in_use[MAX_DEVICES + 1];

void * reserve(uint64_t size) {
    void * p = mmap(nullptr, size, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

} // namespace

void * allocate(int where, uint64_t size, uint64_t limit) {
    if (base == nullptr) {
        base = (char *) reserve(SPACE * (MAX_DEVICES + 1));
        shadow = (uint8_t *) reserve(SPACE * (MAX_DEVICES + 1));
    }
    size = size == 0 ? 1 : size;
    if (base == nullptr || shadow == nullptr || in_use[where] + size > limit) {
        return nullptr;
    }
    uint64_t at = GAP; // the first hole
    for (const auto & one : blocks[where]) {
        if (one.first >= at + size + GAP) {
            break;
        }
        at = (one.first + one.second + 2 * GAP - 1) / GAP * GAP;
    }
    if (at + size + GAP > SPACE) {
        return nullptr;
    }
    blocks[where][at] = size;
    in_use[where] += size;
    memset(shadow + where * SPACE + at, UNDEFINED, size);
    memset(base + where * SPACE + at, 0xFF, size);
    return base + where * SPACE + at;
}

bool release(void * p) {
    const uint64_t at = (uint64_t) ((char *) p - base);
    const int      where = (int) (at / SPACE);
    const auto     found = where <= MAX_DEVICES ? blocks[where].find(at % SPACE) : blocks[0].end();
    if (where > MAX_DEVICES || found == blocks[where].end()) {
        return false;
    }
    memset(shadow + at, NOT_ALLOCATED, found->second);
    in_use[where] -= found->second;
    blocks[where].erase(found);
    return true;
}

uint64_t memory_in_use(int where) {
    return in_use[where];
}

int device_of(const void * p) {
    const uint64_t at = (uint64_t) ((const char *) p - base);
    return base != nullptr && (const char *) p >= base && at < SPACE * (MAX_DEVICES + 1)
                   ? (int) (at / SPACE)
                   : -1;
}

bool is_allocated(const void * p, uint64_t size) {
    return device_of(p) >= 0 &&
           memchr(shadow + ((const char *) p - base), NOT_ALLOCATED, size) == nullptr;
}

bool is_defined(const void * p, uint64_t size) {
    const uint8_t * s = shadow + ((const char *) p - base);
    for (uint64_t i = 0; i < size; ++i) {
        if (s[i] != DEFINED) {
            return false;
        }
    }
    return true;
}

void define(void * p, uint64_t size, bool defined) {
    memset(shadow + ((char *) p - base), defined ? DEFINED : UNDEFINED, size);
}

void move(void * to, const void * from, uint64_t size) {
    memmove(to, from, size);
    memmove(shadow + ((char *) to - base), shadow + ((const char *) from - base), size);
}

char * kernel_memory::global(uint64_t address, unsigned bytes, bool write, int) {
    if (address % bytes != 0) {
        fail("misaligned", address, bytes, "0");
        return nullptr;
    }
    char * const p = (char *) (uintptr_t) address;
    const int    where = device_of(p);
    undefined_ = 0;
    if (where < 0 || !is_allocated(p, bytes)) {
        fail("out of bounds of every allocation", address, bytes, "0");
        return nullptr;
    }
    if (where != device && where != VARIABLES && !peers) {
        fail("in the memory of another device", address, bytes, "0");
        return nullptr;
    }
    const uint64_t at = (uint64_t) (p - base);
    if (write) {
        memset(shadow + at, DEFINED, bytes);
        return p;
    }
    for (unsigned i = 0; i < bytes; ++i) {
        undefined_ |= (unsigned) (shadow[at + i] != DEFINED) << i / 4;
    }
    return p;
}

void kernel_memory::undefine_global(uint64_t address, unsigned bytes) {
    define((void *) (uintptr_t) address, bytes, false);
}

} // namespace device
