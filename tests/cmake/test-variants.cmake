# A build with several variants of ggml-cpu chooses the best one that the CPU can run. Each that it
# can run gives the golden logits, which are of models in F32, and the same text of one in Q8_0.
#
#   cmake -DBUILD=<build tree> -DWORK=<scratch folder> -P test-variants.cmake

cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/variants.cmake")

set(variants zen4 cascadelake alderlake haswell x64) # the best one first
set(needs_zen4        avx512_bf16 avx512vbmi avx512_vnni avx512f)
set(needs_cascadelake avx512_vnni avx512f)
set(needs_alderlake   avx_vnni avx2 bmi2 f16c fma)
set(needs_haswell     avx2 bmi2 f16c fma)
set(needs_x64         "")

file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
separate_arguments(flags UNIX_COMMAND "${flags}")
set(usable "")
foreach (variant IN LISTS variants)
    set(missing ${needs_${variant}})
    list(REMOVE_ITEM missing ${flags})
    if (NOT missing)
        list(APPEND usable ${variant})
    endif()
endforeach()
list(GET usable 0 best)
expect("this CPU" ${best})

# each in a folder without the others
file(REMOVE_RECURSE "${WORK}")
foreach (variant IN LISTS usable)
    file(GLOB libraries "${BUILD}/lib/*.so*")
    file(COPY ${libraries} DESTINATION "${WORK}/${variant}")
    file(COPY "${BUILD}/lib/lrnn/liblrnn-ggml-cpu-${variant}.so"
        DESTINATION "${WORK}/${variant}/lrnn")
    set(with "${CMAKE_COMMAND}" -E env "LD_LIBRARY_PATH=${WORK}/${variant}")
    expect("${variant} alone" ${variant} ${with})
    golden("${variant} alone" "" ${with})
    same_text("${variant} alone" ${with})
endforeach()
