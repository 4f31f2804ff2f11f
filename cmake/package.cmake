# Packages: source archives that are fetched with pip, checked by sha256 and kept in a cache of the
# user.
#
# A package <name> is described by variables LRNN_<name>_PACKAGE and the same with _VERSION, _STEM
# (of the archive and of the folder in it), _SHA256, _SIZE, _FOR (what it is needed for), _MISSING
# (what an error says first) and _OTHER_WAYS (what to do instead). If _OPTIONAL is set, a package
# that cannot be had is a warning, and no archive.

# lrnn_package_archive(<out> <name> <work-dir>): sets <out> to the archive of the package, from the
# cache or, the first time, fetched with pip. It is "" if an optional package cannot be had.
function(lrnn_package_archive out name work_dir)
    if (NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
        set(cache "$ENV{XDG_CACHE_HOME}/lrnn")
    elseif (NOT "$ENV{HOME}" STREQUAL "")
        set(cache "$ENV{HOME}/.cache/lrnn")
    else()
        set(cache "${work_dir}/cache")
    endif()
    set(archive "${cache}/${LRNN_${name}_PACKAGE_STEM}.tar.gz")

    if (EXISTS "${archive}")
        file(SHA256 "${archive}" hash)
        if (NOT hash STREQUAL LRNN_${name}_PACKAGE_SHA256)
            message(FATAL_ERROR "${archive} does not have the pinned sha256 and will not be used; "
                                "delete it and configure again to fetch it.")
        endif()
    else()
        lrnn_package_fetch(fetched ${name} "${work_dir}")
        if (NOT fetched)
            set(${out} "" PARENT_SCOPE)
            return()
        endif()
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
function(lrnn_package_fetch out name work_dir)
    set(what       "${LRNN_${name}_PACKAGE_MISSING}")
    set(other_ways "${LRNN_${name}_PACKAGE_OTHER_WAYS}")
    set(problem FATAL_ERROR)
    if (LRNN_${name}_PACKAGE_OPTIONAL)
        set(problem WARNING)
    endif()
    set(${out} "" PARENT_SCOPE)

    find_program(LRNN_PYTHON NAMES python3 python
        DOC "Python 3, used to fetch sources with pip")
    if (NOT LRNN_PYTHON)
        message(${problem} "${what} because Python 3 was not found: install it, or ${other_ways}.")
        return()
    endif()
    execute_process(COMMAND "${LRNN_PYTHON}" -m pip --version
        RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if (failed)
        message(${problem}
            "${what} because ${LRNN_PYTHON} has no pip: install pip, or ${other_ways}.")
        return()
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
    name = '${LRNN_${name}_PACKAGE_STEM}.dist-info'
    os.mkdir(os.path.join(metadata_directory, name))
    with open(os.path.join(metadata_directory, name, 'METADATA'), 'w') as f:
        f.write('Metadata-Version: 2.1\\n')
        f.write('Name: ${LRNN_${name}_PACKAGE}\\n')
        f.write('Version: ${LRNN_${name}_PACKAGE_VERSION}\\n')
    return name
")
    file(WRITE "${work_dir}/requirements.txt"
        "${LRNN_${name}_PACKAGE}==${LRNN_${name}_PACKAGE_VERSION} "
        "--hash=sha256:${LRNN_${name}_PACKAGE_SHA256}\n")

    message(STATUS "Fetching ${LRNN_${name}_PACKAGE} ${LRNN_${name}_PACKAGE_VERSION} with pip, for "
                   "${LRNN_${name}_PACKAGE_FOR} (${LRNN_${name}_PACKAGE_SIZE}, once)")
    execute_process(
        COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${work_dir}/backend" PIP_REQUIRE_VIRTUALENV=0
                "${LRNN_PYTHON}" -m pip download
                --no-deps --no-binary "${LRNN_${name}_PACKAGE}" --no-build-isolation
                --require-hashes --requirement "${work_dir}/requirements.txt"
                --no-cache-dir --no-input --disable-pip-version-check --progress-bar off
                --dest "${download}"
        RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
    file(WRITE "${log}" "${said}")

    set(archive "${download}/${LRNN_${name}_PACKAGE_STEM}.tar.gz")
    set(hash "")
    if (EXISTS "${archive}")
        file(SHA256 "${archive}" hash)
    endif()
    if (said MATCHES "DO NOT MATCH THE HASHES"
            OR (NOT failed AND NOT hash STREQUAL LRNN_${name}_PACKAGE_SHA256))
        message(${problem}
            "${LRNN_${name}_PACKAGE} ${LRNN_${name}_PACKAGE_VERSION} from pip does not have the "
            "pinned sha256 and will not be used: check the index and mirrors of pip, or "
            "${other_ways}.")
        return()
    elseif (failed)
        message(${problem} "${what} because pip failed to fetch ${LRNN_${name}_PACKAGE} "
                            "${LRNN_${name}_PACKAGE_VERSION} (see ${log}): check the network, or "
                            "${other_ways}.")
        return()
    endif()
    set(${out} "${archive}" PARENT_SCOPE)
endfunction()
