#define _DEFAULT_SOURCE // madvise

#include "file/model-file.h"

#include "base/error.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct model_file {
    char *            path;
    const void *      data;
    size_t            size;
    void *            mapping; // NULL for bytes in memory
    struct gguf_index gguf;
};

// ---- Opening ------------------------------------------------------------------------------------

struct model_file * model_file_from_memory(
        const char * name, const void * data, size_t size, struct lrnn_error * err) {
    struct model_file * f = calloc(1, sizeof(*f));
    char *              path = strdup(name);
    if (f == NULL || path == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", name);
        free(f);
        free(path);
        return NULL;
    }
    f->path = path;
    f->data = data;
    f->size = size;
    if (!gguf_check(&f->gguf, path, data, size, err)) {
        model_file_free(f);
        return NULL;
    }
    return f;
}

// Maps a regular file.
static void * map_file(const char * path, size_t * size, struct lrnn_error * err) {
    // O_NONBLOCK: do not wait for the writer of a pipe
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        error_bad_model(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct stat st;
    void *      data = NULL;
    if (fstat(fd, &st) != 0) {
        error_bad_model(err, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        error_bad_model(err, "%s: found %s; expected a regular file", path,
                S_ISDIR(st.st_mode) ? "a directory" : "a device, pipe or socket");
    } else if (st.st_size == 0) {
        error_bad_model(err, "%s: the file is empty; expected a GGUF file", path);
    } else if ((uintmax_t) st.st_size > PTRDIFF_MAX) {
        error_bad_model(err,
                "%s: the file has %jd bytes; expected at most %td, the size of the address space",
                path, (intmax_t) st.st_size, PTRDIFF_MAX);
    } else {
        *size = (size_t) st.st_size;
        data = mmap(NULL, *size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            error_set(err, errno == ENOMEM ? LRNN_ERROR_NO_MEMORY : LRNN_ERROR_BAD_MODEL,
                    "%s: cannot map %zu bytes: %s", path, *size, strerror(errno));
            data = NULL;
        }
    }
    close(fd);
    return data;
}

struct model_file * model_file_open(const char * path, struct lrnn_error * err) {
    size_t size;
    void * data = map_file(path, &size, err);
    if (data == NULL) {
        return NULL;
    }
    struct model_file * f = model_file_from_memory(path, data, size, err);
    if (f == NULL) {
        munmap(data, size);
        return NULL;
    }
    f->mapping = data;
    return f;
}

void model_file_free(struct model_file * f) {
    if (f == NULL) {
        return;
    }
    if (f->mapping != NULL) {
        munmap(f->mapping, f->size);
    }
    gguf_index_free(&f->gguf);
    free(f->path);
    free(f);
}

void model_file_release(const struct model_file * f, const struct model_tensor * t) {
    const size_t page = (size_t) sysconf(_SC_PAGESIZE);
    const size_t begin = (size_t) ((const char *) t->data - (const char *) f->data);
    const size_t first = (begin + page - 1) / page * page; // whole pages
    const size_t last = (begin + t->size) / page * page;
    if (f->mapping != NULL && first < last) {
        madvise((char *) f->mapping + first, last - first, MADV_DONTNEED);
    }
}

const char * model_file_path(const struct model_file * f) {
    return f->path;
}

const void * model_file_bytes(const struct model_file * f, size_t * size) {
    *size = f->size;
    return f->data;
}

size_t model_file_alignment(const struct model_file * f) {
    return f->gguf.alignment;
}

const char * model_file_warning(const struct model_file * f) {
    return f->gguf.warning[0] != '\0' ? f->gguf.warning : NULL;
}

uint64_t model_file_identity(const struct model_file * f) {
    const size_t   sample = 64;
    const uint64_t size = f->size;
    uint64_t       h = HASH_START;

    h = hash_add(h, &size, sizeof(size));
    h = hash_add(h, f->data, f->gguf.meta_size);
    for (size_t i = 0; i < f->gguf.n_tensors; ++i) {
        const struct model_tensor * t = &f->gguf.tensors[i];
        const size_t                n = t->size < sample ? t->size : sample;
        h = hash_add(h, t->data, n);
        h = hash_add(h, (const char *) t->data + t->size - n, n);
    }
    return h;
}

// ---- Elements -----------------------------------------------------------------------------------

int64_t model_key_int(const struct model_key * key, size_t i) {
    if (i >= key->n) {
        return 0;
    }
    union {
        uint8_t  u8;
        int8_t   i8;
        uint16_t u16;
        int16_t  i16;
        uint32_t u32;
        int32_t  i32;
        uint64_t u64;
        int64_t  i64;
    } v;
    switch (key->type) {
        case GGUF_TYPE_UINT8: memcpy(&v.u8, key->data + 1 * i, 1); return v.u8;
        case GGUF_TYPE_INT8: memcpy(&v.i8, key->data + 1 * i, 1); return v.i8;
        case GGUF_TYPE_UINT16: memcpy(&v.u16, key->data + 2 * i, 2); return v.u16;
        case GGUF_TYPE_INT16: memcpy(&v.i16, key->data + 2 * i, 2); return v.i16;
        case GGUF_TYPE_UINT32: memcpy(&v.u32, key->data + 4 * i, 4); return v.u32;
        case GGUF_TYPE_INT32: memcpy(&v.i32, key->data + 4 * i, 4); return v.i32;
        case GGUF_TYPE_UINT64:
            memcpy(&v.u64, key->data + 8 * i, 8);
            return v.u64 > INT64_MAX ? INT64_MAX : (int64_t) v.u64;
        case GGUF_TYPE_INT64: memcpy(&v.i64, key->data + 8 * i, 8); return v.i64;
        default: return 0;
    }
}

double model_key_float(const struct model_key * key, size_t i) {
    float  f32;
    double f64;
    if (i < key->n && key->type == GGUF_TYPE_FLOAT32) {
        memcpy(&f32, key->data + 4 * i, 4);
        return f32;
    }
    if (i < key->n && key->type == GGUF_TYPE_FLOAT64) {
        memcpy(&f64, key->data + 8 * i, 8);
        return f64;
    }
    return 0.0;
}

bool model_key_bool(const struct model_key * key, size_t i) {
    return i < key->n && key->type == GGUF_TYPE_BOOL && key->data[i] != 0;
}

struct slice model_key_text(const struct model_key * key, size_t i) {
    if (i >= key->n || key->type != GGUF_TYPE_STRING) {
        return (struct slice) { "", 0 };
    }
    const char * p = key->is_array ? key->strings[i] : key->data;
    uint64_t     n;
    memcpy(&n, p, sizeof(n));
    return (struct slice) { p + sizeof(n), (size_t) n };
}

// ---- Keys ---------------------------------------------------------------------------------------

size_t model_file_n_keys(const struct model_file * f) {
    return f->gguf.n_keys;
}

const struct model_key * model_file_key(const struct model_file * f, size_t i) {
    return i < f->gguf.n_keys ? &f->gguf.keys[i] : NULL;
}

const struct model_key * model_file_find_key(const struct model_file * f, const char * key) {
    return model_file_key(f, gguf_index_find(f->gguf.key_names, f->gguf.n_keys, key));
}

ERROR_PRINTF(4, 5)
static enum key_status bad(const struct model_file * f, const char * key, struct lrnn_error * err,
        const char * fmt, ...) {
    struct lrnn_error why;
    va_list           args;
    va_start(args, fmt);
    error_set_args(&why, LRNN_ERROR_BAD_MODEL, fmt, args);
    va_end(args);
    error_bad_model(err, "%s: key '%s' %s", f->path, key, why.text);
    return KEY_BAD;
}

enum lrnn_key_kind model_key_kind(const struct model_key * key) {
    switch (key->type) {
        case GGUF_TYPE_FLOAT32:
        case GGUF_TYPE_FLOAT64: return LRNN_KEY_FLOAT;
        case GGUF_TYPE_BOOL: return LRNN_KEY_BOOL;
        case GGUF_TYPE_STRING: return LRNN_KEY_STRING;
        default: return LRNN_KEY_INT; // GGUF_TYPE_ARRAY is never the type of a value or element
    }
}

// Finds a scalar or an array of the kind.
static enum key_status find(const struct model_file * f, const char * key, enum lrnn_key_kind kind,
        bool is_array, const struct model_key ** out, struct lrnn_error * err) {
    static const char * const EXPECTED[][2] = {
        [LRNN_KEY_INT] = { "an integer", "an array of integers" },
        [LRNN_KEY_FLOAT] = { "f32 or f64", "an array of f32 or f64" },
        [LRNN_KEY_BOOL] = { "bool", "an array of bool" },
        [LRNN_KEY_STRING] = { "string", "an array of string" },
    };
    const struct model_key * k = model_file_find_key(f, key);
    if (k == NULL) {
        bad(f, key, err, "is missing; expected %s", EXPECTED[kind][is_array]);
        return KEY_ABSENT;
    }
    if (model_key_kind(k) != kind || k->is_array != is_array) {
        return bad(f, key, err, "is %s%s; expected %s", k->is_array ? "an array of " : "of type ",
                gguf_index_type_name(k->type), EXPECTED[kind][is_array]);
    }
    *out = k;
    return KEY_OK;
}

static enum key_status bad_element(const struct model_file * f, const char * key,
        const struct model_key * k, size_t i, const char * found, struct lrnn_error * err) {
    return k->is_array ? bad(f, key, err, "has element %zu = %s", i, found)
                       : bad(f, key, err, "is %s", found);
}

// Like find; every element must be in min .. max.
static enum key_status find_ints(const struct model_file * f, const char * key, bool is_array,
        int64_t min, int64_t max, const struct model_key ** out, struct lrnn_error * err) {
    const struct model_key * k = NULL;
    const enum key_status    status = find(f, key, LRNN_KEY_INT, is_array, &k, err);
    if (status != KEY_OK) {
        return status;
    }
    for (size_t i = 0; i < k->n; ++i) {
        const int64_t v = model_key_int(k, i);
        uint64_t      u = 0; // a u64 may exceed int64_t
        if (k->type == GGUF_TYPE_UINT64) {
            memcpy(&u, k->data + 8 * i, 8);
        }
        if (v < min || v > max || u > INT64_MAX) {
            char      found[96];
            const int pos = u > INT64_MAX ? snprintf(found, sizeof(found), "%" PRIu64, u)
                                          : snprintf(found, sizeof(found), "%" PRId64, v);
            snprintf(found + pos, sizeof(found) - (size_t) pos,
                    "; expected %" PRId64 " to %" PRId64, min, max);
            return bad_element(f, key, k, i, found, err);
        }
    }
    *out = k;
    return KEY_OK;
}

static enum key_status find_floats(const struct model_file * f, const char * key, bool is_array,
        double min, double max, const struct model_key ** out, struct lrnn_error * err) {
    const struct model_key * k = NULL;
    const enum key_status    status = find(f, key, LRNN_KEY_FLOAT, is_array, &k, err);
    if (status != KEY_OK) {
        return status;
    }
    for (size_t i = 0; i < k->n; ++i) {
        const double v = model_key_float(k, i);
        if (!(v >= min && v <= max)) {
            char found[96];
            snprintf(found, sizeof(found), "%g; expected %g to %g", v, min, max);
            return bad_element(f, key, k, i, found, err);
        }
    }
    *out = k;
    return KEY_OK;
}

enum key_status model_file_ints(const struct model_file * f, const char * key, int64_t min,
        int64_t max, const struct model_key ** array, struct lrnn_error * err) {
    return find_ints(f, key, true, min, max, array, err);
}

enum key_status model_file_floats(const struct model_file * f, const char * key, double min,
        double max, const struct model_key ** array, struct lrnn_error * err) {
    return find_floats(f, key, true, min, max, array, err);
}

enum key_status model_file_bools(const struct model_file * f, const char * key,
        const struct model_key ** array, struct lrnn_error * err) {
    return find(f, key, LRNN_KEY_BOOL, true, array, err);
}

enum key_status model_file_texts(const struct model_file * f, const char * key,
        const struct model_key ** array, struct lrnn_error * err) {
    return find(f, key, LRNN_KEY_STRING, true, array, err);
}

enum key_status model_file_int(const struct model_file * f, const char * key, int64_t min,
        int64_t max, int64_t * value, struct lrnn_error * err) {
    const struct model_key * k = NULL;
    const enum key_status    status = find_ints(f, key, false, min, max, &k, err);
    if (status == KEY_OK) {
        *value = model_key_int(k, 0);
    }
    return status;
}

enum key_status model_file_float(const struct model_file * f, const char * key, double min,
        double max, double * value, struct lrnn_error * err) {
    const struct model_key * k = NULL;
    const enum key_status    status = find_floats(f, key, false, min, max, &k, err);
    if (status == KEY_OK) {
        *value = model_key_float(k, 0);
    }
    return status;
}

enum key_status model_file_bool(
        const struct model_file * f, const char * key, bool * value, struct lrnn_error * err) {
    const struct model_key * k = NULL;
    const enum key_status    status = find(f, key, LRNN_KEY_BOOL, false, &k, err);
    if (status == KEY_OK) {
        *value = model_key_bool(k, 0);
    }
    return status;
}

enum key_status model_file_text(const struct model_file * f, const char * key, struct slice * value,
        struct lrnn_error * err) {
    const struct model_key * k = NULL;
    const enum key_status    status = find(f, key, LRNN_KEY_STRING, false, &k, err);
    if (status == KEY_OK) {
        *value = model_key_text(k, 0);
    }
    return status;
}

enum key_status model_file_choice(const struct model_file * f, const char * key,
        const char * const * words, int * value, struct lrnn_error * err) {
    struct slice          text;
    const enum key_status status = model_file_text(f, key, &text, err);
    if (status != KEY_OK) {
        return status;
    }
    char   list[256] = "";
    size_t n = 0;
    for (int i = 0; words[i] != NULL; ++i) {
        if (slice_is(text, words[i])) {
            *value = i;
            return KEY_OK;
        }
        if (n < sizeof(list)) {
            n += (size_t) snprintf(
                    list + n, sizeof(list) - n, "%s'%s'", i > 0 ? ", " : "", words[i]);
        }
    }
    char quoted[80];
    return bad(f, key, err, "is %s; expected one of %s", slice_quote(quoted, sizeof(quoted), text),
            list);
}

// ---- Tensors ------------------------------------------------------------------------------------

size_t model_file_n_tensors(const struct model_file * f) {
    return f->gguf.n_tensors;
}

const struct model_tensor * model_file_tensor(const struct model_file * f, size_t i) {
    return i < f->gguf.n_tensors ? &f->gguf.tensors[i] : NULL;
}

const struct model_tensor * model_file_find_tensor(const struct model_file * f, const char * name) {
    return model_file_tensor(f, gguf_index_find(f->gguf.tensor_names, f->gguf.n_tensors, name));
}

const struct model_tensor * model_file_use_tensor(struct model_file * f, const char * name) {
    const size_t i = gguf_index_find(f->gguf.tensor_names, f->gguf.n_tensors, name);
    if (i == SIZE_MAX) {
        return NULL;
    }
    f->gguf.tensors[i].used = true;
    return &f->gguf.tensors[i];
}

int64_t model_tensor_outside(const struct model_tensor * t, float min, float max, float * found) {
    const char * data = t->data; // possibly unaligned
    for (size_t i = 0; i < t->size / sizeof(float); ++i) {
        memcpy(found, data + i * sizeof(float), sizeof(float));
        if (!(*found >= min && *found <= max)) {
            return (int64_t) i;
        }
    }
    return -1;
}

bool model_file_all_used(const struct model_file * f, struct lrnn_error * err) {
    enum { N_NAMED = 3 };
    char   list[N_NAMED * (GGML_MAX_NAME + 4) + 8] = "";
    size_t pos = 0;
    size_t n = 0;
    for (size_t i = 0; i < f->gguf.n_tensors; ++i) {
        const struct model_tensor * t = &f->gguf.tensors[i];
        if (t->used) {
            continue;
        }
        if (n < N_NAMED) {
            pos += (size_t) snprintf(
                    list + pos, sizeof(list) - pos, "%s'%s'", n > 0 ? ", " : "", t->name);
        }
        ++n;
    }
    if (n == 0) {
        return true;
    }
    return error_bad_model(err, "%s: found %zu unknown tensor%s: %s%s", f->path, n,
            n > 1 ? "s" : "", list, n > N_NAMED ? ", ..." : "");
}
