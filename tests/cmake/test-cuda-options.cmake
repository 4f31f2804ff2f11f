# In a build with CUDA, ggml's kernels of attention are compiled if our graphs use them. Otherwise
# attention would run on the CPU, with its cache on the GPU. Needs no CUDA: ggml's own
# CMakeLists.txt is only read.
#
#   cmake -DGGML=<ggml> -DWORK=<scratch folder> -P test-cuda-options.cmake     in the source folder

cmake_minimum_required(VERSION 3.25)

set(op     "ggml_flash_attn_ext(")
set(option GGML_CUDA_FA)

# ---- the need

set(users "")
file(GLOB_RECURSE sources "${CMAKE_SOURCE_DIR}/src/*.c")
foreach (source IN LISTS sources)
    file(READ "${source}" text)
    string(FIND "${text}" "${op}" at)
    if (NOT at EQUAL -1)
        list(APPEND users "${source}")
    endif()
endforeach()
if (NOT sources OR NOT users)
    message(FATAL_ERROR "no source calls ${op}); this test and ${option} have no purpose")
endif()

# ---- the options, as they are when ggml is configured

file(STRINGS "${GGML}/CMakeLists.txt" default REGEX "^option\\(${option} ")
if (NOT default MATCHES "(ON|OFF)\\)")
    message(FATAL_ERROR "ggml has no option ${option}")
endif()
set(default "${CMAKE_MATCH_1}")

macro(add_subdirectory) # ends cmake/ggml.cmake where it would configure ggml
    set(configured TRUE)
    return()
endmacro()
set(LRNN_CUDA          ON)
set(LRNN_GGML_DIR      "${GGML}")
set(PROJECT_SOURCE_DIR "${CMAKE_SOURCE_DIR}")
set(PROJECT_BINARY_DIR "${WORK}")
include(cmake/ggml.cmake)

if (NOT DEFINED ${option})
    set(${option} ${default})
endif()
if (NOT configured OR NOT GGML_CUDA OR NOT ${option})
    message(FATAL_ERROR "GGML_CUDA is ${GGML_CUDA} and ${option} is ${${option}}; expected ON: "
                        "${users} call ${op})")
endif()
file(REMOVE_RECURSE "${WORK}")
