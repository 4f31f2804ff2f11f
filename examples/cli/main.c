// lrnn-cli: continues a text.

#include "base/atomic-file.h"
#include "compute.h"
#include "exit-code.h"
#include "generate.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "prompt.h"
#include "base/read-file.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct args {
    const char * model;
    const char * prompt;
    const char * file;
    bool         ids;
    bool         special;

    int64_t               n_predict;
    struct option_strings stops;
    bool                  jsonl;

    double  temperature;
    int64_t top_k;
    double  top_p;
    double  min_p;
    double  repeat_penalty;
    int64_t repeat_last;
    int64_t seed; // -1: a new one
    bool    greedy;

    const char * state_load;
    const char * state_save;

    struct compute compute;
    int64_t        batch;
    int64_t        cache;
    bool           quiet;
};

static enum exit_code fail(enum exit_code code, const char * format, ...) {
    va_list args;
    fprintf(stderr, "lrnn-cli: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    return code;
}

//
// The end of a run
//

static enum exit_code finish_code(enum finish finish) {
    switch (finish) {
        case FINISH_LENGTH:
        case FINISH_EOS:
        case FINISH_STOP:
        case FINISH_CLOSED: return EXIT_CODE_OK; // whoever read it had enough
        case FINISH_INTERRUPT:
        case FINISH_PROMPT:
        case FINISH_CACHE: return EXIT_CODE_STOPPED;
        case FINISH_NUMBERS: return EXIT_CODE_NUMBERS;
        case FINISH_ERROR: return EXIT_CODE_SYSTEM;
    }
    return EXIT_CODE_SYSTEM;
}

// Says what went wrong, if something did.
static enum exit_code report(enum finish finish, const struct generator * g,
        const struct output * out, const char * err) {
    switch (finish) {
        case FINISH_NUMBERS:
            return fail(EXIT_CODE_NUMBERS, "the logits after %" PRId64 " tokens are not finite",
                    lrnn_seq_length(g->session, 0));
        case FINISH_ERROR: return fail(EXIT_CODE_SYSTEM, "%s", err);
        case FINISH_CACHE:
            return fail(EXIT_CODE_STOPPED,
                    "the attention layers can remember %" PRId64
                    " tokens, and have; -c makes it more",
                    g->n_cache);
        case FINISH_CLOSED: {
            if (out->error != EPIPE) {
                return fail(EXIT_CODE_SYSTEM, "the text could not be written to stdout: %s",
                        strerror(out->error));
            }
        } break;
        default: break;
    }
    return finish_code(finish);
}

static double per_second(int64_t n, int64_t us) {
    return us > 0 ? 1e6 * (double) n / (double) us : 0.0;
}

static void print_summary(
        const struct generator * g, enum finish finish, const struct args * args) {
    fprintf(stderr,
            "lrnn-cli: %" PRId64 " prompt token%s (%.1f/s), %" PRId64 " generated (%.1f/s), %s",
            g->n_prompt, g->n_prompt == 1 ? "" : "s", per_second(g->n_prompt, g->prompt_us),
            g->n_made, per_second(g->n_made, g->made_us), finish_text(finish));
    if (!args->greedy && args->seed >= 0) {
        fprintf(stderr, "; seed %" PRId64, args->seed);
    }
    fprintf(stderr, "\n");
}

//
// One prompt
//

static enum output_format output_format(const struct args * args) {
    return args->jsonl ? OUTPUT_JSONL : args->ids ? OUTPUT_IDS : OUTPUT_TEXT;
}

// Feeds a prompt and generates behind it. Sets *finish to how that ended, unless the prompt was
// refused.
static enum exit_code continue_text(const struct args * args, struct generator * g,
        const char * text, size_t size, enum finish * finish) {
    const bool    continues = lrnn_seq_length(g->session, 0) > 0;
    int32_t *     tokens;
    int64_t       n_tokens;
    struct output out;
    char          err[1024];

    if (!prompt_to_tokens(g->model, text, size, args->ids, continues, args->special, &tokens,
                &n_tokens, err, sizeof(err))) {
        return fail(size == 0 ? EXIT_CODE_USAGE : EXIT_CODE_DATA, "%s", err);
    }
    if (n_tokens == 0 && args->n_predict != 0 && lrnn_logits(g->session, 0) == NULL) {
        free(tokens);
        return fail(EXIT_CODE_USAGE,
                "it is not known what follows the last token of the sequence; give a prompt to go on with");
    }
    *finish = generator_feed(g, tokens, n_tokens, err, sizeof(err));
    free(tokens);
    if (*finish == FINISH_CACHE) {
        return fail(EXIT_CODE_USAGE, "%s", err);
    }
    if (*finish == FINISH_PROMPT) {
        return fail(EXIT_CODE_STOPPED,
                "interrupted after %" PRId64 " of %" PRId64
                " tokens of the prompt; the state is not saved",
                g->n_prompt, n_tokens);
    }
    if (*finish == FINISH_ERROR) {
        return fail(EXIT_CODE_SYSTEM, "%s", err);
    }
    if (!output_begin(&out, output_format(args), g->model, continues || size > 0, &args->stops, err,
                sizeof(err))) {
        *finish = FINISH_ERROR;
        return fail(EXIT_CODE_SYSTEM, "%s", err);
    }
    *finish = generator_run(g, args->n_predict, &out, err, sizeof(err));
    output_end(&out, out.n_tokens > 0 && !args->jsonl && (args->ids || isatty(STDOUT_FILENO)));
    if (out.error != 0) {
        *finish = FINISH_CLOSED;
    }
    return report(*finish, g, &out, err);
}

//
// Line by line, on a terminal
//

static enum exit_code converse(
        const struct args * args, struct generator * g, enum finish * finish) {
    char *         line = NULL;
    size_t         room = 0;
    enum exit_code code = EXIT_CODE_OK;

    if (!args->quiet) {
        fprintf(stderr, "%s; an empty line goes on, Ctrl-C interrupts, Ctrl-D ends\n",
                args->ids ? "Each line of token ids continues the sequence"
                          : "Each line continues the text");
    }
    *finish = FINISH_LENGTH;
    for (;;) {
        interrupt_listen(true);
        printf("> ");
        fflush(stdout);
        ssize_t size = getline(&line, &room, stdin);
        if (size < 0) { // Ctrl-D, or Ctrl-C
            printf("\n");
            break;
        }
        if (size > 0 && line[size - 1] == '\n') {
            size--;
        }
        code = continue_text(args, g, line, (size_t) size, finish);
        if (*finish == FINISH_CLOSED || *finish == FINISH_NUMBERS || code == EXIT_CODE_SYSTEM) {
            break; // the others can be answered with another line
        }
        code = EXIT_CODE_OK;
    }
    free(line);
    return code;
}

//
// A run
//

// Makes session and sampler, and puts the saved sequence into them.
static enum exit_code prepare(struct args * args, struct generator * g) {
    // a saved sequence has its random numbers with it, unless the user wants others
    const bool own_seed = args->state_load != NULL && args->seed < 0;
    if (args->seed < 0 && !own_seed) {
        args->seed = (int64_t) (((uint64_t) time(NULL) << 20 ^ (uint64_t) clock() << 8 ^
                                        (uint64_t) getpid()) &
                                UINT32_MAX);
    }
    const struct lrnn_sampler_params sampling = {
        .temperature    = args->greedy ? 0.0f : (float) args->temperature,
        .top_k          = (int32_t) args->top_k,
        .top_p          = args->top_p > 0.0 ? (float) args->top_p : FLT_MIN, // 0 keeps one token
        .min_p          = (float) args->min_p,
        .repeat_penalty = args->repeat_last > 0 ? (float) args->repeat_penalty : 1.0f,
        .repeat_last    = (int32_t) args->repeat_last,
        .seed           = (uint64_t) args->seed,
    };
    const struct lrnn_session_params params = {
        .n_threads = (int32_t) args->compute.threads,
        .n_batch   = (int32_t) args->batch,
        .n_cache   = (int32_t) args->cache,
    };
    char err[1024];

    if (args->stops.n > 0 && !g->info.has_tokenizer) {
        return fail(EXIT_CODE_USAGE, "--stop looks for text, and the model has no tokenizer");
    }
    g->sampler = lrnn_sampler_new(&sampling, err, sizeof(err));
    if (g->sampler == NULL) {
        return fail(EXIT_CODE_USAGE, "%s", err);
    }
    if (args->state_save != NULL) { // better to know now than after an hour of generating
        struct atomic_file file;
        if (!atomic_file_open(&file, args->state_save, err, sizeof(err))) {
            return fail(EXIT_CODE_SYSTEM, "%s", err);
        }
        atomic_file_cancel(&file);
    }
    g->session = lrnn_session_new(g->model, &params, err, sizeof(err));
    if (g->session == NULL) {
        return fail(EXIT_CODE_SYSTEM, "%s", err);
    }
    if (args->state_load != NULL && !lrnn_seq_load(g->session, 0, own_seed ? g->sampler : NULL,
                                            args->state_load, err, sizeof(err))) {
        return fail(EXIT_CODE_DATA, "%s", err);
    }
    return EXIT_CODE_OK;
}

// What was made is kept however it ended, unless it is of no use: numbers that are not finite, or
// half a prompt.
static enum exit_code save(
        const struct args * args, const struct generator * g, enum finish finish) {
    const bool is_whole = finish != FINISH_NUMBERS && finish != FINISH_ERROR &&
                          finish != FINISH_PROMPT && lrnn_seq_length(g->session, 0) > 0;
    char err[1024];

    if (args->state_save != NULL && is_whole &&
            !lrnn_seq_save(g->session, 0, g->sampler, args->state_save, err, sizeof(err))) {
        return fail(EXIT_CODE_SYSTEM, "%s", err);
    }
    return EXIT_CODE_OK;
}

static enum exit_code run(struct args * args) {
    const bool       has_prompt = args->prompt != NULL || args->file != NULL;
    const bool       is_dialog  = !has_prompt && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct generator g = { .n_batch = args->batch, .n_cache = args->cache, .quiet = args->quiet };
    char *           text = NULL;
    size_t           size = 0;
    char             err[1024];

    if (!is_dialog && args->prompt == NULL) {
        if (!read_file(args->file != NULL ? args->file : "-", &text, &size, err, sizeof(err))) {
            return fail(EXIT_CODE_DATA, "%s", err);
        }
        size -= size > 0 &&
                text[size - 1] == '\n'; // a line's end belongs to the file, not to the prompt
    }
    g.model = compute_load(&args->compute, "lrnn-cli", args->model, args->quiet);
    if (g.model == NULL) {
        free(text);
        return EXIT_CODE_MODEL;
    }
    g.info    = lrnn_model_get_info(g.model);
    g.keep    = is_dialog || args->state_save != NULL;
    args->ids = args->ids || !g.info.has_tokenizer;

    enum exit_code code = prepare(args, &g);
    if (code == EXIT_CODE_OK) {
        enum finish finish = FINISH_ERROR;
        if (is_dialog) {
            code = converse(args, &g, &finish);
        } else {
            interrupt_listen(false);
            code = args->prompt != NULL
                           ? continue_text(args, &g, args->prompt, strlen(args->prompt), &finish)
                           : continue_text(args, &g, text, size, &finish);
        }
        const enum exit_code saved = save(args, &g, finish);
        if (!args->quiet && g.n_prompt + g.n_made > 0 && finish != FINISH_CLOSED) {
            print_summary(&g, finish, args);
        }
        code = saved != EXIT_CODE_OK ? saved : code;
    }
    lrnn_session_free(g.session);
    lrnn_sampler_free(g.sampler);
    lrnn_model_free(g.model);
    free(text);
    return code;
}

//
// Command line
//

static bool check_args(const struct args * args, char * err, size_t err_size) {
    if (!compute_check(&args->compute, "lrnn-cli", err, err_size)) {
        return false;
    }
    if (args->prompt != NULL && args->file != NULL) {
        snprintf(err, err_size, "-p and -f both give the prompt; use one of them");
        return false;
    }
    for (int i = 0; i < args->stops.n; ++i) {
        if (args->stops.v[i][0] == '\0') {
            snprintf(err, err_size, "--stop: an empty string would stop at once");
            return false;
        }
    }
    return true;
}

int main(int argc, char ** argv) {
    const struct lrnn_sampler_params sampling = {
        .temperature    = 0.8f,
        .top_k          = 40,
        .top_p          = 0.95f,
        .min_p          = 0.05f,
        .repeat_penalty = 1.0f,
        .repeat_last    = 64,
    };
    struct args args = {
        .compute        = COMPUTE_DEFAULTS,
        .n_predict      = 128,
        .temperature    = (double) sampling.temperature,
        .top_k          = sampling.top_k,
        .top_p          = (double) sampling.top_p,
        .min_p          = (double) sampling.min_p,
        .repeat_penalty = (double) sampling.repeat_penalty,
        .repeat_last    = sampling.repeat_last,
        .seed           = -1,
        .batch          = 512,
        .cache          = 4096,
    };

    const struct option options[] = {
        { .group          = "Prompt",
                .names    = "-m, --model",
                .value    = "M.gguf",
                .type     = OPTION_STRING,
                .dest     = &args.model,
                .help     = "the model",
                .required = true },
        { .names       = "-p, --prompt",
                .value = "TEXT",
                .type  = OPTION_STRING,
                .dest  = &args.prompt,
                .help  = "the text to continue" },
        { .names       = "-f, --file",
                .value = "FILE",
                .type  = OPTION_STRING,
                .dest  = &args.file,
                .help  = "a file with the text to continue, without its last line end",
                .unset = "- for stdin" },
        { .names      = "--ids",
                .type = OPTION_FLAG,
                .dest = &args.ids,
                .help = "prompt and output are decimal token ids; always so for a model without a tokenizer" },
        { .names      = "--special",
                .type = OPTION_FLAG,
                .dest = &args.special,
                .help = "special tokens written out in the prompt become their ids" },

        { .group       = "Generation",
                .names = "-n, --predict",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.n_predict,
                .min   = -1,
                .max   = 1e15,
                .help = "tokens to generate; 0: only read the prompt, -1: until the model ends the text" },
        { .names       = "--stop",
                .value = "TEXT",
                .type  = OPTION_STRINGS,
                .dest  = &args.stops,
                .help  = "stop before this text; may be given several times" },

        { .group       = "Sampling",
                .names = "--temp",
                .value = "T",
                .type  = OPTION_FLOAT,
                .dest  = &args.temperature,
                .min   = 0,
                .max   = 1e6,
                .help  = "temperature; 0: always the most likely token" },
        { .names      = "--greedy",
                .type = OPTION_FLAG,
                .dest = &args.greedy,
                .help = "the same as --temp 0" },
        { .names       = "--top-k",
                .value = "K",
                .type  = OPTION_INT,
                .dest  = &args.top_k,
                .min   = 0,
                .max   = INT32_MAX,
                .help  = "of the K most likely tokens; 0: of all" },
        { .names       = "--top-p",
                .value = "P",
                .type  = OPTION_FLOAT,
                .dest  = &args.top_p,
                .min   = 0,
                .max   = 1,
                .help  = "of the most likely that together have probability P; 1: of all" },
        { .names       = "--min-p",
                .value = "P",
                .type  = OPTION_FLOAT,
                .dest  = &args.min_p,
                .min   = 0,
                .max   = 1,
                .help  = "of those at least P times as likely as the most likely; 0: of all" },
        { .names       = "--repeat-penalty",
                .value = "X",
                .type  = OPTION_FLOAT,
                .dest  = &args.repeat_penalty,
                .min   = 1e-6,
                .max   = 1e6,
                .help  = "makes recent tokens less likely; 1: off" },
        { .names       = "--repeat-last",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.repeat_last,
                .min   = 0,
                .max   = 4096,
                .help  = "how many tokens are recent" },
        { .names       = "-s, --seed",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.seed,
                .min   = 0,
                .max   = 1e15,
                .help  = "of the random numbers",
                .unset = "that of the loaded state, otherwise a new one" },

        { .group       = "State",
                .names = "--state-load",
                .value = "FILE",
                .type  = OPTION_STRING,
                .dest  = &args.state_load,
                .help  = "go on behind a saved sequence; the prompt follows it" },
        { .names       = "--state-save",
                .value = "FILE",
                .type  = OPTION_STRING,
                .dest  = &args.state_save,
                .help  = "save the sequence at the end, also after Ctrl-C" },

        { .group       = "Output",
                .names = "--jsonl",
                .type  = OPTION_FLAG,
                .dest  = &args.jsonl,
                .help = "an object a token: id, text (null without a tokenizer), logprob (natural, before sampling). A stop string is in it; "
                        "a character of several tokens is in the last of them" },
        { .names      = "-q, --quiet",
                .type = OPTION_FLAG,
                .dest = &args.quiet,
                .help = "nothing on stderr but errors" },

        { .group = "Computation", COMPUTE_THREADS(args.compute) },
        COMPUTE_OPTIONS(args.compute),
        { .names       = "-b, --batch",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.batch,
                .min   = 1,
                .max   = 1 << 20,
                .help  = "tokens of a prompt that are computed together" },
        { .names       = "-c, --cache",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.cache,
                .min   = 1,
                .max   = 1 << 30,
                .help = "tokens that the attention layers of a hybrid can remember; recurrent models have no such limit" },
    };
    const struct program program = {
        .name    = "lrnn-cli",
        .summary = "continues a text",
        .modes   = (const char * const[]) { "-m M.gguf -p TEXT [options]      continue a text",
                  "-m M.gguf -f FILE [options]      continue a file",
                  "-m M.gguf [options] < FILE       continue what comes in",
                  "-m M.gguf                        on a terminal: line by line", NULL },
        .examples =
                (const char * const[]) {
                        "lrnn-cli -m model.gguf -p 'Once upon a time' -n 64 --state-save tale.state",
                        "lrnn-cli -m model.gguf -p ' and then' -n 64 --state-load tale.state --jsonl",
                        NULL },
        .options   = options,
        .n_options = sizeof(options) / sizeof(options[0]),
    };
    char           err[512];
    enum exit_code code;

    if (!options_read(&program, argc, argv, &code)) {
        return code;
    }
    if (!check_args(&args, err, sizeof(err))) {
        return fail(EXIT_CODE_USAGE, "%s", err);
    }
    args.greedy = args.greedy || args.temperature == 0.0;
    signal(SIGPIPE, SIG_IGN); // whoever reads the text may stop reading; the state is still saved
    return run(&args);
}
