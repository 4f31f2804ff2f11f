// lrnn-cli: continues a text.

#include "base/atomic-file.h"
#include "base/error.h"
#include "chat.h"
#include "device-options.h"
#include "draft-options.h"
#include "generate.h"
#include "generate/prompt.h"
#include "generate/state-file.h"
#include "interrupt.h"
#include "line-input.h"
#include "match.h"
#include "output-check.h"
#include "program.h"
#include "output.h"
#include "base/read-file.h"
#include "terminal.h"
#include "token-ids.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SEED_RANDOM = -1, // a new seed for each run
    SEED_UNSET = -2,  // that of the loaded state, or a new one

    PREDICT_UNSET = -2,
    PREDICT_DEFAULT = 128,
};

// Where the prompt comes from.
enum input {
    INPUT_OPTION, // -p
    INPUT_FILE,   // -f, or stdin as a whole
    INPUT_LINES,  // line by line: a terminal, or the messages of a chat
};

struct args {
    const char * model;
    const char * prompt;
    const char * file;
    bool         ids;
    bool         special;
    bool         match;

    int64_t               n_predict;
    struct option_strings stops;
    bool                  jsonl;
    struct draft_options  draft;

    double  temperature;
    int64_t top_k;
    double  top_p;
    double  min_p;
    double  repeat_penalty;
    int64_t repeat_last;
    int64_t seed; // SEED_RANDOM, SEED_UNSET
    bool    greedy;

    bool         json; // at most one of these
    const char * json_schema;
    const char * regex;
    const char * grammar;

    const char * state_load;
    const char * state_save;

    bool         chat;
    const char * chat_format;
    const char * system;
    bool         no_thinking;

    enum input input;
    int64_t    max_tokens; // n_predict, as struct lrnn_generation_params has it
    bool       echo;       // print the prompt before the generated text

    struct device_options device;
    bool                  quiet;
};

//
// One prompt
//

// Prints the error that ended a run, if any. Returns the exit code.
static enum exit_code report(
        const struct generator * g, enum lrnn_finish finish, const struct output * out) {
    if (out->error != 0) {
        clearerr(stdout); // reported here, not at the end of the program
        return out->error == EPIPE ? EXIT_CODE_OK
                                   : program_fail(EXIT_CODE_SYSTEM, "cannot write to stdout: %s",
                                             strerror(out->error));
    }
    switch (finish) {
        case LRNN_FINISH_ERROR: return program_error(&g->err);
        case LRNN_FINISH_CACHE:
            return program_fail(EXIT_CODE_STOPPED,
                    "the attention cache is full (%" PRId64 " tokens); " GENERATOR_MORE_CACHE,
                    lrnn_seq_length(g->session, 0));
        case LRNN_FINISH_CALLER: return EXIT_CODE_STOPPED;
        default: return EXIT_CODE_OK;
    }
}

// The tokens of a prompt; the caller frees them.
static bool make_prompt(const struct args * args, const struct generator * g, const char * text,
        size_t size, int32_t ** tokens, int64_t * n_tokens, struct lrnn_error * err) {
    if (!args->ids) {
        return prompt_tokenize(g->model, text, size, lrnn_seq_length(g->session, 0) > 0,
                args->special, tokens, n_tokens, err);
    }
    return (token_ids_parse(text, size, tokens, n_tokens, err) &&
                   token_ids_check(*tokens, *n_tokens, g->info.n_vocab, err)) ||
           error_prefix(err, "the prompt must be token ids%s",
                   g->info.has_tokenizer ? "" : ", because the model has no tokenizer");
}

// Feeds a prompt and generates text after it.
static enum exit_code continue_text(
        const struct args * args, struct generator * g, const char * text, size_t size) {
    const bool               follows = lrnn_seq_length(g->session, 0) > 0 || size > 0;
    const enum output_format format = args->jsonl ? OUTPUT_JSONL
                                      : args->ids ? OUTPUT_IDS
                                                  : OUTPUT_TEXT;
    int32_t *                tokens = NULL;
    int64_t                  n_tokens;
    struct output            out;
    struct lrnn_error        err;

    if (!make_prompt(args, g, text, size, &tokens, &n_tokens, &err)) {
        free(tokens);
        return program_fail(EXIT_CODE_DATA, "%s", err.text);
    }
    const bool ok = generator_read(g, tokens, n_tokens, args->max_tokens);
    free(tokens);
    if (!ok) {
        return g->err.kind == LRNN_ERROR_BAD_INPUT && n_tokens > 0
                       ? program_fail(EXIT_CODE_USAGE, "%s; " GENERATOR_MORE_CACHE, g->err.text)
                       : program_error(&g->err);
    }
    if (!output_begin(&out, format, g->model, follows, &err)) {
        return program_error(&err);
    }
    if (args->echo) {
        fwrite(text, 1, size, stdout);
        printf("%s", args->ids && size > 0 ? " " : "");
    }
    const enum lrnn_finish finish = generator_write(g, &out, NULL);
    output_end(&out, (out.n_tokens > 0 || args->echo) && !args->jsonl);
    g->is_closed = out.error != 0;
    return report(g, finish, &out);
}

//
// Line by line, on a terminal
//

#define GREETING_END                                                                     \
    ", an empty line too. A line that ends with \\ continues on the next. Ctrl-C stops " \
    "the generation, Ctrl-D ends."

static const char GREETING_TEXT[] = "Each line continues the text" GREETING_END;
static const char GREETING_IDS[] = "Each line of token ids continues the sequence" GREETING_END;

// After most errors the user can enter another line.
static bool is_over(enum exit_code code, const struct generator * g) {
    return g->is_closed || code == EXIT_CODE_NOT_FINITE || code == EXIT_CODE_SYSTEM;
}

static enum exit_code converse(const struct args * args, struct generator * g) {
    struct line_input * input = line_input_new();
    enum exit_code      code = EXIT_CODE_OK;
    enum line_status    status;
    bool                is_final; // SIGTERM or SIGHUP while waiting for a line
    const char *        text;
    size_t              size;

    if (!args->quiet) {
        terminal_print(program_stderr(), args->ids ? GREETING_IDS : GREETING_TEXT);
    }
    do {
        interrupt_listen_dialog(true);
        status = input != NULL ? line_input_read(input, &text, &size) : LINE_MEMORY;
        is_final = interrupt_is_final();
        interrupt_listen_dialog(false);
        if (status == LINE_MEMORY) {
            code = program_fail(EXIT_CODE_SYSTEM, "out of memory for a line");
        } else if (status == LINE_OK) {
            code = continue_text(args, g, text, size);
            code = is_over(code, g) ? code : EXIT_CODE_OK;
        }
        if ((is_final || interrupt_is_final()) && code == EXIT_CODE_OK) {
            code = EXIT_CODE_STOPPED;
        }
    } while (status != LINE_END && code == EXIT_CODE_OK && !g->is_closed);
    line_input_free(input);
    return code;
}

//
// A run
//

// Compiles the grammar of the options; NULL: none, or an error.
static struct lrnn_grammar * make_grammar(
        const struct args * args, const struct lrnn_model * model, struct lrnn_error * err) {
    const char * path = args->json_schema != NULL ? args->json_schema : args->grammar;
    const enum lrnn_grammar_kind kind = args->json                  ? LRNN_GRAMMAR_JSON
                                        : args->regex != NULL       ? LRNN_GRAMMAR_REGEX
                                        : args->json_schema != NULL ? LRNN_GRAMMAR_JSON_SCHEMA
                                                                    : LRNN_GRAMMAR_GBNF;
    char *                       read = NULL;
    size_t                       size = args->regex != NULL ? strlen(args->regex) : 0;
    struct lrnn_grammar *        grammar = NULL;
    if (path != NULL && !read_file(path, &read, &size, err)) {
        return NULL;
    }
    struct lrnn_grammars * grammars = lrnn_grammars_new(model, err);
    if (grammars != NULL) {
        grammar = lrnn_grammar_new(grammars, kind,
                read != NULL          ? read
                : args->regex != NULL ? args->regex
                                      : "",
                size, err);
        if (grammar == NULL && path != NULL) {
            error_prefix(err, "%s", path);
        }
    }
    lrnn_grammars_free(grammars);
    free(read);
    return grammar;
}

static int count_grammars(const struct args * args) {
    return args->json + (args->json_schema != NULL) + (args->regex != NULL) +
           (args->grammar != NULL);
}

// What the options say about the text to generate.
static bool generation_params(const struct args * args, const struct lrnn_chat * chat,
        const struct lrnn_grammar * grammar, struct lrnn_generation_params * p,
        struct lrnn_error * err) {
    const struct {
        const char * option;
        double       value;
    } sampling[] = {
        { "temperature", args->greedy ? 0.0 : args->temperature },
        { "top_k", (double) args->top_k },
        { "top_p", args->top_p },
        { "min_p", args->min_p },
        { "repeat_penalty", args->repeat_penalty },
        { "repeat_last", (double) args->repeat_last },
    };
    *p = (struct lrnn_generation_params) {
        .sampler = { .seed = (uint64_t) args->seed },
        .stops = args->stops.v,
        .n_stops = args->stops.n,
        .n_draft = args->draft.lookup,
        .n_draft_mtp = args->draft.mtp,
        .chat = chat,
        .grammar = grammar,
        .keep = args->input == INPUT_LINES || args->chat || args->state_save != NULL,
    };
    for (size_t i = 0; i < sizeof(sampling) / sizeof(sampling[0]); ++i) {
        if (!lrnn_sampler_set(&p->sampler, sampling[i].option, sampling[i].value, err)) {
            return false;
        }
    }
    return true;
}

// Creates the session, and loads the saved sequence.
static bool prepare(struct args * args, struct generator * g, const struct lrnn_chat * chat,
        const struct lrnn_grammar * grammar, struct lrnn_error * err) {
    // a saved sequence includes the random state, unless the user gives a seed
    const bool own_seed = args->state_load != NULL && args->seed == SEED_UNSET;
    if (args->seed < 0 && !own_seed) {
        args->seed = (int64_t) (((uint64_t) time(NULL) << 20 ^ (uint64_t) clock() << 8 ^
                                        (uint64_t) getpid()) &
                                UINT32_MAX);
    }
    struct lrnn_generation_params p;
    struct lrnn_session_params    params = args->device.session;
    draft_options_session(&args->draft, &params);
    if (!generation_params(args, chat, grammar, &p, err)) {
        return false;
    }
    g->session = lrnn_session_new(g->model, &params, err);
    g->generation = g->session != NULL ? lrnn_generation_new(g->session, 0, &p, err) : NULL;
    if (g->generation == NULL || args->state_load == NULL || args->chat) {
        return g->generation != NULL;
    }
    return lrnn_seq_load(g->session, 0, own_seed ? lrnn_generation_sampler(g->generation) : NULL,
            args->state_load, err);
}

// Saves the sequence, also after an interrupt, but not after an error or half a prompt.
static enum exit_code save(const struct args * args, const struct generator * g) {
    const bool is_whole = (g->err.kind == LRNN_ERROR_NONE || g->err.kind == LRNN_ERROR_BAD_INPUT) &&
                          lrnn_seq_length(g->session, 0) > 0;
    struct lrnn_error err;

    if (args->state_save != NULL && is_whole && !args->chat &&
            !lrnn_seq_save(g->session, 0, lrnn_generation_sampler(g->generation), args->state_save,
                    &err)) {
        return program_error(&err);
    }
    return EXIT_CODE_OK;
}

// " (12.3/s)" with `more` inside the parentheses; "" if nothing was timed.
static void format_rate(int64_t n, int64_t us, const char * more, char * text, size_t text_size) {
    text[0] = '\0';
    if (n > 0 && us > 0) {
        snprintf(text, text_size, " (%.1f/s%s)", 1e6 * (double) n / (double) us, more);
    }
}

static void print_summary(const struct generator * g, const struct args * args) {
    char seed[32] = "", calls[64] = "", read[64], made[128], line[400];

    if (!args->greedy && args->seed >= 0) {
        snprintf(seed, sizeof(seed), "; seed %" PRId64, args->seed);
    }
    if (args->draft.lookup + args->draft.mtp > 0 && g->n_calls > 0) {
        snprintf(calls, sizeof(calls), ", %.2f per call", (double) g->n_new / (double) g->n_calls);
    }
    format_rate(g->n_prompt, g->prompt_us, "", read, sizeof(read));
    format_rate(g->n_new, g->new_us, calls, made, sizeof(made));
    snprintf(line, sizeof(line),
            "lrnn-cli: %" PRId64 " prompt token%s%s, %" PRId64 " generated%s, %s%s", g->n_prompt,
            g->n_prompt == 1 ? "" : "s", read, g->n_new, made, generator_end_text(g), seed);
    terminal_print(program_stderr(), line);
}

static bool check_args(const struct args * args, struct lrnn_error * err) {
    if (!device_options_check(&args->device, err) || !draft_options_check(&args->draft, err)) {
        return false;
    }
    if (args->prompt != NULL && args->file != NULL) {
        return error_bad_input(err, "-p and -f both set the prompt; give only one of them");
    }
    if (args->chat && (args->ids || args->jsonl || args->special || args->n_predict == 0)) {
        return error_bad_input(err, "--chat cannot be combined with --ids, --jsonl, --special "
                                    "or -n 0");
    }
    if (!args->chat && (args->chat_format != NULL || args->system != NULL || args->no_thinking)) {
        return error_bad_input(err, "--chat-format, --system and --no-thinking need --chat");
    }
    if (args->match && (args->chat || args->ids || args->jsonl || args->state_load != NULL ||
                               args->state_save != NULL)) {
        return error_set(err, LRNN_ERROR_BAD_INPUT,
                "--match cannot be combined with --chat, --ids, --jsonl, --state-load or "
                "--state-save");
    }
    if (count_grammars(args) > 1) {
        return error_bad_input(
                err, "--json, --json-schema, --regex and --grammar exclude each other");
    }
    for (int i = 0; i < args->stops.n; ++i) {
        if (args->stops.v[i][0] == '\0') {
            return error_bad_input(err, "--stop is empty; expected a text");
        }
    }
    return true;
}

// Checks --state-save now rather than after an hour of generation. The state that was loaded may be
// replaced.
static enum exit_code check_state_save(const struct args * args) {
    const char * const prompt = args->file == NULL && args->prompt == NULL ? "-" : args->file;
    const char * const inputs[] = { args->model, prompt };
    struct lrnn_error  err;

    if (args->state_save == NULL) {
        return EXIT_CODE_OK;
    }
    const enum exit_code code = output_check(args->state_save, inputs, 2);
    if (code == EXIT_CODE_OK && !state_file_may_replace(args->state_save, &err)) {
        return program_error(&err);
    }
    return code;
}

// A conversation, with the file of -f as its only message.
static enum exit_code run_chat(const struct args * args, struct generator * g,
        const struct lrnn_chat * format, const char * text, size_t size) {
    const struct chat_options options = {
        .format = format,
        .system = args->system,
        .prompt = text,
        .prompt_size = size,
        .load = args->state_load,
        .save = args->state_save,
        .max_tokens = args->max_tokens,
        .no_thinking = args->no_thinking || count_grammars(args) > 0, // that of the whole answer
        .n_cache = args->device.session.n_cache,
    };
    return chat_run(&options, g);
}

// Reads the prompt of -f or stdin. Sets *is_typed if it is already on the terminal.
static enum exit_code read_prompt(const char * path, char ** text, size_t * size, bool * is_typed) {
    struct lrnn_error err;
    *is_typed = strcmp(path, "-") == 0 && isatty(STDIN_FILENO);
    if (!read_file(path, text, size, &err)) {
        return program_error(&err);
    }
    if (*is_typed && line_input_is_cut(*text, *size)) {
        return program_fail(EXIT_CODE_DATA, LINE_INPUT_CUT, LINE_INPUT_MAX);
    }
    *size -= *size > 0 && (*text)[*size - 1] == '\n'; // the end of the last line
    return EXIT_CODE_OK;
}

// Runs a model that is loaded.
static enum exit_code run_model(
        struct args * args, struct generator * g, const char * text, size_t size) {
    struct lrnn_error  err;
    struct lrnn_chat * chat = args->chat ? lrnn_chat_new(g->model, args->chat_format, &err) : NULL;
    enum exit_code     code = EXIT_CODE_OK;
    struct lrnn_grammar * grammar = NULL;
    bool                  ok = !args->chat || chat != NULL;

    args->ids = args->ids || !g->info.has_tokenizer;
    if (ok && count_grammars(args) > 0) {
        grammar = make_grammar(args, g->model, &err);
        ok = grammar != NULL;
    }
    if (!ok || !prepare(args, g, chat, grammar, &err)) {
        code = program_error(&err);
    } else {
        if (args->chat) {
            code = run_chat(args, g, chat, text, size);
        } else if (args->match) {
            code = match_lines(g->model, g->session, text, size);
        } else if (args->input == INPUT_LINES) {
            code = converse(args, g);
        } else {
            interrupt_listen();
            code = continue_text(args, g, text, size);
        }
        const enum exit_code saved = save(args, g);
        if (!args->quiet && g->n_prompt + g->n_new > 0 && !g->is_closed) {
            print_summary(g, args);
        }
        code = saved != EXIT_CODE_OK ? saved : code;
    }
    lrnn_generation_free(g->generation);
    lrnn_session_free(g->session);
    lrnn_grammar_free(grammar);
    lrnn_chat_free(chat);
    return code;
}

static enum exit_code run(void * user) {
    struct args *     args = user;
    const bool        is_alone = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct generator  g = { .n_batch = args->device.session.n_batch, .quiet = args->quiet };
    char *            read = NULL;
    const char *      text = args->prompt;
    size_t            size = text != NULL ? strlen(text) : 0;
    bool              is_typed = false; // the prompt is already on the terminal
    struct lrnn_error err;

    if (!check_args(args, &err)) {
        return program_error(&err);
    }
    enum exit_code code = check_state_save(args);
    if (code != EXIT_CODE_OK) {
        return code;
    }
    args->greedy = args->greedy || args->temperature == 0.0;
    args->input = args->prompt != NULL                                             ? INPUT_OPTION
                  : args->file == NULL && !args->match && (args->chat || is_alone) ? INPUT_LINES
                                                                                   : INPUT_FILE;
    if (args->n_predict == PREDICT_UNSET) {
        args->n_predict = args->chat ? -1 : PREDICT_DEFAULT;
    }
    args->max_tokens = args->n_predict > 0 ? args->n_predict : -1 - args->n_predict;
    signal(SIGPIPE, SIG_IGN); // the reader may stop reading; the state is still saved
    if (args->input == INPUT_FILE) {
        code = read_prompt(args->file != NULL ? args->file : "-", &read, &size, &is_typed);
        text = read;
    }
    args->echo = args->input != INPUT_LINES && !is_typed && !args->jsonl && args->n_predict != 0 &&
                 isatty(STDOUT_FILENO);
    if (code == EXIT_CODE_OK) {
        g.model = device_options_load(&args->device, args->model, args->quiet, &err);
        if (g.model == NULL) {
            code = program_error(&err);
        } else {
            g.info = lrnn_model_get_info(g.model);
            code = run_model(args, &g, text, size);
        }
    }
    lrnn_model_free(g.model);
    free(read);
    return code;
}

//
// Command line
//

int main(int argc, char ** argv) {
    struct args args = {
        .device = DEVICE_OPTIONS_DEFAULTS,
        .n_predict = PREDICT_UNSET,
        .temperature = 0.8,
        .top_k = 40,
        .top_p = 0.95,
        .min_p = 0.05,
        .repeat_penalty = 1.0,
        .repeat_last = 64,
        .seed = SEED_UNSET,
    };
    char                chat_formats[CHAT_FORMAT_HELP];
    const struct option options[] = {
        opt_group("Prompt"),
        opt_required(opt_string("-m, --model", "M.gguf", &args.model, "the model")),
        opt_string("-p, --prompt", "TEXT", &args.prompt, "the text to continue"),
        opt_string("-f, --file", "FILE", &args.file,
                "a file with the text to continue, without its final newline (default: -, stdin)"),
        opt_flag("--ids", &args.ids,
                "prompt and output are decimal token ids; implied if the model has no tokenizer"),
        opt_flag("--special", &args.special,
                "turn the names of special tokens in the prompt into their ids"),

        opt_flag("--match", &args.match,
                "for a model of a regular expression: print yes or no for each line of the text, "
                "whether it matches as a whole; exit code 3 if one does not"),

        opt_group("Chat"),
        opt_flag("--chat", &args.chat,
                "a conversation: each line of the terminal or of stdin is a message, and -p or -f "
                "the only one; /help lists the commands"),
        opt_string("--system", "TEXT", &args.system, "the system message"),
        opt_chat_format(&args.chat_format, chat_formats),
        opt_flag("--no-thinking", &args.no_thinking,
                "ask for answers without a thinking section, if the format can"),

        opt_group("Generation"),
        opt_int("-n, --predict", "N", &args.n_predict, -1, 1e15,
                "tokens to generate; 0: only read the prompt, -1: until the model ends the text "
                "(default: 128, or -1 for each answer of a chat)"),
        opt_strings("--stop", "TEXT", &args.stops, "stop before this text; may be repeated"),
        DRAFT_OPTIONS(args.draft),

        opt_group("Structured output"),
        opt_flag("--json", &args.json, "generate a JSON object"),
        opt_string("--json-schema", "FILE", &args.json_schema,
                "generate JSON that a JSON schema accepts"),
        opt_string("--regex", "REGEX", &args.regex, "generate a text that this expression matches"),
        opt_string("--grammar", "FILE", &args.grammar,
                "generate a text that a grammar accepts, in GBNF, the format of llama.cpp"),

        opt_group("Sampling"),
        opt_alias("--temperature", opt_float("--temp", "T", &args.temperature, 0, 1e6,
                                           "temperature; 0: always the most likely token")),
        opt_flag("--greedy", &args.greedy, "the same as --temp 0"),
        opt_int("--top-k", "K", &args.top_k, 0, INT32_MAX,
                "sample from the K most likely tokens; 0: from all"),
        opt_float("--top-p", "P", &args.top_p, 0, 1,
                "sample from the most likely tokens that together have probability P; 1: from all"),
        opt_float("--min-p", "P", &args.min_p, 0, 1,
                "drop tokens less likely than P times the most likely one; 0: none"),
        opt_float("--repeat-penalty", "X", &args.repeat_penalty, 1e-6, 1e6,
                "make recent tokens less likely; 1: off"),
        opt_int("--repeat-last", "N", &args.repeat_last, 0, 4096,
                "how many recent tokens the penalty covers; 0: none"),
        opt_int("-s, --seed", "N", &args.seed, SEED_RANDOM, 1e15,
                "random seed; -1: a new one (default: that of the loaded state, or -1)"),

        opt_group("State"),
        opt_string("--state-load", "FILE", &args.state_load,
                "continue a saved sequence; the prompt follows it"),
        opt_string("--state-save", "FILE", &args.state_save,
                "save the sequence at the end, also after Ctrl-C, with the messages of a chat; "
                "replaces only a state file"),

        opt_group("Output"),
        opt_flag("--jsonl", &args.jsonl,
                "one JSON object per token: id, text (null without a tokenizer), logprob (natural, "
                "before sampling). The text includes stop strings; a character made of several "
                "tokens belongs to the last of them"),
        opt_flag("-q, --quiet", &args.quiet, "print only errors to stderr"),

        opt_group("Computation"),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
        DEVICE_BATCH(args.device),
        opt_alias("--cache",
                opt_int32("-c, --ctx", "N", &args.device.session.n_cache, 1, 1 << 30,
                        "size of the attention cache of a hybrid, in tokens; recurrent models need "
                        "none")),
    };
    const struct program program = {
        .name = "lrnn-cli",
        .summary = "continues a text",
        .usage = "-m M.gguf -p TEXT [options]      continue a text\n"
                 "-m M.gguf -f FILE [options]      continue a file\n"
                 "-m M.gguf [options] < FILE       continue stdin\n"
                 "-m M.gguf                        on a terminal: line by line\n"
                 "-m M.gguf --chat [options]       a conversation\n"
                 "-m M.gguf --match -p TEXT        yes or no",
        .examples = "lrnn-cli -m model.gguf -p 'Once upon a time' -n 64 --state-save tale.state\n"
                    "lrnn-cli -m model.gguf -p ' and then' -n 64 --state-load tale.state --jsonl",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
