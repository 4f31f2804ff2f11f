// From statements to instructions: names become numbers, registers become places in the register
// file, immediates become registers that are set before the kernel begins.

#include "kit/ptx/ptx-opcodes.h"
#include "kit/ptx/ptx.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <unordered_map>

namespace ptx {

namespace {

template <typename T> constexpr char letter() {
    return sizeof(T) == 8 ? 'd' : sizeof(T) == 2 ? 'h' : 'w';
}

struct form {
    opcode      op;
    std::string dst, src; // per operand: p predicate, h, w, d: 16, 32, 64 bits
};

const std::unordered_map<std::string, form> & alu_forms() {
    static const std::unordered_map<std::string, form> all = {
#define ALU1(id, name, to, A, ...) { name, { OP_##id, { letter<to>() }, { letter<A>() } } },
#define ALU2(id, name, to, A, B, ...) \
    { name, { OP_##id, { letter<to>() }, { letter<A>(), letter<B>() } } },
#define ALU3(id, name, to, A, B, C, ...) \
    { name, { OP_##id, { letter<to>() }, { letter<A>(), letter<B>(), letter<C>() } } },
#define ALU4(id, name, to, A, B, C, D, ...) \
    { name, { OP_##id, { letter<to>() }, { letter<A>(), letter<B>(), letter<C>(), letter<D>() } } },
#define SETP(id, name, A, ...) { name, { OP_##id, { 'p' }, { letter<A>(), letter<A>() } } },
#define PRED(id, name, ...)    { name, { OP_##id, { 'p' }, { 'p', 'p' } } },
#include "kit/ptx/ptx-alu.h"
#undef ALU1
#undef ALU2
#undef ALU3
#undef ALU4
#undef SETP
#undef PRED
        { "not.pred", { OP_not_pred, "p", "p" } },
        { "mov.pred", { OP_mov_pred, "p", "p" } },
        { "selp.b32", { OP_selp_32, "w", "wwp" } },
        { "selp.u32", { OP_selp_32, "w", "wwp" } },
        { "selp.s32", { OP_selp_32, "w", "wwp" } },
        { "selp.f32", { OP_selp_32, "w", "wwp" } },
        { "selp.u16", { OP_selp_32, "h", "hhp" } },
        { "selp.b64", { OP_selp_64, "d", "ddp" } },
        { "selp.u64", { OP_selp_64, "d", "ddp" } },
        { "selp.f64", { OP_selp_64, "d", "ddp" } },
        { "selp.s16", { OP_selp_32, "h", "hhp" } },
        { "selp.b16", { OP_selp_32, "h", "hhp" } },
        { "selp.s64", { OP_selp_64, "d", "ddp" } },
        { "ret", { OP_ret, "", "" } },
        { "exit", { OP_ret, "", "" } },
        { "trap", { OP_trap, "", "" } },
        { "membar.gl", { OP_nop, "", "" } }, // threads of a grid run one after another
        { "fence.acq_rel.gpu", { OP_nop, "", "" } },
        { "bar.warp.sync", { OP_warp_barrier, "", "w" } },
        { "vote.sync.all.pred", { OP_vote, "p", "pw" } },
        { "vote.sync.any.pred", { OP_vote, "p", "pw" } },
        { "redux.sync.add.s32", { OP_vote, "w", "ww" } },
        { "vote.sync.ballot.b32", { OP_vote, "w", "pw" } },
        { "movmatrix.sync.aligned.m8n8.trans.b16", { OP_movmatrix, "w", "w" } },
        { "griddepcontrol.wait", { OP_nop, "", "" } }, // launches run one after another
        { "griddepcontrol.launch_dependents", { OP_nop, "", "" } },
        { "cp.async.commit_group", { OP_copy_commit, "", "" } },
    };
    return all;
}

class decoder {
  public:
    decoder(const module_text & all, const std::map<std::string, uint64_t> & symbols,
            const kernel_text & text, const std::string & file, kernel * k)
        : all_(all), t_(text), file_(file), k_(k), addresses_(symbols.begin(), symbols.end()) {}

    std::string run() {
        k_->name = t_.name;
        k_->max_threads = t_.max_threads;
        std::fill(k_->special, k_->special + N_SPECIAL, -1);
        for (const declaration & d : t_.registers) {
            for (int i = 0; i < (d.count == 0 ? 1 : d.count); ++i) {
                const std::string name = d.count == 0 ? d.name : d.name + std::to_string(i);
                if (registers_.count(name) == 0) { // a name of an inner scope may repeat
                    registers_[name] = { new_register(d.bits), d.bits };
                }
            }
        }
        place_variables();
        for (const statement & s : t_.code) {
            if (error_.empty()) {
                decode(s);
            }
        }
        if (k_->units > 65535) {
            error_ = file_ + ": " + t_.name + " has too many registers";
        }
        return error_;
    }

  private:
    struct reg {
        int   where;
        width bits;
    };

    int new_register(width bits) {
        const int where = (int) k_->units;
        k_->units += bits == WIDTH_64 ? 2 : 1;
        return where;
    }

    void fail(const std::string & what) {
        if (error_.empty()) {
            error_ = file_ + ":" + std::to_string(now_->line) + ": " + t_.name + ": " + now_->name +
                     ": " + what;
        }
    }

    void place_variables() {
        for (const variable_text & v : t_.params) { // they have their own space
            k_->param_bytes = (k_->param_bytes + v.align - 1) / v.align * v.align;
            k_->params.push_back({ k_->param_bytes, v.size });
            addresses_[v.name] = k_->param_bytes;
            k_->param_bytes += v.size;
        }
        for (const variable_text & v : t_.local) {
            k_->local_bytes = (k_->local_bytes + v.align - 1) / v.align * v.align;
            addresses_[v.name] = LOCAL_WINDOW + k_->local_bytes;
            k_->local_bytes += v.size;
        }
        // Shared variables are kept apart, so that an index out of bounds of one is found.
        enum { GAP = 256 };
        uint32_t at = GAP;
        for (const auto * list : { &t_.shared, &all_.shared }) {
            for (const variable_text & v : *list) {
                if (v.size > 0) {
                    at = (at + v.align - 1) / v.align * v.align;
                    addresses_[v.name] = at;
                    k_->variables.push_back({ at, v.size });
                    at += v.size + GAP;
                }
            }
        }
        at = (at + GAP - 1) / GAP * GAP;
        k_->dynamic = (int) k_->variables.size();
        k_->variables.push_back({ at, 0 });
        for (const variable_text & v : all_.shared) {
            if (v.size == 0) { // all names of the dynamic memory mean the same bytes
                addresses_[v.name] = at;
            }
        }
        k_->shared_bytes = at;
    }

    int constant_of(uint64_t value, width bits) {
        const auto key = std::make_pair(value, bits == WIDTH_64);
        if (constants_.count(key) == 0) {
            const int where = new_register(bits);
            k_->constants.push_back({ (uint16_t) where, bits == WIDTH_64, value });
            constants_[key] = where;
        }
        return constants_[key];
    }

    static width width_of(char c) {
        return c == 'p' ? WIDTH_PRED : c == 'h' ? WIDTH_16 : c == 'w' ? WIDTH_32 : WIDTH_64;
    }

    int special_of(const std::string & name) {
        static const char * const names[N_SPECIAL] = { "%tid.x", "%tid.y", "%tid.z", "%ntid.x",
            "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y",
            "%nctaid.z", "%laneid", "%warpid" };
        for (int i = 0; i < N_SPECIAL; ++i) {
            if (name == names[i]) {
                if (k_->special[i] < 0) {
                    k_->special[i] = new_register(WIDTH_32);
                }
                return k_->special[i];
            }
        }
        return -1;
    }

    // A register, an immediate or the address of a variable
    int source(const std::string & x, width bits) {
        const auto r = registers_.find(x);
        if (r != registers_.end()) {
            if (r->second.bits != bits) {
                fail("operand " + x + " has the wrong width");
            }
            return r->second.where;
        }
        if (bits == WIDTH_32 && x[0] == '%') {
            const int where = special_of(x);
            if (where >= 0) {
                return where;
            }
        }
        const auto a = addresses_.find(x);
        if (a != addresses_.end()) {
            return constant_of(a->second, bits);
        }
        if (bits == WIDTH_PRED) {
            if (x == "0" || x == "-1" || x == "1") {
                return constant_of(x == "0" ? 0 : 0xFFFFFFFF, WIDTH_PRED);
            }
        } else if (x.compare(0, 2, "0f") == 0 && x.size() == 10) {
            return constant_of(strtoull(x.c_str() + 2, nullptr, 16), bits);
        } else if (x.compare(0, 2, "0d") == 0 && x.size() == 18) {
            return constant_of(strtoull(x.c_str() + 2, nullptr, 16), bits);
        } else if (isdigit((unsigned char) x[0]) || x[0] == '-') {
            char *         end = nullptr;
            const uint64_t value = x[0] == '-' ? (uint64_t) strtoll(x.c_str(), &end, 0)
                                               : strtoull(x.c_str(), &end, 0);
            if (*end == 0) {
                return constant_of(bits == WIDTH_64 ? value : value & 0xFFFFFFFF, bits);
            }
        }
        fail("unknown operand " + x);
        return 0;
    }

    const reg * target(const std::string & x) {
        const auto r = registers_.find(x);
        if (r == registers_.end()) {
            fail("unknown register " + x);
            return nullptr;
        }
        return &r->second;
    }

    int target(const std::string & x, width bits) {
        const reg * r = target(x);
        if (r != nullptr && r->bits != bits) {
            fail("operand " + x + " has the wrong width");
        }
        return r != nullptr ? r->where : 0;
    }

    static std::vector<std::string> elements(const std::string & x) {
        std::vector<std::string> all;
        std::istringstream       in(x[0] == '{' ? x.substr(1, x.size() - 2) : x);
        for (std::string one; std::getline(in, one, ',');) {
            all.push_back(one);
        }
        return all;
    }

    void expect_operands(size_t n) {
        if (now_->operands.size() != n) {
            fail("expected " + std::to_string(n) + " operands");
        }
    }

    void decode(const statement & s) {
        now_ = &s;
        instruction i;
        i.op = OP_nop;
        memset(i.dst, 0, sizeof(i.dst));
        memset(i.src, 0, sizeof(i.src));
        i.line = s.line;
        i.guard = -1;
        i.negated = false;
        if (!s.guard.empty()) {
            i.negated = s.guard[0] == '!';
            i.guard = (int16_t) target(s.guard.substr(i.negated), WIDTH_PRED);
        }
        const auto alu = alu_forms().find(is_wide_cvt(s) ? s.name + ".wide" : s.name);
        if (alu != alu_forms().end()) {
            decode_alu(alu->second, &i);
            take_upper_half(&i);
            if (i.op == OP_vote) {
                i.offset = s.name == "vote.sync.all.pred"   ? VOTE_ALL
                           : s.name == "vote.sync.any.pred" ? VOTE_ANY
                           : s.name == "redux.sync.add.s32" ? VOTE_SUM
                                                            : VOTE_BALLOT;
            }
        } else if (s.name.compare(0, 5, "call.") == 0 || starts(s, "ld.param", "[retval0")) {
            i.op = OP_trap;
        } else if (s.name.compare(0, 8, "st.param") == 0) {
            i.op = OP_nop; // an argument of a call
        } else if (s.name == "bra" || s.name == "bra.uni") {
            expect_operands(1);
            const auto label = t_.labels.find(s.operands.empty() ? "" : s.operands[0]);
            if (label == t_.labels.end()) {
                fail("unknown label");
            } else {
                i.op = OP_bra;
                i.offset = label->second;
            }
        } else if (s.name == "mov.b64") {
            decode_mov(&i, WIDTH_64, OP_mov_u64, OP_pack, OP_unpack);
        } else if (s.name == "mov.b32") {
            decode_mov(&i, WIDTH_32, OP_mov_u32, OP_pack_16, OP_unpack_16);
        } else if (s.name.compare(0, 5, "atom.") == 0 || s.name.compare(0, 4, "red.") == 0) {
            decode_atom(&i);
        } else if (s.name.compare(0, 9, "ldmatrix.") == 0) {
            decode_ldmatrix(&i);
        } else if (s.name.compare(0, 3, "ld.") == 0 || s.name.compare(0, 3, "st.") == 0) {
            decode_access(&i);
        } else if (s.name.compare(0, 25, "cp.async.ca.shared.global") == 0 ||
                   s.name.compare(0, 25, "cp.async.cg.shared.global") == 0) {
            decode_copy(&i);
        } else if (s.name == "cp.async.wait_all") {
            i.op = OP_copy_wait;
            i.offset = -1; // also what was not committed
        } else if (s.name == "cp.async.wait_group") {
            expect_operands(1);
            i.op = OP_copy_wait;
            i.offset = s.operands.empty() ? 0 : atoi(s.operands[0].c_str());
        } else if (s.name == "bar.sync" || s.name == "barrier.sync") {
            expect_operands(1);
            i.op = OP_barrier;
            if (s.operands.empty() || s.operands[0] != "0") {
                fail("expected barrier 0");
            }
        } else if (s.name.compare(0, 10, "shfl.sync.") == 0) {
            decode_shuffle(&i);
        } else if (s.name.compare(0, 17, "mma.sync.aligned.") == 0) {
            decode_mma(&i);
        } else {
            fail("unknown instruction");
        }
        k_->code.push_back(i);
    }

    // nvcc takes one half of a pair whose other half nobody has written:
    //     mov.b64 p, {a, b};   shr.u64 d, p, 32
    // d is b, whatever a is.
    void take_upper_half(instruction * i) {
        const instruction * before = k_->code.empty() ? nullptr : &k_->code.back();
        if (before == nullptr || before->op != OP_pack || before->guard >= 0 ||
                i->op != OP_shr_u64 || now_->operands[2] != "32" || i->src[0] != before->dst[0]) {
            return;
        }
        for (const auto & label : t_.labels) {
            if (label.second == (int) k_->code.size()) {
                return; // p may come from elsewhere
            }
        }
        i->op = OP_cvt_u64_u32;
        i->src[0] = before->src[1];
        i->n_src = 1;
    }

    // cvt may read the lower half of a register
    bool is_wide_cvt(const statement & s) const {
        if (s.name.compare(0, 4, "cvt.") != 0 || s.operands.size() != 2 ||
                s.name.compare(s.name.size() - 2, 2, "64") == 0) {
            return false;
        }
        const auto r = registers_.find(s.operands[1]);
        return r != registers_.end() && r->second.bits == WIDTH_64;
    }

    void decode_alu(const form & f, instruction * i) {
        expect_operands(f.dst.size() + f.src.size());
        if (!error_.empty()) {
            return;
        }
        i->op = f.op;
        i->n_dst = (uint8_t) f.dst.size();
        i->n_src = (uint8_t) f.src.size();
        for (size_t x = 0; x < f.dst.size(); ++x) {
            i->dst[x] = (uint16_t) target(now_->operands[x], width_of(f.dst[x]));
        }
        for (size_t x = 0; x < f.src.size(); ++x) {
            std::string operand = now_->operands[f.dst.size() + x];
            if (operand[0] == '!') {
                i->negate |= 1u << x;
                operand = operand.substr(1);
                if (f.src[x] != 'p') {
                    fail("! before a number");
                }
            }
            width      bits = width_of(f.src[x]);
            const auto r = registers_.find(operand);
            const bool narrow = bits == WIDTH_16 || bits == WIDTH_32;
            if (narrow && r != registers_.end() && now_->name.compare(0, 4, "cvt.") == 0 &&
                    (r->second.bits == WIDTH_16 || r->second.bits == WIDTH_32)) {
                bits = r->second.bits; // cvt may read a part of a register; both take 32 bits here
            }
            i->src[x] = (uint16_t) source(operand, bits);
        }
    }

    static bool starts(const statement & s, const char * name, const char * last) {
        return s.name.find(name) == 0 && !s.operands.empty() && s.operands.back().find(last) == 0;
    }

    // mov.b64 d, s;   mov.b64 {a, b}, d;   mov.b64 d, {a, b}
    void decode_mov(instruction * i, width bits, opcode move, opcode pack, opcode unpack) {
        expect_operands(2);
        if (!error_.empty()) {
            return;
        }
        const width         half = (width) (bits - 1);
        const std::string & to = now_->operands[0];
        const std::string & from = now_->operands[1];
        if (to[0] == '{') {
            i->op = unpack;
            i->n_dst = 2;
            i->n_src = 1;
            for (int x = 0; x < 2; ++x) {
                i->dst[x] = (uint16_t) target(elements(to).at(x), half);
            }
            i->src[0] = (uint16_t) source(from, bits);
        } else {
            i->dst[0] = (uint16_t) target(to, bits);
            i->n_dst = 1;
            i->op = from[0] == '{' ? pack : move;
            i->n_src = from[0] == '{' ? 2 : 1;
            for (int x = 0; x < i->n_src; ++x) {
                i->src[x] = (uint16_t) (from[0] == '{' ? source(elements(from).at(x), half)
                                                       : source(from, bits));
            }
        }
    }

    // [register + offset], [variable + offset] or [parameter + offset]. Sets offset and returns the
    // register of the address.
    int address(const std::string & x, instruction * i, width bits) {
        std::string  inner = x.size() > 2 && x[0] == '[' ? x.substr(1, x.size() - 2) : "";
        const size_t plus = inner.find('+', 1);
        if (plus != std::string::npos) {
            std::istringstream offsets(inner.substr(plus + 1));
            for (std::string one; std::getline(offsets, one, '+');) {
                i->offset += strtoll(one.c_str(), nullptr, 0);
            }
            inner = inner.substr(0, plus);
        }
        const auto r = registers_.find(inner);
        if (r != registers_.end() && bits == WIDTH_32 && r->second.bits == WIDTH_64) {
            bits = WIDTH_64; // an address in shared memory may have 64 bits
        }
        wide_address_ = bits == WIDTH_64;
        return source(inner, bits);
    }

    // ld.space.vN.type and st.space.vN.type
    void decode_access(instruction * i) {
        static const std::unordered_map<std::string, int> spaces = { { "param", 0 },
            { "global", 1 }, { "const", 1 }, { "shared", 2 }, { "local", 3 } };
        std::istringstream                                in(now_->name);
        std::vector<std::string>                          parts;
        for (std::string part; std::getline(in, part, '.');) {
            parts.push_back(part);
        }
        expect_operands(2);
        if (!error_.empty()) {
            return;
        }
        const auto hint = [](const std::string & p) {
            return p == "nc" || p == "volatile" || p == "relaxed" || p == "acquire" ||
                   p == "release" || p == "gpu" || p == "sys" || p == "cs" || p == "cg" ||
                   p.compare(0, 2, "L1") == 0 || p.compare(0, 2, "L2") == 0;
        };
        parts.erase(std::remove_if(parts.begin() + 1, parts.end(), hint), parts.end());
        const bool load = parts[0] == "ld";
        size_t     x = 1;
        int        space = 3; // generic, and local, which is a window of it
        if (spaces.count(parts[x]) > 0) {
            space = spaces.at(parts[x++]);
        }
        size_t n = 1;
        if (x < parts.size() && (parts[x] == "v2" || parts[x] == "v4")) {
            n = parts[x++] == "v2" ? 2 : 4;
        }
        const std::string type = x + 1 == parts.size() ? parts[x] : "";
        const int         bits = type.size() > 1 ? atoi(type.c_str() + 1) : 0;
        if (strchr("busf", type.empty() ? '?' : type[0]) == nullptr ||
                (bits != 8 && bits != 16 && bits != 32 && bits != 64) || (!load && space == 0)) {
            fail("unknown instruction");
            return;
        }
        i->bytes = (uint8_t) (bits / 8);
        i->sign = type[0] == 's';

        const std::vector<std::string> data = elements(now_->operands[load ? 0 : 1]);
        if (data.size() != n) {
            fail("expected a vector of " + std::to_string(n));
            return;
        }
        for (size_t e = 0; e < n; ++e) {
            const bool  fp = type[0] == 'f';
            const reg * r = registers_.count(data[e]) > 0 ? &registers_.at(data[e]) : nullptr;
            if (r != nullptr && (r->bits == WIDTH_PRED || (8 << r->bits) < bits ||
                                        (fp && (8 << r->bits) != bits))) {
                fail("operand " + data[e] + " has the wrong width");
            }
            const bool wide = r != nullptr ? r->bits == WIDTH_64 : bits == 64;
            i->wide |= (uint8_t) (wide << e);
            if (load) {
                i->dst[e] = r != nullptr ? (uint16_t) r->where : 0;
                if (r == nullptr) {
                    fail("unknown register " + data[e]);
                }
            } else {
                i->src[1 + e] =
                        (uint16_t) (r != nullptr ? r->where
                                                 : source(data[e], wide ? WIDTH_64 : WIDTH_32));
            }
        }
        i->n_dst = load ? (uint8_t) n : 0;
        i->n_src = load ? 1 : (uint8_t) (1 + n);

        const std::string & where = now_->operands[load ? 1 : 0];
        static const opcode loads[] = { OP_ld_param, OP_ld_global, OP_ld_shared, OP_ld_generic };
        static const opcode stores[] = { OP_ld_param, OP_st_global, OP_st_shared, OP_st_generic };
        i->op = (load ? loads : stores)[space];
        i->src[0] = (uint16_t) address(where, i, space == 2 ? WIDTH_32 : WIDTH_64);
        i->wide |= (uint8_t) (wide_address_ << 7);
    }

    // cp.async.ca.shared.global [to], [from], bytes {, bytes that are read}
    void decode_copy(instruction * i) {
        const bool partial = now_->operands.size() == 4;
        expect_operands(partial ? 4 : 3);
        if (!error_.empty()) {
            return;
        }
        i->op = OP_copy;
        i->n_src = partial ? 3 : 2;
        i->src[0] = (uint16_t) address(now_->operands[0], i, WIDTH_32);
        if (i->offset != 0 || wide_address_) {
            fail("expected a 32-bit register as the target");
        }
        i->src[1] = (uint16_t) address(now_->operands[1], i, WIDTH_64);
        i->bytes = (uint8_t) atoi(now_->operands[2].c_str());
        if (partial) {
            i->src[2] = (uint16_t) source(now_->operands[3], WIDTH_32);
        }
        if (now_->name.compare(0, 11, "cp.async.cg") == 0
                        ? i->bytes != 16
                        : i->bytes != 4 && i->bytes != 8 && i->bytes != 16) {
            fail("expected another number of bytes");
        }
    }

    // shfl.sync.mode.b32 d|p, a, b, c, mask
    void decode_shuffle(instruction * i) {
        static const char * const modes[] = { "bfly", "up", "down", "idx" };
        expect_operands(5);
        const std::string mode = now_->name.substr(10, now_->name.size() - 14);
        i->op = OP_shfl;
        i->offset = -1;
        for (int m = 0; m < 4; ++m) {
            if (mode == modes[m] && now_->name == "shfl.sync." + mode + ".b32") {
                i->offset = m;
            }
        }
        if (i->offset < 0 || !error_.empty()) {
            fail("unknown instruction");
            return;
        }
        const std::string to = now_->operands[0];
        const size_t      bar = to.find('|');
        i->dst[0] = (uint16_t) target(to.substr(0, bar), WIDTH_32);
        i->n_dst = 1;
        if (bar != std::string::npos) {
            i->dst[1] = (uint16_t) target(to.substr(bar + 1), WIDTH_PRED);
            i->n_dst = 2;
        }
        i->n_src = 4;
        for (int x = 0; x < 4; ++x) {
            i->src[x] = (uint16_t) source(now_->operands[1 + x], WIDTH_32);
        }
    }

    // mma d, a, b, c
    void decode_mma(instruction * i) {
        static const struct {
            const char * name;
            opcode       op;
            size_t       sizes[4];
        } all[] = {
            { "m16n8k8.row.col.f32.tf32.tf32.f32", OP_mma, { 4, 4, 2, 4 } },
            { "m16n8k16.row.col.f32.f16.f16.f32", OP_mma_f16, { 4, 4, 2, 4 } },
            { "m16n8k16.row.col.f16.f16.f16.f16", OP_mma_f16, { 2, 4, 2, 2 } },
            { "m16n8k16.row.col.f32.bf16.bf16.f32", OP_mma_bf16, { 4, 4, 2, 4 } },
            { "m16n8k16.row.col.s32.s8.s8.s32", OP_mma_s8, { 4, 2, 1, 4 } },
            { "m16n8k32.row.col.s32.s8.s8.s32", OP_mma_s8, { 4, 4, 2, 4 } },
        };
        expect_operands(4);
        const std::string shape = now_->name.substr(17);
        for (const auto & one : all) {
            if (shape == one.name) {
                i->op = one.op;
                k_->has_mma = k_->has_mma || one.op == OP_mma;
                for (int x = 0; x < 4 && error_.empty(); ++x) {
                    add_fragment(i, now_->operands[x], one.sizes[x], x == 0);
                }
                return;
            }
        }
        fail("unknown instruction");
    }

    void add_fragment(instruction * i, const std::string & text, size_t size, bool result) {
        const std::vector<std::string> all = elements(text);
        if (all.size() != size) {
            fail("a fragment of the wrong size");
            return;
        }
        for (const std::string & one : all) {
            if (result) {
                i->dst[i->n_dst++] = (uint16_t) target(one, WIDTH_32);
            } else {
                i->src[i->n_src++] = (uint16_t) source(one, WIDTH_32);
            }
        }
    }

    // ldmatrix.sync.aligned.m8n8.xN[.trans][.shared].b16 {…}, [address]
    void decode_ldmatrix(instruction * i) {
        const std::string & n = now_->name;
        const size_t        x = n.find(".x");
        expect_operands(2);
        if (x == std::string::npos || n.find("m8n8") == std::string::npos || !error_.empty()) {
            fail("unknown instruction");
            return;
        }
        const bool shared = n.find(".shared") != std::string::npos;
        i->op = OP_ldmatrix;
        i->sign = n.find(".trans") != std::string::npos;
        i->n_src = 1;
        i->bytes = 16;
        i->src[0] = (uint16_t) address(now_->operands[1], i, shared ? WIDTH_32 : WIDTH_64);
        i->wide = (uint8_t) ((wide_address_ << 7) | shared);
        add_fragment(i, now_->operands[0], (size_t) (n[x + 2] - '0'), true);
    }

    // atom.space.op.type d, [address], b;   red.space.op.type [address], b
    void decode_atom(instruction * i) {
        static const char * const names[] = { "add", "max", "min", "exch", "or" };
        std::istringstream        in(now_->name);
        std::string               part, type;
        const bool                result = now_->name[0] == 'a';
        bool                      shared = false;
        int                       op = -1;
        expect_operands(result ? 3 : 2);
        while (error_.empty() && std::getline(in, part, '.')) {
            shared = shared || part == "shared";
            for (int x = 0; x < 5; ++x) {
                op = part == names[x] ? x : op;
            }
            type = part;
        }
        if (op < 0 || (type != "u32" && type != "s32" && type != "f32" && type != "b32")) {
            fail("unknown instruction");
            return;
        }
        i->op = OP_atom;
        i->bytes = 4;
        i->sign = type == "s32";
        i->negate = type == "f32"; // this is no predicate
        i->n_src = 2;
        const size_t first = result ? 1 : 0;
        i->src[0] = (uint16_t) address(now_->operands[first], i, shared ? WIDTH_32 : WIDTH_64);
        i->wide = (uint8_t) ((wide_address_ << 7) | shared);
        i->src[1] = (uint16_t) source(now_->operands[first + 1], WIDTH_32);
        i->wide |= (uint8_t) (op << 1);
        if (result) {
            i->dst[0] = (uint16_t) target(now_->operands[0], WIDTH_32);
            i->n_dst = 1;
        }
    }

    const module_text &                       all_;
    const kernel_text &                       t_;
    std::string                               file_;
    kernel *                                  k_;
    std::unordered_map<std::string, uint64_t> addresses_;
    const statement *                         now_ = nullptr;
    bool                                      wide_address_ = false;
    std::unordered_map<std::string, reg>      registers_;
    std::map<std::pair<uint64_t, bool>, int>  constants_;
    std::string                               error_;
};

// Applies an edit to the text of a module and drops the other kernels; false if there is nothing to
// replace.
bool apply(const edit & e, std::string * text) {
    size_t at = 0;
    for (;; ++at) {
        at = text->find(".entry", at);
        if (at == std::string::npos) {
            return false;
        }
        const size_t end = text->find('(', at);
        if (text->substr(at, end - at).find(e.kernel) != std::string::npos) {
            break;
        }
    }
    *text = text->substr(at, text->find(".entry", at + 1) - at);
    at = 0;
    for (int n = 0; (at = text->find(e.anchor, at)) != std::string::npos; ++n, ++at) {
        if (n == e.which) {
            at = text->find(e.from, at);
            if (at == std::string::npos) {
                return false;
            }
            if (e.to != PTX_SWAP) {
                text->replace(at, e.from.size(), e.to);
                return true;
            }
            const size_t      first = at + e.from.size();
            const size_t      comma = text->find(", ", first);
            const size_t      end = text->find_first_of(",}", comma + 2);
            const std::string a = text->substr(first, comma - first);
            const std::string b = text->substr(comma + 2, end - comma - 2);
            text->replace(first, end - first, b + ", " + a);
            return true;
        }
    }
    return false;
}

} // namespace

std::string module::decode(const module_text & text, const std::string & name) {
    std::string error;
    for (const kernel_text & one : text.kernels) {
        if (error.empty()) {
            error = decoder(text, symbols, one, name, &kernels[one.name]).run();
        }
    }
    return error;
}

std::string module::parse(const std::string & text, const std::string & name) {
    module_text       all;
    const std::string error = parse_text(text, name, &all);
    return error.empty() ? decode(all, name) : error;
}

std::string module::load(const std::string & path, const edit * change) {
    std::ifstream     file(path);
    std::stringstream in;
    in << file.rdbuf();
    if (!file) {
        return "cannot read " + path;
    }
    std::string text = in.str();
    if (change != nullptr && !apply(*change, &text)) {
        return path + ": no text to replace: " + change->from;
    }
    return parse(text, path);
}

} // namespace ptx
