#include "eval/data/windows.h"

#include "base/error.h"
#include "memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

//
// A set of strings, joined by tabs: the files and sources of a run
//

struct string_set { // starts as { 0 }
    char *  text;   // NULL: empty
    size_t  size, capacity;
    int32_t n;
    int32_t last; // index of the last result: documents of a file come in a row
    size_t  last_at;
};

static char stored(char c) {
    return c == '\t' ? ' ' : c;
}

// Is the name stored at offset `at`? *length: of the name stored there.
static bool is_at(const struct string_set * set, size_t at, const char * name, size_t * length) {
    const char * p = set->text + at;
    const char * end = memchr(p, '\t', set->size - at);
    *length = end != NULL ? (size_t) (end - p) : set->size - at;
    bool same = *length == strlen(name);
    for (size_t i = 0; i < *length && same; ++i) {
        same = p[i] == stored(name[i]);
    }
    return same;
}

// Returns the index of a name, which is added if it is new. Tabs in it become spaces.
static int32_t string_set_find(struct string_set * set, const char * name) {
    size_t length;
    if (set->n > 0 && is_at(set, set->last_at, name, &length)) {
        return set->last;
    }
    size_t at = 0;
    for (int32_t i = 0; i < set->n; ++i, at += length + 1) {
        if (is_at(set, at, name, &length)) {
            set->last = i;
            set->last_at = at;
            return i;
        }
    }
    program_grow(&set->text, &set->capacity, set->size + strlen(name) + 2, 1);
    if (set->n > 0) {
        set->text[set->size++] = '\t';
    }
    set->last = set->n++;
    set->last_at = set->size;
    for (; *name != '\0'; ++name) {
        set->text[set->size++] = stored(*name);
    }
    set->text[set->size] = '\0';
    return set->last;
}

//
// Windows
//

struct windows {
    struct window_params      params;
    bool                      bos_doc, bos_window;
    int32_t                   bos, eos;
    const struct lrnn_model * model;

    FILE *    file;    // holds the windows
    int64_t * offsets; // of each in the file
    int64_t   n;
    size_t    capacity;

    // the current window
    int64_t              n_tokens;
    int32_t *            tokens; // [W]
    uint16_t *           bytes;
    uint8_t *            scored;
    struct window_span * spans;
    int64_t              n_spans;
    size_t               cap_spans;

    struct string_set files, sources;
    char * template;
    char *                 complaints;
    struct windows_summary summary;
};

// Precedes a window in the file.
struct window_header {
    int64_t n_tokens, n_spans;
};

static bool cannot_keep(struct lrnn_error * err) {
    return error_system(err, "cannot write the temporary file of windows");
}

//
// Making
//

// True if max_windows or max_tokens forbids another window of n tokens.
static bool is_full(const struct windows * ws, int64_t n) {
    return (ws->params.max_windows > 0 && ws->n >= ws->params.max_windows) ||
           (ws->params.max_tokens > 0 && ws->summary.n_tokens + n > ws->params.max_tokens);
}

// Appends the current window to the file.
static bool flush(struct windows * ws, struct lrnn_error * err) {
    const size_t               n = (size_t) ws->n_tokens;
    const size_t               n_spans = (size_t) ws->n_spans;
    const struct window_header header = { ws->n_tokens, ws->n_spans };

    if (ws->params.mode == WINDOW_LLAMA && (ws->bos_doc || ws->bos_window)) {
        ws->tokens[0] = ws->bos;
        ws->bytes[0] = 0;
    }
    for (int64_t t = 0; t < ws->n_tokens; ++t) {
        const bool in_range = ws->params.mode == WINDOW_LLAMA ? t > ws->params.length / 2 : t > 0;
        ws->scored[t] = in_range && !(ws->params.skip_special &&
                                            lrnn_token_is_special(ws->model, ws->tokens[t]));
        ws->summary.n_targets += ws->scored[t];
        ws->summary.n_bytes += ws->scored[t] ? ws->bytes[t] : 0;
    }
    program_grow(&ws->offsets, &ws->capacity, (size_t) ws->n + 1, sizeof(*ws->offsets));
    ws->offsets[ws->n] = ftello(ws->file);
    if (fwrite(&header, sizeof(header), 1, ws->file) != 1 ||
            fwrite(ws->spans, sizeof(*ws->spans), n_spans, ws->file) != n_spans ||
            fwrite(ws->tokens, sizeof(*ws->tokens), n, ws->file) != n ||
            fwrite(ws->bytes, sizeof(*ws->bytes), n, ws->file) != n ||
            fwrite(ws->scored, sizeof(*ws->scored), n, ws->file) != n) {
        return cannot_keep(err);
    }
    ws->n++;
    ws->summary.n_windows = ws->n;
    ws->summary.n_tokens += ws->n_tokens;
    ws->n_tokens = 0;
    ws->n_spans = 0;
    return true;
}

// Appends a token to the current window. A new window gets a span at its first token and another
// one at its first target, because scores begin there and readers need its byte.
// - starts: the token begins a document
// - at: position of the token in its document
static bool push(struct windows * ws, int32_t token, uint16_t bytes, bool starts,
        const struct window_span * at, struct lrnn_error * err) {
    if (ws->n_tokens <= 1 || starts) {
        program_grow(&ws->spans, &ws->cap_spans, (size_t) ws->n_spans + 1, sizeof(*ws->spans));
        ws->spans[ws->n_spans] = *at;
        ws->spans[ws->n_spans++].first = ws->n_tokens;
        if (ws->n_tokens == 0 && ws->bos_window && ws->params.mode != WINDOW_LLAMA) {
            ws->tokens[0] = ws->bos;
            ws->bytes[0] = 0;
            ws->n_tokens = 1;
        }
    }
    ws->tokens[ws->n_tokens] = token;
    ws->bytes[ws->n_tokens] = bytes;
    ws->n_tokens++;
    return ws->n_tokens < ws->params.length || flush(ws, err);
}

// A tokenized document. With bos and eos, its tokens are −1 … n.
struct encoded {
    int32_t *  tokens;
    uint16_t * bytes;
    int64_t    n;
    bool       bos, eos;
};

// Fills the bytes of each token, which a score file stores in 16 bits.
static bool cover(const struct lrnn_model * model, const struct document * doc, struct encoded * e,
        struct lrnn_error * err) {
    size_t * spans = program_alloc((size_t) e->n, sizeof(*spans));
    bool     ok = lrnn_token_spans(model, doc->text, doc->size, e->tokens, e->n, spans, err);
    for (int64_t i = 0; i < e->n && ok; ++i) {
        e->bytes[i] = (uint16_t) spans[i];
        ok = spans[i] <= UINT16_MAX ||
             error_bad_file(err, "token %" PRId64 " covers %zu bytes; expected at most %d", i,
                     spans[i], UINT16_MAX);
    }
    free(spans);
    return ok;
}

static bool encode(struct windows * ws, const struct document * doc, struct encoded * e,
        struct lrnn_error * err) {
    struct lrnn_error why;
    *e = (struct encoded) {
        .bos = ws->bos_doc && (ws->params.mode != WINDOW_LLAMA || doc->index == 0),
        .eos = ws->params.eos == WINDOW_EOS_DOC,
    };
    bool ok = lrnn_tokenize(ws->model, doc->text, doc->size, 0, &e->tokens, &e->n, &why);
    if (ok) {
        e->bytes = program_alloc((size_t) e->n, sizeof(*e->bytes));
        ok = cover(ws->model, doc, e, &why);
    }
    return ok || error_set(err, why.kind, "%s:%" PRId64 ": document %" PRId64 ": %s", doc->file,
                         doc->line, doc->index, why.text);
}

// Cuts a document into windows, until the limits are reached.
static bool add_document(struct windows * ws, const struct document * doc, const struct encoded * e,
        struct lrnn_error * err) {
    const bool    alone = ws->params.mode == WINDOW_DOCUMENT;
    const int64_t first = e->bos ? -1 : 0;
    const int64_t end = e->eos ? e->n + 1 : e->n;
    const int64_t extra = alone && ws->bos_window ? 1 : 0; // a bos added by push
    const int64_t w = ws->params.length;

    ws->summary.stream_tokens += end - first;
    ws->summary.stream_bytes += (int64_t) doc->size;
    if (alone && end - first + extra < ws->params.min_doc_tokens) {
        ws->summary.left_out++;
        return true;
    }
    if (alone && is_full(ws, end - first + extra < w ? end - first + extra : w)) {
        return true;
    }
    const char *       name = strrchr(doc->file, '/');
    struct window_span at = {
        .document = doc->index,
        .file = string_set_find(&ws->files, name != NULL ? name + 1 : doc->file),
        .source = doc->source != NULL && *doc->source != '\0'
                          ? string_set_find(&ws->sources, doc->source)
                          : -1,
    };
    const int64_t n_before = ws->n;
    for (int64_t i = first; i < end; ++i) {
        const int32_t  token = i < 0 ? ws->bos : i < e->n ? e->tokens[i] : ws->eos;
        const uint16_t bytes = i < 0 || i >= e->n ? 0 : e->bytes[i];
        if ((alone && ws->n > n_before) || (!alone && ws->n_tokens == 0 && is_full(ws, w))) {
            return true; // W tokens, or a limit is reached
        }
        if (!push(ws, token, bytes, i == first, &at, err)) {
            return false;
        }
        at.byte += bytes;
    }
    return !alone || ws->n_tokens == 0 || flush(ws, err);
}

// A complaint begins with the path of its file, here without the folder: equal data gives equal
// score files on every machine.
static const char * without_folder(const char * complaint) {
    const size_t n_path = strcspn(complaint, ":");
    const char * name = complaint;
    for (size_t i = 0; i < n_path; ++i) {
        name = complaint[i] == '/' ? complaint + i + 1 : name;
    }
    return name;
}

// The complaints of the data set, separated by tabs.
static char * join_complaints(const struct dataset * ds) {
    size_t       size = 1, n = 0;
    const char * c;
    for (int i = 0; (c = dataset_complaint(ds, i)) != NULL; ++i) {
        size += strlen(c) + 1;
    }
    char * text = program_alloc(size, 1);
    for (int i = 0; (c = dataset_complaint(ds, i)) != NULL; ++i) {
        n += (size_t) snprintf(text + n, size - n, "%s%s", i > 0 ? "\t" : "", without_folder(c));
    }
    return text;
}

static bool add_all(struct windows * ws, struct dataset * ds, windows_progress progress,
        void * user, struct lrnn_error * err) {
    const int64_t w =
            ws->params.mode == WINDOW_DOCUMENT ? ws->params.min_doc_tokens : ws->params.length;
    struct document doc;
    while (ws->n_tokens > 0 || !is_full(ws, w)) {
        const enum dataset_status status = dataset_next(ds, &doc, err);
        if (status == DATASET_ERROR) {
            return false;
        }
        if (status == DATASET_END) {
            break;
        }
        struct encoded e;
        const bool     ok = encode(ws, &doc, &e, err) && add_document(ws, &doc, &e, err);
        free(e.tokens);
        free(e.bytes);
        if (!ok) {
            return false;
        }
        ws->summary.counts = dataset_get_counts(ds);
        if (progress != NULL && !progress(&ws->summary, user)) {
            return error_set(err, LRNN_ERROR_CANCELLED, "stopped while reading the data");
        }
    }
    ws->n_tokens = ws->n_spans = 0; // an incomplete last window is dropped
    ws->summary.counts = dataset_get_counts(ds);
    dataset_fingerprint(ds, ws->summary.fingerprint);
    ws->template = program_alloc(strlen(ws->summary.counts.template) + 1, 1);
    // may outlive the data set
    ws->summary.counts.template = strcpy(ws->template, ws->summary.counts.template);
    ws->summary.complaints = ws->complaints = join_complaints(ds);
    if (ws->n == 0) {
        return error_bad_file(err,
                "the data gives no window: %" PRId64 " documents have %" PRId64
                " tokens%s; a window needs %" PRId64,
                ws->summary.counts.documents, ws->summary.stream_tokens,
                ws->params.mode == WINDOW_DOCUMENT ? ", and each is too short" : "",
                ws->params.mode == WINDOW_DOCUMENT ? ws->params.min_doc_tokens : ws->params.length);
    }
    return fflush(ws->file) == 0 || cannot_keep(err);
}

// A temporary file without a name, which disappears with the process.
static FILE * nameless_file(const char * folder, struct lrnn_error * err) {
    const size_t size = strlen(folder) + 32;
    char *       path = program_alloc(size, 1);
    snprintf(path, size, "%s/windows.XXXXXX", folder);
    const int fd = mkstemp(path);
    FILE *    file = fd >= 0 && unlink(path) == 0 ? fdopen(fd, "w+b") : NULL;
    if (file == NULL) {
        error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot create a temporary file: %s", folder,
                strerror(errno));
    }
    free(path);
    return file;
}

static bool check_params(const struct window_params * p, struct lrnn_error * err) {
    if (p->length < 2 || p->length > WINDOW_MAX_LENGTH) {
        return error_bad_input(err, "the window has %" PRId64 " tokens; expected 2 to %d",
                p->length, WINDOW_MAX_LENGTH);
    }
    for (int i = 0; i < p->n_contexts; ++i) {
        if (p->mode != WINDOW_PACKED || p->contexts[i] < 1 ||
                p->contexts[i] > p->length - WINDOW_SAME_TARGETS) {
            return error_bad_input(err,
                    "context lengths need packed windows and 1 to %" PRId64
                    " tokens, so that %d targets follow; got %" PRId64,
                    p->length - WINDOW_SAME_TARGETS, WINDOW_SAME_TARGETS, p->contexts[i]);
        }
    }
    return true;
}

static bool prepare(struct windows * ws, const char * folder, struct lrnn_error * err) {
    const struct lrnn_model_info info = lrnn_model_get_info(ws->model);
    struct window_params *       p = &ws->params;

    if (!info.has_tokenizer) {
        return error_bad_model(err, "the model has no tokenizer");
    }
    p->min_doc_tokens =
            p->mode != WINDOW_DOCUMENT || p->min_doc_tokens == 0 || p->min_doc_tokens > p->length
                    ? p->length
                    : p->min_doc_tokens;
    p->min_doc_tokens = p->min_doc_tokens < 2 ? 2 : p->min_doc_tokens;
    ws->bos = info.bos;
    ws->eos = info.eos;
    ws->bos_doc = p->bos == WINDOW_BOS_DOC || (p->bos == WINDOW_BOS_AUTO && info.add_bos);
    ws->bos_window = p->bos == WINDOW_BOS_WINDOW;
    ws->summary.bos = ws->bos_doc ? "doc" : ws->bos_window ? "window" : "none";
    if ((ws->bos_doc || ws->bos_window) && ws->bos < 0) {
        return error_bad_input(err, "bos is '%s', but the model has no bos token; expected 'none'",
                ws->summary.bos);
    }
    if (p->eos == WINDOW_EOS_DOC && ws->eos < 0) {
        return error_bad_input(
                err, "eos is 'doc', but the model has no eos token; expected 'none'");
    }
    const size_t w = (size_t) p->length;
    ws->tokens = program_alloc(w, sizeof(*ws->tokens));
    ws->bytes = program_alloc(w, sizeof(*ws->bytes));
    ws->scored = program_alloc(w, 1);
    ws->file = nameless_file(folder, err);
    return ws->file != NULL;
}

struct windows * windows_make(struct dataset * ds, const struct lrnn_model * model,
        const struct window_params * params, const char * folder, windows_progress progress,
        void * user, struct lrnn_error * err) {
    struct windows * ws = program_alloc(1, sizeof(*ws));
    ws->params = *params;
    ws->model = model;
    if (!check_params(params, err) || !prepare(ws, folder, err) ||
            !add_all(ws, ds, progress, user, err)) {
        windows_free(ws);
        return NULL;
    }
    ws->summary.files = ws->files.text;
    ws->summary.sources = ws->sources.text != NULL ? ws->sources.text : "";
    if (params->n_contexts > 0) {
        ws->summary.n_windows = ws->n * params->n_contexts;
        ws->summary.n_tokens = 0;
        ws->summary.n_targets = ws->summary.n_windows * WINDOW_SAME_TARGETS;
        for (int i = 0; i < params->n_contexts; ++i) {
            ws->summary.n_tokens += ws->n * (params->contexts[i] + WINDOW_SAME_TARGETS);
        }
    }
    return ws;
}

void windows_free(struct windows * ws) {
    if (ws == NULL) {
        return;
    }
    if (ws->file != NULL) {
        fclose(ws->file);
    }
    free(ws->offsets);
    free(ws->tokens);
    free(ws->bytes);
    free(ws->scored);
    free(ws->spans);
    free(ws->files.text);
    free(ws->sources.text);
    free(ws->template);
    free(ws->complaints);
    free(ws);
}

const struct windows_summary * windows_get_summary(const struct windows * ws) {
    return &ws->summary;
}

//
// Reading
//

// Keeps only the last `context` + WINDOW_SAME_TARGETS tokens of a window and scores the last
// WINDOW_SAME_TARGETS.
static void keep_tail(struct window * w, struct window_span * spans, int32_t * tokens,
        uint16_t * bytes, uint8_t * scored, int64_t context) {
    const int64_t n = context + WINDOW_SAME_TARGETS;
    const int64_t skip = w->n_tokens - n;
    int32_t       from = 0; // the span in which the tail begins
    while (from + 1 < w->n_spans && spans[from + 1].first <= skip) {
        from++;
    }
    for (int64_t t = spans[from].first; t < skip; ++t) {
        spans[from].byte += bytes[t];
    }
    for (int32_t i = from; i < w->n_spans; ++i) {
        spans[i - from] = spans[i];
        spans[i - from].first = i > from ? spans[i].first - skip : 0;
    }
    memmove(tokens, tokens + skip, (size_t) n * sizeof(*tokens));
    memmove(bytes, bytes + skip, (size_t) n * sizeof(*bytes));
    memmove(scored, scored + skip, (size_t) n);
    memset(scored, 0, (size_t) context);
    w->n_spans -= from;
    w->n_tokens = n;
}

bool windows_read(
        struct windows * ws, int64_t index, struct window * window, struct lrnn_error * err) {
    const int64_t        n_contexts = ws->params.n_contexts > 0 ? ws->params.n_contexts : 1;
    struct window_header header;
    *window = (struct window) { .index = index };
    if (index < 0 || index >= ws->n * n_contexts) {
        return error_bad_input(
                err, "window %" PRId64 "; expected 0 to %" PRId64, index, ws->n * n_contexts - 1);
    }
    bool ok = fseeko(ws->file, ws->offsets[index / n_contexts], SEEK_SET) == 0 &&
              fread(&header, sizeof(header), 1, ws->file) == 1;
    if (ok) {
        const size_t         n = (size_t) header.n_tokens;
        const size_t         n_spans = (size_t) header.n_spans * sizeof(struct window_span);
        const size_t         size = n_spans + n * (sizeof(int32_t) + sizeof(uint16_t) + 1);
        char *               memory = program_alloc(size, 1);
        struct window_span * spans = (void *) memory;
        int32_t *            tokens = (void *) (memory + n_spans);
        uint16_t *           bytes = (void *) (tokens + n);
        uint8_t *            scored = (void *) (bytes + n);
        ok = fread(memory, 1, size, ws->file) == size;
        *window = (struct window) {
            .index = index,
            .n_tokens = header.n_tokens,
            .tokens = tokens,
            .bytes = bytes,
            .scored = scored,
            .spans = spans,
            .n_spans = (int32_t) header.n_spans,
            .memory = memory,
        };
        if (ok && ws->params.n_contexts > 0) {
            keep_tail(
                    window, spans, tokens, bytes, scored, ws->params.contexts[index % n_contexts]);
        }
    }
    if (!ok) {
        error_system(err, "cannot read window %" PRId64 " from the temporary file", index);
        window_free(window);
    }
    return ok;
}

void window_free(struct window * window) {
    free(window->memory);
    *window = (struct window) { 0 };
}
