# Man pages and completions of the programs, from their own tables of options: `PROGRAM --describe man|bash|zsh|fish`.
#
#     cmake -DPROGRAM=<file> -DNAME=<name> -DCOMMANDS=<words, separated by commas> -DOUT=<folder> -P describe.cmake
#
# A command of a program ("lrnn-perplexity run") has a man page of its own; its completions are a part of the program's.

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
        string(APPEND text "\n${function} \"$@\"\n") # the file is itself a function, called for the first completion
    endif()
    file(WRITE "${OUT}/${${shell}_file}" "${text}")
endforeach()
