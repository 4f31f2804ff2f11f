// State files with a valid checksum and invalid content. Each is rejected with a message that names
// the value found and the one expected; sequence and sampler are unchanged. test-session tests
// damage that the checksum detects.
//
//     test-state-file              all checks
//     test-state-file DIRECTORY    writes seeds of the fuzz target to DIRECTORY

#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/state-file-bytes.h"
#include "lrnn.h"
#include "run/sampler.h"

#include <sys/stat.h>

enum { N_TOKENS = 7, N_BEFORE = 3 };

static const int32_t tokens[N_TOKENS] = { 3, 1, 4, 1, 5, 9, 2 };

// A model with a session of two sequences: 0 is saved, 1 is loaded.
struct bench {
    struct test *         t;
    struct lrnn_model *   model;
    struct lrnn_session * session;
    struct lrnn_sampler * sampler;
    char                  path[64];
    uint8_t *             file; // with logits and sampler
    size_t                size;
};

static bool eval(struct bench * b, int32_t seq, int64_t n, int64_t n_logits) {
    struct lrnn_error       err;
    const struct lrnn_input in = {
        .seq = seq, .tokens = tokens, .n_tokens = n, .n_logits = n_logits
    };
    return test_check(b->t, lrnn_eval(b->session, &in, 1, &err), "%s", err.text);
}

static bool open_bench(struct bench * b, struct test * t, const char * name) {
    struct lrnn_error err;
    *b = (struct bench) { .t = t, .model = golden_load_model(name) };
    test_own_path(b->path, sizeof(b->path), "test-state-file.state");
    const struct lrnn_session_params params = { .n_threads = 1, .n_seqs = 2, .n_cache = 64 };
    b->session = lrnn_session_new(b->model, &params, &err);
    b->sampler = lrnn_sampler_new(NULL, &err);
    if (!test_check(t, b->session != NULL && b->sampler != NULL, "%s: %s", name, err.text) ||
            !eval(b, 1, N_BEFORE, 0) || !eval(b, 0, N_TOKENS, 1)) {
        return false;
    }
    lrnn_sampler_sample(b->sampler, lrnn_logits(b->session, 0),
            lrnn_model_get_info(b->model).n_vocab, NULL, NULL);
    if (!test_check(t, lrnn_seq_save(b->session, 0, b->sampler, b->path, &err), "%s: %s", name,
                err.text)) {
        return false;
    }
    b->file = test_read_file(b->path, &b->size);
    return true;
}

static void close_bench(struct bench * b) {
    lrnn_session_free(b->session);
    lrnn_sampler_free(b->sampler);
    lrnn_model_free(b->model);
    free(b->file);
    remove(b->path);
}

//
// Rejected files
//

// Checks that a file is rejected with this message, after its path.
static void rejected(struct bench * b, const uint8_t * file, size_t size, const char * message) {
    struct lrnn_error         err = { LRNN_ERROR_NONE, "" };
    char                      expected[512];
    const struct lrnn_sampler before = *b->sampler;
    snprintf(expected, sizeof(expected), "%s: %s", b->path, message);
    test_write_file(b->path, file, size);
    const bool loaded = lrnn_seq_load(b->session, 1, b->sampler, b->path, &err);
    test_check(b->t, !loaded, "accepted; expected: %s", expected);
    test_check(b->t, loaded || strcmp(err.text, expected) == 0, "found: %s\n    expected: %s",
            err.text, expected);
    test_check(b->t, lrnn_seq_length(b->session, 1) == N_BEFORE, "%s: the sequence has changed",
            message);
    test_check(b->t, memcmp(&before, b->sampler, sizeof(before)) == 0,
            "%s: the sampler has changed", message);
}

// Replaces `size` bytes at `at` and repairs the checksum.
static void rejected_with(
        struct bench * b, size_t at, const void * bytes, size_t size, const char * message) {
    uint8_t * file = malloc(b->size);
    memcpy(file, b->file, b->size);
    memcpy(file + at, bytes, size);
    state_put_sum(file, b->size);
    rejected(b, file, b->size, message);
    free(file);
}

static void rejected_u32(struct bench * b, size_t at, uint32_t value, const char * message) {
    rejected_with(b, at, &value, sizeof(value), message);
}

static void rejected_i64(struct bench * b, size_t at, int64_t value, const char * message) {
    rejected_with(b, at, &value, sizeof(value), message);
}

// One changed bit, in every byte of the file or in every 16th. Each step of FNV-1a is a bijection
// of the sum, so two files that differ in one byte never have the same sum. Most bytes of a file
// are zeros: a random change that writes a zero over a zero is no damage; such a file is accepted.
static void check_damage(struct bench * b, size_t step) {
    uint8_t *         file = malloc(b->size);
    struct lrnn_error err;
    memcpy(file, b->file, b->size);
    for (size_t at = 0; at < b->size; at += step) {
        file[at] ^= (uint8_t) (1u << at % 8);
        test_write_file(b->path, file, b->size);
        test_check(b->t, !lrnn_seq_load(b->session, 1, b->sampler, b->path, &err),
                "a file with another byte %zu was accepted", at);
        file[at] = b->file[at];
    }
    test_check(b->t, lrnn_seq_length(b->session, 1) == N_BEFORE, "the sequence has changed");
    free(file);
}

static void check_header(struct bench * b) {
    const struct lrnn_model_info info = lrnn_model_get_info(b->model);
    char                         message[256];
    rejected(b, b->file, 39, "too short for an lrnn state file");
    rejected_with(b, 0, "lrnn-seQ", 8, "not an lrnn state file");
    rejected_u32(b, STATE_AT_VERSION, 0, "state file version is 0; expected 1");
    rejected_u32(b, STATE_AT_VERSION, 2, "state file version is 2; expected 1");
    rejected_u32(b, STATE_AT_VERSION, 1u << 24, "state file version is 16777216; expected 1");
    rejected_with(b, STATE_AT_HAS, (const uint16_t[1]) { 32 }, 2,
            "the parts field is 0x20; expected 0 to 31");
    rejected_with(b, STATE_AT_HAS, (const uint16_t[1]) { 0xffff }, 2,
            "the parts field is 0xffff; expected 0 to 31");
    snprintf(message, sizeof(message),
            "saved from another model: its identity is 0000000000000001; expected %016llx",
            (unsigned long long) info.identity);
    rejected_i64(b, STATE_AT_IDENTITY, 1, message);

    // the size follows from model and length; another one must not be allocated
    const int64_t sizes[] = { 0, 1, INT64_MAX, -1 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        snprintf(message, sizeof(message), "the state has %llu bytes; expected %llu",
                (unsigned long long) sizes[i],
                (unsigned long long) (info.state_bytes + info.cache_bytes * N_TOKENS));
        rejected_i64(b, STATE_AT_SIZE, sizes[i], message);
    }
    rejected_with(b, STATE_AT_HAS + 2, (const uint16_t[1]) { 3 }, 2,
            "the cache type is 3; expected 0 to 2");
    if (info.n_layer_attention > 0) {
        rejected_with(b, STATE_AT_HAS + 2, (const uint16_t[1]) { 0 }, 2,
                "the attention cache has the type f32; expected f16");
    }
    uint16_t has = 1;
    snprintf(message, sizeof(message), "the file has %zu bytes; expected %zu", b->size,
            b->size - STATE_SAMPLER_BYTES);
    rejected_with(b, STATE_AT_HAS, &has, sizeof(has), message);
}

static void check_length(struct bench * b, const char * most) {
    const int64_t lengths[] = { -1, INT64_MIN, INT64_MAX, INT64_MAX - 1, (INT64_C(1) << 62) + 1 };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        char message[256];
        snprintf(message, sizeof(message), "the sequence has %lld tokens; expected 0 to %s",
                (long long) lengths[i], most);
        rejected_i64(b, STATE_AT_LENGTH, lengths[i], message);
    }
}

static void check_numbers(struct bench * b) {
    const struct lrnn_model_info info = lrnn_model_get_info(b->model);
    const size_t   n_state = (size_t) (info.state_bytes + info.cache_bytes * N_TOKENS);
    const size_t   logits = STATE_AT_PIECES + n_state;
    const size_t   sampler = logits + (size_t) info.n_vocab * sizeof(float);
    const uint32_t bits[] = { 0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000 }; // ± NaN, ± infinity
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); ++i) {
        rejected_u32(b, STATE_AT_PIECES, bits[i], "the state is not finite");
        rejected_u32(b, STATE_AT_PIECES + n_state / 8 * 4, bits[i], "the state is not finite");
        rejected_u32(b, logits - 4, bits[i], "the state is not finite");
        rejected_u32(b, logits, bits[i], "the logits are not finite");
        rejected_u32(b, sampler - 4, bits[i], "the logits are not finite");
    }
    rejected_i64(b, sampler + 16, -1,
            "the sampler has accepted -1 tokens; expected 0 to 4611686018427387904");
    rejected_i64(b, sampler + 16, INT64_MAX,
            "the sampler has accepted 9223372036854775807 tokens; "
            "expected 0 to 4611686018427387904");
    rejected_with(b, sampler, (const uint64_t[2]) { 0, 0 }, 16,
            "the random state of the sampler is zero");
}

//
// Accepted files
//

// A file loads, and saves as the same bytes. After a file without logits, no logits of an earlier
// call are saved.
static void check_again(struct bench * b) {
    struct lrnn_error err;
    test_write_file(b->path, b->file, b->size);
    test_check(b->t, lrnn_seq_load(b->session, 1, b->sampler, b->path, &err), "%s", err.text);
    test_check(b->t, lrnn_seq_save(b->session, 1, b->sampler, b->path, &err), "%s", err.text);
    size_t    size = 0;
    uint8_t * file = test_read_file(b->path, &size);
    test_check(b->t, size == b->size && memcmp(file, b->file, size) == 0,
            "a loaded state is saved as other bytes");
    free(file);

    size_t   bare_size = 0, again_size = 0;
    uint8_t *bare = NULL, *again = NULL;
    if (test_check(b->t, lrnn_seq_reset(b->session, 0, &err), "%s", err.text) &&
            eval(b, 0, N_TOKENS, 0) &&
            test_check(b->t, lrnn_seq_save(b->session, 0, NULL, b->path, &err), "%s", err.text)) {
        bare = test_read_file(b->path, &bare_size);
        eval(b, 1, 2, 2); // logits of the sequence that the file replaces
        test_check(b->t, lrnn_seq_load(b->session, 1, NULL, b->path, &err), "%s", err.text);
        test_check(b->t, lrnn_seq_save(b->session, 1, NULL, b->path, &err), "%s", err.text);
        again = test_read_file(b->path, &again_size);
        test_check(b->t, bare_size == again_size && memcmp(bare, again, bare_size) == 0,
                "a file without logits is saved again with %zu bytes; expected %zu", again_size,
                bare_size);
    }
    free(bare);
    free(again);
}

// Only regular files are overwritten.
static void check_paths(struct bench * b) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    char              want[512];
    struct stat       st;
    test_check(b->t, !lrnn_seq_save(b->session, 0, NULL, ".", &err), "a directory was overwritten");
    test_check(b->t, strcmp(err.text, ".: found a directory, expected a regular file or none") == 0,
            "found: %s", err.text);
    test_check(b->t, !lrnn_seq_save(b->session, 0, NULL, "no/such/folder", &err),
            "a file was written to a folder that does not exist");
    test_check(b->t,
            strcmp(err.text, "no/such/folder: cannot be written: No such file or directory") == 0,
            "found: %s", err.text);
    remove(b->path);
    if (test_check(b->t, mkfifo(b->path, 0600) == 0, "cannot make a pipe")) {
        snprintf(want, sizeof(want),
                "%s: found a device, pipe or socket, expected a regular file or none", b->path);
        test_check(b->t,
                !lrnn_seq_save(b->session, 0, NULL, b->path, &err) && strcmp(err.text, want) == 0,
                "found: %s", err.text);
        test_check(b->t, stat(b->path, &st) == 0 && S_ISFIFO(st.st_mode),
                "a pipe was replaced by a file");
        remove(b->path);
    }
    test_check(b->t,
            !lrnn_seq_save(b->session, 0, NULL, "", &err) &&
                    strcmp(err.text, "the name of the output file is empty") == 0,
            "found: %s", err.text);
    snprintf(want, sizeof(want), "%s: not a state file; expected a state file or a new file name",
            b->path);
    for (const char * text = "lrnn-sea"; *text != '\0'; ++text) { // and shorter ones
        size_t size = 0;
        test_write_file(b->path, text, strlen(text));
        test_check(b->t,
                !lrnn_seq_save(b->session, 0, NULL, b->path, &err) && strcmp(err.text, want) == 0,
                "a file '%s' is not refused: %s", text, err.text);
        uint8_t * file = test_read_file(b->path, &size);
        test_check(b->t, size == strlen(text) && memcmp(file, text, size) == 0,
                "a file '%s' was overwritten", text);
        free(file);
    }
}

// A position that does not fit into 32 bits is an error only in models with positions.
static void check_far(struct test * t, const char * name, bool has_positions) {
    struct bench      b;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    const int64_t     far = INT32_MAX;
    if (open_bench(&b, t, name)) {
        memcpy(b.file + STATE_AT_LENGTH, &far, sizeof(far));
        state_put_sum(b.file, b.size);
        test_write_file(b.path, b.file, b.size);
        test_check(t, lrnn_seq_load(b.session, 1, NULL, b.path, &err), "%s: %s", name, err.text);
        const struct lrnn_input in = { .seq = 1, .tokens = tokens, .n_tokens = 1, .n_logits = 1 };
        const bool              done = lrnn_eval(b.session, &in, 1, &err);
        test_check(t, done != has_positions, "%s: token 2^31 was %s: %s", name,
                done ? "accepted" : "rejected", err.text);
        test_check(t,
                done || strcmp(err.text, "sequence 1 is too long: its positions have 32 bits") == 0,
                "%s: found: %s", name, err.text);
        test_check(t, lrnn_seq_length(b.session, 1) == far + done, "%s: %lld tokens; expected %lld",
                name, (long long) lrnn_seq_length(b.session, 1), (long long) far + done);
    }
    close_bench(&b);
}

//
// Seeds
//

// An input of the fuzz target: one byte and a state file.
static void write_seed(
        const char * folder, int model, const char * name, const uint8_t * file, size_t size) {
    char      path[4096];
    uint8_t * seed = malloc(size + 1);
    seed[0] = (uint8_t) (model | STATE_PUT_IDENTITY | STATE_PUT_SUM);
    memcpy(seed + 1, file, size);
    snprintf(path, sizeof(path), "%s/%s-%s", folder, state_models[model], name);
    test_write_file(path, seed, size + 1);
    free(seed);
}

// Saves sequence 0 without logits and sampler and makes a seed of it.
static void write_bare_seed(struct bench * b, const char * folder, int model, const char * name) {
    struct lrnn_error err;
    size_t            size = 0;
    test_check(b->t, lrnn_seq_save(b->session, 0, NULL, b->path, &err), "%s", err.text);
    uint8_t * file = test_read_file(b->path, &size);
    write_seed(folder, model, name, file, size);
    free(file);
}

static void write_seeds(struct test * t, const char * folder) {
    for (int m = 0; m < STATE_N_MODELS; ++m) {
        struct bench      b;
        struct lrnn_error err;
        if (open_bench(&b, t, state_models[m])) {
            write_seed(folder, m, "whole", b.file, b.size);
            eval(&b, 0, 1, 0);
            write_bare_seed(&b, folder, m, "bare");
            test_check(t, lrnn_seq_reset(b.session, 0, &err), "%s", err.text);
            write_bare_seed(&b, folder, m, "empty");
        }
        close_bench(&b);
    }
}

int main(int argc, char ** argv) {
    struct test t = { 0 };
    if (argc > 1) {
        write_seeds(&t, argv[1]);
        return test_end(&t, "test-state-file, seeds");
    }
    for (int m = 0; m < STATE_N_MODELS; ++m) {
        struct bench b;
        if (open_bench(&b, &t, state_models[m])) {
            check_damage(&b, m == 0 ? 1 : 16);
            check_header(&b);
            check_length(&b, lrnn_model_get_info(b.model).n_layer_attention > 0
                                     ? "64"
                                     : "4611686018427387904");
            check_numbers(&b);
            check_again(&b);
            check_paths(&b);
        }
        close_bench(&b);
    }
    check_far(&t, "retnet", true); // RoPE
    check_far(&t, "xlstm", false);
    return test_end(&t, "test-state-file");
}
