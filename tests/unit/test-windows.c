// Tests of windows. With every kind of tokenizer, windows contain the tokens of the documents and
// bytes add up to their sizes. Also: all modes, bos and eos, scored tokens, fingerprints.

#include "lrnn.h"
#include "log-softmax.h"
#include "eval/data/windows.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/rng.h"
#include "kit/tokenizer-data.h"
#include "model/model.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

static struct test        t;
static struct golden_list golden;
static char               folder[256], data_path[512];

//
// Models with the tokenizers of the fixtures, and data
//

static struct tokenizer_data fixture;
static char *                fixture_bytes;

// The weights do not matter here, so any model can have any tokenizer.
static struct lrnn_model * model_with(const char * kind) {
    char              path[1024];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    size_t            size = 0;
    snprintf(path, sizeof(path), "%s/%s.bin", LRNN_TOKENIZER_DATA, kind);
    fixture_bytes = (char *) test_read_file(path, &size);
    struct lrnn_model * model = lrnn_model_load(golden.models[0].path, NULL, &err);
    if (model == NULL || !tokenizer_data_read(&fixture, fixture_bytes, size) ||
            !tokenizer_new(&fixture.def, &model->tokenizer, &err)) {
        printf("FAILED: %s: %s\n", kind, err.text);
        exit(1);
    }
    model->info.has_tokenizer = true;
    model->info.bos = tokenizer_bos_id(model->tokenizer);
    model->info.eos = tokenizer_eos_id(model->tokenizer);
    model->info.add_bos = fixture.def.add_bos > 0;
    return model;
}

static void model_free(struct lrnn_model * model) {
    lrnn_model_free(model);
    tokenizer_data_free(&fixture);
    free(fixture_bytes);
}

struct doc {
    const char * text;
    size_t       size;
};

#define DOC(text) { text, sizeof(text) - 1 }

// Writes documents as JSON lines.
static void write_docs(const struct doc * docs, int n) {
    FILE * f = fopen(data_path, "wb");
    for (int i = 0; i < n && f != NULL; ++i) {
        fprintf(f, "{\"text\": \"");
        for (size_t j = 0; j < docs[i].size; ++j) {
            const unsigned char c = (unsigned char) docs[i].text[j];
            fprintf(f, c < 0x20 || c == '"' || c == '\\' ? "\\u%04x" : "%c", c);
        }
        fprintf(f, "\"}\n");
    }
    if (f == NULL || fclose(f) != 0) {
        printf("FAILED: %s: %s\n", data_path, strerror(errno));
        exit(1);
    }
}

static struct windows * make(
        const struct lrnn_model * model, struct window_params params, struct lrnn_error * err) {
    const char *     paths[] = { data_path };
    struct dataset * ds = dataset_open(
            &(struct dataset_params) { .paths = paths, .n_paths = 1, .text_field = "text" }, err);
    struct windows * ws =
            ds != NULL ? windows_make(ds, model, &params, folder, NULL, NULL, err) : NULL;
    dataset_free(ds);
    return ws;
}

static struct windows * must_make(const struct lrnn_model * model, struct window_params params) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    struct windows *  ws = make(model, params, &err);
    if (ws == NULL) {
        printf("FAILED: %s\n", err.text);
        exit(1);
    }
    return ws;
}

static struct window get(struct windows * ws, int64_t i) {
    struct window     w;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    if (!windows_read(ws, i, &w, &err)) {
        printf("FAILED: %s\n", err.text);
        exit(1);
    }
    return w;
}

//
// Bytes
//

// Checks that tokens and bytes of packed windows are those of the documents.
static void check_docs(
        const char * kind, const struct lrnn_model * model, const struct doc * docs, int n) {
    write_docs(docs, n);
    const struct window_params     params = { .bos = WINDOW_BOS_NONE, .length = 7 };
    struct windows *               ws = must_make(model, params);
    const struct windows_summary * s = windows_get_summary(ws);
    int64_t                        i_window = 0, in_window = 0;
    struct window                  w = get(ws, 0);
    int64_t                        total = 0, n_windows = s->n_windows, n_seen = 0;
    for (int d = 0; d < n; ++d) {
        int32_t *         ids;
        int64_t           n_ids, sum = 0;
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };
        test_check(&t, lrnn_tokenize(model, docs[d].text, docs[d].size, 0, &ids, &n_ids, &err),
                "%s", err.text);
        bool same = true;
        for (int64_t i = 0; i < n_ids; ++i, ++total) {
            if (in_window == w.n_tokens) {
                window_free(&w);
                in_window = 0;
                if (++i_window >= n_windows) { // the incomplete last window is dropped
                    break;
                }
                w = get(ws, i_window);
            }
            if (in_window == 0 || i == 0) { // a span begins here
                const struct window_span * span = NULL;
                for (int32_t j = 0; j < w.n_spans; ++j) {
                    span = w.spans[j].first == in_window ? &w.spans[j] : span;
                }
                same = same && span != NULL && span->document == d && span->byte == sum &&
                       span->file == 0;
            }
            same = same && w.tokens[in_window] == ids[i];
            sum += w.bytes[in_window];
            in_window++;
            n_seen++;
        }
        if (i_window < n_windows || n_seen == total) {
            test_check(&t, same, "%s: document %d: wrong tokens or spans", kind, d);
            test_check(&t, n_ids == 0 || i_window >= n_windows || sum == (int64_t) docs[d].size,
                    "%s: document %d: bytes add up to %" PRId64 ", expected %zu", kind, d, sum,
                    docs[d].size);
        }
        free(ids);
        if (i_window >= n_windows) {
            break;
        }
    }
    window_free(&w);
    windows_free(ws);
}

static void test_bytes(void) {
    static const char * const kinds[] = { "spm", "gpt-2", "gpt-neox", "llama-bpe", "qwen2",
        "qwen35", "kimi-k2", "rwkv", "bytes", "symbols" };
    static const struct doc   hard[] = {
        DOC(" leading"),
        DOC(""),
        DOC("  two"),
        DOC("a\xE2\x96\x81"
                "b \xE2\x96\x81 c"), // U+2581 is a space to SentencePiece
        DOC("\xE2\x96\x81"),
        // decomposed characters and the ohm sign: NFC makes them shorter
        DOC("cafe\xCC\x81 \xE2\x84\xA6 e\xCC\x81"),
        DOC("\xE0\xA5\x98\xE0\xA5\x99 x"), // NFC makes these longer
        DOC("\xF0\x9F\x98\x80\xE4\xBD\xA0\xE5\xA5\xBD"),
        DOC("line\n\n\ttab\r\n"),
        DOC("\xED\x95\x9C"
                "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB!"), // a syllable, composed and decomposed
        DOC("the end of it, plain and simple"),
    };
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); ++k) {
        struct lrnn_model * model = model_with(kinds[k]);
        const bool          symbols = strcmp(kinds[k], "symbols") == 0;
        struct doc *        docs =
                malloc((fixture.n_cases + sizeof(hard) / sizeof(hard[0])) * sizeof(*docs));
        int n = 0;
        for (size_t i = 0; i < fixture.n_cases && docs != NULL; ++i) {
            const struct tokenizer_case * c = &fixture.cases[i];
            bool                          control;
            if (!c->refused && c->flags == 0 && c->n_ids > 0 && slice_is_utf8(c->text, &control)) {
                docs[n++] = (struct doc) { c->text.data, c->text.size };
            }
        }
        for (size_t i = 0; i < sizeof(hard) / sizeof(hard[0]) && !symbols && docs != NULL; ++i) {
            docs[n++] = hard[i];
        }
        if (docs != NULL) {
            check_docs(kinds[k], model, docs, n);
        }
        free(docs);
        model_free(model);
    }
}

// Cases in which it matters which token gets a byte.
static void test_bytes_by_hand(void) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    size_t              bytes[8];
    int32_t *           ids;
    int64_t             n;
    struct lrnn_model * model = model_with("gpt-neox");
    // decomposed é: three bytes of text, two bytes after normalization
    const char * text = "e\xCC\x81";
    const bool   ok = lrnn_tokenize(model, text, 3, 0, &ids, &n, &err) && n <= 8 &&
                    lrnn_token_spans(model, text, 3, ids, n, bytes, &err);
    int sum = 0, decoded = 0;
    for (int64_t i = 0; i < n && ok; ++i) {
        sum += (int) bytes[i];
        decoded += (int) tokenizer_token_bytes(model->tokenizer, ids[i]).size;
    }
    test_check(&t, ok && sum == 3 && decoded == 2, "NFC: %d bytes of text, %d of tokens: %s", sum,
            decoded, err.text);
    // tokens of another text are an error
    test_check(&t,
            !lrnn_token_spans(model, "something else", 14, ids, n, bytes, &err) &&
                    strstr(err.text, "14") != NULL,
            "%s", err.text);
    free(ids);
    model_free(model);

    // " a" becomes "  a", which is " " and " a": the first is the space added by SentencePiece
    model = model_with("spm");
    test_check(&t,
            lrnn_tokenize(model, " a", 2, 0, &ids, &n, &err) && n == 2 &&
                    lrnn_token_spans(model, " a", 2, ids, n, bytes, &err) && bytes[0] == 0 &&
                    bytes[1] == 2,
            "the added space: %s", err.text);
    free(ids);
    model_free(model);
}

//
// Cutting, with bytes as tokens
//

enum { BOS = 256, EOS = 257 };

static struct lrnn_model * byte_model(void) {
    struct lrnn_model * model = model_with("bytes");
    model->info.bos = BOS; // ids after the bytes are special
    model->info.eos = EOS;
    return model;
}

static const struct doc ABC[] = { DOC("abcde"), DOC("fg"), DOC("hijklmnop") };

// The windows as text: ^ is the bos, $ the eos; windows are separated by spaces.
static const char * shown(struct windows * ws, char * out) {
    size_t n = 0;
    for (int64_t i = 0; i < windows_get_summary(ws)->n_windows; ++i) {
        struct window w = get(ws, i);
        n += (size_t) sprintf(out + n, "%s", i > 0 ? " " : "");
        for (int64_t j = 0; j < w.n_tokens; ++j) {
            out[n++] = w.tokens[j] == BOS ? '^' : w.tokens[j] == EOS ? '$' : (char) w.tokens[j];
        }
        out[n] = '\0';
        window_free(&w);
    }
    return out;
}

static void expect(
        const struct lrnn_model * model, struct window_params params, const char * expected) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    char              out[256] = "";
    struct windows *  ws = make(model, params, &err);
    test_check(&t, ws != NULL && strcmp(shown(ws, out), expected) == 0,
            "windows are '%s', expected '%s': %s", out, expected, err.text);
    windows_free(ws);
}

static void test_cuts(void) {
    struct lrnn_model * model = byte_model();
    write_docs(ABC, 3);
    const enum window_mode packed = WINDOW_PACKED, document = WINDOW_DOCUMENT, llama = WINDOW_LLAMA;

    expect(model, (struct window_params) { .mode = packed, .bos = WINDOW_BOS_AUTO, .length = 5 },
            "abcde fghij klmno");
    expect(model, (struct window_params) { .mode = packed, .bos = WINDOW_BOS_DOC, .length = 5 },
            "^abcd e^fg^ hijkl");
    expect(model, (struct window_params) { .mode = packed, .bos = WINDOW_BOS_WINDOW, .length = 5 },
            "^abcd ^efgh ^ijkl ^mnop");
    expect(model,
            (struct window_params) {
                    .mode = packed, .bos = WINDOW_BOS_NONE, .eos = WINDOW_EOS_DOC, .length = 6 },
            "abcde$ fg$hij klmnop");
    expect(model,
            (struct window_params) {
                    .mode = packed, .bos = WINDOW_BOS_DOC, .eos = WINDOW_EOS_DOC, .length = 11 },
            "^abcde$^fg$ ^hijklmnop$");
    model->info.add_bos = true; // auto follows the tokenizer
    expect(model, (struct window_params) { .mode = packed, .length = 5 }, "^abcd e^fg^ hijkl");
    expect(model, (struct window_params) { .mode = packed, .length = 5, .max_windows = 2 },
            "^abcd e^fg^");
    expect(model, (struct window_params) { .mode = packed, .length = 5, .max_tokens = 14 },
            "^abcd e^fg^");

    expect(model, (struct window_params) { .mode = document, .length = 5 }, "^abcd ^hijk");
    expect(model, (struct window_params) { .mode = document, .length = 5, .min_doc_tokens = 2 },
            "^abcd ^fg ^hijk");
    expect(model, (struct window_params) { .mode = document, .length = 20, .min_doc_tokens = 4 },
            "^abcde ^hijklmnop");
    expect(model, (struct window_params) { .mode = document, .bos = WINDOW_BOS_NONE, .length = 4 },
            "abcd hijk");
    expect(model,
            (struct window_params) { .mode = document,
                    .bos = WINDOW_BOS_WINDOW,
                    .eos = WINDOW_EOS_DOC,
                    .length = 7 },
            "^abcde$ ^hijklm");
    expect(model, (struct window_params) { .mode = document, .length = 5, .max_windows = 1 },
            "^abcd");

    // llama: a bos before the text, and instead of the first token of each window
    expect(model, (struct window_params) { .mode = llama, .length = 6 }, "^abcde ^ghijk");
    model->info.add_bos = false;
    expect(model, (struct window_params) { .mode = llama, .length = 6 }, "abcdef ghijkl");

    struct lrnn_error err;
    test_check(&t,
            make(model, (struct window_params) { .length = 17 }, &err) == NULL &&
                    strstr(err.text, "16 tokens") != NULL,
            "%s", err.text);
    test_check(&t,
            make(model, (struct window_params) { .mode = document, .length = 10 }, &err) == NULL &&
                    strstr(err.text, "too short") != NULL,
            "%s", err.text);
    test_check(&t, make(model, (struct window_params) { .length = 1 }, &err) == NULL,
            "windows of one token");
    model->info.bos = -1;
    test_check(&t,
            make(model, (struct window_params) { .length = 5, .bos = WINDOW_BOS_DOC }, &err) ==
                            NULL &&
                    strstr(err.text, "bos is 'doc'") != NULL,
            "%s", err.text);
    model_free(model);
}

static void test_scored(void) {
    struct lrnn_model * model = byte_model();
    write_docs(ABC, 3);
    // packed, bos before documents: e^fg^
    for (int skip = 0; skip < 2; ++skip) {
        struct windows * ws = must_make(
                model, (struct window_params) {
                               .bos = WINDOW_BOS_DOC, .length = 5, .skip_special = skip == 1 });
        struct window         w = get(ws, 1);
        static const uint8_t  scored[2][5] = { { 0, 1, 1, 1, 1 }, { 0, 0, 1, 1, 0 } };
        static const uint16_t bytes[5] = { 1, 0, 1, 1, 0 };
        test_check(&t, memcmp(w.scored, scored[skip], 5) == 0, "scored tokens, special tokens %s",
                skip ? "excluded" : "included");
        test_check(&t, memcmp(w.bytes, bytes, sizeof(bytes)) == 0, "bytes");
        test_check(&t,
                w.n_spans == 3 && w.spans[0].first == 0 && w.spans[0].document == 0 &&
                        w.spans[0].byte == 4 && w.spans[1].first == 1 && w.spans[1].document == 1 &&
                        w.spans[1].byte == 0 && w.spans[2].first == 4 && w.spans[2].document == 2,
                "spans");
        const struct windows_summary * s = windows_get_summary(ws);
        // ^abcd e^fg^ hijkl: four targets each, of 1 byte but for two bos
        test_check(&t,
                s->n_targets == (skip ? 10 : 12) && s->n_bytes == 10 && s->n_tokens == 15 &&
                        s->stream_tokens == 19 && s->stream_bytes == 16,
                "summary: %" PRId64 " targets, %" PRId64 " bytes", s->n_targets, s->n_bytes);
        test_check(&t,
                strcmp(s->bos, "doc") == 0 && strcmp(s->files, strrchr(data_path, '/') + 1) == 0 &&
                        s->sources[0] == '\0',
                "names");
        window_free(&w);
        windows_free(ws);
    }
    // the second half: targets 4 and 5 of a window of 6, n − 1 − n/2 of them
    struct windows * ws = must_make(model,
            (struct window_params) { .mode = WINDOW_LLAMA, .bos = WINDOW_BOS_DOC, .length = 6 });
    struct window    w = get(ws, 1);
    test_check(&t,
            memcmp(w.scored, (uint8_t[]) { 0, 0, 0, 0, 1, 1 }, 6) == 0 && w.tokens[0] == BOS &&
                    w.bytes[0] == 0,
            "llama: the second half");
    window_free(&w);
    windows_free(ws);
    model_free(model);
}

// The fingerprint covers the documents read, and reading stops when there are enough windows.
static void test_fingerprint(void) {
    struct lrnn_model * model = byte_model();
    char                all[65], two[65];
    write_docs(ABC, 3);
    struct windows * ws = must_make(model, (struct window_params) { .length = 5 });
    memcpy(all, windows_get_summary(ws)->fingerprint, 65);
    windows_free(ws);
    ws = must_make(model, (struct window_params) { .length = 7, .max_windows = 1 });
    memcpy(two, windows_get_summary(ws)->fingerprint, 65);
    test_check(&t, windows_get_summary(ws)->counts.documents == 2,
            "documents read for one window of 7");
    windows_free(ws);
    write_docs(ABC, 2);
    ws = must_make(model, (struct window_params) { .length = 5 });
    test_check(&t, strcmp(two, windows_get_summary(ws)->fingerprint) == 0 && strcmp(all, two) != 0,
            "fingerprint of two documents");
    windows_free(ws);
    model_free(model);
}

// The same targets after contexts of different lengths.
static void test_same_targets(void) {
    enum { N = 2 * (WINDOW_SAME_TARGETS + 100) + 50 };
    struct lrnn_model * model = byte_model();
    char *              text = malloc(N);
    for (int i = 0; i < N && text != NULL; ++i) {
        text[i] = (char) ('a' + i % 23);
    }
    write_docs((struct doc[]) { { text, 30 }, { text, N - 30 } }, 2);
    const struct window_params params = { .bos = WINDOW_BOS_NONE,
        .length = WINDOW_SAME_TARGETS + 100,
        .n_contexts = 3,
        .contexts = { 1, 64, 100 } };
    struct windows *           ws = must_make(model, params);
    test_check(&t,
            windows_get_summary(ws)->n_windows == 6 &&
                    windows_get_summary(ws)->n_targets == 6 * WINDOW_SAME_TARGETS,
            "number of windows and targets");
    for (int64_t stretch = 0; stretch < 2; ++stretch) {
        struct window longest = get(ws, stretch * 3 + 2);
        for (int k = 0; k < 3; ++k) {
            struct window w = get(ws, stretch * 3 + k);
            const int64_t context = params.contexts[k];
            int64_t       n_scored = 0;
            for (int64_t i = 0; i < w.n_tokens; ++i) {
                n_scored += w.scored[i];
            }
            test_check(&t,
                    w.n_tokens == context + WINDOW_SAME_TARGETS &&
                            n_scored == WINDOW_SAME_TARGETS && w.scored[context] == 1 &&
                            memcmp(w.tokens, longest.tokens + 100 - context,
                                    (size_t) w.n_tokens * sizeof(*w.tokens)) == 0,
                    "context %" PRId64, context);
            // a document ends 30 tokens into the first stretch; short contexts begin after it
            const int64_t at = stretch * (WINDOW_SAME_TARGETS + 100) + 100 - context;
            const int     whole = context == 100; // not shortened: the first target has a span
            test_check(&t,
                    w.spans[0].first == 0 && w.spans[0].byte == (at < 30 ? at : at - 30) &&
                            w.spans[0].document == (at < 30 ? 0 : 1) &&
                            w.n_spans == whole + (at < 30 ? 2 : 1) &&
                            (at >= 30 || w.spans[w.n_spans - 1].first == 30 - at),
                    "spans of context %" PRId64, context);
            test_check(&t,
                    !whole || (w.spans[1].first == 1 && w.spans[1].byte == w.spans[0].byte + 1),
                    "the span of the first target");
            window_free(&w);
        }
        window_free(&longest);
    }
    windows_free(ws);
    struct lrnn_error    err;
    struct window_params too_long = params;
    too_long.contexts[1] = 101;
    test_check(&t, make(model, too_long, &err) == NULL && strstr(err.text, "101") != NULL, "%s",
            err.text);
    free(text);
    model_free(model);
}

// −ln softmax, compared with a loop in double precision.
static void test_nll(void) {
    static const int64_t sizes[] = { 1, 2, 15, 16, 17, 48, 1000, 50277 };
    struct test_rng      rng = { 7 };
    struct test_worst    worst = { .what = "error of -ln p, relative to 1 + -ln p", .limit = 2e-7 };
    float *              z = malloc(50277 * sizeof(*z));
    for (size_t i = 0; i < 8 && z != NULL; ++i) {
        for (int scale = 0; scale < 4; ++scale) {
            const int64_t n = sizes[i];
            int64_t       best = 0;
            double        max = -INFINITY, sum = 0.0;
            for (int64_t v = 0; v < n; ++v) {
                z[v] = (float) (test_normal(&rng) * pow(10.0, scale - 1) + 3.0);
                best = z[v] > z[best] ? v : best;
            }
            max = (double) z[best];
            for (int64_t v = 0; v < n; ++v) {
                sum += exp((double) z[v] - max);
            }
            for (int trial = 0; trial < 20; ++trial) {
                const int32_t    target = (int32_t) (trial == 0 ? best : test_below(&rng, n));
                const double     exact = log(sum) + max - (double) z[target];
                const struct nll nll = nll_of(z, n, target);
                test_bound(&t, &worst, fabs((double) nll.nats - exact) / (1.0 + exact),
                        "random logits");
                test_check(&t, nll.top1 == (target == best), "top-1 of %" PRId64, n);
            }
        }
    }
    test_worst_print(&worst);
    for (int v = 0; v < 40 && z != NULL; ++v) {
        z[v] = 2.5f;
    }
    test_check(&t,
            nll_of(z, 40, 0).top1 && !nll_of(z, 40, 7).top1 &&
                    nll_of(z, 40, 7).nats == (float) log(40.0),
            "equal logits: the first one is the top");
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    for (int k = 0; k < 3 && z != NULL; ++k) {
        for (int at = 0; at < 40; at += 13) {
            z[at] = odd[k];
            test_check(&t, isnan(nll_of(z, 40, 5).nats) && !nll_of(z, 40, 5).top1,
                    "%f among the logits", (double) odd[k]);
            z[at] = 2.5f;
        }
    }
    free(z);
}

int main(void) {
    golden_list_load(&golden);
    snprintf(folder, sizeof(folder), "%s/lrnn-windows.XXXXXX",
            getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(folder) == NULL) {
        printf("FAILED: cannot create a folder: %s\n", strerror(errno));
        return 1;
    }
    snprintf(data_path, sizeof(data_path), "%s/data.jsonl", folder);
    test_bytes();
    test_bytes_by_hand();
    test_cuts();
    test_scored();
    test_fingerprint();
    test_same_targets();
    test_nll();
    unlink(data_path);
    test_check(&t, rmdir(folder) == 0, "%s: not empty", folder);
    golden_list_free(&golden);
    return test_end(&t, "windows");
}
