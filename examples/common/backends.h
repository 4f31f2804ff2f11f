#pragma once

// ggml's backends: their start, their messages, the CPU's features, and GPUs that are missing.

#include <stdbool.h>
#include <stddef.h>

// Starts ggml's backends, once per process. From then on ggml prints only warnings and errors to
// stderr. If the CUDA backend starts without a GPU, its error message is kept for
// backends_why_no_gpu.
void backends_start(void);

// Prints the last message of ggml and ends the program. backends_start installs it.
void backends_on_abort(const char * message);

// The same with another function that registers backends, for tests.
void backends_start_with(void (*start)(void));

// True if ggml has a GPU, integrated ones included.
bool backends_have_gpu(void);

// True if this build has the CUDA backend, but found no GPU. `text` is then "no CUDA GPU was
// found", followed by the reason if CUDA gave one.
bool backends_why_no_gpu(char * text, size_t text_size);

// The instruction sets that the kernels of the CPU use, separated by spaces.
void backends_cpu_features(char * list, size_t list_size);

// How the CUDA backend of this build was compiled and tested, in one sentence; "" without CUDA.
const char * backends_cuda_notice(void);
