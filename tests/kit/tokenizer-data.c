#include "kit/tokenizer-data.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const uint8_t * p;
    const uint8_t * end;
    bool            ok;
};

static const uint8_t * take(struct reader * r, size_t n) {
    if (!r->ok || n > (size_t) (r->end - r->p)) {
        r->ok = false;
        return NULL;
    }
    const uint8_t * p = r->p;
    r->p += n;
    return p;
}

static uint32_t take_varint(struct reader * r) {
    uint32_t v = 0;
    for (int shift = 0; shift < 32; shift += 7) {
        const uint8_t * b = take(r, 1);
        if (b == NULL) {
            return 0;
        }
        v |= (uint32_t) (*b & 0x7F) << shift;
        if (*b < 0x80) {
            break;
        }
    }
    return v;
}

// A count of items of at least `size` bytes each, limited by the rest of the data.
static size_t take_count(struct reader * r, size_t size) {
    const size_t n = take_varint(r);
    r->ok = r->ok && n <= (size_t) (r->end - r->p) / size;
    return r->ok ? n : 0;
}

static int32_t take_i32(struct reader * r) {
    const uint8_t * p = take(r, 4);
    return p == NULL ? 0
                     : (int32_t) ((uint32_t) p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16 |
                                  (uint32_t) p[3] << 24);
}

static int take_i8(struct reader * r) {
    const uint8_t * p = take(r, 1);
    return p == NULL ? 0 : (int8_t) *p;
}

static struct slice take_string(struct reader * r) {
    const size_t    n = take_count(r, 1);
    const uint8_t * p = take(r, n);
    return p == NULL ? (struct slice) { "", 0 } : (struct slice) { (const char *) p, n };
}

// One allocation for everything. One byte of data needs less than 64 bytes of it.
struct arena {
    char * p;
};

static void * arena_take(struct arena * a, size_t size) {
    void * p = a->p;
    a->p += (size + 15) & ~(size_t) 15;
    return p;
}

static const char * arena_name(struct arena * a, struct slice text) { // NULL if empty
    if (text.size == 0) {
        return NULL;
    }
    char * s = arena_take(a, text.size + 1);
    memcpy(s, text.data, text.size);
    s[text.size] = '\0';
    return s;
}

static const struct slice * take_strings(struct reader * r, struct arena * a, size_t * n) {
    *n = take_count(r, 1);
    struct slice * s = arena_take(a, *n * sizeof(*s));
    for (size_t i = 0; i < *n; ++i) {
        s[i] = take_string(r);
    }
    return s;
}

static void take_case(struct reader * r, struct arena * a, struct tokenizer_case * c) {
    const int flags = take_i8(r);
    c->flags = (flags & 1 ? LRNN_TOKENIZE_ADD_BOS : 0u) |
               (flags & 2 ? LRNN_TOKENIZE_PARSE_SPECIAL : 0u);
    c->text = take_string(r);

    const size_t n = take_varint(r);
    c->refused = n == 0;
    c->n_ids = n > 0 ? n - 1 : 0;
    if (c->n_ids > (size_t) (r->end - r->p)) {
        r->ok = false;
        c->n_ids = 0;
    }
    int32_t * ids = arena_take(a, c->n_ids * sizeof(*ids));
    for (size_t i = 0; i < c->n_ids; ++i) {
        ids[i] = (int32_t) take_varint(r);
    }
    c->ids = ids;
}

bool tokenizer_data_read(struct tokenizer_data * t, const void * data, size_t size) {
    struct reader r = { data, (const uint8_t *) data + size, true };
    memset(t, 0, sizeof(*t));

    const uint8_t * magic = take(&r, 8);
    if (magic == NULL || memcmp(magic, "LRNNTOK1", 8) != 0) {
        return false;
    }
    struct arena a = { t->memory = malloc(64 * size + 1024) };
    if (t->memory == NULL) {
        return false;
    }
    struct tokenizer_def * def = &t->def;
    def->model = arena_name(&a, take_string(&r));
    def->pre = arena_name(&a, take_string(&r));
    def->normalizer = arena_name(&a, take_string(&r));
    def->bos_id = take_i32(&r);
    def->eos_id = take_i32(&r);
    def->unknown_id = take_i32(&r);
    def->padding_id = take_i32(&r);
    def->add_bos = take_i8(&r);
    def->add_eos = take_i8(&r);
    def->add_space_prefix = take_i8(&r);
    def->tokens = take_strings(&r, &a, &def->n_tokens);

    def->n_types = take_count(&r, 1);
    int32_t * types = arena_take(&a, def->n_types * sizeof(*types));
    for (size_t i = 0; i < def->n_types; ++i) {
        types[i] = take_i8(&r);
    }
    def->types = types;

    def->n_scores = take_count(&r, 4);
    float * scores = arena_take(&a, def->n_scores * sizeof(*scores));
    for (size_t i = 0; i < def->n_scores; ++i) {
        const int32_t bits = take_i32(&r);
        memcpy(&scores[i], &bits, sizeof(bits));
    }
    def->scores = scores;
    def->merges = take_strings(&r, &a, &def->n_merges);

    t->def_size = (size_t) (r.p - (const uint8_t *) data);
    t->n_cases = take_count(&r, 3);
    t->cases = arena_take(&a, t->n_cases * sizeof(*t->cases));
    for (size_t i = 0; i < t->n_cases; ++i) {
        take_case(&r, &a, &t->cases[i]);
        t->cases[i].end = (size_t) (r.p - (const uint8_t *) data);
    }
    if (!r.ok) {
        tokenizer_data_free(t);
    }
    return r.ok;
}

void tokenizer_data_free(struct tokenizer_data * t) {
    free(t->memory);
    memset(t, 0, sizeof(*t));
}
