# The programs on the models of tests/golden: what they print, where, and what they return.
#
#   cmake -DBIN=<folder of the programs> -DGOLDEN=<folder of models> -DMAKE_TEXT_MODEL=<make-text-model> -DWORK=<scratch folder> -P test-programs.cmake

cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/expect.cmake")

function(same a b what)
    if (NOT "${a}" STREQUAL "${b}")
        message(FATAL_ERROR "${what}:\n${a}\n${b}")
    endif()
endfunction()

# Sets <out> to the ids of lines of JSON, a list. Fails unless each line is an object with an id, a text of type <type> and a log-probability.
function(jsonl_ids out text type)
    set(ids "")
    while (NOT text STREQUAL "")
        string(FIND "${text}" "\n" end)
        if (end EQUAL -1)
            message(FATAL_ERROR "--jsonl: the last line does not end: ${text}")
        endif()
        string(SUBSTRING "${text}" 0 ${end} line)
        math(EXPR next "${end} + 1")
        string(SUBSTRING "${text}" ${next} -1 text)
        string(JSON id       ERROR_VARIABLE failed1 GET  "${line}" id)
        string(JSON found    ERROR_VARIABLE failed2 TYPE "${line}" text)
        string(JSON logprob  ERROR_VARIABLE failed3 GET  "${line}" logprob)
        if (failed1 OR failed2 OR failed3 OR NOT found STREQUAL type OR NOT id MATCHES "^[0-9]+$" OR logprob GREATER 0)
            message(FATAL_ERROR "not what --jsonl should write: ${line} (${failed1} ${failed2} ${failed3})")
        endif()
        list(APPEND ids ${id})
    endwhile()
    set(${out} "${ids}" PARENT_SCOPE)
endfunction()

# Sets <out> to the bytes that a list of ids stands for, in hexadecimal.
function(ids_to_hex out ids)
    set(hex "")
    foreach (id IN LISTS ids)
        math(EXPR byte "${id} + 256" OUTPUT_FORMAT HEXADECIMAL) # 0x1xx
        string(SUBSTRING "${byte}" 3 2 byte)
        string(APPEND hex "${byte}")
    endforeach()
    set(${out} "${hex}" PARENT_SCOPE)
endfunction()


# ---- every program: help, version, a wrong option -------------------------------------------------------------------------------------

foreach (program lrnn-bench lrnn-cli lrnn-inspect lrnn-perplexity)
    foreach (option --help --version)
        expect(0 ${program} ${option})
        if (NOT out MATCHES "^${program}" OR NOT said STREQUAL "")
            message(FATAL_ERROR "${program} ${option}: stdout: ${out} stderr: ${said}")
        endif()
        if (program MATCHES "cli|inspect") # fits a terminal of 80 columns
            string(REGEX REPLACE "[][;]" "." lines "${out}")
            string(REPLACE "\n" ";" lines "${lines}")
            foreach (line IN LISTS lines)
                string(LENGTH "${line}" n)
                if (n GREATER 80)
                    message(FATAL_ERROR "${program} ${option}: a line of ${n} columns: ${line}")
                endif()
            endforeach()
        endif()
    endforeach()
    expect(2 ${program} --no-such-option)
endforeach()
expect(2 lrnn-cli)
expect(2 lrnn-cli -m x.gguf -p a -f b)
expect(2 lrnn-cli -m x.gguf -p a --stop=)
expect(2 lrnn-cli -m x.gguf -p a --temp -1)
expect(2 lrnn-inspect)
foreach (devices "--device;no-such-device" "--device;CPU,no-such-device" "-ngl;-2")
    expect(2 lrnn-bench -m x.gguf ${devices})
    expect(2 lrnn-cli -m x.gguf -p a ${devices})
    expect(2 lrnn-inspect x.gguf ${devices})
    expect(2 lrnn-perplexity logits -m x.gguf --tokens x --out x ${devices})
endforeach()
expect(2 lrnn-perplexity)
expect(2 lrnn-perplexity no-such-command)
expect(2 lrnn-perplexity logits -m x.gguf)
expect(0 lrnn-inspect --devices --json)
string(JSON name GET "${out}" 0 name)

# ---- files that are no models ------------------------------------------------------------------------------------------------------------

file(GLOB models "${GOLDEN}/*.gguf")
if (models STREQUAL "")
    message(STATUS "SKIPPED: there are no models in ${GOLDEN}")
    return()
endif()
list(GET models 0 model)

file(WRITE "${WORK}/ids.txt" "3 1 4 1 5 9 2 6\n")
expect(0 lrnn-cli -m "${model}" -f "${WORK}/ids.txt" -n 1 -t 1 -q -v --device CPU)
if (NOT said MATCHES "^lrnn-cli: layers 0 to [0-9]+ and the output on CPU\n$")
    message(FATAL_ERROR "-v does not say where the layers are: ${said}")
endif()
file(WRITE "${WORK}/magic.gguf" "GGUF")
file(WRITE "${WORK}/text.gguf"  "this is not a model")
file(SIZE "${model}" size)
foreach (part 2 10) # cut in the data, and in the metadata
    math(EXPR end "${size}/${part}")
    file(DOWNLOAD "file://${model}" "${WORK}/cut-${part}.gguf" RANGE_END ${end} STATUS failed)
    list(GET failed 0 failed)
    if (failed)
        message(FATAL_ERROR "${model} cannot be copied")
    endif()
endforeach()
foreach (bad missing empty magic.gguf text.gguf cut-2.gguf cut-10.gguf)
    expect(4 lrnn-cli -m "${WORK}/${bad}" -p 1)
    expect(4 lrnn-inspect "${WORK}/${bad}")
    expect(4 lrnn-perplexity logits -m "${WORK}/${bad}" --tokens "${WORK}/ids.txt" --out "${WORK}/bad.npy")
endforeach()

# ---- ids: prompts, sampling, states --------------------------------------------------------------------------------------------------------

expect(3 lrnn-cli -m "${model}" -f "${WORK}/missing")
expect(3 lrnn-cli -m "${model}" -p "1 two 3")
expect(3 lrnn-cli -m "${model}" -p "1 -2 3")
expect(3 lrnn-cli -m "${model}" -p "1 99999999999999999999 3")
expect(3 lrnn-cli -m "${model}" -p "1 2000000000 3")
expect(3 lrnn-cli -m "${model}" -p 1 --state-load "${WORK}/missing")
expect(3 lrnn-cli -m "${model}" -p 1 --state-load "${WORK}/ids.txt")
expect(1 lrnn-cli -m "${model}" -p 1 --state-save "${WORK}/missing/state") # said before anything is generated
expect(1 lrnn-cli -m "${model}" -p 1 --state-save "${WORK}")
expect(2 lrnn-cli -m "${model}" -n 4)        # nothing to begin with
expect(2 lrnn-cli -m "${model}" -p 1 --stop x) # no text to look into

set(run lrnn-cli -m "${model}" -t 1 -n 24 -f "${WORK}/ids.txt")

# greedy: the same again, from -p and -f, by --temp 0 and --greedy, whatever the seed
expect(0 lrnn-cli -m "${model}" -t 1 -n 24 -p "3 1 4 1 5 9 2 6" --greedy)
set(greedy "${out}")
if (NOT greedy MATCHES "^[0-9]+( [0-9]+)+\n$" OR NOT said MATCHES "^lrnn-cli: 8 prompt tokens .*24 generated")
    message(FATAL_ERROR "wrote ${greedy} and said ${said}")
endif()
expect(0 ${run} --temp 0 -q --seed 5)
same("${greedy}" "${out}" "two greedy runs differ")
same("${said}" "" "-q is not quiet")

# one object a token, the same ids
expect(0 ${run} --greedy --jsonl)
jsonl_ids(ids "${out}" NULL)
list(JOIN ids " " joined)
same("${greedy}" "${joined}\n" "--jsonl has other ids")

# a seed decides
set(free --top-k 0 --top-p 1 --min-p 0 --temp 1)
expect(0 ${run} ${free} --seed 1)
set(seeded "${out}")
expect(0 ${run} ${free} --seed 1)
same("${seeded}" "${out}" "two runs with one seed differ")
expect(0 ${run} ${free} --seed 2)
if (seeded STREQUAL out)
    message(FATAL_ERROR "two seeds give the same 24 tokens")
endif()

# saved and loaded, every model goes on as if it had never stopped: after a part of the prompt, with the calls that -b makes of it
set(last "")
foreach (model IN LISTS models)
    expect(0 lrnn-inspect "${model}" --json)
    string(JSON kind GET "${out}" architecture)
    if (kind STREQUAL "lrnn")
        set(for_text "${model}")
    endif()

    set(run lrnn-cli -m "${model}" -t 1 -b 4 -n 24)
    expect(0 ${run} -p "3 1 4 1 5 9 2 6" --repeat-penalty 1.5 --seed 3)
    set(unbroken "${out}")
    expect(0 ${run} -p "3 1 4 1" -n 0 --seed 3 --state-save "${WORK}/state")
    same("${out}" "" "${model}: -n 0 writes to stdout")
    expect(0 ${run} -p "5 9 2 6" --repeat-penalty 1.5 --state-load "${WORK}/state")
    same("${unbroken}" "${out}" "${model}: goes on otherwise after --state-load")

    # and in the middle of generating, without a word of prompt
    set(run lrnn-cli -m "${model}" -t 1 --repeat-penalty 1.5)
    expect(0 ${run} -p "3 1 4" -n 12 --seed 3)
    string(STRIP "${out}" unbroken)
    expect(0 ${run} -p "3 1 4" -n 5 --seed 3 --state-save "${WORK}/middle")
    string(STRIP "${out}" half)
    expect(0 ${run} -n 7 --state-load "${WORK}/middle")
    string(STRIP "${out}" rest)
    same("${unbroken}" "${half} ${rest}" "${model}: generates otherwise after --state-load")
    if (last)
        expect(3 lrnn-cli -m "${last}" -p 1 --state-load "${WORK}/state") # of another model
    endif()
    set(last "${model}")
endforeach()
file(DOWNLOAD "file://${WORK}/state" "${WORK}/cut-state" RANGE_END 1000)
expect(3 lrnn-cli -m "${model}" -p 1 --state-load "${WORK}/cut-state")

# ---- logits: as many bytes as numbers, nothing left behind, and no file for ids that the model does not have -------------------------------

expect(0 lrnn-inspect "${model}" --json)
string(JSON n_vocab GET "${out}" n_vocab)
set(run lrnn-perplexity logits -m "${model}" -t 1)
file(MAKE_DIRECTORY "${WORK}/logits")
expect(0 ${run} --tokens "${WORK}/ids.txt" --out "${WORK}/logits/a.npy")
expect(0 ${run} --tokens "${WORK}/ids.txt" --out "${WORK}/logits/b.npy" --cut 3,1,4)
expect(0 ${run} --tokens "${WORK}/ids.txt" --out "${WORK}/logits/c.npy" --cut 3,1,4)
file(SHA256 "${WORK}/logits/b.npy" b)
file(SHA256 "${WORK}/logits/c.npy" c)
same("${b}" "${c}" "the same calls give other logits")
file(WRITE "${WORK}/bad.txt" "1 2 ${n_vocab}")
expect(3 ${run} --tokens "${WORK}/bad.txt"      --out "${WORK}/logits/a.npy")
expect(3 ${run} --tokens "${WORK}/empty"        --out "${WORK}/logits/d.npy")
expect(3 ${run} --tokens "${WORK}/missing"      --out "${WORK}/logits/d.npy")
expect(3 ${run} --tokens "${WORK}/logits/a.npy" --out "${WORK}/logits/d.npy") # float32
expect(1 ${run} --tokens "${WORK}/ids.txt"      --out "${WORK}/missing/d.npy")
file(SIZE "${WORK}/logits/a.npy" size)
math(EXPR expected "128 + 8*${n_vocab}*4")
same("${size}" "${expected}" "bytes of the logits")
file(GLOB left RELATIVE "${WORK}/logits" "${WORK}/logits/*")
same("${left}" "a.npy;b.npy;c.npy" "files beside the logits")

# ---- text: the ids of this tokenizer are the bytes, so that what should be written is known ---------------------------------------------

# Sets <out> to what lrnn-cli writes to stdout, in hexadecimal.
function(written out)
    execute_process(COMMAND "${BIN}/lrnn-cli" ${ARGN} OUTPUT_FILE "${WORK}/stdout" COMMAND_ERROR_IS_FATAL ANY)
    file(READ "${WORK}/stdout" hex HEX)
    set(${out} "${hex}" PARENT_SCOPE)
endfunction()

# Sets <out> to the first <n> of a list.
function(first out n ids)
    set(head "")
    if (n GREATER 0)
        list(SUBLIST ids 0 ${n} head)
    endif()
    set(${out} "${head}" PARENT_SCOPE)
endfunction()

execute_process(COMMAND "${MAKE_TEXT_MODEL}" "${for_text}" "${WORK}/text.gguf" COMMAND_ERROR_IS_FATAL ANY)
set(how -t 1 -q -n 256 --seed 1 --temp 2 --top-k 0 --top-p 1 --min-p 0 -p "a text")

expect(2 lrnn-cli -m "${WORK}/text.gguf" --prompt=) # no token begins a text
expect(0 lrnn-cli -m "${WORK}/text.gguf" ${how} --jsonl)
jsonl_ids(ids "${out}" STRING) # of all bytes: control characters, and what is no UTF-8
ids_to_hex(expected "${ids}")
written(hex -m "${WORK}/text.gguf" ${how})
same("${hex}" "${expected}" "text on stdout is not the bytes of the ids")

# --stop: before the first letter, and before the first two letters in a row
set(before FALSE)
set(n_letter -1)
set(n_pair   -1)
set(at 0)
foreach (id IN LISTS ids)
    if (id GREATER 96 AND id LESS 123)
        if (n_letter EQUAL -1)
            set(n_letter ${at})
            string(ASCII ${id} letter)
        endif()
        if (before)
            math(EXPR n_pair "${at} - 1")
            string(ASCII ${before} ${id} pair)
            break()
        endif()
        set(before ${id})
    else()
        set(before FALSE)
    endif()
    math(EXPR at "${at} + 1")
endforeach()
if (n_pair EQUAL -1)
    message(FATAL_ERROR "among 256 random bytes there are no two letters in a row; try another seed")
endif()
foreach (stop letter pair)
    first(head ${n_${stop}} "${ids}")
    ids_to_hex(expected "${head}")
    written(hex -m "${WORK}/text.gguf" ${how} --stop "never to be found" --stop "${${stop}}")
    same("${hex}" "${expected}" "--stop ${${stop}}")
endforeach()

# the model ends the text: its last token is an object of its own, and no text
list(GET ids 10 eos)
list(FIND ids ${eos} n_text)
math(EXPR n_all "${n_text} + 1")
execute_process(COMMAND "${MAKE_TEXT_MODEL}" "${for_text}" "${WORK}/eos.gguf" ${eos} COMMAND_ERROR_IS_FATAL ANY)
first(head ${n_text} "${ids}")
ids_to_hex(expected "${head}")
written(hex -m "${WORK}/eos.gguf" ${how})
same("${hex}" "${expected}" "a text that the model ends")
expect(0 lrnn-cli -m "${WORK}/eos.gguf" ${how} --jsonl)
jsonl_ids(found "${out}" STRING)
first(head ${n_all} "${ids}")
same("${found}" "${head}" "the ids of a text that the model ends")

list(LENGTH models n_models)
file(REMOVE_RECURSE "${WORK}")
message(STATUS "${checks} runs of the programs on ${n_models} models: codes, streams, greedy and seeded ids, states, logits, text, stop strings, eos")
