// The command line: values of every type, aliases, error messages, and --help.

#include "lrnn.h"
#include "describe.h"
#include "exit-code.h"
#include "kit/check.h"
#include "options.h"

static void check(struct test * t, bool ok, const char * what, const char * found) {
    test_check(t, ok, "%s; found: %s", what, found);
}

// One option of each type.
struct values {
    bool                  verbose;
    int64_t               n;
    double                temp;
    const char *          prompt;
    int                   format;
    struct option_ints    tokens;
    struct option_strings rules;
    const char *          in;
    struct option_strings rest;
};

static const struct values DEFAULTS = {
    .n = 128,
    .temp = 0.8,
    .format = 1,
    .tokens = { .n = 2, .v = { 64, 512 } },
};

enum { N_OPTIONS = 11 };

static void table(struct values * v, struct option * out) {
    const struct option options[N_OPTIONS] = {
        opt_group("Numbers"),
        opt_int("-n, --predict", "N", &v->n, -1, 1000, "how many"),
        opt_float("--temp", "T", &v->temp, 0, 10, "temperature"),
        opt_ints("-T, --tokens", "LIST", &v->tokens, 1, 4096, "lengths"),
        opt_group("Words"),
        opt_string("-p, --prompt", "TEXT", &v->prompt, "text"),
        opt_alias("--form, --old-output",
                opt_choice("-o, --output", "md|csv|json", &v->format, "format")),
        opt_strings("--rule", "RULE", &v->rules, "a rule"),
        opt_flag("-v, --verbose", &v->verbose, "say more"),
        opt_required(opt_arg("IN.gguf", &v->in, "the model")),
        opt_args("FILE...", &v->rest, "more files"),
    };
    memcpy(out, options, sizeof(options));
}

// Parses words separated by blanks.
static enum options_status parse(struct values * v, const char * line, struct lrnn_error * err) {
    static char text[256]; // values point into it
    char        name[] = "prog";
    char *      argv[32] = { name };
    int         argc = 1;

    snprintf(text, sizeof(text), "%s", line);
    for (char * p = strtok(text, " "); p != NULL; p = strtok(NULL, " ")) {
        argv[argc++] = p;
    }

    struct option options[N_OPTIONS];
    *v = DEFAULTS;
    table(v, options);
    const struct program program = {
        .name = "prog",
        .summary = "a program",
        .usage = "IN.gguf",
        .examples = "prog x.gguf",
        .options = options,
        .n_options = N_OPTIONS,
    };
    err->text[0] = '\0';
    return options_parse(&program, argc, argv, err);
}

static void check_values(struct test * t) {
    struct values     v;
    struct lrnn_error err;

    check(t, parse(&v, "m.gguf", &err) == OPTIONS_OK, "an argument alone", err.text);
    check(t,
            v.n == 128 && v.temp == 0.8 && v.format == 1 && v.tokens.n == 2 && !v.verbose &&
                    v.prompt == NULL,
            "defaults stay", "others");
    check(t, strcmp(v.in, "m.gguf") == 0, "m.gguf", v.in);

    check(t, parse(&v, "-n -1 --temp=0.25 m.gguf -v --output json a b", &err) == OPTIONS_OK,
            "options around arguments", err.text);
    check(t, v.n == -1 && v.temp == 0.25 && v.verbose && v.format == 2, "values of four types",
            "others");
    check(t, v.rest.n == 2 && strcmp(v.rest.v[0], "a") == 0 && strcmp(v.rest.v[1], "b") == 0,
            "the last argument takes the rest", "others");

    check(t, parse(&v, "m.gguf --rule a=1 --rule=b=2 --prompt=--help", &err) == OPTIONS_OK,
            "values with = and -", err.text);
    check(t, v.rules.n == 2 && strcmp(v.rules.v[0], "a=1") == 0 && strcmp(v.rules.v[1], "b=2") == 0,
            "a=1, b=2", v.rules.v[1]);
    check(t, strcmp(v.prompt, "--help") == 0, "--help as a value", v.prompt);

    check(t, parse(&v, "-n 1 -n 2 m.gguf", &err) == OPTIONS_OK && v.n == 2,
            "the last of two counts", err.text);
    check(t, parse(&v, "-- -n", &err) == OPTIONS_OK && strcmp(v.in, "-n") == 0,
            "-- ends the options", err.text);
    check(t, parse(&v, "-", &err) == OPTIONS_OK && strcmp(v.in, "-") == 0, "- is an argument",
            err.text);
}

static void check_list(struct test * t, const char * text, int n, const int64_t * expected) {
    struct values     v;
    char              line[128];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };

    snprintf(line, sizeof(line), "m.gguf -T %s", text);
    check(t, parse(&v, line, &err) == OPTIONS_OK, line, err.text);
    check(t, v.tokens.n == n && memcmp(v.tokens.v, expected, (size_t) n * sizeof(*expected)) == 0,
            line, "another list");
}

static void check_error(struct test * t, const char * line, const char * expected) {
    struct values     v;
    struct lrnn_error err;

    const enum options_status status = parse(&v, line, &err);
    check(t, status == OPTIONS_ERROR, line, "accepted");
    check(t, strcmp(err.text, expected) == 0, expected, err.text);
}

// An alias is accepted, but neither --help nor any other description of the table mentions it.
static void check_hidden(struct test * t, const struct program * program) {
    static const char * const WORDS[] = { "man", "bash", "zsh", "fish" };
    struct values             v;
    struct lrnn_error         err;

    check(t, parse(&v, "m.gguf --form json", &err) == OPTIONS_OK && v.format == 2, "an alias",
            err.text);
    check(t, parse(&v, "m.gguf --old-output=md", &err) == OPTIONS_OK && v.format == 0,
            "another alias", err.text);
    check_error(t, "m.gguf --form xml", "--form: 'xml' is not one of md|csv|json");
    check_error(t, "m.gguf --old-outpu", "unknown option --old-outpu; did you mean --output?");
    for (int i = -1; i < 4; ++i) {
        char   text[8192] = "";
        FILE * f = fmemopen(text, sizeof(text) - 1, "w");
        if (i < 0) {
            options_help(program, f);
        } else {
            describe(program, WORDS[i], f);
        }
        fclose(f);
        check(t,
                strstr(text, "output") != NULL && strstr(text, "old-output") == NULL &&
                        strstr(text, "-form") == NULL,
                "aliases are hidden", text);
    }
}

static void check_help(struct test * t) {
    struct values v = DEFAULTS;
    struct option options[N_OPTIONS];
    char          text[4096] = "";

    table(&v, options);
    const struct program program = {
        .name = "prog",
        .summary = "a program",
        .usage = "IN.gguf",
        .examples = "prog x.gguf",
        .options = options,
        .n_options = N_OPTIONS,
    };
    FILE * f = fmemopen(text, sizeof(text) - 1, "w");
    options_help(&program, f);
    fclose(f);

    const char * expected[] = {
        "how many (default: 128)",
        "temperature (default: 0.8)",
        "lengths (default: 64,512)",
        "format (default: csv)",
        "the model (required)",
        "Numbers\n",
        "Words\n",
        "--help",
        "--version",
        "prog x.gguf",
        "prog IN.gguf",
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); ++i) {
        check(t, strstr(text, expected[i]) != NULL, expected[i], "not in --help");
    }
    for (int i = 0; i < N_EXIT_CODES; ++i) {
        check(t, strstr(text, EXIT_CODE_TEXT[i]) != NULL, EXIT_CODE_TEXT[i], "not in --help");
    }
    check_hidden(t, &program);
    for (const char * line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        check(t, strcspn(line, "\n") <= 110, "lines of --help fit a terminal", line);
    }
    check(t, strchr(text, '\033') == NULL, "no color in a file", "an escape code");
}

int main(void) {
    struct test t = { 0 };

    check_values(&t);

    check_list(&t, "1", 1, (const int64_t[]) { 1 });
    check_list(&t, "4,2,4", 3, (const int64_t[]) { 4, 2, 4 });
    check_list(&t, "1-4", 4, (const int64_t[]) { 1, 2, 3, 4 });
    check_list(&t, "64-256+64,1", 5, (const int64_t[]) { 64, 128, 192, 256, 1 });
    check_list(&t, "64-4096*8", 3, (const int64_t[]) { 64, 512, 4096 });
    check_list(&t, "3-10*2", 2, (const int64_t[]) { 3, 6 });

    check_error(&t, "m.gguf --tokns 3", "unknown option --tokns; did you mean --tokens?");
    check_error(&t, "m.gguf --out md", "unknown option --out; did you mean --output?");
    check_error(&t, "m.gguf --etpm 1", "unknown option --etpm; did you mean --temp?"); // two swaps
    check_error(&t, "m.gguf --colour", "unknown option --colour; see prog --help");
    check_error(&t, "m.gguf -x", "unknown option -x; see prog --help");
    check_error(&t, "m.gguf -n", "-n needs a value: N");
    check_error(&t, "m.gguf -n --verbose", "-n needs a value: N");
    check_error(&t, "m.gguf -n 1001", "-n is 1001; the maximum is 1000");
    check_error(&t, "m.gguf -n -2", "-n is -2; the minimum is -1");
    check_error(&t, "m.gguf --temp -1", "--temp is -1; the minimum is 0");
    check_error(&t, "m.gguf --temp 1e3", "--temp is 1e3; the maximum is 10");
    check_error(&t, "m.gguf -n 1x", "-n: '1x' is not a whole number from -1 to 1000");
    check_error(&t, "m.gguf -n 99999999999999999999",
            "-n: '99999999999999999999' is not a whole number from -1 to 1000");
    check_error(&t, "m.gguf --temp nan", "--temp: 'nan' is not a number from 0 to 10");
    check_error(&t, "m.gguf --temp=", "--temp: '' is not a number from 0 to 10");
    check_error(&t, "m.gguf -o xml", "-o: 'xml' is not one of md|csv|json");
    check_error(&t, "m.gguf --verbose=1", "--verbose takes no value");
    check_error(&t, "-v", "IN.gguf is missing; see prog --help");

    const char * bad_lists[] = { "", ",", "1,", "0", "5000", "4-1", "1-4+0", "1-64*1", "1-65",
        "1-2-3", "a" };
    for (size_t i = 0; i < sizeof(bad_lists) / sizeof(bad_lists[0]); ++i) {
        char line[64], expected[256];
        snprintf(line, sizeof(line), "m.gguf --tokens=%s", bad_lists[i]);
        snprintf(expected, sizeof(expected),
                "--tokens: '%s' is not a list (1,2,4 or 64-256+64 or 64-4096*8) of at most 64 "
                "whole numbers from 1 to 4096",
                bad_lists[i]);
        check_error(&t, line, expected);
    }
    check_help(&t);

    printf("values of every type, lists and ranges, aliases, error messages, --help\n");
    return test_end(&t, "options");
}
