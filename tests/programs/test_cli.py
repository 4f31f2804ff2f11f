"""lrnn-cli on the golden models: prompts, sampling, states, text, stop strings."""

import json
import os
import re
import signal
import subprocess
import unicodedata

import pytest
from conftest import CUDA_NOTICE, READY

PROMPT = "3 1 4 1 5 9 2 6"
ALL_TOKENS = ["--top-k", "0", "--top-p", "1", "--min-p", "0"]


@pytest.fixture
def model(lrnn):
    return lrnn.golden / "olmo_hybrid.gguf"


def parse_jsonl(text, type_of_text):
    """The ids of --jsonl: one object per line with an id, a text and a log-probability."""
    assert text.endswith("\n")
    tokens = [json.loads(line) for line in text.splitlines()]
    for token in tokens:
        assert isinstance(token["id"], int) and token["id"] >= 0, token
        assert isinstance(token["text"], type_of_text), token
        assert token["logprob"] <= 0, token
    return [token["id"] for token in tokens]


# ---- invalid command lines and files


def test_usage(lrnn, model):
    for args in (["-m", "x.gguf", "-p", "a", "-f", "b"],
                 ["-m", "x.gguf", "-p", "a", "--stop="],
                 ["-m", "x.gguf", "-p", "a", "--temp", "-1"],
                 ["-m", model, "-n", "4"],                    # nothing to begin with
                 ["-m", model, "-p", "1", "--stop", "x"]):    # no text to look into
        lrnn.fail(lrnn.Code.USAGE, "lrnn-cli", *args)
    lrnn.fail(lrnn.Code.USAGE, "lrnn-cli")


def test_files_that_are_no_models(lrnn, model):
    content = model.read_bytes()
    lrnn.write("ids.txt", PROMPT)
    lrnn.write("empty.gguf", b"")
    lrnn.write("magic.gguf", b"GGUF")
    lrnn.write("text.gguf", b"this is not a model")
    lrnn.write("cut-data.gguf", content[:len(content) // 2])
    lrnn.write("cut-metadata.gguf", content[:len(content) // 10])
    for bad in ("missing", "empty.gguf", "magic.gguf", "text.gguf", "cut-data.gguf",
                "cut-metadata.gguf"):
        lrnn.fail(lrnn.Code.MODEL, "lrnn-cli", "-m", bad, "-p", "1")
        lrnn.fail(lrnn.Code.MODEL, "lrnn-inspect", bad)
        lrnn.fail(lrnn.Code.MODEL, "lrnn-perplexity", "logits", "-m", bad, "--tokens", "ids.txt",
                  "--out", "bad.npy")


def test_checkpoints_are_no_models(lrnn):
    """The message names the next step."""
    lrnn.write("folder/model.safetensors", b"\x02\0\0\0\0\0\0\0{}")
    for path in ("folder", "folder/model.safetensors"):
        for command in (["lrnn-cli", "-p", "1", "-m"], ["lrnn-inspect"], ["lrnn-server", "-m"]):
            lrnn.fail(lrnn.Code.MODEL, *command, path, stderr=f"; convert the checkpoint: "
                      f"lrnn-convert {path}\n")
    lrnn.write("model.gguf", b"{}")
    assert "convert" not in lrnn.fail(lrnn.Code.MODEL, "lrnn-inspect", "model.gguf")


def test_prompts_that_are_refused(lrnn, model):
    for args in (["-f", "missing"], ["-p", "1 two 3"], ["-p", "1 -2 3"],
                 ["-p", "1 99999999999999999999 3"], ["-p", "1 2000000000 3"]):
        lrnn.fail(lrnn.Code.DATA, "lrnn-cli", "-m", model, *args)


def test_states_that_are_refused(lrnn, model):
    lrnn.write("ids.txt", PROMPT)
    command = ["lrnn-cli", "-m", model, "-p", "1"]
    lrnn.run(*command, "-n", "0", "--state-save", "state")
    lrnn.write("cut", (lrnn.work / "state").read_bytes()[:1001])
    for state in ("missing", "ids.txt", "cut"):
        lrnn.fail(lrnn.Code.DATA, *command, "--state-load", state)
    # an error before any token is generated
    for state in ("missing/state", lrnn.work):
        lrnn.fail(lrnn.Code.SYSTEM, *command, "--state-save", state)


# ---- devices


def test_version_tells_how_cuda_was_tested(lrnn, config):
    version = re.sub(r"(.)\n(.)", r"\1 \2", lrnn.run("lrnn-cli", "--version").stdout)
    if config["cuda"]:
        assert re.search(" " + CUDA_NOTICE, version)
    else:
        assert re.fullmatch(r"lrnn-cli [0-9.]+, ggml [^\n]+\n", version)
        assert "CUDA" not in version


def test_verbose_tells_the_placement(lrnn, model):
    lrnn.run("lrnn-cli", "-m", model, "-p", PROMPT, "-n", "1", "-t", "1", "-q", "-v",
             "--device", "CPU",
             stderr=r"\Alrnn-cli: layers 0 to [0-9]+ and the output on CPU\n\Z")


def test_without_gpu(lrnn, config, model):
    """A request for a GPU that is missing is answered on stderr; no request, no answer."""
    command = ["lrnn-cli", "-m", model, "-p", PROMPT, "-n", "1", "-t", "1"]
    missing = None
    if config["cuda"]:
        devices = json.loads(lrnn.run("lrnn-inspect", "--devices", "--json").stdout)
        missing = devices["cuda"]["missing"]
    on_cpu = r"; everything runs on the CPU\nlrnn-cli: 8 prompt tokens"

    def must_say(pattern, *args):
        said = lrnn.run(*command, *args).raw_stderr
        assert re.match(pattern, said), said

    if not config["cuda"]:
        must_say("lrnn-cli: no GPU was found" + on_cpu, "-ngl", "1")
    elif missing:
        for n_layers in ("-1", "1"):
            must_say(r"lrnn-cli: no CUDA GPU was found [^\n]*" + on_cpu, "-ngl", n_layers)
        lrnn.fail(lrnn.Code.USAGE, "lrnn-cli", "-m", model, "-p", "1", "--device", "CUDA0")
    must_say("lrnn-cli: 8 prompt tokens", "-ngl", "0")


# ---- token ids


def test_greedy(lrnn, model):
    """The same ids from -p and -f, with --temp 0 and --greedy, for every seed, as text and JSON."""
    lrnn.write("ids.txt", PROMPT + "\n")
    command = ["lrnn-cli", "-m", model, "-t", "1", "-n", "24"]
    greedy = lrnn.run(*command, "-p", PROMPT, "--greedy", stdout=r"\A[0-9]+( [0-9]+)+\n\Z",
                      stderr=r"\Alrnn-cli: 8 prompt tokens .*24 generated").stdout
    quiet = lrnn.run(*command, "-f", "ids.txt", "--temp", "0", "-q", "--seed", "5")
    assert quiet.stdout == greedy
    assert quiet.stderr == ""
    jsonl = lrnn.run(*command, "-f", "ids.txt", "--greedy", "--jsonl").stdout
    assert parse_jsonl(jsonl, type(None)) == [int(i) for i in greedy.split()]


def test_seed(lrnn, model):
    def sample(seed):
        return lrnn.run("lrnn-cli", "-m", model, "-t", "1", "-n", "24", "-p", PROMPT, *ALL_TOKENS,
                        "--temp", "1", "--seed", seed).stdout

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)
    assert sample(-1) != sample(-1)
    lrnn.fail(lrnn.Code.USAGE, "lrnn-cli", "-m", model, "-p", PROMPT, "-s", "-2",
              stderr="-s is -2; the minimum is -1")


def test_random_seed_after_a_loaded_state(lrnn, model):
    """-s -1 replaces the random state of the file; without -s it continues."""
    command = ["lrnn-cli", "-m", model, "-t", "1", "-n", "24", *ALL_TOKENS, "--temp", "1"]
    lrnn.run(*command, "-p", PROMPT, "-s", "7", "--state-save", "state")
    command += ["--state-load", "state"]
    assert lrnn.run(*command).stdout == lrnn.run(*command).stdout
    done = lrnn.run(*command, "-s", "-1", stderr=r"; seed [0-9]+\n\Z")
    assert done.stdout != lrnn.run(*command, "-s", "-1").stdout


def test_temperature_is_another_name_of_temp(lrnn, model):
    command = ["lrnn-cli", "-m", model, "-t", "1", "-n", "24", "-p", PROMPT, *ALL_TOKENS, "-s", "1"]
    hot = lrnn.run(*command, "--temp", "3").stdout
    assert lrnn.run(*command, "--temperature", "3").stdout == hot
    assert lrnn.run(*command, "--temperature=0.1").stdout != hot


def test_state_files(lrnn):
    """Every golden model continues from a state file as if it had never stopped."""
    last = None
    for model in lrnn.golden_models():
        # after a part of the prompt, with the calls that -b makes of it
        command = ["lrnn-cli", "-m", model, "-t", "1", "-b", "4", "-n", "24"]
        unbroken = lrnn.run(*command, "-p", PROMPT, "--repeat-penalty", "1.5", "--seed", "3").stdout
        saved = lrnn.run(*command, "-p", PROMPT[:7], "-n", "0", "--seed", "3",
                         "--state-save", "state")
        assert saved.stdout == "", model
        loaded = lrnn.run(*command, "-p", PROMPT[8:], "--repeat-penalty", "1.5",
                          "--state-load", "state").stdout
        assert loaded == unbroken, model

        # while generating, without a prompt
        command = ["lrnn-cli", "-m", model, "-t", "1", "--repeat-penalty", "1.5"]
        unbroken = lrnn.run(*command, "-p", "3 1 4", "-n", "12", "--seed", "3").stdout
        first = lrnn.run(*command, "-p", "3 1 4", "-n", "5", "--seed", "3",
                         "--state-save", "middle").stdout
        rest = lrnn.run(*command, "-n", "7", "--state-load", "middle").stdout
        assert first.split() + rest.split() == unbroken.split(), model

        if last is not None:  # a state of another model
            lrnn.fail(lrnn.Code.DATA, "lrnn-cli", "-m", last, "-p", "1", "--state-load", "state")
        last = model


# ---- text: the ids of this tokenizer are the bytes, so the expected text is known

SAMPLE = ["-t", "1", "-q", "-n", "256", "--seed", "1", "--temp", "2", *ALL_TOKENS, "-p", "a text"]


@pytest.fixture
def text_source(lrnn):
    """The name of a golden model to which a tokenizer can be added."""
    for model in reversed(lrnn.golden_models()):
        info = json.loads(lrnn.run("lrnn-inspect", model, "--json").stdout)
        if info["architecture"] == "lrnn":
            return model.stem
    raise AssertionError("no golden model has the architecture lrnn")


@pytest.fixture
def text_model(lrnn, text_source):
    return lrnn.text_model(text_source, "text.gguf")


def generate_bytes(lrnn, model, *args):
    return lrnn.run("lrnn-cli", "-m", model, *SAMPLE, *args, binary=True).stdout


def generate_ids(lrnn, model):
    return parse_jsonl(lrnn.run("lrnn-cli", "-m", model, *SAMPLE, "--jsonl").stdout, str)


def test_text(lrnn, text_model):
    """Bytes of all kinds: control characters and invalid UTF-8."""
    lrnn.fail(lrnn.Code.USAGE, "lrnn-cli", "-m", text_model, "--prompt=")  # no bos token
    ids = generate_ids(lrnn, text_model)
    assert len(ids) == 256
    assert generate_bytes(lrnn, text_model) == bytes(ids) + b"\n"


@pytest.mark.parametrize("pattern", [rb"[a-z]", rb"[a-z]{2}"], ids=["letter", "two-letters"])
def test_stop(lrnn, text_model, pattern):
    text = bytes(generate_ids(lrnn, text_model))
    found = re.search(pattern, text)
    assert found, "no letters among 256 random bytes; try another seed"
    assert generate_bytes(lrnn, text_model, "--stop", "never to be found",
                          "--stop", found.group().decode()) == text[:found.start()] + b"\n"


def test_stop_inside_another(lrnn, text_model):
    """The text before a stop string is printed, even if it could have begun a longer one."""
    text = bytes(generate_ids(lrnn, text_model))
    # a pair whose second byte is new
    start = next(m.start() for m in re.finditer(rb"(?=[ -~]{2})", text)
                 if text.index(text[m.start() + 1]) == m.start() + 1)
    inner, outer = text[start + 1:start + 2].decode(), text[start:start + 2].decode() + "never"
    end = text.index(inner.encode())
    assert generate_bytes(lrnn, text_model, "--stop", outer, "--stop", inner) == text[:end] + b"\n"
    # only here the shorter one is seen while the longer one is held
    assert text[start:start + 1] not in (inner.encode(), b"\n") and end <= start + 1


def test_eos(lrnn, text_source, text_model):
    """The model ends the text: its eos token is a line of --jsonl, but no text."""
    ids = generate_ids(lrnn, text_model)
    eos = ids[10]
    n_text = ids.index(eos)
    model = lrnn.text_model(text_source, "eos.gguf", eos)
    assert generate_bytes(lrnn, model) == bytes(ids[:n_text]) + b"\n"
    assert generate_ids(lrnn, model) == ids[:n_text + 1]


# ---- on a terminal


@pytest.mark.parametrize("columns, env, expected", [(40, {}, 40), (80, {}, 80), (120, {}, 120),
                                                    (0, {"COLUMNS": "50"}, 50), (0, {}, 80),
                                                    (0, {"COLUMNS": "x"}, 80)])
def test_greeting_fits_the_terminal(lrnn, model, columns, env, expected):
    """Greeting and summary wrap between words. A terminal of 0 columns does not know its width."""
    terminal = lrnn.on_terminal("lrnn-cli", "-m", model, "-t", "1", "-n", "1", columns=columns,
                                env=env)
    terminal.expect("> ")
    terminal.send("3 1 4\n")
    terminal.expect(READY)
    terminal.send("\x04")
    assert terminal.close() == lrnn.Code.OK
    lines = terminal.lines()
    assert expected - 20 < max(map(len, lines)) <= expected
    text = " ".join(lines)
    assert "Each line of token ids continues the sequence, an empty line too. " in text
    assert re.search(r"lrnn-cli: 3 prompt tokens \([0-9.]+/s\), 1 generated \([0-9.]+/s\), "
                     r"ended by -n; seed [0-9]+ \Z", text)


@pytest.mark.parametrize("args, prompt", [(["-p", "a text"], "a text"), (["-f", "file"], "a file"),
                                          (["-p", "97 32", "--ids"], "97 32 ")])
def test_terminal_shows_the_prompt(lrnn, text_model, args, prompt):
    """The generated text continues it. A pipe gets only the generated text."""
    lrnn.write("file", "a file\n")
    command = ["lrnn-cli", "-m", text_model, "-t", "1", "-q", "-n", "4", "--greedy", *args]
    piped = lrnn.run(*command).stdout
    assert piped.endswith("\n")
    terminal = lrnn.on_terminal(*command)
    assert terminal.close() == lrnn.Code.OK
    assert terminal.text().replace("\r\n", "\n") == prompt + piped
    assert lrnn.on_terminal(*command, "--jsonl").expect(r".").group() == "{"


class Dialog:
    """lrnn-cli on a terminal: line by line."""

    def __init__(self, lrnn, model, *args, **options):
        self.terminal = lrnn.on_terminal("lrnn-cli", "-m", model, "-t", "1", *args, **options)
        self.terminal.expect("> ")
        # the editor draws a message of several lines again and again, but is ready only once
        is_plain = options.get("term") == "dumb"
        self.ready = "\n[^\n]*> " if is_plain else READY
        self.send, self.expect = self.terminal.send, self.terminal.expect

    def enter(self, text):
        """Enters a line and waits until another one can be typed."""
        self.send(text + "\n")
        self.expect(self.ready)

    def clear(self):
        """Ctrl-C while a line is typed."""
        self.send("\x03")
        self.expect(r"\^C\r?\n[^\n]*> ")

    def end(self, code=0):
        """Ctrl-D. Returns the number of prompt tokens."""
        self.send("\x04")
        assert self.terminal.close() == code, self.terminal.text()
        return int(re.search(r"lrnn-cli: ([0-9]+) prompt token", self.terminal.text()).group(1))


@pytest.fixture(params=["xterm", "dumb"])
def dialog(lrnn, request):
    """dialog(model, ...) with line editing, and without."""
    return lambda model, *args: Dialog(lrnn, model, *args, term=request.param)


@pytest.fixture
def editor(lrnn):
    return lambda *args, **options: Dialog(lrnn, *args, **options)


@pytest.fixture
def recurrent_model(lrnn):
    return lrnn.golden / "delta_net_neg.gguf"


def test_ctrl_c_clears_a_line(dialog, recurrent_model):
    d = dialog(recurrent_model, "-n", "2")
    d.send("3 1 half a li")
    d.expect("half a li")
    d.clear()
    d.enter("3 1 4")
    assert d.end() == 3
    assert "interrupt" not in d.terminal.text().split("Ctrl-D")[1]


def test_ctrl_c_clears_continued_lines(dialog, recurrent_model):
    d = dialog(recurrent_model, "-n", "2")
    d.send("3 1 \\\n")
    d.expect(r"\n\S*\.\.\. ")
    d.clear()
    d.clear()  # nothing was typed
    d.enter("3 1 4")
    assert d.end() == 3


def test_ctrl_c_stops_only_the_generation(dialog, recurrent_model):
    d = dialog(recurrent_model, "-n", "-1")
    for _ in range(2):
        d.send("3 1 4\n")
        d.expect("\n[0-9]+( [0-9]+){20}")
        d.send("\x03")
        d.expect("\n[^\n]*> ")
    assert d.end() == 6


def test_ctrl_d_ends(dialog, recurrent_model):
    d = dialog(recurrent_model, "-n", "2")
    d.enter("3 1 4")
    d.enter("")
    assert d.end() == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_stop_ends_the_dialog(lrnn, dialog, recurrent_model, number):
    d = dialog(recurrent_model, "-n", "2", "--state-save", "state")
    d.enter("3 1 4")
    d.terminal.process.send_signal(number)
    assert d.terminal.close() == lrnn.Code.STOPPED
    lrnn.run("lrnn-cli", "-m", recurrent_model, "--state-load", "state", "-n", "1")


def test_backslash_continues_a_line(dialog, text_model):
    """The line end stays, the backslash does not; elsewhere a backslash means nothing."""
    d = dialog(text_model, "-n", "1")
    d.send("a\\\n")
    d.expect(r"\.\.\. ")
    d.send("\\\n")
    d.expect(r"\.\.\. ")
    d.enter("b\\c")
    assert d.end() == len("a\n\nb\\c")


@pytest.mark.parametrize("size", [4094, 4095, 6000])
def test_long_lines_without_an_editor(lrnn, text_model, size):
    """The terminal drops the rest silently; the program does not."""
    d = Dialog(lrnn, text_model, "-n", "1", term="dumb")
    d.send("x" * size + "\n")
    if size >= 4095:
        d.expect("lrnn-cli: the terminal cut this line at 4095 characters; use -f FILE\r\n> ")
    else:
        d.expect("\n[^\n]*> ")
    d.enter("abc")
    assert d.end() == (3 if size >= 4095 else size + 3)


def test_text_from_the_terminal_into_a_pipe(lrnn, text_model):
    """One Ctrl-D ends the text."""
    terminal = lrnn.on_terminal("lrnn-cli", "-m", text_model, "-n", "1", stdout=subprocess.DEVNULL)
    terminal.send("short\nlines\n\x04")
    assert terminal.close() == lrnn.Code.OK
    assert f"lrnn-cli: {len('short lines')} prompt tokens" in terminal.text()


def test_long_lines_from_the_terminal_into_a_pipe(lrnn, text_model):
    terminal = lrnn.on_terminal("lrnn-cli", "-m", text_model, "-n", "1", stdout=subprocess.DEVNULL)
    terminal.send("short\n" + "x" * 6000 + "\n\x04")
    assert terminal.close() == lrnn.Code.DATA
    assert "lrnn-cli: the terminal cut this line at 4095 characters; use -f FILE" in terminal.text()


def test_editor_long_lines(editor, text_model):
    d = editor(text_model, "-n", "1")
    d.enter("x" * 6000)
    assert d.end() == 6000


def test_editor_history(editor, recurrent_model):
    d = editor(recurrent_model, "-n", "1")
    d.enter("3 1 4 1")
    d.enter("5 9")
    d.enter("\x1b[A\x1b[A")    # two lines up
    assert d.end() == 4 + 2 + 4


def test_editor_edits(editor, recurrent_model):
    d = editor(recurrent_model, "-n", "1")
    d.enter("x 1 4\x01\x1b[3~3\x1b[C\x1b[C 7 ")  # Ctrl-A, delete, type, twice right, type
    assert d.end() == 4


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_editor_reads_utf8(editor, text_model, locale):
    d = editor(text_model, "-n", "1", env={"LC_ALL": locale})
    d.enter("né 語")
    assert d.end() == len("né 語".encode())


def test_former_names_of_options(lrnn, model):
    """A renamed option keeps its old name for one version; nothing shows it."""
    words = ["lrnn-cli", "-m", model, "-p", "1 2 3", "-n", "2", "--greedy", "-q"]
    full = "the attention cache"
    for option in ("--ctx", "--cache", "-c"):
        lrnn.fail(lrnn.Code.USAGE, *words, option, "2", stderr=full)
    for program, old, new in (("lrnn-cli", "--cache", "--ctx"),
                              ("lrnn-rpc-server", "--cache", "--weight-cache")):
        for how in (["--help"], ["--describe", "man"], ["--describe", "bash"]):
            text = lrnn.run(program, *how).stdout.replace("\\-", "-")
            assert new in text
            assert not re.search(rf"(?<![a-z]){old}(?![-a-z])", text), (program, how)
    lrnn.fail(lrnn.Code.USAGE, *words, "--batch", "8", stderr="unknown option --batch")


def messages(path):
    """The messages of a history file."""
    return [re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), line)
            for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.mark.parametrize("keys, expected", [
    ("abc\x7f\x7fd", "ad"),                                 # Backspace
    ("x one two\x1bb\x1bb\x0b", "x "),                      # Alt-B, Ctrl-K
    ("one two\x17three", "one three"),                      # Ctrl-W
    ("one two\x1b\x7fthree", "one three"),                  # Alt-Backspace
    ("one two\x15three\x19", "threeone two"),               # Ctrl-U, Ctrl-Y
    ("one two\x01\x1bd\x05!", " two!"),                     # Ctrl-A, Alt-D, Ctrl-E
    ("one two\x1b[1;5D\x1b[1;5Dx\x1b[1;5Cy", "xoney two"),  # Ctrl-Left, Ctrl-Right
    ("ab\x1b[Hx\x1b[Fy\x1bODz", "xabzy"),                   # Home, End, Left
    ("né語\x1b[D\x1b[D\x1b[3~", "n語"),                      # characters, not bytes
    ("ne\u0301x\x1b[D\x7f", "nx"),                          # a letter and its mark
    ("one\x1b\rtwo\x1b[A!", "one!\ntwo"),                  # Alt-Enter, up
    ("one\\\rtwo", "one\ntwo"),                             # a backslash
    ("\x1b[200~one\r\x01two\\\ttabs\r\x1b[201~!", "one\ntwo\\\ttabs\n!"),  # pasted
    (b"a\x1b[99~\x1b[<1;2;3M\x1bq\xffb", "ab"),             # unknown keys, an invalid byte
])
def test_editor_keys(lrnn, editor, text_model, keys, expected):
    d = editor(text_model, "-n", "1", env={"LRNN_HISTORY": "history"})
    d.send(keys)
    d.enter("")
    assert d.end() == len(expected.encode())
    assert messages(lrnn.work / "history") == [expected]


def test_editor_keeps_a_history_file(lrnn, editor, text_model):
    """Private, in order, without repeated messages; found by arrow keys and by Ctrl-R."""
    env = {"XDG_STATE_HOME": str(lrnn.work / "state"), "LRNN_HISTORY": None}
    path = lrnn.work / "state/lrnn/history"
    options = [text_model, "-n", "1"]
    d = editor(*options, env=env)
    for text in ("first apple", "second pear", "second pear", "third"):
        d.enter(text)
    d.end()
    assert messages(path) == ["first apple", "second pear", "third"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    d = editor(*options, env=env)
    d.enter("new\x1b[A\x1b[B!")   # up and down again: the new message is still there
    d.enter("\x12app")            # Ctrl-R
    d.enter("x\x12zzz\x07")       # nothing is found; Ctrl-G
    d.end()
    assert messages(path)[3:] == ["new!", "first apple", "x"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_editor_shortens_its_history(lrnn, editor, text_model):
    path = lrnn.work / "history"
    path.write_text("".join(f"message {i}\n" for i in range(2500)), encoding="utf-8")
    d = editor(text_model, "-n", "1", env={"LRNN_HISTORY": str(path)})
    d.enter("\x1b[A")
    d.end()
    assert messages(path) == [f"message {i}" for i in range(1500, 2500)]


@pytest.mark.parametrize("kind", ["fifo", "folder", "missing folder", "binary"])
def test_editor_works_without_a_history_file(lrnn, editor, text_model, kind):
    path = lrnn.work / "history"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(bytes(range(256)) * 10)
    else:
        path = path / "none"
    d = editor(text_model, "-n", "1", env={"LRNN_HISTORY": str(path)})
    d.enter("abc")
    d.enter("\x1b[A")
    assert d.end() == 6


@pytest.mark.parametrize("size, is_long", [(1 << 20, False), ((1 << 20) + 1, True),
                                           (3 << 20, True)])
def test_editor_takes_a_mebibyte(editor, text_model, size, is_long):
    """A pasted text is one message. A longer one is refused, and nothing of it stays."""
    d = editor(text_model, "-n", "1")
    d.send("\x1b[200~" + ("x" * 63 + "\r") * (size // 64) + "y" * (size % 64) + "\x1b[201~")
    if is_long:
        d.expect("lrnn-cli: a message has at most 1048576 bytes; use -f FILE\r\n" + d.ready)
        d.enter("abc")
        assert d.end() == 3
    else:
        d.expect("x\r\n\\.\\.\\. ")
        d.send("\x03")  # computing a mebibyte takes too long here
        d.expect(r"\^C\r\n" + d.ready)
        d.enter("abc")
        assert d.end() == 3


class Screen:
    """What a terminal of 80 columns shows after some output."""

    def __init__(self, text):
        self.cells, self.row, self.column = {}, 0, 0
        for part in re.findall(r"\x1b\[\??[0-9;]*[A-Za-z]|.", text, re.S):
            self.show(part)

    def show(self, part):
        if part == "\r":
            self.column = 0
        elif part == "\n":
            self.row += 1
        elif part[0] != "\x1b":
            self.cells[self.row, self.column] = part
            self.column += 2 if unicodedata.east_asian_width(part) in "WF" else 1
            assert self.column <= 80
        elif part[-1] == "A":
            self.row -= int(part[2:-1])
        elif part[-1] == "C":
            self.column += int(part[2:-1])
        elif part[-1] == "J":
            here = (self.row, self.column)
            self.cells = {at: c for at, c in self.cells.items() if at < here}

    def lines(self):
        last = max(row for row, _ in self.cells)
        return ["".join(self.cells.get((r, c), "") for c in range(80)) for r in range(last + 1)]


def test_editor_screen(editor, text_model):
    """A message wider than the terminal, with wide characters, and the cursor inside it."""
    d = editor(text_model, "-n", "1", "-q")
    d.send("a" * 77 + "語" * 40 + "\x1b[D" * 41 + "B")
    d.expect("Ba\r\n語")
    d.send("\x1b\rC")
    d.expect(r"\.\.\. Ca語{37}\r\n語{3}\S*")
    lines = Screen(d.terminal.text()).lines()
    assert lines == ["> " + "a" * 76 + "B", "... Ca" + "語" * 37, "語" * 3]
    d.clear()
    d.send("\x04")
    assert d.terminal.close() == 0
