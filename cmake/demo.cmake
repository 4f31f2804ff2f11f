# cmake --workflow --preset demo: what lrnn is for, in less than a minute.
#
#     cmake -DBIN=<programs> -DMODELS=<models/> -DOUT=<folder> -P demo.cmake

cmake_minimum_required(VERSION 3.25)

set(ENV{OMP_WAIT_POLICY} passive) # threads that wait do not take the cores from whatever else runs

# to stdout, where the programs write, so that the order is kept in a pipe
function(show text)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${text}")
endfunction()

# Prints a command as a user would type it in the source folder, and runs it.
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

show("\nState tracking: the parity of a million bits. The two files hold the same tensors; only the range of the eigenvalues differs.\n")
run(lrnn-probe -m ${MODELS}/exact/parity-delta-net.gguf -m ${MODELS}/exact/parity-delta-net-01.gguf --length 100-1000000*10 --trials 1 -t 1)

show("\nThe product of a million permutations of five things (S5), by four reflections a letter.\n")
run(lrnn-probe -m ${MODELS}/exact/s5.gguf -m ${MODELS}/exact/s5-01.gguf --length 100-1000000*10 --trials 1 -t 1)

show("\nText from a byte-level model of 1.7 million parameters, trained on a CPU for half an hour: words, not sense.\n")
run(lrnn-cli -m ${MODELS}/text-deltaproduct2-neg.gguf -p "The old man looked at" -n 160 --temp 0.6 -s 1)

show("\n\nLength extrapolation: three models trained on 512 bytes read 4,096 bytes of novels that they have not seen.\n")
file(REMOVE_RECURSE "${OUT}")
run(lrnn-perplexity run -q -m ${MODELS}/text-delta-pos.gguf -m ${MODELS}/text-delta-neg.gguf -m ${MODELS}/text-deltaproduct2-neg.gguf
    --dataset slimpajama --data ${MODELS}/sample.jsonl --window 4096 --out ${OUT})
run(lrnn-perplexity report ${OUT} --format table,svg,html --baseline text-delta-pos --out ${OUT})
show("\nThe picture: ${OUT}/report.html")
