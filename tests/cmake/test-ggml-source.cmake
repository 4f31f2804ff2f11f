# The sources of ggml: every way to find them works, and every failure gives one sentence with
# advice.
#
# Needs no network. A tiny package replaces the pinned one: pip finds it in a folder, does not find
# it, or finds another one.
#
#   cmake -DWORK=<scratch folder> -P test-ggml-source.cmake
#   cmake -DSHA256=<pin> -DTREE=<source tree> -DOUT=<work folder> … -P test-ggml-source.cmake
#
# The second form only finds ggml.

cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/ggml-source.cmake")

if (DEFINED OUT)
    set(LRNN_GGML_PACKAGE_SHA256 "${SHA256}")
    lrnn_ggml_source(dir commit "${TREE}" "${OUT}")
    message(STATUS "found ${dir} at ${commit}")
    return()
endif()

file(REMOVE_RECURSE "${WORK}")

# ---- a package, and another one with the same name

function(make_package out_sha256 folder content)
    set(root "${WORK}/${folder}/${LRNN_GGML_PACKAGE_STEM}")
    file(WRITE "${root}/PKG-INFO" "Metadata-Version: 2.1\n"
        "Name: ${LRNN_GGML_PACKAGE}\nVersion: ${LRNN_GGML_PACKAGE_VERSION}\n")
    file(WRITE "${root}/pyproject.toml" "[build-system]\nrequires = ['scikit-build-core']\n"
        "build-backend = 'scikit_build_core.build'\n")
    file(WRITE "${root}/setup.py" "raise SystemExit('code of the package ran')\n")
    file(WRITE "${root}/vendor/llama.cpp/LICENSE" "")
    file(WRITE "${root}/vendor/llama.cpp/other" "must not be unpacked")
    file(WRITE "${root}/vendor/llama.cpp/ggml/CMakeLists.txt" "${content}")
    file(WRITE "${root}/vendor/llama.cpp/ggml/include/ggml.h" "")
    execute_process(
        COMMAND "${CMAKE_COMMAND}" -E tar czf "${root}.tar.gz" "${LRNN_GGML_PACKAGE_STEM}"
        WORKING_DIRECTORY "${WORK}/${folder}" COMMAND_ERROR_IS_FATAL ANY)
    file(REMOVE_RECURSE "${root}")
    file(SHA256 "${root}.tar.gz" sha256)
    set(${out_sha256} "${sha256}" PARENT_SCOPE)
endfunction()

make_package(pinned right "# the pinned ggml\n")
make_package(other  wrong "# another ggml\n")
# a clone without its submodule has an empty folder
file(MAKE_DIRECTORY "${WORK}/empty" "${WORK}/bare-tree/ggml")
file(WRITE "${WORK}/full-tree/ggml/CMakeLists.txt" "")
file(WRITE "${WORK}/no-pip" "#!/bin/sh\nexit 1\n")
file(CHMOD "${WORK}/no-pip" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

# ---- running it

# run(<title> OK|STOP <words of the message> TREE <tree> CACHE <cache> LINKS <folder for pip>
#     OUT <work folder> [WITH <-D…>...])
#
# STOP expects an error message of one sentence: its only full stop is at its end.
function(run title expected words)
    cmake_parse_arguments(PARSE_ARGV 3 arg "" "TREE;CACHE;LINKS;OUT" "WITH")
    execute_process(
        COMMAND "${CMAKE_COMMAND}" -E env
                --unset=PIP_INDEX_URL --unset=PIP_EXTRA_INDEX_URL --unset=PIP_CONFIG_FILE
                PIP_NO_INDEX=1 "PIP_FIND_LINKS=${WORK}/${arg_LINKS}"
                "XDG_CACHE_HOME=${WORK}/${arg_CACHE}"
                "${CMAKE_COMMAND}" "-DSHA256=${pinned}" "-DTREE=${WORK}/${arg_TREE}"
                "-DOUT=${WORK}/${arg_OUT}" ${arg_WITH}
                -P "${CMAKE_CURRENT_LIST_FILE}"
        RESULT_VARIABLE failed OUTPUT_VARIABLE out ERROR_VARIABLE err)

    set(said "${out}")
    if (expected STREQUAL "STOP")
        string(REGEX REPLACE "[ \n]+" " " err "${err}")
        if (NOT err MATCHES "^CMake Error at [^ ]+ \\(message\\): (.*[^.]\\.) Call Stack ")
            message(FATAL_ERROR "${title}: expected an error message of one sentence, got: "
                                "${out}${err}")
        endif()
        set(said "${CMAKE_MATCH_1}")
        if (said MATCHES "\\. +[A-Z]")
            message(FATAL_ERROR "${title}: more than one sentence: ${said}")
        endif()
    elseif (failed)
        message(FATAL_ERROR "${title}: failed: ${out}${err}")
    endif()
    foreach (word IN LISTS words)
        string(FIND "${said}" "${word}" at)
        if (at EQUAL -1)
            message(FATAL_ERROR "${title}: \"${word}\" is not in: ${said}")
        endif()
    endforeach()
    message(STATUS "${title}")
endfunction()

set(archive "lrnn/${LRNN_GGML_PACKAGE_STEM}.tar.gz")
set(advice  "git submodule update --init;-DLRNN_GGML_DIR=")
string(SUBSTRING "${LRNN_GGML_COMMIT}" 0 8 short)

find_program(python NAMES python3 python)
execute_process(COMMAND "${python}" -m pip --version
    RESULT_VARIABLE no_pip OUTPUT_QUIET ERROR_QUIET)
if (no_pip)
    message("SKIPPED: pip not found")
    return()
endif()

run("no network" STOP "check the network;pip.log;${advice}"
    TREE bare-tree CACHE c LINKS empty OUT a)
run("another archive from pip" STOP "sha256;will not be used;${advice}"
    TREE bare-tree CACHE c LINKS wrong OUT a)
run("no Python" STOP "Python 3 was not found;${advice}"
    TREE bare-tree CACHE c LINKS right OUT a
    WITH -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF)
run("no pip" STOP "has no pip;${advice}"
    TREE bare-tree CACHE c LINKS right OUT a
    WITH "-DLRNN_PYTHON=${WORK}/no-pip")
if (EXISTS "${WORK}/c/${archive}")
    message(FATAL_ERROR "a failed fetch left an archive in the cache")
endif()

run("the package, fetched" OK "found ${WORK}/a/;+lrnn"
    TREE bare-tree CACHE c LINKS right OUT a)
run("a second build tree does not fetch again" OK "found ${WORK}/b/;+lrnn"
    TREE bare-tree CACHE c LINKS empty OUT b)

file(GLOB unpacked "${WORK}/b/*/*")
list(TRANSFORM unpacked REPLACE ".*/" "")
if (NOT unpacked STREQUAL "LICENSE;ggml")
    message(FATAL_ERROR "expected only LICENSE and ggml of the package, got: ${unpacked}")
endif()

file(APPEND "${WORK}/c/${archive}" "damaged")
run("a damaged archive in the cache" STOP "sha256;delete it;${archive}"
    TREE bare-tree CACHE c LINKS right OUT d)
run("a damaged archive does not affect a tree that is unpacked" OK "found ${WORK}/b/"
    TREE bare-tree CACHE c LINKS empty OUT b)

file(WRITE "${WORK}/file" "")
run("a cache that is not writable" OK "not writable;found ${WORK}/e/"
    TREE bare-tree CACHE file LINKS right OUT e)

run("the submodule" OK "found ${WORK}/full-tree/ggml at ${short}+lrnn"
    TREE full-tree CACHE c LINKS empty OUT f)
file(WRITE "${WORK}/checkout/CMakeLists.txt" "")
file(WRITE "${WORK}/checkout/include/ggml.h" "")
run("LRNN_GGML_DIR" OK "found ${WORK}/checkout at local+lrnn"
    TREE full-tree CACHE c LINKS empty OUT f
    WITH "-DLRNN_GGML_DIR=${WORK}/checkout")
run("LRNN_GGML_DIR without ggml" STOP "LRNN_GGML_DIR;not a checkout of ggml"
    TREE full-tree CACHE c LINKS empty OUT f
    WITH "-DLRNN_GGML_DIR=${WORK}/full-tree/ggml")

# the submodule of this repository is at the pinned commit
execute_process(COMMAND git ls-files --stage ggml
    WORKING_DIRECTORY "${CMAKE_CURRENT_LIST_DIR}/../.."
    OUTPUT_VARIABLE link RESULT_VARIABLE failed ERROR_QUIET)
if (link MATCHES "^160000 ([0-9a-f]+)" AND NOT CMAKE_MATCH_1 STREQUAL LRNN_GGML_COMMIT)
    message(FATAL_ERROR "the submodule ggml is at ${CMAKE_MATCH_1}; expected the pinned commit "
                        "${LRNN_GGML_COMMIT} of cmake/ggml-source.cmake")
endif()

file(REMOVE_RECURSE "${WORK}")
