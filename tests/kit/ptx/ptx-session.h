#pragma once

// PTX files of the kernels, and a record of what ran: for tests that can run a node either by
// emulating the source of its kernels or by interpreting their PTX.

#include "kit/ptx/ptx.h"

struct ptx_session {
    struct record {
        ptx::counts n;
        double      worst = 0.0; // NMSE of any node that used the kernel
    };

    bool on = false;
    bool all = false;   // all cases of a test; otherwise a part of them
    bool count = false; // only count what the kernels of some shapes execute
    int  n_random = 0;  // random cases seen so far
    int  n_mma = 0;     // nodes with mma so far
    int  n_turns = 0;   // orders in which the current one ran

    ptx::module                   code;
    std::map<std::string, record> kernels; // by name in the PTX
    std::vector<std::string>      last;    // launched for the current node
    mma_order                     order = MMA_ALIGNED;
    bool                          used_mma = false;
    std::string                   folder;
    ptx::module                   saved; // kernels that damage() replaced

    // Reads --ptx <folder>, --all and --count, and loads the files. Returns -1, or the exit code
    // with which the test has to end: an option or a file is invalid, or there are no files.
    int begin(int argc, char ** argv, const std::vector<std::string> & files);

    // Runs a kernel, given as the function of this program.
    std::string launch(const void * function, ptx::extent grid, ptx::extent block,
            const void * args, size_t args_bytes, ptx::memory & memory);

    // Records the error of the last node. Returns true if the node has to run again, with mma
    // adding in another order: in all orders, if `every`; otherwise nodes take turns. Without --all
    // only every eighth node runs in all orders.
    bool next_order(double nmse, bool every);

    // True for the random cases that run: without --all, one in `share`.
    bool takes(int share) {
        return !on || all || n_random++ % share == 0;
    }

    // Replaces a kernel by an edited one, until repair(). Returns an error; empty: none.
    std::string damage(const std::string & file, const ptx::edit & e);
    void repair();

    // Prints a table of the kernels whose names contain `chunk`, or of the others; returns the
    // number that did not run.
    int print(bool chunk) const;

    // Prints what the kernels of the last node executed, and forgets it.
    void print_counts(const char * what);
};
