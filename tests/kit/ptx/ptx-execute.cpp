// One instruction, for all active lanes of a warp.

#include "kit/ptx/ptx-execute.h"

#include <climits>
#include <cmath>

namespace ptx {

namespace {

//
// Arithmetic of the GPU
//

inline f32 from_bits(u32 bits) {
    f32 x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
inline u32 bits_of(f32 x) {
    u32 bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

// Subnormal numbers become zero, with their sign.
inline f32 flush(f32 x) {
    const u32 bits = bits_of(x);
    return from_bits((bits & 0x7F800000u) != 0 ? bits : bits & 0x80000000u);
}

// a·b + c, rounded once. The product is exact in a double. The sum is rounded to odd, so that
// rounding it again to F32 gives the correctly rounded result.
inline f32 fuse(f32 a, f32 b, f32 c) {
    const f64 p = (f64) a * b, q = c;
    const f64 sum = p + q;
    const f64 back = sum - p;
    const f64 lost = (p - (sum - back)) + (q - back); // sum + lost = p + q exactly
    u64       bits;
    memcpy(&bits, &sum, sizeof(bits));
    u64 sign;
    memcpy(&sign, &lost, sizeof(sign));
    const bool inexact = lost != 0.0 && lost == lost;
    // one step in the direction of what was lost makes an even sum odd
    const u64 toward = ((sign ^ bits) >> 63) != 0 ? (u64) -1 : (u64) 1;
    bits += inexact && (bits & 1) == 0 ? toward : 0;
    f64 odd;
    memcpy(&odd, &bits, sizeof(odd));
    return (f32) odd;
}

// The number, if the other one is NaN
inline f32 larger(f32 a, f32 b) {
    return a != a ? b : b != b ? a : a > b ? a : b;
}

inline s32 to_s32(f32 x) {
    return x != x ? 0 : x >= 2147483648.0f ? INT_MAX : x <= -2147483648.0f ? INT_MIN : (s32) x;
}

//
// Registers
//

template <typename T> inline T * lanes(warp & w, int unit) {
    return (T *) (void *) &w.regs[(size_t) unit * WARP];
}

inline uint64_t get(warp & w, int unit, bool wide, int lane) {
    uint64_t value = 0;
    memcpy(&value, (char *) &w.regs[(size_t) unit * WARP] + lane * (wide ? 8 : 4), wide ? 8 : 4);
    return value;
}

template <typename D, typename F> void each(warp & w, const instruction & i, u32 active, F f) {
    D * d = lanes<D>(w, i.dst[0]);
    if (active == ~0u) {
        for (int l = 0; l < WARP; ++l) {
            d[l] = f(l);
        }
    } else {
        for (int l = 0; l < WARP; ++l) {
            if ((active >> l & 1) != 0) {
                d[l] = f(l);
            }
        }
    }
}

template <typename F> inline u32 mask_of(F f) {
    u32 bits = 0;
    for (int l = 0; l < WARP; ++l) {
        bits |= (u32) (bool) f(l) << l;
    }
    return bits;
}

inline void set_pred(warp & w, int unit, u32 active, u32 value) {
    u32 & p = w.regs[(size_t) unit * WARP];
    p = (p & ~active) | (value & active);
}

inline u32 pred(warp & w, const instruction & i, int source) {
    const u32 p = w.regs[(size_t) i.src[source] * WARP];
    return (i.negate >> source & 1) != 0 ? ~p : p;
}

// registers hold 16-bit numbers in 32 bits
template <typename T> struct stored {
    using type = T;
};
template <> struct stored<u16> {
    using type = u32;
};

inline void load_one(warp & w, const instruction & i, int e, int lane, const char * from) {
    uint64_t value = 0;
    memcpy(&value, from, i.bytes);
    if (i.sign) {
        const int unused = 64 - 8 * i.bytes;
        value = (uint64_t) ((int64_t) (value << unused) >> unused);
    }
    executor::set(w, i.dst[e], (i.wide >> e & 1) != 0, lane, value);
}

} // namespace

std::string hex(u32 x) {
    char text[16];
    snprintf(text, sizeof(text), "%08X", x);
    return text;
}

bool executor::execute(warp & w, const instruction & i, u32 active) {
    for (int s = 0; s < i.n_src; ++s) {
        const u32 missing = active & ~w.defined[i.src[s]];
        if (missing != 0) {
            return fail(first_lane(missing), "an undefined value is used");
        }
    }
    n_->doubles += i.op >= OP_add_f64 && i.op <= OP_fma_rn_f64;
    switch (i.op) {
#define IN(T, name, s) const auto * name##_ = lanes<stored<T>::type>(w, i.src[s]);
#define ALU1(id, text, to, A, ...)                        \
    case OP_##id: {                                       \
        IN(A, a, 0)                                       \
        each<stored<to>::type>(w, i, active, [=](int l) { \
            const auto a = a_[l];                         \
            return (stored<to>::type)(__VA_ARGS__);       \
        });                                               \
        break;                                            \
    }
#define ALU2(id, text, to, A, B, ...)                     \
    case OP_##id: {                                       \
        IN(A, a, 0)                                       \
        IN(B, b, 1)                                       \
        each<stored<to>::type>(w, i, active, [=](int l) { \
            const auto a = a_[l];                         \
            const auto b = b_[l];                         \
            return (stored<to>::type)(__VA_ARGS__);       \
        });                                               \
        break;                                            \
    }
#define ALU3(id, text, to, A, B, C, ...)                  \
    case OP_##id: {                                       \
        IN(A, a, 0)                                       \
        IN(B, b, 1)                                       \
        IN(C, c, 2)                                       \
        each<stored<to>::type>(w, i, active, [=](int l) { \
            const auto a = a_[l];                         \
            const auto b = b_[l];                         \
            const auto c = c_[l];                         \
            return (stored<to>::type)(__VA_ARGS__);       \
        });                                               \
        break;                                            \
    }
#define SETP(id, text, A, ...)                             \
    case OP_##id: {                                        \
        IN(A, a, 0)                                        \
        IN(A, b, 1)                                        \
        set_pred(w, i.dst[0], active, mask_of([=](int l) { \
            const auto a = a_[l];                          \
            const auto b = b_[l];                          \
            return __VA_ARGS__;                            \
        }));                                               \
        break;                                             \
    }
#define PRED(id, text, ...)                             \
    case OP_##id: {                                     \
        const u32 a = pred(w, i, 0), b = pred(w, i, 1); \
        set_pred(w, i.dst[0], active, __VA_ARGS__);     \
        break;                                          \
    }
#include "kit/ptx/ptx-alu.h"
#undef IN
#undef ALU1
#undef ALU2
#undef ALU3
#undef SETP
#undef PRED
        case OP_not_pred: set_pred(w, i.dst[0], active, ~pred(w, i, 0)); break;
        case OP_mov_pred: set_pred(w, i.dst[0], active, pred(w, i, 0)); break;
        case OP_selp_32: {
            const u32  p = pred(w, i, 2);
            const u32 *a = lanes<u32>(w, i.src[0]), *b = lanes<u32>(w, i.src[1]);
            each<u32>(w, i, active, [=](int l) { return (p >> l & 1) != 0 ? a[l] : b[l]; });
            break;
        }
        case OP_selp_64: {
            const u32  p = pred(w, i, 2);
            const u64 *a = lanes<u64>(w, i.src[0]), *b = lanes<u64>(w, i.src[1]);
            each<u64>(w, i, active, [=](int l) { return (p >> l & 1) != 0 ? a[l] : b[l]; });
            break;
        }
        case OP_pack: {
            const u32 *a = lanes<u32>(w, i.src[0]), *b = lanes<u32>(w, i.src[1]);
            each<u64>(w, i, active, [=](int l) { return (u64) b[l] << 32 | a[l]; });
            break;
        }
        case OP_unpack:
            for (int l = 0; l < WARP; ++l) {
                if ((active >> l & 1) != 0) {
                    const u64 x = get(w, i.src[0], true, l);
                    set(w, i.dst[0], false, l, x & 0xFFFFFFFF);
                    set(w, i.dst[1], false, l, x >> 32);
                }
            }
            break;
        case OP_ld_param:
            if (!load_param(w, i, active)) {
                return false;
            }
            break;
        case OP_ld_global:
        case OP_ld_shared:
        case OP_ld_generic:
        case OP_st_global:
        case OP_st_shared:
        case OP_st_generic: return access(w, i, active); // loads may leave registers undefined
        case OP_copy:
            if (!copy_begin(w, i, active)) {
                return false;
            }
            break;
        case OP_copy_commit:
            for (int l = 0; l < WARP; ++l) {
                w.group[l] += (int) (active >> l & 1);
            }
            break;
        case OP_copy_wait:
            if (!copy_wait(w, i, active)) {
                return false;
            }
            break;
        case OP_shfl:
            if (!shuffle(w, i, active)) {
                return false;
            }
            break;
        case OP_mma:
            if (!multiply(w, i, active)) {
                return false;
            }
            break;
        default: break; // OP_nop
    }
    for (int d = 0; d < i.n_dst; ++d) {
        w.defined[i.dst[d]] |= active;
    }
    return true;
}

bool executor::load_param(warp & w, const instruction & i, u32 active) {
    const uint64_t bytes = (uint64_t) i.n_dst * i.bytes;
    for (int l = 0; l < WARP; ++l) {
        if ((active >> l & 1) == 0) {
            continue;
        }
        const uint64_t at = get(w, i.src[0], true, l) + (uint64_t) i.offset;
        if (at % bytes != 0 || at + bytes > k_.param_bytes) {
            return fail(l, "a parameter is misaligned or out of bounds");
        }
        for (int e = 0; e < i.n_dst; ++e) {
            load_one(w, i, e, l, args_ + at + (size_t) e * i.bytes);
        }
    }
    return true;
}

bool executor::access(warp & w, const instruction & i, u32 active) {
    const bool     load = i.n_dst > 0;
    const int      n = load ? i.n_dst : i.n_src - 1;
    const unsigned bytes = (unsigned) n * i.bytes;
    const bool     wide_address = i.wide >> 7 != 0;
    const bool     in_shared = i.op == OP_ld_shared || i.op == OP_st_shared;
    const bool     generic = i.op == OP_ld_generic || i.op == OP_st_generic;
    u32            undefined[4] = {};
    sector_set     sectors;
    for (int l = 0; l < WARP; ++l) {
        if ((active >> l & 1) == 0) {
            continue;
        }
        const uint64_t at = get(w, i.src[0], wide_address, l) + (uint64_t) i.offset;
        const bool     window = generic && at >= SHARED_WINDOW;
        const uint64_t inside = window ? at - SHARED_WINDOW : at;
        const int      thread = w.first + l;
        char *         p = in_shared || window ? mem_.shared(inside, bytes, !load, thread)
                                               : mem_.global(inside, bytes, !load, thread);
        if (p == nullptr) {
            return fail(l, mem_.error());
        }
        if (in_shared || window) {
            n_->shared_bytes += bytes;
        } else {
            n_->global_bytes += bytes;
            sectors.add(at);
        }
        for (int e = 0; e < n; ++e) {
            if (load) {
                const unsigned words = i.bytes == 8 ? 3u << 2 * e : 1u << e * i.bytes / 4;
                undefined[e] |= (u32) ((mem_.undefined() & words) != 0) << l;
                load_one(w, i, e, l, p + e * i.bytes);
            } else {
                const uint64_t value = get(w, i.src[1 + e], (i.wide >> e & 1) != 0, l);
                memcpy(p + e * i.bytes, &value, i.bytes);
            }
        }
    }
    n_->sectors += sectors.n;
    n_->requests += sectors.n > 0;
    for (int e = 0; e < i.n_dst; ++e) {
        w.defined[i.dst[e]] = (w.defined[i.dst[e]] | active) & ~undefined[e];
    }
    return true;
}

bool executor::copy_begin(warp & w, const instruction & i, u32 active) {
    sector_set sectors;
    for (int l = 0; l < WARP; ++l) {
        if ((active >> l & 1) != 0) {
            const uint64_t to = get(w, i.src[0], false, l);
            const uint64_t from = get(w, i.src[1], true, l) + (uint64_t) i.offset;
            const uint64_t size = i.n_src == 3 ? get(w, i.src[2], false, l) : i.bytes;
            if (size != 0 && size != i.bytes) {
                return fail(l, "cp.async reads a part of its bytes, not all or none");
            }
            const bool read = size != 0;
            if (!mem_.copy_begin(to, from, i.bytes, read, w.first + l)) {
                return fail(l, mem_.error());
            }
            w.copies[l].push_back({ to, from, i.bytes, read, w.group[l] });
            n_->shared_bytes += i.bytes;
            if (read) {
                n_->global_bytes += i.bytes;
                sectors.add(from);
            }
        }
    }
    n_->sectors += sectors.n;
    n_->requests += sectors.n > 0;
    return true;
}

// Completes all but the last groups. A copy arrives as late as possible.
bool executor::copy_wait(warp & w, const instruction & i, u32 active) {
    for (int l = 0; l < WARP; ++l) {
        std::vector<copy> & list = w.copies[l];
        size_t              n = 0;
        for (; (active >> l & 1) != 0 && n < list.size() &&
                list[n].group < w.group[l] - (int) i.offset;
                ++n) {
            if (!mem_.copy_end(
                        list[n].to, list[n].from, list[n].bytes, list[n].read, w.first + l)) {
                return fail(l, mem_.error());
            }
        }
        list.erase(list.begin(), list.begin() + (long) n);
    }
    return true;
}

// d|p = a of another lane:  b: lane, distance or mask;  c: segments of lanes and the last lane
bool executor::shuffle(warp & w, const instruction & i, u32 active) {
    enum { BFLY, UP, DOWN, IDX };
    u32 result[WARP];
    u32 valid = 0;
    for (int l = 0; l < WARP; ++l) {
        if ((active >> l & 1) == 0) {
            continue;
        }
        const u32  mask = (u32) get(w, i.src[3], false, l);
        const u32  b = (u32) get(w, i.src[1], false, l) & 31;
        const u32  c = (u32) get(w, i.src[2], false, l);
        const int  segment = (int) (c >> 8 & 31), clamp = (int) (c & 31);
        const int  last = (l & segment) | (clamp & ~segment);
        const int  first = l & segment;
        int        from = i.offset == BFLY   ? (int) (l ^ b)
                          : i.offset == UP   ? l - (int) b
                          : i.offset == DOWN ? l + (int) b
                                             : (first | ((int) b & ~segment));
        const bool in = i.offset == UP ? from >= last : from <= last;
        from = in ? from : l;
        valid |= (u32) in << l;
        if ((mask & ~active) != 0 || (mask >> l & 1) == 0) {
            return fail(l, "lanes are missing: shuffle of " + hex(mask) + ", only " + hex(active) +
                                   " are here");
        }
        if ((mask >> from & 1) == 0) {
            return fail(l, "shuffle from lane " + std::to_string(from) + ", not in " + hex(mask));
        }
        result[l] = (u32) get(w, i.src[0], false, from);
    }
    for (int l = 0; l < WARP; ++l) {
        if ((active >> l & 1) != 0) {
            set(w, i.dst[0], false, l, result[l]);
        }
    }
    if (i.n_dst > 1) {
        set_pred(w, i.dst[1], active, valid);
    }
    return true;
}

bool executor::multiply(warp & w, const instruction & i, u32 active) {
    if (active != ~0u) {
        return fail(first_lane(active),
                "lanes are missing: mma with only " + hex(active) + " of all lanes");
    }
    ++n_->products;
    float c[4][WARP];
    for (int e = 0; e < 4; ++e) {
        memcpy(c[e], lanes<u32>(w, i.src[6 + e]), sizeof(c[e]));
    }
    mma_model::multiply([&](int l, int e) { return lanes<u32>(w, i.src[e])[l]; },
            [&](int l, int e) { return lanes<u32>(w, i.src[4 + e])[l]; },
            [&](int l, int e) -> float & { return c[e][l]; }, order_);
    for (int e = 0; e < 4; ++e) {
        memcpy(lanes<u32>(w, i.dst[e]), c[e], sizeof(c[e]));
    }
    return true;
}

} // namespace ptx
