#pragma once

// The command line of a program, as one table. Parsing, --help, man pages and shell completions
// derive from it.
//
//     const struct option options[] = {
//         opt_group("Sampling"),
//         opt_int("--top-k", "K", &args.top_k, 0, INT32_MAX, "sample from the K most likely …"),
//         opt_alias("--cache", opt_int32("-c, --ctx", "N", …)),
//     };
//
// The default shown by --help is the value of the variable before parsing. Where the variable
// cannot express it, the help text states it: "documents to read (default: all)".

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_type {  // type of `dest`
    OPTION_GROUP,   // none: a heading
    OPTION_FLAG,    // bool, set to true
    OPTION_INT,     // int64_t, from min to max
    OPTION_INT32,   // int32_t, from min to max: a parameter of the library
    OPTION_FLOAT,   // double, from min to max
    OPTION_STRING,  // const char *
    OPTION_CHOICE,  // int, the index of the word in `value`
    OPTION_INTS,    // struct option_ints, from min to max: 1,2,4 or 64-256+64 or 64-4096*8
    OPTION_STRINGS, // struct option_strings: each use of the option appends one
};

enum { OPTION_LIST_MAX = 64 };

struct option_ints {
    int     n; // a default list is replaced as a whole
    int64_t v[OPTION_LIST_MAX];
};

struct option_strings {
    int          n;
    const char * v[OPTION_LIST_MAX];
};

struct option {
    enum option_type type;
    const char *     names;   // "-t, --threads"; an argument: "IN.gguf"; a group: its heading
    const char *     aliases; // former names: accepted, but shown nowhere; NULL: none
    const char *     value;   // placeholder in --help: "N"; of a choice its words: "md|csv|json"
    void *           dest;
    const char *     help;
    double           min, max;
    bool             required;
};

struct option opt_group(const char * heading);
struct option opt_flag(const char * names, bool * dest, const char * help);
struct option opt_int(const char * names, const char * value, int64_t * dest, double min,
        double max, const char * help);
struct option opt_int32(const char * names, const char * value, int32_t * dest, double min,
        double max, const char * help);
struct option opt_float(const char * names, const char * value, double * dest, double min,
        double max, const char * help);
struct option opt_string(
        const char * names, const char * value, const char ** dest, const char * help);
struct option opt_choice(const char * names, const char * words, int * dest, const char * help);
struct option opt_ints(const char * names, const char * value, struct option_ints * dest,
        double min, double max, const char * help);
struct option opt_strings(
        const char * names, const char * value, struct option_strings * dest, const char * help);
struct option opt_arg(const char * name, const char ** dest, const char * help);
struct option opt_args(const char * name, struct option_strings * dest, const char * help);

// --chat-format, with the names of the formats.
enum { CHAT_FORMAT_HELP = 512 };
struct option opt_chat_format(const char ** dest, char help[CHAT_FORMAT_HELP]);

// Modifiers.
struct option opt_required(struct option o);
struct option opt_alias(const char * aliases, struct option o);

struct program {
    const char *          name;     // "lrnn-bench"
    const char *          summary;  // one sentence
    const char *          usage;    // one form per line: arguments, two spaces, description
    const char *          examples; // one complete command line per line
    const struct option * options;  // without the general ones, such as --help
    int                   n_options;
    const char * const *  commands; // subcommands, NULL-terminated; NULL: none
};

// Initializes both fields of struct program.
#define OPTIONS(table) .options = (table), .n_options = (int) (sizeof(table) / sizeof((table)[0]))

enum options_status {
    OPTIONS_OK,
    OPTIONS_DONE,  // --help, --version or --describe was given and printed to stdout
    OPTIONS_ERROR, // err is one sentence
};

// Fills the variables of the table from the command line. Strings are not copied: they point into
// argv. Most programs call program_main (program.h) instead.
enum options_status options_parse(
        const struct program * program, int argc, char ** argv, struct lrnn_error * err);

// Prints the texts of --help and --version.
void options_help(const struct program * program, FILE * out);
void options_version(const struct program * program, FILE * out);

//
// For other descriptions of the table: describe.c
//

int options_count(const struct program * program); // with the general ones
const struct option * options_at(const struct program * program, int i);
bool option_is_argument(const struct option * o);
bool option_is_named(const struct option * o); // neither argument nor group

// The default value as text; "" if there is none, or if the help text states it.
void option_default(const struct option * o, char * text, size_t text_size);

// Ends a line of `usage` before its description. Returns the description, or NULL.
const char * usage_split(char * line);

// Copies word i of a list such as "-t, --threads" or "md|csv|json"; false if there are fewer.
// - sep: the characters that separate words
bool option_word(const char * list, const char * sep, int i, char * word, size_t word_size);
