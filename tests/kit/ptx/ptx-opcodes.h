#pragma once

// The operations of the interpreter: those of ptx-alu.h, and those below, which are more than a
// function of registers.

#include <cstdint>

namespace ptx {

using u16 = uint16_t; // kept in a register of 32 bits
using u32 = uint32_t;
using s32 = int32_t;
using f32 = float;
using u64 = uint64_t;
using s64 = int64_t;
using f64 = double;

enum opcode : uint16_t {
#define ALU1(id, ...) OP_##id,
#define ALU2          ALU1
#define ALU3          ALU1
#define SETP          ALU1
#define PRED          ALU1
#include "kit/ptx/ptx-alu.h"
#undef ALU1
#undef ALU2
#undef ALU3
#undef SETP
#undef PRED
    OP_not_pred,
    OP_mov_pred,
    OP_selp_32,
    OP_selp_64,
    OP_pack,   // two 32-bit registers to one of 64
    OP_unpack, // the reverse
    OP_bra,
    OP_ret,
    OP_ld_param,
    OP_ld_global,
    OP_ld_shared,
    OP_ld_generic,
    OP_st_global,
    OP_st_shared,
    OP_st_generic,
    OP_copy,        // cp.async
    OP_copy_commit, // cp.async.commit_group
    OP_copy_wait,   // cp.async.wait_group
    OP_barrier,
    OP_shfl,
    OP_mma,
    OP_nop,
};

// Addresses of the generic space from here on are in shared memory.
constexpr uint64_t SHARED_WINDOW = 0x7F00000000000000;

} // namespace ptx
