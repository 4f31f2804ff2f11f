// lrnn-highlight: colors a file by what a model over bytes says at every byte.
//
//     lrnn-highlight models/exact/c-source.gguf src/lrnn.h
//     lrnn-highlight models/exact/c-source.gguf src/lrnn.h --html > lrnn.html
//
// The model answers after each byte with a token, such as code, string or comment. The answer
// before the first byte has no color; every other answer has one. A byte has the color of the
// answer before it or, if that has none, of the answer after it: a quotation mark belongs to its
// string.

#include "lrnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BATCH = 512, N_COLORS = 4 };

// in the order in which the answers appear
static const char * const TERMINAL[N_COLORS] = { "\033[32m", "\033[36m", "\033[35m", "\033[33m" };
static const char * const HTML[N_COLORS]     = { "#393", "#088", "#939", "#960" };

static char err[512];

static void check(bool ok) {
    if (!ok) {
        fprintf(stderr, "lrnn-highlight: %s\n", err);
        exit(1);
    }
}

static char * read_all(const char * path, size_t * size) {
    FILE * file = fopen(path, "rb");
    char * text = NULL;
    size_t room = 0;
    snprintf(err, sizeof(err), "cannot read %s", path);
    check(file != NULL);
    *size = 0;
    do {
        if (*size == room) {
            room = 2 * room + 65536;
            text = realloc(text, room);
            check(text != NULL);
        }
        *size += fread(text + *size, 1, room - *size, file);
    } while (!feof(file) && !ferror(file));
    check(!ferror(file));
    fclose(file);
    return text;
}

// The most likely token after each token.
static int32_t * find_answers(struct lrnn_model * model, const int32_t * tokens, int64_t n) {
    const struct lrnn_session_params params  = { .n_batch = N_BATCH };
    struct lrnn_session *            session = lrnn_session_new(model, &params, err, sizeof(err));
    const int64_t                    n_vocab = lrnn_model_get_info(model).n_vocab;
    check(session != NULL);
    int32_t * answers = calloc((size_t) n, sizeof(*answers));
    snprintf(err, sizeof(err), "out of memory for %lld tokens", (long long) n);
    check(answers != NULL);
    for (int64_t first = 0; first < n; first += N_BATCH) {
        const int64_t           m     = n - first < N_BATCH ? n - first : N_BATCH;
        const struct lrnn_input input = { .tokens = tokens + first, .n_tokens = m, .n_logits = m };
        check(lrnn_eval(session, &input, 1, err, sizeof(err)));
        for (int64_t i = 0; i < m; ++i) {
            const float * logits = lrnn_logits(session, i); // [n_vocab]
            int32_t       best   = 0;
            for (int32_t k = 1; k < n_vocab; ++k) {
                best = logits[k] > logits[best] ? k : best;
            }
            answers[first + i] = best;
        }
    }
    lrnn_session_free(session);
    return answers;
}

// The color of an answer; −1: none.
static int find_color(int32_t answer, int32_t * seen, int * n_seen) {
    for (int i = 0; i < *n_seen; ++i) {
        if (seen[i] == answer) {
            return i - 1;
        }
    }
    if (*n_seen <= N_COLORS) {
        seen[(*n_seen)++] = answer;
        return *n_seen - 2;
    }
    return N_COLORS - 1;
}

static void print_byte(char c, bool html) {
    const char * entity = c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : NULL;
    if (html && entity != NULL) {
        fputs(entity, stdout);
    } else {
        putchar(c);
    }
}

static void change_color(int from, int to, bool html) {
    if (from >= 0) {
        fputs(html ? "</span>" : "\033[0m", stdout);
    }
    if (to >= 0 && html) {
        printf("<span style=\"color:%s\">", HTML[to]);
    } else if (to >= 0) {
        fputs(TERMINAL[to], stdout);
    }
}

int main(int argc, char ** argv) {
    const bool html = argc == 4 && strcmp(argv[3], "--html") == 0;
    if (argc != 3 && !html) {
        fprintf(stderr, "usage: lrnn-highlight MODEL.gguf FILE [--html]\n");
        return 2;
    }
    struct lrnn_model * model = lrnn_model_load(argv[1], NULL, err, sizeof(err));
    check(model != NULL);
    size_t    size;
    int32_t * tokens;
    int64_t   n_tokens;
    char *    text = read_all(argv[2], &size);
    check(lrnn_tokenize(
            model, text, size, LRNN_TOKENIZE_ADD_BOS, &tokens, &n_tokens, err, sizeof(err)));
    snprintf(err, sizeof(err), "%s: expected a model with <s> and one token per byte", argv[1]);
    check(n_tokens == (int64_t) size + 1);
    int32_t * answers = find_answers(model, tokens, n_tokens);

    int32_t seen[N_COLORS + 1] = { answers[0] };
    int     n_seen = 1, color = -1, before = -1;
    printf("%s", html ? "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<pre>" : "");
    for (size_t i = 0; i < size; ++i) {
        const int after = find_color(answers[i + 1], seen, &n_seen);
        const int now   = before >= 0 ? before : after;
        if (now != color) {
            change_color(color, now, html);
            color = now;
        }
        print_byte(text[i], html);
        before = after;
    }
    change_color(color, -1, html);
    printf("%s", html ? "</pre>\n" : "");

    free(answers);
    free(tokens);
    free(text);
    lrnn_model_free(model);
    snprintf(err, sizeof(err), "cannot write to standard output");
    check(fflush(stdout) == 0);
    return 0;
}
