#pragma once

// A warp, and the execution of one instruction by its active lanes.

#include "kit/ptx/ptx-opcodes.h"
#include "kit/ptx/ptx.h"

#include <cstring>

namespace ptx {

struct fragment {
    int  pc;
    u32  mask;
    bool waits; // at an instruction that needs other lanes
};

struct copy {
    uint64_t to, from;
    unsigned bytes;
    bool     read; // false: writes zeros
    int      group;
};

struct warp {
    int                   first; // thread of lane 0
    std::vector<fragment> fragments;
    u32                   live = 0;
    bool                  at_barrier = false;
    int                   barrier_pc = 0;

    std::vector<u32>  regs;    // [units][32 lanes]
    std::vector<u32>  defined; // lanes, per unit
    std::vector<char> local;   // [32 lanes][bytes]
    std::vector<copy> copies[WARP];
    int               group[WARP];
};

class executor {
  public:
    executor(const kernel & k, const char * args, memory & mem, mma_order order, counts * n)
        : k_(k), args_(args), mem_(mem), order_(order), n_(n) {}

    // Returns false if lane() made an error().
    bool execute(warp & w, const instruction & i, u32 active);

    const std::string & error() const {
        return error_;
    }
    int lane() const {
        return lane_;
    }

    static void set(warp & w, int unit, bool wide, int lane, uint64_t value) {
        memcpy((char *) &w.regs[(size_t) unit * WARP] + lane * (wide ? 8 : 4), &value,
                wide ? 8 : 4);
    }

  private:
    bool fail(int lane, const std::string & what) {
        lane_ = lane;
        error_ = what;
        return false;
    }

    bool access(warp & w, const instruction & i, u32 active);
    bool load_param(warp & w, const instruction & i, u32 active);
    char * own(warp & w, int lane, uint64_t at, unsigned bytes);
    char * in_shared(const instruction & i, uint64_t at, unsigned bytes, int thread);
    bool needs_defined(const warp & w, const instruction & i, u32 active) const;
    static u32 undefined_choice(const warp & w, const instruction & i, u32 active, u32 p);
    bool update(warp & w, const instruction & i, u32 active);
    void vote_of(warp & w, const instruction & i, u32 active);
    bool matrix(warp & w, const instruction & i, u32 active);
    bool shuffle(warp & w, const instruction & i, u32 active, u32 * missing);
    bool multiply(warp & w, const instruction & i, u32 active);
    bool copy_begin(warp & w, const instruction & i, u32 active);
    bool copy_wait(warp & w, const instruction & i, u32 active);

    const kernel & k_;
    const char *   args_;
    memory &       mem_;
    mma_order      order_;
    counts *       n_;
    int            lane_ = 0;
    std::string    error_;
};

// The sectors of 32 bytes of global memory that one instruction of a warp touches
struct sector_set {
    uint64_t list[WARP];
    int      n = 0;

    void add(uint64_t address) { // an access never crosses a sector
        const uint64_t sector = address / 32;
        for (int i = n - 1; i >= 0; --i) {
            if (list[i] == sector) {
                return;
            }
        }
        list[n++] = sector;
    }
};

inline int first_lane(u32 mask) {
    return mask == 0 ? 0 : __builtin_ctz(mask);
}

std::string hex(u32 x);

} // namespace ptx
