#include "scan-tiles.h"

static int64_t tiles_of(const struct scan_dims * dims) {
    return (dims->d_v + TILE - 1) / TILE;
}

int64_t tile_scan_segment(const struct scan_dims * dims) {
    const int64_t factors = dims->d_v > SEGMENT_WIDE ? SEGMENT_FACTORS_WIDE : SEGMENT_FACTORS;
    return dims->n_h < factors ? factors / dims->n_h : 1;
}

// Offsets into the work buffer of a thread.
struct layout {
    int64_t S;           // [tile][d_k][TILE]
    int64_t before;      // [d_k][TILE]   a tile before a detour
    int64_t x[COLS_MAX]; // [tokens][factors][TILE]
    int64_t y;           // [tokens][TILE]
    int64_t prep;
};

static struct layout layout_of(const struct scan_dims * dims) {
    const int64_t columns = TILE * tiles_of(dims);
    const int64_t tokens = tile_scan_segment(dims);
    struct layout l;
    l.S = 0;
    l.before = l.S + dims->d_k * columns;
    l.x[0] = l.before + dims->d_k * TILE;
    l.x[1] = l.x[0] + tokens * dims->n_h * TILE;
    l.y = l.x[1] + tokens * dims->n_h * TILE;
    l.prep = l.y + tokens * TILE;
    return l;
}

int64_t tile_scan_floats(const struct scan_dims * dims, int64_t prep_floats) {
    return (layout_of(dims).prep + prep_floats + VEC - 1) / VEC * VEC;
}

// ---- Packing a batch ----------------------------------------------------------------------------

void scan_pack_rows(float * packed, const struct tokens * x, int64_t h, int64_t n_factors,
        int64_t t0, int64_t t1, int64_t width) {
    for (int64_t t = t0; t < t1; ++t) {
        for (int64_t f = 0; f < n_factors; ++f) {
            row_copy(packed, tokens_row(x, h, f, t), width);
            packed += width;
        }
    }
}

static int64_t tile_cols(const struct scan_dims * dims, int64_t tile) {
    return dims->d_v - tile * TILE < TILE ? dims->d_v - tile * TILE : TILE;
}

// The columns of a tile in input c. They are used in place, unless the tile is not full or the rows
// are not at equal distances: then they are packed, and columns beyond d_v are zero.
static void cols_pack(struct tile * tile, int c, const struct tokens * x,
        const struct scan_dims * dims, float * packed) {
    const size_t nb = dims->n_h > 1 ? x->nb_factor : x->nb_token;
    const bool   even = dims->n_h == 1 || x->nb_token == (size_t) dims->n_h * x->nb_factor;
    if (tile->cols == TILE && even) {
        tile->x[c] = tokens_row(x, tile->h, 0, tile->t0) + tile->col;
        tile->x_row[c] = (int64_t) (nb / sizeof(float));
        return;
    }
    tile->x[c] = packed;
    tile->x_row[c] = TILE;
    for (int64_t t = tile->t0; t < tile->t1; ++t) {
        for (int64_t f = 0; f < dims->n_h; ++f, packed += TILE) {
            memset(packed, 0, TILE * sizeof(float));
            memcpy(packed, tokens_row(x, tile->h, f, t) + tile->col,
                    (size_t) tile->cols * sizeof(float));
        }
    }
}

static void cols_unpack(
        const struct tile * tile, struct ggml_tensor * dst, const struct scan_dims * dims) {
    const float * packed = tile->y;
    for (int64_t t = tile->t0; t < tile->t1; ++t, packed += TILE) {
        memcpy((float *) dst->data + (t * dims->n_head + tile->h) * dims->d_v + tile->col, packed,
                (size_t) tile->cols * sizeof(float));
    }
}

// ---- Copying a state to its tiles and back ------------------------------------------------------

static void tile_load(
        const struct tile * tile, const float * state, const struct scan_dims * dims) {
    const float * from = state + tile->col;
    if (tile->cols == TILE) {
        for (int64_t i = 0; i < dims->d_k; ++i) {
            vec2_store(tile->S + i * TILE, vec2_load(from + i * dims->d_v));
        }
    } else {
        memset(tile->S, 0, (size_t) (dims->d_k * TILE) * sizeof(float));
        for (int64_t i = 0; i < dims->d_k; ++i) {
            memcpy(tile->S + i * TILE, from + i * dims->d_v, (size_t) tile->cols * sizeof(float));
        }
    }
}

static void tile_store(const struct tile * tile, float * state, const struct scan_dims * dims) {
    float * to = state + tile->col;
    if (tile->cols == TILE) {
        for (int64_t i = 0; i < dims->d_k; ++i) {
            vec2_store(to + i * dims->d_v, vec2_load(tile->S + i * TILE));
        }
    } else {
        for (int64_t i = 0; i < dims->d_k; ++i) {
            memcpy(to + i * dims->d_v, tile->S + i * TILE, (size_t) tile->cols * sizeof(float));
        }
    }
}

// Stores the state after all but the last `back` tokens: in slot_out, or in a snapshot slot, if
// there is one.
static void tile_keep(const struct tile * tile, const struct ggml_tensor * dst,
        const struct scan_dims * dims, const struct scan_seq * seq, int64_t back) {
    const int64_t slot = back == 0              ? seq->slot_out
                         : back <= dims->n_snap ? seq->snaps[back - 1]
                                                : -1;
    if (slot >= 0) {
        tile_store(tile, slot_head(dst, slot, tile->h, dims->head_size), dims);
    }
}

// ---- Fetching the next segment ------------------------------------------------------------------

// The tokens t0 .. t1 − 1 of head h.
static struct tile_prefetch prefetch_get(const struct tile_scan * scan,
        const struct ggml_tensor * dst, int64_t h, int64_t t0, int64_t t1) {
    const struct scan_dims * dims = &scan->dims;
    struct tile_prefetch     prefetch = { .tokens = t1 - t0 };
    for (; prefetch.n_inputs < INPUTS_MAX && scan->inputs[prefetch.n_inputs].width > 0;
            ++prefetch.n_inputs) {
        const struct input * x = &scan->inputs[prefetch.n_inputs];
        prefetch.input[prefetch.n_inputs] = (struct prefetch_rows) {
            .data = (const char *) tokens_row(&x->tokens, h, 0, t0),
            .nb_token = x->tokens.nb_token,
            .nb_row = x->tokens.nb_factor,
            .rows = x->rows,
            .width = x->width,
        };
    }
    const size_t row = (size_t) dims->d_v * sizeof(float);
    prefetch.input[prefetch.n_inputs++] = (struct prefetch_rows) {
        .data = (const char *) dst->data + (size_t) (t0 * dims->n_head + h) * row,
        .nb_token = (size_t) dims->n_head * row,
        .rows = 1,
        .width = dims->d_v,
    };
    return prefetch;
}

// ---- Tasks: one sequence, one head, a run of adjacent tiles -------------------------------------

struct task {
    int64_t s, h;
    int64_t tile0, tile1;
};

// The number of runs of tiles per head: as few as give every thread several tasks, because the
// kernel's preparation is repeated for each run.
static int64_t runs_of(const struct scan_dims * dims, int n_threads) {
    const int64_t heads = dims->n_head * dims->n_seqs;
    int64_t       runs = 1;
    while (n_threads > 1 && heads * runs < 4 * n_threads && runs < tiles_of(dims)) {
        ++runs;
    }
    return runs;
}

static struct task task_get(const struct scan_dims * dims, int64_t runs, int64_t i) {
    const int64_t run = i % runs;
    const int64_t head = i / runs;
    return (struct task) {
        .s = head / dims->n_head,
        .h = head % dims->n_head,
        .tile0 = tiles_of(dims) * run / runs,
        .tile1 = tiles_of(dims) * (run + 1) / runs,
    };
}

// The end of the segment that starts after n tokens, without snapshots: after a multiple of
// SEGMENT_FACTORS factors, and not beyond `last`.
static int64_t segment_end(const struct scan_dims * dims, int64_t n, int64_t last) {
    const int64_t tokens = tile_scan_segment(dims);
    const int64_t end = n - n % tokens + tokens;
    return end < last ? end : last;
}

// The next snapshot between `kept` and `end` tokens, or `end`.
static int64_t snapshot_next(
        const struct scan_dims * dims, const struct scan_seq * seq, int64_t kept, int64_t end) {
    const int64_t oldest = seq->count - dims->n_snap;
    for (int64_t m = kept + 1 > oldest ? kept + 1 : oldest; m < end; ++m) {
        if (seq->snaps[seq->count - m - 1] >= 0) {
            return m;
        }
    }
    return end;
}

// Where the chunk begins that n tokens end in, or n at the end of a chunk.
static int64_t chunk_begin(const struct scan_dims * dims, int64_t chunk, int64_t n) {
    const int64_t in_segment = n % tile_scan_segment(dims);
    int64_t       back = 0;
    while ((in_segment - back) * dims->n_h % chunk != 0) {
        ++back;
    }
    return n - back;
}

// Copies columns of a head.
static void cols_copy(
        float * to, const float * from, const struct scan_dims * dims, int64_t col0, int64_t col1) {
    for (int64_t i = 0; i < dims->d_k; ++i) {
        memcpy(to + i * dims->d_v + col0, from + i * dims->d_v + col0,
                (size_t) (col1 - col0) * sizeof(float));
    }
}

static void task_token(struct ggml_tensor * dst, const struct tile_scan * scan,
        const struct scan_seq * seq, const struct task * task, float * work) {
    const struct scan_dims * dims = &scan->dims;

    struct token token = {
        .in = seq->slot_in < 0 ? NULL : slot_head(dst, seq->slot_in, task->h, dims->head_size),
        .out = slot_head(dst, seq->slot_out, task->h, dims->head_size),
        .h = task->h,
        .t = seq->first,
        .col0 = task->tile0 * TILE,
        .col1 = task->tile1 * TILE < dims->d_v ? task->tile1 * TILE : dims->d_v,
        .y = (float *) dst->data + (seq->first * dims->n_head + task->h) * dims->d_v,
    };
    if (token.in == NULL) {
        for (int64_t i = 0; i < dims->d_k; ++i) {
            memset(token.out + i * dims->d_v + token.col0, 0,
                    (size_t) (token.col1 - token.col0) * sizeof(float));
        }
        token.in = token.out;
    }
    // the state before the token
    if (dims->n_snap > 0 && seq->snaps[0] >= 0 && seq->snaps[0] != seq->slot_in) {
        cols_copy(slot_head(dst, seq->snaps[0], task->h, dims->head_size), token.in, dims,
                token.col0, token.col1);
    }
    scan->kernel->token(scan->op, &token, work + layout_of(dims).prep);
}

// Tokens n .. last − 1 of a sequence. Between two calls the state is stored in slot_out. `next` is
// the first segment of the next task of this thread.
//
// Snapshots do not change the results: chunks have the same factors as without them. A snapshot
// inside a chunk is a detour. The tiles go to it from the beginning of the chunk, and then back.
static void task_run(struct ggml_tensor * dst, const struct tile_scan * scan,
        const struct scan_seq * seq, const struct task * task, int64_t n, int64_t last,
        struct tile_prefetch next, float * work) {
    const struct scan_dims *   dims = &scan->dims;
    const struct tile_kernel * kernel = scan->kernel;
    const struct layout        l = layout_of(dims);

    // with a single segment, all tiles use the same memory, which stays in the cache
    const bool one_segment = snapshot_next(dims, seq, n, segment_end(dims, n, last)) == last;

    const int64_t first = n;
    int64_t       kept = n; // snapshots up to here are stored
    do {
        const int64_t stop = segment_end(dims, n, last);
        int64_t       end = snapshot_next(dims, seq, kept, stop);
        bool          detour = false;
        if (end < stop) {
            const int64_t begin = chunk_begin(dims, kernel->chunk, end);
            detour = begin == n;
            end = detour ? end : begin;
        }
        const int64_t        t0 = seq->first + n;
        const int64_t        t1 = seq->first + end;
        struct tile_prefetch prefetch =
                end == last ? next
                            : prefetch_get(scan, dst, task->h, t1,
                                      seq->first + segment_end(dims, end, last));
        prefetch.per_factor = (float) prefetch.tokens /
                              (float) ((task->tile1 - task->tile0) * (t1 - t0) * dims->n_h);
        kernel->prepare(scan->op, task->h, t0, t1, work + l.prep);
        for (int64_t i = task->tile0; i < task->tile1; ++i) {
            struct tile tile = {
                .S = work + l.S + (one_segment ? 0 : i * dims->d_k * TILE),
                .h = task->h,
                .col = i * TILE,
                .cols = tile_cols(dims, i),
                .t0 = t0,
                .t1 = t1,
                .prefetch = &prefetch,
            };
            for (int c = 0; c < COLS_MAX && scan->x[c].data != NULL; ++c) {
                cols_pack(&tile, c, &scan->x[c], dims, work + l.x[c]);
            }
            const bool full = tile.cols == TILE;
            tile.y = full ? (float *) dst->data + (t0 * dims->n_head + task->h) * dims->d_v +
                                     tile.col
                          : work + l.y;
            tile.y_row = full ? dims->n_head * dims->d_v : TILE;
            if (n == first && kept == first) {
                const int64_t slot = first == 0 ? seq->slot_in : seq->slot_out;
                if (slot < 0) {
                    memset(tile.S, 0, (size_t) (dims->d_k * TILE) * sizeof(float));
                } else {
                    tile_load(&tile, slot_head(dst, slot, task->h, dims->head_size), dims);
                }
                if (first == 0 && seq->count > 0) {
                    tile_keep(&tile, dst, dims, seq, seq->count);
                }
            }
            const size_t size = (size_t) (dims->d_k * TILE) * sizeof(float);
            if (detour) {
                memcpy(work + l.before, tile.S, size);
            }
            kernel->run(scan->op, &tile, work + l.prep);
            if (!full) {
                cols_unpack(&tile, dst, dims);
            }
            tile_keep(&tile, dst, dims, seq, seq->count - end);
            if (end == last && last < seq->count) {
                tile_store(&tile, slot_head(dst, seq->slot_out, task->h, dims->head_size), dims);
            }
            if (detour) {
                memcpy(tile.S, work + l.before, size);
            }
        }
        kept = end;
        n = detour ? n : end;
    } while (n < last);
}

// Tokens per pass: PASS_BYTES of the widest input, in whole segments.
static int64_t pass_tokens(const struct scan_dims * dims) {
    const int64_t width =
            dims->n_head * dims->n_h * (dims->d_k > dims->d_v ? dims->d_k : dims->d_v);
    const int64_t segment = tile_scan_segment(dims);
    const int64_t segments = PASS_BYTES / (int64_t) sizeof(float) / (width * segment);
    return segments > 1 ? segments * segment : segment;
}

// The first segment of task i in the pass that starts at token w of each sequence.
static struct tile_prefetch prefetch_of(const struct ggml_tensor * dst,
        const struct tile_scan * scan, int64_t runs, int64_t i, int64_t w, int64_t pass) {
    const struct scan_dims * dims = &scan->dims;
    struct tile_prefetch     prefetch = { 0 };
    struct scan_seq          seq;
    if (i < dims->n_seqs * dims->n_head * runs) {
        const struct task task = task_get(dims, runs, i);
        if (ggml_scan_seq_get(dst, task.s, &seq) && seq.count > w && seq.count > 1) {
            const int64_t last = w + pass < seq.count ? w + pass : seq.count;
            prefetch = prefetch_get(
                    scan, dst, task.h, seq.first + w, seq.first + segment_end(dims, w, last));
        }
    }
    return prefetch;
}

void tile_scan_forward(const struct ggml_compute_params * params, struct ggml_tensor * dst,
        const struct tile_scan * scan, float * work) {
    const struct scan_dims * dims = &scan->dims;
    const int64_t            runs = runs_of(dims, params->nth);
    const int64_t            n = dims->n_seqs * dims->n_head * runs;
    const int64_t            pass = pass_tokens(dims);

    work += params->ith * tile_scan_floats(dims, scan->prep_floats);

    int64_t longest = 1;
    for (int64_t s = 0; s < dims->n_seqs; ++s) {
        struct scan_seq seq;
        if (ggml_scan_seq_get(dst, s, &seq) && seq.count > longest) {
            longest = seq.count;
        }
    }
    for (int64_t w = 0; w < longest; w += pass) {
        // threads take tasks from a common counter, so that a slow thread does not delay the others
        ggml_barrier(params->threadpool);
        if (params->ith == 0) {
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);

        for (int64_t i = params->ith, next; i < n; i = next) {
            next = ggml_threadpool_chunk_add(params->threadpool, 1);

            const struct task task = task_get(dims, runs, i);
            struct scan_seq   seq;
            if (!scan_seq_read(dst, dims, task.s, w == 0 && task.h == 0 && task.tile0 == 0, &seq)) {
                continue;
            }
            if (seq.count == 1 && w == 0) {
                task_token(dst, scan, &seq, &task, work);
            } else if (seq.count > w || w == 0) {
                task_run(dst, scan, &seq, &task, w, w + pass < seq.count ? w + pass : seq.count,
                        next < n ? prefetch_of(dst, scan, runs, next, w, pass)
                                 : prefetch_of(dst, scan, runs, params->ith, w + pass, pass),
                        work);
            }
        }
    }
}
