"""tokenizer.json of Hugging Face's tokenizers: SentencePiece-style BPE, byte-level BPE, symbols."""

import re
from pathlib import Path
from typing import Any

from ..errors import SHOWN, DataError, ModelError, shown
from ..readers.config import read_json
from .tokenizer import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Tokenizer

SPACE = "\u2581"                           # a space in SentencePiece


def _pattern(numbers: str) -> str:
    """The Split pattern of Llama-3 and its relatives, which differ in how they cut numbers."""
    return (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + numbers
            + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


# patterns that the runtime implements, with llama.cpp's names
QWEN35 = (_pattern(r"\p{N}").replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
          .replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"))
# Ling writes the same pieces as Qwen2 with possessive quantifiers
LING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
        r"\s*[\r\n]|\s+(?!\S)|\s+")
# Kimi: words begin with upper case and continue in lower case; runs of Han are pieces
UPPER, LOWER = (x + r"\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]" for x in (r"\p{Lu}\p{Lt}", r"\p{Ll}"))
WORD = rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = (rf"[\p{{Han}}]+|{WORD}|{WORD.replace(']*[', ']+[').replace(']+(?i', ']*(?i')}|"
        + _pattern(r"\p{N}{1,3}").split("+|", 1)[1])
PATTERNS = {_pattern(r"\p{N}{1,3}"): "llama-bpe", _pattern(r"\p{N}"): "qwen2", QWEN35: "qwen35",
            LING: "bailingmoe2", KIMI: "kimi-k2"}

BYTE_LEVEL = ", ".join(["gpt-2", "gpt-neox", *PATTERNS.values()])

NEVER_MERGED = -1e9                        # score of tokens that no merge makes


def read(path: Path) -> Tokenizer:
    data = read_json(path)
    try:
        return _read(path, data)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as e:
        raise DataError(f"{path}: not a tokenizer.json of Hugging Face's tokenizers "
                        f"({type(e).__name__}: {str(e)[:SHOWN]})") from None


def _read(path: Path, data: Any) -> Tokenizer:
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise DataError(f"{path}: no model with a vocabulary")
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind == "WordLevel":
        t = _symbols(path, data, model)
    elif kind == "BPE" and model.get("byte_fallback"):
        t = _sentencepiece(path, data, model)
    elif kind == "BPE":
        t = _byte_level(path, data, model)
    else:
        raise ModelError(f"{path}: the tokenizer model is {shown(kind)}; expected BPE or "
                         "WordLevel")
    _add_specials(path, data, t)
    return t


def _tokens(path: Path, data: dict, model: dict) -> tuple[list[str], list[int]]:
    """Tokens in the order of their ids, and their types; ids without a token are unused."""
    tokens: dict[int, tuple[str, int]] = {}
    for text, i in model["vocab"].items():
        if not isinstance(i, int) or i < 0 or i in tokens:
            raise DataError(f"{path}: token {shown(text)} has the id {shown(i)}; expected a unique "
                            "number")
        is_byte = model.get("byte_fallback") and re.fullmatch(r"<0x[0-9A-F]{2}>", text)
        tokens[i] = (text, BYTE if is_byte else NORMAL)
    for added in data.get("added_tokens") or []:
        i, text = added["id"], added["content"]
        if i in tokens and tokens[i][0] != text:
            raise DataError(f"{path}: added token {shown(text)} has the id {i}, which belongs to "
                            f"{shown(tokens[i][0])}")
        tokens[i] = (text, CONTROL if added.get("special") else USER_DEFINED)
    unk = model.get("unk_token")
    n = max(tokens) + 1
    if n > 4 * len(tokens) + 65536:
        raise DataError(f"{path}: the largest id is {n - 1} for {len(tokens)} tokens")
    listed = [tokens.get(i, (f"[PAD{i}]", UNUSED)) for i in range(n)]
    return ([text for text, _ in listed],
            [UNKNOWN if unk is not None and text == unk else kind for text, kind in listed])


def _merges(path: Path, model: dict) -> list[tuple[str, str]]:
    pairs = []
    for merge in model.get("merges") or []:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if len(pair) != 2:
            raise DataError(f"{path}: the merge {shown(merge)} is not a pair")
        pairs.append((pair[0], pair[1]))
    return pairs


def _sentencepiece(path: Path, data: dict, model: dict) -> Tokenizer:
    tokens, types = _tokens(path, data, model)
    # The runtime merges the pair whose result has the highest score, so a token's score is the
    # negated rank of its merge. -(id - 259) would be wrong: runs of spaces have even later ranks.
    ranks: dict[str, int] = {}
    for rank, (a, b) in enumerate(_merges(path, model)):
        ranks.setdefault(a + b, rank)
    scores = []
    for text, kind in zip(tokens, types):
        alone = NEVER_MERGED if len(text) > 1 and kind == NORMAL else 0.0
        scores.append(float(-ranks[text]) if text in ranks else alone)
    t = Tokenizer("llama", tokens, types, scores=scores, unk=_index(tokens, model.get("unk_token")))
    t.add_space_prefix = _space_prefix(path, data)
    return t


def _space_prefix(path: Path, data: dict) -> bool:
    """Whether a space is prepended to the text; normalizers or a Metaspace pre-tokenizer say so."""
    steps = _flat(data.get("normalizer"), "normalizers")
    pre = _flat(data.get("pre_tokenizer"), "pretokenizers")
    prefix = False
    for step in steps:
        if step["type"] == "Prepend" and step.get("prepend") == SPACE:
            prefix = True
        elif (step["type"] != "Replace" or step.get("pattern") != {"String": " "}
              or step.get("content") != SPACE):
            raise ModelError(f"{path}: unknown normalizer {_name(step)} for SentencePiece BPE")
    for step in pre:
        if (step["type"] != "Metaspace" or step.get("replacement") != SPACE
                or step.get("split") is True):
            raise ModelError(f"{path}: unknown pre-tokenizer {_name(step)} for SentencePiece BPE")
        default = "always" if step.get("add_prefix_space", True) else "never"
        prefix = prefix or step.get("prepend_scheme", default) != "never"
    if not steps and not pre:
        raise ModelError(f"{path}: neither a normalizer nor a pre-tokenizer replaces spaces")
    return prefix


def _byte_level(path: Path, data: dict, model: dict) -> Tokenizer:
    tokens, types = _tokens(path, data, model)
    normalizer = None
    for step in _flat(data.get("normalizer"), "normalizers"):
        if step["type"] != "NFC":
            raise ModelError(f"{path}: the normalizer is {_name(step)}; expected NFC or none")
        normalizer = "nfc"
    steps = _flat(data.get("pre_tokenizer"), "pretokenizers")
    match [s["type"] for s in steps]:
        case ["ByteLevel"] if steps[0].get("use_regex", True):
            # GPT-2's pattern; GPT-NeoX applies it after NFC, which llama.cpp calls mpt
            pre = "mpt" if normalizer else "gpt-2"
        case ["Split", "ByteLevel"] if not steps[1].get("use_regex", True):
            pattern = (steps[0].get("pattern") or {}).get("Regex")
            if (pattern not in PATTERNS or steps[0].get("behavior") != "Isolated"
                    or steps[0].get("invert")):
                raise ModelError(f"{path}: the pre-tokenizer is {_name(steps[0])}; expected that "
                                 f"of {BYTE_LEVEL}")
            pre = PATTERNS[pattern]
            if pre == "llama-bpe" and not model.get("ignore_merges"):
                pre = "dbrx"               # llama.cpp's name for Llama-3's pieces, always merged
            if pre == "kimi-k2" and not model.get("ignore_merges"):
                raise ModelError(f"{path}: ignore_merges is false; expected true for the pieces of "
                                 "Kimi")
        case _:
            raise ModelError(f"{path}: the pre-tokenizer is {_names(steps)}; expected that of "
                             f"{BYTE_LEVEL}")
    if any(s.get("add_prefix_space") for s in steps):
        raise ModelError(f"{path}: add_prefix_space of the pre-tokenizer ByteLevel is true; "
                         "expected false")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise ModelError(f"{path}: {key} is {shown(model[key])}; expected none")
    merges = [f"{a} {b}" for a, b in _merges(path, model)]
    return Tokenizer("gpt2", tokens, types, pre=pre, merges=merges, normalizer=normalizer)


def _symbols(path: Path, data: dict, model: dict) -> Tokenizer:
    """One token per word between white space: the state-tracking tasks."""
    if data.get("normalizer") is not None:
        raise ModelError(f"{path}: the normalizer is {_name(data['normalizer'])}; expected none "
                         "for whole symbols")
    steps = _flat(data.get("pre_tokenizer"), "pretokenizers")
    if [s["type"] for s in steps] != ["WhitespaceSplit"]:
        raise ModelError(f"{path}: the pre-tokenizer is {_names(steps)}; expected WhitespaceSplit "
                         "for whole symbols")
    tokens, types = _tokens(path, data, model)
    return Tokenizer("lrnn-symbols", tokens, types, unk=_index(tokens, model.get("unk_token")))


def _add_specials(path: Path, data: dict, t: Tokenizer) -> None:
    """bos, eos and whether they are added: from tokenizer_config.json and special_tokens_map.json
    next to the file, or else from the template."""
    t_config = path.with_name("tokenizer_config.json")
    s_map = path.with_name("special_tokens_map.json")
    config = read_json(t_config) if t_config.is_file() else {}
    special = read_json(s_map) if s_map.is_file() else {}
    for name in ("bos", "eos", "unk", "pad"):
        text = config.get(f"{name}_token") or special.get(f"{name}_token")
        text = text.get("content") if isinstance(text, dict) else text
        if isinstance(text, str) and text in t.tokens:
            setattr(t, name, t.tokens.index(text))
    before, after = _template(data.get("post_processor"))
    if before and t.bos is None:
        t.bos = _index(t.tokens, before[0])
    if after and t.eos is None:
        t.eos = _index(t.tokens, after[0])
    t.add_bos = bool(config.get("add_bos_token", bool(before)))
    t.add_eos = bool(config.get("add_eos_token", bool(after)))
    end = _index(t.tokens, "<|endoftext|>")
    if t.model == "gpt2" and end is not None:
        t.bos = end if t.bos is None else t.bos
        t.eos = end if t.eos is None else t.eos


def _template(post: Any) -> tuple[list[str], list[str]]:
    """Special tokens before and after a text, from TemplateProcessing."""
    before: list[str] = []
    after: list[str] = []
    for step in _flat(post, "processors"):
        if step["type"] != "TemplateProcessing":
            continue
        seen = False
        for piece in step.get("single", []):
            if "Sequence" in piece:
                seen = True
            elif "SpecialToken" in piece:
                (after if seen else before).append(piece["SpecialToken"]["id"])
    return before, after


def _flat(step: Any, inner: str) -> list[dict]:
    if step is None:
        return []
    if step.get("type") == "Sequence":
        return [x for s in step.get(inner, []) for x in _flat(s, inner)]
    return [step]


def _name(step: dict) -> str:
    pattern = step.get("pattern")
    if not isinstance(pattern, dict) or not pattern:
        return step["type"]
    return f"{step['type']} with {shown(next(iter(pattern.values())))}"


def _names(steps: list[dict]) -> str:
    return " + ".join(map(_name, steps)) or "none"


def _index(tokens: list[str], text: str | None) -> int | None:
    return tokens.index(text) if text is not None and text in tokens else None
