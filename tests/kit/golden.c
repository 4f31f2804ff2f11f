#include "kit/golden.h"

#include "kit/check.h"
#include "kit/files.h"

#include <dirent.h>

static void fail(const char * what, const char * detail) {
    printf("FAILED: %s: %s\n", what, detail);
    exit(1);
}

// The *.golden file is "golden01", the numbers of tokens and of logits per token, the tokens, the
// logits.
void golden_read(struct golden * g, const char * name) {
    char path[1024];
    snprintf(g->name, sizeof(g->name), "%s", name);
    snprintf(g->path, sizeof(g->path), "%s/%s.gguf", LRNN_GOLDEN_DIR, name);
    snprintf(path, sizeof(path), "%s/%s.golden", LRNN_GOLDEN_DIR, name);
    enum { HEADER = 16 };
    int32_t   n[2] = { 0, 0 };
    size_t    size;
    uint8_t * data = test_read_file(path, &size);
    if (size >= HEADER && memcmp(data, "golden01", 8) == 0) {
        memcpy(n, data + 8, sizeof(n));
    }
    g->n_tokens = n[0];
    g->n_vocab = n[1];
    const size_t n_tokens = (size_t) g->n_tokens * sizeof(*g->tokens);
    const size_t n_logits = (size_t) (g->n_tokens * g->n_vocab) * sizeof(*g->logits);
    g->tokens = malloc(n_tokens + 1);
    g->logits = malloc(n_logits + 1);
    if (n[0] < 1 || n[1] < 1 || size != HEADER + n_tokens + n_logits) {
        fail(path, "expected golden01, two sizes, tokens and logits");
    }
    memcpy(g->tokens, data + HEADER, n_tokens);
    memcpy(g->logits, data + HEADER + n_tokens, n_logits);
    free(data);
}

static int by_name(const void * a, const void * b) {
    return strcmp(((const struct golden *) a)->name, ((const struct golden *) b)->name);
}

void golden_list_load(struct golden_list * list) {
    *list = (struct golden_list) { 0 };
    DIR * dir = opendir(LRNN_GOLDEN_DIR);
    for (struct dirent * e; dir != NULL && (e = readdir(dir)) != NULL;) {
        const char * end = strrchr(e->d_name, '.');
        if (end == NULL || strcmp(end, ".gguf") != 0) {
            continue;
        }
        list->models = realloc(list->models, (size_t) (list->n + 1) * sizeof(*list->models));
        char name[64];
        snprintf(name, sizeof(name), "%.*s", (int) (end - e->d_name), e->d_name);
        golden_read(&list->models[list->n++], name);
    }
    if (list->n == 0) {
        fail(LRNN_GOLDEN_DIR, "no *.gguf in the folder");
    }
    closedir(dir);
    qsort(list->models, (size_t) list->n, sizeof(*list->models), by_name);
}

void golden_free(struct golden * g) {
    free(g->tokens);
    free(g->logits);
}

void golden_list_free(struct golden_list * list) {
    for (int i = 0; i < list->n; ++i) {
        golden_free(&list->models[i]);
    }
    free(list->models);
    *list = (struct golden_list) { 0 };
}

const struct golden * golden_find(const struct golden_list * list, const char * name) {
    int i = 0;
    while (i < list->n && strcmp(list->models[i].name, name) != 0) {
        ++i;
    }
    if (i == list->n) {
        fail(LRNN_GOLDEN_DIR, name);
    }
    return &list->models[i];
}

struct lrnn_model * golden_load_model(const char * name) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s.gguf", LRNN_GOLDEN_DIR, name);
    return test_load_model(path, NULL);
}

struct lrnn_model * test_load_model(const char * path, const struct lrnn_model_params * params) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    struct lrnn_model * model = lrnn_model_load(path, params, &err);
    if (model == NULL) {
        fail("no model", err.text);
    }
    return model;
}

struct lrnn_session * test_session(
        struct lrnn_model * model, const struct lrnn_session_params * params) {
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    struct lrnn_session * session = lrnn_session_new(model, params, &err);
    if (session == NULL) {
        fail("no session", err.text);
    }
    return session;
}

void test_eval(struct lrnn_session * session, int32_t seq, const int32_t * tokens, int64_t n,
        int64_t n_logits) {
    struct lrnn_error       err = { LRNN_ERROR_NONE, "" };
    const struct lrnn_input in = {
        .seq = seq, .tokens = tokens, .n_tokens = n, .n_logits = n_logits
    };
    if (!lrnn_eval(session, &in, 1, &err)) {
        fail("lrnn_eval", err.text);
    }
}
