# kernel-table reads what the compiler says, counts blocks as by hand, and fails for a kernel that spills. Where there is an nvcc, it is given what
# test-nvcc left: no kernel of d ≤ 128 spills, and the tables in README are the ones that this compiler makes, if it is the compiler that made them.
#
#   cmake -DKERNEL_TABLE=<program> -DLOGS=<directory of test-nvcc> -DREADME=<src/ops/README.md> -DWORK=<scratch folder> -P test-kernel-table.cmake
#
# With LRNN_UPDATE_README in the environment the table is written into README.

cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

# made_up(<file> <name> <registers> <shared> <spills> <local>): a log with one kernel on three architectures
function(made_up file name registers shared spills local)
    set(log "Cuda compilation tools, release 1.2, V1.2.3\n")
    foreach (arch IN ITEMS 80 90 120)
        string(APPEND log
            "ptxas info    : Compiling entry function '${name}' for 'sm_${arch}'\n"
            "ptxas info    : Function properties for ${name}\n"
            "    ${local} bytes stack frame, ${spills} bytes spill stores, ${spills} bytes spill loads\n"
            "ptxas info    : Used ${registers} registers, used 1 barriers, ${shared} bytes smem, 728 bytes cmem[0]\n")
    endforeach()
    file(WRITE "${WORK}/${file}" "${log}")
endfunction()

# expect(<code> <text> <log>...): the program returns <code>, and says <text>
function(expect code text)
    execute_process(COMMAND "${KERNEL_TABLE}" ${ARGN} WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE got OUTPUT_VARIABLE out ERROR_VARIABLE said)
    string(FIND "${out}${said}" "${text}" at)
    if (NOT got STREQUAL "${code}" OR at EQUAL -1)
        message(FATAL_ERROR "kernel-table ${ARGN}: expected ${code} and \"${text}\", and got ${got}:\n${said}${out}")
    endif()
endfunction()

set(step_128 "_Z16householder_stepILi128ELi2ELb0EEv21householder_cuda_args")
set(step_256 "_Z16householder_stepILi256ELi0ELb1EEv21householder_cuda_args")

# 72 registers are 2304 a warp, 28 warps, 7 blocks of 4. 5 d d + 2 d d flops; q, k, v, o, a gate and a beta, and the state twice.
made_up(registers.txt "${step_128}" 72 9000 0 0)
expect(0 "| gate a channel | 128 | 9,000 | 72 · 72 · 72 | 0 · 0 · 0 | 7 · 7 · 7 | 44 · 44 · 58 | 114,688 | 133,636 | 65.5 | 2,564 | 5.88 |" registers.txt)
# 30,000 bytes and the system's 1,024 are 31,104 in units of 128: 5 times in 164 KiB, 7 times in 228, 3 times in 100
made_up(shared.txt "${step_128}" 72 30000 0 0)
expect(0 "| 30,000 | 72 · 72 · 72 | 0 · 0 · 0 | 5 · 7 · 3 | 31 · 44 · 25 |" shared.txt)
# threads: 16, 16 and 12 blocks of 128
made_up(threads.txt "${step_128}" 24 0 0 0)
expect(0 "| 24 · 24 · 24 | 0 · 0 · 0 | 16 · 16 · 12 | 100 · 100 · 100 |" threads.txt)

made_up(spills.txt "${step_128}" 128 9000 4 8)
expect(1 "householder_step, gate a channel, d = 128 uses local memory on sm_90: 8 bytes, 4 stored and 4 loaded by spills" spills.txt)
made_up(indexed.txt "${step_128}" 128 9000 0 8)
expect(1 "householder_step, gate a channel, d = 128 uses local memory on sm_80: 8 bytes, 0 stored and 0 loaded by spills" indexed.txt)
made_up(large.txt "${step_256}" 255 9000 4 8)
expect(0 "| r, w, no gate | 256 | 9,000 | 255 · 255 · 255 | 4/4 · 4/4 · 4/4 |" large.txt)
made_up(unknown.txt "_Z7mystery16signed_cuda_args" 24 0 0 0)
expect(2 "'_Z7mystery16signed_cuda_args' is not among the kernels of kernel-table" unknown.txt)
file(READ "${WORK}/registers.txt" log)
string(REGEX REPLACE "ptxas info    : Compiling entry function '[^']*' for 'sm_120'.*" "" log "${log}")
file(WRITE "${WORK}/missing.txt" "${log}")
expect(2 "there are no figures for sm_120" missing.txt)
file(TOUCH "${WORK}/empty.txt")
expect(2 "no kernel" empty.txt)
message(STATUS "logs that were made up are read as they should be")

file(GLOB logs "${LOGS}/sm_*.txt")
if (logs STREQUAL "")
    message(STATUS "no kernel was compiled here, so nothing is known of the kernels themselves")
    return()
endif()
execute_process(COMMAND "${KERNEL_TABLE}" ${logs} RESULT_VARIABLE got OUTPUT_VARIABLE table ERROR_VARIABLE said)
file(WRITE "${LOGS}/kernels.md" "${table}")
if (NOT got EQUAL 0)
    message(FATAL_ERROR "${said}")
endif()
message(STATUS "no kernel of d <= 128 uses local memory; ${LOGS}/kernels.md")

file(READ "${README}" readme)
set(begin "<!-- kernel-table -->\n")
set(end   "<!-- end of kernel-table -->\n")
string(FIND "${readme}" "${begin}" from)
string(FIND "${readme}" "${end}" to)
if (from EQUAL -1 OR to LESS from)
    message(FATAL_ERROR "${README} has no place for the table: ${begin} … ${end}")
endif()
string(LENGTH "${begin}" skip)
math(EXPR from "${from} + ${skip}")
string(SUBSTRING "${readme}" 0 ${from} before)
string(SUBSTRING "${readme}" ${to} -1 after)
math(EXPR length "${to} - ${from}")
string(SUBSTRING "${readme}" ${from} ${length} now)

string(REGEX MATCH "^Compiled by CUDA [^ ]+ V[0-9.]+" compiler "${table}")
string(FIND "${now}" "${compiler}" same_compiler)
if (now STREQUAL table)
    message(STATUS "${README} has this table")
elseif (DEFINED ENV{LRNN_UPDATE_README})
    file(WRITE "${README}" "${before}${table}${after}")
    message(STATUS "${README} has this table now")
elseif (same_compiler EQUAL -1)
    message(STATUS "${README} has the table of another compiler")
else()
    message(FATAL_ERROR "the kernels are no longer those of the table in ${README}: run LRNN_UPDATE_README=1 ctest -R kernel-table")
endif()
