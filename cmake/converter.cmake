# lrnn-convert: a Python package in convert/. The build runs it in a virtual environment with the
# pinned packages of convert/requirements.txt. `pip install ./convert` installs the same command
# without the build.

option(LRNN_CONVERTER "Create the virtual environment of lrnn-convert" ${PROJECT_IS_TOP_LEVEL})
if (NOT LRNN_CONVERTER)
    return()
endif()

find_package(Python3 3.11 COMPONENTS Interpreter)
if (NOT Python3_FOUND)
    message(FATAL_ERROR
        "lrnn-convert needs Python 3.11 or later with venv and pip; install it, or configure with "
        "-DLRNN_CONVERTER=OFF.")
endif()

set(convert_source "${PROJECT_SOURCE_DIR}/convert")
set(convert_env    "${PROJECT_BINARY_DIR}/convert-env")
set(convert_python "${convert_env}/bin/python")

set(requirements "${convert_source}/requirements.txt")
if (LRNN_BUILD_TESTS)
    list(APPEND requirements "${convert_source}/requirements-test.txt")
endif()
list(TRANSFORM requirements PREPEND "--requirement=" OUTPUT_VARIABLE requirement_options)

add_custom_command(
    OUTPUT  "${convert_env}/stamp"
    COMMAND "${CMAKE_COMMAND}" -E rm -rf "${convert_env}"
    COMMAND "${Python3_EXECUTABLE}" -m venv "${convert_env}"
    COMMAND "${convert_python}" -m pip install --quiet --disable-pip-version-check
            --require-hashes --only-binary :all: ${requirement_options}
    COMMAND "${CMAKE_COMMAND}" -E touch "${convert_env}/stamp"
    DEPENDS ${requirements}
    COMMENT "Creating the Python environment of lrnn-convert"
    VERBATIM)

# Until lrnn-convert handles SIGINT, Python would answer it with a traceback. GNU env holds it back.
set(convert_env_command env --block-signal=INT)
execute_process(COMMAND ${convert_env_command} true
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
if (NOT result EQUAL 0)
    set(convert_env_command "")
endif()
list(JOIN convert_env_command " " convert_env_command)

file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/bin/lrnn-convert" @ONLY CONTENT [=[
#!/bin/sh
# runs lrnn-convert from the source tree in the environment of the build, next to its programs
export PYTHONPATH="@convert_source@" PYTHONDONTWRITEBYTECODE=1 PATH="@PROJECT_BINARY_DIR@/bin:$PATH"
# -P: without the current folder, which may be a checkpoint with modules of its own
exec @convert_env_command@ "@convert_python@" -P -m lrnn_convert "$@"
]=])
file(CHMOD "${PROJECT_BINARY_DIR}/bin/lrnn-convert" PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# man pages and completions, like those of the programs
set(LRNN_DESCRIPTIONS "${PROJECT_BINARY_DIR}/share")
file(GLOB_RECURSE convert_files CONFIGURE_DEPENDS "${convert_source}/lrnn_convert/*.py")
add_custom_command(
    OUTPUT  "${LRNN_DESCRIPTIONS}/man/lrnn-convert.1"
    COMMAND "${CMAKE_COMMAND}" "-DPROGRAM=${PROJECT_BINARY_DIR}/bin/lrnn-convert"
            -DNAME=lrnn-convert -DCOMMANDS=automaton,chat-format,data,exact,get
            "-DOUT=${LRNN_DESCRIPTIONS}" -P "${PROJECT_SOURCE_DIR}/cmake/describe.cmake"
    DEPENDS "${convert_env}/stamp" ${convert_files} "${PROJECT_SOURCE_DIR}/cmake/describe.cmake"
    COMMENT "Writing man pages and completions of lrnn-convert"
    VERBATIM)
add_custom_target(lrnn-convert ALL DEPENDS "${LRNN_DESCRIPTIONS}/man/lrnn-convert.1")
