"""Writes the cases of test-chat.c: conversations, and what Jinja makes of them. Each line has the
built-in format, whether thinking is suppressed, the messages, and the text that the template
tests/data/chat/NAME.jinja renders."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "convert"))
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
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for name, (bos, eos, special) in FORMATS.items():
            source = (ROOT / f"tests/data/chat/{name}.jinja").read_text(encoding="utf-8")
            template = Template(source, {"bos_token": bos, "eos_token": eos})
            for i, messages in enumerate(battery(special)[::EVERY]):
                quiet = i % 4 == 3
                text = template.render(messages, **({"enable_thinking": False} if quiet else {}))
                case = {"format": name, "no_thinking": quiet, "text": text,
                        "messages": [m["content"] for m in messages],
                        "system": messages[0]["role"] == "system"}
                out.write(json.dumps(case, ensure_ascii=False) + "\n")


main()
