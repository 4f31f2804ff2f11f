#include "eval/score-format.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/sha256.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char     MAGIC[8]     = { 'L', 'R', 'N', 'N', '-', 'N', 'L', 'L' };
static const uint32_t VERSION      = 1;
static const uint32_t RECORD_MAGIC = 0x314c4c4e; // "NLL1"

enum { RECORD_PREFIX = 8, BODY_PREFIX = 24, CHECKSUM = 8 };

_Static_assert(sizeof(struct window_span) == 32, "a span has no holes");
_Static_assert(sizeof(struct score_norm) == 16, "a norm has no holes");
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "score files are written as the numbers lie in memory, which must be little-endian"
#endif

//
// The header text
//

enum key_type { KEY_TEXT, KEY_INT, KEY_BOOL };

struct key {
    const char *  name;
    enum key_type type;
    size_t        offset; // in struct score_meta
    int64_t       min, max;
    bool          optional; // the line is left out if the text is empty
};

#define TEXT(k)                    { #k, KEY_TEXT, offsetof(struct score_meta, k), 0, 0, false }
#define TEXT_IF_ANY(k)             { #k, KEY_TEXT, offsetof(struct score_meta, k), 0, 0, true }
#define INT(k, lo, hi)             INT_NAMED(#k, k, lo, hi)
#define INT_NAMED(name, k, lo, hi) { name, KEY_INT, offsetof(struct score_meta, k), lo, hi, false }
#define BOOL(k)                    { #k, KEY_BOOL, offsetof(struct score_meta, k), 0, 1, false }

static const int64_t MANY =
        INT64_C(1) << 40; // more than there is of anything, and far from where products overflow

static const struct key KEYS[] = {
    // in the order of the file
    TEXT(tool), TEXT(model), TEXT(model_hash), TEXT(model_family), TEXT(eigenvalues),
    TEXT(quantization), INT(parameters, 0, INT64_MAX),
    INT_NAMED("train_length", trained_length, 0, MANY), INT(n_vocab, 1, INT32_MAX),
    TEXT(tokenizer_hash), TEXT(dataset), TEXT(data_fingerprint), TEXT(template), TEXT(files),
    TEXT(sources), INT(records, 0, MANY), INT(documents, 0, MANY), INT(filtered, 0, MANY),
    INT(malformed, 0, MANY), INT(lone_surrogates, 0, MANY), TEXT(complaints), TEXT(protocol),
    TEXT(mode), TEXT(bos), TEXT(eos), TEXT(reset), INT(window, 2, SCORE_MAX_TARGETS),
    INT(min_doc_tokens, 0, MANY), BOOL(skip_special), TEXT(same_targets), TEXT_IF_ANY(probe),
    INT(n_batch, 1, INT32_MAX), INT(group, 1, INT32_MAX), INT(n_windows, 1, MANY),
    INT(n_shards, 1, SCORE_MAX_SHARDS),
    INT(shard, 1, SCORE_MAX_SHARDS), // last: the only line in which shards differ
};

enum { N_KEYS = sizeof(KEYS) / sizeof(KEYS[0]) };

static const char * get_text(const struct score_meta * meta, const struct key * key) {
    const char * text;
    memcpy(&text, (const char *) meta + key->offset, sizeof(text));
    return text != NULL ? text : "";
}

static int64_t get_int(const struct score_meta * meta, const struct key * key) {
    int64_t value = 0;
    if (key->type == KEY_BOOL) {
        bool b;
        memcpy(&b, (const char *) meta + key->offset, sizeof(b));
        value = b;
    } else {
        memcpy(&value, (const char *) meta + key->offset, sizeof(value));
    }
    return value;
}

static void set_int(struct score_meta * meta, const struct key * key, int64_t value) {
    if (key->type == KEY_BOOL) {
        const bool b = value != 0;
        memcpy((char *) meta + key->offset, &b, sizeof(b));
    } else {
        memcpy((char *) meta + key->offset, &value, sizeof(value));
    }
}

// Writes the value with its escapes, or only counts its bytes if `out` is NULL.
static size_t escape(const char * text, char * out) {
    size_t n = 0;
    for (; *text != '\0'; ++text) {
        const char * mark = strchr("\n\r\\", *text);
        if (mark != NULL) {
            if (out != NULL) {
                out[n]     = '\\';
                out[n + 1] = *text == '\n' ? 'n' : *text == '\r' ? 'r' : '\\';
            }
            n += 2;
        } else {
            if (out != NULL) {
                out[n] = *text;
            }
            n++;
        }
    }
    return n;
}

// In place. False if a backslash stands before something else.
static bool unescape(char * text) {
    char * out = text;
    for (const char * p = text; *p != '\0'; ++p) {
        if (*p != '\\') {
            *out++ = *p;
            continue;
        }
        p++;
        switch (*p) {
            case 'n': *out++ = '\n'; break;
            case 'r': *out++ = '\r'; break;
            case '\\': *out++ = '\\'; break;
            default: return false;
        }
    }
    *out = '\0';
    return true;
}

// The text without what fills it up; only its size if `out` is NULL.
static size_t write_text(const struct score_meta * meta, char * out) {
    size_t n = 0;
    for (int i = 0; i < N_KEYS; ++i) {
        const struct key * key = &KEYS[i];
        if (key->optional && *get_text(meta, key) == '\0') {
            continue;
        }
        char         number[32];
        const char * value = number;
        if (key->type == KEY_TEXT) {
            value = get_text(meta, key);
        } else {
            snprintf(number, sizeof(number), "%" PRId64, get_int(meta, key));
        }
        const size_t n_name = strlen(key->name);
        if (out != NULL) {
            memcpy(out + n, key->name, n_name);
            out[n + n_name] = ' ';
        }
        n += n_name + 1;
        n += escape(value, out != NULL ? out + n : NULL);
        if (out != NULL) {
            out[n] = '\n';
        }
        n++;
    }
    return n;
}

char * score_header_new(const struct score_meta * meta, size_t * size) {
    const size_t used   = write_text(meta, NULL);
    const size_t n_text = (used + 7) / 8 * 8;
    *size               = SCORE_PREFIX_SIZE + n_text + SCORE_DIGEST_SIZE;
    char * header       = malloc(*size);
    if (header == NULL) {
        return NULL;
    }
    const uint32_t n = (uint32_t) n_text;
    memcpy(header, MAGIC, 8);
    memcpy(header + 8, &VERSION, 4);
    memcpy(header + 12, &n, 4);
    char * text = header + SCORE_PREFIX_SIZE;
    write_text(meta, text);
    memset(text + used, '\n', n_text - used);

    struct sha256 sha;
    sha256_begin(&sha);
    sha256_add(&sha, text, n_text);
    sha256_end(&sha, (uint8_t *) text + n_text);
    return header;
}

bool score_meta_identity(const struct score_meta * meta, uint8_t digest[32]) {
    size_t size;
    char * header = score_header_new(meta, &size);
    if (header != NULL) {
        memcpy(digest, header + size - SCORE_DIGEST_SIZE, SCORE_DIGEST_SIZE);
    }
    free(header);
    return header != NULL;
}

size_t score_header_check(
        const char * file, const uint8_t * data, size_t size, char * err, size_t err_size) {
    uint32_t version, n_text;
    if (size < SCORE_PREFIX_SIZE || memcmp(data, MAGIC, sizeof(MAGIC)) != 0) {
        snprintf(err, err_size, "%s: is not a score file; expected it to begin with \"LRNN-NLL\"",
                file);
        return 0;
    }
    memcpy(&version, data + 8, 4);
    memcpy(&n_text, data + 12, 4);
    if (version != VERSION) {
        snprintf(err, err_size, "%s: is a score file of version %" PRIu32 "; expected %" PRIu32,
                file, version, VERSION);
        return 0;
    }
    if (n_text > SCORE_MAX_TEXT || n_text % 8 != 0 ||
            size - SCORE_PREFIX_SIZE < (size_t) n_text + SCORE_DIGEST_SIZE) {
        snprintf(err, err_size,
                "%s: the header has %" PRIu32
                " bytes of text at byte 16; the file ends at byte %zu",
                file, n_text, size);
        return 0;
    }
    struct sha256 sha;
    uint8_t       digest[SCORE_DIGEST_SIZE];
    sha256_begin(&sha);
    sha256_add(&sha, data + SCORE_PREFIX_SIZE, n_text);
    sha256_end(&sha, digest);
    if (memcmp(digest, data + SCORE_PREFIX_SIZE + n_text, SCORE_DIGEST_SIZE) != 0) {
        snprintf(err, err_size, "%s: the header is damaged: its SHA-256, at byte %zu, is another",
                file, SCORE_PREFIX_SIZE + (size_t) n_text);
        return 0;
    }
    return SCORE_PREFIX_SIZE + (size_t) n_text + SCORE_DIGEST_SIZE;
}

static bool parse_value(const char * file, const struct key * key, char * value,
        struct score_meta * meta, char * err, size_t err_size) {
    if (key->type == KEY_TEXT) {
        if (!unescape(value)) {
            return error_set(err, err_size,
                    "%s: header key %s: a backslash stands before something else than n, r or a backslash",
                    file, key->name);
        }
        const char * text = value;
        memcpy((char *) meta + key->offset, &text, sizeof(text));
        return true;
    }
    char * end;
    errno                  = 0;
    const long long number = strtoll(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || number < key->min || number > key->max) {
        return error_set(err, err_size,
                "%s: header key %s is '%.32s'; expected a number from %" PRId64 " to %" PRId64,
                file, key->name, value, key->min, key->max);
    }
    set_int(meta, key, number);
    return true;
}

bool score_meta_parse(const char * file, char * text, size_t size, struct score_meta * meta,
        char * err, size_t err_size) {
    *meta = (struct score_meta) { 0 };
    if (memchr(text, '\0', size) != NULL) {
        return error_set(err, err_size, "%s: there is a zero byte in the header text", file);
    }
    char * p    = text;
    char * end  = text + size;
    meta->probe = "";
    for (int i = 0, line_number = 1; i < N_KEYS; ++i) {
        const size_t n_name = strlen(KEYS[i].name);
        char *       line   = p;
        char *       stop   = memchr(p, '\n', (size_t) (end - p));
        if (stop == NULL || (size_t) (stop - line) <= n_name ||
                memcmp(line, KEYS[i].name, n_name) != 0 || line[n_name] != ' ') {
            if (KEYS[i].optional) {
                continue;
            }
            const int n_shown = (int) ((stop != NULL ? stop : end) - line);
            return error_set(err, err_size,
                    "%s: line %d of the header is '%.*s'; expected the key %s", file, line_number,
                    n_shown < 40 ? n_shown : 40, line, KEYS[i].name);
        }
        *stop = '\0';
        p     = stop + 1;
        line_number++;
        if (!parse_value(file, &KEYS[i], line + n_name + 1, meta, err, err_size)) {
            return false;
        }
    }
    for (; p < end; ++p) {
        if (*p != '\n') {
            return error_set(err, err_size, "%s: the header goes on after the key %s", file,
                    KEYS[N_KEYS - 1].name);
        }
    }
    if (*meta->probe != '\0' && strcmp(meta->probe, "state-norm") != 0) {
        return error_set(err, err_size, "%s: header key probe is '%.32s'; expected state-norm",
                file, meta->probe);
    }
    if (meta->shard > meta->n_shards) {
        return error_set(err, err_size, "%s: is shard %" PRId64 " of %" PRId64, file, meta->shard,
                meta->n_shards);
    }
    return true;
}

const char * score_meta_difference(const struct score_meta * x, const struct score_meta * y,
        bool with_shard, char a[64], char b[64]) {
    for (int i = 0; i < N_KEYS; ++i) {
        const struct key * key = &KEYS[i];
        if (key->offset == offsetof(struct score_meta, shard) && !with_shard) {
            continue;
        }
        if (key->type == KEY_TEXT) {
            const char * s = get_text(x, key);
            const char * t = get_text(y, key);
            if (strcmp(s, t) != 0) {
                snprintf(a, 64, "%s", s);
                snprintf(b, 64, "%s", t);
                return key->name;
            }
        } else if (get_int(x, key) != get_int(y, key)) {
            snprintf(a, 64, "%" PRId64, get_int(x, key));
            snprintf(b, 64, "%" PRId64, get_int(y, key));
            return key->name;
        }
    }
    return NULL;
}

void score_shard_range(const struct score_meta * meta, int64_t * first, int64_t * end) {
    const int64_t n_groups = (meta->n_windows + meta->group - 1) / meta->group;
    *first                 = (meta->shard - 1) * n_groups / meta->n_shards * meta->group;
    *end                   = meta->shard * n_groups / meta->n_shards * meta->group;
    *end                   = *end < meta->n_windows ? *end : meta->n_windows;
    *first                 = *first < *end ? *first : *end;
}

//
// Records
//

bool score_has_norms(const struct score_meta * meta) {
    return meta->probe != NULL && *meta->probe != '\0';
}

// Bytes of a body, a multiple of 8.
// - n_norms: −1: there is no such field
static size_t body_size(int64_t n_targets, int64_t n_spans, int64_t n_norms) {
    const size_t n =
            BODY_PREFIX + (size_t) n_spans * sizeof(struct window_span) +
            (size_t) n_targets * (sizeof(float) + sizeof(uint16_t) + 1) +
            (n_norms >= 0 ? sizeof(int64_t) + (size_t) n_norms * sizeof(struct score_norm) : 0);
    return (n + 7) / 8 * 8;
}

uint8_t * score_record_new(const struct score_window * window, bool has_norms, size_t * size) {
    const int64_t  n_norms = window->n_norms;
    const size_t   n_body = body_size(window->n_targets, window->n_spans, has_norms ? n_norms : -1);
    const size_t   n      = (size_t) window->n_targets;
    const uint32_t n32    = (uint32_t) n_body;
    const int64_t  n_spans = window->n_spans;

    *size            = RECORD_PREFIX + n_body + CHECKSUM;
    uint8_t * record = calloc(1, *size);
    if (record == NULL) {
        return NULL;
    }
    uint8_t * body = record + RECORD_PREFIX;
    memcpy(record, &RECORD_MAGIC, 4);
    memcpy(record + 4, &n32, 4);
    memcpy(body, &window->index, 8);
    memcpy(body + 8, &window->n_targets, 8);
    memcpy(body + 16, &n_spans, 8);
    uint8_t * p = body + BODY_PREFIX;
    if (has_norms) {
        memcpy(p, &n_norms, sizeof(n_norms));
        p += sizeof(n_norms);
    }
    memcpy(p, window->spans, (size_t) n_spans * sizeof(*window->spans));
    p += (size_t) n_spans * sizeof(*window->spans);
    if (has_norms && n_norms > 0) {
        memcpy(p, window->norms, (size_t) n_norms * sizeof(*window->norms));
        p += (size_t) n_norms * sizeof(*window->norms);
    }
    memcpy(p, window->nll, n * sizeof(*window->nll));
    p += n * sizeof(*window->nll);
    memcpy(p, window->bytes, n * sizeof(*window->bytes));
    p += n * sizeof(*window->bytes);
    memcpy(p, window->flags, n);

    const uint64_t sum = hash_add(HASH_START, body, n_body);
    memcpy(body + n_body, &sum, sizeof(sum));
    return record;
}

static int64_t count_names(const char * names) {
    int64_t n = *names != '\0';
    for (; *names != '\0'; ++names) {
        n += *names == '\t';
    }
    return n;
}

// Everything in a window that others count on.
static bool check_window(const struct score_window * w, const struct score_meta * meta, char * why,
        size_t why_size) {
    const bool fixed = strcmp(meta->mode, "document") != 0 && *meta->same_targets == '\0';
    if (w->index < 0 || w->index >= meta->n_windows) {
        snprintf(why, why_size, "window %" PRId64 " of a run of %" PRId64, w->index,
                meta->n_windows);
        return false;
    }
    if (fixed && w->n_targets != meta->window - 1) {
        snprintf(why, why_size, "window %" PRId64 " has %" PRId64 " targets; expected %" PRId64,
                w->index, w->n_targets, meta->window - 1);
        return false;
    }
    const int64_t n_files   = count_names(meta->files);
    const int64_t n_sources = count_names(meta->sources);
    int64_t       before    = -1;
    for (int32_t i = 0; i < w->n_spans; ++i) {
        const struct window_span * s = &w->spans[i];
        if (s->first <= before || (i == 0 && s->first != 0) || s->first > w->n_targets ||
                s->document < 0 || s->byte < 0 || s->file < 0 || s->file >= n_files ||
                s->source < -1 || s->source >= n_sources) {
            snprintf(why, why_size,
                    "span %d of window %" PRId64 " (token %" PRId64 ", document %" PRId64
                    ", file %d, source %d) does not fit",
                    i, w->index, s->first, s->document, s->file, s->source);
            return false;
        }
        before = s->first;
    }
    before = 0;
    for (int32_t i = 0; i < w->n_norms; ++i) {
        const struct score_norm * n = &w->norms[i];
        if (n->at <= before || n->at > w->n_targets + 1 || n->layer < 0 || n->norm < 0.0f) {
            snprintf(why, why_size,
                    "norm %d of window %" PRId64 " (%g of layer %d after %" PRId64
                    " tokens) does not fit",
                    i, w->index, (double) n->norm, n->layer, n->at);
            return false;
        }
        before = n->at;
    }
    for (int64_t i = 0; i < w->n_targets; ++i) {
        if ((w->flags[i] & ~(SCORE_COUNTED | SCORE_TOP1)) != 0) {
            snprintf(why, why_size, "target %" PRId64 " of window %" PRId64 " has flags %u", i + 1,
                    w->index, w->flags[i]);
            return false;
        }
    }
    return true;
}

static bool is_zero(const uint8_t * p, size_t size) {
    size_t i = 0;
    while (i < size && p[i] == 0) {
        i++;
    }
    return i == size;
}

enum score_record score_record_read(const char * file, const uint8_t * data, size_t size,
        size_t * at, const struct score_meta * meta, struct score_window * window, char * err,
        size_t err_size) {
    const size_t    left      = size - *at;
    const uint8_t * record    = data + *at;
    const uint8_t * body      = record + RECORD_PREFIX;
    const bool      has_norms = score_has_norms(meta);
    uint32_t        magic, n_body;
    int64_t         n_spans, n_norms = -1;

    if (left == 0) {
        return SCORE_RECORD_END;
    }
    if (left < RECORD_PREFIX + BODY_PREFIX + (has_norms ? sizeof(n_norms) : 0)) {
        return SCORE_RECORD_TORN;
    }
    memcpy(&magic, record, 4);
    memcpy(&n_body, record + 4, 4);
    memcpy(&window->index, body, 8);
    memcpy(&window->n_targets, body + 8, 8);
    memcpy(&n_spans, body + 16, 8);
    if (has_norms) {
        memcpy(&n_norms, body + BODY_PREFIX, sizeof(n_norms));
    }
    if (magic != RECORD_MAGIC) {
        if (is_zero(record,
                    left)) { // blocks that the file system had given, but not yet filled, when the machine went down
            return SCORE_RECORD_TORN;
        }
        snprintf(err, err_size, "%s: there is no record at byte %zu", file, *at);
        return SCORE_RECORD_BAD;
    }
    if (window->n_targets < 1 || window->n_targets >= meta->window || n_spans < 1 ||
            n_spans > window->n_targets + 1 ||
            (has_norms && (n_norms < 0 || n_norms > window->n_targets + 1)) ||
            n_body != body_size(window->n_targets, n_spans, n_norms)) {
        snprintf(err, err_size,
                "%s: the record at byte %zu has %" PRIu32 " bytes for %" PRId64 " targets, %" PRId64
                " spans and %" PRId64 " norms; windows have %" PRId64 " tokens",
                file, *at, n_body, window->n_targets, n_spans, has_norms ? n_norms : 0,
                meta->window);
        return SCORE_RECORD_BAD;
    }
    if (left < (size_t) RECORD_PREFIX + n_body + CHECKSUM) {
        return SCORE_RECORD_TORN;
    }
    uint64_t sum;
    memcpy(&sum, body + n_body, sizeof(sum));
    if (sum != hash_add(HASH_START, body, n_body)) {
        if (left == (size_t) RECORD_PREFIX + n_body + CHECKSUM) {
            return SCORE_RECORD_TORN;
        }
        snprintf(err, err_size, "%s: the record at byte %zu is damaged: its checksum is another",
                file, *at);
        return SCORE_RECORD_BAD;
    }
    const uint8_t * p = body + BODY_PREFIX + (has_norms ? sizeof(n_norms) : 0);
    window->n_spans   = (int32_t) n_spans;
    window->spans     = (const void *) p;
    p += (size_t) n_spans * sizeof(struct window_span);
    window->n_norms = has_norms ? (int32_t) n_norms : 0;
    window->norms   = (const void *) p;
    p += (size_t) window->n_norms * sizeof(struct score_norm);
    window->nll = (const void *) p;
    p += (size_t) window->n_targets * sizeof(float);
    window->bytes = (const void *) p;
    p += (size_t) window->n_targets * sizeof(uint16_t);
    window->flags = p;

    char why[256];
    if (!check_window(window, meta, why, sizeof(why))) {
        snprintf(err, err_size, "%s: the record at byte %zu: %s", file, *at, why);
        return SCORE_RECORD_BAD;
    }
    *at += (size_t) RECORD_PREFIX + n_body + CHECKSUM;
    return SCORE_RECORD_OK;
}
