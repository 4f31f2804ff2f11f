"""The command lrnn-convert chat-format."""

import struct
import sys
from pathlib import Path

from gguf import GGUFReader

from .. import chat, tokenizers
from ..atomic import check_output, replacing
from ..errors import DataError, UsageError
from ..tokenizers.tokenizer import Tokenizer
from ..usage import Parser, output_path

EPILOG = """\
examples:
  lrnn-convert chat-format model.gguf -o format.json
  lrnn-cli -m model.gguf --chat --chat-format format.json
"""


def _from_gguf(path: Path) -> tuple[chat.Source | None, Tokenizer]:
    try:
        fields = GGUFReader(path).fields
        kv = {name: fields[name].contents() for name in fields
              if name.startswith("tokenizer.")}
    except (ValueError, KeyError, IndexError, TypeError, struct.error, OverflowError) as e:
        raise DataError(f"{path}: not a GGUF file: {e}") from None
    tokens, types = kv.get("tokenizer.ggml.tokens"), kv.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not isinstance(types, list):
        raise DataError(f"{path}: no tokenizer")
    ids = {role: kv.get(f"tokenizer.ggml.{role}_token_id") for role in ("bos", "eos")}
    names = {f"{role}_token": tokens[i] if isinstance(i, int) and i < len(tokens) else ""
             for role, i in ids.items()}
    source = kv.get("tokenizer.chat_template")
    t = Tokenizer(str(kv.get("tokenizer.ggml.model")), tokens, types)
    return (source, names) if isinstance(source, str) else None, t


def chat_format(argv: list[str]) -> None:
    p = Parser(prog="lrnn-convert chat-format", epilog=EPILOG,
               description="Compile the chat template of a checkpoint, or of a model file of "
                           "llama.cpp, for --chat-format.")
    p.add_argument("input", type=Path, metavar="IN", help="a model file, or a Hugging Face folder")
    p.add_argument("-o", "--output", type=output_path, required=True, metavar="OUT.json",
                   help="output file")
    args = p.parse_args(argv)
    check_output(args.output, [args.input, *chat.input_files(args.input)])
    if args.output.exists() and args.output.samefile(args.input):
        raise UsageError(f"the output file {args.output} is also the input; expected another file")
    if args.input.is_dir():
        source, t = chat.find(args.input), tokenizers.find(args.input, required=True)
        stop = chat.stop_names(args.input, t)
    else:
        (source, t), stop = _from_gguf(args.input), ()
    if source is None:
        raise DataError(f"{args.input}: no chat template")
    compiled = chat.compile_chat(source, t, stop)
    with replacing(args.output) as f:
        f.write(compiled.to_json().encode() + b"\n")
    print(f"{args.output}: {chat.describe(compiled, source)}", file=sys.stderr)
