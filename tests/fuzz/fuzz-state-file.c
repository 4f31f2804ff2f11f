// State files of arbitrary bytes. A file is rejected with a reason and changes nothing; or it is
// loaded, is saved as the same bytes, and the sequence continues.

#include "fuzz/fuzz.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/state-file-bytes.h"
#include "lrnn.h"
#include "run/sampler.h"

enum { N_BEFORE = 3 }; // length of the sequence that a file replaces

static struct {
    struct lrnn_model *   model;
    struct lrnn_session * session; // sequence 0 is a copy of what a file replaces
    struct lrnn_sampler * sampler;
    int64_t               n_vocab;
    uint64_t              identity;
} models[STATE_N_MODELS];

static char path_in[64], path_out[64];

static void remove_files(void) {
    unlink(path_in);
    unlink(path_out);
}

static void prepare(void) {
    struct lrnn_error err;
    make_path(path_in, "state.in");
    make_path(path_out, "state.out");
    atexit(remove_files);
    for (int m = 0; m < STATE_N_MODELS; ++m) {
        models[m].model = golden_load_model(state_models[m]);
        const struct lrnn_session_params params = {
            .n_threads = 1, .n_seqs = 2, .n_rewind = 1, .n_cache = 64
        };
        models[m].session = lrnn_session_new(models[m].model, &params, &err);
        models[m].sampler = lrnn_sampler_new(NULL, &err);
        models[m].n_vocab = lrnn_model_get_info(models[m].model).n_vocab;
        models[m].identity = lrnn_model_get_info(models[m].model).identity;
        require_of(
                models[m].session != NULL && models[m].sampler != NULL, state_models[m], err.text);
        const struct lrnn_input in = {
            .seq = 0, .tokens = (const int32_t[N_BEFORE]) { 3, 1, 4 }, .n_tokens = N_BEFORE
        };
        require_of(lrnn_eval(models[m].session, &in, 1, &err), state_models[m], err.text);
    }
}

static void check_same(const char * path, const uint8_t * data, size_t size) {
    size_t    saved_size;
    uint8_t * saved = test_read_file(path, &saved_size);
    require_of(saved_size == size && memcmp(saved, data, size) == 0, path,
            "a loaded state is saved as other bytes");
    free(saved);
}

static void check_file(int m, const uint8_t * file, size_t size) {
    struct lrnn_session * session = models[m].session;
    struct lrnn_sampler * sampler = models[m].sampler;
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    require_of(lrnn_seq_fork(session, 0, 1, &err), "fork", err.text);
    test_write_file(path_in, file, size);

    const struct lrnn_sampler before = *sampler;
    if (!lrnn_seq_load(session, 1, sampler, path_in, &err)) {
        require_reason(err.text, path_in);
        require_of(lrnn_seq_length(session, 1) == N_BEFORE, "rejected",
                "but the length of the sequence has changed");
        require_of(memcmp(&before, sampler, sizeof(before)) == 0, "rejected",
                "but the sampler has changed");
        return;
    }
    int64_t  length;
    uint32_t has;
    memcpy(&length, file + STATE_AT_LENGTH, sizeof(length));
    memcpy(&has, file + STATE_AT_HAS, sizeof(has));
    // the named states of old servers have other headers; tokens may have one more than the state
    const bool is_plain = memcmp(file, "lrnn-seq", 8) == 0 && !(has & 12);
    require_of(lrnn_seq_length(session, 1) - length <= (is_plain ? 0 : 1) &&
                       lrnn_seq_length(session, 1) >= length,
            "loaded", "but the length is wrong");
    require_of(
            lrnn_seq_save(session, 1, has & 2 ? sampler : NULL, path_out, &err), "save", err.text);
    if (is_plain) {
        check_same(path_out, file, size);
    }

    if (has & 1) { // loaded logits are finite
        const int32_t token = lrnn_sampler_sample(
                sampler, lrnn_logits(session, 0), models[m].n_vocab, NULL, NULL);
        require_of(
                token >= 0 && token < models[m].n_vocab, "loaded", "but no token can be sampled");
    }
    const struct lrnn_input in = {
        .seq = 1, .tokens = (const int32_t[1]) { 5 }, .n_tokens = 1, .n_logits = 1
    };
    if (!lrnn_eval(session, &in, 1, &err)) {
        // the attention cache may be full
        require_of(err.text[0] != '\0' && strchr(err.text, '\n') == NULL, "failed without a reason",
                err.text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    if (models[0].model == NULL) {
        prepare();
    }
    if (size == 0) {
        return 0;
    }
    const int m = data[0] & STATE_MODEL;
    uint8_t * file = malloc(size); // the file has size - 1 bytes
    require_of(file != NULL, "out of memory", "");
    memcpy(file, data + 1, size - 1);
    if (data[0] & STATE_PUT_IDENTITY && size - 1 >= STATE_AT_PIECES) {
        memcpy(file + STATE_AT_IDENTITY, &models[m].identity, sizeof(models[m].identity));
    }
    if (data[0] & STATE_PUT_SUM) {
        state_put_sum(file, size - 1);
    }
    check_file(m, file, size - 1);
    free(file);
    return 0;
}
