# The glue applies to the ggml of this build and changes only what its table says. If an anchor is
# missing or occurs too often, it stops and names the edit.
#
#   cmake -DGGML=<ggml> -DWORK=<scratch folder> -P test-glue.cmake
#   cmake -DFROM=<ggml> -DTO=<copy> -P test-glue.cmake              only applies the glue

cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/glue.cmake")

if (DEFINED FROM)
    glue_apply("${FROM}" "${TO}")
    return()
endif()

# Sets <out> to <what> of every file below <dir>: SHA256, or TIMESTAMP in microseconds.
function(fingerprint out dir what)
    set(all "")
    file(GLOB_RECURSE files LIST_DIRECTORIES false "${dir}/*")
    foreach (file IN LISTS files)
        if (what STREQUAL "SHA256")
            file(SHA256 "${file}" value)
        else()
            file(TIMESTAMP "${file}" value "%s.%f")
        endif()
        string(APPEND all "${value} ${file}\n")
    endforeach()
    set(${out} "${all}" PARENT_SCOPE)
endfunction()

# Fails unless the glue stops on WORK/moved, names the edit and its file, gives advice, and writes
# nothing.
function(expect_stop name why)
    execute_process(
        COMMAND "${CMAKE_COMMAND}" "-DFROM=${WORK}/moved" "-DTO=${WORK}/refused"
            -P "${CMAKE_CURRENT_LIST_FILE}"
        RESULT_VARIABLE failed ERROR_VARIABLE said OUTPUT_QUIET)
    string(REGEX REPLACE "[ \n]+" " " said "${said}")
    foreach (part "'${name}'" "${GLUE_${name}_FILE}" "git submodule update --init")
        string(FIND "${said}" "${part}" at)
        if (NOT failed OR at EQUAL -1 OR EXISTS "${WORK}/refused")
            message(FATAL_ERROR
                "${name}, ${why}: expected an error message with \"${part}\", got: ${said}")
        endif()
    endforeach()
endfunction()

file(REMOVE_RECURSE "${WORK}")
fingerprint(before "${GGML}" SHA256)

# ---- it applies, and does only what the table says

glue_apply("${GGML}" "${WORK}/copy")

set(files "")
foreach (name IN LISTS GLUE_EDITS)
    list(APPEND files "${GLUE_${name}_FILE}")
endforeach()
list(REMOVE_DUPLICATES files)

foreach (file IN LISTS files)
    file(READ "${GGML}/${file}"      stock)
    file(READ "${WORK}/copy/${file}" undone)
    foreach (name IN LISTS GLUE_EDITS)
        if (GLUE_${name}_FILE STREQUAL file)
            set(anchor "${GLUE_${name}_ANCHOR}")
            set(glued  "${GLUE_${name}_TEXT}")
            if (GLUE_${name}_WHERE STREQUAL "before")
                string(APPEND glued "${anchor}")
            elseif (GLUE_${name}_WHERE STREQUAL "after")
                string(PREPEND glued "${anchor}")
            endif()
            glue_count(found "${undone}" "${glued}")
            if (NOT found EQUAL GLUE_${name}_TIMES)
                message(FATAL_ERROR
                    "${name}: the copy of ${file} contains the text ${found} times; "
                    "expected ${GLUE_${name}_TIMES}")
            endif()
            string(REPLACE "${glued}" "${anchor}" undone "${undone}")
        endif()
    endforeach()
    if (NOT undone STREQUAL stock)
        message(FATAL_ERROR "${file}: the copy without the glue differs from ggml's file")
    endif()
endforeach()

# ---- a second run on the same copy touches no file, and removes files that ggml no longer has

fingerprint(first "${WORK}/copy" TIMESTAMP)
file(WRITE "${WORK}/copy/src/ggml-cuda/gone.cu" "")
glue_apply("${GGML}" "${WORK}/copy")
fingerprint(second "${WORK}/copy" TIMESTAMP)
if (NOT first STREQUAL second)
    message(FATAL_ERROR "the second run touched files of the copy, or kept one that ggml lacks")
endif()

# ---- each anchor missing, and each anchor doubled

foreach (file IN LISTS files)
    cmake_path(GET file PARENT_PATH dir)
    file(COPY "${GGML}/${file}" DESTINATION "${WORK}/moved/${dir}")
endforeach()

foreach (name IN LISTS GLUE_EDITS)
    set(path   "${WORK}/moved/${GLUE_${name}_FILE}")
    set(anchor "${GLUE_${name}_ANCHOR}")
    file(READ "${path}" stock)

    string(FIND   "${stock}" "${anchor}" at)
    string(LENGTH "${anchor}" length)
    math(EXPR after "${at} + ${length}")
    string(SUBSTRING "${stock}" 0 ${at} head)
    string(SUBSTRING "${stock}" ${after} -1 tail)

    file(WRITE "${path}" "${head}${tail}")
    expect_stop(${name} "anchor missing")
    file(WRITE "${path}" "${head}${anchor}${anchor}${tail}")
    expect_stop(${name} "anchor doubled")
    file(WRITE "${path}" "${stock}")
endforeach()

list(GET files 0 file)
file(REMOVE "${WORK}/moved/${file}")
list(GET GLUE_EDITS 0 name)
expect_stop(${name} "file missing")

# ---- ggml itself is unchanged

fingerprint(after "${GGML}" SHA256)
if (NOT before STREQUAL after)
    message(FATAL_ERROR "the glue wrote into ${GGML}")
endif()

list(LENGTH GLUE_EDITS n_edits)
list(LENGTH files      n_files)
file(REMOVE_RECURSE "${WORK}")
message(STATUS "${n_edits} edits in ${n_files} files apply and can be undone; a missing or doubled "
               "anchor is reported; ggml is unchanged")
