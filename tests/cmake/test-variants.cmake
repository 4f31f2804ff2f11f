# A build with several variants of ggml-cpu chooses the one that suits the CPU, and every variant
# gives the golden logits. CPUs without AVX-512 and without AVX are emulated by qemu-user, if there
# is one.
#
#   cmake -DBUILD=<build tree> -DWORK=<scratch folder> -P test-variants.cmake

cmake_minimum_required(VERSION 3.25)

# devices(<out> <command>...): what lrnn-inspect --devices says, run by <command>
function(devices out)
    execute_process(COMMAND ${ARGN} "${BUILD}/bin/lrnn-inspect" --devices
        OUTPUT_VARIABLE said ERROR_VARIABLE errors RESULT_VARIABLE failed)
    if (failed)
        message(FATAL_ERROR "${ARGN} lrnn-inspect --devices failed:\n${said}${errors}")
    endif()
    set(${out} "${said}" PARENT_SCOPE)
endfunction()

# golden(<name> <models> <command>...): runs test-golden of some models, or of all, with <command>
function(golden name models)
    set(ENV{OMP_WAIT_POLICY} passive)
    execute_process(COMMAND ${ARGN} "${BUILD}/tests/test-golden" ${models}
        OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE failed)
    string(REGEX MATCH "test-golden: [^\n]*" sum "${said}")
    if (failed)
        message(FATAL_ERROR "${name}: test-golden failed:\n${said}")
    endif()
    message(STATUS "${name}: ${sum}")
endfunction()

# ---- The choice

# the features that lrnn-inspect prints with each variant, the best one first
set(variants zen4 cascadelake haswell x64)
set(features_zen4        " AVX512 AVX512_VNNI AVX512_BF16)")
set(features_cascadelake " AVX512 AVX512_VNNI)")
set(features_haswell     ": AVX AVX2 FMA)")
set(features_x64         " (CPU)")
set(needs_zen4           avx512_bf16 avx512vbmi avx512_vnni avx512f)
set(needs_cascadelake    avx512_vnni avx512f)
set(needs_haswell        avx2 bmi2 f16c fma)
set(needs_x64            "")

# expect(<name> <variant> <command>...)
function(expect name variant)
    devices(said ${ARGN})
    string(FIND "${said}" "${features_${variant}}" at)
    if (at LESS 0)
        message(FATAL_ERROR "${name}: expected the variant ${variant}; found:\n${said}")
    endif()
    message(STATUS "${name}: ${variant}")
endfunction()

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

# ---- Every variant that this CPU can run, in a folder without the others

file(REMOVE_RECURSE "${WORK}")
foreach (variant IN LISTS usable)
    file(GLOB libraries "${BUILD}/lib/*.so*")
    file(COPY ${libraries} DESTINATION "${WORK}/${variant}")
    file(COPY "${BUILD}/lib/lrnn/liblrnn-ggml-cpu-${variant}.so"
        DESTINATION "${WORK}/${variant}/lrnn")
    set(with "${CMAKE_COMMAND}" -E env "LD_LIBRARY_PATH=${WORK}/${variant}")
    expect("${variant} alone" ${variant} ${with})
    golden("${variant} alone" "" ${with})
endforeach()

# ---- Other CPUs

find_program(qemu qemu-x86_64)
if (NOT qemu)
    message("SKIPPED: no qemu-x86_64 (Debian: qemu-user), so no CPU without AVX-512 was tried")
    return()
endif()
expect("Haswell" haswell "${qemu}" -cpu Haswell)
golden("Haswell" "delta_net_neg;mamba2" "${qemu}" -cpu Haswell)
expect("Nehalem" x64 "${qemu}" -cpu Nehalem)
