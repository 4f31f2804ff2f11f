#!/usr/bin/env python3
"""Writes tests/data/chat/cases.jsonl: conversations, and what Jinja makes of them.

usage: make-chat-tests.py tests/data/chat

Run it in the environment of the converter. Each line has the built-in format, whether thinking is
suppressed, the messages, and the text that the template NAME.jinja renders.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "convert"))
from lrnn_convert.chat.compile import battery  # noqa: E402
from lrnn_convert.chat.sandbox import Template  # noqa: E402

# the template of each format: bos, eos, other special tokens
FORMATS = {
    "chatml": ("", "<|im_end|>", ["<|im_start|>", "<|im_end|>"]),
    "qwen3.5": ("", "<|im_end|>", ["<|im_start|>", "<|im_end|>"]),
    "olmo-3": ("", "<|endoftext|>", ["<|im_start|>", "<|im_end|>"]),
    "olmo-2": ("<|endoftext|>", "<|endoftext|>", ["<|endoftext|>"]),
    "llama-3": ("<|begin_of_text|>", "<|eot_id|>",
                ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    "rwkv-world": ("<s>", "<s>", ["<s>"]),
}
EVERY = 5                                  # of the battery


def main() -> None:
    folder = Path(sys.argv[1])
    lines = []
    for name, (bos, eos, special) in FORMATS.items():
        source = (folder / f"{name}.jinja").read_text(encoding="utf-8")
        template = Template(source, {"bos_token": bos, "eos_token": eos})
        for i, messages in enumerate(battery(special)[::EVERY]):
            quiet = i % 4 == 3
            text = template.render(messages, **({"enable_thinking": False} if quiet else {}))
            lines.append({"format": name, "no_thinking": quiet, "text": text,
                          "messages": [m["content"] for m in messages],
                          "system": messages[0]["role"] == "system"})
    out = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines)
    (folder / "cases.jsonl").write_text(out, encoding="utf-8")
    print(f"{len(lines)} conversations")


if __name__ == "__main__":
    main()
