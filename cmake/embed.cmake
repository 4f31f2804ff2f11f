# Writes a file as a C array: <NAME>[] and <NAME>_SIZE.
#
#     cmake -DFROM=<file> -DTO=<file.c> -DNAME=<name> -P embed.cmake

file(READ "${FROM}" hex HEX)
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
