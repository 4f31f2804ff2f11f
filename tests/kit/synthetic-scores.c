#include "kit/synthetic-scores.h"

#include "lrnn.h"
#include "base/hash.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A pseudo-random number that depends only on its arguments.
static uint64_t mix(uint64_t a, uint64_t b) {
    return hash_mix(a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019));
}

static double normal(uint64_t bits) {
    return sqrt(-2.0 * log(1.0 - random_unit(mix(bits, 1)))) *
           cos(6.283185307179586 * random_unit(mix(bits, 2)));
}

static uint64_t hash_text(const char * text) {
    uint64_t h = 1;
    for (const char * p = text; *p != '\0'; ++p) {
        h = mix(h, (unsigned char) *p);
    }
    return h;
}

// The stream of tokens, and the current position.
struct stream {
    const struct synthetic * s;
    uint64_t                 data, tokenizer;
    int64_t                  document, byte, size;
    bool                     at_bos;
};

struct token {
    int64_t document, byte;
    int64_t n_bytes;
    double  cost;
};

static int64_t document_size(const struct stream * st, int64_t document) {
    const int64_t about = st->s->doc_bytes > 0 ? st->s->doc_bytes : 4000;
    return about / 2 + (int64_t) (mix(st->data, (uint64_t) document) % (uint64_t) about);
}

static struct token next_token(struct stream * st) {
    if (st->byte == st->size) {
        st->document++;
        st->byte = 0;
        st->size = document_size(st, st->document);
        st->at_bos = true;
    }
    struct token t = { st->document, st->byte, 0, 0.0 };
    if (st->at_bos) {
        st->at_bos = false;
        return t;
    }
    const uint64_t place = mix(mix(st->data, (uint64_t) st->document), (uint64_t) st->byte);
    const double   level =
            st->s->level *
            exp(st->s->spread * normal(mix(st->data, 1000000 + (uint64_t) st->document)));
    t.n_bytes = 1 + (int64_t) (mix(st->tokenizer, place) % 8);
    t.n_bytes = t.n_bytes > st->size - st->byte ? st->size - st->byte : t.n_bytes;
    for (int64_t i = 0; i < t.n_bytes; ++i) {
        t.cost += level * (0.5 + random_unit(mix(mix(st->data, (uint64_t) st->document),
                                         (uint64_t) (st->byte + i) + 77)));
    }
    st->byte += t.n_bytes;
    return t;
}

static const char * or_default(const char * text, const char * otherwise) {
    return text != NULL ? text : otherwise;
}

static struct score_meta make_meta(const struct synthetic * s) {
    return (struct score_meta) {
        .tool = "synthetic",
        .model = or_default(s->model, "model"),
        .model_hash = or_default(s->model, "model"),
        .model_family = "delta-net",
        .eigenvalues = "[-1,1]",
        .quantization = or_default(s->quantization, "f32"),
        .parameters = 340000000,
        .trained_length = s->trained_length,
        .n_vocab = 32000,
        .tokenizer_hash = or_default(s->tokenizer, "t0"),
        .dataset = or_default(s->dataset, "text"),
        .data_fingerprint = or_default(s->fingerprint, or_default(s->dataset, "d0")),
        .template = "{text}",
        .files = "a.jsonl\tb.jsonl",
        .sources = or_default(s->sources, ""),
        .records = 100,
        .documents = 100,
        .complaints = "",
        .protocol = "custom",
        .mode = or_default(s->mode, "packed"),
        .bos = "doc",
        .eos = "none",
        .reset = or_default(s->reset, "window"),
        .window = s->window,
        .min_doc_tokens = s->window,
        .same_targets = or_default(s->same_targets, ""),
        .probe = s->norm > 0.0 ? "state-norm" : "",
        .n_batch = 512,
        .group = s->group > 0 ? s->group : 1,
        .n_windows = s->n_windows,
        .shard = s->shard > 0 ? s->shard : 1,
        .n_shards = s->n_shards > 0 ? s->n_shards : 1,
    };
}

static int count_sources(const char * list) {
    int n = list[0] != '\0';
    for (const char * p = list; *p != '\0'; ++p) {
        n += *p == '\t';
    }
    return n;
}

static double nll_of(
        const struct synthetic * s, const struct token * t, int64_t position, int64_t window) {
    const double beyond = s->trained_length > 0 && position > s->trained_length
                                  ? log2((double) position / (double) s->trained_length)
                                  : 0.0;
    const bool   is_nan = s->nan_position > 0 && position >= s->nan_position &&
                        (s->nan_window == 0 ? window == 0 : window % s->nan_window == 0);
    if (is_nan) {
        return NAN;
    }
    if (s->uniform > 0.0) {
        return s->uniform;
    }
    const double wobble =
            s->wobble * normal(mix(hash_text(or_default(s->model, "model")), (uint64_t) window));
    return t->n_bytes == 0 ? 0.0
                           : t->cost * (1.0 + s->warm / (1.0 + (double) position / 64.0)) +
                                     s->rise * beyond + s->shift + wobble;
}

// The arrays of one window.
struct buffers {
    float *              nll;
    uint16_t *           bytes;
    uint8_t *            flags;
    struct window_span * spans;
    struct score_norm    norms[32];
};

static void fill_window(struct stream * st, int64_t index, int64_t n_tokens, struct buffers * b,
        struct score_window * w) {
    const struct synthetic * s = st->s;
    const int                n_sources = count_sources(or_default(s->sources, ""));
    *w = (struct score_window) { .index = index,
        .n_targets = n_tokens - 1,
        .nll = b->nll,
        .bytes = b->bytes,
        .flags = b->flags,
        .spans = b->spans,
        .norms = b->norms };
    for (int64_t at = 64; at <= n_tokens && s->norm > 0.0; at *= 2) {
        b->norms[w->n_norms++] = (struct score_norm) { at, (int32_t) (index % 3),
            (float) (s->norm * (double) ((1 + index) * at)) };
    }
    for (int64_t t = 0; t < n_tokens; ++t) {
        const struct token token = next_token(st);
        if (w->n_spans == 0 || b->spans[w->n_spans - 1].document != token.document) {
            b->spans[w->n_spans++] = (struct window_span) { .first = t,
                .document = token.document,
                .byte = token.byte,
                .source = n_sources > 0 ? (int32_t) (token.document % n_sources) : -1,
                .file = (int32_t) (token.document % 2) };
        }
        if (t > 0) {
            b->nll[t - 1] = (float) nll_of(s, &token, t, index);
            b->bytes[t - 1] = (uint16_t) token.n_bytes;
            b->flags[t - 1] = (uint8_t) (SCORE_COUNTED | (b->nll[t - 1] < 1.0f ? SCORE_TOP1 : 0));
        }
    }
}

static bool write_windows(const struct synthetic * s, const struct score_meta * meta,
        struct score_writer * writer, struct buffers * b, struct lrnn_error * err) {
    struct stream st = { .s = s,
        .data = hash_text(meta->data_fingerprint),
        .tokenizer = hash_text(meta->tokenizer_hash),
        .document = -1 };
    int64_t       first, end, n_written = 0;
    score_shard_range(meta, &first, &end);
    for (int64_t i = 0; i < end; ++i) {
        const int64_t n_tokens = s->short_every > 0 && i % s->short_every == s->short_every - 1
                                         ? s->window / 2
                                         : s->window;
        struct score_window w;
        fill_window(&st, i, n_tokens, b, &w);
        if (i < first || (s->n_write > 0 && n_written == s->n_write)) {
            continue;
        }
        if (!score_writer_append(writer, &w, err)) {
            return false;
        }
        n_written++;
    }
    return true;
}

bool synthetic_write(const struct synthetic * s, const char * path, struct lrnn_error * err) {
    const struct score_meta meta = make_meta(s);
    struct score_writer *   writer = score_writer_open(path, &meta, NULL, err);
    const size_t            n = (size_t) s->window;
    struct buffers          b = { malloc(n * sizeof(*b.nll)), malloc(n * sizeof(*b.bytes)),
                 malloc(n * sizeof(*b.flags)), malloc(n * sizeof(*b.spans)), { { 0 } } };
    bool ok = writer != NULL && b.nll != NULL && b.bytes != NULL && b.flags != NULL &&
              b.spans != NULL;

    ok = ok && write_windows(s, &meta, writer, &b, err);
    if (writer != NULL) {
        ok = score_writer_close(writer, err) && ok;
    }
    free(b.nll);
    free(b.bytes);
    free(b.flags);
    free(b.spans);
    return ok;
}
