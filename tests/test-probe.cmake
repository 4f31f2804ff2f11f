# lrnn-probe: what it prints and returns, on the models that ship and those of tests/golden.
#
#   cmake -DBIN=<programs> -DMODELS=<models/> -DGOLDEN=<tests/golden> -DWORK=<scratch folder> -P test-probe.cmake

cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/expect.cmake")

function(check what)
    if (NOT (${ARGN}))
        message(FATAL_ERROR "${what}: ${ARGN}")
    endif()
endfunction()

# accuracy by length, as JSON; the twin fails
expect(0 lrnn-probe -m ${MODELS}/exact/s3.gguf -m ${MODELS}/exact/s3-01.gguf --length 10,1000 --trials 2 --json --svg ${WORK}/s3.svg)
string(JSON right GET "${out}" models 0 lengths 1 right)
string(JSON asked GET "${out}" models 0 lengths 1 asked)
string(JSON wrong GET "${out}" models 1 lengths 1 right)
check("S3: positions 11 to 1000 of two sequences" "${right}" EQUAL 1980 AND "${asked}" EQUAL 1980)
check("S3 in [0,1]: right by chance"              "${wrong}" LESS 600)
file(READ "${WORK}/s3.svg" svg)
if (NOT svg MATCHES "<svg.*s3-01.*</svg>")
    message(FATAL_ERROR "no picture: ${svg}")
endif()

# the same seed gives the same answers, whatever the batch
expect(0 lrnn-probe -m ${MODELS}/parity-delta-pos.gguf --length 64,256 --trials 5 -s 7 -b 64 --json)
set(first "${out}")
expect(0 lrnn-probe -m ${MODELS}/parity-delta-pos.gguf --length 64,256 --trials 5 -s 7 -b 4096 --json)
foreach (row IN ITEMS 0 1)
    string(JSON a GET "${first}" models 0 lengths ${row} right)
    string(JSON b GET "${out}"   models 0 lengths ${row} right)
    check("the same answers in calls of 64 and of 4096 tokens" "${a}" EQUAL "${b}")
endforeach()

# trained parity in [-1,1] is perfect at 40 to 256 tokens, as in the paper, in both families
foreach (family IN ITEMS delta mamba)
    expect(0 lrnn-probe -m ${MODELS}/parity-${family}-neg.gguf --sample 40,256 --trials 256 --json)
    string(JSON right GET "${out}" models 0 lengths 0 right)
    check("parity-${family}-neg" "${right}" EQUAL 256)
endforeach()

file(WRITE "${WORK}/ids.txt" "1 5 9 2 3 30 31 7 22 40 41 8 8 3 19 20 21 11 5 6 0 47 33 12 13 14 15 16 17 18 2 4 6 29 39 45")

# eigenvalues: negative ones in every golden model with unit keys and the sign, none in the others
foreach (model IN ITEMS delta_net_neg delta_net_neg_noconv_gate deltaproduct3_neg gated_deltanet_neg gated_deltaproduct2_neg kda_neg mamba_neg)
    expect(0 lrnn-probe -m ${GOLDEN}/${model}.gguf --eigenvalues --tokens ${WORK}/ids.txt --json)
    string(JSON n GET "${out}" models 0 spectrum all negative)
    string(JSON outside GET "${out}" models 0 spectrum all outside)
    check("${model}: negative eigenvalues" "${n}" GREATER 0)
    check("${model}: none beyond the unit circle" "${outside}" EQUAL 0)
endforeach()
foreach (model IN ITEMS delta_net_pos gla hgrn2 mamba mamba2 retnet rwkv6 xlstm kda gated_deltanet_gqa)
    expect(0 lrnn-probe -m ${GOLDEN}/${model}.gguf --eigenvalues --tokens ${WORK}/ids.txt --json)
    string(JSON n GET "${out}" models 0 spectrum all negative)
    string(JSON all GET "${out}" models 0 spectrum all counted)
    check("${model}: no negative eigenvalues, of some" "${n}" EQUAL 0 AND "${all}" GREATER 0)
endforeach()

# what is wrong is said in one line
expect(2 lrnn-probe -m ${MODELS}/exact/s3.gguf --task S9)
expect(2 lrnn-probe -m ${MODELS}/exact/s3.gguf --task parity)
expect(2 lrnn-probe -m ${MODELS}/exact/s3.gguf --length 100,10)
expect(2 lrnn-probe -m ${MODELS}/exact/s3.gguf --sample 40)
expect(2 lrnn-probe -m ${MODELS}/exact/s3.gguf -m ${MODELS}/exact/s5.gguf --length 10)
expect(2 lrnn-probe -m ${MODELS}/exact/s3.gguf -f x.txt)
expect(3 lrnn-probe -m ${GOLDEN}/gla.gguf --eigenvalues --tokens ${WORK}/none.txt)
expect(2 lrnn-probe --length 10)
expect(2 lrnn-probe -m ${MODELS}/text-delta-neg.gguf --length 10)
expect(4 lrnn-probe -m ${WORK}/none.gguf)
message("lrnn-probe: ${checks} runs as expected")
