// State files: a sequence, and what programs keep with it. All numbers are little-endian.
//
//     "lrnn-seq"   u32 version   u16 cache type after u16 parts:
//                  1 logits, 2 sampler, 4 tokens, 8 text, 16 draft block
//     u64 model identity   i64 number of tokens   u64 bytes of memory
//     the memory of the sequence, in the order of states_visit, without the draft block
//     if parts & 1: the logits of the last token, f32 [vocabulary]
//     if parts & 2: the sampler: u64 random[2]   i64 n_accepted   i32 recent[4096]
//     if parts & 4: i64 n, the number of tokens or one more   i32 tokens[n]
//     if parts & 8: u64 size   text
//     if parts & 16: u64 size   the memory of the draft block   i64 tokens that it has not seen
//     u64 FNV-1a checksum of everything before it
//
// A session without the draft block ignores its memory. If a file lacks it, the block sees nothing
// of the saved sequence, and drafts begin after the next token.
//
// The cache type is 0 (F32), 1 (F16) or 2 (Q8_0); 0 in models without attention layers.
//
// lrnn-server 0.2 wrote its named states differently. These are still read:
//
//     "lrnn-srv"   u32 version   u32 0   u64 model identity   i64 number of tokens, at least 1
//     u64 bytes of the memory before the last token   i32 tokens[]   the memory   u64 checksum
//
// The checksum detects damage, not malice: every value is checked as well.

#include "generate/state-file.h"

#include "base/atomic-file.h"
#include "base/error.h"
#include "base/hash.h"
#include "model/model.h"
#include "run/sampler.h"
#include "run/session.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[] = "lrnn-seq";
static const char MAGIC_SERVER[] = "lrnn-srv";

enum { VERSION = 1 };

enum {
    HAS_LOGITS = 1,
    HAS_SAMPLER = 2,
    HAS_TOKENS = 4,
    HAS_TEXT = 8,
    HAS_DRAFT = 16,
    HAS_ALL = 31,
};

// An upper bound for numbers of tokens, far from overflow.
static const int64_t COUNT_MAX = INT64_C(1) << 62;

static const enum ggml_type CACHE_TYPES[] = { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0 };

enum { N_CACHE_TYPES = sizeof(CACHE_TYPES) / sizeof(CACHE_TYPES[0]) };

struct header {
    char     magic[8];
    uint32_t version;
    uint16_t has;        // lrnn-srv: 0
    uint16_t cache_type; // index into CACHE_TYPES; lrnn-srv: 0
    uint64_t identity;
    int64_t  length;   // lrnn-srv: one more
    uint64_t n_memory; // bytes
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

// The number of the session's cache type in a file.
static uint16_t cache_type_of(const struct lrnn_session * session) {
    uint16_t i = 0;
    while (session->model->info.n_layer_attention > 0 && i + 1 < N_CACHE_TYPES &&
            CACHE_TYPES[i] != session->states.size.cache_format) {
        ++i;
    }
    return i;
}

static size_t logits_size(const struct lrnn_model_info * info) {
    return (size_t) info->n_vocab * sizeof(float);
}

// A copy made with malloc, of at least one byte. NULL: out of memory.
static void * copy_of(const void * data, size_t size) {
    void * copy = malloc(size > 0 ? size : 1);
    if (copy != NULL && size > 0) {
        memcpy(copy, data, size);
    }
    return copy;
}

void state_file_free(struct state_file * f) {
    free(f->memory);
    free(f->logits);
    free(f->sampler);
    free(f->tokens);
    buffer_free(&f->text);
    *f = (struct state_file) { 0 };
}

// ---- From a session -----------------------------------------------------------------------------

bool state_file_take(struct state_file * f, struct lrnn_session * session, int32_t seq,
        const struct lrnn_sampler * sampler, struct lrnn_error * err) {
    *f = (struct state_file) { 0 };
    if (!session_check_seq(session, seq, err)) {
        return false;
    }
    const float * logits = session_seq_logits(session, seq);
    f->length = lrnn_seq_length(session, seq);
    f->cache_format = cache_type_of(session);
    f->n_memory = session_bytes_of(session, f->length, &f->n_draft);
    f->memory = malloc(f->n_memory > 0 ? f->n_memory : 1);
    f->logits = logits != NULL ? copy_of(logits, logits_size(&session->model->info)) : NULL;
    f->sampler = sampler != NULL ? calloc(1, sizeof(*f->sampler)) : NULL;
    if (f->memory == NULL || (logits != NULL && f->logits == NULL) ||
            (sampler != NULL && f->sampler == NULL)) {
        state_file_free(f);
        return error_no_memory(err, "a copy of sequence %d", seq);
    }
    if (sampler != NULL) {
        memcpy(f->sampler->random, sampler->random, sizeof(sampler->random));
        memcpy(f->sampler->recent, sampler->recent, sizeof(sampler->recent));
        f->sampler->n_accepted = sampler->n_accepted;
    }
    if (!lrnn_seq_get(session, seq, f->memory, f->n_memory, err)) {
        state_file_free(f);
        return false;
    }
    return true;
}

bool state_file_set_tokens(
        struct state_file * f, const int32_t * tokens, int64_t n, struct lrnn_error * err) {
    f->tokens = copy_of(tokens, (size_t) n * sizeof(*tokens));
    f->n_tokens = f->tokens != NULL ? n : 0;
    return f->tokens != NULL || error_no_memory(err, "%" PRId64 " tokens", n);
}

// ---- Writing ------------------------------------------------------------------------------------

struct writer {
    struct atomic_file  file;
    uint64_t            sum;
    bool                ok;
    struct lrnn_error * err;
};

static void put(struct writer * w, const void * data, size_t size) {
    if (size > 0) {
        w->ok = w->ok && atomic_file_write(&w->file, data, size, w->err);
        w->sum = hash_add(w->sum, data, size);
    }
}

bool state_file_may_replace(const char * path, struct lrnn_error * err) {
    return atomic_file_may_replace(path, MAGIC_SERVER, "", NULL) ||
           atomic_file_may_replace(path, MAGIC, "a state file", err);
}

bool state_file_write(const struct state_file * f, const char * path,
        const struct lrnn_model_info * info, struct lrnn_error * err) {
    struct header header = {
        .version = VERSION,
        .has = (uint16_t) ((f->logits != NULL ? HAS_LOGITS : 0) |
                           (f->sampler != NULL ? HAS_SAMPLER : 0) |
                           (f->tokens != NULL ? HAS_TOKENS : 0) | (f->text.n > 0 ? HAS_TEXT : 0) |
                           (f->n_draft > 0 ? HAS_DRAFT : 0)),
        .cache_type = f->cache_format,
        .identity = info->identity,
        .length = f->length,
        .n_memory = f->n_memory - f->n_draft,
    };
    const uint64_t n_text = f->text.n, n_draft = f->n_draft;
    struct writer  w = { .sum = HASH_START, .ok = true, .err = err };
    memcpy(header.magic, MAGIC, sizeof(header.magic));
    if (!state_file_may_replace(path, err) || !atomic_file_open(&w.file, path, err)) {
        return false;
    }
    put(&w, &header, sizeof(header));
    put(&w, f->memory, header.n_memory);
    put(&w, f->logits, f->logits != NULL ? logits_size(info) : 0);
    put(&w, f->sampler, f->sampler != NULL ? sizeof(*f->sampler) : 0);
    if (f->tokens != NULL) {
        put(&w, &f->n_tokens, sizeof(f->n_tokens));
        put(&w, f->tokens, (size_t) f->n_tokens * sizeof(*f->tokens));
    }
    if (n_text > 0) {
        put(&w, &n_text, sizeof(n_text));
        put(&w, f->text.data, f->text.n);
    }
    if (n_draft > 0) {
        put(&w, &n_draft, sizeof(n_draft));
        put(&w, (const uint8_t *) f->memory + header.n_memory, f->n_draft);
    }
    const uint64_t sum = w.sum;
    put(&w, &sum, sizeof(sum));
    if (!w.ok) {
        atomic_file_cancel(&w.file);
        return false;
    }
    return atomic_file_commit(&w.file, err);
}

bool lrnn_seq_save(struct lrnn_session * session, int32_t seq, const struct lrnn_sampler * sampler,
        const char * path, struct lrnn_error * err) {
    struct state_file f;
    if (!state_file_take(&f, session, seq, sampler, err)) {
        return false;
    }
    const bool ok = state_file_write(&f, path, &session->model->info, err);
    state_file_free(&f);
    return ok;
}

// ---- Reading: nothing of the file is believed before it was checked -----------------------------

static bool is_of_server(const struct header * h) {
    return memcmp(h->magic, MAGIC_SERVER, sizeof(h->magic)) == 0;
}

static int64_t length_of(const struct header * h) {
    return h->length > 0 ? h->length - is_of_server(h) : h->length;
}

static bool check_header(const char * path, const struct header * h,
        const struct lrnn_model_info * info, struct lrnn_error * err) {
    const bool is_server = is_of_server(h);
    if (!is_server && memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0) {
        return error_bad_file(err, "%s: not an lrnn state file", path);
    }
    if (h->version != VERSION) {
        return error_bad_file(
                err, "%s: state file version is %u; expected %d", path, h->version, VERSION);
    }
    if (h->identity != info->identity) {
        return error_bad_file(err,
                "%s: saved from another model: its identity is %016" PRIx64
                "; expected %016" PRIx64,
                path, h->identity, info->identity);
    }
    if (h->has > (is_server ? 0 : HAS_ALL)) {
        return error_bad_file(err, "%s: the parts field is 0x%x; expected 0 to %d", path, h->has,
                is_server ? 0 : HAS_ALL);
    }
    if (h->cache_type >= N_CACHE_TYPES) {
        return error_bad_file(err, "%s: the cache type is %u; expected 0 to %d", path,
                h->cache_type, N_CACHE_TYPES - 1);
    }
    return true;
}

// Checks what a session must have to hold the state.
// - n_memory: without the draft block
static bool check_fit(const char * path, int64_t length, uint16_t cache_type, uint64_t n_memory,
        struct lrnn_session * session, struct lrnn_error * err) {
    const int64_t most =
            session_max_length(session) < COUNT_MAX ? session_max_length(session) : COUNT_MAX;
    size_t n_draft;
    if (cache_type != STATE_FILE_ANY_CACHE && cache_type != cache_type_of(session)) {
        return error_bad_file(err, "%s: the attention cache has the type %s; expected %s", path,
                ggml_type_name(CACHE_TYPES[cache_type]),
                ggml_type_name(CACHE_TYPES[cache_type_of(session)]));
    }
    if (length < 0 || length > most) {
        return error_bad_file(err,
                "%s: the sequence has %" PRId64 " tokens; expected 0 to %" PRId64, path, length,
                most);
    }
    const uint64_t expected = session_bytes_of(session, length, &n_draft) - n_draft;
    return expected == n_memory ||
           error_bad_file(err, "%s: the state has %" PRIu64 " bytes; expected %" PRIu64, path,
                   n_memory, expected);
}

// The next part of a file.
struct reader {
    const uint8_t * at;
    const uint8_t * end; // before the checksum
};

// Takes the next bytes. NULL: fewer are left.
static const uint8_t * next(struct reader * r, uint64_t size) {
    const uint8_t * part = r->at;
    if ((uint64_t) (r->end - r->at) < size) {
        return NULL;
    }
    r->at += size;
    return part;
}

// The number before a part of variable size; -1: missing, or more than the rest of the file.
static int64_t next_count(struct reader * r) {
    int64_t         n = -1;
    const uint8_t * part = next(r, sizeof(n));
    if (part != NULL) {
        memcpy(&n, part, sizeof(n));
    }
    return n >= 0 && n <= r->end - r->at ? n : -1;
}

// The parts of a file, as pointers into it; NULL: absent.
struct parts {
    const uint8_t * memory;
    const uint8_t * logits;
    const uint8_t * sampler;
    const uint8_t * tokens;
    const uint8_t * text;
    const uint8_t * draft;
    int64_t         n_tokens, n_text, n_draft;
};

// Finds the parts. False: the size of the file is wrong. Sets *expected to the size of the parts
// that are known, with the header and the checksum.
static bool find_parts(const struct header * h, const struct lrnn_model_info * info,
        struct reader r, struct parts * p, uint64_t * expected) {
    const uint64_t n_logits = h->has & HAS_LOGITS ? logits_size(info) : 0;
    const uint64_t n_sampler = h->has & HAS_SAMPLER ? sizeof(struct saved_sampler) : 0;
    uint64_t       n_tokens = 0;
    *p = (struct parts) { 0 };
    *expected = sizeof(*h) + h->n_memory + n_logits + n_sampler + sizeof(uint64_t);
    if (is_of_server(h)) {
        p->n_tokens = h->length;
        n_tokens = (uint64_t) h->length * sizeof(int32_t);
        *expected += n_tokens;
        p->tokens = h->length > 0 && h->length <= r.end - r.at ? next(&r, n_tokens) : NULL;
    }
    p->memory = next(&r, h->n_memory);
    p->logits = p->memory != NULL ? next(&r, n_logits) : NULL;
    p->sampler = p->logits != NULL ? next(&r, n_sampler) : NULL;
    if (p->sampler == NULL) {
        return false;
    }
    if (h->has & HAS_TOKENS) {
        p->n_tokens = next_count(&r);
        p->tokens = p->n_tokens >= 0 ? next(&r, (uint64_t) p->n_tokens * sizeof(int32_t)) : NULL;
    }
    if (h->has & HAS_TEXT) {
        p->n_text = next_count(&r);
        p->text = p->n_text >= 0 ? next(&r, (uint64_t) p->n_text) : NULL;
    }
    if (h->has & HAS_DRAFT) {
        p->n_draft = next_count(&r);
        p->draft = p->n_draft >= 0 ? next(&r, (uint64_t) p->n_draft) : NULL;
    }
    return r.at == r.end && (p->tokens != NULL || !(h->has & HAS_TOKENS || is_of_server(h))) &&
           (p->text != NULL || !(h->has & HAS_TEXT)) && (p->draft != NULL || !(h->has & HAS_DRAFT));
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

static bool check_sampler(
        const char * path, const struct saved_sampler * saved, struct lrnn_error * err) {
    if (saved->n_accepted < 0 || saved->n_accepted > COUNT_MAX) {
        return error_bad_file(err,
                "%s: the sampler has accepted %" PRId64 " tokens; expected 0 to %" PRId64, path,
                saved->n_accepted, COUNT_MAX);
    }
    if (saved->random[0] == 0 &&
            saved->random[1] == 0) { // the generator would never leave this state
        return error_bad_file(err, "%s: the random state of the sampler is zero", path);
    }
    return true;
}

static bool check_tokens(const char * path, const struct state_file * f,
        const struct lrnn_model_info * info, struct lrnn_error * err) {
    if (f->n_tokens != f->length && f->n_tokens != f->length + 1) {
        return error_bad_file(err,
                "%s: the file has %" PRId64 " tokens; expected %" PRId64 " or one more", path,
                f->n_tokens, f->length);
    }
    for (int64_t i = 0; i < f->n_tokens; ++i) {
        if (f->tokens[i] < 0 || f->tokens[i] >= info->n_vocab) {
            return error_bad_file(err,
                    "%s: token %" PRId64 " is %" PRId32 "; expected 0 to %" PRId64, path, i,
                    f->tokens[i], info->n_vocab - 1);
        }
    }
    return true;
}

// Copies the parts of a file, and checks the values that need no session.
static bool copy_parts(struct state_file * f, const char * path, const struct header * h,
        const struct parts * p, const struct lrnn_model_info * info, struct lrnn_error * err) {
    f->n_draft = (size_t) p->n_draft;
    f->n_memory = (size_t) h->n_memory + f->n_draft;
    f->memory = malloc(f->n_memory > 0 ? f->n_memory : 1);
    f->cache_format = is_of_server(h) ? STATE_FILE_ANY_CACHE : h->cache_type;
    bool ok = f->memory != NULL;
    if (ok) {
        memcpy(f->memory, p->memory, (size_t) h->n_memory);
        if (p->draft != NULL) {
            memcpy((uint8_t *) f->memory + h->n_memory, p->draft, f->n_draft);
        }
    }
    if (h->has & HAS_LOGITS) {
        f->logits = copy_of(p->logits, logits_size(info));
        ok = ok && f->logits != NULL;
    }
    if (h->has & HAS_SAMPLER) {
        f->sampler = copy_of(p->sampler, sizeof(*f->sampler));
        ok = ok && f->sampler != NULL;
    }
    if (p->tokens != NULL) {
        f->n_tokens = p->n_tokens;
        f->tokens = copy_of(p->tokens, (size_t) p->n_tokens * sizeof(int32_t));
        ok = ok && f->tokens != NULL;
    }
    ok = ok && (p->n_text == 0 || buffer_append(&f->text, p->text, (size_t) p->n_text));
    if (!ok) {
        return error_no_memory(err, "%s", path);
    }
    if (f->logits != NULL && !all_finite(GGML_TYPE_F32, p->logits, logits_size(info))) {
        return error_bad_file(err, "%s: the logits are not finite", path);
    }
    return (f->sampler == NULL || check_sampler(path, f->sampler, err)) &&
           (f->tokens == NULL || check_tokens(path, f, info, err));
}

// Reads what follows the header, with the checksum; NULL on failure.
static uint8_t * read_rest(FILE * file, const char * path, int64_t size, struct lrnn_error * err) {
    const size_t n = (size_t) size - sizeof(struct header);
    uint8_t *    data = malloc(n > 0 ? n : 1);
    if (data == NULL || fread(data, 1, n, file) != n) {
        error_set(err, data == NULL ? LRNN_ERROR_NO_MEMORY : LRNN_ERROR_BAD_FILE,
                "%s: %zu bytes cannot be read", path, n);
        free(data);
        return NULL;
    }
    return data;
}

// Checks the file after its header.
static bool check_rest(struct state_file * f, const char * path, const struct header * h,
        const uint8_t * data, int64_t size, const struct lrnn_model_info * info,
        struct lrnn_error * err) {
    const int64_t n = size - (int64_t) (sizeof(*h) + sizeof(uint64_t)); // of the parts
    uint64_t      stored = 0, expected = 0;
    struct parts  parts;
    if (!find_parts(h, info, (struct reader) { data, data + (n > 0 ? n : 0) }, &parts, &expected)) {
        const char * more = h->has & (HAS_TOKENS | HAS_TEXT) ? ", tokens and text" : "";
        return error_bad_file(err, "%s: the file has %" PRId64 " bytes; expected %" PRIu64 "%s",
                path, size, expected, more);
    }
    memcpy(&stored, data + n, sizeof(stored));
    if (hash_add(hash_add(HASH_START, h, sizeof(*h)), data, (size_t) n) != stored) {
        return error_bad_file(err, "%s: wrong checksum; the file is damaged", path);
    }
    return copy_parts(f, path, h, &parts, info, err);
}

// Opens a file and reads its header. NULL: error.
static FILE * open_file(const char * path, const struct lrnn_model_info * info,
        struct header * header, int64_t * size, struct lrnn_error * err) {
    struct stat st;
    const int   fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // it may be a pipe
    FILE *      file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (file == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        error_system(err, "%s: cannot be opened", path);
        return NULL;
    }
    bool ok = fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode);
    if (!ok) {
        error_bad_file(err, "%s: not a regular file", path);
    } else if (fread(header, sizeof(*header), 1, file) != 1) {
        ok = error_bad_file(err, "%s: too short for an lrnn state file", path);
    } else {
        *size = (int64_t) st.st_size;
        ok = check_header(path, header, info, err);
    }
    if (!ok) {
        fclose(file);
        return NULL;
    }
    return file;
}

static bool check_header_fit(const char * path, const struct header * h,
        struct lrnn_session * session, struct lrnn_error * err) {
    return check_fit(path, length_of(h), is_of_server(h) ? STATE_FILE_ANY_CACHE : h->cache_type,
            h->n_memory, session, err);
}

static bool check_bytes(struct ggml_tensor * tensor, size_t offset, size_t size, void * user) {
    const uint8_t * data = next(user, size);
    (void) offset;
    return data == NULL || all_finite(tensor->type, data, size); // NULL: of the draft block
}

// Checks the memory of a file against the session that will have it.
static bool check_memory(struct state_file * f, const char * path, struct lrnn_session * session,
        struct lrnn_error * err) {
    struct reader r = { f->memory, (uint8_t *) f->memory + f->n_memory };
    size_t        n_draft;
    int64_t       unseen = 0;
    session_bytes_of(session, f->length, &n_draft);
    if (n_draft == 0) { // the session has no draft block
        f->n_memory -= f->n_draft;
        f->n_draft = 0;
    }
    if (f->n_draft > 0 && f->n_draft != n_draft) {
        return error_bad_file(
                err, "%s: the draft block has %zu bytes; expected %zu", path, f->n_draft, n_draft);
    }
    if (f->n_draft > 0) {
        memcpy(&unseen, r.end - sizeof(unseen), sizeof(unseen));
    }
    if (unseen < 0 || unseen > f->length) {
        return error_bad_file(err,
                "%s: the draft block has not seen %" PRId64 " tokens; expected 0 to %" PRId64, path,
                unseen, f->length);
    }
    return states_visit(&session->states, session->model, 0, f->length, check_bytes, &r) ||
           error_bad_file(err, "%s: the state is not finite", path);
}

bool state_file_read(struct state_file * f, const char * path, struct lrnn_session * session,
        struct lrnn_error * err) {
    const struct lrnn_model_info * info = &session->model->info;
    struct header                  header;
    int64_t                        size = 0;
    FILE *                         file = open_file(path, info, &header, &size, err);
    uint8_t *                      data = NULL;
    *f = (struct state_file) { 0 };
    if (file == NULL) {
        return false;
    }
    f->length = length_of(&header);
    bool ok = check_header_fit(path, &header, session, err);
    if (ok) {
        data = read_rest(file, path, size, err);
        ok = data != NULL && check_rest(f, path, &header, data, size, info, err) &&
             check_memory(f, path, session, err);
    }
    free(data);
    fclose(file);
    if (!ok) {
        state_file_free(f);
    }
    return ok;
}

int64_t state_file_count_tokens(
        const char * path, struct lrnn_session * session, struct lrnn_error * err) {
    const struct lrnn_model_info * info = &session->model->info;
    struct header                  header;
    int64_t                        size = 0, n = -1;
    FILE *                         file = open_file(path, info, &header, &size, err);
    if (file == NULL) {
        return -1;
    }
    const uint64_t before = sizeof(header) + header.n_memory +
                            (header.has & HAS_LOGITS ? logits_size(info) : 0) +
                            (header.has & HAS_SAMPLER ? sizeof(struct saved_sampler) : 0);
    if (!check_header_fit(path, &header, session, err) || header.n_memory > (uint64_t) size ||
            before + sizeof(uint64_t) > (uint64_t) size) {
        n = -1;
    } else if (!(header.has & HAS_TOKENS)) {
        n = header.length;
    } else if (fseek(file, (long) before, SEEK_SET) != 0 || fread(&n, sizeof(n), 1, file) != 1) {
        n = -1;
    }
    fclose(file);
    return n;
}

// ---- Into a session -----------------------------------------------------------------------------

bool state_file_put(const struct state_file * f, struct lrnn_session * session, int32_t seq,
        struct lrnn_sampler * sampler, const char * path, struct lrnn_error * err) {
    const uint64_t n_memory = f->n_memory - f->n_draft;
    if (!session_check_seq(session, seq, err) ||
            !check_fit(path, f->length, f->cache_format, n_memory, session, err) ||
            !session_reserve_logits(session, 1, err) ||
            !lrnn_seq_set(session, seq, f->length, f->memory, f->n_memory, err)) {
        return false;
    }
    if (f->logits != NULL) {
        session_set_logits(session, seq, f->logits, err);
    }
    if (sampler != NULL && f->sampler != NULL) {
        memcpy(sampler->random, f->sampler->random, sizeof(sampler->random));
        memcpy(sampler->recent, f->sampler->recent, sizeof(sampler->recent));
        sampler->n_accepted = f->sampler->n_accepted;
    }
    return true;
}

bool state_file_restore(const struct state_file * f, struct lrnn_session * session, int32_t seq,
        struct lrnn_sampler * sampler, const char * path, struct lrnn_error * err) {
    if (f->n_tokens > session_max_length(session)) {
        return error_bad_file(err,
                "%s: the sequence has %" PRId64 " tokens; expected 0 to %" PRId64, path,
                f->n_tokens, session_max_length(session));
    }
    if (!state_file_put(f, session, seq, sampler, path, err)) {
        return false;
    }
    if (f->n_tokens <= f->length) {
        return true;
    }
    const struct lrnn_input last = { seq, f->tokens + f->length, 1, 1 };
    return lrnn_eval(session, &last, 1, err);
}

bool lrnn_seq_load(struct lrnn_session * session, int32_t seq, struct lrnn_sampler * sampler,
        const char * path, struct lrnn_error * err) {
    struct state_file f;
    if (!session_check_seq(session, seq, err) || !state_file_read(&f, path, session, err)) {
        return false;
    }
    const bool ok = state_file_restore(&f, session, seq, sampler, path, err);
    state_file_free(&f);
    return ok;
}
