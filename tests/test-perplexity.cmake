# lrnn-perplexity run, from the command line: files, names, exit codes; stopped and continued, split and put together, the same bytes.
#
#   cmake -DBIN=<folder of the programs> -DGOLDEN=<folder of models> -DMAKE_TEXT_MODEL=<make-text-model> -DNLL_FROM_LOGITS=<nll-from-logits>
#         -DWORK=<scratch folder> -P test-perplexity.cmake

cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(ENV{OMP_WAIT_POLICY} passive)

# expect(<code> <argument>...): runs lrnn-perplexity run and fails unless it returns <code>. Sets out and said.
macro(expect code)
    execute_process(COMMAND "${BIN}/lrnn-perplexity" run -t 1 ${ARGN} RESULT_VARIABLE got OUTPUT_VARIABLE out ERROR_VARIABLE said INPUT_FILE "${WORK}/stdin")
    if (NOT got STREQUAL "${code}")
        message(FATAL_ERROR "run ${ARGN}: returned ${got}, expected ${code}; it said: ${said}")
    endif()
endmacro()

function(expect_match text pattern)
    if (NOT text MATCHES "${pattern}")
        message(FATAL_ERROR "expected '${pattern}' in: ${text}")
    endif()
endfunction()

function(expect_same a b)
    file(SHA256 "${a}" x)
    file(SHA256 "${b}" y)
    if (NOT x STREQUAL y)
        message(FATAL_ERROR "${a} and ${b} have other bytes")
    endif()
endfunction()

function(expect_files folder)
    file(GLOB found RELATIVE "${folder}" "${folder}/*")
    if (NOT found STREQUAL "${ARGN}")
        message(FATAL_ERROR "${folder} holds '${found}', expected '${ARGN}'")
    endif()
endfunction()

# ---- two models that read bytes, and texts ---------------------------------------------------------------------------------------------------

foreach (name delta_net_neg gla)
    execute_process(COMMAND "${MAKE_TEXT_MODEL}" "${GOLDEN}/${name}.gguf" "${WORK}/${name}.gguf" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
set(text "")
foreach (i RANGE 1 90)
    math(EXPR n "(${i}*7919) % 1009")
    string(APPEND text "Line ${i} says ${n}, and ${n} it is.\n")
endforeach()
file(WRITE "${WORK}/text.txt" "${text}")
file(WRITE "${WORK}/stdin"    "${text}")
set(m  -m "${WORK}/delta_net_neg.gguf")
set(d  --data "${WORK}/text.txt" -w 128 -b 48 --group 2 --max-windows 7)

# ---- what is refused -----------------------------------------------------------------------------------------------------------------------------

expect(2 ${d})
expect_match("${said}" "-m is missing")
expect(2 ${m})
expect_match("${said}" "--data is missing")
expect(2 ${m} ${d} --dataset no-such-set)
expect(2 ${m} ${d} --shard 5/4)
expect(2 ${m} ${d} --shard 1of4)
expect(2 ${m} ${d} --time-limit 5x)
expect(2 ${m} ${d} --name a --name b)
expect(2 ${m} ${d} --resume --force)
expect(2 ${m} ${d} --reset never --shard 1/2)
expect(2 ${m} ${m} ${d} -o "${WORK}/twice")
expect_match("${said}" "--name tells them apart")
expect(3 ${m} --data "${WORK}/no-such-file" -o "${WORK}/refused")
expect(3 ${m} --data "${WORK}/text.txt" -w 1000000 -o "${WORK}/refused")
expect_match("${said}" "gives no window")
expect(4 -m "${WORK}/text.txt" ${d} -o "${WORK}/refused")
expect(4 -m "${GOLDEN}/gla.gguf" ${d} -o "${WORK}/refused") # no tokenizer
expect_files("${WORK}/refused")
expect(0 --list-datasets)
expect_match("${out}" "slimpajama .*codeparrot|codeparrot .*slimpajama")

# ---- a run, again, anew, on ------------------------------------------------------------------------------------------------------------------------

expect(0 ${m} ${d} -o "${WORK}/dry" --dry-run)
expect_match("${out}" "windows +7 with 896 tokens and 889 targets")
expect_files("${WORK}/dry")

expect(0 ${m} ${d} -o "${WORK}/a")
expect_match("${out}" "^[^\n]*delta_net_neg.text.nll: 7 of 7 windows, 889 targets, perplexity [0-9.]+, [0-9.]+ bits per byte, top-1 [0-9.]+\n$")
set(line "${out}")
expect_files("${WORK}/a" delta_net_neg.text.nll)
set(nll "${WORK}/a/delta_net_neg.text.nll")
expect(2 ${m} ${d} -o "${WORK}/a")
expect_match("${said}" "is there already; --resume goes on with it")
expect(0 ${m} ${d} -o "${WORK}/a" --resume)
if (NOT out STREQUAL line)
    message(FATAL_ERROR "a finished run says something else when it is resumed: ${out}")
endif()
expect(3 ${m} ${d} -o "${WORK}/a" --resume -b 32)
expect_match("${said}" "its n_batch is '48', here it is '32'")
expect(3 -m "${WORK}/gla.gguf" --name delta_net_neg ${d} -o "${WORK}/a" --resume)
expect_match("${said}" "its model_hash is")
expect(0 ${m} ${d} -o "${WORK}/b" --force)
expect(0 ${m} ${d} -o "${WORK}/b" --force)
expect_same("${nll}" "${WORK}/b/delta_net_neg.text.nll")

# from a pipe: the same texts, so the same fingerprint; only the name of the file is another
expect(0 ${m} --data - -w 128 -b 48 --group 2 --max-windows 7 -o "${WORK}/pipe")
string(REGEX REPLACE "^.*nll: " "" tail_pipe "${out}")
string(REGEX REPLACE "^.*nll: " "" tail_file "${line}")
if (NOT tail_pipe STREQUAL tail_file)
    message(FATAL_ERROR "from a pipe: ${tail_pipe} from the file: ${tail_file}")
endif()

# two models, names
expect(0 ${m} -m "${WORK}/gla.gguf" --name x/1 --name y ${d} -o "${WORK}/two")
expect_files("${WORK}/two" "x_1.text.nll;y.text.nll")

# ---- stopped by the clock after every call, and continued ----------------------------------------------------------------------------------------

set(stops 0)
set(got 5)
set(resume "")
while (got EQUAL 5 AND stops LESS 50)
    execute_process(COMMAND "${BIN}/lrnn-perplexity" run -t 1 ${m} ${d} -o "${WORK}/stopped" --time-limit 0.000001s ${resume}
        RESULT_VARIABLE got OUTPUT_QUIET ERROR_VARIABLE said)
    set(resume --resume)
    math(EXPR stops "${stops} + 1")
endwhile()
if (NOT got EQUAL 0 OR stops LESS 10) # 4 groups of 3 calls; after the last one nothing is left
    message(FATAL_ERROR "stopped ${stops} times, then ${got}: ${said}")
endif()
expect_same("${nll}" "${WORK}/stopped/delta_net_neg.text.nll")
expect_files("${WORK}/stopped" delta_net_neg.text.nll)

# one endless stream, the same
expect(0 ${m} --data "${WORK}/text.txt" -w 128 --max-windows 3 --reset never -o "${WORK}/never")
set(got 5)
set(resume "")
set(stops 0)
while (got EQUAL 5 AND stops LESS 50)
    execute_process(COMMAND "${BIN}/lrnn-perplexity" run -t 1 ${m} --data "${WORK}/text.txt" -w 128 --max-windows 3 --reset never -o "${WORK}/never-stopped"
        --time-limit 0.000001s ${resume} RESULT_VARIABLE got OUTPUT_QUIET ERROR_VARIABLE said)
    set(resume --resume)
    math(EXPR stops "${stops} + 1")
endwhile()
expect_same("${WORK}/never/delta_net_neg.text.nll" "${WORK}/never-stopped/delta_net_neg.text.nll")

# ---- shards ----------------------------------------------------------------------------------------------------------------------------------------

# the second one is stopped in the middle and continued
expect(5 ${m} ${d} -o "${WORK}/shards" --shard 2/4 --time-limit 0.000001s)
expect(0 ${m} ${d} -o "${WORK}/shards" --shard 2/4 --resume)
foreach (i 1 3 4)
    expect(0 ${m} ${d} -o "${WORK}/shards" --shard ${i}/4)
endforeach()
expect_files("${WORK}/shards"
    "delta_net_neg.text.1-of-4.nll;delta_net_neg.text.2-of-4.nll;delta_net_neg.text.3-of-4.nll;delta_net_neg.text.4-of-4.nll")
foreach (folder a shards)
    execute_process(COMMAND "${BIN}/lrnn-perplexity" report "${WORK}/${folder}" --format json,csv --out "${WORK}/report-${folder}"
        OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE got)
    if (NOT got EQUAL 0)
        message(FATAL_ERROR "report ${folder}: ${got}: ${said}")
    endif()
endforeach()
file(GLOB reports RELATIVE "${WORK}/report-a" "${WORK}/report-a/*")
if (reports STREQUAL "")
    message(FATAL_ERROR "report wrote nothing")
endif()
foreach (name IN LISTS reports)
    expect_same("${WORK}/report-a/${name}" "${WORK}/report-shards/${name}")
endforeach()

# ---- norms of states: the same bytes from a run that was stopped, and a table ----------------------------------------------------------------------

expect(2 ${m} ${d} --probe something)
expect(0 ${m} ${d} -o "${WORK}/norms" --probe state-norm)
expect(5 ${m} ${d} -o "${WORK}/norms-again" --probe state-norm --time-limit 0.0001s)
expect(3 ${m} ${d} -o "${WORK}/norms-again" --resume)
expect_match("${said}" "probe is 'state-norm', here it is ''")
expect(0 ${m} ${d} -o "${WORK}/norms-again" --resume --probe state-norm)
expect_same("${WORK}/norms/delta_net_neg.text.nll" "${WORK}/norms-again/delta_net_neg.text.nll")
execute_process(COMMAND "${BIN}/lrnn-perplexity" report "${WORK}/norms" --format table,json,csv --out "${WORK}/report-norms"
    OUTPUT_VARIABLE out COMMAND_ERROR_IS_FATAL ANY)
expect_match("${out}" "Largest state norm.*\n *113-127 +[0-9.]+ / [0-9.]+\n")
file(READ "${WORK}/report-norms/report.json" json)
expect_match("${json}" "\"state_norm\": .[ \n]+. \"from\": 33, \"to\": 48, \"windows\": 7, \"median\": [0-9.]+, \"most\": ")

# far out, every 2,048 tokens
file(WRITE "${WORK}/long.txt" "${text}${text}${text}")
expect(0 ${m} --data "${WORK}/long.txt" -w 7000 -b 512 --max-windows 1 -o "${WORK}/norms-long" --probe state-norm)
execute_process(COMMAND "${BIN}/lrnn-perplexity" report "${WORK}/norms-long" --bucket 2048 OUTPUT_VARIABLE out COMMAND_ERROR_IS_FATAL ANY)
expect_match("${out}" "Largest state norm.*\n1-2,048 [^\n]*\n2,049-4,096 [^\n]*\n4,097-6,144 [^\n]*\n6,145-6,999 ")

# ---- the numbers, from the logits of another command ------------------------------------------------------------------------------------------------

string(SUBSTRING "${text}" 0 128 window)
string(HEX "${window}" hex)
string(REGEX MATCHALL "[0-9a-f][0-9a-f]" bytes "${hex}")
set(ids "")
foreach (byte IN LISTS bytes)
    math(EXPR id "0x${byte}")
    string(APPEND ids "${id} ")
endforeach()
file(WRITE "${WORK}/ids.txt" "${ids}\n")
foreach (cut 128 7 1)
    execute_process(COMMAND "${BIN}/lrnn-perplexity" logits ${m} -t 1 --tokens "${WORK}/ids.txt" --cut ${cut} --out "${WORK}/logits.npy" -q
        COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${NLL_FROM_LOGITS}" "${nll}" "${WORK}/ids.txt" "${WORK}/logits.npy" OUTPUT_VARIABLE out RESULT_VARIABLE got)
    message(STATUS "${out}")
    if (NOT got EQUAL 0)
        message(FATAL_ERROR "cut ${cut}: the run and the logits disagree")
    endif()
endforeach()

# the size of calls changes nothing beyond rounding
foreach (batch 1 7 64 512)
    expect(0 ${m} --data "${WORK}/text.txt" -w 128 --max-windows 3 -b ${batch} -o "${WORK}/batch-${batch}")
    string(REGEX MATCH "perplexity ([0-9.]+)" ignored "${out}")
    list(APPEND perplexities "${CMAKE_MATCH_1}")
    execute_process(COMMAND "${NLL_FROM_LOGITS}" "${WORK}/batch-${batch}/delta_net_neg.text.nll" "${WORK}/ids.txt" "${WORK}/logits.npy"
        OUTPUT_VARIABLE out RESULT_VARIABLE got)
    if (NOT got EQUAL 0)
        message(FATAL_ERROR "-b ${batch}: ${out}")
    endif()
endforeach()
list(REMOVE_DUPLICATES perplexities)
list(LENGTH perplexities n)
if (n GREATER 2) # six digits may fall on both sides of a border
    message(FATAL_ERROR "perplexity changes with the size of calls: ${perplexities}")
endif()
