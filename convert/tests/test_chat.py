"""Chat templates: compiled formats render what Jinja renders, and anything else is refused."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import tiny

from lrnn_convert.chat import sandbox
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


def compiled(source):
    with Template(source, TOKENS) as t:
        return compile_template(t, SPECIAL)


@pytest.mark.parametrize("name", NAMES)
def test_templates_of_the_built_in_formats_compile(name):
    """test-chat.c compares the built-in formats with these templates."""
    f = compiled((DATA / f"{name}.jinja").read_text())
    assert set(f.special) & set(SPECIAL) and len(f.trim) == {"qwen3.5": 3, "llama-3": 3,
                                                             "rwkv-world": 2}.get(name, 0)
    assert f.drop_thinking == {"qwen3.5": "\n", "rwkv-world": " "}.get(name)
    assert (f.user_generation_no_thinking is not None) == (name in ("qwen3.5", "rwkv-world"))
    assert f.omit_empty_system == (name == "rwkv-world")


@pytest.fixture(scope="module")
def llama_templates(tmp_path_factory):
    """The templates in the archive that the build downloads: llama.cpp's collection."""
    pin = (DATA.parents[2] / "cmake/ggml-source.cmake").read_text()
    stem = re.search(r'LRNN_GGML_PACKAGE_STEM +"([^"]+)"', pin)[1]
    archive = Path.home() / f".cache/lrnn/{stem}.tar.gz"
    if not archive.exists():
        pytest.skip(f"{archive} does not exist")
    folder = f"{stem}/vendor/llama.cpp/models/templates/"
    with tarfile.open(archive) as tar:
        return {m.name.removeprefix(folder).removesuffix(".jinja"): tar.extractfile(m).read()
                for m in tar if m.name.startswith(folder) and m.name.endswith(".jinja")}


@pytest.mark.parametrize("name, reason", [
    ("ibm-granite-granite-4.0", None), ("moonshotai-Kimi-K2", None), ("LFM2-8B-A1B", None),
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "it changes the text of assistant messages"),
    ("NVIDIA-Nemotron-Nano-v2", "in a way that the format cannot express"),
    ("inclusionai-ling-3.0-flash", "enable_thinking changes more than the prompt for the answer")])
def test_templates_of_hybrid_models(llama_templates, name, reason):
    source = llama_templates[name].decode()
    special = set(re.findall(r"<\|[a-z_]+\|>|<SPECIAL_\d+>", source))
    with Template(source, {"bos_token": "<|startoftext|>", "eos_token": "<|im_end|>"}) as t:
        if reason is None:
            f = compile_template(t, [*special, "<|startoftext|>"])
            assert set(f.special) & special
        else:
            with pytest.raises(CompileError, match=reason):
                compile_template(t, sorted(special))


def test_the_battery_has_one_to_six_questions():
    lengths = {sum(m["role"] == "user" for m in c) for c in battery(["<|x|>"])}
    assert lengths == set(range(1, 7))


@pytest.mark.parametrize("template, reason", [
    ("{% for t in tools %}{{ t }}{% endfor %}" + CHATML, "it needs tools or documents"),
    ("{% for m in messages %}", "not valid Jinja"),
    ("{{ messages[-1].content }}", "it drops or changes the first user message"),
    ("{% for m in messages[:-1] %}{{ m.content }}|{% endfor %}",
     "it drops or changes the last user message"),
    (CHATML.replace("for m in messages", "for m in messages if m.role != 'assistant'"),
     "it drops or changes the assistant message"),
    (CHATML + "{{ messages[0].content }}", "it repeats the first user message"),
    ("{{ messages[0].content }}{% for m in messages[1:] | reverse %}{{ m.content }}{% endfor %}",
     "it moves the last user message"),
    (CHATML.replace("m.content", "m.content | upper"),
     "it drops or changes the first user message"),
    (CHATML + "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}",
     "it repeats the system message"),
    (CHATML.replace("m.content", "m.content | replace('  ', ' ')"), "cannot express"),
    (CHATML.replace("m.content", "m.content[:50]"), "cannot express"),
    (CHATML.replace("m.content", "m.content or 'nothing'"), "cannot express"),
    ("{{ strftime_now('%d') }}" + CHATML, "today's date"),
    ("{{ raise_exception('never') }}", "never"),
    ("{{ raise_exception('two\\nlines \\x1b[31m') }}", "two lines"),
    ("{{ " + "(" * 300 + "1" + ")" * 300 + " }}", "not valid Jinja"),
    ("{{ 'x' * 2000000000 }}" + CHATML, "memory"),
    ("{{ 'x' * 2000000 }}" + CHATML, "more than 1048576 characters"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "seconds"),
    ("{{ ''.__class__.__mro__ }}" + CHATML, "unsafe"),
    ("{% for m in messages %}{% if loop.index == 5 %}!{% endif %}{{ m.content }}|{% endfor %}",
     "cannot express"),
])
def test_other_templates_are_refused(template, reason, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 1)
    with pytest.raises((CompileError, RenderError), match=re.escape(reason)) as e:
        compiled(template)
    assert str(e.value).isprintable()


def test_templates_without_system_messages():
    f = compiled("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}"
                 "{% endif %}" + CHATML)
    assert f.begin_system is None
    assert f.render(conversation("a")) == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"


# no system messages; and a default one, which gives way to a system message that is then dropped
IGNORES = "{% for m in messages if m.role != 'system' %}" + CHATML.partition("%}")[2]
DROPS = "{% if messages[0].role != 'system' %}Be brief.{% endif %}" + IGNORES


@pytest.mark.parametrize("template", [IGNORES, DROPS])
def test_templates_that_ignore_system_messages(bench, template):
    f = compiled(template)
    assert f.begin_system is None and "begin_system" not in json.loads(f.to_json())
    save(bench, template)
    assert "lrnn.chat_format" in keys(bench)
    assert "chat:      template compiled and verified, without system messages: it drops them\n" \
        in bench.err


def test_refused_system_messages_are_reported(bench):
    save(bench, "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
         + CHATML)
    keys(bench)
    assert "verified, without system messages: it refuses them\n" in bench.err


#
# Limits
#

MEMORY = [
    "{{ '%999999999d' % 1 }}",
    "{{ 'x'.ljust(8000000000) }}",
    "{{ 'x' | center(8000000000) | length }}",
    "{% set ns = namespace(x='0123456789') %}"
    "{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x=[0]) %}"
    "{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{{ range(99999) | map('center', 99999) | list | length }}",
]


@pytest.mark.parametrize("template", MEMORY)
def test_the_system_limits_memory(template, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_ADDRESSES", 1 << 28)
    monkeypatch.setattr(sandbox, "resident_bytes", lambda pid: 0)
    with pytest.raises(RenderError, match="it needs more than 536 MB of memory"):
        with Template(template, TOKENS) as t:
            t.render(conversation("a"))


def test_memory_is_limited_without_the_system(monkeypatch):
    """macOS does not limit the address space."""
    template = ("{% set x = 'x' | center(300000000 * messages | length) %}"
                "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
    monkeypatch.setattr(sandbox, "MAX_BYTES", 1 << 27)
    with pytest.raises(RenderError, match="it needs more than 134 MB of memory"):
        with Template(template, TOKENS) as t:
            t.render(conversation("a"))


def test_time_is_limited(monkeypatch):
    """Many short renderings count, and code in C that a signal handler could not interrupt."""
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 1)
    begin = time.monotonic()
    for template in ("{% for i in range(50000) %}{% endfor %}",
                     "{{ (9 ** 999999) ** 9 % 7 }}"):
        with pytest.raises(RenderError, match="it runs for more than 1 seconds"):
            with Template(template, TOKENS) as t:
                for _ in range(99999):
                    t.render(conversation("a"))
    assert time.monotonic() - begin < 60


def test_a_process_that_hangs_is_ended():
    with Template(CHATML, TOKENS) as t:
        t.render(conversation("a"))
        t.process.send_signal(signal.SIGSTOP)
        t.deadline = time.monotonic()
        with pytest.raises(RenderError, match="it is not rendered within 120 seconds"):
            t.render(conversation("a"))
    assert t.process.returncode is not None


def test_a_process_that_crashes_is_reported():
    with Template(CHATML, TOKENS) as t:
        t.process.send_signal(signal.SIGSEGV)
        with pytest.raises(RenderError, match="the process that renders it ended with signal 11"):
            t.render(conversation("a"))


def test_no_process_is_left():
    with Template(CHATML, TOKENS) as t:
        one = t.process.pid
        assert t.render(conversation("a")) == t.render(conversation("a"))
        assert t.process.pid == one
    assert t.process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(one, 0)


@pytest.mark.parametrize("number, does", [(signal.SIGKILL, "time.sleep(60)"),
                                          (signal.SIGTERM, "t.render([])")])
def test_the_process_ends_with_its_parent(number, does):
    """Killed while the process waits; terminated while it works."""
    template = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    program = ("import time\nfrom lrnn_convert import signals\n"
               "from lrnn_convert.chat.sandbox import Template\nsignals.install()\n"
               f"t = Template({template!r}, {{}})\nprint(t.process.pid, flush=True)\n{does}")
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    child = int(parent.stdout.readline())
    time.sleep(0.3)
    os.kill(child, 0)
    parent.send_signal(number)
    assert parent.communicate()[1] in (b"", b"lrnn-convert: terminated\n")
    end = time.monotonic() + 5             # less than MAX_SECONDS
    while is_running(child):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(pid):
    """A process that has ended may still wait for its new parent."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


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
