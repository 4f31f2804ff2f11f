# Builds ggml with our ops: finds the sources, copies them into the build tree, inserts the glue and
# builds the copy.

include(cmake/cuda-architectures.cmake)
include(cmake/ggml-source.cmake)
include(cmake/glue.cmake)

lrnn_ggml_source(LRNN_GGML_SOURCE LRNN_GGML_BUILD_COMMIT
    "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/ggml-source")
set(LRNN_GGML_COPY "${PROJECT_BINARY_DIR}/ggml-copy")
glue_apply("${LRNN_GGML_SOURCE}" "${LRNN_GGML_COPY}")

foreach (name IN LISTS GLUE_EDITS)
    set_property(DIRECTORY APPEND PROPERTY
        CMAKE_CONFIGURE_DEPENDS "${LRNN_GGML_SOURCE}/${GLUE_${name}_FILE}")
endforeach()

# Options that llama.cpp sets and ggml does not. Without them, a benchmark against llama.cpp would
# compare builds, not kernels.
set(GGML_LLAMAFILE_DEFAULT   ON)
set(GGML_CUDA_GRAPHS_DEFAULT ON)
if (NOT DEFINED GGML_RPC)
    set(GGML_RPC ON)
endif()
set(GGML_BUILD_TESTS    OFF)
set(GGML_BUILD_EXAMPLES OFF)

if (LRNN_SANITIZE STREQUAL "THREAD")
    set(GGML_SANITIZE_THREAD ON)
    set(GGML_OPENMP          OFF) # the sanitizer does not see the barriers of libgomp
elseif (LRNN_SANITIZE)
    set(GGML_SANITIZE_ADDRESS   ON)
    set(GGML_SANITIZE_UNDEFINED ON)
endif()

if (LRNN_CUDA)
    set(GGML_CUDA ON)
    # By default ggml asks for the GPU of the build machine, which may have none. One architecture
    # is compiled to code, and to PTX for later ones.
    if (NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
        list(GET LRNN_CUDA_ARCHITECTURES 0 CMAKE_CUDA_ARCHITECTURES)
        if (NOT "$ENV{CUDAARCHS}" STREQUAL "")
            set(CMAKE_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}")
        elseif (LRNN_CUDA_NATIVE)
            set(CMAKE_CUDA_ARCHITECTURES native)
        endif()
    endif()
endif()

# These options compile ggml's sources under other target names, which would lack our kernels.
foreach (option GGML_BACKEND_DL GGML_CPU_ALL_VARIANTS GGML_HIP GGML_MUSA)
    if (${option})
        message(FATAL_ERROR "${option} is ${${option}}; expected OFF, because lrnn builds its ops "
                            "for one CPU variant and for CUDA only.")
    endif()
endforeach()

# The copy is inside our repository, so ggml would report our commit as its own.
set(GIT_EXE OFF)
set(GGML_BUILD_COMMIT "${LRNN_GGML_BUILD_COMMIT}")

# EXCLUDE_FROM_ALL: only the parts that we link are built, and ggml's install rules do not run.
# cmake/install.cmake installs ggml under names that cannot clash with another ggml.
add_subdirectory("${LRNN_GGML_COPY}" "${PROJECT_BINARY_DIR}/ggml" EXCLUDE_FROM_ALL)
# The scheduler reserves headers for this many copied tensors per node. ggml's 30 add up to 160 MB
# for a model of 24 layers; our graphs copy two or three tensors per change of device.
set(LRNN_SCHED_SPLIT_INPUTS 4)
target_compile_definitions(ggml-base PRIVATE GGML_SCHED_MAX_SPLIT_INPUTS=${LRNN_SCHED_SPLIT_INPUTS})
if (CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 takes the undefined lanes in its own header of AVX-512 for a defect, hundreds of times
    target_compile_options(ggml-cpu PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
if (LRNN_SANITIZE)
    # disables ggml's assertions that values are finite: values of a model file or a state may
    # overflow and must not end the process
    target_compile_definitions(ggml-cpu PRIVATE NDEBUG)
endif()

get_directory_property(LRNN_GGML_VERSION DIRECTORY "${LRNN_GGML_COPY}" DEFINITION GGML_VERSION)

if (TARGET ggml-cuda) # compiler and architectures, which the programs print
    get_directory_property(compiler
        DIRECTORY "${LRNN_GGML_COPY}/src/ggml-cuda" DEFINITION CMAKE_CUDA_COMPILER_VERSION)
    get_target_property(archs ggml-cuda CUDA_ARCHITECTURES)
    list(TRANSFORM archs REPLACE "^([0-9]+[af]?).*$" "sm_\\1")
    list(JOIN archs ", " archs)
    set(LRNN_CUDA_COMPILED "nvcc ${compiler}, ${archs}")
endif()
