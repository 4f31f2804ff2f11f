# Runs the tests and benchmarks that need a GPU, and writes one text file to send back: device and
# driver, the output of each step, and at the top what passed. A step that fails stops nothing.
#
#   cmake -DBUILD=<build tree> -DSOURCE=<source tree> -DREPORT=<file> -P gpu-report.cmake
#
# Environment: LRNN_GPU, the device (default CUDA0); LRNN_GPU_REPORT_LIMIT, seconds of a step
# (default 1800), after which it is stopped and the report goes on.

cmake_minimum_required(VERSION 3.25)

set(device "$ENV{LRNN_GPU}")
if (device STREQUAL "")
    set(device CUDA0)
endif()
set(limit "$ENV{LRNN_GPU_REPORT_LIMIT}")
if (limit STREQUAL "")
    set(limit 1800)
endif()
set(models "${SOURCE}/models")
set(summary "")
file(WRITE "${REPORT}.steps" "")

# step(<title> <program> <argument>...)
function(step title)
    message(STATUS "${title}")
    string(TIMESTAMP begin "%s")
    execute_process(COMMAND ${ARGN} TIMEOUT "${limit}" RESULT_VARIABLE result
        OUTPUT_FILE "${REPORT}.output" ERROR_FILE "${REPORT}.output")
    string(TIMESTAMP end "%s")
    math(EXPR seconds "${end} - ${begin}")
    file(READ "${REPORT}.output" output)
    if (output MATCHES "(^|\n)SKIPPED: ")
        set(result "skipped")
    elseif (result STREQUAL "0" AND output MATCHES "[1-9][0-9]* of [0-9]+ answers wrong")
        set(result "FAILED (wrong answers)")
    elseif (result STREQUAL "0")
        set(result "passed")
    elseif (result MATCHES "timeout")
        set(result "stopped")
    else()
        set(result "FAILED (${result})")
    endif()
    string(REPLACE ";" " " command "${ARGN}")
    string(REPLACE "${BUILD}/" "" command "${command}")
    string(REPLACE "${SOURCE}/" "" command "${command}")
    file(APPEND "${REPORT}.steps"
        "\n==== ${title}: ${result}, ${seconds} s\n$ ${command}\n${output}")
    set(summary "${summary}${title}: ${result}, ${seconds} s\n" PARENT_SCOPE)
endfunction()

step("build"          "${BUILD}/bin/lrnn-cli" --version)
step("devices"        "${BUILD}/bin/lrnn-inspect" --devices)
step("driver"         nvidia-smi -q -d MEMORY,CLOCK,POWER,COMPUTE)
step("golden logits"  "${BUILD}/tests/test-gpu")
step("golden logits, no graphs"
    "${CMAKE_COMMAND}" -E env GGML_CUDA_DISABLE_GRAPHS=1 "${BUILD}/tests/test-gpu")
foreach (name IN ITEMS kernels chunk signed-chunk lstm)
    foreach (pdl IN ITEMS 1 0)
        step("${name}, dependent launch ${pdl}" "${CMAKE_COMMAND}" -E env GGML_CUDA_PDL=${pdl}
            "${BUILD}/tests/test-cuda-${name}" --device "${device}")
    endforeach()
endforeach()
foreach (model IN ITEMS parity-gated-delta-net parity-mamba2 s5 arith5 dyck3)
    step("exact model ${model}" "${BUILD}/bin/lrnn-probe" --device "${device}" -ngl 1000
        -m "${models}/exact/${model}.gguf" --length 2000 --trials 1)
endforeach()
step("step and chunk" "${BUILD}/tests/test-cuda-kernels" --sweep "${device}")
foreach (op IN ITEMS householder signed conv attention mul-mat)
    step("our ops and ggml's, ${op}"
        "${BUILD}/bin/lrnn-bench" --op ${op} --device "${device}" -t 1)
endforeach()
step("a model on the CPU" "${BUILD}/bin/lrnn-bench" -m "${models}/stories-deltaproduct2-neg.gguf"
    -ngl 0 -p 512 -n 32 -t 2 -r 2)
step("a model on the device" "${BUILD}/bin/lrnn-bench" --device "${device}"
    -m "${models}/stories-deltaproduct2-neg.gguf" -p 512 -n 32 --seqs 1,8,64 -t 1)

string(TIMESTAMP now UTC)
cmake_host_system_information(RESULT system QUERY OS_NAME OS_RELEASE OS_PLATFORM)
file(READ "${REPORT}.steps" steps)
file(WRITE "${REPORT}.new" "lrnn on ${device}, ${now}, ${system}\n\n${summary}${steps}")
file(RENAME "${REPORT}.new" "${REPORT}")
file(REMOVE "${REPORT}.steps" "${REPORT}.output")
message(STATUS "the report: ${REPORT}")
