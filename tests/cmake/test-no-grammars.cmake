# A build that wants grammars but cannot fetch xgrammar works without them. The last line of the
# configure step says so, and so does the error of the library.
#
#   cmake -DGGML=<sources of ggml> -DWORK=<scratch folder> -P test-no-grammars.cmake

cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env
            --unset=PIP_INDEX_URL --unset=PIP_EXTRA_INDEX_URL --unset=PIP_CONFIG_FILE
            PIP_NO_INDEX=1 "XDG_CACHE_HOME=${WORK}/cache"
            "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/../.." -B "${WORK}/build"
            "-DLRNN_GGML_DIR=${GGML}" -DLRNN_SERVER=OFF -DLRNN_CONVERTER=OFF -DLRNN_BUILD_TESTS=OFF
            -DLRNN_BUILD_EXAMPLES=OFF
    RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE errors)
if (failed)
    message(FATAL_ERROR "the configure step failed:\n${said}${errors}")
endif()
if (NOT errors MATCHES "\nThis build has no grammars [^\n]*xgrammar could not be fetched[^\n]*\n$")
    message(FATAL_ERROR "the last line does not say that grammars are missing:\n${errors}")
endif()

# the file that has the error, compiled as in a build
file(READ "${WORK}/build/compile_commands.json" commands)
string(JSON n LENGTH "${commands}")
math(EXPR last "${n} - 1")
foreach (i RANGE ${last})
    string(JSON file GET "${commands}" ${i} file)
    if (file MATCHES "/no-grammar\\.c$")
        string(JSON command GET "${commands}" ${i} command)
        string(JSON folder GET "${commands}" ${i} directory)
        break()
    endif()
endforeach()
string(REGEX REPLACE " -o [^ ]+" " -o \"${WORK}/no-grammar.o\"" command "${command}")
execute_process(COMMAND sh -c "${command}"
    WORKING_DIRECTORY "${folder}" COMMAND_ERROR_IS_FATAL ANY)
file(STRINGS "${WORK}/no-grammar.o" found
    REGEX "without grammars, because xgrammar could not be fetched; configure and build it again")
if (NOT found)
    message(FATAL_ERROR "the error of the library does not say that xgrammar could not be fetched")
endif()
file(REMOVE_RECURSE "${WORK}")
