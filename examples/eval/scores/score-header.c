#include "eval/scores/score-file.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/sha256.h"
#include "memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char     MAGIC[8] = { 'L', 'R', 'N', 'N', '-', 'N', 'L', 'L' };
static const uint32_t VERSION = 1;

enum key_type { KEY_TEXT, KEY_INT, KEY_BOOL };

struct key {
    const char *  name;
    enum key_type type;
    size_t        offset; // in struct score_meta
    int64_t       min, max;
    bool          optional; // omitted if it is empty or false
};

#define TEXT(k)                    { #k, KEY_TEXT, offsetof(struct score_meta, k), 0, 0, false }
#define TEXT_IF_ANY(k)             { #k, KEY_TEXT, offsetof(struct score_meta, k), 0, 0, true }
#define INT(k, lo, hi)             INT_NAMED(#k, k, lo, hi)
#define INT_NAMED(name, k, lo, hi) { name, KEY_INT, offsetof(struct score_meta, k), lo, hi, false }
#define BOOL(k)                    { #k, KEY_BOOL, offsetof(struct score_meta, k), 0, 1, false }
#define BOOL_IF_TRUE(k)            { #k, KEY_BOOL, offsetof(struct score_meta, k), 1, 1, true }

static const int64_t MANY = INT64_C(1) << 40; // beyond any real count; products do not overflow

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
    TEXT_IF_ANY(cache_type), TEXT_IF_ANY(state_type), BOOL_IF_TRUE(exact_cuts),
    INT(n_batch, 1, INT32_MAX), INT(group, 1, INT32_MAX), INT(n_windows, 1, MANY),
    INT(n_shards, 1, SCORE_MAX_SHARDS),
    INT(shard, 1, SCORE_MAX_SHARDS), // last: the only line that differs between shards
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

// Works in place. Returns false for an unknown escape.
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

static void put(struct buffer * b, const void * data, size_t n) {
    program_grow(&b->data, &b->capacity, b->n + n, 1);
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static bool is_empty(const struct score_meta * meta, const struct key * key) {
    return key->type == KEY_TEXT ? *get_text(meta, key) == '\0' : get_int(meta, key) == 0;
}

// Appends the line of a key.
static void put_key(struct buffer * b, const struct key * key, const struct score_meta * meta) {
    char         number[32];
    const char * value = key->type == KEY_TEXT ? get_text(meta, key) : number;
    if (key->type != KEY_TEXT) {
        snprintf(number, sizeof(number), "%" PRId64, get_int(meta, key));
    }
    put(b, key->name, strlen(key->name));
    put(b, " ", 1);
    for (; *value != '\0'; ++value) {
        const char c = *value == '\n' ? 'n' : *value == '\r' ? 'r' : *value;
        put(b, "\\", strchr("\n\r\\", *value) != NULL);
        put(b, &c, 1);
    }
    put(b, "\n", 1);
}

static void digest_of(const void * text, size_t size, uint8_t digest[SCORE_DIGEST_SIZE]) {
    struct sha256 sha;
    sha256_begin(&sha);
    sha256_add(&sha, text, size);
    sha256_end(&sha, digest);
}

char * score_header_new(const struct score_meta * meta, size_t * size) {
    struct buffer b = { 0 };
    uint8_t       digest[SCORE_DIGEST_SIZE];
    uint32_t      n_text = 0; // known at the end
    put(&b, MAGIC, sizeof(MAGIC));
    put(&b, &VERSION, 4);
    put(&b, &n_text, 4);
    for (int i = 0; i < N_KEYS; ++i) {
        if (!KEYS[i].optional || !is_empty(meta, &KEYS[i])) {
            put_key(&b, &KEYS[i], meta);
        }
    }
    while (b.n % 8 != 0) {
        put(&b, "\n", 1);
    }
    n_text = (uint32_t) (b.n - SCORE_PREFIX_SIZE);
    memcpy(b.data + 12, &n_text, 4);
    digest_of(b.data + SCORE_PREFIX_SIZE, n_text, digest);
    put(&b, digest, sizeof(digest));
    *size = b.n;
    return b.data;
}

void score_meta_identity(const struct score_meta * meta, uint8_t digest[32]) {
    size_t size;
    char * header = score_header_new(meta, &size);
    memcpy(digest, header + size - SCORE_DIGEST_SIZE, SCORE_DIGEST_SIZE);
    free(header);
}

size_t score_header_check(
        const char * file, const uint8_t * data, size_t size, struct lrnn_error * err) {
    uint32_t version, n_text;
    if (size < SCORE_PREFIX_SIZE || memcmp(data, MAGIC, sizeof(MAGIC)) != 0) {
        error_bad_file(err, "%s: not a score file; expected \"LRNN-NLL\" at its start", file);
        return 0;
    }
    memcpy(&version, data + 8, 4);
    memcpy(&n_text, data + 12, 4);
    if (version != VERSION) {
        error_bad_file(err, "%s: score file version %" PRIu32 "; expected %" PRIu32, file, version,
                VERSION);
        return 0;
    }
    if (n_text > SCORE_MAX_TEXT || n_text % 8 != 0 ||
            size - SCORE_PREFIX_SIZE < (size_t) n_text + SCORE_DIGEST_SIZE) {
        error_bad_file(err,
                "%s: the header text at byte 16 has %" PRIu32
                " bytes, but the file ends at byte %zu",
                file, n_text, size);
        return 0;
    }
    uint8_t digest[SCORE_DIGEST_SIZE];
    digest_of(data + SCORE_PREFIX_SIZE, n_text, digest);
    if (memcmp(digest, data + SCORE_PREFIX_SIZE + n_text, SCORE_DIGEST_SIZE) != 0) {
        error_bad_file(err, "%s: the header is damaged: wrong SHA-256 at byte %zu", file,
                SCORE_PREFIX_SIZE + (size_t) n_text);
        return 0;
    }
    return SCORE_PREFIX_SIZE + (size_t) n_text + SCORE_DIGEST_SIZE;
}

static bool parse_value(const char * file, const struct key * key, char * value,
        struct score_meta * meta, struct lrnn_error * err) {
    if (key->type == KEY_TEXT) {
        if (!unescape(value)) {
            return error_bad_file(err,
                    "%s: header key %s: unknown escape; expected \\n, \\r or \\\\", file,
                    key->name);
        }
        const char * text = value;
        memcpy((char *) meta + key->offset, &text, sizeof(text));
        return true;
    }
    char * end;
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || number < key->min || number > key->max) {
        return error_bad_file(err,
                "%s: header key %s is '%.32s'; expected a number from %" PRId64 " to %" PRId64,
                file, key->name, value, key->min, key->max);
    }
    set_int(meta, key, number);
    return true;
}

bool score_meta_parse(const char * file, char * text, size_t size, struct score_meta * meta,
        struct lrnn_error * err) {
    *meta = (struct score_meta) { 0 };
    if (memchr(text, '\0', size) != NULL) {
        return error_bad_file(err, "%s: the header text contains a zero byte", file);
    }
    char * p = text;
    char * end = text + size;
    meta->probe = "";
    meta->cache_type = "";
    meta->state_type = "";
    for (int i = 0, line_number = 1; i < N_KEYS; ++i) {
        const size_t n_name = strlen(KEYS[i].name);
        char *       line = p;
        char *       stop = memchr(p, '\n', (size_t) (end - p));
        if (stop == NULL || (size_t) (stop - line) <= n_name ||
                memcmp(line, KEYS[i].name, n_name) != 0 || line[n_name] != ' ') {
            if (KEYS[i].optional) {
                continue;
            }
            const int n_shown = (int) ((stop != NULL ? stop : end) - line);
            return error_bad_file(err, "%s: line %d of the header is '%.*s'; expected the key %s",
                    file, line_number, n_shown < 40 ? n_shown : 40, line, KEYS[i].name);
        }
        *stop = '\0';
        p = stop + 1;
        line_number++;
        if (!parse_value(file, &KEYS[i], line + n_name + 1, meta, err)) {
            return false;
        }
    }
    for (; p < end; ++p) {
        if (*p != '\n') {
            return error_bad_file(err, "%s: the header text continues after the key %s", file,
                    KEYS[N_KEYS - 1].name);
        }
    }
    if (*meta->probe != '\0' && strcmp(meta->probe, "state-norm") != 0) {
        return error_bad_file(
                err, "%s: header key probe is '%.32s'; expected state-norm", file, meta->probe);
    }
    if (meta->shard > meta->n_shards) {
        return error_bad_file(err, "%s: header key shard is %" PRId64 "; expected 1 to %" PRId64,
                file, meta->shard, meta->n_shards);
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
    *first = (meta->shard - 1) * n_groups / meta->n_shards * meta->group;
    *end = meta->shard * n_groups / meta->n_shards * meta->group;
    *end = *end < meta->n_windows ? *end : meta->n_windows;
    *first = *first < *end ? *first : *end;
}
