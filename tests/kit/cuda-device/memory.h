#pragma once

// The memory of the devices, and that of the variables of modules, which all devices read.

#include "kit/ptx/ptx.h"

namespace device {

enum { VARIABLES = 2 }; // in the place of the number of a device

// NULL: more than `limit` bytes would be in use
void * allocate(int where, uint64_t size, uint64_t limit);
bool release(void * p); // false: not the beginning of an allocation

uint64_t memory_in_use(int where);
int device_of(const void * p); // -1: memory of the host
bool is_allocated(const void * p, uint64_t size);

// Of allocated bytes
bool is_defined(const void * p, uint64_t size);
void define(void * p, uint64_t size, bool defined);
void move(void * to, const void * from, uint64_t size); // with what is defined

// As a kernel sees it
class kernel_memory : public ptx::memory {
  public:
    kernel_memory(int number, bool peer_access)
        : memory(false), device(number), peers(peer_access) {}

    char * global(uint64_t address, unsigned bytes, bool write, int thread) override;
    void undefine_global(uint64_t address, unsigned bytes) override;

  private:
    int  device;
    bool peers;
};

} // namespace device
