# With LRNN_VULKAN, configuring stops with one error if headers, loader, glslc or the SPIR-V headers
# are missing; it names what is missing and the packages of Debian. If nothing is, ggml is
# configured with GGML_VULKAN. Needs no Vulkan.
#
#   cmake -DGGML=<ggml> -DWORK=<scratch folder> -P test-vulkan-options.cmake    in the source folder

cmake_minimum_required(VERSION 3.25)

set(found Vulkan_INCLUDE_DIR Vulkan_LIBRARY Vulkan_GLSLC_EXECUTABLE SPIRV-Headers_FOUND)

# ---- the child: cmake/ggml.cmake on a machine that lacks MISSING

if (DEFINED MISSING)
    macro(find_package)
    endmacro()
    macro(add_subdirectory) # ends cmake/ggml.cmake where it would configure ggml
        message(STATUS "GGML_VULKAN is ${GGML_VULKAN}")
        return()
    endmacro()
    foreach (variable IN LISTS found)
        set(${variable} TRUE)
    endforeach()
    foreach (variable IN LISTS MISSING)
        set(${variable} ${variable}-NOTFOUND)
    endforeach()
    set(LRNN_VULKAN        ON)
    set(LRNN_GGML_DIR      "${GGML}")
    set(PROJECT_SOURCE_DIR "${CMAKE_SOURCE_DIR}")
    set(PROJECT_BINARY_DIR "${WORK}")
    include(cmake/ggml.cmake)
    return()
endif()

# ---- the cases

# check(<missing variables> <what the error lists>): an empty list: no error
function(check missing listed)
    execute_process(COMMAND "${CMAKE_COMMAND}" "-DGGML=${GGML}" "-DWORK=${WORK}"
            "-DMISSING=${missing}" -P "${CMAKE_CURRENT_LIST_FILE}"
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE error)
    string(REGEX REPLACE "[ \n]+" " " error "${error}")
    if (NOT listed)
        if (NOT result EQUAL 0 OR NOT output MATCHES "GGML_VULKAN is ON")
            message(FATAL_ERROR "nothing is missing, but: ${output}${error}")
        endif()
        return()
    endif()
    set(expected "LRNN_VULKAN is ON, but not found: ${listed}. Install them, or configure with \
LRNN_VULKAN=OFF.")
    string(FIND "${error}" "${expected}" at)
    string(REGEX MATCHALL "CMake Error" errors "${error}")
    list(LENGTH errors n)
    if (result EQUAL 0 OR at EQUAL -1 OR NOT n EQUAL 1)
        message(FATAL_ERROR "without ${missing}: ${error}; expected one error: ${expected}")
    endif()
endfunction()

check("" "")
check("Vulkan_INCLUDE_DIR" "headers (Debian package libvulkan-dev)")
check("Vulkan_LIBRARY" "loader (Debian package libvulkan-dev)")
check("Vulkan_GLSLC_EXECUTABLE" "glslc (Debian package glslc)")
check("SPIRV-Headers_FOUND" "SPIR-V headers (Debian package spirv-headers)")
check("${found}" "headers (Debian package libvulkan-dev), loader (Debian package libvulkan-dev), \
glslc (Debian package glslc), SPIR-V headers (Debian package spirv-headers)")
file(REMOVE_RECURSE "${WORK}")
