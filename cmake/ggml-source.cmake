# The source of ggml: the pinned commit, and how a build finds its sources.
#
#   1. -DLRNN_GGML_DIR=<dir>   any checkout of ggml that the glue fits
#   2. ggml/                   the submodule, if it is checked out
#   3. a package               fetched with pip, checked by sha256, kept in a per-user cache;
#                              only its ggml folder is unpacked
#
# The package is a source distribution of llama-cpp-python, which contains llama.cpp, which contains
# ggml a few days after the pinned commit, and cpp-httplib, which lrnn-server uses. Nothing of the
# package is installed, and none of its Python code runs.

include("${CMAKE_CURRENT_LIST_DIR}/package.cmake")

# ggml 0.25.3, the commit of the submodule
set(LRNN_GGML_COMMIT          "353b63b439f27ab2cc19dac97ab1681ba6d2d084")
set(LRNN_GGML_PACKAGE         "llama-cpp-python")
set(LRNN_GGML_PACKAGE_VERSION "0.3.36")
set(LRNN_GGML_PACKAGE_STEM    "llama_cpp_python-0.3.36") # of the archive and the folder in it
set(LRNN_GGML_PACKAGE_SHA256  "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e")
set(LRNN_GGML_PACKAGE_SIZE    "75 MB")

set(LRNN_GGML_PACKAGE_FOR     "the sources of ggml")
set(LRNN_GGML_PACKAGE_MISSING "ggml/ is not checked out and cannot be fetched as a package")
string(CONCAT LRNN_GGML_PACKAGE_OTHER_WAYS "run `git submodule update --init`, "
    "or configure with -DLRNN_GGML_DIR=<a checkout of ggml>")

# lrnn_ggml_source(<out-dir> <out-commit> <source-dir> <work-dir>)
#
# Sets <out-dir> to the folder with ggml's CMakeLists.txt, and <out-commit> to the result of
# ggml_commit(). Writes only to <work-dir> and the cache.
function(lrnn_ggml_source out_dir out_commit source_dir work_dir)
    set(dir    "${source_dir}/ggml")
    set(commit "${LRNN_GGML_COMMIT}")

    if (LRNN_GGML_DIR)
        cmake_path(ABSOLUTE_PATH LRNN_GGML_DIR NORMALIZE OUTPUT_VARIABLE dir)
        set(commit "local")
        if (NOT EXISTS "${dir}/CMakeLists.txt" OR NOT EXISTS "${dir}/include/ggml.h")
            message(FATAL_ERROR
                "LRNN_GGML_DIR is ${dir}, which is not a checkout of ggml (it lacks CMakeLists.txt "
                "or include/ggml.h); set it to one, or configure with -ULRNN_GGML_DIR.")
        endif()
    elseif (NOT EXISTS "${dir}/CMakeLists.txt")
        lrnn_ggml_unpack(dir "${work_dir}")
    endif()

    # a checkout may be at another commit than the pinned one
    if (EXISTS "${dir}/.git")
        execute_process(COMMAND git rev-parse HEAD WORKING_DIRECTORY "${dir}"
            OUTPUT_VARIABLE head ERROR_QUIET)
        if (head MATCHES "^[0-9a-f]+")
            set(commit "${head}")
        endif()
    endif()
    string(SUBSTRING "${commit}" 0 8 commit)

    set(${out_dir}    "${dir}"         PARENT_SCOPE)
    set(${out_commit} "${commit}+lrnn" PARENT_SCOPE)
endfunction()

# Sets <out> to the ggml folder of the package, unpacked in <work-dir>.
function(lrnn_ggml_unpack out work_dir)
    lrnn_package_unpack(unpacked "${work_dir}" "${LRNN_GGML_PACKAGE_STEM}" "ggml/*" "LICENSE")
    set(${out} "${unpacked}/ggml" PARENT_SCOPE)
endfunction()

# lrnn_httplib_source(<out-dir> <work-dir>): sets <out-dir> to the folder of cpp-httplib, always
# that of the package. The archive is fetched if ggml came from elsewhere.
function(lrnn_httplib_source out_dir work_dir)
    lrnn_package_unpack(unpacked "${work_dir}" "cpp-httplib" "vendor/cpp-httplib/*")
    set(${out_dir} "${unpacked}/vendor/cpp-httplib" PARENT_SCOPE)
endfunction()

# lrnn_package_unpack(<out> <work-dir> <name> <pattern>...): sets <out> to a folder in <work-dir>
# with the files of the package's llama.cpp that match the patterns.
function(lrnn_package_unpack out work_dir name)
    # named after the hash and renamed when complete, so an existing folder is complete and pinned
    string(SUBSTRING "${LRNN_GGML_PACKAGE_SHA256}" 0 12 hash)
    set(unpacked "${work_dir}/${name}-${hash}")
    if (NOT EXISTS "${unpacked}")
        lrnn_package_archive(archive GGML "${work_dir}")
        set(content "${LRNN_GGML_PACKAGE_STEM}/vendor/llama.cpp")
        list(TRANSFORM ARGN PREPEND "${content}/")
        file(REMOVE_RECURSE "${work_dir}/unpack")
        file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${work_dir}/unpack" PATTERNS ${ARGN})
        file(RENAME "${work_dir}/unpack/${content}" "${unpacked}")
        file(REMOVE_RECURSE "${work_dir}/unpack")
    endif()
    set(${out} "${unpacked}" PARENT_SCOPE)
endfunction()
