"""Chat templates: from the files next to the weights to keys of the model file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import DataError, ModelError
from ..model import Model
from ..readers.config import read_json
from ..tokenizers.tokenizer import CONTROL, Tokenizer
from .compile import CompileError, compile_template
from .format import ChatFormat
from .sandbox import RenderError, Template

FILES = ("chat_template.jinja", "tokenizer_config.json", "chat_template.json",
         "special_tokens_map.json", "generation_config.json")
RWKV_END = "<|rwkv_tokenizer_end_of_text|>"          # id 0, which World vocabularies do not list

Source = tuple[str, dict[str, str]]                  # Jinja source, and the special tokens by role


def input_files(folder: Path) -> Iterator[Path]:
    """Files that `find` and `stop_names` may read. They need not exist."""
    yield from (folder / name for name in FILES)


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path) if path.is_file() else {}
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected an object")
    return value


def find(folder: Path) -> Source | None:
    """The chat template of a checkpoint."""
    config = _object(folder / FILES[1])
    special = _object(folder / FILES[3])
    jinja = folder / FILES[0]
    if jinja.is_file():
        try:
            source = jinja.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{jinja}: not UTF-8") from None
    else:
        source = config.get("chat_template", _object(folder / FILES[2]).get("chat_template"))
    if isinstance(source, list):                     # several with names
        named = {x.get("name"): x.get("template") for x in source if isinstance(x, dict)}
        source = named.get("default")
    if not isinstance(source, str):
        return None
    tokens = {}
    for role in ("bos", "eos", "unk", "pad"):
        text = config.get(f"{role}_token", special.get(f"{role}_token"))
        text = text.get("content") if isinstance(text, dict) else text
        tokens[f"{role}_token"] = text if isinstance(text, str) else ""
    return source, tokens


def stop_names(folder: Path, t: Tokenizer) -> tuple[str, ...]:
    """The tokens at which the library stops, from generation_config.json."""
    ids = _object(folder / FILES[4]).get("eos_token_id")
    ids = ids if isinstance(ids, list) else [ids]
    return tuple(t.tokens[i] for i in ids if isinstance(i, int) and 0 <= i < len(t.tokens))


def compile_chat(source: Source, t: Tokenizer, stop: tuple[str, ...]) -> ChatFormat:
    """Raises ModelError if the template cannot be compiled."""
    special = [name for name, kind in zip(t.tokens, t.types) if kind == CONTROL]
    try:
        with Template(*source) as template:
            f = compile_template(template, special + [RWKV_END] * (t.model == "rwkv"))
    except (CompileError, RenderError) as e:
        raise ModelError(f"the chat template cannot be compiled: {e}") from None
    if t.model == "rwkv":
        literals = {k: v.replace(RWKV_END, t.tokens[0]) for k, v in vars(f).items()
                    if isinstance(v, str) and k not in ("drop_thinking", "no_system")}
        f = replace(f, **literals, special=(t.tokens[0],) if f.special else ())
    f.stop = stop
    return f


def describe(f: ChatFormat, source: Source) -> str:
    """For the user."""
    words = ["compiled and verified"]
    if f.no_system:
        words.append(f"without system messages: it {f.no_system} them")
    if f.thinking:
        words.append("answers may have a thinking section")
    if "strftime_now" in source[0]:
        words.append("the date is that of the template, not today's")
    return ", ".join(words)


def write(m: Model, t: Tokenizer | None, folder: Path) -> str:
    """Sets the keys of the chat format and returns its line of the summary."""
    source = find(folder)
    if source is None or t is None:
        return "no template"
    m.set_str("tokenizer.chat_template", source[0])
    try:
        f = compile_chat(source, t, stop_names(folder, t))
    except ModelError as e:
        return f"no: {e}"
    m.set_str("lrnn.chat_format", f.to_json())
    return f"template {describe(f, source)}"
