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
    set(GGML_CUDA_FA_QUANTS "f16-f16;q8_0-q8_0") # of the cache; it is a cache variable of ggml
    # By default ggml asks for the GPU of the build machine, which may have none. One architecture
    # is compiled to PTX, which the driver of this and any later GPU compiles when it is loaded.
    if (NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
        list(GET LRNN_CUDA_ARCHITECTURES 0 first)
        set(CMAKE_CUDA_ARCHITECTURES "${first}-virtual")
        if (NOT "$ENV{CUDAARCHS}" STREQUAL "")
            set(CMAKE_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}")
        elseif (LRNN_CUDA_NATIVE)
            set(CMAKE_CUDA_ARCHITECTURES native)
        endif()
    endif()
endif()

if (LRNN_VULKAN)
    find_package(Vulkan COMPONENTS glslc)
    find_package(SPIRV-Headers CONFIG)
    set(missing "")
    foreach (what IN ITEMS "Vulkan_INCLUDE_DIR:headers:libvulkan-dev"
            "Vulkan_LIBRARY:loader:libvulkan-dev" "Vulkan_GLSLC_EXECUTABLE:glslc:glslc"
            "SPIRV-Headers_FOUND:SPIR-V headers:spirv-headers")
        string(REPLACE ":" ";" what "${what}")
        list(POP_FRONT what variable thing package)
        if (NOT ${variable})
            list(APPEND missing "${thing} (Debian package ${package})")
        endif()
    endforeach()
    if (missing)
        list(JOIN missing ", " missing)
        message(FATAL_ERROR "LRNN_VULKAN is ON, but not found: ${missing}. Install them, or "
                            "configure with LRNN_VULKAN=OFF.")
    endif()
    set(GGML_VULKAN ON)
endif()

# With GGML_BACKEND_DL and GGML_CPU_ALL_VARIANTS, ggml-cpu is compiled several times, as libraries
# that are loaded at run time. ggml has 14 variants for x86. These are all that our kernels differ
# in: SSE2; AVX2; AVX2 with AVX-VNNI; AVX-512 with VNNI; and with BF16.
set(LRNN_X86_VARIANTS x64 haswell alderlake cascadelake zen4)

# These options compile ggml's sources under other target names, which would lack our kernels.
foreach (option GGML_HIP GGML_MUSA)
    if (${option})
        message(FATAL_ERROR "${option} is ${${option}}; expected OFF, because lrnn builds its ops "
                            "for CPUs, CUDA and Vulkan only.")
    endif()
endforeach()

# The copy is inside our repository, so ggml would report our commit as its own.
set(GIT_EXE OFF)
set(GGML_BUILD_COMMIT "${LRNN_GGML_BUILD_COMMIT}")

# EXCLUDE_FROM_ALL: only the parts that we link are built, and ggml's install rules do not run.
# cmake/install.cmake installs ggml under names that cannot clash with another ggml.
add_subdirectory("${LRNN_GGML_COPY}" "${PROJECT_BINARY_DIR}/ggml" EXCLUDE_FROM_ALL)
# the list is cached and may name backends of an earlier configuration
set(LRNN_GGML_BACKENDS "")
foreach (backend IN LISTS GGML_AVAILABLE_BACKENDS)
    if (TARGET ${backend})
        list(APPEND LRNN_GGML_BACKENDS ${backend})
    endif()
endforeach()
set(LRNN_CPU_TARGETS ${LRNN_GGML_BACKENDS})
list(FILTER LRNN_CPU_TARGETS INCLUDE REGEX "^ggml-cpu")


# The files of ggml-cuda that our graphs reach; src/ops/cuda/reach.cu stands in for the others.
if (TARGET ggml-cuda)
    set(LRNN_GGML_CUDA_FILES
        arange argsort binbcast clamp concat convert cpy fattn fill gated_delta_net getrows
        ggml-cuda gla mmid mmq mmvf mmvq moe-weighted-reduction norm quantize rope scale set-rows
        softcap softmax ssm-conv ssm-scan sumrows topk-moe unary wkv
        fattn-mma-f16-instance-ncols1_[0-9]+-ncols2_[1248] fattn-vec-instance-.*
        mmq-instance-q4_0 mmq-instance-q5_0 mmq-instance-q5_1 mmq-instance-q8_0 mmq-instance-q4_k
        mmq-instance-q5_k mmq-instance-q6_k)
    list(JOIN LRNN_GGML_CUDA_FILES "|" files)
    get_target_property(sources ggml-cuda SOURCES)
    list(FILTER sources INCLUDE REGEX "/(${files})\\.cu$")
    set_target_properties(ggml-cuda PROPERTIES SOURCES "${sources}")
endif()
# The scheduler reserves headers for this many copied tensors per node. ggml's 30 add up to 160 MB
# for a model of 24 layers; our graphs copy two or three tensors per change of device.
set(LRNN_SCHED_SPLIT_INPUTS 4)
target_compile_definitions(ggml-base PRIVATE GGML_SCHED_MAX_SPLIT_INPUTS=${LRNN_SCHED_SPLIT_INPUTS})
foreach (target IN LISTS LRNN_CPU_TARGETS)
    if (CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # GCC 12 takes the undefined lanes in its own header of AVX-512 for a defect, hundreds of
        # times
        target_compile_options(${target} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    if (LRNN_SANITIZE)
        # disables ggml's assertions that values are finite: values of a model file or a state may
        # overflow and must not end the process
        target_compile_definitions(${target} PRIVATE NDEBUG)
    endif()
endforeach()

get_directory_property(LRNN_GGML_VERSION DIRECTORY "${LRNN_GGML_COPY}" DEFINITION GGML_VERSION)

if (TARGET ggml-cuda) # compiler and architectures, which the programs print
    get_directory_property(compiler
        DIRECTORY "${LRNN_GGML_COPY}/src/ggml-cuda" DEFINITION CMAKE_CUDA_COMPILER_VERSION)
    get_target_property(archs ggml-cuda CUDA_ARCHITECTURES)
    list(TRANSFORM archs REPLACE "^([0-9]+[af]?).*$" "sm_\\1")
    list(JOIN archs ", " archs)
    set(LRNN_CUDA_COMPILED "nvcc ${compiler}, ${archs}")
endif()
