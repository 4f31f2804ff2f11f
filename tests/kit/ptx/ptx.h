#pragma once

// Runs PTX, the assembly language that nvcc makes of CUDA kernels, on a CPU (C++17).
//
//     ptx::module   m;     m.load("file.ptx")
//     ptx::memory   mem;   mem.add("out", data, size, ptx::FRESH)
//     ptx::launch(m.kernels.at("kernel"), grid, block, &args, sizeof(args), mem, order, &n)
//
// A warp executes an instruction for all of its active lanes at once. Blocks and warps run one
// after another; a warp runs until it waits at a barrier. The interpreter detects:
//
// - instructions that it does not know, and operands of the wrong width;
// - registers read before they are written, per lane;
// - accesses out of bounds of a buffer or of a variable in shared memory, to a constant buffer, and
//   addresses that are not a multiple of the size of the access (8 and 16 bytes for vectors);
// - values from shared memory, or from a buffer declared FRESH, that nobody has written: they are
//   like registers that nobody has written;
// - races: two threads of a block use a word of shared or global memory between two barriers, or
//   two blocks of a launch use a word of global memory, and one of them writes;
// - cp.async: a word used by anyone before its thread has waited for the group, or by another
//   thread before the barrier after that; copies that are pending when a thread ends;
// - shfl and mma that a lane of the mask does not reach, and shuffles from lanes not in the mask;
// - barriers that not all threads reach;
// - launches with more threads than the kernel allows, or with arguments of another size.
//
// mma of TF32 adds in one of several orders (kit/mma-model.h), other mma in ascending order;
// approximate instructions are computed exactly. Not modeled: time, caches, the memory model
// between threads that synchronize otherwise than by barriers, and what ptxas makes of the PTX.

#include "kit/mma-model.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

// ---- The text of a module, split into kernels and statements: ptx-parse.cpp ---------------------

namespace ptx {

struct statement {
    std::string              guard; // "p1" or "!p1" of "@%p1"; empty: none
    std::string              name;  // "add.s32"
    std::vector<std::string> operands;
    int                      line = 0;
};

enum width { WIDTH_PRED, WIDTH_16, WIDTH_32, WIDTH_64 };

struct declaration { // .reg .f32 %f<157>: count registers; without <>: one
    std::string name;
    width       bits;
    int         count;
};

struct variable_text { // in shared or local memory, a parameter, or a variable of a module
    std::string name;
    uint32_t    align = 1, size = 0; // size 0: as much shared memory as the launch asks for
    std::vector<uint8_t> bytes;      // first values
};

struct kernel_text {
    std::string                name;
    std::vector<variable_text> params;
    uint32_t                   max_threads = 1024;
    std::vector<declaration>   registers;
    std::vector<variable_text> shared, local;
    std::vector<statement>     code;
    std::map<std::string, int> labels; // index into code
};

struct module_text {
    std::vector<kernel_text>   kernels;
    std::vector<variable_text> variables; // .global and .const
    std::vector<variable_text> shared;    // .extern .shared
};

// Returns an error; empty: none.
std::string parse_text(const std::string & text, const std::string & name, module_text * out);

} // namespace ptx

// ---- Modules ------------------------------------------------------------------------------------

namespace ptx {

enum { WARP = 32 };

//
// Modules
//

struct instruction {
    uint16_t op;        // enum opcode
    int16_t  guard;     // register of the predicate; -1: none
    bool     negated;   // @!p
    uint8_t  n_dst = 0; // elements of dst and src
    uint8_t  n_src = 0;
    uint8_t  bytes = 0; // of one element of a memory access
    bool     sign = false;
    uint8_t  wide = 0; // bit i: element i of a vector is a 64-bit register
    uint16_t dst[4];   // registers, in units of 32 lanes of four bytes
    uint16_t src[10];
    uint32_t negate = 0; // bit i: source i is !p
    int64_t  offset = 0; // of a memory access, or the target of a branch
    int      line;       // of the file
};

struct variable { // in shared memory or among the parameters
    uint32_t offset, size;
};

struct constant { // a register that is set before the kernel begins: an immediate or an address
    uint16_t where;
    bool     wide;
    uint64_t value;
};

enum special { // %tid.x etc.: registers that are set before the kernel begins
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    N_SPECIAL
};

struct kernel {
    std::string              name;
    std::vector<variable>    params; // of the launch: a multiple of its size from the beginning
    uint32_t                 param_bytes = 0;
    uint32_t                 local_bytes = 0; // of a thread
    int                      dynamic = -1;    // variable whose size the launch sets
    uint32_t                 max_threads = 1024;
    uint32_t                 units = 0; // registers
    bool                     has_mma = false;
    std::vector<instruction> code;
    std::vector<constant>    constants;
    std::vector<variable>    variables; // in ascending order
    uint32_t                 shared_bytes = 0;
    int                      special[N_SPECIAL] = {}; // register; -1: not used
};

// One edit of the text of a module: in the kernel whose name contains `kernel`, finds occurrence
// `which` (from 0) of `anchor`, and replaces the first `from` from there on. PTX_SWAP exchanges
// the two registers after `from` instead.
struct edit {
    std::string kernel, anchor;
    int         which;
    std::string from, to;
};
#define PTX_SWAP "<swap>"

struct module {
    std::map<std::string, kernel>   kernels;
    std::map<std::string, uint64_t> symbols; // addresses of variables that the kernels use

    // Parses a text or a file and adds its kernels; with an edit, only the edited one. Returns an
    // error; empty: none.
    std::string parse(const std::string & text, const std::string & name);
    std::string decode(const module_text & text, const std::string & name);
    std::string load(const std::string & path, const edit * change = nullptr);
};

//
// Memory
//

enum use {
    READ_WRITE,
    CONSTANT, // never written by a kernel
    FRESH,    // written by a kernel before it is read
};

// What happened to a word of four bytes. Epochs count barriers and blocks, over all launches.
struct shadow {
    uint32_t written = 0, read = 0;  // epoch of the last write and read; 0: never
    uint16_t writer = 0, reader = 0; // thread of the block
    bool     many_readers = false;   // more than one thread in epoch `read`
    bool     other_block = false;    // an earlier block of the launch read it
    bool     defined = false;
    bool     pending = false; // target of a cp.async that has not been waited for
};

class memory {
  public:
    // strict: reports races, and values that nobody has written when they are used. Otherwise such
    // values may be copied and computed with, and what they reach is as undefined as they are; they
    // must not be addresses or conditions of branches.
    explicit memory(bool strict = true) : strict_(strict), epoch_(1), launch_(1), block_(1) {}
    virtual ~memory() = default;

    bool strict() const {
        return strict_;
    }
    void add(const std::string & name, void * data, size_t size, use how);

    // bytes of shared memory, and which of them belong to variables
    void set_shared(const kernel & k, uint32_t dynamic);

    void begin_launch();
    void begin_block();
    void barrier();

    // Checks an access and records it; returns where the bytes are, or NULL and an error. A read
    // sets undefined(): bit i for the four bytes i.
    virtual char * global(uint64_t address, unsigned bytes, bool write, int thread);
    char * shared(uint64_t address, unsigned bytes, bool write, int thread);
    // What was written last is undefined.
    virtual void undefine_global(uint64_t address, unsigned bytes);
    void undefine_shared(uint64_t address, unsigned bytes);
    // The start and the end of an asynchronous copy into shared memory. The copy reads its source
    // when it ends; unless `read`, it writes zeros instead.
    bool copy_begin(uint64_t to, uint64_t from, unsigned bytes, bool read, int thread);
    bool copy_end(uint64_t to, uint64_t from, unsigned bytes, bool read, int thread);

    const std::string & error() const {
        return error_;
    }
    unsigned undefined() const {
        return undefined_;
    }

  protected:
    bool fail(const char * what, uint64_t address, unsigned bytes, const std::string & where);

    unsigned    undefined_ = 0;
    std::string error_;

  private:
    struct range {
        std::string         name;
        uint64_t            begin, end;
        use                 how;
        std::vector<shadow> words;
    };

    range * find(uint64_t address, unsigned bytes);
    bool in_variable(uint64_t address, unsigned bytes) const;
    bool touch(shadow & s, bool write, int thread, bool is_shared);

    std::vector<std::unique_ptr<range>> ranges_;
    range *                             last_ = nullptr; // found last

    bool                  strict_;
    std::vector<variable> variables_; // in shared memory
    std::vector<char>     shared_;
    std::vector<shadow>   words_;

    uint32_t epoch_, launch_, block_; // now; the first of this launch and of this block
};

//
// Launches
//

struct extent {
    unsigned x = 1, y = 1, z = 1;
};

struct counts { // of a kernel, over its launches
    int64_t launches = 0;
    int64_t blocks = 0;
    int64_t instructions = 0; // of warps
    int64_t lanes = 0;        // instructions of threads
    int64_t doubles = 0;      // instructions of warps in F64
    int64_t products = 0;     // mma
    int64_t barriers = 0;     // of blocks
    int64_t requests = 0;     // instructions of warps that use global memory
    int64_t sectors = 0;      // 32 bytes that such an instruction touches
    int64_t global_bytes = 0; // that threads ask for
    int64_t shared_bytes = 0;
};

// Runs a grid. Returns the first error, with the kernel, the line, the block and the thread; empty:
// none.
std::string launch(const kernel & k, extent grid, extent block, const void * args,
        size_t args_bytes, memory & mem, mma_order order, counts * n, uint32_t dynamic = 0);

// The name of a function of this program as nvcc spells it; empty: not found.
std::string name_of_function(const void * function);

} // namespace ptx
