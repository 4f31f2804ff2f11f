"""--describe: the parsers of the converter as man pages and as shell completions, in the form of
the other programs (examples/common/describe.c). The build writes them with cmake/describe.cmake.

A parser whose name has a space, "lrnn-convert data", is a command; its completions are part of the
same file. Unlike a command, a checkpoint can have any name, so the first word may also be a file.
"""

import argparse
import re
from pathlib import Path

from . import __version__
from .errors import EXIT_CODES


class Describe(argparse.Action):
    """Prints and exits, like --help."""

    def __call__(self, parser, namespace, what, option_string=None):
        print(WRITERS[what](parser), end="")
        parser.exit()


def function(name: str) -> str:
    """lrnn-convert data → _lrnn_convert_data"""
    return "_" + re.sub(r"\W", "_", name)


def options(p: argparse.ArgumentParser) -> list[argparse.Action]:
    return [a for a in p._actions if a.option_strings]


def takes_value(a: argparse.Action) -> bool:
    return a.nargs != 0


def value(a: argparse.Action) -> str:
    return "|".join(a.choices) if a.choices else a.metavar or a.dest.upper()


def is_path(a: argparse.Action) -> bool:
    """The types of paths are Path and the functions that return one."""
    return a.type is Path or getattr(a.type, "__name__", "").startswith("output_path")


#
# man
#

def roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.M)


def man(p: argparse.ArgumentParser) -> str:
    name = p.prog.replace(" ", "-")
    summary = " ".join(p.description.split()).rstrip(".")
    usage = " ".join(p.format_usage().split()).removeprefix(f"usage: {p.prog} ")
    lines = [f'.TH {name} 1 "" "lrnn {__version__}" "User Commands"', ".SH NAME",
             f"{name} \\- {roff(summary[0].lower() + summary[1:])}",
             ".SH SYNOPSIS", f"\\fB{p.prog}\\fR {roff(usage)}"]
    arguments = [a for a in p._actions if not a.option_strings]
    for heading, actions in (("ARGUMENTS", arguments), ("OPTIONS", options(p))):
        lines += [f".SH {heading}"] * bool(actions)
        for a in actions:
            names = ", ".join(a.option_strings)
            words = [f"\\fB{roff(names)}\\fR"] * bool(names)
            words += [f"\\fI{roff(value(a))}\\fR"] * takes_value(a)
            lines += [".TP", " ".join(words), roff(a.help)]
    if p.notes:
        lines += [".SH NOTES", ".nf", roff(p.notes.rstrip()), ".fi"]
    lines.append(".SH EXIT STATUS")
    for code, text in EXIT_CODES.items():
        lines += [".TP", str(code), roff(text)]
    return "\n".join(lines) + "\n"


#
# Completions
#

def bash(p: argparse.ArgumentParser) -> str:
    lines = [f"{function(p.prog)}() {{",
             '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"']
    if p.commands:
        lines += ["    if ((COMP_CWORD > 1)); then", '        case "${COMP_WORDS[1]}" in']
        lines += [f"            {c}) {function(f'{p.prog} {c}')}; return ;;" for c in p.commands]
        lines += ["        esac", "    fi"]
    lines.append('    case "$before" in')
    for a in filter(takes_value, options(p)):
        words = (f"compgen -W '{' '.join(a.choices)}' -- \"$word\"" if a.choices
                 else 'compgen -f -- "$word"' if is_path(a) else "")
        reply = f"$({words})" if words else ""
        lines.append(f"        {'|'.join(a.option_strings)}) COMPREPLY=({reply}); return ;;")
    names = " ".join(name for a in options(p) for name in a.option_strings)
    lines += ["    esac", "    if [[ $word == -* ]]; then",
              f"        COMPREPLY=($(compgen -W '{names}' -- \"$word\"))", "    else",
              '        COMPREPLY=($(compgen -f -- "$word"))']
    if p.commands:
        lines += ["        if ((COMP_CWORD == 1)); then",
                  f"            COMPREPLY+=($(compgen -W '{' '.join(p.commands)}' -- \"$word\"))",
                  "        fi"]
    lines += ["    fi", "}"]
    if " " not in p.prog:
        lines.append(f"complete -o filenames -F {function(p.prog)} {p.prog}")
    return "\n".join(lines) + "\n"


def zsh_quoted(text: str) -> str:
    """_arguments interprets [ ] and :."""
    return re.sub(r"([\\\[\]:])", r"\\\1", text).replace("'", "'\\''")


def zsh(p: argparse.ArgumentParser) -> str:
    name, lines = function(p.prog), []
    if " " not in p.prog:
        lines += [f"#compdef {p.prog}", ""]
    if p.commands:
        lines += [f"{name}_first() {{", f"    compadd {' '.join(p.commands)}", "    _files", "}",
                  f"{name}() {{", "    if ((CURRENT > 2)); then", "        case $words[2] in"]
        lines += [f"            {c}) shift words; ((CURRENT--)); {function(f'{p.prog} {c}')}; "
                  "return ;;" for c in p.commands]
        lines += ["        esac", "    fi"]
    else:
        lines.append(f"{name}() {{")
    arguments = []
    for a in p._actions:
        what = (f":word:({' '.join(a.choices)})" if a.choices
                else f":{zsh_quoted(value(a))}:{'_files' if is_path(a) else ' '}"
                if takes_value(a) else "")
        if not a.option_strings:
            files = f"{name}_first" if p.commands else "_files"
            arguments.append(f"'{'*' * (a.nargs in ('*', '+'))}:{zsh_quoted(value(a))}:{files}'")
        arguments += [f"'{'*' * isinstance(a, argparse._AppendAction)}{option}"
                      f"[{zsh_quoted(a.help)}]{what}'" for option in a.option_strings]
    return "\n".join([*lines, "    _arguments -s \\\n        " + " \\\n        ".join(arguments),
                      "}"]) + "\n"


def fish(p: argparse.ArgumentParser) -> str:
    program, _, command = p.prog.partition(" ")
    lines = [f"complete -c {program} -n __fish_use_subcommand -a {c}" for c in p.commands]
    where = (f" -n '__fish_seen_subcommand_from {command}'" if command
             else f" -n 'not __fish_seen_subcommand_from {' '.join(p.commands)}'")
    for a in options(p):
        names = "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}"
                        for n in a.option_strings)
        kind = (f" -x -a '{' '.join(a.choices)}'" if a.choices
                else " -r -F" if is_path(a) else " -x") if takes_value(a) else ""
        text = a.help.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"complete -c {program}{where}{names}{kind} -d '{text}'")
    return "\n".join(lines) + "\n"


WRITERS = {"man": man, "bash": bash, "zsh": zsh, "fish": fish}
