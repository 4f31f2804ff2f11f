# Applies text edits to a copy of ggml. cmake/glue.cmake contains the table of edits.
#
# File contents are handled as strings, never as lists, so semicolons, brackets and backslashes are
# preserved.

# glue_edit(<name> <file> <times> before|after|replace <anchor> <text>)
#
# Adds an edit to the table. The anchor must occur exactly <times> times in <file>. <text> is
# inserted before or after each occurrence, or replaces it.
function(glue_edit name file times where anchor text)
    list(APPEND GLUE_EDITS "${name}")
    set(GLUE_EDITS          "${GLUE_EDITS}" PARENT_SCOPE)
    set(GLUE_${name}_FILE   "${file}"       PARENT_SCOPE)
    set(GLUE_${name}_TIMES  "${times}"      PARENT_SCOPE)
    set(GLUE_${name}_WHERE  "${where}"      PARENT_SCOPE)
    set(GLUE_${name}_ANCHOR "${anchor}"     PARENT_SCOPE)
    set(GLUE_${name}_TEXT   "${text}"       PARENT_SCOPE)
endfunction()

# Sets <out> to the number of times <needle> occurs in <text>.
function(glue_count out text needle)
    string(REPLACE "${needle}" "" rest "${text}")
    string(LENGTH "${text}"   n_text)
    string(LENGTH "${rest}"   n_rest)
    string(LENGTH "${needle}" n_needle)
    math(EXPR n "(${n_text} - ${n_rest}) / ${n_needle}")
    set(${out} ${n} PARENT_SCOPE)
endfunction()

# glue_apply(<from> <to>)
#
# Makes <to> a copy of the ggml tree <from> with all edits applied. <from> is only read. Nothing is
# written unless every anchor was found. A file is written only if its content changes, so that a
# second configure run rebuilds nothing.
function(glue_apply from to)
    set(edited "")
    set(moved "")
    foreach (name IN LISTS GLUE_EDITS)
        set(file "${GLUE_${name}_FILE}")
        if (NOT file IN_LIST edited)
            if (NOT EXISTS "${from}/${file}")
                message(FATAL_ERROR
                    "glue: ${from}/${file} does not exist, but edit '${name}' needs it; "
                    "use the pinned ggml: run `git submodule update --init`, or configure without "
                    "LRNN_GGML_DIR.")
            endif()
            file(READ "${from}/${file}" content/${file})
            list(APPEND edited "${file}")
        endif()

        set(anchor "${GLUE_${name}_ANCHOR}")
        set(text   "${GLUE_${name}_TEXT}")
        glue_count(found "${content/${file}}" "${anchor}")
        if (NOT found EQUAL GLUE_${name}_TIMES)
            string(APPEND moved "\n  '${name}' in ${from}/${file}: ${found} times; "
                "expected ${GLUE_${name}_TIMES}")
            continue()
        endif()

        if (GLUE_${name}_WHERE STREQUAL "before")
            string(REPLACE "${anchor}" "${text}${anchor}" content/${file} "${content/${file}}")
        elseif (GLUE_${name}_WHERE STREQUAL "after")
            string(REPLACE "${anchor}" "${anchor}${text}" content/${file} "${content/${file}}")
        else()
            string(REPLACE "${anchor}" "${text}" content/${file} "${content/${file}}")
        endif()
    endforeach()

    if (moved)
        message(FATAL_ERROR
            "glue: these edits do not find their anchors:${moved}\n"
            "Use the pinned ggml (run `git submodule update --init`, or configure without "
            "LRNN_GGML_DIR), or adapt the anchors in cmake/glue.cmake.")
    endif()

    # all files of ggml's build; not its tests, examples and documents
    file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE "${from}"
        "${from}/CMakeLists.txt" "${from}/cmake/*" "${from}/include/*" "${from}/src/*")

    # remove files that ggml no longer has: its build would still find them with globs
    file(GLOB_RECURSE stale LIST_DIRECTORIES false RELATIVE "${to}"
        "${to}/cmake/*" "${to}/include/*" "${to}/src/*")
    list(REMOVE_ITEM stale ${files})
    foreach (file IN LISTS stale)
        file(REMOVE "${to}/${file}")
    endforeach()

    foreach (file IN LISTS files)
        cmake_path(GET file PARENT_PATH dir)
        file(MAKE_DIRECTORY "${to}/${dir}")
        if (NOT file IN_LIST edited)
            file(COPY_FILE "${from}/${file}" "${to}/${file}" ONLY_IF_DIFFERENT)
            continue()
        endif()
        set(old "")
        if (EXISTS "${to}/${file}")
            file(READ "${to}/${file}" old)
        endif()
        if (NOT old STREQUAL "${content/${file}}")
            file(WRITE "${to}/${file}" "${content/${file}}")
        endif()
    endforeach()
endfunction()
