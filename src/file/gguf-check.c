// Checks the structure of a GGUF file completely before anything uses it.
//
// This replaces ggml's reader. That reader accepts shapes with a zero, empty tensor names, keys
// that contain NUL and bools with the value 2. It checks that tensor data is inside the file only
// if it copies the data. Its getters abort the process if a key has an unexpected type. And it
// copies every string of the vocabulary. This reader works on the mapped file, compares every
// length with the remaining bytes before using it, and rejects a bad file with a one-sentence
// error.
//
// Time is linear in the size of the metadata, and memory at most a small multiple of it. Names are
// sorted rather than hashed: this is n log n for every file, while a file with computed hash
// collisions could cause n².

#include "file/model-file.h"

#include "base/buffer.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,            // length and 1 byte of name, type, smallest value
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, // length and 1 byte of name, n_dims, 1 dimension,
                                              // type, offset
    MAX_KEY_NAME = 65535,                     // of the GGUF specification
    MIN_ALIGNMENT = 8,                        // of the GGUF specification
    MAX_ALIGNMENT = 65536, // the largest page size in use: a mapping is not aligned to more
};

static const struct {
    const char * name;
    size_t       size; // 0: varies
} VALUE_TYPES[GGUF_TYPE_COUNT] = {
    [GGUF_TYPE_UINT8] = { "u8", 1 },
    [GGUF_TYPE_INT8] = { "i8", 1 },
    [GGUF_TYPE_UINT16] = { "u16", 2 },
    [GGUF_TYPE_INT16] = { "i16", 2 },
    [GGUF_TYPE_UINT32] = { "u32", 4 },
    [GGUF_TYPE_INT32] = { "i32", 4 },
    [GGUF_TYPE_FLOAT32] = { "f32", 4 },
    [GGUF_TYPE_BOOL] = { "bool", 1 },
    [GGUF_TYPE_STRING] = { "string", 0 },
    [GGUF_TYPE_ARRAY] = { "array", 0 },
    [GGUF_TYPE_UINT64] = { "u64", 8 },
    [GGUF_TYPE_INT64] = { "i64", 8 },
    [GGUF_TYPE_FLOAT64] = { "f64", 8 },
};

const char * gguf_index_type_name(enum gguf_type type) {
    return (unsigned) type < GGUF_TYPE_COUNT ? VALUE_TYPES[type].name : NULL;
}

// ---- Cursor -------------------------------------------------------------------------------------

struct cursor {
    const char *        file;
    const char *        data;
    size_t              size;
    size_t              pos;       // never above size
    char                where[96]; // the current item, for messages
    struct lrnn_error * err;
};

ERROR_PRINTF(2, 3) static bool reject(const struct cursor * c, const char * fmt, ...) {
    va_list args;
    va_start(args, fmt);
    error_set_args(c->err, LRNN_ERROR_BAD_MODEL, fmt, args);
    va_end(args);
    return error_prefix(c->err, "%s", c->file);
}

static size_t left(const struct cursor * c) {
    return c->size - c->pos;
}

static bool read_bytes(struct cursor * c, void * out, size_t n) {
    if (n > left(c)) {
        return reject(c, "the file ends inside %s: found %zu bytes at byte %zu; expected %zu",
                c->where, left(c), c->pos, n);
    }
    memcpy(out, c->data + c->pos, n);
    c->pos += n;
    return true;
}

static bool read_u32(struct cursor * c, uint32_t * out) {
    return read_bytes(c, out, sizeof(*out));
}

static bool read_u64(struct cursor * c, uint64_t * out) {
    return read_bytes(c, out, sizeof(*out));
}

// The bytes of a string are not checked.
static bool read_string(struct cursor * c, struct slice * text) {
    uint64_t n = 0;
    if (!read_u64(c, &n)) {
        return false;
    }
    if (n > left(c)) {
        return reject(c,
                "%s contains a string of %" PRIu64
                " bytes at byte %zu; expected at most %zu, the rest of the file",
                c->where, n, c->pos, left(c));
    }
    text->data = c->data + c->pos;
    text->size = (size_t) n;
    c->pos += text->size;
    return true;
}

// Reads the name of key or tensor `i` and sets `where` to "<what> '<name>'".
static bool read_name(
        struct cursor * c, const char * what, size_t i, size_t max, struct slice * name) {
    bool has_control;
    snprintf(c->where, sizeof(c->where), "%s %zu", what, i);
    if (!read_string(c, name)) {
        return false;
    }
    if (name->size == 0 || name->size > max) {
        return reject(
                c, "%s %zu has a name of %zu bytes; expected 1 to %zu", what, i, name->size, max);
    }
    if (!slice_is_utf8(*name, &has_control)) {
        return reject(c, "%s %zu has a name that is not UTF-8", what, i);
    }
    char quoted[80];
    slice_quote(quoted, sizeof(quoted), *name);
    if (has_control) {
        return reject(c, "%s %zu has a control character in its name %s", what, i, quoted);
    }
    snprintf(c->where, sizeof(c->where), "%s %s", what, quoted);
    return true;
}

// Makes room for element n of a list. Lists grow with the data read; a large count in the header
// alone allocates nothing.
static bool reserve(const struct cursor * c, void ** list, size_t * cap, size_t n, size_t size) {
    return array_grow(list, cap, n + 1, size) || reject(c, "out of memory at %s", c->where);
}

// ---- Names --------------------------------------------------------------------------------------

static int compare_names(const void * a, const void * b) {
    return slice_compare(
            ((const struct gguf_index_name *) a)->text, ((const struct gguf_index_name *) b)->text);
}

static bool sort_names(
        const struct cursor * c, const char * what, struct gguf_index_name * names, size_t n) {
    qsort(names, n, sizeof(names[0]), compare_names);
    for (size_t i = 1; i < n; ++i) {
        if (compare_names(&names[i - 1], &names[i]) == 0) {
            char quoted[80];
            return reject(c, "%s %s occurs twice; expected once", what,
                    slice_quote(quoted, sizeof(quoted), names[i].text));
        }
    }
    return true;
}

size_t gguf_index_find(const struct gguf_index_name * names, size_t n, const char * name) {
    const struct slice text = slice_of(name);
    size_t             first = 0;
    while (n > 0) { // invariant: if the name exists, it is in names[first .. first + n − 1]
        const size_t half = n / 2;
        const int    order = slice_compare(text, names[first + half].text);
        if (order == 0) {
            return names[first + half].index;
        }
        if (order > 0) {
            first += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return SIZE_MAX;
}

// ---- Keys ---------------------------------------------------------------------------------------

static bool read_strings(struct cursor * c, struct model_key * key) {
    if (key->is_array && key->n > 0) { // read_value has checked that n · 8 bytes are left
        key->strings = malloc(key->n * sizeof(key->strings[0]));
        if (key->strings == NULL) {
            return reject(c, "out of memory at %s", c->where);
        }
    }
    for (size_t i = 0; i < key->n; ++i) {
        struct slice text = { 0 };
        bool         has_control;
        if (key->is_array) {
            key->strings[i] = c->data + c->pos;
        }
        if (!read_string(c, &text)) {
            return false;
        }
        if (!slice_is_utf8(text, &has_control)) {
            return reject(c, "string %zu of %s is not UTF-8", i, c->where);
        }
    }
    return true;
}

// Reads the value after the name.
static bool read_value(struct cursor * c, struct model_key * key) {
    uint32_t type = 0;
    uint64_t n = 1;
    if (!read_u32(c, &type)) {
        return false;
    }
    key->is_array = type == GGUF_TYPE_ARRAY;
    if (key->is_array && (!read_u32(c, &type) || !read_u64(c, &n))) {
        return false;
    }
    if (type >= GGUF_TYPE_COUNT) {
        return reject(c, "%s has %s of type %" PRIu32 "; expected a type below %d", c->where,
                key->is_array ? "elements" : "a value", type, GGUF_TYPE_COUNT);
    }
    if (type == GGUF_TYPE_ARRAY) {
        return reject(c, "%s is an array of arrays; expected an array of numbers, bools or strings",
                c->where);
    }
    const size_t size = // of an element, at least
            type == GGUF_TYPE_STRING ? sizeof(uint64_t) : VALUE_TYPES[type].size;
    if (n > left(c) / size) {
        return reject(c,
                "%s has %" PRIu64
                " element%s of type %s at byte %zu; expected at most %zu, which fit into the file",
                c->where, n, n == 1 ? "" : "s", VALUE_TYPES[type].name, c->pos, left(c) / size);
    }
    key->type = (enum gguf_type) type;
    key->n = (size_t) n;
    key->data = c->data + c->pos;
    if (type == GGUF_TYPE_STRING) {
        return read_strings(c, key);
    }
    if (type == GGUF_TYPE_BOOL) {
        for (size_t i = 0; i < key->n; ++i) {
            const unsigned value = (unsigned char) key->data[i];
            if (value > 1) {
                return reject(c, "%s has a bool of %u; expected 0 or 1", c->where, value);
            }
        }
    }
    c->pos += key->n * size;
    return true;
}

static bool read_keys(struct cursor * c, struct gguf_index * g, uint64_t n) {
    size_t cap = 0;
    void * list = NULL;
    bool   ok = true;
    while (ok && g->n_keys < n) {
        struct model_key key = { 0 };
        ok = read_name(c, "key", g->n_keys, MAX_KEY_NAME, &key.name) &&
             reserve(c, &list, &cap, g->n_keys, sizeof(key));
        if (ok) {
            ok = read_value(c, &key);
            g->keys = list;
            g->keys[g->n_keys++] = key; // even if the value is bad, so that its strings are freed
        }
    }
    if (!ok || n == 0) {
        return ok;
    }

    g->key_names = malloc(g->n_keys * sizeof(g->key_names[0]));
    if (g->key_names == NULL) {
        return reject(c, "out of memory for the names of %zu keys", g->n_keys);
    }
    for (size_t i = 0; i < g->n_keys; ++i) {
        g->key_names[i] = (struct gguf_index_name) { g->keys[i].name, i };
    }
    return sort_names(c, "key", g->key_names, g->n_keys);
}

static bool read_alignment(const struct cursor * c, struct gguf_index * g) {
    const size_t i = gguf_index_find(g->key_names, g->n_keys, GGUF_KEY_GENERAL_ALIGNMENT);
    g->alignment = GGUF_DEFAULT_ALIGNMENT;
    if (i == SIZE_MAX) {
        return true;
    }
    const struct model_key * key = &g->keys[i];
    if (key->is_array || key->type != GGUF_TYPE_UINT32) {
        return reject(c, "key '%s' is %s%s; expected u32", GGUF_KEY_GENERAL_ALIGNMENT,
                key->is_array ? "an array of " : "of type ", VALUE_TYPES[key->type].name);
    }
    uint32_t value;
    memcpy(&value, key->data, sizeof(value));
    if (value < MIN_ALIGNMENT || value > MAX_ALIGNMENT || (value & (value - 1)) != 0) {
        return reject(c, "key '%s' is %" PRIu32 "; expected a power of two from %d to %d",
                GGUF_KEY_GENERAL_ALIGNMENT, value, MIN_ALIGNMENT, MAX_ALIGNMENT);
    }
    g->alignment = value;
    return true;
}

// ---- Tensors ------------------------------------------------------------------------------------

// bytes = ne0 / block · ne1 · ne2 · ne3 · bytes per block. Bytes and elements must not overflow.
static bool tensor_size(const struct cursor * c, struct model_tensor * t, uint32_t type) {
    char shape[96];
    int  pos = 0;
    for (int d = 0; d < t->n_dims; ++d) {
        pos += snprintf(shape + pos, sizeof(shape) - (size_t) pos, "%s%" PRId64, d > 0 ? ", " : "",
                t->ne[d]);
    }
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; ++d) {
        if (t->ne[d] <= 0) {
            return reject(c, "%s has shape [%s]; expected dimensions above 0", c->where, shape);
        }
        if (t->ne[d] > INT64_MAX / n) {
            return reject(
                    c, "%s has shape [%s]; expected fewer than 2^63 elements", c->where, shape);
        }
        n *= t->ne[d];
    }
    if (type >= GGML_TYPE_COUNT) {
        return reject(c, "%s is of type %" PRIu32 "; expected a type below %d", c->where, type,
                GGML_TYPE_COUNT);
    }
    t->type = (enum ggml_type) type;
    const int64_t block = ggml_blck_size(t->type);
    const size_t  block_size = ggml_type_size(t->type);
    if (block <= 0 || block_size == 0) {
        return reject(c, "%s is of type %" PRIu32 "; expected a type that ggml still has", c->where,
                type);
    }
    if (t->ne[0] % block != 0) {
        return reject(c,
                "%s has shape [%s]; expected a multiple of %" PRId64
                " in the first dimension, the block of %s",
                c->where, shape, block, ggml_type_name(t->type));
    }
    if ((uint64_t) (n / block) > PTRDIFF_MAX / block_size) {
        return reject(c, "%s has shape [%s] of %s; expected fewer than 2^63 bytes", c->where, shape,
                ggml_type_name(t->type));
    }
    t->size = (size_t) (n / block) * block_size;
    return true;
}

static bool read_tensor(struct cursor * c, size_t i, struct model_tensor * t) {
    struct slice name = { 0 };
    uint32_t     n_dims = 0;
    uint32_t     type = 0;
    uint64_t     offset = 0;
    if (!read_name(c, "tensor", i, GGML_MAX_NAME - 1, &name) || !read_u32(c, &n_dims)) {
        return false;
    }
    if (n_dims < 1 || n_dims > GGML_MAX_DIMS) {
        return reject(c, "%s has %" PRIu32 " dimensions; expected 1 to %d", c->where, n_dims,
                GGML_MAX_DIMS);
    }
    memcpy(t->name, name.data, name.size);
    t->n_dims = (int) n_dims;
    for (int d = 0; d < GGML_MAX_DIMS; ++d) {
        t->ne[d] = 1;
        if (d < t->n_dims && !read_bytes(c, &t->ne[d], sizeof(t->ne[d]))) {
            return false;
        }
    }
    if (!read_u32(c, &type) || !read_u64(c, &offset) || !tensor_size(c, t, type)) {
        return false;
    }
    if (offset > c->size) {
        return reject(c,
                "%s starts at offset %" PRIu64
                " of the data; expected at most %zu, the size of the file",
                c->where, offset, c->size);
    }
    t->offset = (size_t) offset; // relative to the data; place_tensors makes it absolute
    return true;
}

static bool read_tensors(struct cursor * c, struct gguf_index * g, uint64_t n) {
    size_t cap = 0;
    void * list = NULL;
    bool   ok = true;
    while (ok && g->n_tensors < n) {
        struct model_tensor t = { 0 };
        ok = read_tensor(c, g->n_tensors, &t) && reserve(c, &list, &cap, g->n_tensors, sizeof(t));
        if (ok) {
            g->tensors = list;
            g->tensors[g->n_tensors++] = t;
        }
    }
    if (!ok || n == 0) {
        return ok;
    }

    g->tensor_names = malloc(g->n_tensors * sizeof(g->tensor_names[0]));
    if (g->tensor_names == NULL) {
        return reject(c, "out of memory for the names of %zu tensors", g->n_tensors);
    }
    for (size_t i = 0; i < g->n_tensors; ++i) {
        g->tensor_names[i] = (struct gguf_index_name) { slice_of(g->tensors[i].name), i };
    }
    return sort_names(c, "tensor", g->tensor_names, g->n_tensors);
}

static size_t pad(size_t n, size_t alignment) {
    return (n + alignment - 1) / alignment * alignment; // n ≤ PTRDIFF_MAX: no overflow
}

// The data of the tensors are stored in the order of the descriptions, each padded to the
// alignment. The last padding may be missing.
static bool place_tensors(const struct cursor * c, struct gguf_index * g) {
    const size_t start = pad(g->meta_size, g->alignment);
    size_t       end = start;
    for (size_t i = 0; i < g->n_tensors; ++i) {
        struct model_tensor * t = &g->tensors[i];
        char                  quoted[80];
        slice_quote(quoted, sizeof(quoted), slice_of(t->name));
        if (t->offset % g->alignment != 0) {
            return reject(c,
                    "tensor %s starts at offset %zu of the data; expected a multiple of the "
                    "alignment %zu",
                    quoted, t->offset, g->alignment);
        }
        if (t->offset != end - start) {
            return reject(c,
                    "tensor %s starts at offset %zu of the data; expected %zu, where the previous "
                    "tensor ends",
                    quoted, t->offset, end - start);
        }
        if (end > c->size || t->size > c->size - end) {
            return reject(c, "tensor %s has %zu bytes at byte %zu; the file ends at byte %zu",
                    quoted, t->size, end, c->size);
        }
        t->offset = end;
        t->data = c->data + end;
        end = pad(end + t->size, g->alignment);
    }
    if (c->size > end) {
        snprintf(g->warning, sizeof(g->warning),
                "the file has %zu bytes after its last tensor; they are ignored", c->size - end);
    }
    return true;
}

// ---- File ---------------------------------------------------------------------------------------

static bool read_header(struct cursor * c, uint64_t * n_keys, uint64_t * n_tensors) {
    unsigned char magic[4];
    uint32_t      version = 0;
    snprintf(c->where, sizeof(c->where), "the header");
    if (c->size == 0) {
        return reject(c, "the file is empty; expected a GGUF file");
    }
    if (!read_bytes(c, magic, sizeof(magic))) {
        return false;
    }
    if (memcmp(magic, GGUF_MAGIC, sizeof(magic)) != 0) {
        return reject(c,
                "the file begins with the bytes %02x %02x %02x %02x; expected 47 47 55 46 "
                "(\"GGUF\")",
                magic[0], magic[1], magic[2], magic[3]);
    }
    if (!read_u32(c, &version)) {
        return false;
    }
    if (version != GGUF_VERSION) {
        const bool swapped = version == (uint32_t) GGUF_VERSION << 24;
        return reject(c, "the file is GGUF version %" PRIu32 "%s; expected %d", version,
                swapped ? " in the other byte order" : "", GGUF_VERSION);
    }
    if (!read_u64(c, n_tensors) || !read_u64(c, n_keys)) {
        return false;
    }
    if (*n_keys > left(c) / MIN_KEY_BYTES) {
        return reject(c,
                "the header counts %" PRIu64 " keys; expected at most %zu, which fit into the file",
                *n_keys, left(c) / MIN_KEY_BYTES);
    }
    if (*n_tensors > left(c) / MIN_TENSOR_BYTES) {
        return reject(c,
                "the header counts %" PRIu64
                " tensors; expected at most %zu, which fit into the file",
                *n_tensors, left(c) / MIN_TENSOR_BYTES);
    }
    return true;
}

bool gguf_check(struct gguf_index * g, const char * file, const void * data, size_t size,
        struct lrnn_error * err) {
    struct cursor c = { .file = file, .data = data, .size = size, .err = err };
    uint64_t      n_keys = 0;
    uint64_t      n_tensors = 0;

    memset(g, 0, sizeof(*g));
    if (!read_header(&c, &n_keys, &n_tensors) || !read_keys(&c, g, n_keys) ||
            !read_alignment(&c, g) || !read_tensors(&c, g, n_tensors)) {
        return false;
    }
    g->meta_size = c.pos;
    return place_tensors(&c, g);
}

void gguf_index_free(struct gguf_index * g) {
    for (size_t i = 0; i < g->n_keys; ++i) {
        free((void *) g->keys[i].strings);
    }
    free(g->keys);
    free(g->key_names);
    free(g->tensors);
    free(g->tensor_names);
    memset(g, 0, sizeof(*g));
}
