// State files: a sequence, and optionally a sampler. All numbers are little-endian.
//
//     "lrnn-seq"   u32 version   u16 parts: 1 logits, 2 sampler   u16 cache type
//     u64 model identity   i64 number of tokens   u64 bytes of memory
//     the memory of the sequence, in the order of states_visit
//     if parts & 1: the logits of the last token, f32 [vocabulary]
//     if parts & 2: the sampler: u64 random[2]   i64 n_accepted   i32 recent[4096]
//     u64 FNV-1a checksum of everything before it
//
// The cache type is 0 (F32), 1 (F16) or 2 (Q8_0); 0 in models without attention layers.
//
// The checksum detects damage, not malice: every value is checked as well.

#include "base/atomic-file.h"
#include "base/error.h"
#include "base/file-magic.h"
#include "base/hash.h"
#include "model/model.h"
#include "run/sampler.h"
#include "run/session.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[] = STATE_FILE_MAGIC;

enum { VERSION = 1 };

enum { HAS_LOGITS = 1 << 0, HAS_SAMPLER = 1 << 1 };

// An upper bound for numbers of tokens, far from overflow.
static const int64_t COUNT_MAX = INT64_C(1) << 62;

static const enum ggml_type CACHE_TYPES[] = { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0 };

enum { N_CACHE_TYPES = sizeof(CACHE_TYPES) / sizeof(CACHE_TYPES[0]) };

struct header {
    char     magic[8];
    uint32_t version;
    uint16_t has;
    uint16_t cache_type; // index into CACHE_TYPES
    uint64_t identity;
    int64_t  length;
    uint64_t n_bytes;
};

struct saved_sampler {
    uint64_t random[2];
    int64_t  n_accepted;
    int32_t  recent[SAMPLER_RECENT_MAX];
};

_Static_assert(sizeof(MAGIC) == sizeof(((struct header *) 0)->magic) + 1, "the magic fits");
_Static_assert(sizeof(struct header) == 40, "the header has no padding");
_Static_assert(
        sizeof(struct saved_sampler) == 24 + 4 * SAMPLER_RECENT_MAX, "the sampler has no padding");
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "state files have the byte order of memory, which must be little-endian"
#endif

static bool add_size(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    (void) tensor;
    (void) offset;
    *(uint64_t *) user += size;
    return true;
}

// The number of the session's cache type in a file.
static uint16_t cache_type_of(const struct lrnn_session * session) {
    uint16_t i = 0;
    while (session_model(session)->info.n_layer_attention > 0 && i + 1 < N_CACHE_TYPES &&
            CACHE_TYPES[i] != session_cache_format(session)) {
        ++i;
    }
    return i;
}

static size_t logits_size(const struct lrnn_session * session) {
    return (size_t) session_model(session)->info.n_vocab * sizeof(float);
}

//
// Saving
//

struct writer {
    struct atomic_file  file;
    uint64_t            sum;
    bool                ok;
    struct lrnn_error * err;
};

static void put(struct writer * w, const void * data, size_t size) {
    w->ok  = w->ok && atomic_file_write(&w->file, data, size, w->err);
    w->sum = hash_add(w->sum, data, size);
}

static bool put_bytes(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    struct writer * w = user;
    uint8_t         block[1 << 16];
    for (size_t at = 0; w->ok && at < size; at += sizeof(block)) {
        const size_t n = size - at < sizeof(block) ? size - at : sizeof(block);
        ggml_backend_tensor_get(tensor, block, offset + at, n);
        put(w, block, n);
    }
    return w->ok;
}

bool lrnn_seq_save(struct lrnn_session * session, int32_t seq, const struct lrnn_sampler * sampler,
        const char * path, struct lrnn_error * err) {
    if (!session_check_seq(session, seq, err)) {
        return false;
    }
    const float * logits = session_seq_logits(session, seq);
    struct header header = {
        .version = VERSION,
        .has = (uint16_t) ((logits != NULL ? HAS_LOGITS : 0) | (sampler != NULL ? HAS_SAMPLER : 0)),
        .cache_type = cache_type_of(session),
        .identity   = session_model(session)->info.identity,
        .length     = lrnn_seq_length(session, seq),
    };
    memcpy(header.magic, MAGIC, sizeof(header.magic));
    session_visit(session, seq, header.length, add_size, &header.n_bytes);

    struct writer w = { .sum = HASH_START, .ok = true, .err = err };
    if (!atomic_file_may_replace(path, MAGIC, "a state file", err) ||
            !atomic_file_open(&w.file, path, err)) {
        return false;
    }
    put(&w, &header, sizeof(header));
    session_visit(session, seq, header.length, put_bytes, &w);
    if (logits != NULL) {
        put(&w, logits, logits_size(session));
    }
    if (sampler != NULL) {
        struct saved_sampler saved = { .random = { sampler->random[0], sampler->random[1] },
            .n_accepted                        = sampler->n_accepted };
        memcpy(saved.recent, sampler->recent, sizeof(saved.recent));
        put(&w, &saved, sizeof(saved));
    }
    const uint64_t sum = w.sum;
    put(&w, &sum, sizeof(sum));
    if (!w.ok) {
        atomic_file_cancel(&w.file);
        return false;
    }
    return atomic_file_commit(&w.file, err);
}

//
// Loading: the whole file is read and checked before the sequence changes
//

// The size of an open file; -1: not a regular file.
static int64_t file_size(FILE * file) {
    if (fseek(file, 0, SEEK_END) != 0) {
        return -1;
    }
    const long size = ftell(file);
    return size >= 0 && fseek(file, 0, SEEK_SET) == 0 ? (int64_t) size : -1;
}

// Everything after the header, made with malloc; NULL on failure.
static uint8_t * read_rest(const struct lrnn_session * session, const char * path, FILE * file,
        const struct header * header, size_t * size, struct lrnn_error * err) {
    const int64_t  total    = file_size(file);
    const uint64_t expected = sizeof(*header) + header->n_bytes +
                              (header->has & HAS_LOGITS ? logits_size(session) : 0) +
                              (header->has & HAS_SAMPLER ? sizeof(struct saved_sampler) : 0) +
                              sizeof(uint64_t);
    if (total < 0 || (uint64_t) total != expected) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: the file has %" PRId64 " bytes; expected %" PRIu64,
                path, total, expected);
        return NULL;
    }
    *size          = (size_t) (expected - sizeof(*header));
    uint8_t * data = malloc(*size);
    if (data == NULL || fseek(file, sizeof(*header), SEEK_SET) != 0 ||
            fread(data, 1, *size, file) != *size) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: %zu bytes cannot be read", path, *size);
        free(data);
        return NULL;
    }
    uint64_t stored;
    memcpy(&stored, data + *size - sizeof(stored), sizeof(stored));
    const uint64_t sum =
            hash_add(hash_add(HASH_START, header, sizeof(*header)), data, *size - sizeof(stored));
    if (sum != stored) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: wrong checksum; the file is damaged", path);
        free(data);
        return NULL;
    }
    return data;
}

static bool check_header(struct lrnn_session * session, const char * path, const struct header * h,
        struct lrnn_error * err) {
    const uint64_t identity = session_model(session)->info.identity;
    const int64_t  most =
            session_max_length(session) < COUNT_MAX ? session_max_length(session) : COUNT_MAX;
    if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: not an lrnn state file", path);
    } else if (h->version != VERSION) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: state file version is %u; expected %d", path,
                h->version, VERSION);
    } else if (h->identity != identity) {
        error_set(err, LRNN_ERROR_BAD_FILE,
                "%s: saved from another model: its identity is %016" PRIx64
                "; expected %016" PRIx64,
                path, h->identity, identity);
    } else if (h->has > (HAS_LOGITS | HAS_SAMPLER)) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: the parts field is 0x%x; expected 0 to 3", path,
                h->has);
    } else if (h->cache_type >= N_CACHE_TYPES) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: the cache type is %u; expected 0 to %d", path,
                h->cache_type, N_CACHE_TYPES - 1);
    } else if (h->cache_type != cache_type_of(session)) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: the attention cache has the type %s; expected %s",
                path, ggml_type_name(CACHE_TYPES[h->cache_type]),
                ggml_type_name(CACHE_TYPES[cache_type_of(session)]));
    } else if (h->length < 0 || h->length > most) {
        error_set(err, LRNN_ERROR_BAD_FILE,
                "%s: the sequence has %" PRId64 " tokens; expected 0 to %" PRId64, path, h->length,
                most);
    } else {
        return true;
    }
    return false;
}

struct reader {
    const uint8_t * data;
};

static bool set_bytes(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    struct reader * r = user;
    ggml_backend_tensor_set(tensor, r->data, offset, size);
    r->data += size;
    return true;
}

// True if the numbers of a type in `data` are finite. A block of Q8_0 begins with its F16 scale.
static bool all_finite(enum ggml_type type, const uint8_t * data, size_t size) {
    const size_t step = ggml_type_size(type);
    for (size_t i = 0; i + step <= size; i += step) {
        float       x;
        ggml_fp16_t half;
        if (type == GGML_TYPE_F32) {
            memcpy(&x, data + i, sizeof(x));
        } else {
            memcpy(&half, data + i, sizeof(half));
            x = ggml_fp16_to_fp32(half);
        }
        if (!isfinite(x)) {
            return false;
        }
    }
    return true;
}

static bool check_bytes(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    struct reader * r = user;
    (void) offset;
    const bool ok = all_finite(tensor->type, r->data, size);
    r->data += size;
    return ok;
}

static bool check_sampler(
        const char * path, const struct saved_sampler * saved, struct lrnn_error * err) {
    if (saved->n_accepted < 0 || saved->n_accepted > COUNT_MAX) {
        return error_set(err, LRNN_ERROR_BAD_FILE,
                "%s: the sampler has accepted %" PRId64 " tokens; expected 0 to %" PRId64, path,
                saved->n_accepted, COUNT_MAX);
    }
    if (saved->random[0] == 0 &&
            saved->random[1] == 0) { // the generator would never leave this state
        return error_set(
                err, LRNN_ERROR_BAD_FILE, "%s: the random state of the sampler is zero", path);
    }
    return true;
}

// Copies logits from unaligned bytes.
static bool set_logits(struct lrnn_session * session, int32_t seq, const uint8_t * data,
        size_t size, struct lrnn_error * err) {
    float * logits = malloc(size);
    if (logits == NULL) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for %zu bytes of logits", size);
    }
    memcpy(logits, data, size);
    const bool ok = session_set_logits(session, seq, logits, err);
    free(logits);
    return ok;
}

bool lrnn_seq_load(struct lrnn_session * session, int32_t seq, struct lrnn_sampler * sampler,
        const char * path, struct lrnn_error * err) {
    if (!session_check_seq(session, seq, err)) {
        return false;
    }
    FILE * file = fopen(path, "rb");
    if (file == NULL) {
        return error_set(err, errno == ENOENT ? LRNN_ERROR_NOT_FOUND : LRNN_ERROR_SYSTEM,
                "%s: cannot be opened: %s", path, strerror(errno));
    }
    struct header header;
    bool          ok = fread(&header, 1, sizeof(header), file) == sizeof(header);
    if (!ok) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: too short for an lrnn state file", path);
    }
    ok = ok && check_header(session, path, &header, err);

    uint64_t n_bytes = 0;
    if (ok) {
        session_visit(session, seq, header.length, add_size, &n_bytes);
        ok = n_bytes == header.n_bytes;
        if (!ok) {
            error_set(err, LRNN_ERROR_BAD_FILE,
                    "%s: the state has %" PRIu64 " bytes; expected %" PRIu64, path, header.n_bytes,
                    n_bytes);
        }
    }
    size_t    size = 0;
    uint8_t * data = ok ? read_rest(session, path, file, &header, &size, err) : NULL;
    fclose(file);
    if (data == NULL) {
        return false;
    }
    const size_t         n_logits = header.has & HAS_LOGITS ? logits_size(session) : 0;
    struct saved_sampler saved    = { .random = { 1 } };
    if (header.has & HAS_SAMPLER) {
        memcpy(&saved, data + n_bytes + n_logits, sizeof(saved));
    }
    const bool finite =
            session_visit(session, seq, header.length, check_bytes, &(struct reader) { data });
    ok = finite && all_finite(GGML_TYPE_F32, data + n_bytes, n_logits);
    if (!ok) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: the %s not finite", path,
                finite ? "logits are" : "state is");
    }
    ok = ok && check_sampler(path, &saved, err);
    ok = ok && (n_logits == 0 || set_logits(session, seq, data + n_bytes, n_logits, err));
    if (!ok) {
        free(data);
        return false;
    }
    session_visit(session, seq, header.length, set_bytes, &(struct reader) { data });
    session_set_seq(session, seq, header.length, n_logits > 0);
    if (sampler != NULL && header.has & HAS_SAMPLER) {
        memcpy(sampler->random, saved.random, sizeof(saved.random));
        memcpy(sampler->recent, saved.recent, sizeof(saved.recent));
        sampler->n_accepted = saved.n_accepted;
    }
    free(data);
    return true;
}
