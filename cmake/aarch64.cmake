# Toolchain file: builds for ARM on another Linux machine and runs the tests in an emulator. Debian:
# gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu and qemu-user.
#
#     cmake -B build-aarch64 --toolchain cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release
#         -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

set(GGML_NATIVE         OFF CACHE BOOL "")
set(LRNN_BUILD_EXAMPLES OFF CACHE BOOL "") # a program describes itself after it is built
set(LRNN_SERVER         OFF CACHE BOOL "")
set(LRNN_CONVERTER      OFF CACHE BOOL "")
