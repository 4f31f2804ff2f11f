"""Chat templates: compiled formats render what Jinja renders, and anything else is refused."""

import json
import re
from pathlib import Path

import pytest
import tiny

from lrnn_convert.chat.compile import CompileError, battery, compile_template, conversation
from lrnn_convert.chat.sandbox import RenderError, Template
from lrnn_convert.cli import main

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "chat"
NAMES = sorted(p.stem for p in DATA.glob("*.jinja") if p.stem != "needs-tools")
TOKENS = {"bos_token": "<s>", "eos_token": "<|endoftext|>"}
SPECIAL = ["<s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>",
           "<|start_header_id|>", "<|end_header_id|>"]

CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
          "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


@pytest.mark.parametrize("name", NAMES)
def test_templates_of_the_built_in_formats_compile(name):
    """test-chat.c compares the built-in formats with these templates."""
    f = compile_template(Template((DATA / f"{name}.jinja").read_text(), TOKENS), SPECIAL)
    assert set(f.special) & set(SPECIAL) and len(f.trim) == {"qwen3.5": 3, "llama-3": 3,
                                                             "rwkv-world": 2}.get(name, 0)
    assert f.drop_thinking == {"qwen3.5": "\n", "rwkv-world": " "}.get(name)
    assert (f.user_generation_no_thinking is not None) == (name in ("qwen3.5", "rwkv-world"))
    assert f.omit_empty_system == (name == "rwkv-world")


def test_the_battery_has_one_to_six_questions():
    lengths = {sum(m["role"] == "user" for m in c) for c in battery(["<|x|>"])}
    assert lengths == set(range(1, 7))


@pytest.mark.parametrize("template, reason", [
    ("{% for t in tools %}{{ t }}{% endfor %}" + CHATML, "it needs tools or documents"),
    ("{% for m in messages %}", "not valid Jinja"),
    ("{{ messages[-1].content }}", "drops, repeats or reorders"),
    (CHATML + "{{ messages[0].content }}", "drops, repeats or reorders"),
    (CHATML.replace("m.content", "m.content | upper"), "drops, repeats or reorders"),
    (CHATML.replace("m.content", "m.content | replace('  ', ' ')"), "cannot express"),
    (CHATML.replace("m.content", "m.content[:50]"), "cannot express"),
    (CHATML.replace("m.content", "m.content or 'nothing'"), "cannot express"),
    ("{{ strftime_now('%d') }}" + CHATML, "today's date"),
    ("{{ raise_exception('never') }}", "never"),
    ("{{ 'x' * 2000000000 }}" + CHATML, "large numbers"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "seconds"),
    ("{{ ''.__class__.__mro__ }}" + CHATML, "unsafe"),
    ("{% for m in messages %}{% if loop.index == 5 %}!{% endif %}{{ m.content }}|{% endfor %}",
     "cannot express"),
])
def test_other_templates_are_refused(template, reason, monkeypatch):
    monkeypatch.setattr("lrnn_convert.chat.sandbox.MAX_SECONDS", 0.5)
    with pytest.raises((CompileError, RenderError), match=re.escape(reason)):
        compile_template(Template(template, TOKENS), SPECIAL)


def test_templates_without_system_messages(bench):
    t = Template("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}"
                 "{% endif %}" + CHATML, TOKENS)
    f = compile_template(t, SPECIAL)
    assert f.begin_system is None
    assert f.render(conversation("a")) == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"


#
# In a model file
#

TOKENIZER = {
    "added_tokens": [{"id": 2, "content": "<|im_start|>", "special": True},
                     {"id": 3, "content": "<|im_end|>", "special": True}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 4}, "merges": ["a b"]},
}


def save(bench, template, **config):
    bench.save(*tiny.delta_net())
    (bench.folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (bench.folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "chat_template": template} | config))
    (bench.folder / "generation_config.json").write_text('{"eos_token_id": [3, 2, 99]}')


def keys(bench):
    from conftest import File
    assert bench.run() == 0, bench.err
    return File(bench.out).kv


def test_both_forms_are_stored(bench):
    save(bench, CHATML)
    kv = keys(bench)
    f = json.loads(kv["lrnn.chat_format"])
    assert kv["tokenizer.chat_template"] == CHATML
    assert f["special"] == ["<|im_start|>", "<|im_end|>"]
    assert f["stop"] == ["<|im_end|>", "<|im_start|>"]
    assert "compiled and verified" in bench.err


def test_a_list_of_templates_has_a_default(bench):
    save(bench, [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}])
    assert keys(bench)["tokenizer.chat_template"] == CHATML


def test_the_jinja_file_counts(bench):
    save(bench, "other")
    (bench.folder / "chat_template.jinja").write_text(CHATML)
    assert keys(bench)["tokenizer.chat_template"] == CHATML


def test_a_template_that_cannot_be_compiled_is_reported_and_kept(bench):
    bad = (DATA / "needs-tools.jinja").read_text()
    save(bench, bad)
    kv = keys(bench)
    assert kv["tokenizer.chat_template"] == bad and "lrnn.chat_format" not in kv
    assert "the chat template cannot be compiled: it needs tools" in bench.err


def test_the_command_compiles_model_files_and_folders(bench, capsys):
    save(bench, CHATML)
    kv = keys(bench)
    out = bench.path / "f.json"
    for source in (bench.out, bench.folder):
        assert main(["chat-format", str(source), "-o", str(out)]) == 0, capsys.readouterr().err
        f = json.loads(out.read_text())
        assert f | {"stop": 0} == json.loads(kv["lrnn.chat_format"]) | {"stop": 0}
        out.unlink()
    assert main(["chat-format", str(bench.out), "-o", str(bench.out)]) == 2
    assert main(["chat-format", str(bench.folder / "model.safetensors"), "-o", str(out)]) == 3
    save(bench, (DATA / "needs-tools.jinja").read_text())
    assert main(["chat-format", str(bench.folder), "-o", str(out)]) == 4
    assert not out.exists() and "it needs tools" in capsys.readouterr().err
