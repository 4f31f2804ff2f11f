# cmake --workflow --preset demo: shows the purpose of lrnn in less than a minute.
#
#     cmake -DBIN=<programs> -DMODELS=<models/> -DOUT=<folder> -P demo.cmake

cmake_minimum_required(VERSION 3.25)

set(ENV{OMP_WAIT_POLICY} passive) # waiting threads leave the cores to other processes

# Prints to stdout, like the programs, so that the order is preserved in a pipe.
function(show text)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${text}")
endfunction()

# Prints a command as typed in the source folder, and runs it.
function(run program)
    set(line "${program}")
    foreach (word IN LISTS ARGN)
        string(REPLACE "${MODELS}" "models" word "${word}")
        string(REPLACE "${OUT}" "results" word "${word}")
        if (word MATCHES " ")
            set(word "\"${word}\"")
        endif()
        string(APPEND line " ${word}")
    endforeach()
    show("$ ${line}\n")
    execute_process(COMMAND "${BIN}/${program}" ${ARGN} RESULT_VARIABLE result)
    if (NOT result EQUAL 0)
        message(FATAL_ERROR "${program} returned ${result}")
    endif()
endfunction()

show("
State tracking: the parity of a million bits.
The two files contain the same tensors; only the eigenvalue range differs.
")
run(lrnn-probe -m ${MODELS}/exact/parity-delta-net.gguf -m ${MODELS}/exact/parity-delta-net-01.gguf
    --length 100-1000000*10 --trials 1 -t 1)

show("
The product of a million permutations of five elements (S5), with four reflections per letter.
")
run(lrnn-probe -m ${MODELS}/exact/s5.gguf -m ${MODELS}/exact/s5-01.gguf
    --length 100-1000000*10 --trials 1 -t 1)

show("
A regular language as weights: a model that tells code, strings and comments of C apart colors this
project's own source.
")
run(lrnn-highlight -m ${MODELS}/exact/c-source.gguf ${MODELS}/../src/base/error.h)

show("
A story from a model with 4.4 million parameters, trained on one CPU core for 86 minutes.
")
run(lrnn-cli -m ${MODELS}/stories-deltaproduct2-neg.gguf -p "Once upon a time" -n 400 --temp 0.6
    -s 7)

show("

Length extrapolation: three models trained on 512 bytes read 4,096 bytes of unseen novels.
")
file(REMOVE_RECURSE "${OUT}")
run(lrnn-perplexity run -q -m ${MODELS}/text-delta-pos.gguf -m ${MODELS}/text-delta-neg.gguf
    -m ${MODELS}/text-deltaproduct2-neg.gguf --data ${MODELS}/sample.jsonl --window 4096
    --out ${OUT})
run(lrnn-perplexity report ${OUT} --format table,svg,html --baseline text-delta-pos --out ${OUT})
show("\nThe charts: ${OUT}/report.html")
