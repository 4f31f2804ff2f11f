"""The commands lrnn-convert exact and lrnn-convert automaton."""

import sys
from dataclasses import replace
from pathlib import Path

from .. import families, tokenizers
from ..atomic import check_output
from ..checkpoint import Checkpoint
from ..errors import DataError, UsageError
from ..metadata import describe
from ..tokenizers.tokenizer import BYTE, CONTROL, NORMAL, Tokenizer
from ..types import TYPES
from ..usage import Parser, count, did_you_mean, output_path
from ..writer import write_gguf
from . import householder
from .automaton import letter_name, over_bytes, parse, to_text
from .catalog import LANGUAGES, MODELS, Language
from .checkpoint import BOS
from .dfa import MAX_STATES, Dfa, compact, from_positions
from .householder import family, to_task
from .layers import MAX_PARAMETERS, best_plan
from .layers import build as build_layers
from .regex import positions

TWIN = "-01"            # suffix of the twin with eigenvalues in [0,1]


def symbol_tokenizer(symbols: list[str]) -> Tokenizer:
    bos = symbols.index(BOS) if BOS in symbols else None
    kinds = [CONTROL if s == BOS else NORMAL for s in symbols]
    return Tokenizer("lrnn-symbols", symbols, kinds, bos=bos, add_bos=bos is not None)


def write(checkpoint: Checkpoint, tokenizer: Tokenizer, keys: dict[str, str], eigenvalues: str,
          path: Path, kind: str) -> int:
    m = families.convert(checkpoint, eigenvalues, frozenset(), None)
    describe(m, path.stem, kind)
    for key, value in keys.items():
        m.set_str(key, value)
    tokenizers.write(m, tokenizer, len(tokenizer.tokens))
    return write_gguf(m, path, kind)


def exact(argv: list[str]) -> None:
    known = [*MODELS, *LANGUAGES]
    p = Parser(prog="lrnn-convert exact",
               description="Write models built by hand, each with its twin in [0,1] if it has one.")
    p.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {' '.join(known)}")
    p.add_argument("-o", "--output", type=output_path, required=True, metavar="DIR",
                   help="output folder for NAME.gguf and NAME-01.gguf")
    args = p.parse_args(argv)
    for name in args.names:
        if name not in known:
            raise UsageError(f"unknown exact model {name!r}; expected one of {' '.join(known)}"
                             + did_you_mean(name, known))
    if not args.output.is_dir():
        raise UsageError(f"-o {args.output}: no such folder")
    outputs = [(args.output / f"{name}{TWIN if eigenvalues == 'unsigned' else ''}.gguf", name,
                eigenvalues)
               for name in args.names or known
               for eigenvalues in (("signed", "unsigned") if name in MODELS and MODELS[name].twin
                                   else ("auto",))]
    for path, _, _ in outputs:
        check_output(path)
    for path, name, eigenvalues in outputs:
        if name in LANGUAGES:
            size = write_language(name, LANGUAGES[name], path)
        else:
            entry = MODELS[name]
            checkpoint, symbols = entry.build(name, eigenvalues == "signed")
            size = write(checkpoint, symbol_tokenizer(symbols), {"lrnn.task": entry.task},
                         eigenvalues, path, entry.kind)
        print(f"{path.name:<36}{size:>8} bytes", file=sys.stderr)


def write_language(name: str, language: Language, path: Path) -> int:
    d, _ = compact(language.make(), name)
    tokenizer, letters = make_tokens(d, language.over_bytes)
    checkpoint, _ = automaton_checkpoint(d, name, tokenizer, letters, True, "f16", name)
    keys = {"lrnn.task": language.task}
    if language.task == "automaton":
        keys["lrnn.task.automaton"] = to_text(d)
    return write(checkpoint, tokenizer, keys, "auto", path, "f16")


AUTOMATON_EPILOG = f"""\
The file has the lines 'states: a b c' and 'start: a', and one line per letter,
'x: b c a', with the state that x takes each state to; '-' for none. A line may
name several letters. The answer of a state is its name; 'output: w w v' gives
other answers, 'accept: a b' the answers accept and reject.

Expressions have | * + ? {{m,n}} ( ) . [a-z] [^a-z] \\d \\s \\w \\xNN. Their
answer after each letter is whether the text so far matches as a whole. A letter
that a word cannot contain is written \\xNN.

Limits: {MAX_STATES} states after minimization, {MAX_PARAMETERS} parameters.
"""


def read_automaton(args) -> tuple[Dfa, str]:
    """The automaton as it was given, and its name in errors."""
    if args.regex is not None:
        what = f"regular expression {args.regex[:80]!r}"
        alphabet = sorted(set(args.alphabet)) if args.alphabet is not None else None
        if args.bytes:
            if not args.regex.isascii():
                raise DataError(f"{what}: expected ASCII with --bytes; other bytes are \\xNN")
            alphabet = [chr(b) for b in range(256)]
        found, alphabet = positions(args.regex, alphabet)
        d = from_positions(found, alphabet, what)
        return replace(d, letters=[letter_name(c) for c in alphabet]), what
    try:
        d = parse(args.file.read_text(encoding="utf-8"), str(args.file))
    except UnicodeDecodeError as e:
        raise DataError(f"{args.file}: not UTF-8 at byte {e.start}") from None
    return over_bytes(d, str(args.file)) if args.bytes else d, str(args.file)


def say(text: str) -> None:
    print(text, file=sys.stderr)


def make_tokens(d: Dfa, over_bytes: bool) -> tuple[Tokenizer, dict[str, int]]:
    """The tokenizer, and the letter of each token that is one. Bytes come first, as ids 0 to
    255."""
    symbols = list(dict.fromkeys(d.letters))
    if over_bytes:
        symbols = [f"<0x{b:02X}>" for b in range(256)]
    answers = [a for a in dict.fromkeys(d.outputs) if a not in symbols]
    letters = {s: i for i, s in enumerate(symbols)}
    kinds = [BYTE if over_bytes else NORMAL] * len(symbols)
    kinds += [CONTROL if over_bytes else NORMAL] * len(answers) + [CONTROL]
    symbols += [*answers, BOS]
    name = "lrnn-bytes" if over_bytes else "lrnn-symbols"
    return Tokenizer(name, symbols, kinds, bos=len(symbols) - 1, add_bos=True), letters


def automaton_checkpoint(d: Dfa, name: str, tokenizer: Tokenizer, letters: dict[str, int],
                         signed: bool, kind: str, what: str) -> tuple[Checkpoint, list[str]]:
    """The model of a compact automaton, and lines that describe it."""
    if all(len(set(to)) in (1, d.n) for to in d.moves) and tokenizer.model == "lrnn-symbols":
        task = to_task(d)
        checkpoint, symbols = householder.build(name, family(task), task, signed)
        tokenizer.tokens[:] = symbols
        tokenizer.bos = symbols.index(BOS)
        tokenizer.types[:] = [CONTROL if s == BOS else NORMAL for s in symbols]
        return checkpoint, [f"one level of {d.n} points: {family(task).replace('_', ' ')} with "
                            f"n_h {task.factors}"]
    if d.n == 1:
        raise DataError(f"{what} always answers {d.outputs[0]!r}: found one state; expected two or "
                        "more with --bytes")
    plan = best_plan(d, len(tokenizer.tokens), what)
    if kind == "q8_0" and any(level.permutes for level in plan.cascade.levels):
        raise UsageError(f"--type q8_0: {what} permutes the register of a level, which needs exact "
                         "keys; expected f32, f16 or bf16")
    checkpoint = build_layers(name, plan, signed, tokenizer.tokens, letters)
    lines = [f"level {i}: {level.describe()}"
             for i, level in enumerate(plan.cascade.levels, 1)]
    family_name = "gated delta product" if plan.gated else "delta product"
    lines.append(f"{plan.cascade.scheme}: {family_name} with {plan.layers} layers, "
                 f"n_h {plan.factors}, width {plan.D}, {count(plan.heads, 'head')} of "
                 f"{plan.K} × {plan.P}, MLP {plan.inner}, {plan.parameters} parameters")
    return checkpoint, lines


def automaton(argv: list[str]) -> None:
    p = Parser(prog="lrnn-convert automaton", epilog=AUTOMATON_EPILOG,
               description="Convert a finite automaton or a regular expression to a model that "
                           "tracks its state exactly.")
    p.add_argument("file", type=Path, nargs="?", help="the automaton, see below")
    p.add_argument("--regex", metavar="R", help="a regular expression, instead of a file")
    p.add_argument("--alphabet", metavar="CHARS",
                   help="the letters of --regex (default: the characters in it)")
    p.add_argument("--bytes", action="store_true",
                   help="the letters are all 256 bytes, and the model reads plain text")
    p.add_argument("-o", "--output", type=output_path, metavar="M.gguf",
                   help="output file (default: FILE or regex, with the extension .gguf, in the "
                        "current folder)")
    p.add_argument("--type", choices=list(TYPES), default="f32",
                   help="type of the matrices (default: f32)")
    p.add_argument("--eigenvalues", choices=["signed", "unsigned"], default="signed",
                   help="unsigned: write the twin in [0,1], which fails (default: signed)")
    args = p.parse_args(argv)
    if (args.file is None) == (args.regex is None):
        p.error("expected either a file or --regex")
    if args.alphabet is not None and (args.regex is None or args.bytes):
        p.error("--alphabet is for --regex without --bytes")
    if args.output is None:
        args.output = Path(f"{args.file.stem if args.file else 'regex'}.gguf")
    check_output(args.output, [args.file] if args.file is not None else [])

    given, what = read_automaton(args)
    d, dropped = compact(given, what)
    if args.regex is not None:
        d = replace(d, names=[str(s) for s in range(d.n)])
    tokenizer, letters = make_tokens(d, args.bytes)
    checkpoint, lines = automaton_checkpoint(d, args.output.stem, tokenizer, letters,
                                             args.eigenvalues == "signed", args.type, what)
    if dropped and args.regex is None:
        say(f"dropped {len(dropped)} unreachable states: {' '.join(dropped)[:200]}")
    if given.n - len(dropped) > d.n and args.regex is None:
        say(f"merged {given.n - len(dropped) - d.n} states with others of equal answers")
    say(f"{count(d.n, 'state')}, {count(len(d.letters), 'letter')}")
    for line in lines:
        say(line)
    keys = {"lrnn.task": "automaton", "lrnn.task.automaton": to_text(d)}
    size = write(checkpoint, tokenizer, keys, args.eigenvalues, args.output, args.type)
    say(f"{args.output}, {size} bytes")
