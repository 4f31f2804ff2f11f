#include "kit/score-bench.h"

#include "lrnn.h"
#include "kit/files.h"
#include "kit/rng.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

struct score_bench bench;

enum { N_DOCS = 9 };

//
// A model with symbols s0 … s47 (s0 is the bos), and documents of them
//

struct model_edit bench_open(const char * name) {
    struct model_edit e;
    if (!model_edit_open(&e, golden_find(&bench.golden, name)->path)) {
        printf("FAILED: %s: cannot be read\n", name);
        exit(1);
    }
    return e;
}

void bench_add_symbols(struct model_edit * e) {
    static char  text[N_VOCAB][16];
    const char * tokens[N_VOCAB];
    int32_t      types[N_VOCAB];
    for (int i = 0; i < N_VOCAB; ++i) {
        snprintf(text[i], sizeof(text[i]), "s%d", i);
        tokens[i] = text[i];
        types[i] = i == 0 ? 3 : 1; // control, normal
    }
    gguf_set_val_str(e->gguf, "tokenizer.ggml.model", "lrnn-symbols");
    gguf_set_arr_str(e->gguf, "tokenizer.ggml.tokens", tokens, N_VOCAB);
    gguf_set_arr_data(e->gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, N_VOCAB);
    gguf_set_val_u32(e->gguf, "tokenizer.ggml.bos_token_id", 0);
    gguf_set_val_bool(e->gguf, "tokenizer.ggml.add_bos_token", true);
}

struct lrnn_model * bench_load(struct model_edit * e, const char * name) {
    char              path[512];
    struct lrnn_error err = { LRNN_ERROR_SYSTEM, "cannot write the file" };
    snprintf(path, sizeof(path), "%s/%s.gguf", bench.folder, name);
    struct lrnn_model * model =
            model_edit_write(e, path) ? lrnn_model_load(path, NULL, &err) : NULL;
    model_edit_close(e);
    unlink(path);
    if (model == NULL) {
        printf("FAILED: %s: %s\n", name, err.text);
        exit(1);
    }
    return model;
}

struct lrnn_model * bench_model(const char * name) {
    struct model_edit e = bench_open(name);
    bench_add_symbols(&e);
    return bench_load(&e, name);
}

static void write_data(void) {
    struct test_rng r = { 11 };
    FILE *          f = fopen(bench.data_path, "wb");
    for (int d = 0; d < N_DOCS && f != NULL; ++d) {
        fprintf(f, "{\"text\": \"");
        const int n = d == 4 ? 5 : 90 + (int) test_below(&r, 60);
        for (int i = 0; i < n; ++i) {
            fprintf(f, "%ss%d", i > 0 ? " " : "", 1 + (int) test_below(&r, N_VOCAB - 1));
        }
        fprintf(f, "\"}\n");
    }
    if (f == NULL || fclose(f) != 0) {
        printf("FAILED: %s: %s\n", bench.data_path, strerror(errno));
        exit(1);
    }
}

struct windows * bench_windows(const struct lrnn_model * model, struct window_params params) {
    const char *      paths[] = { bench.data_path };
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    struct dataset *  ds = dataset_open(
            &(struct dataset_params) { .paths = paths, .n_paths = 1, .text_field = "text" }, &err);
    struct windows * ws =
            ds != NULL ? windows_make(ds, model, &params, bench.folder, NULL, NULL, &err) : NULL;
    dataset_free(ds);
    if (ws == NULL) {
        printf("FAILED: %s\n", err.text);
        exit(1);
    }
    return ws;
}

//
// A run
//

struct stop {
    int  calls, after;
    bool killed;
};

static bool on_progress(const struct score_progress * progress, void * user) {
    struct stop * stop = user;
    (void) progress;
    if (++stop->calls != stop->after) {
        return true;
    }
    if (stop->killed) {
        raise(SIGKILL);
    }
    return false;
}

const char * bench_path(const char * name, char path[512]) {
    snprintf(path, 512, "%s/%s.nll", bench.folder, name);
    return path;
}

enum lrnn_error_kind bench_run(struct score_bench_run * run) {
    char                           path[512], checkpoints[600];
    struct lrnn_error              err = { LRNN_ERROR_NONE, "" };
    struct windows *               ws = bench_windows(run->model, run->window);
    const struct windows_summary * s = windows_get_summary(ws);
    static const char * const      resets[] = { "window", "document", "never" };
    const struct score_meta        meta = {
               .model = "m",
               .files = s->files,
               .sources = "",
               .data_fingerprint = s->fingerprint,
               .template = "",
               .same_targets = "",
               .n_vocab = N_VOCAB,
               .mode = run->window.mode == WINDOW_DOCUMENT ? "document" : "packed",
               .reset = resets[run->reset],
               .window = run->window.length,
               .probe = run->probe ? "state-norm" : "",
               .n_batch = run->n_batch,
               .group = run->group,
               .n_windows = s->n_windows,
               .shard = run->n_shards > 0 ? run->shard : 1,
               .n_shards = run->n_shards > 0 ? run->n_shards : 1,
    };
    bench_path(run->name, path);
    snprintf(checkpoints, sizeof(checkpoints), "%s.checkpoint", path);
    struct stop         stop = { .after = run->stop_after, .killed = run->killed };
    struct score_params params = {
        .session = { .n_threads = 1, .cache_type = run->cache_type },
        .n_batch = run->n_batch,
        .group = run->group,
        .reset = run->reset,
        .max_length = run->window.length,
        .resume = run->resume,
        .checkpoint_every = run->checkpoint_every,
        .checkpoints = checkpoints,
        .callback = on_progress,
        .user = &stop,
        .state_norm = run->probe,
    };
    int64_t n_done = 0;
    score_shard_range(&meta, &params.first, &params.end);
    struct score_writer * w = score_writer_open(path, &meta, run->resume ? &n_done : NULL, &err);
    params.next = params.first + n_done;
    score_meta_identity(&meta, params.identity);
    const bool done = w != NULL && score_run(run->model, ws, w, &params, &run->result, &err);
    const enum lrnn_error_kind kind = done ? LRNN_ERROR_NONE : err.kind;
    test_check(&bench.t, done || kind == LRNN_ERROR_CANCELLED, "%s: %s", run->name, err.text);
    test_check(&bench.t,
            run->warning != NULL ? strstr(run->result.warning, run->warning) != NULL
                                 : run->result.warning[0] == '\0',
            "warning '%s', expected '%s'", run->result.warning,
            run->warning != NULL ? run->warning : "");
    score_writer_close(w, &err);
    windows_free(ws);
    return kind;
}

struct scores bench_read(const char * name) {
    char              path[512];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    const char *      paths[] = { bench_path(name, path) };
    struct scores     scores;
    if (!scores_read(paths, 1, false, &scores, &err)) {
        printf("FAILED: %s\n", err.text);
        exit(1);
    }
    return scores;
}

bool bench_same_files(const char * a, const char * b) {
    char path_a[512], path_b[512];
    return test_same_files(bench_path(a, path_a), bench_path(b, path_b));
}

void bench_forget(const char * name) {
    char path[512];
    unlink(bench_path(name, path));
}

bool bench_begin(void) {
    golden_list_load(&bench.golden);
    snprintf(bench.folder, sizeof(bench.folder), "%s/lrnn-score.XXXXXX",
            getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(bench.folder) == NULL) {
        printf("FAILED: cannot create a folder: %s\n", strerror(errno));
        return false;
    }
    snprintf(bench.data_path, sizeof(bench.data_path), "%s/data.jsonl", bench.folder);
    write_data();
    return true;
}

int bench_end(const char * name) {
    unlink(bench.data_path);
    test_check(&bench.t, rmdir(bench.folder) == 0, "%s: not empty", bench.folder);
    golden_list_free(&bench.golden);
    return test_end(&bench.t, name);
}
