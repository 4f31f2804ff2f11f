// Loads golden models with random changes of keys and tensors. A model is rejected with a message,
// or a session can run it. ggml aborts the process if a graph is invalid, so the loader must reject
// everything that would lead there.
//
// An input is one byte that selects the model, then changes of 8 bytes each: kind of change, key or
// tensor, value.

#include "fuzz/fuzz.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "lrnn.h"
#include "model/families.h"

enum { MAX_CHANGES = 4, MAX_ELEMENTS = 1 << 16, MAX_STATE_BYTES = 1 << 26 };

enum change {
    DROP_KEY,
    SET_INT,
    SET_FLOAT,
    SET_WORD,
    SET_BOOL,
    DROP_TENSOR,
    SET_TYPE,
    SET_DIM,
    SET_NUMBER,
    SWAP_DIMS,
    CHANGES
};

static const int64_t INTS[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 31, 32, 33, 48, 64, 96,
    100, 128, 255, 256, 257, 512, 1000, 4096, 65535, 65536, 1 << 20, INT32_MAX, UINT32_MAX };

static const float FLOATS[] = { 0.0f, -0.0f, 1.0f, -1.0f, 1e-12f, 1e-5f, 0.5f, 2.0f, 1e6f, 1e12f,
    1e30f, -1e30f, 1e-45f, INFINITY, -INFINITY, NAN };

static const char * const WORDS[] = { "", "none", "head", "pre", "olmo_hybrid", "identity", "relu",
    "elu", "silu", "sigmoid", "l2", "sum", "[0,1]", "[-1,1]", "family", "lrnn", "a\nb\x1b[31m",
#define FAMILY_WORD(name) #name,
    FAMILIES(FAMILY_WORD)
#undef FAMILY_WORD
};

static struct golden_list golden;
static char               path[64];

static void remove_file(void) {
    unlink(path);
}

static void no_log(enum ggml_log_level level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

static void prepare(void) {
    make_path(path, "model.gguf");
    atexit(remove_file);
    ggml_log_set(no_log, NULL);
    golden_list_load(&golden);
}

// Replaces a tensor by one of another shape or type, with its bytes repeated.
static void remake(struct model_edit * e, struct ggml_tensor * t, enum ggml_type type, int n_dims,
        const int64_t * ne) {
    int64_t n = 1;
    for (int i = 0; i < n_dims; ++i) {
        n = ne[i] > 0 && ne[i] <= MAX_ELEMENTS ? n * ne[i] : MAX_ELEMENTS + 1;
        if (n > MAX_ELEMENTS) {
            return;
        }
    }
    if (ggml_blck_size(type) == 0 || ne[0] % ggml_blck_size(type) != 0) {
        return;
    }
    struct ggml_tensor * made = model_edit_put(e, t->name, type, n_dims, ne);
    for (size_t i = 0; i < ggml_nbytes(made); ++i) {
        ((uint8_t *) made->data)[i] = ((const uint8_t *) t->data)[i % ggml_nbytes(t)];
    }
}

static void change_key(struct model_edit * e, enum change what, int64_t which, uint32_t value) {
    const int64_t n = gguf_get_n_kv(e->gguf);
    char          key[128];
    if (n == 0) {
        return;
    }
    snprintf(key, sizeof(key), "%s", gguf_get_key(e->gguf, which % n));
    gguf_remove_key(e->gguf, key);
    switch (what) {
        case SET_INT: gguf_set_val_i64(e->gguf, key, INTS[value % N(INTS)]); break;
        case SET_FLOAT: gguf_set_val_f32(e->gguf, key, FLOATS[value % N(FLOATS)]); break;
        case SET_WORD: gguf_set_val_str(e->gguf, key, WORDS[value % N(WORDS)]); break;
        case SET_BOOL: gguf_set_val_bool(e->gguf, key, value & 1); break;
        default: break;
    }
}

static void change_tensor(
        struct model_edit * e, enum change what, int64_t which, uint32_t value, uint8_t more) {
    if (e->n_tensors == 0) {
        return;
    }
    struct ggml_tensor * t = e->tensors[which % e->n_tensors];
    int64_t              ne[4] = { t->ne[0], t->ne[1], t->ne[2], t->ne[3] };
    const int            n_dims = ggml_n_dims(t);
    switch (what) {
        case DROP_TENSOR: {
            char name[GGML_MAX_NAME];
            snprintf(name, sizeof(name), "%s", t->name);
            model_edit_drop(e, name);
        } break;
        case SET_TYPE: {
            remake(e, t, (enum ggml_type)(value % GGML_TYPE_COUNT), n_dims, ne);
        } break;
        case SET_DIM: {
            const int d = more % 4;
            ne[d] = INTS[value % N(INTS)];
            remake(e, t, t->type, d >= n_dims ? d + 1 : n_dims, ne);
        } break;
        case SWAP_DIMS: {
            ne[0] = t->ne[1];
            ne[1] = t->ne[0];
            remake(e, t, t->type, n_dims > 2 ? n_dims : 2, ne);
        } break;
        case SET_NUMBER: {
            if (t->type == GGML_TYPE_F32) {
                ((float *) t->data)[value % (uint64_t) ggml_nelements(t)] =
                        FLOATS[more % N(FLOATS)];
            }
        } break;
        default: break;
    }
}

static void use(struct lrnn_model * model) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    struct lrnn_error            err = { LRNN_ERROR_NONE, "" };
    if (info.state_bytes > MAX_STATE_BYTES) {
        return;
    }
    const struct lrnn_session_params params = {
        .n_threads = 1, .n_seqs = 2, .n_rewind = 1, .n_cache = 16
    };
    struct lrnn_session * session = lrnn_session_new(model, &params, &err);
    require_of(session != NULL, "no session", err.text);
    for (int call = 0; call < 2; ++call) {
        const int32_t           tokens[3] = { 0, (int32_t) (info.n_vocab - 1), 0 };
        const struct lrnn_input in[2] = {
            { .seq = 0, .tokens = tokens, .n_tokens = 3 - 2 * call, .n_logits = 1 },
            { .seq = 1, .tokens = tokens, .n_tokens = 1 + call, .n_logits = 1 },
        };
        require_of(lrnn_eval(session, in, 2, &err), "the model was accepted, but", err.text);
    }
    lrnn_session_free(session);
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    if (golden.n == 0) {
        prepare();
    }
    struct model_edit e;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    if (size == 0) {
        return 0;
    }
    require_of(model_edit_open(&e, golden.models[data[0] % golden.n].path),
            golden.models[data[0] % golden.n].path, "cannot be read");
    for (size_t at = 1, n = 0; at + 8 <= size && n < MAX_CHANGES; at += 8, ++n) {
        const enum change what = (enum change)(data[at] % CHANGES);
        uint32_t          value;
        memcpy(&value, data + at + 4, sizeof(value));
        if (what <= SET_BOOL) {
            change_key(&e, what, data[at + 1], value);
        } else {
            change_tensor(&e, what, data[at + 1], value, data[at + 2]);
        }
    }
    require_of(model_edit_write(&e, path), path, "cannot be written");
    model_edit_close(&e);

    struct lrnn_model * model = lrnn_model_load(path, NULL, &err);
    if (model != NULL) {
        use(model);
        lrnn_model_free(model);
    } else {
        require_reason(err.text, path);
    }
    return 0;
}
