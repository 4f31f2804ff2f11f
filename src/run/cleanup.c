#include "base/atomic-file.h"
#include "lrnn.h"

// The library has its own copy of src/base, and with it its own list of temporary files.
void lrnn_remove_temporaries(void) {
    atomic_file_remove_temporaries();
}
