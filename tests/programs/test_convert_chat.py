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


def write_checkpoint(lrnn, template):
    config, tensors = tiny.delta_net()
    for weight in ("model.embeddings.weight", "lm_head.weight"):
        if weight in tensors:
            tensors[weight] = np.resize(tensors[weight], (256, tiny.D))
    lrnn.write("c/config.json", json.dumps(config | {"vocab_size": 256}))
    lrnn.write("c/chat_template.jinja", template)
    save_file(tensors, lrnn.work / "c/model.safetensors")


def test_a_system_message_is_refused_at_run_time(lrnn):
    write_checkpoint(lrnn, TEMPLATE)
    lrnn.run("lrnn-convert", "c", "-o", "m.gguf", "--tokenizer", "bytes",
             stderr="compiled and verified, without system messages: it drops them")
    chat = ["lrnn-cli", "-m", "m.gguf", "--chat", "-t", "1", "-q", "-n", "4", "-p", "Hello"]
    assert lrnn.run(*chat).stdout != ""
    refused = lrnn.run(*chat, "--system", "Be brief.", code=lrnn.Code.USAGE)
    assert "the chat format has no system messages" in refused.stderr
    assert refused.stdout.strip() == ""


def messages_of(path):
    data = path.read_bytes()
    text = data[data.rindex(b'{"lrnn_chat": 1,'):-8]
    return [(m["role"], m["content"]) for m in json.loads(text)["messages"]]


def test_save_after_undo(lrnn):
    """Whatever was answered: this format trims answers, and then no stored state fits."""
    write_checkpoint(lrnn, "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n"
                           "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")
    lrnn.run("lrnn-convert", "c", "-o", "m.gguf", "--tokenizer", "bytes")
    chat = ["lrnn-cli", "-m", "m.gguf", "--chat", "-t", "1", "-q", "-n", "4", "--temp", "3",
            "--top-k", "0", "--top-p", "1", "--min-p", "0"]
    answers = set()
    for seed in range(24):
        lines = b"Hello\nAgain\n/undo\n/save s\n"
        lrnn.run(*chat, "-s", str(seed), stdin=lines)
        (role, question), (_, answer) = messages_of(lrnn.work / "s")
        assert (role, question) == ("user", "Hello")
        answers.add(answer != answer.strip())
        lrnn.run(*chat, "-s", str(seed), stdin=b"/load s\nMore\n/save t\n")
        assert messages_of(lrnn.work / "t")[:3] == [("user", "Hello"), ("assistant", answer),
                                                    ("user", "More")]
        lrnn.run(*chat, "-s", str(seed), "--state-save", "u", stdin=lines[:-8])
        assert messages_of(lrnn.work / "u") == messages_of(lrnn.work / "s")
    assert answers == {True, False}, "the seeds must make both kinds of answers"
