// model-file.c reads the keys and tensors that were written, and rejects unexpected keys with an
// exact message.

#include "lrnn.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/gguf-bytes.h"
#include "kit/model-file-walk.h"
#include "kit/rng.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

//
// Typed access
//

static void check_status(struct test * t, enum key_status found, enum key_status expected,
        const char * err, const char * sentence) {
    char want[512];
    snprintf(want, sizeof(want), "f.gguf: %s", sentence);
    test_check(t, found == expected, "status %d; expected %d: %s", (int) found, (int) expected,
            sentence);
    test_check(
            t, found == KEY_OK || strcmp(err, want) == 0, "said: %s\n    expected: %s", err, want);
}

// The values that put_sample wrote.
static void check_values(struct test * t, const struct model_file * f) {
    static const struct {
        const char * key;
        int64_t      value;
    } INTS[] = {
        { "u8", 200 },
        { "i8", -56 },
        { "u16", 65535 },
        { "i16", -2 },
        { "u32", UINT32_MAX },
        { "i32", -7 },
        { "i64", INT64_MIN },
    };
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    for (size_t i = 0; i < sizeof(INTS) / sizeof(INTS[0]); ++i) {
        const int64_t v = INTS[i].value;
        int64_t       found = 0;
        test_check(t, model_file_int(f, INTS[i].key, v, v, &found, &err) == KEY_OK, "rejected: %s",
                err.text);
        test_check(
                t, found == v, "key %s is %" PRId64 "; expected %" PRId64, INTS[i].key, found, v);
    }

    double       x = 0.0;
    bool         flag = false;
    struct slice text = { "", 0 };
    int          word = -1;
    test_check(t, model_file_float(f, "f32", 0, 1, &x, &err) == KEY_OK && x == 0.5, "f32 is %g", x);
    test_check(t, model_file_float(f, "f64", 0, 1e301, &x, &err) == KEY_OK && x == 1e300,
            "f64 is %g", x);
    test_check(t, model_file_bool(f, "bool", &flag, &err) == KEY_OK && flag, "bool is false");
    test_check(t, model_file_text(f, "text", &text, &err) == KEY_OK, "rejected: %s", err.text);
    test_check(t, slice_is(text, "silu") && !slice_is(text, "sil") && !slice_is(text, "silus"),
            "text differs");
    const char * const words[] = { "relu", "silu", NULL };
    test_check(t, model_file_choice(f, "text", words, &word, &err) == KEY_OK && word == 1,
            "choice is %d", word);

    const struct model_key * a = NULL;
    if (test_check(t, model_file_ints(f, "ints", -2, 3, &a, &err) == KEY_OK, "rejected: %s",
                err.text)) {
        test_check(t,
                a->n == 3 && model_key_int(a, 0) == 1 && model_key_int(a, 1) == -2 &&
                        model_key_int(a, 2) == 3 && model_key_int(a, 3) == 0,
                "ints differ");
    }
    if (test_check(t, model_file_floats(f, "floats", -2, 1, &a, &err) == KEY_OK, "rejected: %s",
                err.text)) {
        test_check(t,
                a->n == 3 && model_key_float(a, 0) == 0.5 && model_key_float(a, 1) == -2.0 &&
                        model_key_float(a, 2) == (double) 1e-5f && model_key_float(a, 3) == 0.0,
                "floats differ");
    }
    if (test_check(t, model_file_bools(f, "bools", &a, &err) == KEY_OK, "rejected: %s", err.text)) {
        test_check(t,
                a->n == 2 && !model_key_bool(a, 0) && model_key_bool(a, 1) && !model_key_bool(a, 2),
                "bools differ");
    }
    if (test_check(t, model_file_texts(f, "texts", &a, &err) == KEY_OK, "rejected: %s", err.text)) {
        test_check(t,
                a->n == 3 && slice_is(model_key_text(a, 0), "a") &&
                        slice_is(model_key_text(a, 1), "") &&
                        slice_is(model_key_text(a, 2), "größe") &&
                        slice_is(model_key_text(a, 3), ""),
                "texts differ");
    }
}

// Absent, wrong type, out of range: each has its message, and the default is unchanged.
static void check_rejections(struct test * t, const struct model_file * f) {
    static const struct {
        const char *    key;
        int64_t         min, max;
        enum key_status status;
        const char *    sentence;
    } INTS[] = {
        { "none", 0, 9, KEY_ABSENT, "key 'none' is missing; expected an integer" },
        { "text", 0, 9, KEY_BAD, "key 'text' is of type string; expected an integer" },
        { "f32", 0, 9, KEY_BAD, "key 'f32' is of type f32; expected an integer" },
        { "bool", 0, 9, KEY_BAD, "key 'bool' is of type bool; expected an integer" },
        { "ints", 0, 9, KEY_BAD, "key 'ints' is an array of i32; expected an integer" },
        { "i32", 0, 9, KEY_BAD, "key 'i32' is -7; expected 0 to 9" },
        { "u8", 0, 199, KEY_BAD, "key 'u8' is 200; expected 0 to 199" },
        { "u64", 0, INT64_MAX, KEY_BAD,
                "key 'u64' is 9223372036854775808; expected 0 to 9223372036854775807" },
    };
    static const struct {
        const char *    key;
        enum key_status status;
        const char *    sentence;
    } ARRAYS[] = {
        { "none", KEY_ABSENT, "key 'none' is missing; expected an array of integers" },
        { "u8", KEY_BAD, "key 'u8' is of type u8; expected an array of integers" },
        { "ints", KEY_BAD, "key 'ints' has element 1 = -2; expected 0 to 3" },
        { "bools", KEY_BAD, "key 'bools' is an array of bool; expected an array of integers" },
    };
    const struct model_key * a = NULL;
    int64_t                  n = 42;
    double                   x = 42.0;
    bool                     flag = true;
    int                      word = 42;
    struct slice             text = { NULL, 42 };
    struct lrnn_error        err = { LRNN_ERROR_NONE, "" };
    for (size_t i = 0; i < sizeof(INTS) / sizeof(INTS[0]); ++i) {
        const enum key_status status =
                model_file_int(f, INTS[i].key, INTS[i].min, INTS[i].max, &n, &err);
        check_status(t, status, INTS[i].status, err.text, INTS[i].sentence);
    }
    for (size_t i = 0; i < sizeof(ARRAYS) / sizeof(ARRAYS[0]); ++i) {
        check_status(t, model_file_ints(f, ARRAYS[i].key, 0, 3, &a, &err), ARRAYS[i].status,
                err.text, ARRAYS[i].sentence);
    }
    check_status(t, model_file_float(f, "f32", 1, 2, &x, &err), KEY_BAD, err.text,
            "key 'f32' is 0.5; expected 1 to 2");
    check_status(t, model_file_float(f, "u32", 1, 2, &x, &err), KEY_BAD, err.text,
            "key 'u32' is of type u32; expected f32 or f64");
    check_status(t, model_file_floats(f, "floats", 0, 1, &a, &err), KEY_BAD, err.text,
            "key 'floats' has element 1 = -2; expected 0 to 1");
    check_status(t, model_file_floats(f, "bools", 0, 1, &a, &err), KEY_BAD, err.text,
            "key 'bools' is an array of bool; expected an array of f32 or f64");
    check_status(t, model_file_bool(f, "u8", &flag, &err), KEY_BAD, err.text,
            "key 'u8' is of type u8; expected bool");
    check_status(t, model_file_text(f, "texts", &text, &err), KEY_BAD, err.text,
            "key 'texts' is an array of string; expected string");
    const char * const words[] = { "relu", "elu", NULL };
    check_status(t, model_file_choice(f, "text", words, &word, &err), KEY_BAD, err.text,
            "key 'text' is 'silu'; expected one of 'relu', 'elu'");
    test_check(t, n == 42 && x == 42.0 && flag && word == 42 && text.size == 42 && a == NULL,
            "a default was overwritten");
}

static void check_tensors(struct test * t, struct model_file * f) {
    struct lrnn_error           err = { LRNN_ERROR_NONE, "" };
    const struct model_tensor * w = model_file_use_tensor(f, "w");
    test_check(t,
            w != NULL && w->type == GGML_TYPE_Q8_0 && w->n_dims == 2 && w->ne[0] == 32 &&
                    w->ne[1] == 2 && w->ne[2] == 1 && w->ne[3] == 1 && w->size == 68,
            "w differs");
    test_check(t, model_file_use_tensor(f, "v") == NULL, "tensor 'v' was found");
    test_check(t, !model_file_all_used(f, &err), "'bias' was not used");
    test_check(t, strcmp(err.text, "f.gguf: found 1 unknown tensor: 'bias'") == 0, "said: %s",
            err.text);
    test_check(t, model_file_use_tensor(f, "bias") != NULL && model_file_all_used(f, &err),
            "said: %s", err.text);
}

static void check_access(struct test * t) {
    struct bytes      b = { 0 };
    unsigned char *   copy;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    put_sample(&b);
    struct model_file * f = open_bytes(&b, &copy, &err);
    if (test_check(t, f != NULL, "rejected: %s", err.text)) {
        check_values(t, f);
        check_rejections(t, f);
        check_tensors(t, f);
    }
    model_file_free(f);
    free(copy);
    free(b.data);
}

// NaN and infinity are in no range. A long list of unknown tensors is cut.
static void check_edges(struct test * t) {
    static const char * const KEYS[] = { "a", "b", "c", "d" };
    static const uint32_t     BITS[] = { 0x7fc00000, 0xffc00000, 0x7f800000,
            0xff800000 }; // ± NaN, ± infinity
    static const char * const TENSORS[] = { "t0", "t1", "t2", "t3", "t4" };
    struct bytes              b = { 0 };
    unsigned char *           copy;
    struct lrnn_error         err = { LRNN_ERROR_NONE, "" };
    put_header(&b, 5, 4);
    for (int i = 0; i < 4; ++i) {
        put_key(&b, KEYS[i], GGUF_TYPE_FLOAT32);
        put_u32(&b, BITS[i]);
    }
    for (int i = 0; i < 5; ++i) {
        put_tensor(&b, TENSORS[i], 1, 8, 1, GGML_TYPE_F32, 32u * (unsigned) i);
    }
    put_padding(&b, 32);
    put_zeros(&b, 5 * 32);
    struct model_file * f = open_bytes(&b, &copy, &err);
    if (test_check(t, f != NULL, "rejected: %s", err.text)) {
        for (int i = 0; i < 4; ++i) {
            double                x = 0.0;
            const enum key_status status = model_file_float(f, KEYS[i], -1e308, 1e308, &x, &err);
            test_check(t, status == KEY_BAD, "%08" PRIx32 " was accepted as %g", BITS[i], x);
        }
        test_check(t,
                !model_file_all_used(f, &err) &&
                        strcmp(err.text,
                                "f.gguf: found 5 unknown tensors: 't0', 't1', 't2', ...") == 0,
                "said: %s", err.text);
        test_check(t, !model_file_all_used(f, NULL), "unknown tensors are accepted");
    }
    model_file_free(f);
    free(copy);
    free(b.data);
}

// The identity of a file is constant. It changes with a byte of a key, of the name of a tensor or
// at either end of its data.
static void check_identity(struct test * t) {
    struct bytes b = { 0 };
    put_header(&b, 1, 1);
    put_key_u32(&b, "a", 1);
    const size_t at_value = b.n - 4;
    const size_t at_name = b.n + 8;
    put_tensor(&b, "x", 1, 1024, 1, GGML_TYPE_F32, 0);
    put_padding(&b, 32);
    const size_t at_data = b.n;
    put_zeros(&b, 4096);

    const size_t  at[] = { at_value, at_value, at_name, at_data, at_data + 4095 };
    const uint8_t flip[] = { 0, 2, 2, 2, 2 };
    uint64_t      ids[5];
    for (int i = 0; i < 5; ++i) {
        for (int again = 0; again < 2; ++again) {
            unsigned char *   copy;
            struct lrnn_error err = { LRNN_ERROR_NONE, "" };
            b.data[at[i]] ^= flip[i];
            struct model_file * f = open_bytes(&b, &copy, &err);
            b.data[at[i]] ^= flip[i];
            if (test_check(t, f != NULL, "rejected: %s", err.text)) {
                const uint64_t id = model_file_identity(f);
                test_check(t, again == 0 || id == ids[i], "file %d has two identities", i);
                ids[i] = id;
            }
            model_file_free(f);
            free(copy);
        }
        for (int j = 0; j < i; ++j) {
            test_check(t, ids[i] != ids[j], "files %d and %d have the same identity", i, j);
        }
    }
    free(b.data);
}

//
// Paths
//

static void rejected_path(struct test * t, const char * path, const char * sentence) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    char                want[512];
    struct model_file * f = model_file_open(path, &err);
    snprintf(want, sizeof(want), "%s: %s", path, sentence);
    test_check(t, f == NULL && strcmp(err.text, want) == 0, "said: %s\n    expected: %s", err.text,
            want);
    model_file_free(f);
}

static void check_paths(struct test * t) {
    char path[64];
    test_own_path(path, sizeof(path), "test-model-file.tmp");
    unlink(path);
    rejected_path(t, path, "No such file or directory");
    rejected_path(t, ".", "found a directory; expected a regular file");
    rejected_path(t, "/dev/null", "found a device, pipe or socket; expected a regular file");
    if (test_check(t, mkfifo(path, 0600) == 0, "cannot make a pipe")) {
        // must not wait for a writer
        rejected_path(t, path, "found a device, pipe or socket; expected a regular file");
    }
    unlink(path);
    test_write_file(path, "", 0);
    rejected_path(t, path, "the file is empty; expected a GGUF file");
    unlink(path);
}

//
// Round trips
//

// A random file, made by ggml.
static struct gguf_context * random_gguf(struct test_rng * r, struct ggml_context * ctx) {
    static const size_t         SIZES[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    static const enum ggml_type TYPES[] = {
        GGML_TYPE_F32,
        GGML_TYPE_F16,
        GGML_TYPE_BF16,
        GGML_TYPE_Q8_0,
        GGML_TYPE_Q4_0,
        GGML_TYPE_Q6_K,
        GGML_TYPE_I32,
    };
    static const char * const WORDS[] = { "", "a", "Ġthe", "größe", "\U0001f600", "<0x0A>",
        "a longer piece of text with blanks" };
    struct gguf_context *     gguf = gguf_init_empty();

    for (int64_t i = test_below(r, 20); i > 0; i--) {
        char         key[32];
        uint64_t     data[16];
        const int    type = (int) test_below(r, GGUF_TYPE_COUNT);
        const size_t n = (size_t) test_below(r, 16);
        const char * text[16];
        snprintf(key, sizeof(key), "key.%" PRId64, test_below(r, 1000000));
        for (int j = 0; j < 16; ++j) {
            data[j] = type == GGUF_TYPE_BOOL ? test_next(r) & UINT64_C(0x0101010101010101)
                                             : test_next(r);
            text[j] = WORDS[test_below(r, sizeof(WORDS) / sizeof(WORDS[0]))];
        }
        switch (type) {
            case GGUF_TYPE_STRING: gguf_set_val_str(gguf, key, text[0]); break;
            case GGUF_TYPE_ARRAY: gguf_set_arr_str(gguf, key, text, n); break;
            case GGUF_TYPE_UINT32: gguf_set_val_u32(gguf, key, (uint32_t) data[0]); break;
            case GGUF_TYPE_INT64: gguf_set_val_i64(gguf, key, (int64_t) data[0]); break;
            case GGUF_TYPE_BOOL: gguf_set_val_bool(gguf, key, data[0] & 1); break;
            default:
                if (SIZES[type] > 0) {
                    gguf_set_arr_data(gguf, key, (enum gguf_type) type, data, n);
                }
                break;
        }
    }
    const int64_t n_tensors = test_below(r, 12);
    for (int64_t i = 0; i < n_tensors; ++i) {
        const enum ggml_type type = TYPES[test_below(r, sizeof(TYPES) / sizeof(TYPES[0]))];
        const int64_t        block = ggml_blck_size(type);
        const int64_t        ne[4] = { block * (1 + test_below(r, 5)), 1 + test_below(r, 5),
                   1 + test_below(r, 3), 1 + test_below(r, 2) };
        struct ggml_tensor * x = ggml_new_tensor(ctx, type, 1 + (int) test_below(r, 4), ne);
        ggml_format_name(x, "blk.%d.w%d", (int) i, (int) test_below(r, 100));
        for (size_t j = 0; j < ggml_nbytes(x); ++j) {
            ((unsigned char *) x->data)[j] = (unsigned char) test_next(r);
        }
        gguf_add_tensor(gguf, x);
    }
    return gguf;
}

// Compares key i with the value that ggml has.
static bool same_value(const struct gguf_context * gguf, int64_t i, const struct model_key * key) {
    if (key->type == GGUF_TYPE_STRING) {
        for (size_t j = 0; j < key->n; ++j) {
            if (!slice_is(model_key_text(key, j),
                        key->is_array ? gguf_get_arr_str(gguf, i, j) : gguf_get_val_str(gguf, i))) {
                return false;
            }
        }
        return true;
    }
    const unsigned char * data =
            key->is_array ? gguf_get_arr_data(gguf, i) : gguf_get_val_data(gguf, i);
    for (size_t j = 0; j < key->n; ++j) {
        const int64_t v = model_key_int(key, j);
        bool          same = false;
        switch (key->type) {
            case GGUF_TYPE_UINT8: same = v == ((const uint8_t *) data)[j]; break;
            case GGUF_TYPE_INT8: same = v == ((const int8_t *) data)[j]; break;
            case GGUF_TYPE_UINT16: same = v == ((const uint16_t *) (const void *) data)[j]; break;
            case GGUF_TYPE_INT16: same = v == ((const int16_t *) (const void *) data)[j]; break;
            case GGUF_TYPE_UINT32: same = v == ((const uint32_t *) (const void *) data)[j]; break;
            case GGUF_TYPE_INT32: same = v == ((const int32_t *) (const void *) data)[j]; break;
            case GGUF_TYPE_INT64: same = v == ((const int64_t *) (const void *) data)[j]; break;
            case GGUF_TYPE_UINT64: {
                const uint64_t x = ((const uint64_t *) (const void *) data)[j];
                same = v == (x > INT64_MAX ? INT64_MAX : (int64_t) x);
            } break;
            case GGUF_TYPE_BOOL: same = model_key_bool(key, j) == (data[j] != 0); break;
            case GGUF_TYPE_FLOAT32: {
                const float x = (float) model_key_float(key, j);
                same = memcmp(&x, data + 4 * j, 4) == 0 || x != x;
            } break;
            case GGUF_TYPE_FLOAT64: {
                const double x = model_key_float(key, j);
                same = memcmp(&x, data + 8 * j, 8) == 0;
            } break;
            default: break;
        }
        if (!same) {
            return false;
        }
    }
    return true;
}

static void check_round_trips(struct test * t) {
    struct test_rng r = { 4 };
    char            path[64];
    test_own_path(path, sizeof(path), "test-model-file.gguf");
    for (int round = 0; round < 500; ++round) {
        struct ggml_context * ctx = ggml_init((struct ggml_init_params) { .mem_size = 1 << 20 });
        struct gguf_context * gguf = random_gguf(&r, ctx);
        struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
        test_check(t, gguf_write_to_file(gguf, path, false), "ggml cannot write %s", path);
        struct model_file * f = model_file_open(path, &err);
        if (test_check(t, f != NULL, "rejected: %s", err.text)) {
            test_check(t, model_file_walk(f, &err), "accepted, but %s", err.text);
            test_check(t, model_file_warning(f) == NULL, "warned: %s", model_file_warning(f));
            for (int64_t i = 0; i < gguf_get_n_kv(gguf); ++i) {
                test_check(t, same_value(gguf, i, model_file_key(f, (size_t) i)), "key %s differs",
                        gguf_get_key(gguf, i));
            }
            for (struct ggml_tensor * x = ggml_get_first_tensor(ctx); x != NULL;
                    x = ggml_get_next_tensor(ctx, x)) {
                const struct model_tensor * w = model_file_find_tensor(f, x->name);
                test_check(t,
                        w != NULL && w->type == x->type &&
                                memcmp(w->ne, x->ne, sizeof(w->ne)) == 0 &&
                                w->size == ggml_nbytes(x) && memcmp(w->data, x->data, w->size) == 0,
                        "tensor %s differs", x->name);
            }
        }
        model_file_free(f);
        gguf_free(gguf);
        ggml_free(ctx);
    }
    unlink(path);
}

// Kilobytes of a mapped file that are in the memory of this process, or -1 if the system does not
// tell.
static long resident_kb(const char * path) {
    FILE * maps = fopen("/proc/self/smaps", "r");
    char   line[1024];
    bool   found = false;
    long   kb = -1;
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        found = found || strstr(line, path) != NULL;
        if (found && sscanf(line, "Rss: %ld kB", &kb) == 1) {
            break;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return kb;
}

// A released tensor uses no memory, and its data are still there.
static void check_release(struct test * t) {
    char                  path[64];
    const int64_t         n = 1 << 18;
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    struct ggml_context * ctx = ggml_init((struct ggml_init_params) { .mem_size = 4 << 20 });
    struct gguf_context * gguf = gguf_init_empty();
    struct ggml_tensor *  x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n);
    test_own_path(path, sizeof(path), "test-model-file-release.gguf");
    memset(x->data, 7, ggml_nbytes(x));
    ggml_set_name(x, "x");
    gguf_add_tensor(gguf, x);
    test_check(t, gguf_write_to_file(gguf, path, false), "ggml cannot write %s", path);
    struct model_file * f = model_file_open(path, &err);
    if (test_check(t, f != NULL, "rejected: %s", err.text)) {
        const struct model_tensor * w = model_file_find_tensor(f, "x");
        test_check(t, memcmp(w->data, x->data, w->size) == 0, "tensor x differs");
        const long before = resident_kb(path);
        model_file_release(f, w);
        const long after = resident_kb(path);
        test_check(t, before < 0 || (before >= 1024 && after <= 128),
                "%ld kB of 1024 are resident, and %ld after the release", before, after);
        test_check(t, memcmp(w->data, x->data, w->size) == 0, "tensor x differs after the release");
    }
    model_file_free(f);
    gguf_free(gguf);
    ggml_free(ctx);
    unlink(path);
}

int main(void) {
    struct test t = { 0 };
    check_access(&t);
    check_edges(&t);
    check_identity(&t);
    check_paths(&t);
    check_round_trips(&t);
    check_release(&t);
    return test_end(&t, "model-file");
}
