#include "describe.h"

#include "exit-code.h"
#include "lrnn.h"

#include <ctype.h>
#include <string.h>

enum { WORD = 64 };

// The values of some options are files, by what --help calls them.
static bool is_path(const struct option * o) {
    static const char * const PATHS[] = { "FILE", "PATH", "DIR", "F", "M.gguf", "L.npy", "IDS",
        NULL };
    const char *              value   = option_is_argument(o) ? o->names : o->value;
    for (int i = 0; PATHS[i] != NULL && value != NULL; ++i) {
        if (strcmp(value, PATHS[i]) == 0) {
            return true;
        }
    }
    return value != NULL && strstr(value, ".gguf") != NULL;
}

// lrnn-perplexity run → _lrnn_perplexity_run
static void print_function(FILE * out, const char * name) {
    fputc('_', out);
    for (; *name != '\0'; ++name) {
        fputc(isalnum((unsigned char) *name) ? *name : '_', out);
    }
}

static void print_with_dashes(FILE * out, const char * name) {
    for (; *name != '\0'; ++name) {
        fputc(*name == ' ' ? '-' : *name, out);
    }
}

//
// man
//

// roff takes a backslash, a dash, and a dot or quote at the beginning of a line, for itself
static void print_roff(FILE * out, const char * text) {
    for (const char * p = text; *p != '\0'; ++p) {
        switch (*p) {
            case '\\': fputs("\\e", out); break;
            case '-': fputs("\\-", out); break;
            case '.':
            case '\'':
                fputs(p == text ? "\\&" : "", out);
                fputc(*p, out);
                break;
            default: fputc(*p, out);
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

static void print_man(const struct program * program, FILE * out) {
    char line[512];

    fputs(".TH ", out);
    print_with_dashes(out, program->name);
    fprintf(out, " 1 \"\" \"lrnn %s\" \"User Commands\"\n", lrnn_version());
    print_heading(out, "Name");
    print_with_dashes(out, program->name);
    fputs(" \\- ", out);
    print_roff(out, program->summary);
    fputc('\n', out);
    print_heading(out, "Synopsis");
    for (int i = 0; option_word(program->usage, "\n", i, line, sizeof(line)); ++i) {
        fprintf(out, "%s.B %s\n", i > 0 ? ".br\n" : "", program->name);
        print_roff(out, line);
        fputc('\n', out);
    }
    for (int i = 0; i < options_count(program); ++i) {
        const struct option * o = options_at(program, i);
        char                  value[200];
        if (o->type == OPTION_GROUP) {
            print_heading(out, o->names);
            continue;
        }
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

static void print_names(const struct program * program, FILE * out) {
    char word[WORD];
    int  n = 0;
    for (int i = 0; i < options_count(program); ++i) {
        const struct option * o = options_at(program, i);
        for (int j = 0; option_is_named(o) && option_word(o->names, ", ", j, word, sizeof(word));
                ++j) {
            fprintf(out, "%s%s", n++ > 0 ? " " : "", word);
        }
    }
}

static void print_bash(const struct program * program, FILE * out) {
    char word[WORD];
    print_function(out, program->name);
    fputs("() {\n    local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n",
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
        if (!option_is_named(o) || o->type == OPTION_FLAG) {
            continue;
        }
        fputs("        ", out);
        for (int j = 0; option_word(o->names, ", ", j, word, sizeof(word)); ++j) {
            fprintf(out, "%s%s", j > 0 ? "|" : "", word);
        }
        fputs(") ", out);
        if (o->type == OPTION_CHOICE) {
            fputs("COMPREPLY=($(compgen -W '", out);
            for (int j = 0; option_word(o->value, "|", j, word, sizeof(word)); ++j) {
                fprintf(out, "%s%s", j > 0 ? " " : "", word);
            }
            fputs("' -- \"$word\"));", out);
        } else {
            fputs(is_path(o) ? "COMPREPLY=($(compgen -f -- \"$word\"));" : "COMPREPLY=();", out);
        }
        fputs(" return ;;\n", out);
    }
    fputs("    esac\n    if [[ $word == -* ]]; then\n        COMPREPLY=($(compgen -W '", out);
    print_names(program, out);
    fputs("' -- \"$word\"))\n    else\n        COMPREPLY=($(compgen ", out);
    if (program->commands != NULL) {
        fputs("-W '", out);
        for (int i = 0; program->commands[i] != NULL; ++i) {
            fprintf(out, "%s%s", i > 0 ? " " : "", program->commands[i]);
        }
        fputc('\'', out);
    } else {
        fputs("-f", out);
    }
    fputs(" -- \"$word\"))\n    fi\n}\n", out);
    if (strchr(program->name, ' ') == NULL) {
        fputs("complete -o filenames -F ", out);
        print_function(out, program->name);
        fprintf(out, " %s\n", program->name);
    }
}

//
// zsh, fish: text between single quotes
//

// '…' with the quotes inside written as the shell wants them; zsh's _arguments keeps [ ] : for
// itself
static void print_quoted(FILE * out, const char * text, bool zsh) {
    for (; *text != '\0'; ++text) {
        if (*text == '\'') {
            fputs(zsh ? "'\\''" : "\\'", out);
        } else if ((zsh && (*text == '[' || *text == ']' || *text == ':')) || (*text == '\\')) {
            fprintf(out, "\\%c", *text);
        } else {
            fputc(*text, out);
        }
    }
}

static void print_zsh(const struct program * program, FILE * out) {
    char word[WORD];
    if (strchr(program->name, ' ') == NULL) {
        fprintf(out, "#compdef %s\n\n", program->name);
    }
    print_function(out, program->name);
    fputs("() {\n", out);
    if (program->commands != NULL) {
        fputs("    if ((CURRENT > 2)); then\n        local command=$words[2]\n        shift words\n        ((CURRENT--))\n        case $command in\n",
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
        if (o->type == OPTION_GROUP) {
            continue;
        }
        for (int j = 0;
                option_is_argument(o) ? j == 0 : option_word(o->names, ", ", j, word, sizeof(word));
                ++j) {
            fputs(" \\\n        '", out);
            if (option_is_argument(o)) {
                fputs(o->type == OPTION_STRINGS ? "*:" : ":", out);
                print_quoted(out, o->names, true);
                fputs(":_files'", out);
                continue;
            }
            fprintf(out, "%s%s[", o->type == OPTION_STRINGS ? "*" : "", word);
            print_quoted(out, o->help, true);
            fputc(']', out);
            if (o->type == OPTION_CHOICE) {
                fputs(":word:(", out);
                for (int k = 0; option_word(o->value, "|", k, word, sizeof(word)); ++k) {
                    fprintf(out, "%s%s", k > 0 ? " " : "", word);
                }
                fputc(')', out);
            } else if (o->type != OPTION_FLAG) {
                fputc(':', out);
                print_quoted(out, o->value, true);
                fputs(is_path(o) ? ":_files" : ": ", out);
            }
            fputc('\'', out);
        }
    }
    if (program->commands != NULL) {
        fputs(" \\\n        ':command:(", out);
        for (int i = 0; program->commands[i] != NULL; ++i) {
            fprintf(out, "%s%s", i > 0 ? " " : "", program->commands[i]);
        }
        fputs(")'", out);
    }
    fputs("\n}\n", out);
}

static void print_fish(const struct program * program, FILE * out) {
    char         word[WORD];
    const char * command = strchr(program->name, ' ');
    const int    length =
            command != NULL ? (int) (command - program->name) : (int) strlen(program->name);

    for (int i = 0; program->commands != NULL && program->commands[i] != NULL; ++i) {
        fprintf(out, "complete -c %s -n __fish_use_subcommand -f -a %s\n", program->name,
                program->commands[i]);
    }
    for (int i = 0; i < options_count(program); ++i) {
        const struct option * o = options_at(program, i);
        if (!option_is_named(o)) {
            continue;
        }
        fprintf(out, "complete -c %.*s", length, program->name);
        if (command != NULL) {
            fprintf(out, " -n '__fish_seen_subcommand_from %s'", command + 1);
        } else if (program->commands != NULL) {
            fputs(" -n __fish_use_subcommand", out);
        }
        for (int j = 0; option_word(o->names, ", ", j, word, sizeof(word)); ++j) {
            if (strncmp(word, "--", 2) == 0) {
                fprintf(out, " -l %s", word + 2);
            } else {
                fprintf(out, word[2] == '\0' ? " -s %s" : " -o %s", word + 1);
            }
        }
        if (o->type == OPTION_CHOICE) {
            fputs(" -x -a '", out);
            for (int k = 0; option_word(o->value, "|", k, word, sizeof(word)); ++k) {
                fprintf(out, "%s%s", k > 0 ? " " : "", word);
            }
            fputc('\'', out);
        } else if (o->type != OPTION_FLAG) {
            fputs(is_path(o) ? " -r -F" : " -x", out);
        }
        fputs(" -d '", out);
        print_quoted(out, o->help, false);
        fputs("'\n", out);
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
