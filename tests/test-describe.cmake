# Man pages and completions name every option that --help names, and bash can read what is meant for it.
#
#   cmake -DSHARE=<folder of the descriptions> -DBIN=<programs> -DPROGRAMS=<names, separated by commas> -P test-describe.cmake

cmake_minimum_required(VERSION 3.25)

string(REPLACE "," ";" PROGRAMS "${PROGRAMS}")
find_program(BASH bash)
set(checks 0)

# check(<help> <file> <prefix>): every long option of <help> is in the file, where <prefix> takes the place of its dashes
function(check help file prefix)
    file(READ "${file}" text)
    string(REPLACE "\\-" "-" text "${text}") # as roff writes it
    string(REGEX MATCHALL "--[a-z][a-z-]*" names "${help}")
    list(REMOVE_DUPLICATES names)
    foreach (name IN LISTS names)
        string(SUBSTRING "${name}" 2 -1 word)
        string(FIND "${text}" "${prefix}${word}" at)
        if (at EQUAL -1)
            message(FATAL_ERROR "${file} does not know ${name}")
        endif()
    endforeach()
    list(LENGTH names n)
    if (n LESS 3)
        message(FATAL_ERROR "--help of ${file}: only ${n} options were found")
    endif()
endfunction()

foreach (program IN LISTS PROGRAMS)
    execute_process(COMMAND "${BIN}/${program}" --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "\n  -[a-z-]*,? ?-*[a-z-]*" names "${help}")
    check("${names}" "${SHARE}/man/${program}.1"          "--")
    check("${names}" "${SHARE}/bash/${program}"           "--")
    check("${names}" "${SHARE}/zsh/_${program}"           "--")
    check("${names}" "${SHARE}/fish/${program}.fish"      "-l ")
    if (BASH)
        execute_process(COMMAND "${BASH}" -n "${SHARE}/bash/${program}" COMMAND_ERROR_IS_FATAL ANY)
    endif()
    math(EXPR checks "${checks} + 4")
endforeach()
message("${checks} descriptions name what --help names")
