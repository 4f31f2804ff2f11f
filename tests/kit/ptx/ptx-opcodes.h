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
#define ALU4          ALU1
#define SETP          ALU1
#define PRED          ALU1
#include "kit/ptx/ptx-alu.h"
#undef ALU1
#undef ALU2
#undef ALU3
#undef ALU4
#undef SETP
#undef PRED
    OP_not_pred,
    OP_mov_pred,
    OP_selp_32,
    OP_selp_64,
    OP_pack,      // two 32-bit registers to one of 64
    OP_unpack,    // the reverse
    OP_pack_16,   // two 16-bit registers to one of 32
    OP_unpack_16, // the reverse
    OP_bra,
    OP_ret,
    OP_trap, // also a call: only assertions call functions
    OP_ld_param,
    OP_ld_global,
    OP_ld_shared,
    OP_ld_generic, // local memory too
    OP_st_global,
    OP_st_shared,
    OP_st_generic,
    OP_atom,        // read, compute, write
    OP_copy,        // cp.async
    OP_copy_commit, // cp.async.commit_group
    OP_copy_wait,   // cp.async.wait_group
    OP_barrier,
    OP_nop,
    // these need other lanes
    OP_shfl,
    OP_vote,
    OP_warp_barrier,
    OP_mma, // of TF32
    OP_mma_f16,
    OP_mma_bf16,
    OP_mma_s8,
    OP_ldmatrix,
    OP_movmatrix,
};

// Addresses of the generic space from here on are in shared memory, and in the thread's own.
constexpr uint64_t SHARED_WINDOW = 0x7F00000000000000;
constexpr uint64_t LOCAL_WINDOW = 0x7E00000000000000;

enum vote { VOTE_ALL, VOTE_ANY, VOTE_BALLOT, VOTE_SUM };
enum atom { ATOM_ADD, ATOM_MAX, ATOM_MIN, ATOM_EXCH, ATOM_OR };

} // namespace ptx
