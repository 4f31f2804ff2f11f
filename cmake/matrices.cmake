# Turns convert/lrnn_convert/matrices.txt, the only list of the tensors that may have another type
# than F32, into the lines of a C array. The converter reads the list itself.
#
#     cmake -DTABLE=<matrices.txt> -DOUT=<file> -P matrices.cmake

file(STRINGS "${TABLE}" lines ENCODING UTF-8)
set(text "")
foreach (line IN LISTS lines)
    if (line MATCHES "^[a-z0-9_.]+$")
        string(APPEND text "\"${line}\",\n")
    elseif (NOT line MATCHES "^(#|$)")
        message(FATAL_ERROR "${TABLE}: '${line}' is not the name of a tensor")
    endif()
endforeach()
file(WRITE "${OUT}" "${text}")
