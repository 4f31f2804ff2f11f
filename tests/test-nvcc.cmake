# Compiles our CUDA files, and nothing else of ggml-cuda, with the flags that ggml-cuda is compiled with. A warning is an error.
#
#   -DOPS=<src/ops> -DGGML=<ggml with our glue> -DARCHS=<architectures> -DWORK=<directory>

find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
if (NOT NVCC)
    message("SKIPPED: there is no nvcc here")
    return()
endif()

file(MAKE_DIRECTORY "${WORK}")
file(GLOB sources "${OPS}/cuda/*.cu")
foreach (arch IN LISTS ARCHS)
    foreach (source IN LISTS sources)
        get_filename_component(name "${source}" NAME_WE)
        execute_process(
            COMMAND "${NVCC}" -std=c++17 -O3 -use_fast_math -extended-lambda "-arch=sm_${arch}" -Werror all-warnings -DGGML_CUDA_NO_VMM
                "-I${OPS}" "-I${GGML}/include" "-I${GGML}/src" -c "${source}" -o "${WORK}/${name}-${arch}.o"
            RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
        if (NOT result EQUAL 0)
            message(FATAL_ERROR "nvcc does not compile ${source} for sm_${arch}:\n${output}")
        endif()
        message(STATUS "sm_${arch}: ${name}.cu")
    endforeach()
endforeach()
