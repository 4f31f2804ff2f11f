# What `cmake --install` leaves can be moved, its programs run, and a program elsewhere builds against it by find_package and by pkg-config,
# also where a ggml without our ops is installed beside it.
#
#   cmake -DBUILD=<build tree> -DCONFIG=… -DGENERATOR=… -DC_COMPILER=… -DSANITIZE=… -DSHARED=… -DWORK=<scratch folder>
#         -P test-install.cmake

cmake_minimum_required(VERSION 3.25)

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if (failed)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}\nfailed (${failed}) and said:\n${said}")
    endif()
    set(said "${said}" PARENT_SCOPE)
endfunction()

set(flags "")
if (SANITIZE)
    set(flags -fsanitize=address,undefined)
endif()

file(REMOVE_RECURSE "${WORK}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --config "${CONFIG}" --prefix "${WORK}/installed")
file(RENAME "${WORK}/installed" "${WORK}/prefix")
file(GLOB library_dir "${WORK}/prefix/lib*")

# another ggml in the same prefix, that would break whoever takes it
file(WRITE "${WORK}/prefix/include/ggml.h" "#error this is another ggml\n")
foreach (name libggml.so libggml.so.0 libggml-base.so libggml-base.so.0 libggml.a libggml-base.a)
    file(WRITE "${library_dir}/${name}" "this is another ggml\n")
endforeach()

file(GLOB programs "${WORK}/prefix/bin/*")
foreach (program IN LISTS programs)
    run("${program}" --version)
    message(STATUS "installed: ${said}")
endforeach()

foreach (program IN LISTS programs)
    get_filename_component(name "${program}" NAME)
    foreach (file IN ITEMS man/man1/${name}.1 bash-completion/completions/${name} zsh/site-functions/_${name} fish/vendor_completions.d/${name}.fish)
        if (NOT EXISTS "${WORK}/prefix/share/${file}" AND NOT name STREQUAL "lrnn-convert")
            message(FATAL_ERROR "share/${file} was not installed")
        endif()
    endforeach()
endforeach()

set(source "${CMAKE_CURRENT_LIST_DIR}/../install")
run("${CMAKE_COMMAND}" -S "${source}" -B "${WORK}/find-package" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix"
    "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_C_FLAGS=${flags}" "-DCMAKE_BUILD_TYPE=${CONFIG}" "-DSHARED=${SHARED}")
run("${CMAKE_COMMAND}" --build "${WORK}/find-package" --config "${CONFIG}")
run("${WORK}/find-package/consumer")
message(STATUS "find_package: ${said}")

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if (PKG_CONFIG)
    set(ENV{PKG_CONFIG_PATH} "${library_dir}/pkgconfig")
    run("${PKG_CONFIG}" --cflags --libs lrnn)
    separate_arguments(found UNIX_COMMAND "${said}")
    run("${C_COMPILER}" ${flags} "${source}/main.c" -o "${WORK}/consumer" ${found} "-Wl,-rpath,${library_dir}")
    run("${WORK}/consumer")
    message(STATUS "pkg-config: ${said}")
else()
    message(STATUS "pkg-config: not here, not tested")
endif()

file(REMOVE_RECURSE "${WORK}")
