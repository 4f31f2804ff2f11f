# Compiles our CUDA files, and nothing else of ggml-cuda, with the flags that ggml-cuda is compiled with, for one architecture. A warning is an error.
# What the compiler says of each kernel is left in LOG, for test-kernel-table.
#
#   cmake -DOPS=<src/ops> -DGGML=<ggml with our glue> -DARCH=<architecture> -DWORK=<directory> -DLOG=<file> -P test-nvcc.cmake

cmake_minimum_required(VERSION 3.25)

file(REMOVE "${LOG}")
find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
if (NOT NVCC)
    message("SKIPPED: there is no nvcc here")
    return()
endif()

file(MAKE_DIRECTORY "${WORK}")
execute_process(COMMAND "${NVCC}" --version OUTPUT_VARIABLE log)
file(GLOB sources "${OPS}/cuda/*.cu")
foreach (source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    execute_process(
        COMMAND "${NVCC}" -std=c++17 -O3 -use_fast_math -extended-lambda "-arch=sm_${ARCH}" -Werror all-warnings -DGGML_CUDA_NO_VMM --resource-usage
            "-I${OPS}" "-I${GGML}/include" "-I${GGML}/src" -c "${source}" -o "${WORK}/${name}.o"
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if (NOT result EQUAL 0)
        message(FATAL_ERROR "nvcc does not compile ${source} for sm_${ARCH}:\n${output}")
    endif()
    string(APPEND log "${output}")
    message(STATUS "sm_${ARCH}: ${name}.cu")
endforeach()
file(WRITE "${LOG}" "${log}")
