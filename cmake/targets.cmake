# Compiler flags of our targets and source files. ggml's sources keep ggml's flags.

set(LRNN_C_FLAGS
    -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wundef -Wwrite-strings -Wcast-qual -Wpointer-arith
    -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition)
set(LRNN_LINK_FLAGS "")

# also for our files inside ggml's targets, where ggml chooses the warnings
set(LRNN_STRICT_FLAGS "")

if (LRNN_WERROR)
    list(APPEND LRNN_STRICT_FLAGS -Werror)
endif()
if (LRNN_SANITIZE STREQUAL "THREAD")
    list(APPEND LRNN_C_FLAGS      -fsanitize=thread -fno-omit-frame-pointer)
    list(APPEND LRNN_LINK_FLAGS   -fsanitize=thread)
elseif (LRNN_SANITIZE)
    list(APPEND LRNN_C_FLAGS      -fsanitize=address,undefined -fno-omit-frame-pointer)
    list(APPEND LRNN_LINK_FLAGS   -fsanitize=address,undefined)
    # findings in ggml are printed, findings in our code are fatal
    list(APPEND LRNN_STRICT_FLAGS -fno-sanitize-recover=undefined)
endif()

# lrnn_target(<target>): C11 with POSIX.1-2008 and the XSI constants, our warnings and sanitizers
function(lrnn_target target)
    set_target_properties(${target} PROPERTIES
        C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
    target_compile_definitions(${target} PRIVATE _XOPEN_SOURCE=700)
    target_compile_options(${target} PRIVATE ${LRNN_C_FLAGS} ${LRNN_STRICT_FLAGS})
    target_link_options(${target} PRIVATE ${LRNN_LINK_FLAGS})
    if (LRNN_SANITIZE) # ggml is C++: clang adds that part of the sanitizer's runtime to C++ only
        set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    endif()
    if (UNIX)
        target_link_libraries(${target} PRIVATE m)
    endif()
endfunction()
