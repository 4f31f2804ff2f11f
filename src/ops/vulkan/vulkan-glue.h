#pragma once

// What the lines inserted into ggml-vulkan call (cmake/glue.cmake). They include this header after
// ggml-vulkan's own.

#include "lrnn-ops.h" // ggml_is_scan

// A shader as ggml-vulkan makes a pipeline of it
struct ggml_lrnn_vk_shader {
    const char * name;
    size_t       size; // in bytes
    const void * code; // SPIR-V
    uint32_t     n_bindings;
    uint32_t     push_size; // in bytes
    bool         subgroups; // its invocations shuffle: whole subgroups only
};

// The device keeps one pipeline per key: the number of a shader, then the values of its
// specialization constants.
ggml_lrnn_vk_shader ggml_lrnn_vk_shader_of(const std::vector<uint32_t> & key);

void ggml_lrnn_vk_forward(ggml_backend_vk_context * ctx, vk_context & subctx, ggml_tensor * dst);
bool ggml_lrnn_vk_supports_op(const vk_device & device, const ggml_tensor * op);

// Not NULL if operands must not be rounded to F16: unless LRNN_VULKAN_F16 is set to something else
// than 0.
const char * ggml_lrnn_vk_disable_f16();
