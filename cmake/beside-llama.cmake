# beside-llama: builds llama.cpp's own benchmarks from the archive that ggml comes from, and
# compares them with ours on the same files (tests/tools/beside-llama).
#
#     cmake --build build --target beside-llama
#
# The file is also the script that builds llama.cpp:
#
#     cmake -DWORK=<folder> -P beside-llama.cmake

set(LRNN_LLAMA_PROGRAMS llama-bench llama-batched-bench llama-perplexity)

if (CMAKE_SCRIPT_MODE_FILE)
    cmake_minimum_required(VERSION 3.25)
    include("${CMAKE_CURRENT_LIST_DIR}/ggml-source.cmake")

    # named after the hash and renamed when complete, so an existing folder is complete and pinned
    string(SUBSTRING "${LRNN_GGML_PACKAGE_SHA256}" 0 12 hash)
    set(source "${WORK}/llama.cpp-${hash}")
    if (NOT EXISTS "${source}")
        lrnn_ggml_archive(archive "${WORK}")
        set(content "${LRNN_GGML_PACKAGE_STEM}/vendor/llama.cpp")
        file(REMOVE_RECURSE "${WORK}/unpack")
        file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${WORK}/unpack"
            PATTERNS "${content}/*")
        file(RENAME "${WORK}/unpack/${content}" "${source}")
        file(REMOVE_RECURSE "${WORK}/unpack")
    endif()

    message(STATUS "Building ${LRNN_LLAMA_PROGRAMS} (several minutes, once)")
    execute_process(COMMAND "${CMAKE_COMMAND}" -S "${source}" -B "${WORK}/llama-build"
            -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF
            -DLLAMA_OPENSSL=OFF
        OUTPUT_FILE "${WORK}/configure.log" ERROR_FILE "${WORK}/configure.log"
        COMMAND_ERROR_IS_FATAL ANY)
    cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
    execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/llama-build" --parallel ${cores}
            --config Release --target ${LRNN_LLAMA_PROGRAMS}
        OUTPUT_FILE "${WORK}/build.log" ERROR_FILE "${WORK}/build.log"
        COMMAND_ERROR_IS_FATAL ANY)
    return()
endif()

set(work "${PROJECT_BINARY_DIR}/beside-llama")
add_custom_target(beside-llama
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${work}"
    COMMAND "${CMAKE_COMMAND}" "-DWORK=${work}" -P "${CMAKE_CURRENT_LIST_FILE}"
    COMMAND "${PROJECT_BINARY_DIR}/convert-env/bin/python"
        "${PROJECT_SOURCE_DIR}/tests/tools/beside-llama"
        --bin "${PROJECT_BINARY_DIR}/bin" --llama "${work}/llama-build/bin" --work "${work}"
    USES_TERMINAL VERBATIM)
add_dependencies(beside-llama lrnn-bench lrnn-perplexity lrnn-quantize)
