#include "options.h"

#include "base/error.h"
#include "base/slice.h"
#include "describe.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_MAX_CHARS = 48,
};

// Options of all programs, listed after their own.
enum general { GENERAL_GROUP, GENERAL_HELP, GENERAL_VERSION, GENERAL_DESCRIBE, N_GENERAL };

static const struct option GENERAL[N_GENERAL] = {
    { .type = OPTION_GROUP, .names = "General" },
    { .type = OPTION_FLAG, .names = "-h, --help", .help = "show this text" },
    { .type = OPTION_FLAG, .names = "--version", .help = "show the version" },
    { .type = OPTION_CHOICE,
            .names = "--describe",
            .value = DESCRIBE_WORDS,
            .help = "print a man page, or completions for a shell (default: nothing)" },
};

//
// The table
//

struct option opt_group(const char * heading) {
    return (struct option) { .type = OPTION_GROUP, .names = heading };
}

struct option opt_flag(const char * names, bool * dest, const char * help) {
    return (struct option) { .type = OPTION_FLAG, .names = names, .dest = dest, .help = help };
}

static struct option with_value(enum option_type type, const char * names, const char * value,
        void * dest, double min, double max, const char * help) {
    return (struct option) { type, names, NULL, value, dest, help, min, max, false };
}

struct option opt_int(const char * names, const char * value, int64_t * dest, double min,
        double max, const char * help) {
    return with_value(OPTION_INT, names, value, dest, min, max, help);
}

struct option opt_int32(const char * names, const char * value, int32_t * dest, double min,
        double max, const char * help) {
    return with_value(OPTION_INT32, names, value, dest, min, max, help);
}

struct option opt_float(const char * names, const char * value, double * dest, double min,
        double max, const char * help) {
    return with_value(OPTION_FLOAT, names, value, dest, min, max, help);
}

struct option opt_string(
        const char * names, const char * value, const char ** dest, const char * help) {
    return with_value(OPTION_STRING, names, value, (void *) dest, 0, 0, help);
}

struct option opt_choice(const char * names, const char * words, int * dest, const char * help) {
    return with_value(OPTION_CHOICE, names, words, dest, 0, 0, help);
}

struct option opt_ints(const char * names, const char * value, struct option_ints * dest,
        double min, double max, const char * help) {
    return with_value(OPTION_INTS, names, value, dest, min, max, help);
}

struct option opt_strings(
        const char * names, const char * value, struct option_strings * dest, const char * help) {
    return with_value(OPTION_STRINGS, names, value, dest, 0, 0, help);
}

struct option opt_arg(const char * name, const char ** dest, const char * help) {
    return opt_string(name, NULL, dest, help);
}

struct option opt_args(const char * name, struct option_strings * dest, const char * help) {
    return opt_strings(name, NULL, dest, help);
}

struct option opt_chat_format(const char ** dest, char help[CHAT_FORMAT_HELP]) {
    int          n = 0;
    const char * name;
    for (int32_t i = 0; (name = lrnn_chat_format(i)) != NULL && n < CHAT_FORMAT_HELP / 2; ++i) {
        n += snprintf(help + n, CHAT_FORMAT_HELP - (size_t) n, "%s, ", name);
    }
    snprintf(help + n, CHAT_FORMAT_HELP - (size_t) n,
            "or a file written by lrnn-convert chat-format (default: the format of the model "
            "file)");
    return opt_string("--chat-format", "FORMAT", dest, help);
}

struct option opt_required(struct option o) {
    o.required = true;
    return o;
}

struct option opt_alias(const char * aliases, struct option o) {
    o.aliases = aliases;
    return o;
}

int options_count(const struct program * program) {
    return program->n_options + N_GENERAL;
}

const struct option * options_at(const struct program * program, int i) {
    return i < program->n_options ? &program->options[i] : &GENERAL[i - program->n_options];
}

bool option_is_argument(const struct option * o) {
    return o->type != OPTION_GROUP && o->names[0] != '-';
}

bool option_is_named(const struct option * o) {
    return o->names[0] == '-';
}

//
// Words of a list such as "-t, --threads" or "md|csv|json"
//

bool option_word(const char * list, const char * sep, int i, char * word, size_t word_size) {
    const char * p = list + strspn(list, sep);
    for (; i > 0 && *p != '\0'; i--) {
        p += strcspn(p, sep);
        p += strspn(p, sep);
    }
    if (*p == '\0') {
        return false;
    }
    const size_t n = strcspn(p, sep);
    snprintf(word, word_size, "%.*s", (int) n, p);
    return true;
}

static int word_index(const char * list, const char * sep, const char * word) {
    char w[NAME_MAX_CHARS];
    for (int i = 0; option_word(list, sep, i, w, sizeof(w)); ++i) {
        if (strcmp(w, word) == 0) {
            return i;
        }
    }
    return -1;
}

static const struct option * find_option(const struct program * program, const char * name) {
    for (int i = 0; i < options_count(program); ++i) {
        const struct option * o = options_at(program, i);
        if (option_is_named(o) &&
                (word_index(o->names, ", ", name) >= 0 ||
                        (o->aliases != NULL && word_index(o->aliases, ", ", name) >= 0))) {
            return o;
        }
    }
    return NULL;
}

//
// The nearest name to a mistyped one
//

// Finds the option with the long name or alias most similar to a mistyped one. Suggests that name;
// for an alias, which --help does not mention, the name of the option. False: none is similar.
static bool find_nearest(
        const struct program * program, const char * name, char nearest[NAME_MAX_CHARS]) {
    const size_t length = strlen(name);
    int          best = 1 + (length < 6 ? 2 : (int) length / 3);
    bool         found = false;

    if (length < 4) { // everything is similar to a name as short as -x
        return false;
    }
    for (int i = 0; i < 2 * options_count(program); ++i) {
        const struct option * o = options_at(program, i / 2);
        const char *          names = i % 2 == 0 ? o->names : o->aliases;
        char                  w[NAME_MAX_CHARS];
        if (names == NULL || !option_is_named(o)) {
            continue;
        }
        for (int j = 0; option_word(names, ", ", j, w, sizeof(w)); ++j) {
            const bool is_prefix = strncmp(w, name, length) == 0; // --tok for --tokens
            const int  distance = is_prefix ? 0 : slice_distance(slice_of(name), slice_of(w));
            if (strncmp(w, "--", 2) == 0 && distance < best) {
                best = distance;
                found = true;
                const bool has_short = o->names[1] != '-';
                option_word(
                        o->names, ", ", names == o->names ? j : has_short, nearest, NAME_MAX_CHARS);
            }
        }
    }
    return found;
}

//
// Values
//

static bool parse_int(const char * text, const char ** end, int64_t * value) {
    char * e;
    errno = 0;
    *value = strtoll(text, &e, 10);
    *end = e;
    return e != text && errno == 0 && !isspace((unsigned char) text[0]);
}

// Parses numbers and ranges separated by commas. A range is first-last, first-last+step or
// first-last*factor.
static bool parse_ints(const char * text, double min, double max, struct option_ints * list) {
    struct option_ints out = { 0 };

    for (const char * p = text;;) {
        int64_t first, last, step = 1;
        char    how = '+';

        if (!parse_int(p, &p, &first)) {
            return false;
        }
        last = first;
        if (*p == '-') {
            if (!parse_int(p + 1, &p, &last)) {
                return false;
            }
            if (*p == '+' || *p == '*') {
                how = *p;
                if (!parse_int(p + 1, &p, &step)) {
                    return false;
                }
            }
        }
        if ((double) first < min || (double) last > max || last < first ||
                step < (how == '*' ? 2 : 1) || (how == '*' && first < 1)) {
            return false;
        }
        for (int64_t x = first; x <= last;) {
            if (out.n == OPTION_LIST_MAX) {
                return false;
            }
            out.v[out.n++] = x;
            if (how == '*' ? x > last / step : x > last - step) {
                break; // the next one would be too large, or overflow
            }
            x = how == '*' ? x * step : x + step;
        }
        if (*p == '\0') {
            *list = out;
            return true;
        }
        if (*p++ != ',') {
            return false;
        }
    }
}

// - x: the value of text
// - format: of min and max
static bool check_range(const struct option * o, const char * name, const char * text, double x,
        const char * format, struct lrnn_error * err) {
    char limit[32];
    snprintf(limit, sizeof(limit), format, x < o->min ? o->min : o->max);
    return (x >= o->min && x <= o->max) || error_bad_input(err, "%s is %s; the %s is %s", name,
                                                   text, x < o->min ? "minimum" : "maximum", limit);
}

static bool set_value(
        const struct option * o, const char * name, const char * text, struct lrnn_error * err) {
    switch (o->type) {
        case OPTION_GROUP: return false;
        case OPTION_FLAG: *(bool *) o->dest = true; return true;
        case OPTION_INT:
        case OPTION_INT32: {
            const char * end;
            int64_t      x;
            if (!parse_int(text, &end, &x) || *end != '\0') {
                return error_bad_input(err, "%s: '%s' is not a whole number from %.0f to %.0f",
                        name, text, o->min, o->max);
            }
            if (!check_range(o, name, text, (double) x, "%.0f", err)) {
                return false;
            }
            if (o->type == OPTION_INT32) {
                *(int32_t *) o->dest = (int32_t) x;
            } else {
                *(int64_t *) o->dest = x;
            }
            return true;
        }
        case OPTION_FLOAT: {
            char *       end;
            const double x = strtod(text, &end);
            if (end == text || *end != '\0' || isspace((unsigned char) text[0]) || isnan(x)) {
                return error_bad_input(
                        err, "%s: '%s' is not a number from %g to %g", name, text, o->min, o->max);
            }
            *(double *) o->dest = x;
            return check_range(o, name, text, x, "%g", err);
        }
        case OPTION_STRING: *(const char **) o->dest = text; return true;
        case OPTION_CHOICE: {
            const int i = word_index(o->value, "|", text);
            *(int *) o->dest = i;
            return i >= 0 ||
                   error_bad_input(err, "%s: '%s' is not one of %s", name, text, o->value);
        }
        case OPTION_INTS:
            return parse_ints(text, o->min, o->max, o->dest) ||
                   error_bad_input(err,
                           "%s: '%s' is not a list (1,2,4 or 64-256+64 or 64-4096*8) of at most %d "
                           "whole numbers from %.0f to %.0f",
                           name, text, OPTION_LIST_MAX, o->min, o->max);
        case OPTION_STRINGS: {
            struct option_strings * list = o->dest;
            if (list->n == OPTION_LIST_MAX) {
                return error_bad_input(err, "%s: given more than %d times", name, OPTION_LIST_MAX);
            }
            list->v[list->n++] = text;
            return true;
        }
    }
    return false;
}

//
// Parsing
//

// Argument number i of the table.
static const struct option * argument_at(const struct program * program, int i) {
    for (int j = 0; j < program->n_options; ++j) {
        if (option_is_argument(&program->options[j]) && i-- == 0) {
            return &program->options[j];
        }
    }
    return NULL;
}

static bool add_argument(const struct program * program, const char * word, int * n_arguments,
        bool * given, struct lrnn_error * err) {
    const struct option * o = argument_at(program, *n_arguments);
    if (o == NULL) {
        return error_bad_input(err, "unexpected argument '%s'; see %s --help", word, program->name);
    }
    given[o - program->options] = true;
    *n_arguments += o->type != OPTION_STRINGS; // a list takes all that follow
    return set_value(o, o->names, word, err);
}

static bool unknown_option(
        const struct program * program, const char * name, struct lrnn_error * err) {
    char nearest[NAME_MAX_CHARS];
    return find_nearest(program, name, nearest)
                   ? error_bad_input(err, "unknown option %s; did you mean %s?", name, nearest)
                   : error_bad_input(err, "unknown option %s; see %s --help", name, program->name);
}

// Sets option argv[*at]: --name, --name VALUE or --name=VALUE.
static enum options_status parse_option(const struct program * program, int argc, char ** argv,
        int * at, bool * given, struct lrnn_error * err) {
    const char * word = argv[*at];
    const char * equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    const char * value = equals != NULL ? equals + 1 : NULL;
    char         name[NAME_MAX_CHARS];

    snprintf(name, sizeof(name), "%.*s",
            equals != NULL ? (int) (equals - word) : (int) sizeof(name), word);
    const struct option * o = find_option(program, name);
    if (o == NULL) {
        unknown_option(program, name, err);
        return OPTIONS_ERROR;
    }
    if (o == &GENERAL[GENERAL_HELP]) {
        options_help(program, stdout);
        return OPTIONS_DONE;
    }
    if (o == &GENERAL[GENERAL_VERSION]) {
        options_version(program, stdout);
        return OPTIONS_DONE;
    }
    if (o->type == OPTION_FLAG && value != NULL) {
        error_bad_input(err, "%s takes no value", name);
        return OPTIONS_ERROR;
    }
    // -n -1 is a value, -n --help a forgotten one
    const bool follows = *at + 1 < argc && find_option(program, argv[*at + 1]) == NULL;
    if (o->type != OPTION_FLAG && value == NULL && follows) {
        value = argv[++*at];
    }
    if (o->type != OPTION_FLAG && value == NULL) {
        error_bad_input(err, "%s needs a value: %s", name, o->value);
        return OPTIONS_ERROR;
    }
    if (o == &GENERAL[GENERAL_DESCRIBE]) {
        return describe(program, value, stdout) ||
                               error_bad_input(err, "%s is '%s'; expected one of %s", name, value,
                                       DESCRIBE_WORDS)
                       ? OPTIONS_DONE
                       : OPTIONS_ERROR;
    }
    given[o - program->options] = true;
    return set_value(o, name, value, err) ? OPTIONS_OK : OPTIONS_ERROR;
}

enum options_status options_parse(
        const struct program * program, int argc, char ** argv, struct lrnn_error * err) {
    bool given[256] = { false }; // by index in the table
    int  n_arguments = 0;
    bool only_arguments = false; // after --

    if (program->n_options > (int) (sizeof(given) / sizeof(given[0]))) {
        error_bad_input(err, "the option table has more than %zu entries", sizeof(given));
        return OPTIONS_ERROR;
    }
    for (int i = 1; i < argc; ++i) {
        const bool is_dash = strcmp(argv[i], "-") == 0; // stdin or stdout

        if (!only_arguments && strcmp(argv[i], "--") == 0) {
            only_arguments = true;
        } else if (only_arguments || argv[i][0] != '-' || is_dash) {
            if (!add_argument(program, argv[i], &n_arguments, given, err)) {
                return OPTIONS_ERROR;
            }
        } else {
            const enum options_status status = parse_option(program, argc, argv, &i, given, err);
            if (status != OPTIONS_OK) {
                return status;
            }
        }
    }
    for (int i = 0; i < program->n_options; ++i) {
        const struct option * o = &program->options[i];
        if (o->required && !given[i]) {
            error_bad_input(err, "%s is missing; see %s --help", o->names, program->name);
            return OPTIONS_ERROR;
        }
    }
    return OPTIONS_OK;
}
