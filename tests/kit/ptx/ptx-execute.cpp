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

inline u32 to_u32(f32 x) {
    return !(x > 0.0f) ? 0 : x >= 4294967296.0f ? ~0u : (u32) x;
}

inline f32 of_half(u32 bits) {
    const u16 low = (u16) bits;
    _Float16  h;
    memcpy(&h, &low, sizeof(h));
    return (f32) h;
}
inline u32 to_half(f32 x) {
    const _Float16 h = (_Float16) x;
    u16            bits;
    memcpy(&bits, &h, sizeof(bits));
    return bits;
}
inline u32 to_bf16(f32 x) { // to nearest, ties to even
    const u32 bits = bits_of(x);
    return x != x ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
template <typename F> inline u32 both(u32 a, u32 b, u32 c, F f) {
    return to_half(f(of_half(a), of_half(b), of_half(c))) |
           to_half(f(of_half(a >> 16), of_half(b >> 16), of_half(c >> 16))) << 16;
}

inline f32 add_toward_zero(f32 a, f32 b) {
    const f64 exact = (f64) a + b; // rounded once more only if the exponents are far apart
    const f32 sum = (f32) exact;
    return flush(fabs((f64) sum) > fabs(exact) ? nextafterf(sum, 0.0f) : sum);
}

// Byte i of the result is byte c_i of (b, a), or its sign
inline u32 permute(u32 a, u32 b, u32 c) {
    const u64 all = (u64) b << 32 | a;
    u32       result = 0;
    for (int i = 0; i < 4; ++i) {
        const u32 which = c >> 4 * i & 15;
        const u32 byte = (u32) (all >> 8 * (which & 7)) & 0xFF;
        result |= (which & 8) != 0 ? ((byte & 0x80) != 0 ? 0xFFu : 0u) << 8 * i : byte << 8 * i;
    }
    return result;
}
inline s32 dot_4(u32 a, u32 b, s32 c) {
    for (int i = 0; i < 4; ++i) {
        c = (s32) ((u32) c + (u32) ((int8_t) (a >> 8 * i) * (int8_t) (b >> 8 * i)));
    }
    return c;
}
// The last `length` bits of a replace those of b from `at` on
inline u64 insert(u64 a, u64 b, u32 at, u32 length, u32 bits) {
    at &= 0xFF;
    length &= 0xFF;
    if (at >= bits || length == 0) {
        return b;
    }
    const u64 mask = (length >= 64 ? ~(u64) 0 : ((u64) 1 << length) - 1) << at;
    return (b & ~mask) | (a << at & mask);
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
    u32 missing = 0; // lanes with an undefined source
    for (int s = 0; s < i.n_src; ++s) {
        missing |= active & ~w.defined[i.src[s]];
    }
    if (missing != 0 && (mem_.strict() || needs_defined(w, i, active))) {
        return fail(first_lane(missing), "an undefined value is used");
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
#define ALU4(id, text, to, A, B, C, D, ...)               \
    case OP_##id: {                                       \
        IN(A, a, 0)                                       \
        IN(B, b, 1)                                       \
        IN(C, c, 2)                                       \
        IN(D, d, 3)                                       \
        each<stored<to>::type>(w, i, active, [=](int l) { \
            const auto a = a_[l];                         \
            const auto b = b_[l];                         \
            const auto c = c_[l];                         \
            const auto d = d_[l];                         \
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
#undef ALU4
#undef SETP
#undef PRED
        case OP_not_pred: set_pred(w, i.dst[0], active, ~pred(w, i, 0)); break;
        case OP_mov_pred: set_pred(w, i.dst[0], active, pred(w, i, 0)); break;
        case OP_selp_32: {
            const u32  p = pred(w, i, 2);
            const u32 *a = lanes<u32>(w, i.src[0]), *b = lanes<u32>(w, i.src[1]);
            each<u32>(w, i, active, [=](int l) { return (p >> l & 1) != 0 ? a[l] : b[l]; });
            missing = undefined_choice(w, i, active, p);
            break;
        }
        case OP_selp_64: {
            const u32  p = pred(w, i, 2);
            const u64 *a = lanes<u64>(w, i.src[0]), *b = lanes<u64>(w, i.src[1]);
            each<u64>(w, i, active, [=](int l) { return (p >> l & 1) != 0 ? a[l] : b[l]; });
            missing = undefined_choice(w, i, active, p);
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
        case OP_pack_16: {
            const u32 *a = lanes<u32>(w, i.src[0]), *b = lanes<u32>(w, i.src[1]);
            each<u32>(w, i, active, [=](int l) { return b[l] << 16 | (a[l] & 0xFFFF); });
            break;
        }
        case OP_unpack_16:
            for (int l = 0; l < WARP; ++l) {
                if ((active >> l & 1) != 0) {
                    const u64 x = get(w, i.src[0], false, l);
                    set(w, i.dst[0], false, l, x & 0xFFFF);
                    set(w, i.dst[1], false, l, x >> 16);
                }
            }
            break;
        case OP_trap: return fail(first_lane(active), "the kernel stops: it is not meant to run");
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
        case OP_atom: return update(w, i, active);
        case OP_vote: vote_of(w, i, active); break;
        case OP_mma_f16:
        case OP_mma_bf16:
        case OP_mma_s8:
        case OP_ldmatrix:
        case OP_movmatrix: return matrix(w, i, active);
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
            if (!shuffle(w, i, active, &missing)) {
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
        w.defined[i.dst[d]] = (w.defined[i.dst[d]] | active) & ~missing;
    }
    return true;
}

// What may not depend on an undefined value: an address, and which lanes take part. Parts of a
// product and of a stored vector may.
bool executor::needs_defined(const warp & w, const instruction & i, u32 active) const {
    const auto bad = [&](int s) { return (active & ~w.defined[i.src[s]]) != 0; };
    switch (i.op) {
        case OP_ld_param:
        case OP_ld_global:
        case OP_ld_shared:
        case OP_ld_generic:
        case OP_st_global:
        case OP_st_shared:
        case OP_st_generic:
        case OP_ldmatrix: return bad(0);
        case OP_copy: return true;
        case OP_atom: return true;
        case OP_shfl: return bad(1) || bad(2) || bad(3);
        case OP_vote: return true;
        case OP_warp_barrier: return true;
        default: return false;
    }
}

// Lanes of a selp whose condition or chosen source is undefined
u32 executor::undefined_choice(const warp & w, const instruction & i, u32 active, u32 p) {
    return active &
           (~w.defined[i.src[2]] | (p & ~w.defined[i.src[0]]) | (~p & ~w.defined[i.src[1]]));
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
        const bool     local = generic && !window && at >= LOCAL_WINDOW;
        const uint64_t inside = window ? at - SHARED_WINDOW : at;
        const int      thread = w.first + l;
        char *         p = in_shared || window ? mem_.shared(inside, bytes, !load, thread)
                           : local             ? own(w, l, at - LOCAL_WINDOW, bytes)
                                               : mem_.global(inside, bytes, !load, thread);
        if (p == nullptr) {
            return fail(l, local ? "out of bounds of local memory" : mem_.error());
        }
        const unsigned nothing = load && !local ? mem_.undefined() : 0;
        if (local) {
            ; // like a register
        } else if (in_shared || window) {
            n_->shared_bytes += bytes;
        } else {
            n_->global_bytes += bytes;
            sectors.add(at);
        }
        for (int e = 0; e < n; ++e) {
            if (load) {
                const unsigned words = i.bytes == 8 ? 3u << 2 * e : 1u << e * i.bytes / 4;
                undefined[e] |= (u32) ((nothing & words) != 0) << l;
                load_one(w, i, e, l, p + e * i.bytes);
            } else {
                const uint64_t value = get(w, i.src[1 + e], (i.wide >> e & 1) != 0, l);
                memcpy(p + e * i.bytes, &value, i.bytes);
                if ((w.defined[i.src[1 + e]] >> l & 1) == 0 && !local) {
                    const uint64_t where = inside + (uint64_t) e * i.bytes;
                    if (in_shared || window) {
                        mem_.undefine_shared(where, i.bytes);
                    } else {
                        mem_.undefine_global(where, i.bytes);
                    }
                }
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

// Local memory of a lane
char * executor::own(warp & w, int lane, uint64_t at, unsigned bytes) {
    if (at % bytes != 0 || at + bytes > k_.local_bytes) {
        return nullptr;
    }
    return &w.local[(size_t) lane * k_.local_bytes + at];
}

// Bytes of shared memory, by an address in it or in the generic space
char * executor::in_shared(const instruction & i, uint64_t at, unsigned bytes, int thread) {
    return mem_.shared((i.wide & 1) != 0 ? at : at - SHARED_WINDOW, bytes, false, thread);
}

// atom and red: lanes one after another
bool executor::update(warp & w, const instruction & i, u32 active) {
    for (int l = 0; l < WARP; ++l) {
        if ((active >> l & 1) == 0) {
            continue;
        }
        const uint64_t at = get(w, i.src[0], i.wide >> 7 != 0, l) + (uint64_t) i.offset;
        const bool     shared = (i.wide & 1) != 0 || at >= SHARED_WINDOW;
        const uint64_t inside = at >= SHARED_WINDOW ? at - SHARED_WINDOW : at;
        const int      thread = w.first + l;
        const bool     there = shared ? mem_.shared(inside, 4, false, thread) != nullptr
                                      : mem_.global(inside, 4, false, thread) != nullptr;
        if (!there || mem_.undefined() != 0) {
            return fail(l, there ? "an undefined value is used" : mem_.error());
        }
        char * p = shared ? mem_.shared(inside, 4, true, thread)
                          : mem_.global(inside, 4, true, thread);
        if (p == nullptr) {
            return fail(l, mem_.error());
        }
        u32 old;
        memcpy(&old, p, 4);
        const u32  b = (u32) get(w, i.src[1], false, l);
        const bool more = i.negate != 0 ? from_bits(b) > from_bits(old)
                          : i.sign      ? (s32) b > (s32) old
                                        : b > old;
        u32        now = b;
        switch (i.wide >> 1 & 7) {
            case ATOM_ADD:
                now = i.negate != 0 ? bits_of(from_bits(old) + from_bits(b)) : old + b;
                break;
            case ATOM_MAX: now = more ? b : old; break;
            case ATOM_MIN: now = more ? old : b; break;
            case ATOM_OR: now = old | b; break;
            default: break;
        }
        memcpy(p, &now, 4);
        if (i.n_dst > 0) {
            set(w, i.dst[0], false, l, old);
            w.defined[i.dst[0]] |= 1u << l;
        }
    }
    return true;
}

void executor::vote_of(warp & w, const instruction & i, u32 active) {
    if (i.offset == VOTE_SUM) {
        u32 sum = 0;
        for (int l = 0; l < WARP; ++l) {
            sum += (active >> l & 1) != 0 ? (u32) get(w, i.src[0], false, l) : 0;
        }
        each<u32>(w, i, active, [=](int) { return sum; });
        return;
    }
    const u32 yes = pred(w, i, 0) & active;
    if (i.offset == VOTE_BALLOT) {
        each<u32>(w, i, active, [=](int) { return yes; });
    } else {
        set_pred(w, i.dst[0], active, (i.offset == VOTE_ALL ? yes == active : yes != 0) ? ~0u : 0);
    }
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
bool executor::shuffle(warp & w, const instruction & i, u32 active, u32 * missing) {
    enum { BFLY, UP, DOWN, IDX };
    const u32 defined = w.defined[i.src[0]];
    u32       result[WARP];
    *missing = 0;
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
        *missing |= (~defined >> from & 1) << l;
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

// Matrices in registers: lane l has numbers of row l/4 and columns 2·(l mod 4), + 1; a register
// has two of 16 bits or four of 8. Row 8 and those after it, and the second half of the columns of
// a, have registers of their own.
//
//     a: rows i, columns k     b: columns k, rows j     c, d: rows i, columns j
bool executor::matrix(warp & w, const instruction & i, u32 active) {
    if (active != ~0u) {
        return fail(first_lane(active),
                "lanes are missing: a matrix with only " + hex(active) + " of all lanes");
    }
    if (i.op == OP_movmatrix) {
        u16 m[8][8];
        for (int l = 0; l < WARP; ++l) {
            memcpy(&m[l / 4][l % 4 * 2], &lanes<u32>(w, i.src[0])[l], 4);
        }
        for (int l = 0; l < WARP; ++l) {
            lanes<u32>(w, i.dst[0])[l] = m[l % 4 * 2][l / 4] | (u32) m[l % 4 * 2 + 1][l / 4] << 16;
        }
        w.defined[i.dst[0]] = w.defined[i.src[0]] == ~0u ? ~0u : 0;
        return true;
    }
    if (i.op == OP_ldmatrix) {
        u32 result[4][WARP], undefined[4] = {};
        for (int m = 0; m < i.n_dst; ++m) {
            u16 rows[8][8];
            u32 bad[8];
            for (int r = 0; r < 8; ++r) {
                const int      lane = m * 8 + r;
                const uint64_t at = get(w, i.src[0], i.wide >> 7 != 0, lane) + (uint64_t) i.offset;
                const char *   p = in_shared(i, at, 16, w.first + lane);
                if (p == nullptr) {
                    return fail(lane, mem_.error());
                }
                memcpy(rows[r], p, 16);
                bad[r] = mem_.undefined();
            }
            for (int l = 0; l < WARP; ++l) {
                const int a = l / 4, b = l % 4 * 2;
                result[m][l] = i.sign ? rows[b][a] | (u32) rows[b + 1][a] << 16
                                      : rows[a][b] | (u32) rows[a][b + 1] << 16;
                const u32 lost = i.sign ? (bad[b] | bad[b + 1]) >> a / 2 : bad[a] >> b / 2;
                undefined[m] |= (lost & 1) << l;
            }
        }
        for (int m = 0; m < i.n_dst; ++m) {
            memcpy(lanes<u32>(w, i.dst[m]), result[m], sizeof(result[m]));
            w.defined[i.dst[m]] = ~undefined[m];
        }
        return true;
    }

    ++n_->products;
    const bool bytes = i.op == OP_mma_s8;
    const int  n_c = i.n_dst;                            // registers of c
    const int  n_b = (i.n_src - n_c) / 3, n_a = 2 * n_b; // of b and a
    const int  each_reg = bytes ? 4 : 2;
    float      a[16][32], b[8][32];
    u32        bad_a = 0, bad_b = 0; // rows with undefined numbers
    const auto number = [&](u32 reg, int x) {
        return bytes                ? (float) (int8_t) (reg >> 8 * x)
               : i.op == OP_mma_f16 ? of_half(reg >> 16 * x)
                                    : from_bits(reg >> 16 * x << 16);
    };
    for (int l = 0; l < WARP; ++l) {
        for (int r = 0; r < n_a; ++r) {
            const int row = l / 4 + r % 2 * 8, col = l % 4 * each_reg + r / 2 * 4 * each_reg;
            for (int x = 0; x < each_reg; ++x) {
                a[row][col + x] = number(lanes<u32>(w, i.src[r])[l], x);
            }
            bad_a |= (~w.defined[i.src[r]] >> l & 1) << row;
        }
        for (int r = 0; r < n_b; ++r) {
            for (int x = 0; x < each_reg; ++x) {
                b[l / 4][l % 4 * each_reg + r * 4 * each_reg + x] =
                        number(lanes<u32>(w, i.src[n_a + r])[l], x);
            }
            bad_b |= (~w.defined[i.src[n_a + r]] >> l & 1) << l / 4;
        }
    }
    const int K = 4 * each_reg * n_b;
    u32       result[4][WARP], undefined[4] = {};
    for (int l = 0; l < WARP; ++l) {
        for (int half = 0; half < 2; ++half) {
            const int row = l / 4 + half * 8;
            for (int x = 0; x < 2; ++x) {
                const int col = l % 4 * 2 + x, c = n_c == 4 ? half * 2 + x : half;
                float     sum = 0.0f; // of s8: at most 32·2¹⁴, exact
                for (int k = 0; k < K; ++k) {
                    sum += a[row][k] * b[col][k];
                }
                const u32 old = lanes<u32>(w, i.src[n_a + n_b + c])[l];
                if (bytes) {
                    result[c][l] = old + (u32) (s32) sum;
                } else if (n_c == 4) {
                    result[c][l] = bits_of(from_bits(old) + sum);
                } else {
                    const u32 value = to_half(of_half(old >> 16 * x) + sum);
                    result[c][l] = x == 0 ? value : result[c][l] | value << 16;
                }
                const u32 lost =
                        bad_a >> row | bad_b >> col | ~w.defined[i.src[n_a + n_b + c]] >> l;
                undefined[c] |= (lost & 1) << l;
            }
        }
    }
    for (int c = 0; c < n_c; ++c) {
        memcpy(lanes<u32>(w, i.dst[c]), result[c], sizeof(result[c]));
        w.defined[i.dst[c]] = ~undefined[c];
    }
    return true;
}

} // namespace ptx
