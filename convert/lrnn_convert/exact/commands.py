"""The commands lrnn-convert exact and lrnn-convert automaton."""

import sys
from pathlib import Path

from .. import families, tokenizers
from ..atomic import check_output
from ..checkpoint import Checkpoint
from ..errors import DataError, UsageError
from ..metadata import describe
from ..tokenizers.tokenizer import CONTROL, NORMAL, Tokenizer
from ..types import TYPES
from ..usage import Parser, output_path
from ..writer import write_gguf
from . import householder
from .automaton import family, parse, to_task
from .catalog import MODELS
from .checkpoint import BOS

TWIN = "-01"            # suffix of the twin with eigenvalues in [0,1]


def write(checkpoint: Checkpoint, symbols: list[str], keys: dict[str, str], eigenvalues: str,
          path: Path, kind: str) -> int:
    m = families.convert(checkpoint, eigenvalues, frozenset(), None)
    describe(m, path.stem, kind)
    for key, value in keys.items():
        m.set_str(key, value)
    bos = symbols.index(BOS) if BOS in symbols else None
    kinds = [CONTROL if s == BOS else NORMAL for s in symbols]
    tokenizer = Tokenizer("lrnn-symbols", symbols, kinds, bos=bos, add_bos=bos is not None)
    tokenizers.write(m, tokenizer, len(symbols))
    return write_gguf(m, path, kind)


def exact(argv: list[str]) -> None:
    p = Parser(prog="lrnn-convert exact",
               description="Write models built by hand, each with its twin in [0,1].")
    p.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {' '.join(MODELS)}")
    p.add_argument("-o", "--output", type=output_path, required=True, metavar="DIR",
                   help="output folder for NAME.gguf and NAME-01.gguf")
    args = p.parse_args(argv)
    for name in args.names:
        if name not in MODELS:
            raise UsageError(f"unknown exact model {name!r}; expected one of {' '.join(MODELS)}")
    if not args.output.is_dir():
        raise UsageError(f"-o {args.output}: no such folder")
    outputs = [(args.output / f"{name}{TWIN if eigenvalues == 'unsigned' else ''}.gguf", name,
                eigenvalues)
               for name in args.names or MODELS
               for eigenvalues in (("signed", "unsigned") if MODELS[name].twin else ("auto",))]
    for path, _, _ in outputs:
        check_output(path)
    for path, name, eigenvalues in outputs:
        entry = MODELS[name]
        size = write(*entry.build(name, eigenvalues == "signed"), {"lrnn.task": entry.task},
                     eigenvalues, path, "f32")
        print(f"{path.name:<36}{size:>8} bytes", file=sys.stderr)


AUTOMATON_EPILOG = """\
The file has the lines 'states: a b c' and 'start: a', and one line per letter, 'x: b c a', with the
state that x takes each state to. A letter must permute the states or take all of them to one.
"""


def automaton(argv: list[str]) -> None:
    p = Parser(prog="lrnn-convert automaton", epilog=AUTOMATON_EPILOG,
               description="Convert a finite automaton to a model that tracks its state exactly.")
    p.add_argument("file", type=Path, help="the automaton, see below")
    p.add_argument("-o", "--output", type=output_path, required=True, metavar="M.gguf",
                   help="output file")
    p.add_argument("--type", choices=list(TYPES), default="f32",
                   help="type of the matrices (default: f32)")
    p.add_argument("--eigenvalues", choices=["signed", "unsigned"], default="signed",
                   help="unsigned: write the twin in [0,1], which fails (default: signed)")
    args = p.parse_args(argv)
    check_output(args.output, [args.file])
    try:
        a = parse(args.file.read_text(encoding="utf-8"), str(args.file))
    except UnicodeDecodeError as e:
        raise DataError(f"{args.file}: not UTF-8 at byte {e.start}") from None
    task = to_task(a, str(args.file))
    checkpoint, symbols = householder.build(args.output.stem, family(task), task,
                                            args.eigenvalues == "signed")
    size = write(checkpoint, symbols, {"lrnn.task": "automaton", "lrnn.task.automaton": a.text()},
                 args.eigenvalues, args.output, args.type)
    print(f"{len(a.states)} states, {len(a.letters)} letters, {family(task).replace('_', ' ')} "
          f"with n_h {task.factors}: {args.output}, {size} bytes", file=sys.stderr)
