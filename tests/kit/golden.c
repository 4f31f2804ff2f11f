#include "kit/golden.h"

#include "base/error.h"

#include "lrnn.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 16, MAX_VOCAB = 1 << 16 };

static bool read_golden(struct golden * g, const char * path, struct lrnn_error * err) {
    FILE * f = fopen(path, "rb");
    if (f == NULL) {
        error_set(err, LRNN_ERROR_BAD_INPUT, "%s: cannot open", path);
        return false;
    }
    char    magic[8];
    int32_t n[2];
    bool    done = false;
    if (fread(magic, sizeof(magic), 1, f) != 1 || memcmp(magic, "golden01", sizeof(magic)) != 0 ||
            fread(n, sizeof(n), 1, f) != 1) {
        error_set(err, LRNN_ERROR_BAD_INPUT, "%s: expected golden01 and two sizes at the start",
                path);
    } else if (n[0] < 1 || n[0] > MAX_TOKENS || n[1] < 1 || n[1] > MAX_VOCAB) {
        error_set(err, LRNN_ERROR_BAD_INPUT,
                "%s: has %d tokens and %d logits per token; expected at most %d "
                "and %d",
                path, n[0], n[1], MAX_TOKENS, MAX_VOCAB);
    } else {
        g->n_tokens = n[0];
        g->n_vocab = n[1];
        const size_t n_logits = (size_t) (g->n_tokens * g->n_vocab);
        g->tokens = calloc((size_t) g->n_tokens, sizeof(*g->tokens));
        g->logits = calloc(n_logits, sizeof(*g->logits));
        done = g->tokens != NULL && g->logits != NULL &&
               fread(g->tokens, sizeof(*g->tokens), (size_t) g->n_tokens, f) ==
                       (size_t) g->n_tokens &&
               fread(g->logits, sizeof(*g->logits), n_logits, f) == n_logits && fgetc(f) == EOF;
        if (!done) {
            error_set(err, LRNN_ERROR_BAD_INPUT,
                    "%s: expected to end after %d tokens and their logits", path, n[0]);
        }
    }
    fclose(f);
    return done;
}

static int by_name(const void * a, const void * b) {
    return strcmp(((const struct golden *) a)->name, ((const struct golden *) b)->name);
}

bool golden_list_load(struct golden_list * list, struct lrnn_error * err) {
    *list = (struct golden_list) { 0 };
    DIR * dir = opendir(LRNN_GOLDEN_DIR);
    if (dir == NULL) {
        error_set(err, LRNN_ERROR_BAD_INPUT, "%s: cannot open the folder", LRNN_GOLDEN_DIR);
        return false;
    }
    bool done = true;
    for (struct dirent * e = readdir(dir); done && e != NULL; e = readdir(dir)) {
        const char * end = strrchr(e->d_name, '.');
        if (end == NULL || strcmp(end, ".gguf") != 0) {
            continue;
        }
        struct golden * models = realloc(list->models, (size_t) (list->n + 1) * sizeof(*models));
        if (models == NULL) {
            error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory");
            done = false;
            break;
        }
        list->models = models;
        struct golden * g = &models[list->n++];
        *g = (struct golden) { 0 };
        char path[1024];
        snprintf(g->name, sizeof(g->name), "%.*s", (int) (end - e->d_name), e->d_name);
        snprintf(g->path, sizeof(g->path), "%s/%s.gguf", LRNN_GOLDEN_DIR, g->name);
        snprintf(path, sizeof(path), "%s/%s.golden", LRNN_GOLDEN_DIR, g->name);
        done = read_golden(g, path, err);
    }
    closedir(dir);
    if (done && list->n == 0) {
        error_set(err, LRNN_ERROR_BAD_INPUT, "%s: no *.gguf in the folder", LRNN_GOLDEN_DIR);
        done = false;
    }
    if (!done) {
        golden_list_free(list);
        return false;
    }
    qsort(list->models, (size_t) list->n, sizeof(*list->models), by_name);
    return true;
}

void golden_list_free(struct golden_list * list) {
    for (int i = 0; i < list->n; ++i) {
        free(list->models[i].tokens);
        free(list->models[i].logits);
    }
    free(list->models);
    *list = (struct golden_list) { 0 };
}

const struct golden * golden_find(const struct golden_list * list, const char * name) {
    for (int i = 0; i < list->n; ++i) {
        if (strcmp(list->models[i].name, name) == 0) {
            return &list->models[i];
        }
    }
    printf("FAILED: %s: no model %s\n", LRNN_GOLDEN_DIR, name);
    exit(1);
}

struct lrnn_model * golden_load_model(const char * name) {
    char              path[1024];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    snprintf(path, sizeof(path), "%s/%s.gguf", LRNN_GOLDEN_DIR, name);
    struct lrnn_model * model = lrnn_model_load(path, NULL, &err);
    if (model == NULL) {
        printf("FAILED: %s\n", err.text);
        exit(1);
    }
    return model;
}
