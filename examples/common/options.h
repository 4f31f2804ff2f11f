#pragma once

// The command line of a program, as one table: parsing and --help come from it, and whatever else
// describes the options (a man page, shell completions) can be written from the same table.
//
// The default that --help shows is the value that the variable holds before parsing, so the two
// cannot disagree.

#include "exit-code.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_type {  // what `dest` points to
    OPTION_FLAG,    // bool, set to true
    OPTION_INT,     // int64_t, from min to max
    OPTION_FLOAT,   // double, from min to max
    OPTION_STRING,  // const char *
    OPTION_CHOICE,  // int, the index of the word in `value`
    OPTION_INTS,    // struct option_ints, from min to max: 1,2,4 or 64-256+64 or 64-4096*8
    OPTION_STRINGS, // struct option_strings: one more each time the option is given
};

enum { OPTION_LIST_MAX = 64 };

struct option_ints {
    int     n; // as a default, shown as it is; replaced as a whole when the option is given
    int64_t v[OPTION_LIST_MAX];
};

struct option_strings {
    int          n;
    const char * v[OPTION_LIST_MAX];
};

struct option {
    const char * group; // heading in --help, on the first option of a group; NULL on the others
    const char * names; // "-t, --threads"; without a dash, "IN.gguf": the argument in this position
    const char *
            value; // what --help calls the value: "N"; the words of a choice: "md|csv|json"; NULL for flags and arguments
    enum option_type type;
    void *           dest;
    const char *     help;
    const char *     unset; // what --help shows as default where the variable cannot say it
    double           min;
    double           max;
    bool             required;
};

struct program {
    const char *          name;     // "lrnn-bench"
    const char *          summary;  // one sentence
    const char * const *  modes;    // ways to call it, without the name; ends with NULL
    const char * const *  examples; // whole command lines; ends with NULL
    const struct option * options;  // those that every program has are added to it
    int                   n_options;
    const char * const *
            commands; // NULL, or the words that may follow the name, each a program of its own; ends with NULL
};

enum options_status {
    OPTIONS_OK,
    OPTIONS_DONE,  // --help or --version was asked for and printed to stdout: exit with 0
    OPTIONS_ERROR, // err holds one sentence: print it to stderr and exit with EXIT_CODE_USAGE
};

// Fills the variables of the table from the command line. Values are not copied: strings point into
// argv.
enum options_status options_parse(
        const struct program * program, int argc, char ** argv, char * err, size_t err_size);

// The same for a main: says on stderr what is wrong. False: the program is to end with *code.
bool options_read(const struct program * program, int argc, char ** argv, enum exit_code * code);

// What --help and --version print.
void options_help(const struct program * program, FILE * out);
void options_version(const struct program * program, FILE * out);

//
// For those who describe the table otherwise: describe.c
//

int options_count(const struct program * program); // with those that every program has
const struct option * options_at(const struct program * program, int i);
bool option_is_argument(const struct option * o);
void option_default(
        const struct option * o, char * text, size_t text_size); // "" if there is nothing to say

// Word number i of a list such as "-t, --threads" or "md|csv|json"; false if there are fewer.
// Separators are any of `sep`.
bool option_word(const char * list, const char * sep, int i, char * word, size_t word_size);
