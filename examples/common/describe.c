#include "describe.h"

#include "exit-code.h"
#include "lrnn.h"

#include <ctype.h>
#include <string.h>

enum { WORD = 64, LINE = 512 };

// True if the value of an option is a path. Its placeholder in --help tells.
static bool is_path(const struct option * o) {
    static const char * const PATHS[] = { "FILE", "PATH", "DIR", "F", "L.npy", "IDS" };
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); ++i) {
        if (strcmp(o->value, PATHS[i]) == 0) {
            return true;
        }
    }
    return strstr(o->value, ".gguf") != NULL;
}

// The words of a list with `between` between them.
static void print_words(FILE * out, const char * list, const char * sep, const char * between) {
    char word[WORD];
    for (int i = 0; option_word(list, sep, i, word, sizeof(word)); ++i) {
        fprintf(out, "%s%s", i > 0 ? between : "", word);
    }
}

static void print_commands(FILE * out, const struct program * program) {
    for (int i = 0; program->commands[i] != NULL; ++i) {
        fprintf(out, "%s%s", i > 0 ? " " : "", program->commands[i]);
    }
}

// "lrnn-perplexity run" → "_lrnn_perplexity_run"
static void print_function(FILE * out, const char * name) {
    fputc('_', out);
    for (; *name != '\0'; ++name) {
        fputc(isalnum((unsigned char) *name) ? *name : '_', out);
    }
}

static bool is_command(const struct program * program) {
    return strchr(program->name, ' ') != NULL;
}

//
// man
//

// Escapes backslashes, dashes, and a dot or quote at the beginning of a line.
static void print_roff(FILE * out, const char * text) {
    fputs(*text == '.' || *text == '\'' ? "\\&" : "", out);
    for (; *text != '\0'; ++text) {
        if (*text == '\\' || *text == '-') {
            fputs(*text == '-' ? "\\-" : "\\e", out);
        } else {
            fputc(*text, out);
        }
    }
}

static void print_heading(FILE * out, const char * text) {
    fputs(".SH ", out);
    for (; *text != '\0'; ++text) {
        fputc(toupper((unsigned char) *text), out);
    }
    fputc('\n', out);
}

static void print_man_option(FILE * out, const struct option * o) {
    char value[200];
    fputs(".TP\n\\fB", out);
    print_roff(out, o->names);
    fputs("\\fR", out);
    if (o->value != NULL) {
        fputs(" \\fI", out);
        print_roff(out, o->value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_roff(out, o->help);
    option_default(o, value, sizeof(value));
    if (value[0] != '\0') {
        fputs(" (default: ", out);
        print_roff(out, value);
        fputc(')', out);
    }
    fputc('\n', out);
}

static void print_man(const struct program * program, FILE * out) {
    char name[WORD], line[LINE];

    snprintf(name, sizeof(name), "%s", program->name);
    for (char * p = name; *p != '\0'; ++p) {
        *p = *p == ' ' ? '-' : *p;
    }
    fprintf(out, ".TH %s 1 \"\" \"lrnn %s\" \"User Commands\"\n", name, lrnn_version());
    print_heading(out, "Name");
    fprintf(out, "%s \\- ", name);
    print_roff(out, program->summary);
    fputc('\n', out);
    print_heading(out, "Synopsis");
    for (int i = 0; option_word(program->usage, "\n", i, line, sizeof(line)); ++i) {
        const char * description = usage_split(line);
        fprintf(out, "%s\n\\fB%s\\fR ", description != NULL ? ".TP" : ".PP", program->name);
        print_roff(out, line);
        fputc('\n', out);
        if (description != NULL) {
            print_roff(out, description);
            fputc('\n', out);
        }
    }
    for (int i = 0; i < options_count(program); ++i) {
        const struct option * o = options_at(program, i);
        if (o->type == OPTION_GROUP) {
            print_heading(out, o->names);
        } else {
            print_man_option(out, o);
        }
    }
    print_heading(out, "Examples");
    for (int i = 0; option_word(program->examples, "\n", i, line, sizeof(line)); ++i) {
        fputs(".nf\n", out);
        print_roff(out, line);
        fputs("\n.fi\n", out);
    }
    print_heading(out, "Exit status");
    for (int i = 0; i < N_EXIT_CODES; ++i) {
        fprintf(out, ".TP\n%d\n", i);
        print_roff(out, EXIT_CODE_TEXT[i]);
        fputc('\n', out);
    }
}

//
// bash
//

static void print_bash_value(FILE * out, const struct option * o) {
    fputs("        ", out);
    print_words(out, o->names, ", ", "|");
    fputs(") ", out);
    if (o->type == OPTION_CHOICE) {
        fputs("COMPREPLY=($(compgen -W '", out);
        print_words(out, o->value, "|", " ");
        fputs("' -- \"$word\"));", out);
    } else {
        fputs(is_path(o) ? "COMPREPLY=($(compgen -f -- \"$word\"));" : "COMPREPLY=();", out);
    }
    fputs(" return ;;\n", out);
}

static void print_bash(const struct program * program, FILE * out) {
    print_function(out, program->name);
    fputs("() {\n    local word=\"${COMP_WORDS[COMP_CWORD]}\""
          " before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n",
            out);
    if (program->commands != NULL) {
        fputs("    if ((COMP_CWORD > 1)); then\n        case \"${COMP_WORDS[1]}\" in\n", out);
        for (int i = 0; program->commands[i] != NULL; ++i) {
            fprintf(out, "            %s) ", program->commands[i]);
            print_function(out, program->name);
            fprintf(out, "_%s; return ;;\n", program->commands[i]);
        }
        fputs("        esac\n    fi\n", out);
    }
    fputs("    case \"$before\" in\n", out);
    for (int i = 0; i < options_count(program); ++i) {
        const struct option * o = options_at(program, i);
        if (option_is_named(o) && o->type != OPTION_FLAG) {
            print_bash_value(out, o);
        }
    }
    fputs("    esac\n    if [[ $word == -* ]]; then\n        COMPREPLY=($(compgen -W '", out);
    const char * between = "";
    for (int i = 0; i < options_count(program); ++i) {
        if (option_is_named(options_at(program, i))) {
            fputs(between, out);
            print_words(out, options_at(program, i)->names, ", ", " ");
            between = " ";
        }
    }
    fputs("' -- \"$word\"))\n    else\n        COMPREPLY=($(compgen ", out);
    if (program->commands != NULL) {
        fputs("-W '", out);
        print_commands(out, program);
        fputc('\'', out);
    } else {
        fputs("-f", out);
    }
    fputs(" -- \"$word\"))\n    fi\n}\n", out);
    if (!is_command(program)) {
        fputs("complete -o filenames -F ", out);
        print_function(out, program->name);
        fprintf(out, " %s\n", program->name);
    }
}

//
// zsh, fish: text between single quotes
//

// Escapes quotes; for zsh also [ ] :, which _arguments interprets.
static void print_quoted(FILE * out, const char * text, bool zsh) {
    for (; *text != '\0'; ++text) {
        if (*text == '\'') {
            fputs(zsh ? "'\\''" : "\\'", out);
        } else if (*text == '\\' || (zsh && strchr("[]:", *text) != NULL)) {
            fprintf(out, "\\%c", *text);
        } else {
            fputc(*text, out);
        }
    }
}

static void print_zsh_option(FILE * out, const struct option * o, const char * name) {
    fprintf(out, " \\\n        '%s%s[", o->type == OPTION_STRINGS ? "*" : "", name);
    print_quoted(out, o->help, true);
    fputc(']', out);
    if (o->type == OPTION_CHOICE) {
        fputs(":word:(", out);
        print_words(out, o->value, "|", " ");
        fputc(')', out);
    } else if (o->type != OPTION_FLAG) {
        fputc(':', out);
        print_quoted(out, o->value, true);
        fputs(is_path(o) ? ":_files" : ": ", out);
    }
    fputc('\'', out);
}

static void print_zsh(const struct program * program, FILE * out) {
    char word[WORD];
    if (!is_command(program)) {
        fprintf(out, "#compdef %s\n\n", program->name);
    }
    print_function(out, program->name);
    fputs("() {\n", out);
    if (program->commands != NULL) {
        fputs("    if ((CURRENT > 2)); then\n        local command=$words[2]\n"
              "        shift words\n        ((CURRENT--))\n        case $command in\n",
                out);
        for (int i = 0; program->commands[i] != NULL; ++i) {
            fprintf(out, "            %s) ", program->commands[i]);
            print_function(out, program->name);
            fprintf(out, "_%s ;;\n", program->commands[i]);
        }
        fputs("        esac\n        return\n    fi\n", out);
    }
    fputs("    _arguments -s", out);
    for (int i = 0; i < options_count(program); ++i) {
        const struct option * o = options_at(program, i);
        if (option_is_argument(o)) {
            fprintf(out, " \\\n        '%s", o->type == OPTION_STRINGS ? "*:" : ":");
            print_quoted(out, o->names, true);
            fputs(":_files'", out);
        }
        for (int j = 0; option_is_named(o) && option_word(o->names, ", ", j, word, sizeof(word));
                ++j) {
            print_zsh_option(out, o, word);
        }
    }
    if (program->commands != NULL) {
        fputs(" \\\n        ':command:(", out);
        print_commands(out, program);
        fputs(")'", out);
    }
    fputs("\n}\n", out);
}

static void print_fish_option(FILE * out, const struct option * o) {
    char word[WORD];
    for (int i = 0; option_word(o->names, ", ", i, word, sizeof(word)); ++i) {
        if (strncmp(word, "--", 2) == 0) {
            fprintf(out, " -l %s", word + 2);
        } else {
            fprintf(out, word[2] == '\0' ? " -s %s" : " -o %s", word + 1);
        }
    }
    if (o->type == OPTION_CHOICE) {
        fputs(" -x -a '", out);
        print_words(out, o->value, "|", " ");
        fputc('\'', out);
    } else if (o->type != OPTION_FLAG) {
        fputs(is_path(o) ? " -r -F" : " -x", out);
    }
    fputs(" -d '", out);
    print_quoted(out, o->help, false);
    fputs("'\n", out);
}

static void print_fish(const struct program * program, FILE * out) {
    const int    length = (int) strcspn(program->name, " ");
    const char * command = is_command(program) ? program->name + length + 1 : NULL;

    for (int i = 0; program->commands != NULL && program->commands[i] != NULL; ++i) {
        fprintf(out, "complete -c %s -n __fish_use_subcommand -f -a %s\n", program->name,
                program->commands[i]);
    }
    for (int i = 0; i < options_count(program); ++i) {
        if (!option_is_named(options_at(program, i))) {
            continue;
        }
        fprintf(out, "complete -c %.*s", length, program->name);
        if (command != NULL) {
            fprintf(out, " -n '__fish_seen_subcommand_from %s'", command);
        } else if (program->commands != NULL) {
            fputs(" -n __fish_use_subcommand", out);
        }
        print_fish_option(out, options_at(program, i));
    }
}

bool describe(const struct program * program, const char * what, FILE * out) {
    static void (*const PRINT[])(
            const struct program *, FILE *) = { print_man, print_bash, print_zsh, print_fish };
    char word[WORD];
    for (int i = 0; option_word(DESCRIBE_WORDS, "|", i, word, sizeof(word)); ++i) {
        if (strcmp(word, what) == 0) {
            PRINT[i](program, out);
            return true;
        }
    }
    return false;
}
