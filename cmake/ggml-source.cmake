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

# ggml 0.25.3, the commit of the submodule
set(LRNN_GGML_COMMIT          "353b63b439f27ab2cc19dac97ab1681ba6d2d084")
set(LRNN_GGML_PACKAGE         "llama-cpp-python")
set(LRNN_GGML_PACKAGE_VERSION "0.3.36")
set(LRNN_GGML_PACKAGE_STEM    "llama_cpp_python-0.3.36") # of the archive and the folder in it
set(LRNN_GGML_PACKAGE_SHA256  "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e")
set(LRNN_GGML_PACKAGE_SIZE    "75 MB")

string(CONCAT LRNN_GGML_OTHER_WAYS "run `git submodule update --init`, "
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
        lrnn_ggml_archive(archive "${work_dir}")
        set(content "${LRNN_GGML_PACKAGE_STEM}/vendor/llama.cpp")
        list(TRANSFORM ARGN PREPEND "${content}/")
        file(REMOVE_RECURSE "${work_dir}/unpack")
        file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${work_dir}/unpack" PATTERNS ${ARGN})
        file(RENAME "${work_dir}/unpack/${content}" "${unpacked}")
        file(REMOVE_RECURSE "${work_dir}/unpack")
    endif()
    set(${out} "${unpacked}" PARENT_SCOPE)
endfunction()

# Sets <out> to the archive of the package, from the cache or, the first time, fetched with pip.
function(lrnn_ggml_archive out work_dir)
    if (NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
        set(cache "$ENV{XDG_CACHE_HOME}/lrnn")
    elseif (NOT "$ENV{HOME}" STREQUAL "")
        set(cache "$ENV{HOME}/.cache/lrnn")
    else()
        set(cache "${work_dir}/cache")
    endif()
    set(archive "${cache}/${LRNN_GGML_PACKAGE_STEM}.tar.gz")

    if (EXISTS "${archive}")
        file(SHA256 "${archive}" hash)
        if (NOT hash STREQUAL LRNN_GGML_PACKAGE_SHA256)
            message(FATAL_ERROR "${archive} does not have the pinned sha256 and will not be used; "
                                "delete it and configure again to fetch it.")
        endif()
    else()
        lrnn_ggml_fetch(fetched "${work_dir}")
        # if the cache is not writable, the next build tree has to download again
        string(RANDOM LENGTH 8 unique)
        execute_process(COMMAND "${CMAKE_COMMAND}" -E make_directory "${cache}"
            RESULT_VARIABLE failed ERROR_QUIET)
        execute_process(COMMAND "${CMAKE_COMMAND}" -E copy "${fetched}" "${archive}.${unique}"
            RESULT_VARIABLE failed ERROR_QUIET)
        if (NOT failed)
            file(RENAME "${archive}.${unique}" "${archive}" RESULT failed)
        endif()
        if (failed)
            message(STATUS "The cache ${cache} is not writable; the archive stays in ${work_dir}")
            set(archive "${fetched}")
        else()
            file(REMOVE "${fetched}")
        endif()
    endif()

    set(${out} "${archive}" PARENT_SCOPE)
endfunction()

# Fetches the archive with pip into <work-dir> and sets <out> to its path.
function(lrnn_ggml_fetch out work_dir)
    set(what "ggml/ is not checked out and cannot be fetched as a package")

    find_program(LRNN_PYTHON NAMES python3 python
        DOC "Python 3, used to fetch ggml's sources with pip")
    if (NOT LRNN_PYTHON)
        message(FATAL_ERROR "${what} because Python 3 was not found: install it, or "
                            "${LRNN_GGML_OTHER_WAYS}.")
    endif()
    execute_process(COMMAND "${LRNN_PYTHON}" -m pip --version
        RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if (failed)
        message(FATAL_ERROR "${what} because ${LRNN_PYTHON} has no pip: install pip, or "
                            "${LRNN_GGML_OTHER_WAYS}.")
    endif()

    # Before pip downloads a source archive, it asks the package's build backend for the name and
    # version of the package. This module replaces that backend, so nothing has to be installed and
    # no code of the package runs.
    set(download "${work_dir}/download")
    set(log      "${work_dir}/pip.log")
    file(REMOVE_RECURSE "${download}")
    file(WRITE "${work_dir}/backend/scikit_build_core/__init__.py" "")
    file(WRITE "${work_dir}/backend/scikit_build_core/build.py" "\
import os

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = '${LRNN_GGML_PACKAGE_STEM}.dist-info'
    os.mkdir(os.path.join(metadata_directory, name))
    with open(os.path.join(metadata_directory, name, 'METADATA'), 'w') as f:
        f.write('Metadata-Version: 2.1\\n')
        f.write('Name: ${LRNN_GGML_PACKAGE}\\n')
        f.write('Version: ${LRNN_GGML_PACKAGE_VERSION}\\n')
    return name
")
    file(WRITE "${work_dir}/requirements.txt"
        "${LRNN_GGML_PACKAGE}==${LRNN_GGML_PACKAGE_VERSION} "
        "--hash=sha256:${LRNN_GGML_PACKAGE_SHA256}\n")

    message(STATUS "Fetching ${LRNN_GGML_PACKAGE} ${LRNN_GGML_PACKAGE_VERSION} with pip, for the "
                   "sources of ggml (${LRNN_GGML_PACKAGE_SIZE}, once)")
    execute_process(
        COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${work_dir}/backend" PIP_REQUIRE_VIRTUALENV=0
                "${LRNN_PYTHON}" -m pip download
                --no-deps --no-binary "${LRNN_GGML_PACKAGE}" --no-build-isolation
                --require-hashes --requirement "${work_dir}/requirements.txt"
                --no-cache-dir --no-input --disable-pip-version-check --progress-bar off
                --dest "${download}"
        RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
    file(WRITE "${log}" "${said}")

    set(archive "${download}/${LRNN_GGML_PACKAGE_STEM}.tar.gz")
    set(hash "")
    if (EXISTS "${archive}")
        file(SHA256 "${archive}" hash)
    endif()
    if (said MATCHES "DO NOT MATCH THE HASHES"
            OR (NOT failed AND NOT hash STREQUAL LRNN_GGML_PACKAGE_SHA256))
        message(FATAL_ERROR
            "${LRNN_GGML_PACKAGE} ${LRNN_GGML_PACKAGE_VERSION} from pip does not have the pinned "
            "sha256 and will not be used: check the index and mirrors of pip, or "
            "${LRNN_GGML_OTHER_WAYS}.")
    elseif (failed)
        message(FATAL_ERROR "${what} because pip failed to fetch ${LRNN_GGML_PACKAGE} "
                            "${LRNN_GGML_PACKAGE_VERSION} (see ${log}): check the network, or "
                            "${LRNN_GGML_OTHER_WAYS}.")
    endif()
    set(${out} "${archive}" PARENT_SCOPE)
endfunction()
