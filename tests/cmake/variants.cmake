# For tests of a build with several variants of ggml-cpu. BUILD: the build tree.

# the features that lrnn-inspect --devices prints with each variant
set(features_zen4        ": AVX AVX2 FMA AVX512 AVX512_VNNI AVX512_BF16)")
set(features_cascadelake ": AVX AVX2 FMA AVX512 AVX512_VNNI)")
set(features_alderlake   ": AVX AVX_VNNI AVX2 FMA)")
set(features_haswell     ": AVX AVX2 FMA)")
set(features_x64         " (CPU)")

# expect(<name> <variant> <command>...): <command> lrnn-inspect --devices chooses the variant
function(expect name variant)
    execute_process(COMMAND ${ARGN} "${BUILD}/bin/lrnn-inspect" --devices
        OUTPUT_VARIABLE said ERROR_VARIABLE errors RESULT_VARIABLE failed)
    if (failed)
        message(FATAL_ERROR "${name}: lrnn-inspect --devices failed:\n${said}${errors}")
    endif()
    string(FIND "${said}" "${features_${variant}}" at)
    if (at LESS 0)
        message(FATAL_ERROR "${name}: expected the variant ${variant}; found:\n${said}")
    endif()
    message(STATUS "${name}: ${variant}")
endfunction()

# golden(<name> <models> <command>...): <command> test-golden passes, with some models or with all
function(golden name models)
    set(ENV{OMP_WAIT_POLICY} passive)
    execute_process(COMMAND ${ARGN} "${BUILD}/tests/test-golden" ${models}
        OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE failed)
    if (failed)
        message(FATAL_ERROR "${name}: test-golden failed:\n${said}")
    endif()
    string(REGEX MATCH "test-golden: [^\n]*" sum "${said}")
    message(STATUS "${name}: ${sum}")
endfunction()

# text(<out> <command>...): what <command> lrnn-cli generates with a model in Q8_0
function(text out)
    execute_process(COMMAND ${ARGN} "${BUILD}/bin/lrnn-cli" -q -p "Once upon a time" -n 40 --greedy
            -m "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../models/stories-deltaproduct2-neg.gguf"
        OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
    set(${out} "${said}" PARENT_SCOPE)
endfunction()

# same_text(<name> <command>...): <command> lrnn-cli generates the text that it does without
function(same_text name)
    text(expected)
    text(found ${ARGN})
    if (NOT found STREQUAL expected)
        message(FATAL_ERROR "${name}: lrnn-cli generates\n${found}\nexpected:\n${expected}")
    endif()
endfunction()
