#!/usr/bin/env python3
"""Writes tests/data/chat/ids.json: a small BPE tokenizer, questions in the formats of Qwen3.5 and
OLMo-Hybrid, and the tokens that Jinja and the package `tokenizers` make of them.

usage: make-chat-id-tests.py tests/data/chat

Needs jinja2 and tokenizers. Unlike a tokenizer of bytes, this one shows whether the text of a
format and a message are tokenized together.
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "convert"))
from lrnn_convert.chat.sandbox import Template  # noqa: E402

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
           r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")     # of Qwen3.5
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QUESTIONS = ["Hello", "assistant", "  two  spaces ", "don't 1234", "\u00dcbung, \u65e5\u672c\u8a9e",
             "e\u0301 \U0001f469\u200d\U0001f680", "\n\nlines", "\tif (x) {"]
SYSTEMS = [None, "Be brief.", " user "]


def train(text: str) -> Tokenizer:
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre.Sequence([pre.Split(Regex(PATTERN), "isolated"),
                                    pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in SPECIAL])
    return t


def main() -> None:
    folder = Path(sys.argv[1])
    sources = {name: (folder / f"{name}.jinja").read_text(encoding="utf-8")
               for name in ("qwen3.5", "olmo-3")}
    manual = (ROOT / "docs/chat.md").read_text(encoding="utf-8")
    t = train("\n".join([*sources.values(), manual, 50 * "a\n\n\nb"]))     # a token of newlines
    cases = []
    for name, source in sources.items():
        template = Template(source, {"bos_token": "", "eos_token": SPECIAL[0]})
        for i, question in enumerate(QUESTIONS):
            system = SYSTEMS[i % len(SYSTEMS)]
            messages = [] if system is None else [{"role": "system", "content": system}]
            text = template.render([*messages, {"role": "user", "content": question}])
            cases.append({"format": name, "system": system, "question": question,
                          "ids": t.encode(text, add_special_tokens=False).ids})
    data = {"tokenizer": json.loads(t.to_str()), "cases": cases}
    (folder / "ids.json").write_text(json.dumps(data, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(cases)} questions, {sum(len(c['ids']) for c in cases)} tokens")


if __name__ == "__main__":
    main()
