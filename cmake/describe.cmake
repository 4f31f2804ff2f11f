# Writes the man pages and completions of a program, generated from its option table by
# `PROGRAM --describe man|bash|zsh|fish`.
#
#     cmake -DPROGRAM=<file> -DNAME=<name> -DCOMMANDS=<word,word> -DOUT=<folder> -P describe.cmake
#
# A command of a program ("lrnn-perplexity run") has its own man page; its completions are part of
# the program's.

string(REPLACE "," ";" COMMANDS "${COMMANDS}")

function(ask out)
    execute_process(COMMAND "${PROGRAM}" ${ARGN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

ask(page --describe man)
file(WRITE "${OUT}/man/${NAME}.1" "${page}")
foreach (command IN LISTS COMMANDS)
    ask(page ${command} --describe man)
    file(WRITE "${OUT}/man/${NAME}-${command}.1" "${page}")
endforeach()

string(MAKE_C_IDENTIFIER "_${NAME}" function)
set(bash_file "bash/${NAME}")
set(zsh_file  "zsh/_${NAME}")
set(fish_file "fish/${NAME}.fish")
foreach (shell IN ITEMS bash zsh fish)
    ask(text --describe ${shell})
    foreach (command IN LISTS COMMANDS)
        ask(more ${command} --describe ${shell})
        string(APPEND text "${more}")
    endforeach()
    if (shell STREQUAL "zsh")
        # zsh loads the file as a function and calls it for the first completion
        string(APPEND text "\n${function} \"$@\"\n")
    endif()
    file(WRITE "${OUT}/${${shell}_file}" "${text}")
endforeach()
