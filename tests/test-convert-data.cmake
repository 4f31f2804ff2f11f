# Parquet and Arrow through lrnn-convert data: the reader in C finds the same texts with the same fingerprint as in all
# the other containers of data/dataset.
#
# CONVERT, TEST_DATASET: the programs; DATA: the folder; GZIP: whether the reader can decompress; WORK: a folder of our own

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(outputs "")
foreach (container IN ITEMS parquet arrow-file arrow-stream)
    set(output "${WORK}/${container}.jsonl")
    if (container STREQUAL parquet AND GZIP)
        string(APPEND output ".gz")
    endif()
    execute_process(COMMAND "${CONVERT}" data "${DATA}/${container}" -o "${output}" --quiet COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND outputs "${output}")
endforeach()
execute_process(COMMAND "${TEST_DATASET}" same ${outputs} COMMAND_ERROR_IS_FATAL ANY)
