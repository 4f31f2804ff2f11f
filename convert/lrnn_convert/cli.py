"""The command line."""

import argparse
import errno
import sys
from itertools import chain
from pathlib import Path

from . import __version__, chat, data, families, hub, tokenizers
from .atomic import check_output
from .chat.command import chat_format
from .checkpoint import input_files, open_checkpoint
from .errors import ConvertError, DataError, ModelError, OutputError, UsageError
from .exact import commands as exact
from .metadata import describe
from .model import Model
from .types import TYPES, byte_count, type_of
from .usage import Parser, did_you_mean, output_path
from .verify import Verification
from .writer import write_gguf

SYSTEM_ERRORS = {errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE,
                 errno.ENFILE}

# other first words of the command line than a checkpoint
COMMANDS = {"automaton": exact.automaton, "chat-format": chat_format, "data": data.data,
            "exact": exact.exact, "get": hub.get}

EPILOG = """\
The tensors do not show the eigenvalue range, so it is never guessed:
  auto      follow config.json (allow_neg_eigval, linear_allow_neg_eigval);
            [0,1] for families without such a key
  signed    trained with eigenvalues in [-1,1]; an error for families without a
            signed form
  unsigned  trained with eigenvalues in [0,1]

other commands, each with its own --help:
  automaton FILE -o M.gguf    convert a finite automaton to a model
  chat-format IN -o F.json    compile a chat template
  data IN ... -o OUT.jsonl    convert Parquet or Arrow data to JSON lines
  exact -o DIR [NAME ...]     write the hand-built models of models/exact
  get ORG/NAME FILE           download a model file from the Hugging Face hub

examples:
  lrnn-convert delta-net-1.3B/ -o delta-net.gguf --type bf16
  lrnn-convert fla-hub/delta_net-1.3B-100B -o delta-net.gguf --type bf16
  lrnn-convert parity.pth -o parity.gguf --eigenvalues signed
  lrnn-convert exp/checkpoint/step-20480 --config delta_net_340M.json \\
      -o delta-net.gguf
  lrnn-convert mamba-130m-hf/ -o mamba.gguf --verify \\
      --verify-python ~/torch/bin/python
"""


def build_parser() -> argparse.ArgumentParser:
    p = Parser(prog="lrnn-convert", epilog=EPILOG, commands=COMMANDS,
               description="Convert a trained checkpoint of a linear recurrent language model to "
                           "GGUF.")
    p.add_argument("checkpoint", type=Path,
                   help="a Hugging Face folder (config.json and weights), a folder of "
                        "torch.distributed.checkpoint, a .safetensors, .bin, .pt or .pth file, or "
                        "ORG/NAME on the Hugging Face hub, which is downloaded")
    p.add_argument("-o", "--output", type=output_path, metavar="M.gguf",
                   help="output file; required unless --dry-run")
    p.add_argument("--type", choices=list(TYPES), default="f32",
                   help="type of the matrices (default: f32); norms, biases, convolutions and "
                        "gates are always f32")
    p.add_argument("--eigenvalues", choices=["auto", "signed", "unsigned"], default="auto",
                   help="eigenvalue range of the transition, see below (default: auto)")
    p.add_argument("--trained-length", type=int, metavar="N",
                   help="context length in training, in tokens, if the checkpoint does not state "
                        "it")
    p.add_argument("--config", type=Path, metavar="FILE",
                   help="configuration of the model (default: config.json next to the weights)")
    p.add_argument("--tokenizer", type=Path, metavar="PATH",
                   help="tokenizer file or folder, or the word bytes for one token per byte "
                        "(default: the files next to the weights)")
    p.add_argument("--task", metavar="TASK",
                   help="state-tracking task of the model, for lrnn-probe: parity, mod:5, S3 …")
    p.add_argument("--name", help="general.name (default: the name of the checkpoint)")
    p.add_argument("--ignore-key", action="append", default=[], metavar="KEY",
                   help="unknown key of config.json that does not change what the model computes; "
                        "may be repeated")
    p.add_argument("--dry-run", action="store_true",
                   help="read everything except the values of the weights, print the summary and "
                        "write nothing")
    p.add_argument("--vocab-only", action="store_true",
                   help="write metadata and tokenizer without tensors")
    p.add_argument("--verify", action="store_true",
                   help="after the conversion, compare the logits of 64 tokens with those of the "
                        "library that defines the checkpoint (transformers or fla)")
    p.add_argument("--verify-python", type=Path, metavar="PYTHON",
                   help="Python interpreter that can import the library; implies --verify "
                        "(default: that of lrnn-convert, then python3)")
    p.add_argument("-q", "--quiet", action="store_true", help="print no summary")
    p.add_argument("--version", action="version", version=f"lrnn-convert {__version__}")
    return p


def summary(m: Model, tokenizer: str, chat_line: str, args) -> list[str]:
    size = sum(byte_count(o.shape, type_of(o.name, o.shape, args.type)) for o in m.outs)
    length = "unknown length" if m.trained_length is None else f"{m.trained_length} tokens"
    lines = [
        ("family", m.family.name),
        ("range", f"{m.eigenvalues[0]}  ({m.eigenvalues[1]})"),
        *m.facts,
        ("trained", length),
        ("tokenizer", tokenizer),
        ("chat", chat_line),
        ("output", f"architecture {m.arch}, {args.type}, {len(m.outs)} tensors, "
                   f"{size / 1e6:.1f} MB"),
        *(("note", note) for note in m.notes),
    ]
    return [f"{label + ':':<11}{text}" for label, text in lines]


def run(argv: list[str]) -> None:
    if argv and argv[0] in COMMANDS:
        COMMANDS[argv[0]](argv[1:])
        return
    if argv and not argv[0].startswith("-") and not Path(argv[0]).exists():
        hint = did_you_mean(argv[0], COMMANDS, "the command ")
        if hint:
            raise UsageError(f"{argv[0]}: no such file or folder{hint}")
    args = build_parser().parse_args(argv)
    if args.output is None and not args.dry_run:
        raise UsageError("-o M.gguf is required (--help lists the options)")
    if args.trained_length is not None and not 1 <= args.trained_length < 1 << 32:
        raise UsageError(f"--trained-length is {args.trained_length}; expected 1 to "
                         f"{(1 << 32) - 1}")
    if args.verify_python is not None:
        args.verify = True
    if args.verify and (args.dry_run or args.vocab_only):
        raise UsageError("--verify needs a complete model file; leave out --dry-run and "
                         "--vocab-only")
    if not args.checkpoint.exists() and hub.is_name(args.checkpoint):
        if args.output is not None:
            check_output(args.output)      # before the download
        args.checkpoint = hub.get_checkpoint(str(args.checkpoint), args.quiet)
    if args.output is not None:
        tokenizer = args.tokenizer or args.checkpoint
        check_output(args.output, chain(input_files(args.checkpoint),
                                        [args.config] if args.config else [],
                                        tokenizers.input_files(tokenizer),
                                        chat.input_files(args.checkpoint)))

    c = open_checkpoint(args.checkpoint, args.config)
    try:
        families.choose(c)
    except ModelError as e:
        step = "" if c.config else "; add --config FILE, the configuration of its training"
        raise ModelError(f"{e}{step}") from None
    m = families.convert(c, args.eigenvalues, frozenset(args.ignore_key), args.trained_length)
    vocab = next(o.shape[0] for o in m.outs if o.name == "token_embd.weight")
    tokenizer = tokenizers.find(args.tokenizer or c.folder, required=args.tokenizer is not None)
    describe(m, args.name or c.name, args.type)
    if args.task is not None:
        m.set_str("lrnn.task", args.task)
    tokenizer_line = tokenizers.write(m, tokenizer, vocab)
    chat_line = chat.write(m, tokenizer, c.folder)
    verification = Verification(m, args.verify_python) if args.verify else None
    if args.vocab_only:
        m.outs = []
    if not args.quiet:
        print("\n".join(summary(m, tokenizer_line, chat_line, args)), file=sys.stderr)
    if not args.dry_run:
        write_gguf(m, args.output, args.type)
    if verification is not None:
        lines = verification.run(args.output, args.type, vocab)
        if not args.quiet:
            print("\n".join(f"{'verified:':<11}{line}" for line in lines), file=sys.stderr)


def fail(message: str, code: int) -> int:
    # names and texts of files can contain characters that no encoding has
    text = message.encode("utf-8", "backslashreplace").decode("utf-8")
    print(f"lrnn-convert: {text}", file=sys.stderr)
    return code


def main(argv: list[str] | None = None) -> int:
    try:
        run(sys.argv[1:] if argv is None else argv)
        return 0
    except ConvertError as e:
        return fail(str(e), e.exit_code)
    except MemoryError:
        return fail("out of memory", OutputError.exit_code)
    except OSError as e:
        code = (OutputError if e.errno in SYSTEM_ERRORS else DataError).exit_code
        where = f"{e.filename}: " if e.filename else ""
        return fail(where + (e.strerror or str(e)), code)
    except KeyboardInterrupt:              # only if signals.py installed no handler
        return fail("interrupted", 130)
