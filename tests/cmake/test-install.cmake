# An installed lrnn can be moved, its programs run, and other projects build against it: with
# find_package, with pkg-config, and with nothing but the header and the library, or with lrnn.py. A
# ggml without our ops in the same prefix does not interfere.
#
#   cmake -DBUILD=<build tree> -DCONFIG=… -DGENERATOR=… -DC_COMPILER=… -DSANITIZE=… -DSHARED=…
#         -DWORK=<scratch folder> -P test-install.cmake

cmake_minimum_required(VERSION 3.25)

set(source "${CMAKE_CURRENT_LIST_DIR}/../..")
set(prefix "${WORK}/prefix")

# run(<command>...): sets `said` to the standard output of the command, which must succeed. In a
# build with assertions, ggml logs to standard error.
function(run)
    execute_process(COMMAND ${ARGN}
        RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE errors)
    if (failed)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}\nfailed with ${failed}:\n${said}\n${errors}")
    endif()
    set(said "${said}" PARENT_SCOPE)
endfunction()

set(flags -std=c11 -Wall -Wextra -Wpedantic -Werror)
if (SANITIZE)
    list(APPEND flags -fsanitize=address,undefined)
endif()

file(REMOVE_RECURSE "${WORK}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --config "${CONFIG}" --prefix "${WORK}/installed")
file(RENAME "${WORK}/installed" "${prefix}")
file(GLOB library_dir "${prefix}/lib*")

# another ggml in the same prefix, which nothing may use
file(WRITE "${prefix}/include/ggml.h" "#error this is another ggml\n")
foreach (name libggml.so libggml.so.0 libggml-base.so libggml-base.so.0 libggml.a libggml-base.a)
    file(WRITE "${library_dir}/${name}" "this is another ggml\n")
endforeach()

# ---- Programs, man pages and completions

file(GLOB programs "${prefix}/bin/*")
foreach (program IN LISTS programs)
    run("${program}" --version)
    message(STATUS "installed: ${said}")
    get_filename_component(name "${program}" NAME)
    foreach (file IN ITEMS
            man/man1/${name}.1
            bash-completion/completions/${name}
            zsh/site-functions/_${name}
            fish/vendor_completions.d/${name}.fish)
        if (NOT EXISTS "${prefix}/share/${file}")
            message(FATAL_ERROR "share/${file} is not installed")
        endif()
    endforeach()
endforeach()

# ---- The header and the library alone: the smallest program

if (SHARED)
    file(COPY "${prefix}/include/lrnn/lrnn.h" DESTINATION "${WORK}/header")
    run("${C_COMPILER}" ${flags} "-I${WORK}/header"
        "${source}/examples/simple/main.c" -o "${WORK}/simple"
        "-L${library_dir}" -llrnn "-Wl,-rpath,${library_dir}")
    set(prompt "The old man looked at")
    run("${WORK}/simple" "${source}/models/text-delta-neg.gguf" "${prompt}")
    string(LENGTH "${said}" size)
    if (NOT said MATCHES "^${prompt}" OR size LESS 50)
        message(FATAL_ERROR "examples/simple does not continue the prompt:\n${said}")
    endif()
    message(STATUS "examples/simple: ${said}")
endif()

# ---- Python

if (SHARED AND NOT SANITIZE AND EXISTS "${BUILD}/convert-env/bin/python")
    run("${CMAKE_COMMAND}" -E env "PYTHONPATH=${prefix}/share/lrnn/python"
        PYTHONDONTWRITEBYTECODE=1 --unset=LRNN_LIBRARY
        "${BUILD}/convert-env/bin/python" -c "import lrnn
with lrnn.Model('${source}/models/text-delta-neg.gguf') as model, lrnn.Session(model) as session:
    print(lrnn.version(), lrnn._lib._name, session.eval(model.tokenize('The')).shape)")
    string(FIND "${said}" "${library_dir}/liblrnn." at)
    if (at EQUAL -1 OR NOT said MATCHES "\\(1, 256\\)")
        message(FATAL_ERROR "lrnn.py does not use the installed library:\n${said}")
    endif()
    message(STATUS "Python: ${said}")
endif()

# ---- find_package

list(JOIN flags " " c_flags)
run("${CMAKE_COMMAND}" -S "${source}/tests/install" -B "${WORK}/find-package" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_C_FLAGS=${c_flags}"
    "-DCMAKE_BUILD_TYPE=${CONFIG}" "-DSHARED=${SHARED}")
run("${CMAKE_COMMAND}" --build "${WORK}/find-package" --config "${CONFIG}")
run("${WORK}/find-package/consumer")
message(STATUS "find_package: ${said}")

# ---- pkg-config

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if (PKG_CONFIG)
    set(ENV{PKG_CONFIG_PATH} "${library_dir}/pkgconfig")
    run("${PKG_CONFIG}" --cflags --libs lrnn)
    separate_arguments(found UNIX_COMMAND "${said}")
    run("${C_COMPILER}" ${flags} "${source}/tests/install/main.c" -o "${WORK}/consumer" ${found}
        "-Wl,-rpath,${library_dir}")
    run("${WORK}/consumer")
    message(STATUS "pkg-config: ${said}")
else()
    message(STATUS "pkg-config is not installed: not tested")
endif()

file(REMOVE_RECURSE "${WORK}")
