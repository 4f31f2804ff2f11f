# A build with several variants of ggml-cpu, on emulated CPUs without AVX-512 and without AVX.
#
#   cmake -DBUILD=<build tree> -P test-variants-emulated.cmake

cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/variants.cmake")

find_program(qemu qemu-x86_64)
if (NOT qemu)
    message("SKIPPED: no qemu-x86_64 (Debian: qemu-user)")
    return()
endif()
expect("Haswell" haswell "${qemu}" -cpu Haswell)
golden("Haswell" "delta_net_neg;mamba2" "${qemu}" -cpu Haswell)
same_text("Haswell" "${qemu}" -cpu Haswell)
expect("Nehalem" x64 "${qemu}" -cpu Nehalem)
same_text("Nehalem" "${qemu}" -cpu Nehalem)
