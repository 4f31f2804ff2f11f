# xgrammar, which tells which tokens a grammar allows: a package (see package.cmake), compiled into
# liblrnn. Without it, everything works but grammars.

set(LRNN_XGRAMMAR_PACKAGE            "xgrammar")
set(LRNN_XGRAMMAR_PACKAGE_VERSION    "0.2.8")
set(LRNN_XGRAMMAR_PACKAGE_STEM       "xgrammar-0.2.8")
set(LRNN_XGRAMMAR_PACKAGE_SHA256
    "8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80")
set(LRNN_XGRAMMAR_PACKAGE_SIZE       "3 MB")
set(LRNN_XGRAMMAR_PACKAGE_FOR        "grammars")
set(LRNN_XGRAMMAR_PACKAGE_MISSING
    "grammars are left out: xgrammar cannot be fetched as a package")
set(LRNN_XGRAMMAR_PACKAGE_OTHER_WAYS "configure with -DLRNN_GRAMMAR=OFF")
set(LRNN_XGRAMMAR_PACKAGE_OPTIONAL   ON)

# lrnn_xgrammar_source(<out-dir> <work-dir>): sets <out-dir> to the unpacked package; "": none.
function(lrnn_xgrammar_source out_dir work_dir)
    # named after the hash and renamed when complete, so an existing folder is complete and pinned
    string(SUBSTRING "${LRNN_XGRAMMAR_PACKAGE_SHA256}" 0 12 hash)
    set(unpacked "${work_dir}/xgrammar-${hash}")
    if (NOT EXISTS "${unpacked}")
        lrnn_package_archive(archive XGRAMMAR "${work_dir}")
        if (NOT archive)
            set(${out_dir} "" PARENT_SCOPE)
            return()
        endif()
        set(content "${LRNN_XGRAMMAR_PACKAGE_STEM}")
        file(REMOVE_RECURSE "${work_dir}/unpack")
        file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${work_dir}/unpack" PATTERNS
            "${content}/cpp/*" "${content}/include/*" "${content}/3rdparty/picojson/*"
            "${content}/3rdparty/dlpack/*" "${content}/LICENSE" "${content}/NOTICE")
        # A keyword that xgrammar does not know is only an error if we hear of it. This line is the
        # only one that we change.
        set(file "${work_dir}/unpack/${content}/cpp/json_schema_converter.cc")
        file(READ "${file}" text)
        string(REPLACE "bool verbose = false" "bool verbose = true" changed "${text}")
        if (changed STREQUAL text)
            message(FATAL_ERROR "${file} has no line with 'bool verbose = false'.")
        endif()
        file(WRITE "${file}" "${changed}")
        file(RENAME "${work_dir}/unpack/${content}" "${unpacked}")
        file(REMOVE_RECURSE "${work_dir}/unpack")
    endif()
    set(${out_dir} "${unpacked}" PARENT_SCOPE)
endfunction()

# lrnn_add_grammar(<xgrammar> <target>...): adds to the targets the objects of xgrammar, and
# grammar.cpp, the only file that includes its headers.
# - grammar-budget.h: sends what xgrammar allocates through grammar.cpp, which can refuse it
function(lrnn_add_grammar xgrammar)
    file(GLOB sources "${xgrammar}/cpp/*.cc" "${xgrammar}/cpp/converter_ext/*.cc"
        "${xgrammar}/cpp/support/*.cc")
    add_library(lrnn-xgrammar OBJECT ${sources})
    add_library(lrnn-grammar  OBJECT "${PROJECT_SOURCE_DIR}/src/generate/grammar.cpp")
    foreach (t IN ITEMS lrnn-xgrammar lrnn-grammar)
        set_target_properties(${t} PROPERTIES
            CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
            CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
            POSITION_INDEPENDENT_CODE ON)
        target_include_directories(${t} SYSTEM PRIVATE "${xgrammar}/include"
            "${xgrammar}/3rdparty/picojson" "${xgrammar}/3rdparty/dlpack/include")
        target_compile_definitions(${t} PRIVATE
            XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0 XGRAMMAR_LOG_CUSTOMIZE=1)
        target_compile_options(${t} PRIVATE ${LRNN_LINK_FLAGS})
        foreach (target IN LISTS ARGN)
            target_sources(${target} PRIVATE $<TARGET_OBJECTS:${t}>)
        endforeach()
    endforeach()
    # GCC 12 crashes when it looks for wrong pairs of new and delete and finds ours
    target_compile_options(lrnn-xgrammar PRIVATE -O2 -w -fsized-deallocation
        -Wno-free-nonheap-object -Wno-mismatched-dealloc -Wno-mismatched-new-delete
        "SHELL:-include \"${PROJECT_SOURCE_DIR}/src/generate/grammar-budget.h\"")
    target_compile_options(lrnn-grammar PRIVATE -Wall -Wextra ${LRNN_STRICT_FLAGS})
    target_link_libraries(lrnn-grammar PRIVATE lrnn-headers)
endfunction()
