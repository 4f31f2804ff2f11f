// Tokenizers against the ids of the reference libraries.
//
//     test-tokenizer               checks the files in tests/data/tokenizer
//     test-tokenizer FILE.bin...   checks other files; tokenizer-data.h describes the format
//     test-tokenizer DIRECTORY     writes seeds for the fuzzer

#include "lrnn.h"
#include "base/read-file.h"
#include "base/unicode.h"
#include "kit/check.h"
#include "kit/rng.h"
#include "kit/tokenizer-data.h"

#include <inttypes.h>
#include <time.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); // not disturbed by other processes
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

//
// Ids
//

// The text that the decoder must return: the text as the tokenizer normalizes it.
static void expected_text(
        const struct tokenizer_def * def, struct slice text, struct buffer * out) {
    struct buffer valid = { 0 };
    if (strcmp(def->model, "llama") == 0) {
        utf8_replace(text.data, text.size, true, &valid);
        for (size_t i = 0; i < valid.n;) { // SentencePiece writes a space as U+2581
            const bool mark = valid.n - i >= 3 && memcmp(valid.data + i, "\xE2\x96\x81", 3) == 0;
            buffer_append(out, mark ? " " : valid.data + i, 1);
            i += mark ? 3 : 1;
        }
    } else if (strcmp(def->model, "gpt2") == 0) {
        utf8_replace(text.data, text.size, false, &valid);
        if (def->normalizer != NULL) {
            nfc_normalize(valid.data, valid.n, out);
        } else {
            buffer_append(out, valid.data, valid.n);
        }
    } else {
        buffer_append(out, text.data, text.size);
    }
    buffer_free(&valid);
}

// The decoder returns the text. If the text is UTF-8, every piece of output ends after a character.
static void check_decoder(struct test * t, const char * name, size_t i,
        const struct tokenizer * tok, const struct tokenizer_def * def,
        const struct tokenizer_case * c, const struct token_ids * ids) {
    struct buffer want = { 0 }, got = { 0 };
    expected_text(def, c->text, &want);
    const bool is_utf8 = utf8_valid(want.data, want.n) == want.n;

    struct lrnn_decoder * d = decoder_new(tok, false);
    bool                  whole = true;
    for (size_t k = 0; k < ids->n; ++k) {
        const struct slice s = decode(d, ids->data[k]);
        whole = whole && (!is_utf8 || utf8_valid(s.data, s.size) == s.size);
        buffer_append(&got, s.data, s.size);
    }
    const struct slice s = decode_end(d);
    buffer_append(&got, s.data, s.size);
    lrnn_decoder_free(d);

    test_check(t, whole, "%s: case %zu: a piece of the output ends inside a character", name, i);
    test_check(t, got.n == want.n && (got.n == 0 || memcmp(got.data, want.data, got.n) == 0),
            "%s: case %zu: %zu bytes came back as %zu different ones", name, i, want.n, got.n);
    buffer_free(&want);
    buffer_free(&got);
}

static void check_case(struct test * t, const char * name, size_t i, const struct tokenizer * tok,
        const struct tokenizer_data * data) {
    const struct tokenizer_case * c = &data->cases[i];
    struct token_ids              ids = { 0 };
    struct lrnn_error             err = { LRNN_ERROR_NONE, "" };

    const bool ok = tokenizer_encode(tok, c->text.data, c->text.size, c->flags, &ids, &err);
    test_check(t, ok != c->refused && (ok || err.text[0] != '\0'), "%s: case %zu: %s", name, i,
            ok ? "accepted" : err.text);
    if (ok && !c->refused) {
        size_t same = 0;
        while (same < ids.n && same < c->n_ids && ids.data[same] == c->ids[same]) {
            same++;
        }
        test_check(t, same == ids.n && same == c->n_ids,
                "%s: case %zu, flags %u, %zu bytes: "
                "%zu ids, expected %zu; id %zu is %d, expected %d",
                name, i, c->flags, c->text.size, ids.n, c->n_ids, same,
                same < ids.n ? (int) ids.data[same] : -1,
                same < c->n_ids ? (int) c->ids[same] : -1);
        // symbols come back with other white space
        if (c->flags == 0 && strcmp(data->def.model, "lrnn-symbols") != 0) {
            check_decoder(t, name, i, tok, &data->def, c, &ids);
        }
    }
    token_ids_free(&ids);
}

//
// Time
//

// Every text takes O(n log n) time: 16 times the text takes less than 40 times as long, and one
// megabyte less than ten seconds, even on a slow machine with sanitizers.
static void check_time(struct test * t, const char * name, const struct tokenizer * tok) {
    enum { MEGABYTE = 1 << 20 };
    static const char * const patterns[] = { "a", " ", "ab", "a ", "\xCC\x81", "\n", "1", "'",
        "<|endoftext|", "\xF0\x9F\x98\x80" };

    double worst = 0.0;
    char * text = malloc(MEGABYTE);
    for (size_t i = 0; i <= sizeof(patterns) / sizeof(patterns[0]); ++i) {
        struct test_rng r = { 7 };
        for (size_t k = 0; k < MEGABYTE; ++k) {
            text[k] = i > 0 ? patterns[i - 1][k % strlen(patterns[i - 1])] : (char) test_next(&r);
        }
        double time[2];
        for (int k = 0; k < 2; ++k) {
            struct token_ids  ids = { 0 };
            struct lrnn_error err;
            const double      start = seconds();
            test_check(t,
                    tokenizer_encode(tok, text, k == 0 ? MEGABYTE / 16 : MEGABYTE,
                            LRNN_TOKENIZE_PARSE_SPECIAL, &ids, &err),
                    "%s: %s", name, err.text);
            time[k] = seconds() - start;
            token_ids_free(&ids);
        }
        test_check(t, time[1] < 10.0 && (time[1] < 0.2 || time[1] < 40 * time[0]),
                "%s: pattern %zu: %.3f s for 64 kB, %.3f s for 1 MB", name, i, time[0], time[1]);
        worst = time[1] > worst ? time[1] : worst;
    }
    free(text);
    printf("%s: slowest megabyte %.3f s\n", name, worst);
}

static void check_file(struct test * t, const char * path) {
    size_t                size;
    char *                file;
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    struct tokenizer_data data;
    if (!test_check(t,
                read_file(path, &file, &size, &err) && tokenizer_data_read(&data, file, size),
                "%s: cannot be read: %s", path, err.text)) {
        free(file);
        return;
    }
    const char * name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;

    struct tokenizer * tok;
    double             start = seconds();
    if (test_check(t, tokenizer_new(&data.def, &tok, &err), "%s: %s", name, err.text)) {
        const double load = seconds() - start;
        size_t       n = 0;
        start = seconds();
        for (size_t i = 0; i < data.n_cases; ++i) {
            check_case(t, name, i, tok, &data);
            n += data.cases[i].text.size;
        }
        printf("%s: %d tokens loaded in %.3f s; "
               "%zu texts, %zu bytes encoded and decoded in %.3f s\n",
                name, (int) tokenizer_n_tokens(tok), load, data.n_cases, n, seconds() - start);
        if (strcmp(data.def.model, "lrnn-symbols") != 0) {
            check_time(t, name, tok);
        }
    }
    tokenizer_free(tok);
    tokenizer_data_free(&data);
    free(file);
}

//
// Seeds: the definitions with their first texts
//

static bool write_seed(const char * path, const char * name, const char * directory) {
    enum { N_CASES = 16 };
    size_t                size;
    char *                file;
    struct lrnn_error     err;
    struct tokenizer_data data;
    bool ok = read_file(path, &file, &size, &err) && tokenizer_data_read(&data, file, size);
    if (ok && data.n_cases >= N_CASES) {
        char out[4096];
        snprintf(out, sizeof(out), "%s/%s", directory, name);
        // after the count of cases, a varint
        const size_t  start = data.def_size + (data.n_cases < 128 ? 1 : 2);
        const uint8_t count = N_CASES;
        FILE *        f = fopen(out, "wb");
        ok = f != NULL && fwrite(file, 1, data.def_size, f) == data.def_size &&
             fwrite(&count, 1, 1, f) == 1 &&
             fwrite(file + start, 1, data.cases[N_CASES - 1].end - start, f) ==
                     data.cases[N_CASES - 1].end - start;
        ok = f != NULL && fclose(f) == 0 && ok;
        tokenizer_data_free(&data);
    }
    free(file);
    return ok;
}

int main(int argc, char ** argv) {
    static const char * const files[] = { "spm", "gpt-2", "gpt-neox", "llama-bpe", "qwen2",
        "qwen35", "kimi-k2", "rwkv", "bytes", "symbols" };

    struct test t = { 0 };
    const bool  seeds = argc == 2 &&
                       (strlen(argv[1]) < 4 || strcmp(argv[1] + strlen(argv[1]) - 4, ".bin") != 0);
    for (int i = 1; !seeds && i < argc; ++i) {
        check_file(&t, argv[i]);
    }
    for (size_t i = 0; (seeds || argc == 1) && i < sizeof(files) / sizeof(files[0]); ++i) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s.bin", LRNN_TOKENIZER_DATA, files[i]);
        if (seeds) {
            test_check(&t, write_seed(path, files[i], argv[1]), "%s: no seed was written", path);
        } else {
            check_file(&t, path);
        }
    }
    return test_end(&t, "test-tokenizer");
}
