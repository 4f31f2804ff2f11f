"""lrnn-cli --chat with the templates of OLMo-Hybrid and Qwen3.5 on a random hybrid: the tokens that
are fed are those of the template."""

import json
import os
import re
import signal
import struct
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ENTERED, READY
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "convert"), str(ROOT / "convert" / "tests")]

import tiny  # noqa: E402
from lrnn_convert.chat.sandbox import Template  # noqa: E402

TEMPLATES = ROOT / "tests" / "data" / "chat"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
EOS = 256
GREEDY = ["-t", "1", "-q", "-n", "5", "--greedy"]


def encode(text):
    """Ids of bytes and of the names of special tokens."""
    ids = []
    for part in re.split("(" + "|".join(map(re.escape, SPECIAL)) + ")", text):
        ids += [EOS + SPECIAL.index(part)] if part in SPECIAL else list(part.encode())
    return ids


def split_state(data):
    """The text, the tokens and the rest of a state file that has both (src/generate/state-file.c).
    """
    n, = struct.unpack_from("<q", data, 24)
    at = data.rindex(b'{"lrnn_chat": 1,')
    assert struct.unpack_from("<q", data, at - 8)[0] == len(data) - 8 - at
    tokens = at - 8 - 4 * n
    assert struct.unpack_from("<q", data, tokens - 8)[0] == n
    return data[at:-8], list(struct.unpack_from(f"<{n}i", data, tokens)), data[:tokens - 8]


def old_state(data):
    """The files of a chat that was saved by version 0.2: a state without tokens and text, and the
    messages."""
    text, sequence, rest = split_state(data)
    rest = rest[:12] + struct.pack("<H", rest[12] & 3) + rest[14:]
    total = 0xcbf29ce484222325  # FNV-1a
    for byte in rest:
        total = (total ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return rest + struct.pack("<Q", total), {**json.loads(text), "sequence": sequence}


class Chat:
    def __init__(self, lrnn, name):
        self.lrnn = lrnn
        path = TEMPLATES / f"{name}.jinja"
        self.template = Template(path.read_text(), {"bos_token": "", "eos_token": SPECIAL[0]})
        self.model = lrnn.text_model("olmo_hybrid", f"{name}.gguf", EOS, path, *SPECIAL)

    def run(self, *lines, args=(), **options):
        """Enters lines; returns the result."""
        stdin = "".join(line + "\n" for line in lines).encode()
        return self.lrnn.run("lrnn-cli", "-m", self.model, "--chat", *GREEDY, *args, stdin=stdin,
                             **options)

    def saved(self, name):
        """(messages, tokens of the sequence, tokens of the answers) of /save."""
        text, sequence, _ = split_state((self.lrnn.work / name).read_bytes())
        data = json.loads(text)
        messages = [{"role": m["role"], "content": m["content"]} for m in data["messages"]]
        return messages, sequence, [m["tokens"] for m in data["messages"] if "tokens" in m]

    def check(self, name, **settings):
        """The sequence is the prompt of the last answer, rendered by Jinja, and that answer.
        Returns the messages."""
        messages, sequence, answers = self.saved(name)
        prompt = self.template.render(messages[:-1], **settings)
        assert sequence == encode(prompt) + answers[-1]
        return messages


@pytest.fixture(params=["olmo-3", "qwen3.5"])
def chat(lrnn, request):
    return Chat(lrnn, request.param)


def test_tokens_are_those_of_the_template(chat):
    chat.run("Hello", "  Über\u00a0", "//slash", "", "/save s")
    messages = chat.check("s")
    assert [m["content"] for m in messages[::2]] == ["Hello", "  Über\u00a0", "/slash"]


@pytest.mark.parametrize("name, make", [("olmo-3", tiny.olmo_hybrid), ("qwen3.5", tiny.qwen35)])
def test_tokens_are_those_of_the_tokenizers_package(lrnn, name, make):
    """tests/tools/make-chat-id-tests.py made the tokens."""
    data = json.loads((TEMPLATES / "ids.json").read_text())
    config, tensors = make()
    n_vocab = len(data["tokenizer"]["model"]["vocab"]) + len(SPECIAL)
    for weight in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[weight] = np.resize(tensors[weight], (n_vocab, tiny.D))
    lrnn.write("c/config.json", json.dumps(config))
    lrnn.write("c/tokenizer.json", json.dumps(data["tokenizer"]))
    lrnn.write("c/tokenizer_config.json", json.dumps(
        {"eos_token": SPECIAL[0], "chat_template": (TEMPLATES / f"{name}.jinja").read_text()}))
    save_file(tensors, lrnn.work / "c" / "model.safetensors")
    lrnn.run("lrnn-convert", "c", "-o", "m.gguf", "-q")
    cases = [c for c in data["cases"] if c["format"] == name]
    assert len(cases) == 8
    for c in cases:
        system = [] if c["system"] is None else ["--system", c["system"]]
        lrnn.run("lrnn-cli", "-m", "m.gguf", "--chat", *system, "-t", "1", "-q", "-n", "1", "-p",
                 c["question"], "--state-save", "s")
        text, sequence, _ = split_state((lrnn.work / "s").read_bytes())
        assert sequence == c["ids"] + json.loads(text)["messages"][-1]["tokens"], c


def test_system_messages(chat):
    chat.run("a", "/system Be brief.", "b", "/save s", "/system", "c", "/save t",
             args=["--system", "Be kind."])
    assert chat.check("s")[0] == {"role": "system", "content": "Be brief."}
    assert chat.check("t")[0]["role"] == "user"


def test_special_tokens_in_messages_are_text(chat):
    done = chat.run("x<|im_end|>y<|endoftext|>", "/save s")
    _, sequence, answers = chat.saved("s")
    prompt = sequence[:len(sequence) - len(answers[0])]
    assert bytes(i for i in prompt if i < 256).decode().count("x<|im_end|>y<|endoftext|>") == 1
    plain = encode(chat.template.render([{"role": "user", "content": "xy"}]))
    assert sum(i >= EOS for i in prompt) == sum(i >= EOS for i in plain)
    assert done.stderr == ""


def test_undo_returns_to_the_state_before(chat):
    chat.run("a", "b", "/undo", "c", "/save s")
    chat.run("a", "c", "/save t")
    assert chat.check("s") == chat.check("t")
    assert chat.run("/undo").stderr == "lrnn-cli: there is nothing to undo\n"
    chat.run("/system S", "a", "/undo", "b", "/save u")
    assert [m["content"] for m in chat.check("u")][:2] == ["S", "b"]


def test_undo_rewinds_the_state_at_once(chat):
    chat.run("first", "second", "/undo", "/save s")
    messages, sequence, _ = chat.saved("s")
    assert len(messages) == 2
    text = bytes(i for i in sequence if i < 256)
    assert b"first" in text and b"second" not in text


def test_failed_commands_in_a_pipe(chat):
    """A script sees them in the exit status."""
    usage = chat.lrnn.Code.USAGE
    assert "the conversation is empty" in chat.run("/save s", code=usage).stderr
    assert not (chat.lrnn.work / "s").exists()
    chat.run("/load none", "a", "/save s", code=chat.lrnn.Code.DATA)
    assert len(chat.saved("s")[0]) == 2


def test_branches(chat):
    chat.run("a", "/fork here", "b", "/fork there", "c", "/back here", "d", "/save s",
             "/back there", "e", "/save t")
    assert [m["content"] for m in chat.check("s")[::2]] == ["a", "d"]
    assert [m["content"] for m in chat.check("t")[::2]] == ["a", "b", "e"]
    assert "no conversation with the name x" in chat.run("/back x").stderr


def test_a_branch_has_its_state_at_once(chat):
    chat.run("first", "/fork here", "second", "/back here", "/save s")
    messages, sequence, _ = chat.saved("s")
    assert len(messages) == 2
    text = bytes(i for i in sequence if i < 256)
    assert b"first" in text and b"second" not in text


def test_saved_conversations_continue(chat):
    chat.run("a", "/save s", "b", "/save t")
    chat.run("/load s", "b", "/save u")
    assert chat.check("t") == chat.check("u")
    assert chat.saved("t") == chat.saved("u")
    # the options are the commands
    chat.run("b", args=["--state-load", "s", "--state-save", "v"])
    assert chat.saved("t") == chat.saved("v")
    assert not (chat.lrnn.work / "s.json").exists()
    # a plain state
    (state, messages), work = old_state((chat.lrnn.work / "s").read_bytes()), chat.lrnn.work
    (work / "s").write_bytes(state)
    bad = {"code": chat.lrnn.Code.DATA}
    assert "a state without a conversation" in chat.run("/load s", **bad).stderr
    # files of version 0.2
    (work / "s.json").write_text(json.dumps(messages))
    chat.run("/load s", "b", "/save w")
    assert chat.saved("t") == chat.saved("w")
    # a state and messages that do not belong together
    (work / "s.json").write_text(json.dumps({**messages, "sequence": messages["sequence"][1:]}))
    assert "of different conversations" in chat.run("/load s", **bad).stderr
    (work / "s.json").write_text("{}")
    assert "not a conversation" in chat.run("/load s", **bad).stderr
    assert "cannot be opened" in chat.run("/load none", **bad).stderr


def test_thinking_can_be_suppressed(lrnn):
    chat = Chat(lrnn, "qwen3.5")
    chat.run("a", "b", "/save s", args=["--no-thinking"])
    chat.check("s", enable_thinking=False)


def test_one_message(chat):
    for args in (["-p", "a b"], ["-f", "file"]):
        chat.lrnn.write("file", "a b\n")
        chat.run(args=[*args, "--state-save", "s"])
        assert chat.check("s")[0]["content"] == "a b"


def test_piped_answers(chat):
    """One line or more per answer. A thinking section that the prompt opens is marked."""
    done = chat.run("a", "b")
    chat.run("a", "b", "/save s")
    answers = chat.saved("s")[2]
    mark = b"<think>\n" if "qwen" in str(chat.model) else b""
    text = b"".join(mark + bytes(i for i in a if i < 256) + b"\n" for a in answers)
    assert done.stdout == text.decode(errors="replace")


def test_bad_commands(chat):
    for line, error in (("/fork", "usage: /fork NAME"), ("/undo now", "usage: /undo"),
                        ("/nope", "no command /nope")):
        assert error in chat.run(line).stderr


def test_options_that_do_not_fit(chat):
    lrnn, model = chat.lrnn, ["-m", chat.model]
    for args in (["--chat", "--ids"], ["--chat", "--jsonl"], ["--system", "x"],
                 ["--chat", "-n", "0"], ["--chat", "--chat-format", "none"]):
        lrnn.fail(lrnn.Code.USAGE, "lrnn-cli", *model, *args)
    unknown = lrnn.write("t.jinja", "{{ messages }}")
    other = lrnn.text_model("olmo_hybrid", "other.gguf", EOS, unknown, *SPECIAL)
    line = lrnn.fail(lrnn.Code.MODEL, "lrnn-cli", "-m", other, "--chat")
    assert "lrnn-convert chat-format" in line
    lrnn.run("lrnn-cli", "-m", other, "--chat", "--chat-format", "chatml", *GREEDY, stdin=b"a\n")


def test_terminal(chat):
    """Ctrl-C stops an answer, not the program; thinking is dimmed."""
    t = chat.lrnn.on_terminal("lrnn-cli", "-m", chat.model, "--chat", "-t", "1", "-n", "2000000",
                              "--greedy", "-c", "100000")
    t.expect("/help")
    t.expect("> ")
    t.send("Hello\n")
    t.expect(ENTERED)
    if "qwen" in str(chat.model):
        t.expect("\x1b\\[2m")
    t.expect("..")
    t.send("\x03")
    t.expect(READY)
    t.send("/save s\n")
    t.expect(READY)
    t.send("\x04")
    assert t.close() == chat.lrnn.Code.OK, t.text()
    assert len(chat.check("s")) == 2


def test_impatient_ctrl_c(chat):
    """Ctrl-C again, before the program has stopped, does no more than once."""
    t = chat.lrnn.on_terminal("lrnn-cli", "-m", chat.model, "--chat", "-t", "1", "-n", "4",
                              "--greedy", "-b", "4096")
    t.expect(READY)
    t.send("a\n")
    t.expect(READY)
    t.send("x" * 3000 + "END\n")  # is read in one call
    t.expect(ENTERED)
    for _ in range(50):
        time.sleep(0.003)
        os.kill(t.process.pid, signal.SIGINT)
    t.expect(READY)
    time.sleep(1.2)  # the last ones may still clear the next line
    t.send("/save s\n/undo\n")
    t.expect("\\([01] questions? so far\\)")
    t.expect(READY)
    t.send("\x04")
    assert t.close() == chat.lrnn.Code.OK, t.text()
    assert [m["content"] for m in chat.check("s")][0] == "a"
