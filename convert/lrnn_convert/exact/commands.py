"""lrnn-convert exact, lrnn-convert automaton."""

import sys
from pathlib import Path

from .. import families, tokenizers
from ..checkpoint import Checkpoint
from ..errors import DataError, UsageError
from ..metadata import describe
from ..tokenizers.tokenizer import CONTROL, NORMAL, Tokenizer
from ..types import TYPES
from ..usage import Parser
from ..writer import write_gguf
from . import householder
from .automaton import family, parse, to_task
from .catalogue import MODELS
from .checkpoint import BOS

TWIN = "-01"            # what the name of a twin with eigenvalues in [0,1] ends with


def write(checkpoint: Checkpoint, symbols: list[str], keys: dict[str, str], eigenvalues: str, path: Path, kind: str) -> int:
    m = families.convert(checkpoint, eigenvalues, frozenset(), None)
    describe(m, path.stem, kind)
    for key, value in keys.items():
        m.set_str(key, value)
    bos = symbols.index(BOS) if BOS in symbols else None
    kinds = [CONTROL if s == BOS else NORMAL for s in symbols]
    tokenizers.write(m, Tokenizer("lrnn-symbols", symbols, kinds, bos=bos, add_bos=bos is not None), len(symbols))
    return write_gguf(m, path, kind)


def exact(argv: list[str]) -> None:
    p = Parser(prog="lrnn-convert exact", description="Write hand-built models whose answers are known, each with its twin in [0,1].")
    p.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {' '.join(MODELS)}")
    p.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="the folder to write NAME.gguf and NAME-01.gguf into")
    args = p.parse_args(argv)
    for name in args.names:
        if name not in MODELS:
            raise UsageError(f"there is no exact model {name!r}, expected one of {' '.join(MODELS)}")
    if not args.output.is_dir():
        raise UsageError(f"-o {args.output}: no such folder")
    for name in args.names or MODELS:
        entry = MODELS[name]
        for signed in (True, False) if entry.twin else (None,):
            path = args.output / f"{name}{TWIN if signed is False else ''}.gguf"
            size = write(*entry.build(name, bool(signed)), {"lrnn.task": entry.task},
                         "auto" if signed is None else "signed" if signed else "unsigned", path, "f32")
            print(f"{path.name:<36}{size:>8} bytes", file=sys.stderr)


def automaton(argv: list[str]) -> None:
    p = Parser(prog="lrnn-convert automaton", description="Turn a finite automaton into a model that tracks its state exactly.",
               epilog="The file has lines 'states: a b c', 'start: a', and one for every letter, 'x: b c a': where x takes each state. "
                      "Letters may permute the states or take all of them to one; others are refused.")
    p.add_argument("file", type=Path)
    p.add_argument("-o", "--output", type=Path, required=True, metavar="M.gguf")
    p.add_argument("--type", choices=list(TYPES), default="f32")
    p.add_argument("--eigenvalues", choices=["signed", "unsigned"], default="signed", help="unsigned: the twin that cannot do it")
    args = p.parse_args(argv)
    try:
        a = parse(args.file.read_text(encoding="utf-8"), str(args.file))
    except UnicodeDecodeError as e:
        raise DataError(f"{args.file}: not UTF-8 at byte {e.start}") from None
    task = to_task(a, str(args.file))
    checkpoint, symbols = householder.build(args.output.stem, family(task), task, args.eigenvalues == "signed")
    size = write(checkpoint, symbols, {"lrnn.task": "automaton", "lrnn.task.automaton": a.text()}, args.eigenvalues, args.output, args.type)
    print(f"{len(a.states)} states, {len(a.letters)} letters, {family(task).replace('_', ' ')} with n_h {task.factors}: {args.output}, "
          f"{size} bytes", file=sys.stderr)
