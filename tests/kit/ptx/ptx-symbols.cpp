// The name of a function of this program, from the symbol table of its file. A kernel is a static
// function of the test and an entry of the PTX under nearly the same mangled name.

#include "kit/ptx/ptx.h"

#include <cstring>
#include <elf.h>
#include <fstream>
#include <link.h>
#include <sstream>
#include <unordered_map>

namespace ptx {

static int first_object(struct dl_phdr_info * info, size_t, void * base) {
    *(uintptr_t *) base = info->dlpi_addr; // the program itself comes first
    return 1;
}

static std::unordered_map<uintptr_t, std::string> read_symbols() {
    std::unordered_map<uintptr_t, std::string> all;
    std::ifstream                              file("/proc/self/exe", std::ios::binary);
    std::stringstream                          in;
    in << file.rdbuf();
    const std::string bytes = in.str();

    uintptr_t base = 0;
    dl_iterate_phdr(first_object, &base);
    ElfW(Ehdr) header;
    if (bytes.size() < sizeof(header)) {
        return all;
    }
    memcpy(&header, bytes.data(), sizeof(header));
    const auto * sections = (const ElfW(Shdr) *) (bytes.data() + header.e_shoff);
    for (int i = 0; i < header.e_shnum; ++i) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const auto * symbols = (const ElfW(Sym) *) (bytes.data() + sections[i].sh_offset);
        const char * names = bytes.data() + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof(*symbols); ++s) {
            if ((symbols[s].st_info & 0xF) == STT_FUNC && symbols[s].st_value != 0) {
                all.emplace(base + symbols[s].st_value, names + symbols[s].st_name);
            }
        }
    }
    return all;
}

std::string name_of_function(const void * function) {
    static const std::unordered_map<uintptr_t, std::string> all = read_symbols();

    const auto found = all.find((uintptr_t) function);
    if (found == all.end()) {
        return "";
    }
    // the host's compiler marks a static function: _ZL4scanv instead of _Z4scanv
    const std::string & name = found->second;
    return name.compare(0, 3, "_ZL") == 0 ? "_Z" + name.substr(3) : name;
}

} // namespace ptx
