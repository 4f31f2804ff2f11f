# Compiles the CUDA files of src/ops for one architecture, with the flags of ggml-cuda. A warning is
# an error. So is a kernel that uses local memory, for spilled registers or for an indexed array.
# The PTX stays in WORK, for the tests that interpret it.
#
#   cmake -DOPS=<src/ops> -DGGML=<ggml with the glue> -DARCH=<architecture> -DWORK=<directory>
#         -P test-nvcc.cmake

cmake_minimum_required(VERSION 3.25)

# local_memory(<kernels> <local> <log>): the number of kernels in the output of
# nvcc --resource-usage, and one line for each function that uses local memory
function(local_memory out_kernels out_local log)
    string(REGEX MATCHALL "Compiling entry function '" kernels "${log}")
    list(LENGTH kernels n_kernels)
    set(n "([0-9]+) bytes")
    string(CONCAT properties "Function properties for ([^\n]+)\n"
        " *${n} stack frame, ${n} spill stores, ${n} spill loads")
    string(REGEX MATCHALL "${properties}" functions "${log}")
    list(LENGTH functions n_functions)
    if (n_functions LESS n_kernels)
        message(FATAL_ERROR
            "nvcc reports ${n_kernels} kernels but the properties of ${n_functions} functions")
    endif()
    set(local "")
    foreach (function IN LISTS functions)
        string(REGEX MATCH "${properties}" match "${function}")
        if (NOT "${CMAKE_MATCH_2} ${CMAKE_MATCH_3} ${CMAKE_MATCH_4}" STREQUAL "0 0 0")
            string(APPEND local "${CMAKE_MATCH_1}: ${CMAKE_MATCH_2} bytes of local memory, "
                                "${CMAKE_MATCH_3} spilled, ${CMAKE_MATCH_4} reloaded\n")
        endif()
    endforeach()
    set(${out_kernels} ${n_kernels} PARENT_SCOPE)
    set(${out_local}   "${local}"   PARENT_SCOPE)
endfunction()

# expect_local(<local> <bytes of stack frame, spill stores, spill loads>): tests local_memory itself
function(expect_local expected frame stores loads)
    local_memory(kernels local
        "ptxas info    : Compiling entry function '_Z4scan' for 'sm_80'
ptxas info    : Function properties for _Z4scan
    ${frame} bytes stack frame, ${stores} bytes spill stores, ${loads} bytes spill loads
ptxas info    : Used 72 registers, used 1 barriers, 9000 bytes smem, 728 bytes cmem[0]\n")
    if (NOT kernels EQUAL 1 OR NOT local STREQUAL expected)
        message(FATAL_ERROR "local_memory: expected 1 kernel and '${expected}', "
                            "got ${kernels} and '${local}'")
    endif()
endfunction()

expect_local("" 0 0 0)
expect_local("_Z4scan: 8 bytes of local memory, 4 spilled, 12 reloaded\n" 8 4 12)
expect_local("_Z4scan: 8 bytes of local memory, 0 spilled, 0 reloaded\n" 8 0 0)

file(REMOVE_RECURSE "${WORK}") # no PTX of an earlier run
find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
if (NOT NVCC)
    message("SKIPPED: nvcc not found")
    return()
endif()

file(MAKE_DIRECTORY "${WORK}")
file(GLOB sources "${OPS}/cuda/*.cu")
set(n_kernels 0)
set(all_local "")
foreach (source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    execute_process(
        COMMAND "${NVCC}" -std=c++17 -O3 -use_fast_math -extended-lambda "-arch=sm_${ARCH}"
            -Werror all-warnings -DGGML_CUDA_NO_VMM --resource-usage
            "-I${OPS}" "-I${GGML}/include" "-I${GGML}/src" -keep -keep-dir "${WORK}"
            -c "${source}" -o "${WORK}/${name}.o"
        RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
    if (NOT result EQUAL 0)
        message(FATAL_ERROR "nvcc does not compile ${source} for sm_${ARCH}:\n${log}")
    endif()
    local_memory(kernels local "${log}")
    math(EXPR n_kernels "${n_kernels} + ${kernels}")
    string(APPEND all_local "${local}")
    message(STATUS "sm_${ARCH}: ${name}.cu, ${kernels} kernels")
endforeach()
if (n_kernels EQUAL 0)
    message(FATAL_ERROR "nvcc reports no kernel for sm_${ARCH}")
endif()
if (NOT all_local STREQUAL "")
    message(FATAL_ERROR "kernels use local memory on sm_${ARCH}:\n${all_local}")
endif()
message(STATUS "sm_${ARCH}: none of ${n_kernels} kernels uses local memory")
