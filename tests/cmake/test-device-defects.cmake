# test-cuda-models, on one and on two software devices (kit/cuda-device), must notice the defects
# that these can have: by other logits, or by a message of the device.
#
#   cmake -DDEVICE=<library> -DTEST=<test-cuda-models> -P test-device-defects.cmake

cmake_minimum_required(VERSION 3.25)

foreach (defect IN ITEMS none event peer synchronize graph rms_norm+16 # the length of a row
        householder_step+32 householder_step+56 householder_step+60 householder_step+64
        short_conv+64) # n_snap, n_head, d_k, d_v of struct cuda_batch
    execute_process(
        COMMAND "${CMAKE_COMMAND}" -E env "LD_PRELOAD=${DEVICE}" LRNN_CUDA_DEVICES=2
            GGML_NO_BACKTRACE=1 "LRNN_CUDA_BREAK=${defect}" "${TEST}" gated_deltanet_neg
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if (defect STREQUAL "none")
        if (NOT result STREQUAL "0")
            message(FATAL_ERROR "without a defect: ${result}:\n${output}")
        endif()
    elseif (result STREQUAL "0" OR
            NOT output MATCHES "a logit differs by [^;]*|cuda-device: [^\n]*")
        message(FATAL_ERROR "${defect} was not noticed; result ${result}:\n${output}")
    else()
        message(STATUS "${defect}: ${CMAKE_MATCH_0}")
    endif()
endforeach()
