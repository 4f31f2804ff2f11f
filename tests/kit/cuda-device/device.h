#pragma once

// A CUDA device in software. The library cuda-device, loaded before NVIDIA's libraries
// (LD_PRELOAD), takes the place of libcudart and libcublas: memory is host memory, kernels are
// interpreted from the PTX in the fat binaries (kit/ptx), products are loops.
//
//     LRNN_CUDA_DEVICES  number of devices, 1 or 2; default 1
//     LRNN_CUDA_MEMORY   bytes of memory of each; default 1 GiB
//     LRNN_CUDA_COMPUTE  compute capability, times 10; default 80
//     LRNN_CUDA_IDLE     1: kernels and products are checked and counted (counts.h), but not run;
//                        memory begins with zeros
//     LRNN_CUDA_REPORT   a file: kernels that ran, with launches and instructions
//     LRNN_CUDA_BREAK    a defect that tests must notice: "event", streams wait for no event;
//                        "peer", nothing is copied between devices; "synchronize", the host waits
//                        for no stream; "graph", all captured graphs are the first one; NAME+N, the
//                        32-bit argument N bytes into those of kernels called NAME is one too large
//
// Streams run as late as the program allows: only when it waits. Then, at random, only what it
// waits for runs, or everything on the other streams first, so that work that should have waited
// for another stream comes too early. A value that nobody has written may be copied, but not decide
// anything and not reach the host. The first error is printed, and every later call fails.

#include "kit/ptx/ptx.h"

#include <functional>
#include <string>

struct device_stream;

namespace device {

// Runs work on a stream, or records it if the stream is captured.
void submit(device_stream * stream, std::function<void()> work);

// The stream of a handle of CUDA
device_stream * stream_of(void * handle);

void fail(const std::string & what);
bool is_idle();

// Bytes of a device: where they are, with a check that they are allocated and, unless written,
// defined. NULL after fail().
char * bytes_of(const void * address, size_t size, bool write, const char * who);

} // namespace device
