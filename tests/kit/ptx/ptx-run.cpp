// Blocks, warps and instructions.
//
// Lanes of a warp that are at the same instruction form a fragment. The fragment that is farthest
// behind runs, until it meets another one and merges with it, or branches, or needs lanes that are
// elsewhere. This makes lanes that separated at a branch meet again where their paths join.

#include "kit/ptx/ptx-execute.h"

#include <algorithm>
#include <climits>

namespace ptx {

namespace {

class block_runner {
  public:
    block_runner(const kernel & k, extent grid, extent block, const char * args, memory & mem,
            mma_order order, counts * n)
        : k_(k), grid_(grid), block_(block), mem_(mem), executor_(k, args, mem, order, n), n_(n) {
        const unsigned threads = block.x * block.y * block.z;
        warps_.resize((threads + WARP - 1) / WARP);
        for (size_t w = 0; w < warps_.size(); ++w) {
            warp & x = warps_[w];
            x.first = (int) w * WARP;
            x.regs.resize((size_t) k.units * WARP);
            x.local.resize((size_t) k.local_bytes * WARP);
            for (const constant & c : k.constants) {
                for (int l = 0; l < WARP; ++l) {
                    executor::set(x, c.where, c.wide, l, c.value);
                }
            }
        }
        defined_.resize(k.units);
        for (const constant & c : k.constants) {
            defined_[c.where] = ~0u;
        }
    }

    bool run(unsigned bx, unsigned by, unsigned bz) {
        at_[0] = bx;
        at_[1] = by;
        at_[2] = bz;
        mem_.begin_block();
        ++n_->blocks;
        for (warp & w : warps_) {
            begin(w);
        }
        for (;;) {
            for (warp & w : warps_) {
                if (w.live != 0 && !w.at_barrier && !run_warp(w)) {
                    return false;
                }
            }
            const size_t waiting = std::count_if(
                    warps_.begin(), warps_.end(), [](const warp & w) { return w.at_barrier; });
            if (waiting == 0) {
                return true;
            }
            if (!pass_barrier(waiting)) {
                return false;
            }
        }
    }

    const std::string & error() const {
        return error_;
    }

  private:
    void begin(warp & w) {
        const int threads = (int) (block_.x * block_.y * block_.z);
        const int n = std::min((int) WARP, threads - w.first);
        w.live = n == WARP ? ~0u : (1u << n) - 1;
        w.at_barrier = false;
        w.fragments.assign(1, { 0, w.live, false });
        w.defined = defined_;
        for (int l = 0; l < WARP; ++l) {
            w.copies[l].clear();
            w.group[l] = 0;
        }
        for (int s = 0; s < N_SPECIAL; ++s) {
            if (k_.special[s] >= 0) {
                w.defined[k_.special[s]] = ~0u;
                for (int l = 0; l < WARP; ++l) {
                    executor::set(w, k_.special[s], false, l, special_of(s, w.first + l));
                }
            }
        }
    }

    unsigned special_of(int s, int thread) const {
        const unsigned t = (unsigned) thread;
        const unsigned all[] = { t % block_.x, t / block_.x % block_.y, t / (block_.x * block_.y),
            block_.x, block_.y, block_.z, at_[0], at_[1], at_[2], grid_.x, grid_.y, grid_.z,
            t % WARP, t / WARP };
        return all[s];
    }

    //
    // Scheduling
    //

    bool fail(const warp & w, const instruction & i, int lane, const std::string & what) {
        error_ = k_.name + ", line " + std::to_string(i.line) + ": " + what + "; block (" +
                 std::to_string(at_[0]) + ", " + std::to_string(at_[1]) + ", " +
                 std::to_string(at_[2]) + "), thread " + std::to_string(w.first + lane);
        return false;
    }

    // Runs a warp until it ends or all of its lanes are at a barrier.
    bool run_warp(warp & w) {
        while (w.live != 0) {
            size_t next = w.fragments.size();
            for (size_t f = 0; f < w.fragments.size(); ++f) {
                if (!w.fragments[f].waits &&
                        (next == w.fragments.size() || w.fragments[f].pc < w.fragments[next].pc)) {
                    next = f;
                }
            }
            if (next == w.fragments.size()) { // every fragment needs another one
                const fragment & f = w.fragments[0];
                return fail(w, k_.code[f.pc], first_lane(f.mask),
                        "lanes are missing: only " + hex(f.mask) + " of " + hex(w.live) +
                                " are here");
            }
            const fragment now = w.fragments[next];
            w.fragments.erase(w.fragments.begin() + (long) next);
            if (!run_fragment(w, now.pc, now.mask)) {
                return false;
            }
            if (w.at_barrier) {
                return true;
            }
        }
        return true;
    }

    // Adds a fragment; lanes that are already at this instruction join it.
    static void put(warp & w, int pc, u32 mask, bool waits) {
        for (fragment & f : w.fragments) {
            if (f.pc == pc) {
                f.mask |= mask;
                f.waits = false; // now it may have all lanes
                return;
            }
        }
        w.fragments.push_back({ pc, mask, waits });
    }

    // The first instruction after pc at which another fragment is
    static int meeting(const warp & w, int pc) {
        int at = INT_MAX;
        for (const fragment & f : w.fragments) {
            if (f.pc > pc && f.pc < at) {
                at = f.pc;
            }
        }
        return at;
    }

    bool run_fragment(warp & w, int pc, u32 mask) {
        int stop = meeting(w, pc);
        for (;;) {
            if (pc >= stop) {
                put(w, pc, mask, false);
                return true;
            }
            if (pc >= (int) k_.code.size()) {
                return fail(w, k_.code.back(), first_lane(mask), "the end of the code is reached");
            }
            const instruction & i = k_.code[(size_t) pc];
            u32                 active = mask;
            if (i.guard >= 0) {
                if ((mask & ~w.defined[i.guard]) != 0 && (mem_.strict() || i.op == OP_bra)) {
                    return fail(w, i, first_lane(mask & ~w.defined[i.guard]),
                            "an undefined value is used");
                }
                const u32 p = w.regs[(size_t) i.guard * WARP];
                active &= i.negated ? ~p : p;
            }
            ++n_->instructions;
            n_->lanes += __builtin_popcount(active);

            switch (i.op) {
                case OP_bra: {
                    const u32 rest = mask & ~active;
                    if (active != 0 && rest != 0) {
                        put(w, (int) i.offset, active, false);
                        put(w, pc + 1, rest, false);
                        return true;
                    }
                    const bool back = active != 0 && i.offset <= pc;
                    pc = active != 0 ? (int) i.offset : pc + 1;
                    if (!w.fragments.empty() && (back || pc >= stop)) {
                        put(w, pc, mask, false); // others may be behind now
                        return true;
                    }
                    continue;
                }
                case OP_ret:
                    if (!end_lanes(w, i, active)) {
                        return false;
                    }
                    mask &= ~active;
                    if (mask == 0) {
                        return true;
                    }
                    break;
                case OP_barrier:
                    if (active != w.live) { // a barrier is for all lanes of a warp
                        put_waiting(w, pc, mask);
                        return true;
                    }
                    w.at_barrier = true;
                    w.barrier_pc = pc;
                    put(w, pc + 1, mask, false);
                    return true;
                case OP_shfl:
                case OP_vote:
                case OP_warp_barrier:
                case OP_mma:
                case OP_mma_f16:
                case OP_mma_bf16:
                case OP_mma_s8:
                case OP_ldmatrix:
                case OP_movmatrix:
                    if (active != w.live && !w.fragments.empty() && !all_here(w, i, active)) {
                        put_waiting(w, pc, mask);
                        return true;
                    }
                    if (!executor_.execute(w, i, active)) {
                        return fail(w, i, executor_.lane(), executor_.error());
                    }
                    break;
                default:
                    if (active != 0 && !executor_.execute(w, i, active)) {
                        return fail(w, i, executor_.lane(), executor_.error());
                    }
                    break;
            }
            ++pc;
        }
    }

    // Waits for lanes that can still come. Those that wait at the same place make one fragment.
    static void put_waiting(warp & w, int pc, u32 mask) {
        w.fragments.push_back({ pc, mask, true });
    }

    // True if all lanes that a shuffle names are active
    bool all_here(warp & w, const instruction & i, u32 active) {
        const int s = i.op == OP_shfl ? 3 : i.op == OP_vote ? 1 : i.op == OP_warp_barrier ? 0 : -1;
        if (s < 0 || (active & ~w.defined[i.src[s]]) != 0) {
            return false;
        }
        const u32 * masks = &w.regs[(size_t) i.src[s] * WARP];
        for (int l = 0; l < WARP; ++l) {
            if ((active >> l & 1) != 0 && (masks[l] & w.live & ~active) != 0) {
                return false;
            }
        }
        return true;
    }

    bool end_lanes(warp & w, const instruction & i, u32 active) {
        for (int l = 0; l < WARP; ++l) {
            if ((active >> l & 1) != 0 && !w.copies[l].empty()) {
                return fail(w, i, l, "a thread ends with copies pending");
            }
        }
        w.live &= ~active;
        for (fragment & f : w.fragments) {
            f.waits = false; // perhaps it waited for these lanes
        }
        return true;
    }

    bool pass_barrier(size_t waiting) {
        const warp * one = nullptr;
        for (const warp & w : warps_) {
            if (w.at_barrier) {
                one = one == nullptr ? &w : one;
                if (w.barrier_pc != one->barrier_pc || w.live != full(w)) {
                    return fail(w, k_.code[(size_t) w.barrier_pc], first_lane(w.live),
                            "barrier not reached by all threads");
                }
            }
        }
        if (waiting != warps_.size()) {
            return fail(*one, k_.code[(size_t) one->barrier_pc], 0,
                    "barrier not reached by all threads: " + std::to_string(waiting) + " of " +
                            std::to_string(warps_.size()) + " warps wait, the others have ended");
        }
        for (warp & w : warps_) {
            w.at_barrier = false;
        }
        mem_.barrier();
        ++n_->barriers;
        return true;
    }

    u32 full(const warp & w) const {
        const int n = (int) (block_.x * block_.y * block_.z) - w.first;
        return n >= WARP ? ~0u : (1u << n) - 1;
    }

    const kernel &    k_;
    extent            grid_, block_;
    memory &          mem_;
    executor          executor_;
    counts *          n_;
    std::vector<warp> warps_;
    std::vector<u32>  defined_; // of a warp before its first instruction
    unsigned          at_[3] = {};
    std::string       error_;
};

} // namespace

std::string launch(const kernel & k, extent grid, extent block, const void * args,
        size_t args_bytes, memory & mem, mma_order order, counts * n, uint32_t dynamic) {
    const unsigned threads = block.x * block.y * block.z;
    if (args_bytes != k.param_bytes) {
        return k.name + " takes " + std::to_string(k.param_bytes) + " bytes of arguments; got " +
               std::to_string(args_bytes);
    }
    if (threads == 0 || threads > k.max_threads || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
            grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) {
        return k.name + ": a GPU cannot launch this grid or block";
    }
    ++n->launches;
    mem.set_shared(k, dynamic);
    mem.begin_launch();
    block_runner runner(k, grid, block, (const char *) args, mem, order, n);
    for (unsigned z = 0; z < grid.z; ++z) {
        for (unsigned y = 0; y < grid.y; ++y) {
            for (unsigned x = 0; x < grid.x; ++x) {
                if (!runner.run(x, y, z)) {
                    return runner.error();
                }
            }
        }
    }
    return "";
}

} // namespace ptx
