# Adds our program llama-logits to llama.cpp: CMake includes this file after each of its project().

if (NOT TARGET llama-logits)
    add_executable(llama-logits "${CMAKE_CURRENT_LIST_DIR}/../tests/tools/llama-logits.c")
    target_link_libraries(llama-logits PRIVATE llama)
    set_target_properties(llama-logits PROPERTIES C_STANDARD 11
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
endif()
