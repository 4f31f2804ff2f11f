# cmake --build build --target paper-table: reproduces table 3 of Grazzi et al. (arXiv 2411.12537)
# with the shipped models, in F32 and in Q8_0, and scores the DeltaProduct models of groups.
#
#     cmake -DBIN=<programs> -DMODELS=<models/> -DOUT=<folder> [-DTRIALS=<sequences>]
#           -P paper-table.cmake
#
# Values are scaled accuracies of the last answer to sequences of 40 to 256 tokens.

cmake_minimum_required(VERSION 3.25)

if (NOT DEFINED TRIALS)
    set(TRIALS 2048)
endif()
file(MAKE_DIRECTORY "${OUT}")

# score(<variable> <file>): rounds to three digits
function(score out file)
    execute_process(
        COMMAND "${BIN}/lrnn-probe" -m "${file}" --sample 40,256 --trials ${TRIALS} --json
        OUTPUT_VARIABLE json
        COMMAND_ERROR_IS_FATAL ANY)
    string(JSON scaled GET "${json}" models 0 lengths 0 scaled)
    # CMake has no decimals: compute in thousandths
    if (scaled MATCHES "^(-?)([0-9]+)(\\.([0-9]*))?$")
        string(SUBSTRING "${CMAKE_MATCH_4}0000" 0 4 digits)
        math(EXPR thousandths "(${CMAKE_MATCH_2}*10000 + 1${digits} - 10000 + 5)/10")
        math(EXPR whole "${thousandths}/1000")
        math(EXPR rest "${thousandths}%1000 + 1000")
        string(SUBSTRING "${rest}" 1 3 rest)
        set(sign "${CMAKE_MATCH_1}")
        if (thousandths EQUAL 0)
            set(sign "")
        endif()
        set(scaled "${sign}${whole}.${rest}")
    elseif (scaled MATCHES "e-")
        set(scaled 0.000)
    endif()
    set(${out} "${scaled}" PARENT_SCOPE)
endfunction()

set(paper_parity_mamba_pos 0.000)
set(paper_parity_mamba_neg 1.000)
set(paper_parity_delta_pos 0.017)
set(paper_parity_delta_neg 1.000)
set(paper_arith5_mamba_pos 0.095)
set(paper_arith5_mamba_neg 0.241)
set(paper_arith5_delta_pos 0.314)
set(paper_arith5_delta_neg 0.971)
set(group_mod5 "ℤ₅")
set(group_s3 "S₃")
set(group_s5 "S₅")
set(name_mamba Mamba)
set(name_delta DeltaNet)
set(range_pos "[0,1]")
set(range_neg "[-1,1]")

# both(<variable> <model>): "F32 | Q8_0"
function(both out model)
    set(quantized "${OUT}/${model}-q8_0.gguf")
    execute_process(
        COMMAND "${BIN}/lrnn-quantize" -q "${MODELS}/${model}.gguf" "${quantized}" Q8_0
        OUTPUT_QUIET ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
    score(f32  "${MODELS}/${model}.gguf")
    score(q8_0 "${quantized}")
    set(${out} "${f32} | ${q8_0}" PARENT_SCOPE)
endfunction()

string(CONCAT table
    "| model | eigenvalues | parity: paper | F32 | Q8_0 "
    "| modular arithmetic: paper | F32 | Q8_0 |\n"
    "|---|---|---|---|---|---|---|---|\n")
foreach (family IN ITEMS mamba delta)
    foreach (sign IN ITEMS pos neg)
        string(APPEND table "| ${name_${family}} | ${range_${sign}} |")
        foreach (task IN ITEMS parity arith5)
            both(ours "${task}-${family}-${sign}")
            string(APPEND table " ${paper_${task}_${family}_${sign}} | ${ours} |")
        endforeach()
        string(APPEND table "\n")
    endforeach()
endforeach()

# groups, with one layer of DeltaProduct
string(APPEND table "\n| group | model | eigenvalues | F32 | Q8_0 |\n|---|---|---|---|---|\n")
file(GLOB products "${MODELS}/*-deltaproduct[0-9]-*.gguf")
list(FILTER products EXCLUDE REGEX "/text-")
foreach (file IN LISTS products)
    string(REGEX MATCH "([a-z0-9]+)-deltaproduct([0-9])-(pos|neg)" model "${file}")
    string(APPEND table "| ${group_${CMAKE_MATCH_1}} | DeltaProduct, n_h ${CMAKE_MATCH_2} "
        "| ${range_${CMAKE_MATCH_3}} |")
    both(ours "${model}")
    string(APPEND table " ${ours} |\n")
endforeach()
execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${table}")
