// lrnn-highlight: colors a file by what a model over bytes says at every byte.
//
// The model answers after each byte with a token, such as code, string or comment. The answer
// before the first byte has no color; every other answer has one. A byte has the color of the
// answer before it or, if that has none, of the answer after it: a quotation mark belongs to its
// string.

#include "base/read-file.h"
#include "device-options.h"
#include "lrnn.h"
#include "program.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_COLORS = 4 };

// in the order in which the answers appear
static const char * const TERMINAL[N_COLORS] = { "\033[32m", "\033[36m", "\033[35m", "\033[33m" };
static const char * const HTML[N_COLORS] = { "#393", "#088", "#939", "#960" };

struct args {
    const char *          model;
    const char *          file;
    bool                  html;
    struct device_options device;
};

// The most likely token; −1 if a logit is not finite.
static int32_t find_best(const float * logits, int64_t n_vocab) {
    int32_t best = 0;
    for (int32_t k = 0; k < n_vocab; ++k) {
        if (!isfinite(logits[k])) {
            return -1;
        }
        best = logits[k] > logits[best] ? k : best;
    }
    return best;
}

// answers[n]: the most likely token after each token.
static enum exit_code find_answers(struct lrnn_session * session, int64_t n_vocab,
        const int32_t * tokens, int64_t n, int64_t batch, int32_t * answers) {
    struct lrnn_error err;
    for (int64_t first = 0; first < n; first += batch) {
        const int64_t           m = n - first < batch ? n - first : batch;
        const struct lrnn_input input = { .tokens = tokens + first, .n_tokens = m, .n_logits = m };
        if (!lrnn_eval(session, &input, 1, &err)) {
            return program_error(&err);
        }
        for (int64_t i = 0; i < m; ++i) {
            answers[first + i] = find_best(lrnn_logits(session, i), n_vocab); // [n_vocab]
            if (answers[first + i] < 0) {
                return program_fail(EXIT_CODE_NOT_FINITE,
                        "the logits after %" PRId64 " tokens are not finite", first + i + 1);
            }
        }
    }
    return EXIT_CODE_OK;
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

// - answers: [size + 1], before the first byte and after each byte
static void print_text(const char * text, size_t size, const int32_t * answers, bool html) {
    int32_t seen[N_COLORS + 1] = { answers[0] };
    int     n_seen = 1, color = -1, before = -1;
    printf("%s", html ? "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<pre>" : "");
    for (size_t i = 0; i < size; ++i) {
        const int after = find_color(answers[i + 1], seen, &n_seen);
        const int now = before >= 0 ? before : after;
        if (now != color) {
            change_color(color, now, html);
            color = now;
        }
        print_byte(text[i], html);
        before = after;
    }
    change_color(color, -1, html);
    printf("%s", html ? "</pre>\n" : "");
}

static enum exit_code highlight(
        const struct args * args, struct lrnn_model * model, const char * text, size_t size) {
    struct lrnn_error          err;
    struct lrnn_session_params params = args->device.session;
    int32_t *                  tokens = NULL;
    int64_t                    n_tokens = 0;
    if (!lrnn_tokenize(model, text, size, LRNN_TOKENIZE_ADD_BOS, &tokens, &n_tokens, &err)) {
        return program_fail(EXIT_CODE_DATA, "%s: %s", args->file, err.text);
    }
    if (n_tokens != (int64_t) size + 1) {
        free(tokens);
        return program_fail(EXIT_CODE_MODEL,
                "%s: the %zu bytes of %s have %" PRId64 " tokens; expected a bos token and one "
                "token per byte, as in models made by lrnn-convert automaton --bytes",
                args->model, size, args->file, n_tokens);
    }
    struct lrnn_session * session = lrnn_session_new(model, &params, &err);
    if (session == NULL) {
        free(tokens);
        return program_error(&err);
    }
    int32_t *            answers = program_alloc((size_t) n_tokens, sizeof(*answers));
    const enum exit_code code = find_answers(
            session, lrnn_model_get_info(model).n_vocab, tokens, n_tokens, params.n_batch, answers);
    if (code == EXIT_CODE_OK) {
        print_text(text, size, answers, args->html);
    }
    free(answers);
    lrnn_session_free(session);
    free(tokens);
    return code;
}

static enum exit_code run(void * user) {
    struct args *     args = user;
    struct lrnn_error err;
    char *            text;
    size_t            size;
    if (!device_options_check(&args->device, &err)) {
        return program_error(&err);
    }
    if (!read_file(args->file, &text, &size, &err)) {
        return program_error(&err);
    }
    struct lrnn_model *  model = device_options_load(&args->device, args->model, false, &err);
    const enum exit_code code =
            model == NULL ? program_error(&err) : highlight(args, model, text, size);
    lrnn_model_free(model);
    free(text);
    return code;
}

int main(int argc, char ** argv) {
    struct args args = { .device = DEVICE_OPTIONS_DEFAULTS };

    const struct option options[] = {
        opt_group("What"),
        opt_required(opt_string("-m, --model", "M.gguf", &args.model,
                "a model over bytes, such as models/exact/c-source.gguf")),
        opt_required(opt_arg("FILE", &args.file, "the text; -: standard input")),

        opt_group("Output"),
        opt_flag("--html", &args.html, "print a web page instead of terminal colors"),

        opt_group("Computation"),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
        DEVICE_BATCH(args.device),
    };
    const struct program program = {
        .name = "lrnn-highlight",
        .summary = "colors a file by what a model over bytes says at every byte",
        .usage = "-m M.gguf FILE [--html]",
        .examples = "lrnn-highlight -m models/exact/c-source.gguf src/lrnn.h\n"
                    "lrnn-highlight -m models/exact/c-source.gguf src/lrnn.h --html > lrnn.html",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
