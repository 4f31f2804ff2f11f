"""A chat template that ignores system messages, from the checkpoint to the programs."""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "convert"), str(ROOT / "convert" / "tests")]

import tiny  # noqa: E402

TEMPLATE = ("{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n"
            "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")


def test_a_system_message_is_refused_at_run_time(lrnn):
    config, tensors = tiny.delta_net()
    for weight in ("model.embeddings.weight", "lm_head.weight"):
        if weight in tensors:
            tensors[weight] = np.resize(tensors[weight], (256, tiny.D))
    lrnn.write("c/config.json", json.dumps(config | {"vocab_size": 256}))
    lrnn.write("c/chat_template.jinja", TEMPLATE)
    save_file(tensors, lrnn.work / "c/model.safetensors")
    lrnn.run("lrnn-convert", "c", "-o", "m.gguf", "--tokenizer", "bytes",
             stderr="compiled and verified, without system messages: it drops them")
    chat = ["lrnn-cli", "-m", "m.gguf", "--chat", "-t", "1", "-q", "-n", "4", "-p", "Hello"]
    assert lrnn.run(*chat).stdout != ""
    refused = lrnn.start(*chat, "--system", "Be brief.")
    assert "the chat format has no system messages" in refused.stderr
    assert refused.stdout.strip() == ""
