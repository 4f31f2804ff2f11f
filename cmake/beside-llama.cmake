# beside-llama: builds llama.cpp's own benchmarks from the archive that ggml comes from, and
# compares them with ours on the same files (tests/tools/beside-llama). beside-llama-server: the
# same for its server (tests/tools/beside-llama-server). beside-llama-logits: compares the logits of
# random models (tests/tools/beside-llama-logits).
#
#     cmake --build build --target beside-llama
#     cmake --build build --target beside-llama-logits
#     cmake --build build --target beside-llama-server
#
# The file is also the script that builds llama.cpp:
#
#     cmake -DWORK=<folder> -DPROGRAMS=<list> -DNATIVE=<ON|OFF> -P beside-llama.cmake
#
# Both sides are compiled for the same CPUs: this one, or all with AVX2 (GGML_NATIVE=OFF).

if (CMAKE_SCRIPT_MODE_FILE)
    cmake_minimum_required(VERSION 3.25)
    include("${CMAKE_CURRENT_LIST_DIR}/ggml-source.cmake")

    # named after the hash and renamed when complete, so an existing folder is complete and pinned
    string(SUBSTRING "${LRNN_GGML_PACKAGE_SHA256}" 0 12 hash)
    set(source "${WORK}/llama.cpp-${hash}")
    if (NOT EXISTS "${source}")
        lrnn_package_archive(archive GGML "${WORK}")
        set(content "${LRNN_GGML_PACKAGE_STEM}/vendor/llama.cpp")
        file(REMOVE_RECURSE "${WORK}/unpack")
        file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${WORK}/unpack"
            PATTERNS "${content}/*")
        file(RENAME "${WORK}/unpack/${content}" "${source}")
        file(REMOVE_RECURSE "${WORK}/unpack")
    endif()

    message(STATUS "Building ${PROGRAMS} (several minutes, once)")
    execute_process(COMMAND "${CMAKE_COMMAND}" -S "${source}" -B "${WORK}/llama-build"
            -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF
            -DLLAMA_OPENSSL=OFF "-DGGML_NATIVE=${NATIVE}"
            "-DCMAKE_PROJECT_INCLUDE=${CMAKE_CURRENT_LIST_DIR}/llama-logits.cmake"
        OUTPUT_FILE "${WORK}/configure.log" ERROR_FILE "${WORK}/configure.log"
        COMMAND_ERROR_IS_FATAL ANY)
    cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
    execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/llama-build" --parallel ${cores}
            --config Release --target ${PROGRAMS}
        OUTPUT_FILE "${WORK}/build.log" ERROR_FILE "${WORK}/build.log"
        COMMAND_ERROR_IS_FATAL ANY)
    return()
endif()

# Builds programs of llama.cpp and of ours and calls a script of tests/tools, the name of the
# target, in the environment of lrnn-convert. tests/source/test_tools.py compares the lists with the
# script.
function(lrnn_add_comparison name)
    cmake_parse_arguments(arg "" "" "LLAMA;LRNN" ${ARGN})
    set(work "${PROJECT_BINARY_DIR}/beside-llama")
    add_custom_target(${name}
        COMMAND "${CMAKE_COMMAND}" -E make_directory "${work}"
        COMMAND "${CMAKE_COMMAND}" "-DWORK=${work}" "-DPROGRAMS=${arg_LLAMA}"
            "-DNATIVE=${GGML_NATIVE}"
            -P "${PROJECT_SOURCE_DIR}/cmake/beside-llama.cmake"
        COMMAND "${PROJECT_BINARY_DIR}/convert-env/bin/python"
            "${PROJECT_SOURCE_DIR}/tests/tools/${name}"
            --bin "${PROJECT_BINARY_DIR}/bin" --llama "${work}/llama-build/bin" --work "${work}"
        USES_TERMINAL VERBATIM)
    add_dependencies(${name} ${arg_LRNN})
endfunction()

lrnn_add_comparison(beside-llama
    LLAMA llama-batched-bench llama-bench llama-perplexity llama-quantize
    LRNN lrnn-bench lrnn-convert lrnn-perplexity lrnn-quantize)
lrnn_add_comparison(beside-llama-logits
    LLAMA llama-logits llama-quantize
    LRNN lrnn lrnn-convert)
if (TARGET lrnn-server)
    lrnn_add_comparison(beside-llama-server
        LLAMA llama-quantize llama-server
        LRNN lrnn-convert lrnn-quantize lrnn-server)
endif()
