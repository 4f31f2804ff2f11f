# gpu-report.cmake on the software device (kit/cuda-device): no step fails. Steps are stopped after
# two seconds; a program that does not start, or refuses an option, needs less.
#
#   cmake -DDEVICE=<library> -DBUILD=<build tree> -DSOURCE=<source tree> -DWORK=<directory>
#         -P test-gpu-report.cmake

cmake_minimum_required(VERSION 3.25)

set(report "${WORK}/gpu-report.txt")
file(REMOVE_RECURSE "${WORK}")
execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env "LD_PRELOAD=${DEVICE}" LRNN_GPU_REPORT_LIMIT=2
        "${CMAKE_COMMAND}" "-DBUILD=${BUILD}" "-DSOURCE=${SOURCE}" "-DREPORT=${report}"
        -P "${SOURCE}/tests/cmake/gpu-report.cmake"
    RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
if (NOT result EQUAL 0)
    message(FATAL_ERROR "gpu-report: ${result}:\n${log}")
endif()
file(READ "${report}" text)
string(REGEX REPLACE "\n==== .*" "" summary "${text}")
string(REGEX MATCHALL "[^\n]+: (passed|stopped), [0-9]+ s" good "${summary}")
string(REGEX MATCHALL "[^\n]+: (FAILED|skipped)[^\n]*" bad "${summary}")
list(FILTER bad EXCLUDE REGEX "^driver: ") # nvidia-smi
list(LENGTH good n)
if (n LESS 20 OR bad)
    message(FATAL_ERROR "${n} steps passed or were stopped; these did not: ${bad}\n${text}")
endif()
message(STATUS "${n} steps passed or were stopped")
