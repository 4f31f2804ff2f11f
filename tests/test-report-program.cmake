# lrnn-perplexity report and compare on score files of models that do not exist: files, exit codes, refusals.
#
#   cmake -DBIN=<folder of the programs> -DMAKE_SCORES=<make-scores> -DWORK=<scratch folder> -P test-report-program.cmake

cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/expect.cmake")
file(MAKE_DIRECTORY "${WORK}/runs" "${WORK}/shards/deep")

function(scores file)
    execute_process(COMMAND "${MAKE_SCORES}" "${WORK}/${file}" train_length=256 window=1024 n_windows=12 ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(must_match text pattern)
    if (NOT "${text}" MATCHES "${pattern}")
        message(FATAL_ERROR "expected ${pattern} in: ${text}")
    endif()
endfunction()

function(same_files a b)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E compare_files "${WORK}/${a}" "${WORK}/${b}" RESULT_VARIABLE differ)
    if (differ)
        message(FATAL_ERROR "${a} and ${b} differ")
    endif()
endfunction()

scores(runs/pos.nll model=pos dataset=code rise=0.2 wobble=0.02)
scores(runs/neg.nll model=neg dataset=code wobble=0.02)
scores(runs/prose.nll model=neg dataset=prose)

# ---- every form, and what is in them ---------------------------------------------------------------------------------------------------

set(files report.json buckets.csv prefix.csv report.svg report.html)
expect(0 lrnn-perplexity report runs --format table,json,csv,svg,html --baseline pos --out a)
must_match("${out}" "The first L tokens: perplexity")
must_match("${out}" "-- trained on 256 --")
must_match("${out}" "Less pos, paired by window")
must_match("${said}" "wrote a/report.svg")
foreach (file IN LISTS files)
    if (NOT EXISTS "${WORK}/a/${file}")
        message(FATAL_ERROR "${file} was not written")
    endif()
endforeach()
file(READ "${WORK}/a/report.json" json)
string(JSON schema GET "${json}" schema)
string(JSON n_runs LENGTH "${json}" runs)
string(JSON model GET "${json}" runs 0 model name)
string(JSON n_windows LENGTH "${json}" runs 0 windows)
string(JSON length GET "${json}" runs 0 prefix 0 length)
string(JSON won GET "${json}" comparisons 0 beyond_trained_length won)
if (NOT "${schema} ${n_runs} ${model} ${n_windows} ${length} ${won}" STREQUAL "lrnn-perplexity/2 3 neg 12 128 12") # neg is better in every window
    message(FATAL_ERROR "report.json: ${schema} ${n_runs} ${model} ${n_windows} ${length} ${won}")
endif()
file(STRINGS "${WORK}/a/prefix.csv" rows)
list(LENGTH rows n_rows)
list(GET rows 0 head)
if (NOT n_rows EQUAL 13 OR NOT head MATCHES "^model,dataset,protocol,length,tokens,") # 3 runs with prefixes of 128, 256, 512, 1024
    message(FATAL_ERROR "prefix.csv: ${n_rows} rows, head ${head}")
endif()

# ---- the same again, and from shards in folders below, in another order ------------------------------------------------------------------

expect(0 lrnn-perplexity report runs --format json,csv,svg,html --baseline pos --out b)
foreach (shard RANGE 1 3)
    scores(shards/neg-${shard}.nll model=neg dataset=code wobble=0.02 shard=${shard} n_shards=3)
endforeach()
scores(shards/deep/pos.nll model=pos dataset=code rise=0.2 wobble=0.02)
scores(shards/prose.nll model=neg dataset=prose)
expect(0 lrnn-perplexity report shards/neg-3.nll shards/neg-1.nll shards/neg-2.nll shards/deep shards/prose.nll --format json,csv,svg,html --baseline pos --out c)
foreach (file IN LISTS files)
    same_files(a/${file} b/${file})
    same_files(a/${file} c/${file})
endforeach()

# ---- comparisons: from reports, from scores, and from both the same --------------------------------------------------------------------

expect(0 lrnn-perplexity report runs/pos.nll --format json --out pos)
expect(0 lrnn-perplexity report runs/neg.nll --format json --out neg)
expect(0 lrnn-perplexity compare runs/pos.nll runs/neg.nll)
set(from_scores "${out}")
must_match("${out}" "neg \\(second\\) less pos \\(first\\), nats per token")
must_match("${out}" "beyond 256 .* 12 of 12")
foreach (pair "pos/report.json;neg/report.json" "pos/report.json;runs/neg.nll" "runs/pos.nll;neg/report.json")
    expect(0 lrnn-perplexity compare ${pair})
    if (NOT out STREQUAL from_scores)
        message(FATAL_ERROR "compare ${pair}: ${out}\ninstead of ${from_scores}")
    endif()
endforeach()

# ---- the list of columns has every column of both CSV files ---------------------------------------------------------------------------

expect(0 lrnn-perplexity report --list-columns)
set(listed "${out}")
foreach (file buckets prefix)
    file(STRINGS "${WORK}/a/${file}.csv" head LIMIT_COUNT 1)
    string(REPLACE "," ";" head "${head}")
    foreach (column IN LISTS head)
        must_match("${listed}" "\n  ${column} ")
    endforeach()
endforeach()

# ---- refusals --------------------------------------------------------------------------------------------------------------------------

expect(3 lrnn-perplexity compare runs/neg.nll runs/prose.nll)
must_match("${said}" "data_fingerprint is 'code' in the one and 'prose' in the other")
scores(other-window.nll model=w dataset=code window=2048)
expect(3 lrnn-perplexity compare runs/neg.nll other-window.nll)
must_match("${said}" "window is 1024 in the one and 2048 in the other")
scores(other-tokens.nll model=t dataset=code tokenizer=t1)
expect(0 lrnn-perplexity compare runs/neg.nll other-tokens.nll)
must_match("${out}" "bits per byte")
expect(3 lrnn-perplexity compare neg/report.json other-tokens.nll)
must_match("${said}" "tokenizer_hash is .*; their score files \\(.nll\\) can be, in bits per byte")

scores(part.nll model=part dataset=code n_write=7)
expect(3 lrnn-perplexity report part.nll)
must_match("${said}" "it has 7 of 12 windows")
expect(0 lrnn-perplexity report part.nll --partial)
must_match("${out}" "partial: 7 of 12 windows are there")
must_match("${out}" "Student's t on window means")
expect(3 lrnn-perplexity report shards/neg-1.nll shards/neg-3.nll)
must_match("${said}" "shard 2 is missing")
expect(3 lrnn-perplexity report nowhere)
expect(3 lrnn-perplexity report a)
must_match("${said}" "no score files")
file(WRITE "${WORK}/text.nll" "not a score file, but long enough to be looked at as one")
expect(3 lrnn-perplexity report text.nll)
expect(3 lrnn-perplexity report runs --baseline nobody)
must_match("${said}" "no model 'nobody'")
expect(2 lrnn-perplexity report)
expect(2 lrnn-perplexity report runs --format pdf)
must_match("${said}" "none of table, json, csv, svg, html")
expect(2 lrnn-perplexity report runs --bucket few)
expect(2 lrnn-perplexity report runs --smooth 10)
expect(2 lrnn-perplexity compare runs/neg.nll)
expect(3 lrnn-perplexity compare runs/neg.nll a/buckets.csv)

message(STATUS "test-report-program: reports and comparisons are as they should be")
