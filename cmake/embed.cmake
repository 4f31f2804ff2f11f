# Writes a file as a C array: <NAME>[] and <NAME>_SIZE. Where the file says @<part>@, the array has
# the content of that file, which is next to it.
#
#     cmake -DFROM=<file> -DPARTS=<part>;... -DTO=<file.c> -DNAME=<name> -P embed.cmake

# as hexadecimal digits, because a text could contain what CMake takes for the syntax of lists
file(READ "${FROM}" hex HEX)
get_filename_component(folder "${FROM}" DIRECTORY)
foreach (part IN LISTS PARTS)
    file(WRITE "${TO}.mark" "@${part}@")
    file(READ "${TO}.mark" mark HEX)
    file(REMOVE "${TO}.mark")
    file(READ "${folder}/${part}" content HEX)
    string(REPLACE "${mark}" "${content}" replaced "${hex}")
    if (replaced STREQUAL hex)
        message(FATAL_ERROR "${FROM}: @${part}@ is missing")
    endif()
    set(hex "${replaced}")
endforeach()
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REPEAT "." 80 line)
string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
file(WRITE "${TO}" "#include <stddef.h>

extern const unsigned char ${NAME}[];
extern const size_t        ${NAME}_SIZE;

const unsigned char ${NAME}[] = {
${bytes}
};
const size_t ${NAME}_SIZE = sizeof(${NAME});
")
