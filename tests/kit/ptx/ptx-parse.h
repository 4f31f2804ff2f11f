#pragma once

// The text of a module, split into kernels and statements. Nothing is interpreted here.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

struct shared_variable {
    std::string name;
    uint32_t    align, size;
};

struct kernel_text {
    std::string                  name, param;
    uint32_t                     param_bytes = 0;
    uint32_t                     max_threads = 1024;
    std::vector<declaration>     registers;
    std::vector<shared_variable> shared;
    std::vector<statement>       code;
    std::map<std::string, int>   labels; // index into code
};

// Returns an error; empty: none.
std::string parse_text(
        const std::string & text, const std::string & name, std::vector<kernel_text> * out);

} // namespace ptx
