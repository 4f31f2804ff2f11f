#include "kit/ptx/ptx-session.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <fstream>

int ptx_session::begin(int argc, char ** argv, const std::vector<std::string> & files) {
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--all") == 0) {
            all = true;
        } else if (strcmp(argv[i], "--count") == 0) {
            count = true;
        } else if (strcmp(argv[i], "--ptx") == 0 && i + 1 < argc) {
            folder = argv[++i];
        } else {
            fprintf(stderr, "unknown option %s; expected --ptx <folder>, --all or --count\n",
                    argv[i]);
            return 1;
        }
    }
    if (folder.empty()) {
        return -1;
    }
    on = true;
    for (const std::string & file : files) {
        if (!std::ifstream(folder + "/" + file)) {
            printf("SKIPPED: no %s/%s; nvcc makes it (test-nvcc)\n", folder.c_str(), file.c_str());
            return 0;
        }
        const std::string error = code.load(folder + "/" + file);
        if (!error.empty()) {
            fprintf(stderr, "%s\n", error.c_str());
            return 1;
        }
    }
    return -1;
}

std::string ptx_session::launch(const void * function, ptx::extent grid, ptx::extent block,
        const void * args, size_t args_bytes, ptx::memory & memory) {
    const std::string name = ptx::name_of_function(function);
    const auto        found = code.kernels.find(name);
    if (found == code.kernels.end()) {
        return "no kernel " + name + " in the PTX";
    }
    last.push_back(name);
    used_mma = used_mma || found->second.has_mma;
    return ptx::launch(
            found->second, grid, block, args, args_bytes, memory, order, &kernels[name].n);
}

bool ptx_session::next_order(double nmse, bool every) {
    for (const std::string & name : last) {
        kernels[name].worst = std::max(kernels[name].worst, nmse);
    }
    last.clear();
    if (!used_mma) {
        return false;
    }
    used_mma = false;
    order = (mma_order) ((order + 1) % N_MMA_ORDERS);
    if (every && (all || n_mma % 8 == 0) && ++n_turns < N_MMA_ORDERS) {
        return true;
    }
    ++n_mma;
    n_turns = 0;
    return false;
}

std::string ptx_session::damage(const std::string & file, const ptx::edit & e) {
    ptx::module       broken;
    const std::string error = broken.load(folder + "/" + file, &e);
    for (auto & one : broken.kernels) {
        std::swap(code.kernels[one.first], one.second);
    }
    saved = std::move(broken);
    return error;
}

void ptx_session::repair() {
    for (auto & one : saved.kernels) {
        code.kernels[one.first] = std::move(one.second);
    }
    saved.kernels.clear();
}

// householder_step<128, 0, false> instead of the mangled name
static std::string readable(const std::string & name) {
    int               status = 0;
    char *            text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    const std::string all = status == 0 ? text : name;
    free(text);
    const size_t begin = all.compare(0, 5, "void ") == 0 ? 5 : 0;
    return all.substr(begin, all.find('(') - begin);
}

int ptx_session::print(bool chunk) const {
    int missing = 0;
    printf("PTX executed; instructions of warps, and the worst NMSE of a node:\n");
    for (const auto & one : code.kernels) {
        if ((one.first.find("chunk") != std::string::npos) != chunk) {
            continue;
        }
        const auto ran = kernels.find(one.first);
        if (ran == kernels.end()) {
            ++missing;
            printf("  %-40s did not run\n", readable(one.first).c_str());
        } else {
            printf("  %-40s %6lld launches %12lld instructions   %8.1e\n",
                    readable(one.first).c_str(), (long long) ran->second.n.launches,
                    (long long) ran->second.n.instructions, ran->second.worst);
        }
    }
    return missing;
}

void ptx_session::print_counts(const char * what) {
    printf("%s\n", what);
    for (const std::string & name : last) {
        const ptx::counts & n = kernels[name].n;
        printf("  %-38s %6lld blocks %10lld instructions %7lld F64 %8lld mma %7lld barriers\n"
               "  %38s global: %8lld requests %9lld sectors %11lld bytes; shared: %11lld bytes\n",
                readable(name).c_str(), (long long) n.blocks, (long long) n.instructions,
                (long long) n.doubles, (long long) n.products, (long long) n.barriers, "",
                (long long) n.requests, (long long) n.sectors, (long long) n.global_bytes,
                (long long) n.shared_bytes);
    }
    last.clear();
    kernels.clear();
}
