# cmake --install: programs, liblrnn, our ggml, headers, lrnn.py, lrnn-convert, a CMake package and
# a pkg-config file.
#
# Our ggml has ops that a system's ggml lacks. To keep them apart, its libraries are named
# liblrnn-ggml* and its headers are installed next to ours in include/lrnn.

include(CMakePackageConfigHelpers)

set(include_dir "${CMAKE_INSTALL_INCLUDEDIR}/lrnn")
set(cmake_dir   "${CMAKE_INSTALL_LIBDIR}/cmake/lrnn")
set(origin      "$ORIGIN")
if (APPLE)
    set(origin "@loader_path")
endif()
file(RELATIVE_PATH bin_to_lib   "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
file(RELATIVE_PATH pc_to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")

if (GGML_BACKEND_DL) # loaded at run time, by libraries in the folder above
    set(ggml_libraries ggml ggml-base)
    set(modules ${LRNN_GGML_BACKENDS})
else()
    set(ggml_libraries ggml ${LRNN_GGML_BACKENDS} ggml-base)
    set(modules "")
endif()

foreach (target IN LISTS ggml_libraries modules)
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME                   lrnn-${target}
        PUBLIC_HEADER                 ""
        INSTALL_RPATH_USE_LINK_PATH   ON # for the CUDA libraries
        INTERFACE_INCLUDE_DIRECTORIES
            "$<BUILD_INTERFACE:${LRNN_GGML_COPY}/include>;$<INSTALL_INTERFACE:${include_dir}>")
endforeach()
target_include_directories(lrnn PUBLIC "$<INSTALL_INTERFACE:${include_dir}>")
set_target_properties(lrnn ${ggml_libraries} PROPERTIES INSTALL_RPATH "${origin}")
install(TARGETS lrnn ${ggml_libraries} EXPORT lrnnTargets)
foreach (target IN LISTS modules)
    set_target_properties(${target} PROPERTIES
        INSTALL_RPATH            "${origin}/.."
        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/lrnn")
    set_property(TARGET ${target} PROPERTY VERSION)
    set_property(TARGET ${target} PROPERTY SOVERSION)
    install(TARGETS ${target} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/lrnn")
endforeach()

if (LRNN_PROGRAMS)
    set_target_properties(${LRNN_PROGRAMS} PROPERTIES INSTALL_RPATH "${origin}/${bin_to_lib}")
    install(TARGETS ${LRNN_PROGRAMS})
endif()

# A wheel: this installation is a folder of the Python package lrnn, and pip makes the commands.
if (SKBUILD)
    install(FILES examples/python/lrnn.py DESTINATION . RENAME __init__.py)
    install(FILES examples/python/programs.py DESTINATION .)
    file(TOUCH "${CMAKE_CURRENT_BINARY_DIR}/py.typed") # lrnn.py has annotations
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/py.typed" DESTINATION .)
endif()

# lrnn-convert: the package, and a launcher that finds Python when it runs
if (LRNN_CONVERTER AND NOT SKBUILD)
    set(convert_dir "${CMAKE_INSTALL_DATADIR}/lrnn/convert")
    file(RELATIVE_PATH bin_to_convert
        "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_DATADIR}/lrnn/convert")
    configure_file(cmake/lrnn-convert.in lrnn-convert @ONLY)
    install(PROGRAMS "${CMAKE_CURRENT_BINARY_DIR}/lrnn-convert" TYPE BIN)
    install(FILES convert/pyproject.toml DESTINATION "${convert_dir}") # names the packages it needs
    install(DIRECTORY convert/lrnn_convert DESTINATION "${convert_dir}"
        PATTERN __pycache__ EXCLUDE)
endif()

# the programs themselves generate these files
if (LRNN_CONVERTER OR (LRNN_PROGRAMS AND NOT CMAKE_CROSSCOMPILING))
    set(from "${LRNN_DESCRIPTIONS}")
    set(to   "${CMAKE_INSTALL_DATADIR}")
    install(DIRECTORY "${from}/man/"  DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
    install(DIRECTORY "${from}/bash/" DESTINATION "${to}/bash-completion/completions")
    install(DIRECTORY "${from}/zsh/"  DESTINATION "${to}/zsh/site-functions")
    install(DIRECTORY "${from}/fish/" DESTINATION "${to}/fish/vendor_completions.d")
endif()

install(FILES src/lrnn.h src/ops/lrnn-ops.h DESTINATION "${include_dir}")
install(DIRECTORY "${LRNN_GGML_COPY}/include/" DESTINATION "${include_dir}"
    FILES_MATCHING PATTERN "*.h")
# lrnn.py finds the library from here; any version of Python can import it
if (BUILD_SHARED_LIBS AND NOT SKBUILD)
    install(FILES examples/python/lrnn.py DESTINATION "${CMAKE_INSTALL_DATADIR}/lrnn/python")
endif()
set(license_dir "${CMAKE_INSTALL_DATADIR}/licenses/lrnn")
install(FILES LICENSE DESTINATION "${license_dir}")
find_file(ggml_license LICENSE
    PATHS "${LRNN_GGML_SOURCE}" "${LRNN_GGML_SOURCE}/.." NO_DEFAULT_PATH NO_CACHE)
if (ggml_license)
    install(FILES "${ggml_license}" DESTINATION "${license_dir}" RENAME LICENSE.ggml)
endif()

# find_package(lrnn)
configure_package_config_file(cmake/lrnnConfig.cmake.in lrnnConfig.cmake
    INSTALL_DESTINATION "${cmake_dir}")
write_basic_package_version_file(lrnnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT lrnnTargets NAMESPACE lrnn:: DESTINATION "${cmake_dir}")
install(FILES
    "${CMAKE_CURRENT_BINARY_DIR}/lrnnConfig.cmake"
    "${CMAKE_CURRENT_BINARY_DIR}/lrnnConfigVersion.cmake"
    DESTINATION "${cmake_dir}")

# pkg-config lrnn
set(pc_libs " -llrnn")
foreach (target IN LISTS ggml_libraries)
    string(APPEND pc_libs " -llrnn-${target}")
endforeach()
if (NOT BUILD_SHARED_LIBS)
    # a C program that links the static libraries also needs the libraries that ggml, in C++, needs
    set(system ${OpenMP_CXX_LIB_NAMES} ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES} ${CMAKE_DL_LIBS})
    list(REMOVE_DUPLICATES system)
    foreach (library IN LISTS system)
        string(APPEND pc_libs " -l${library}")
    endforeach()
endif()
configure_file(cmake/lrnn.pc.in lrnn.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lrnn.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# cpack: a .deb and a .tar.gz. Configure with the preset package, for CPUs other than the builder's.
set(CPACK_GENERATOR                 TGZ DEB)
set(CPACK_PACKAGE_CONTACT           "the lrnn project")
set(CPACK_PACKAGE_FILE_NAME         "lrnn-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGING_INSTALL_PREFIX  "/usr")
set(CPACK_RESOURCE_FILE_LICENSE     "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES               ON)
set(CPACK_DEBIAN_PACKAGE_SECTION    science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS  ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3 (>= 3.11), python3-numpy")
include(CPack)
