# For the scripts that try programs: include it with BIN and WORK set. WORK is made anew.

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
file(TOUCH "${WORK}/empty")
set(ENV{OMP_WAIT_POLICY} passive) # small models: threads that spin at barriers would take the cores from those that work
set(checks 0)

# expect(<code> <program> <argument>...): runs it in WORK and fails unless it returns <code>. Sets out and said to what it wrote to stdout and stderr.
# Whatever is refused leaves stdout empty and says why in one line. That there is no card for a build with CUDA is left out of said: test-programs looks
# at it, and for the others it is no news.
macro(expect code program)
    execute_process(COMMAND "${BIN}/${program}" ${ARGN} WORKING_DIRECTORY "${WORK}" INPUT_FILE "${WORK}/empty"
        RESULT_VARIABLE got OUTPUT_VARIABLE out ERROR_VARIABLE said)
    set(all_said "${said}")
    string(REGEX REPLACE "^lrnn-[a-z ]+: no CUDA GPU was found[^\n]*; everything runs on the CPU\n" "" said "${said}")
    if (NOT got STREQUAL "${code}")
        message(FATAL_ERROR "${program} ${ARGN}: returned ${got}, expected ${code}; it said: ${said}")
    endif()
    if (NOT "${code}" STREQUAL "0" AND (NOT "${out}" STREQUAL "" OR NOT "${said}" MATCHES "^${program}[^\n]*: [^\n]+\n$"))
        message(FATAL_ERROR "${program} ${ARGN}: expected one line on stderr and nothing on stdout; stdout: ${out} stderr: ${said}")
    endif()
    math(EXPR checks "${checks} + 1")
endmacro()
