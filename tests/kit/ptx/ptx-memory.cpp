// Memory: where an address is, whether it may be used, and who used it before.

#include "kit/ptx/ptx-opcodes.h"
#include "kit/ptx/ptx.h"

#include <algorithm>
#include <cstring>

namespace ptx {

void memory::add(const std::string & name, void * data, size_t size, use how) {
    std::unique_ptr<range> r(new range);
    r->name = name;
    r->begin = (uint64_t) (uintptr_t) data;
    r->end = r->begin + size;
    r->how = how;
    if (how != CONSTANT) {
        r->words.resize((size + 3) / 4);
        for (shadow & s : r->words) {
            s.defined = how == READ_WRITE;
        }
    }
    ranges_.push_back(std::move(r));
}

void memory::set_shared(const kernel & k, uint32_t dynamic) {
    variables_ = k.variables;
    if (k.dynamic >= 0) {
        variables_[(size_t) k.dynamic].size = dynamic;
    }
    const size_t bytes = k.shared_bytes + dynamic;
    shared_.resize(bytes);
    words_.resize((bytes + 3) / 4);
}

void memory::begin_launch() {
    error_.clear();
    launch_ = ++epoch_;
    block_ = epoch_;
}

// A block begins with undefined shared memory.
void memory::begin_block() {
    block_ = ++epoch_;
    std::fill(words_.begin(), words_.end(), shadow());
    std::fill(shared_.begin(), shared_.end(), (char) 0xFF);
}

void memory::barrier() {
    ++epoch_;
}

bool memory::fail(const char * what, uint64_t address, unsigned bytes, const std::string & where) {
    error_ = std::string(what) + ", " + std::to_string(bytes) + " bytes at " + where + " + " +
             std::to_string((long long) address);
    return false;
}

memory::range * memory::find(uint64_t address, unsigned bytes) {
    if (last_ != nullptr && address >= last_->begin && address + bytes <= last_->end) {
        return last_;
    }
    const range * near = nullptr;
    for (const auto & r : ranges_) {
        if (address >= r->begin && address + bytes <= r->end) {
            return last_ = r.get();
        }
        const uint64_t margin = 1 << 12; // for the message only
        if (address + margin >= r->begin && address < r->end + margin) {
            near = r.get();
        }
    }
    if (near != nullptr) {
        fail("out of bounds", address - near->begin, bytes,
                near->name + " of " + std::to_string(near->end - near->begin) + " bytes");
    } else {
        fail("out of bounds: an address in no buffer", address, bytes, "0");
    }
    return nullptr;
}

// Records one use of a word. Epochs before block_ are other blocks or earlier launches; those from
// launch_ on are blocks of this launch, which nothing orders.
bool memory::touch(shadow & s, bool write, int thread, bool is_shared) {
    const bool written_now = s.written == epoch_ && s.writer != thread;
    const bool read_now = s.read == epoch_ && (s.many_readers || s.reader != thread);
    const bool other_wrote = !is_shared && s.written >= launch_ && s.written < block_;
    const bool other_read = !is_shared && s.read >= launch_ && (s.read < block_ || s.other_block);
    if (s.pending) {
        error_ = write ? "written while a cp.async to it is pending"
                       : "read before the cp.async to it was waited for";
        return false;
    }
    if (!strict_) {
        s.defined = s.defined || write;
        return true;
    }
    if (written_now || (write && read_now)) {
        error_ = std::string("a race: ") + (write ? "written" : "read") + " by thread " +
                 std::to_string(thread) + ", " + (written_now ? "written" : "read") +
                 " by thread " + std::to_string(written_now ? s.writer : s.reader) +
                 " since the last barrier";
        return false;
    }
    if (other_wrote || (write && other_read)) {
        error_ = "a race: used by two blocks of a launch";
        return false;
    }
    if (write) {
        s.written = epoch_;
        s.writer = (uint16_t) thread;
        s.defined = true;
        return true;
    }
    s.other_block = other_read;
    s.many_readers = read_now;
    s.read = epoch_;
    s.reader = (uint16_t) thread;
    return true;
}

char * memory::global(uint64_t address, unsigned bytes, bool write, int thread) {
    if (address % bytes != 0) {
        fail("misaligned", address, bytes, "0");
        return nullptr;
    }
    undefined_ = 0;
    range * r = find(address, bytes);
    if (r == nullptr) {
        return nullptr;
    }
    if (r->how == CONSTANT) {
        if (write) {
            fail("a constant buffer is written", address - r->begin, bytes, r->name);
            return nullptr;
        }
    } else {
        const uint64_t first = (address - r->begin) / 4,
                       last = (address - r->begin + bytes - 1) / 4;
        for (uint64_t w = first; w <= last; ++w) {
            if (!touch(r->words[w], write, thread, false)) {
                error_ += ", " + r->name + " + " + std::to_string(w * 4);
                return nullptr;
            }
            undefined_ |= (unsigned) !r->words[w].defined << (w - first);
        }
    }
    return (char *) (uintptr_t) address;
}

bool memory::in_variable(uint64_t address, unsigned bytes) const {
    const auto & all = variables_;
    const auto   next = std::upper_bound(all.begin(), all.end(), address,
              [](uint64_t a, const variable & v) { return a < v.offset; });
    return next != all.begin() && address + bytes <= (next - 1)->offset + (next - 1)->size;
}

char * memory::shared(uint64_t address, unsigned bytes, bool write, int thread) {
    if (address % bytes != 0) {
        fail("misaligned", address, bytes, "shared memory");
        return nullptr;
    }
    if (!in_variable(address, bytes)) {
        fail("out of bounds", address, bytes, "shared memory");
        return nullptr;
    }
    undefined_ = 0;
    const uint64_t first = address / 4;
    for (uint64_t w = first; w <= (address + bytes - 1) / 4; ++w) {
        if (!touch(words_[w], write, thread, true)) {
            error_ += ", shared memory + " + std::to_string(w * 4);
            return nullptr;
        }
        undefined_ |= (unsigned) !words_[w].defined << (w - first);
    }
    return &shared_[address];
}

void memory::undefine_global(uint64_t, unsigned) {} // a strict memory is never given such values

void memory::undefine_shared(uint64_t address, unsigned bytes) {
    for (uint64_t w = address / 4; w <= (address + bytes - 1) / 4; ++w) {
        words_[w].defined = false;
    }
}

// The target counts as written at both ends, the source as read.
bool memory::copy_begin(uint64_t to, uint64_t from, unsigned bytes, bool read, int thread) {
    if ((read && global(from, bytes, false, thread) == nullptr) ||
            shared(to, bytes, true, thread) == nullptr) {
        return false;
    }
    for (uint64_t w = to / 4; w < (to + bytes) / 4; ++w) {
        words_[w].pending = true;
    }
    return true;
}

bool memory::copy_end(uint64_t to, uint64_t from, unsigned bytes, bool read, int thread) {
    for (uint64_t w = to / 4; w < (to + bytes) / 4; ++w) {
        words_[w].pending = false;
    }
    const char * source = read ? global(from, bytes, false, thread) : nullptr;
    const bool   undefined = source != nullptr && undefined_ != 0;
    if (undefined && strict_) {
        error_ = "cp.async from memory that nobody has written";
        return false;
    }
    char * target = source != nullptr || !read ? shared(to, bytes, true, thread) : nullptr;
    if (target == nullptr) {
        return false;
    }
    if (undefined) {
        undefine_shared(to, bytes);
    }
    if (read) {
        memcpy(target, source, bytes);
    } else {
        memset(target, 0, bytes);
    }
    return true;
}

} // namespace ptx
