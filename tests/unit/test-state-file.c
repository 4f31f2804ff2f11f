// State files whose checksum is right and whose contents are not: each is refused with a sentence
// that says what was found and what was expected, and sequence and sampler stay as they were.
// Damage that the checksum sees is test-session's business.
//
//     test-state-file              all
//     test-state-file DIRECTORY    writes seeds for the fuzz target there

#include "kit/check.h"
#include "kit/golden.h"
#include "kit/state-file-bytes.h"
#include "lrnn.h"
#include "run/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_TOKENS = 7, N_BEFORE = 3 };

static const int32_t tokens[N_TOKENS] = { 3, 1, 4, 1, 5, 9, 2 };

// A model with a session of two sequences; what is saved is sequence 0, what is loaded sequence 1.
struct bench {
    struct test *         t;
    struct lrnn_model *   model;
    struct lrnn_session * session;
    struct lrnn_sampler * sampler;
    char                  path[64];
    uint8_t *             file; // with logits and sampler
    size_t                size;
};

static struct lrnn_model * load_model(struct test * t, const char * name) {
    struct golden_list  list;
    struct lrnn_model * model = NULL;
    char                err[512];
    if (test_check(t, golden_list_load(&list, err, sizeof(err)), "%s", err)) {
        for (int i = 0; i < list.n; ++i) {
            if (strcmp(list.models[i].name, name) == 0) {
                model = lrnn_model_load(list.models[i].path, NULL, err, sizeof(err));
            }
        }
        golden_list_free(&list);
    }
    test_check(t, model != NULL, "%s cannot be loaded: %s", name, err);
    return model;
}

static uint8_t * slurp(const char * path, size_t * size) {
    FILE *    f    = fopen(path, "rb");
    uint8_t * data = NULL;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0) {
        *size = (size_t) ftell(f);
        data  = malloc(*size);
        rewind(f);
        if (data != NULL && fread(data, 1, *size, f) != *size) {
            free(data);
            data = NULL;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return data;
}

static bool spit(
        const char * path, const void * head, size_t head_size, const void * data, size_t size) {
    FILE * f  = fopen(path, "wb");
    bool   ok = f != NULL && fwrite(head, 1, head_size, f) == head_size &&
              fwrite(data, 1, size, f) == size;
    if (f != NULL) {
        ok = fclose(f) == 0 && ok;
    }
    return ok;
}

static bool eval(struct bench * b, int32_t seq, int64_t n, int64_t n_logits) {
    char                    err[512];
    const struct lrnn_input in = {
        .seq = seq, .tokens = tokens, .n_tokens = n, .n_logits = n_logits
    };
    return test_check(b->t, lrnn_eval(b->session, &in, 1, err, sizeof(err)), "%s", err);
}

static bool open_bench(struct bench * b, struct test * t, const char * name) {
    char err[512];
    *b = (struct bench) { .t = t, .model = load_model(t, name) };
    snprintf(b->path, sizeof(b->path), "test-state-file-%ld.state", (long) getpid());
    if (b->model == NULL) {
        return false;
    }
    const struct lrnn_session_params params = { .n_threads = 1, .n_seqs = 2, .n_cache = 64 };
    b->session                              = lrnn_session_new(b->model, &params, err, sizeof(err));
    b->sampler                              = lrnn_sampler_new(NULL, err, sizeof(err));
    if (!test_check(t, b->session != NULL && b->sampler != NULL, "%s: %s", name, err) ||
            !eval(b, 1, N_BEFORE, 0) || !eval(b, 0, N_TOKENS, 1)) {
        return false;
    }
    lrnn_sampler_sample(b->sampler, lrnn_logits(b->session, 0),
            lrnn_model_get_info(b->model).n_vocab, NULL, NULL, 0);
    if (!test_check(t, lrnn_seq_save(b->session, 0, b->sampler, b->path, err, sizeof(err)),
                "%s: %s", name, err)) {
        return false;
    }
    b->file = slurp(b->path, &b->size);
    return test_check(t, b->file != NULL, "%s cannot be read", b->path);
}

static void close_bench(struct bench * b) {
    lrnn_session_free(b->session);
    lrnn_sampler_free(b->sampler);
    lrnn_model_free(b->model);
    free(b->file);
    remove(b->path);
}

//
// Refusals
//

static void refused(struct bench * b, const uint8_t * file, size_t size, const char * sentence) {
    char                      err[512] = "";
    char                      want[512];
    const struct lrnn_sampler before = *b->sampler;
    snprintf(want, sizeof(want), "%s: %s", b->path, sentence);
    test_check(b->t, spit(b->path, "", 0, file, size), "%s cannot be written", b->path);
    const bool loaded = lrnn_seq_load(b->session, 1, b->sampler, b->path, err, sizeof(err));
    test_check(b->t, !loaded, "accepted, expected: %s", want);
    test_check(b->t, loaded || strcmp(err, want) == 0, "said: %s\n    expected: %s", err, want);
    test_check(b->t, lrnn_seq_length(b->session, 1) == N_BEFORE, "%s: the sequence has changed",
            sentence);
    test_check(b->t, memcmp(&before, b->sampler, sizeof(before)) == 0,
            "%s: the sampler has changed", sentence);
}

// The file with `size` other bytes at `at`, and its checksum put right.
static void refused_with(
        struct bench * b, size_t at, const void * bytes, size_t size, const char * sentence) {
    uint8_t * file = malloc(b->size);
    memcpy(file, b->file, b->size);
    memcpy(file + at, bytes, size);
    state_put_sum(file, b->size);
    refused(b, file, b->size, sentence);
    free(file);
}

static void refused_u32(struct bench * b, size_t at, uint32_t value, const char * sentence) {
    refused_with(b, at, &value, sizeof(value), sentence);
}

static void refused_i64(struct bench * b, size_t at, int64_t value, const char * sentence) {
    refused_with(b, at, &value, sizeof(value), sentence);
}

static void check_header(struct bench * b) {
    const struct lrnn_model_info info = lrnn_model_get_info(b->model);
    char                         sentence[256];
    refused(b, b->file, 39, "too short for an lrnn state file");
    refused_with(b, 0, "lrnn-seQ", 8, "not an lrnn state file");
    refused_u32(b, STATE_AT_VERSION, 0, "state file version is 0; expected 1");
    refused_u32(b, STATE_AT_VERSION, 2, "state file version is 2; expected 1");
    refused_u32(b, STATE_AT_VERSION, 1u << 24, "state file version is 16777216; expected 1");
    refused_u32(b, STATE_AT_HAS, 4, "the parts field is 0x4; expected 0 to 3");
    refused_u32(b, STATE_AT_HAS, UINT32_MAX, "the parts field is 0xffffffff; expected 0 to 3");
    snprintf(sentence, sizeof(sentence),
            "saved from another model: its identity is 0000000000000001; expected %016llx",
            (unsigned long long) info.identity);
    refused_i64(b, STATE_AT_IDENTITY, 1, sentence);

    // the size of what lies in the file follows from model and length; a number that says otherwise
    // allocates nothing
    const int64_t sizes[] = { 0, 1, INT64_MAX, -1 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        snprintf(sentence, sizeof(sentence), "the state has %llu bytes; expected %llu",
                (unsigned long long) sizes[i],
                (unsigned long long) (info.state_bytes + info.cache_bytes * N_TOKENS));
        refused_i64(b, STATE_AT_SIZE, sizes[i], sentence);
    }
    uint32_t has = 1;
    snprintf(sentence, sizeof(sentence), "the file has %zu bytes; expected %zu", b->size,
            b->size - STATE_SAMPLER_BYTES);
    refused_with(b, STATE_AT_HAS, &has, sizeof(has), sentence);
}

static void check_length(struct bench * b, const char * most) {
    const int64_t lengths[] = { -1, INT64_MIN, INT64_MAX, INT64_MAX - 1, (INT64_C(1) << 62) + 1 };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        char sentence[256];
        snprintf(sentence, sizeof(sentence), "the sequence has %lld tokens; expected 0 to %s",
                (long long) lengths[i], most);
        refused_i64(b, STATE_AT_LENGTH, lengths[i], sentence);
    }
}

static void check_numbers(struct bench * b) {
    const struct lrnn_model_info info = lrnn_model_get_info(b->model);
    const size_t   n_state            = (size_t) (info.state_bytes + info.cache_bytes * N_TOKENS);
    const size_t   logits             = STATE_AT_PIECES + n_state;
    const size_t   sampler            = logits + (size_t) info.n_vocab * sizeof(float);
    const uint32_t bits[] = { 0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000 }; // ± NaN, ± infinity
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); ++i) {
        refused_u32(b, STATE_AT_PIECES, bits[i], "the state is not finite");
        refused_u32(b, STATE_AT_PIECES + n_state / 8 * 4, bits[i], "the state is not finite");
        refused_u32(b, logits - 4, bits[i], "the state is not finite");
        refused_u32(b, logits, bits[i], "the logits are not finite");
        refused_u32(b, sampler - 4, bits[i], "the logits are not finite");
    }
    refused_i64(b, sampler + 16, -1,
            "the sampler has accepted -1 tokens; expected 0 to 4611686018427387904");
    refused_i64(b, sampler + 16, INT64_MAX,
            "the sampler has accepted 9223372036854775807 tokens; expected 0 to 4611686018427387904");
    refused_with(b, sampler, (const uint64_t[2]) { 0, 0 }, 16,
            "the random state of the sampler is zero");
}

//
// What is accepted
//

// The file loads, and saves as the same bytes; a file without logits leaves none behind that belong
// to what was there before.
static void check_again(struct bench * b) {
    char err[512];
    test_check(b->t,
            spit(b->path, "", 0, b->file, b->size) &&
                    lrnn_seq_load(b->session, 1, b->sampler, b->path, err, sizeof(err)),
            "%s", err);
    test_check(
            b->t, lrnn_seq_save(b->session, 1, b->sampler, b->path, err, sizeof(err)), "%s", err);
    size_t    size = 0;
    uint8_t * file = slurp(b->path, &size);
    test_check(b->t, file != NULL && size == b->size && memcmp(file, b->file, size) == 0,
            "loaded and saved, the file is another");
    free(file);

    size_t   bare_size = 0, again_size = 0;
    uint8_t *bare = NULL, *again = NULL;
    if (test_check(b->t, lrnn_seq_reset(b->session, 0, err, sizeof(err)), "%s", err) &&
            eval(b, 0, N_TOKENS, 0) &&
            test_check(b->t, lrnn_seq_save(b->session, 0, NULL, b->path, err, sizeof(err)), "%s",
                    err)) {
        bare = slurp(b->path, &bare_size);
        eval(b, 1, 2, 2); // logits of another sequence of the same name
        test_check(b->t, lrnn_seq_load(b->session, 1, NULL, b->path, err, sizeof(err)), "%s", err);
        test_check(b->t, lrnn_seq_save(b->session, 1, NULL, b->path, err, sizeof(err)), "%s", err);
        again = slurp(b->path, &again_size);
        test_check(b->t,
                again != NULL && bare != NULL && bare_size == again_size &&
                        memcmp(bare, again, bare_size) == 0,
                "a file without logits is saved again with %zu bytes, expected %zu", again_size,
                bare_size);
    }
    free(bare);
    free(again);
}

// What is not a file is not replaced by one.
static void check_paths(struct bench * b) {
    char        err[512] = "", want[512];
    struct stat st;
    test_check(b->t, !lrnn_seq_save(b->session, 0, NULL, ".", err, sizeof(err)),
            "a directory was overwritten");
    test_check(b->t, strcmp(err, ".: found a directory, expected a regular file or none") == 0,
            "said: %s", err);
    test_check(b->t, !lrnn_seq_save(b->session, 0, NULL, "no/such/folder", err, sizeof(err)),
            "a file in no folder was written");
    test_check(b->t,
            strcmp(err, "no/such/folder: cannot be written: No such file or directory") == 0,
            "said: %s", err);
    remove(b->path);
    if (test_check(b->t, mkfifo(b->path, 0600) == 0, "cannot make a pipe")) {
        snprintf(want, sizeof(want),
                "%s: found a device, pipe or socket, expected a regular file or none", b->path);
        test_check(b->t,
                !lrnn_seq_save(b->session, 0, NULL, b->path, err, sizeof(err)) &&
                        strcmp(err, want) == 0,
                "said: %s", err);
        test_check(b->t, stat(b->path, &st) == 0 && S_ISFIFO(st.st_mode),
                "a pipe was replaced by a file");
        remove(b->path);
    }
    test_check(b->t,
            !lrnn_seq_save(b->session, 0, NULL, "", err, sizeof(err)) &&
                    strcmp(err, "the name of the output file is empty") == 0,
            "said: %s", err);
    snprintf(want, sizeof(want), "%s: not a state file; expected a state file or a new file name",
            b->path);
    for (const char * text = "lrnn-sea"; *text != '\0'; ++text) { // and shorter ones
        size_t size = 0;
        test_check(b->t,
                spit(b->path, "", 0, text, strlen(text)) &&
                        !lrnn_seq_save(b->session, 0, NULL, b->path, err, sizeof(err)) &&
                        strcmp(err, want) == 0,
                "'%s' was to be kept, but: %s", text, err);
        uint8_t * file = slurp(b->path, &size);
        test_check(b->t, file != NULL && size == strlen(text) && memcmp(file, text, size) == 0,
                "'%s' was overwritten", text);
        free(file);
    }
}

// A position that 32 bits do not hold is refused where it is needed, and only there.
static void check_far(struct test * t, const char * name, bool has_positions) {
    struct bench  b;
    char          err[512] = "";
    const int64_t far      = INT32_MAX;
    if (open_bench(&b, t, name)) {
        memcpy(b.file + STATE_AT_LENGTH, &far, sizeof(far));
        state_put_sum(b.file, b.size);
        test_check(t,
                spit(b.path, "", 0, b.file, b.size) &&
                        lrnn_seq_load(b.session, 1, NULL, b.path, err, sizeof(err)),
                "%s: %s", name, err);
        const struct lrnn_input in   = { .seq = 1, .tokens = tokens, .n_tokens = 1, .n_logits = 1 };
        const bool              done = lrnn_eval(b.session, &in, 1, err, sizeof(err));
        test_check(t, done != has_positions, "%s: token 2^31 was %s: %s", name,
                done ? "accepted" : "refused", err);
        test_check(t,
                done || strcmp(err, "sequence 1 is too long: its positions have 32 bits") == 0,
                "%s: said: %s", name, err);
        test_check(t, lrnn_seq_length(b.session, 1) == far + done, "%s: another length", name);
    }
    close_bench(&b);
}

//
// Seeds
//

static void write_seeds(struct test * t, const char * folder) {
    for (int m = 0; m < STATE_N_MODELS; ++m) {
        struct bench b;
        if (open_bench(&b, t, state_models[m])) {
            char          path[4096], err[512];
            size_t        size = 0;
            const uint8_t head = (uint8_t) (m | STATE_PUT_IDENTITY | STATE_PUT_SUM);
            snprintf(path, sizeof(path), "%s/%s-whole", folder, state_models[m]);
            test_check(t, spit(path, &head, 1, b.file, b.size), "%s cannot be written", path);
            snprintf(path, sizeof(path), "%s/%s-bare", folder, state_models[m]);
            test_check(t,
                    eval(&b, 0, 1, 0) &&
                            lrnn_seq_save(b.session, 0, NULL, b.path, err, sizeof(err)),
                    "no state to save");
            uint8_t * file = slurp(b.path, &size);
            test_check(t, file != NULL && spit(path, &head, 1, file, size), "%s cannot be written",
                    path);
            free(file);
            snprintf(path, sizeof(path), "%s/%s-empty", folder, state_models[m]);
            test_check(t,
                    lrnn_seq_reset(b.session, 0, err, sizeof(err)) &&
                            lrnn_seq_save(b.session, 0, NULL, b.path, err, sizeof(err)),
                    "no state to save");
            file = slurp(b.path, &size);
            test_check(t, file != NULL && spit(path, &head, 1, file, size), "%s cannot be written",
                    path);
            free(file);
        }
        close_bench(&b);
    }
}

int main(int argc, char ** argv) {
    struct test t = { 0 };
    if (argc > 1) {
        write_seeds(&t, argv[1]);
        return test_end(&t, "state-file, seeds");
    }
    for (int m = 0; m < STATE_N_MODELS; ++m) {
        struct bench b;
        if (open_bench(&b, &t, state_models[m])) {
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
    return test_end(&t, "state-file");
}
