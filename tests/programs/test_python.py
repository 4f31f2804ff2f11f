"""examples/python/lrnn.py: the C API in Python."""

import ctypes
import gc
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import test_convert_verify

TEXT_MODEL = "text-deltaproduct2-neg.gguf"
PROMPT = "The old man looked at"
LIMIT_LIBRARY = 1e-4  # as in tests/unit/test-golden.c


@pytest.fixture(scope="module")
def lrnn(root, config):
    """The module."""
    if not config["shared"]:
        pytest.skip("lrnn.py needs a shared library")
    if config["sanitize"] and "asan" not in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("the address sanitizer must be loaded before Python")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LRNN_LIBRARY", config["liblrnn"])
        patch.syspath_prepend(root / "examples/python")
        import lrnn
    return lrnn


@pytest.fixture
def model(lrnn, root):
    with lrnn.Model(root / "models" / TEXT_MODEL) as model:
        yield model


@pytest.fixture
def session(lrnn, model):
    with lrnn.Session(model, n_seqs=2, n_rewind=8, n_threads=1) as session:
        yield session


def read_golden(path):
    """Tokens [T] and logits [T, V]."""
    data = path.read_bytes()
    assert data[:8] == b"golden01"
    n_tokens, n_vocab = np.frombuffer(data, "<i4", 2, 8)
    tokens = np.frombuffer(data, "<i4", n_tokens, 16)
    logits = np.frombuffer(data, "<f4", n_tokens*n_vocab, 16 + 4*n_tokens)
    return tokens, logits.reshape(n_tokens, n_vocab)


def generate(lrnn, session, sampler, logits, n):
    tokens = []
    for _ in range(n):
        tokens.append(sampler.sample(logits)[0])
        logits = session.eval(tokens[-1:])[0]
    return tokens


# ---- Results -------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["delta_net_neg", "deltaproduct3_neg", "mamba", "olmo_hybrid"])
def test_logits_of_the_reference_library(lrnn, root, name):
    tokens, expected = read_golden(root / "tests/golden" / f"{name}.golden")
    with lrnn.Model(root / "tests/golden" / f"{name}.gguf") as model:
        with lrnn.Session(model, n_seqs=2, cache_type=lrnn.CACHE_F32) as session:
            logits = session.eval(tokens, n_logits=None)
            assert logits.shape == expected.shape and logits.dtype == np.float32
            assert abs(logits - expected).max() < LIMIT_LIBRARY
            # rows after the last tokens, in one call with a sequence of another length
            both = session.eval_batch({1: tokens[:5], 0: tokens[::-1]}, n_logits=3)
            assert abs(both[1] - expected[2:5]).max() < LIMIT_LIBRARY
            assert abs(session.logits(2) - expected[4]).max() < LIMIT_LIBRARY
            assert (session.logits(5) == both[0][2]).all()


def test_logits_of_the_program(lrnn, model, session, programs_in, tmp_path):
    programs = programs_in(tmp_path)
    programs.write("ids.txt", "84 104 101 32 111 108 100")
    programs.run("lrnn-perplexity", "logits", "-m", programs.models / TEXT_MODEL, "-t", 1,
                 "--tokens", "ids.txt", "--out", "logits.npy")
    ours = session.eval(model.tokenize("The old"), n_logits=None)
    assert (ours == np.load(tmp_path / "logits.npy")).all()


def test_info(lrnn, model):
    assert re.fullmatch(r"\d+\.\d+\.\d+", lrnn.version()) and lrnn.ggml_version()
    info = model.info
    assert (info.family, info.eigenvalues, info.n_vocab) == ("gated_delta_product", "[-1,1]", 256)
    assert info.has_tokenizer and info.bos == -1 and not info.add_bos


def test_text(lrnn, model, root):
    text = "Grüße, 世界 🦉"
    tokens = model.tokenize(text)                      # this model works on bytes
    assert tokens.dtype == np.int32 and tokens.tolist() == list(text.encode())
    assert model.tokenize(text.encode()).tolist() == tokens.tolist()
    assert model.tokenize("").tolist() == []
    assert model.detokenize(tokens) == text
    assert model.detokenize([]) == ""
    assert model.token_bytes(0xc3) == b"\xc3"
    assert not model.is_special(65)
    assert model.detokenize(tokens[:-1]) == "Grüße, 世界 \ufffd"
    with lrnn.Decoder(model) as decoder:
        pieces = [decoder.push(token) for token in tokens]
        assert "".join(pieces) == text and decoder.end() == ""
        assert pieces[2:4] == ["", "ü"]                # not before it is complete

    with lrnn.Model(root / "models/parity-delta-neg.gguf") as symbols:
        assert symbols.info.bos == 0 and symbols.is_special(0) and not symbols.is_special(1)
        assert symbols.tokenize("0 1 1").tolist() == [0, 1, 2, 2]
        assert symbols.tokenize("0 1 1", add_bos=False).tolist() == [1, 2, 2]
        assert symbols.tokenize("<s> 1", add_bos=False, parse_special=True).tolist() == [0, 2]
        assert symbols.detokenize([0, 1, 2]) == "0 1"
        assert symbols.detokenize([1, 2], continues=True) == " 0 1"


def test_chat(lrnn, root, programs_in, tmp_path):
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    path = programs_in(tmp_path).text_model("olmo_hybrid", "chat.gguf", 256,
                                            root / "tests/data/chat/qwen3.5.jinja", *names)
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi <|im_end|>"}]
    text = ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n"
            "<|im_start|>assistant\n")
    with lrnn.Model(path) as model, lrnn.Chat(model, "chatml") as chat:
        expected = model.tokenize(text, parse_special=True).tolist()
        at = text.split("<|im_end|><|im_end|>")[0]     # the user's own name is no special token
        n_before = len(model.tokenize(at, parse_special=True))
        expected[n_before:n_before + 1] = b"<|im_end|>"
        tokens = chat.tokenize(messages)
        assert tokens.tolist() == expected
        assert chat.is_end(258) and not chat.is_end(65)
        longer = [*messages, {"role": "assistant", "content": "x", "tokens": [120]},
                  {"role": "user", "content": "y"}]
        assert chat.tokenize(longer)[:len(expected) + 1].tolist() == [*expected, 120]
        with pytest.raises(lrnn.Error, match="no chat format has the name none"):
            lrnn.Chat(model, "none")
        with pytest.raises(lrnn.Error, match="user"):
            chat.tokenize(longer[:3])
        model.close()
        assert chat.tokenize(messages).tolist() == expected


def test_fork_and_rewind(model, session):
    session.eval(model.tokenize(PROMPT))
    session.fork(0, 1)
    a, b, c = (list(text.encode()) for text in (" the", " a wa", "lls"))
    both = session.eval_batch({0: a, 1: a})
    assert (both[0] == both[1]).all()
    assert session.length(0) == session.length(1) == len(PROMPT) + 4
    assert session.rewindable(1) == 4                  # not past the fork

    session.rewind(4)
    first = session.eval(b)
    session.rewind(4, seq=1)
    assert (session.eval(b, seq=1) == first).all()
    session.rewind(len(b))
    other = session.eval(c)
    assert (session.eval(c, seq=1) != other).any()     # after b and c
    session.reset(1)
    assert session.length(1) == 0 and session.state_norm(1)[1] == -1
    norm, layer = session.state_norm(0)
    assert norm > 0 and 0 <= layer < 4


def test_save_and_load(lrnn, model, session, tmp_path):
    sampler = lrnn.Sampler(temperature=1.0, seed=7)
    logits = session.eval(model.tokenize(PROMPT))[0]
    generate(lrnn, session, sampler, logits, 5)
    session.save(tmp_path / "x.state", sampler=sampler)
    saved = session.logits()
    expected = generate(lrnn, session, sampler, saved, 20)

    other_sampler = lrnn.Sampler(temperature=1.0)
    with lrnn.Session(model, n_threads=1) as other:
        other.load(tmp_path / "x.state", sampler=other_sampler)
        assert other.length() == len(PROMPT) + 5
        assert (other.logits() == saved).all()
        assert generate(lrnn, other, other_sampler, other.logits(), 20) == expected
    with pytest.raises(lrnn.Error, match="missing.state: cannot be opened: No such file"):
        session.load(tmp_path / "missing.state")


def test_sampler(lrnn):
    logits = np.log(np.array([0.1, 0.2, 0.7], np.float32))
    token, log_prob = lrnn.Sampler().sample(logits)
    assert token == 2 and abs(log_prob - np.log(0.7)) < 1e-6
    sampler = lrnn.Sampler(temperature=1, seed=2**63 + 5)
    counts = np.bincount([sampler.sample(logits)[0] for _ in range(4000)], minlength=3)
    assert abs(counts/4000 - [0.1, 0.2, 0.7]).max() < 5*np.sqrt(0.25/4000)
    assert {lrnn.Sampler(temperature=1, top_k=1, seed=i).sample(logits)[0] for i in range(9)} == {2}
    penalty = lrnn.Sampler(repeat_penalty=10)
    penalty.accept(2)
    assert penalty.sample(logits)[0] == 1
    with pytest.raises(lrnn.Error, match="a logit is NaN"):
        lrnn.Sampler().sample([np.nan, 1])
    with pytest.raises(TypeError, match=r"\[2, 3\]; expected \[n_vocab\]"):
        lrnn.Sampler().sample(np.zeros((2, 3)))


def test_callbacks(lrnn, root):
    progress = []
    model = lrnn.Model(root / "models" / TEXT_MODEL, progress=lambda x: progress.append(x) or True)
    assert progress[-1] == 1 and progress == sorted(progress)
    model.close()
    with pytest.raises(lrnn.Error, match="stopped by the progress callback"):
        lrnn.Model(root / "models" / TEXT_MODEL, progress=lambda x: False)
    messages = []


    def log(level, text):
        messages.append(text)

    model = lrnn.Model(root / "models" / TEXT_MODEL, n_gpu_layers=1, log=log)
    alive = weakref.ref(log)
    del log
    gc.collect()
    assert alive() is not None                         # as long as the model
    model.close()
    gc.collect()
    assert alive() is None
    assert messages and all(isinstance(text, str) for text in messages)


# ---- Errors --------------------------------------------------------------------------------------

def test_errors_are_the_library_s(lrnn, model, session, root, tmp_path):
    with pytest.raises(lrnn.Error, match="missing.gguf: No such file or directory"):
        lrnn.Model(tmp_path / "missing.gguf")
    with pytest.raises(lrnn.Error, match="n_seqs is -1; expected"):
        lrnn.Session(model, n_seqs=-1)
    with pytest.raises(lrnn.Error, match="temperature is -1; expected 0 to"):
        lrnn.Sampler(temperature=-1)
    with pytest.raises(lrnn.Error, match="256"):       # the vocabulary ends at 255
        session.eval([1, 256])
    with pytest.raises(lrnn.Error, match="cannot rewind 3 tokens"):
        session.rewind(3)
    with pytest.raises(lrnn.Error, match="sequence 2"):
        session.length(2)
    for call in (session.reset, session.length, session.state_norm):
        with pytest.raises(lrnn.Error):
            call(2)
    with pytest.raises(lrnn.Error):
        session.fork(0, 2)
    with pytest.raises(lrnn.Error):
        session.eval([])
    with pytest.raises(lrnn.Error):
        session.eval([1], n_logits=2)
    with pytest.raises(lrnn.Error, match="row number 0"):
        session.logits()
    with pytest.raises(lrnn.Error, match="token 256"):
        model.token_bytes(256)
    for call in (model.is_special, lambda t: model.detokenize([t]), lrnn.Decoder(model).push):
        for token in (256, 1000000, -1):
            with pytest.raises(lrnn.InputError, match=f"token is {token}; expected 0 to 255"):
                call(token)
    with lrnn.Model(root / "tests/golden/mamba.gguf") as plain:
        with pytest.raises(lrnn.Error, match="tokenizer"):
            plain.tokenize("x")
        with pytest.raises(lrnn.Error, match="tokenizer"):
            plain.detokenize([1])


def test_arguments_that_c_would_cut(lrnn, model, session, tmp_path):
    session.eval([1, 2])
    with pytest.raises(lrnn.Error, match="seq is 4294967296; expected -2147483648 to 2147483647"):
        session.eval([1], seq=2**32)
    for call in (session.length, session.reset, session.state_norm,
                 lambda seq: session.fork(seq, 1), lambda seq: session.rewind(1, seq)):
        with pytest.raises(lrnn.Error, match="seq is 4294967296"):
            call(2**32)
    with pytest.raises(lrnn.Error, match="target is 4294967297"):
        session.fork(0, 2**32 + 1)
    with pytest.raises(lrnn.Error, match="a token is 4294967297"):
        session.eval(np.array([2**32 + 1]))
    with pytest.raises(lrnn.Error, match="n_tokens is"):
        session.rewind(2**64)
    with pytest.raises(lrnn.Error, match="n_seqs is 4294967297"):
        lrnn.Session(model, n_seqs=2**32 + 1)
    with pytest.raises(lrnn.Error, match="seed is -1; expected 0 to 18446744073709551615"):
        lrnn.Sampler(seed=-1)
    with pytest.raises(lrnn.Error, match="NUL"):
        session.save(f"{tmp_path}/x\0y")
    for tokens in ([0.5], [[1]], 1, ["1"], [True]):
        with pytest.raises(TypeError, match="expected one dimension of integers"):
            session.eval(tokens)
    for text in (3, None, [104, 105], 1.5):
        with pytest.raises(TypeError, match="text is .*; expected str or bytes"):
            model.tokenize(text)
    for make in (lrnn.Session, lrnn.Decoder, lrnn.Chat):
        for wrong in (None, "model.gguf", session):
            with pytest.raises(TypeError, match="model is .*; expected a Model"):
                make(wrong)
    with pytest.raises(TypeError):
        lrnn.Sampler(temperature="0.5")
    with pytest.raises(TypeError, match="session is .*; expected a Session"):
        lrnn.Generation(model)
    with pytest.raises(TypeError, match="unknown parameter 'n_sequences'; expected one of n_thr"):
        lrnn.Session(model, n_sequences=2)
    assert session.length() == 2 and not list(tmp_path.iterdir())


# ---- Grammars ------------------------------------------------------------------------------------

@pytest.fixture
def grammars(config):
    if not config["grammar"]:
        pytest.skip("configured with LRNN_GRAMMAR=OFF")


SCHEMA = {"type": "object", "required": ["n", "s"], "properties": {
    "n": {"type": "integer", "minimum": 0, "maximum": 99}, "s": {"enum": ["a", "\u00e9"]}}}


def is_object(text):
    return isinstance(json.loads(text), dict)


def fits_schema(text):
    value = json.loads(text)
    return list(value) == ["n", "s"] and 0 <= value["n"] <= 99 and value["s"] in ("a", "\u00e9")


@pytest.mark.parametrize("form, accepts", [
    ({"regex": "[a-f]{5}|\u00e9{3}"}, re.compile("[a-f]{5}|\u00e9{3}").fullmatch),
    ({"regex": b"ab{3}"}, re.compile("ab{3}").fullmatch),
    ({"gbnf": 'root ::= "see" (" " [xy])+ "."'}, re.compile("see( [xy])+[.]").fullmatch),
    ({"json_schema": SCHEMA}, fits_schema), ({"json_schema": json.dumps(SCHEMA)}, fits_schema),
    ({"json": True}, is_object)])
def test_grammar(lrnn, grammars, model, session, form, accepts):
    """Generated texts are accepted, and differ; a grammar serves several generations."""
    with lrnn.Grammar(model, **form) as grammar:
        texts = []
        for seed in range(6):
            session.reset()
            with lrnn.Generation(session, grammar=grammar, max_tokens=4000, seed=seed,
                                 temperature=1.2) as generation:
                texts.append("".join(generation.run("It is ")))
                assert generation.finish == "grammar", texts[-1][:200]
    assert all(map(accepts, texts)), texts
    assert len(set(texts)) > 1 or form == {"regex": b"ab{3}"}


@pytest.mark.parametrize("form", [
    {}, {"json": False}, {"regex": "a", "json": True}, {"regex": "a", "gbnf": 'root ::= "a"'},
    {"json_schema": {}, "json": True}, {"regex": 3}, {"json_schema": {1, 2}}])
def test_grammar_of_another_form(lrnn, grammars, model, form):
    with pytest.raises(TypeError):
        lrnn.Grammar(model, **form)
    with pytest.raises(TypeError, match="expected a Model"):
        lrnn.Grammar(None, regex="a")


@pytest.mark.parametrize("form, words", [
    ({"regex": "(a"}, "parenthesis"), ({"gbnf": "root ::= x"}, "not defined"),
    ({"json_schema": {"type": "strin"}}, "strin"), ({"json_schema": "{"}, "JSON"),
    ({"json_schema": 3}, "an object"), ({"json_schema": {"not": {}}}, "not supported"),
    ({"regex": "(a|b)" * 300000}, "at most")])
def test_bad_grammar(lrnn, grammars, model, form, words):
    with pytest.raises(lrnn.InputError, match=words):
        lrnn.Grammar(model, **form)


# ---- Lifetimes -----------------------------------------------------------------------------------

class Recorder:
    """Replaces the library of the module; records what is freed."""

    def __init__(self, library):
        self.library, self.freed = library, []

    def __getattr__(self, name):
        function = getattr(self.library, name)
        if not name.endswith("_free"):
            return function

        def free(pointer):
            self.freed.append(name)
            function(pointer)
        return free


ALL = ["lrnn_decoder_free", "lrnn_generation_free", "lrnn_model_free", "lrnn_sampler_free",
       "lrnn_session_free"]


def make_objects(lrnn, root):
    model = lrnn.Model(root / "models" / TEXT_MODEL)
    session = lrnn.Session(model, n_threads=1)
    objects = [model, session, lrnn.Decoder(model), lrnn.Sampler(), lrnn.Generation(session)]
    return dict(zip(("model", "session", "decoder", "sampler", "generation"), objects))


@pytest.mark.parametrize("how", ["close", "del", "cycle"])
def test_freed_once_in_any_order(lrnn, root, monkeypatch, how):
    for order in itertools.permutations(("model", "session", "decoder", "generation")):
        recorder = Recorder(lrnn._lib if not isinstance(lrnn._lib, Recorder)
                            else lrnn._lib.library)
        monkeypatch.setattr(lrnn, "_lib", recorder)
        objects = make_objects(lrnn, root)
        if how == "cycle":
            for value in objects.values():
                value.friends = objects
            del value
        for name in order:
            if how == "close":
                objects[name].close()
                objects[name].close()
            elif how == "del":
                del objects[name]
            if "session" in objects and how != "cycle" and order.index("session") > \
                    order.index(name):
                objects["session"].eval([65])          # its model is still there
        del objects
        gc.collect()
        assert sorted(recorder.freed) == ALL
        freed = recorder.freed.index
        assert freed("lrnn_model_free") > freed("lrnn_session_free")
        assert freed("lrnn_model_free") > freed("lrnn_decoder_free")
        assert freed("lrnn_session_free") > freed("lrnn_generation_free")


def test_closed(lrnn, root):
    objects = make_objects(lrnn, root)
    for name, value in objects.items():
        value.close()
        with pytest.raises(lrnn.Error, match=f"the {name} is closed"):
            value.__enter__()
    for call in (lambda: objects["session"].eval([1]), lambda: objects["session"].length(),
                 lambda: objects["session"].logits(), lambda: objects["model"].tokenize("x"),
                 lambda: lrnn.Session(objects["model"]), lambda: lrnn.Decoder(objects["model"]),
                 lambda: objects["decoder"].push(65), lambda: objects["sampler"].sample([1.0]),
                 lambda: objects["sampler"].accept(1), lambda: objects["generation"].prompt("a"),
                 lambda: objects["generation"].finish, lambda: objects["model"].token_bytes(1)):
        with pytest.raises(lrnn.Error, match="is closed"):
            call()


def test_logits_are_copies(model, session):
    first = session.eval([65])
    row = session.logits()
    kept = first.copy()
    session.eval([66])
    session.close()
    model.close()
    assert (first == kept).all() and (row == kept[0]).all()


def test_no_cleanup_at_exit(root, config, lrnn):
    """A script that frees nothing ends without a complaint."""
    script = ("import lrnn, sys; m = lrnn.Model(sys.argv[1]); s = lrnn.Session(m, n_threads=1)\n"
              "d = lrnn.Decoder(m); m.me = m; s.eval([65]); print(d.push(65))")
    environment = os.environ | {"LRNN_LIBRARY": config["liblrnn"], "PYTHONDONTWRITEBYTECODE": "1",
                                "PYTHONPATH": str(root / "examples/python")}
    done = subprocess.run([sys.executable, "-c", script, root / "models" / TEXT_MODEL],
                          env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "A\n")
    assert not re.search("Traceback|Sanitizer|ignored", done.stderr), done.stderr


def test_threads_share_a_session(lrnn, model):
    """Calls of several threads with one session wait for each other, and closing waits too."""
    rounds, problems = 40, []
    session = lrnn.Session(model, n_seqs=4, n_threads=1)
    alone = {}
    for seq in range(4):
        for i in range(rounds):
            alone[seq, i] = session.eval([seq + i], seq=seq)
        session.reset(seq)

    def work(seq):
        for i in range(rounds):
            if (session.eval([seq + i], seq=seq) != alone[seq, i]).any():
                problems.append((seq, i))
        try:
            while True:
                session.eval([1], seq=seq)
        except lrnn.Error as e:
            if str(e) != "the session is closed":
                problems.append(e)

    threads = [threading.Thread(target=work, args=[seq]) for seq in range(4)]
    for thread in threads:
        thread.start()
    while any(session.length(seq) < rounds for seq in range(4)):
        pass
    session.close()
    model.close()
    for thread in threads:
        thread.join()
    assert not problems


# ---- The document --------------------------------------------------------------------------------

def test_document(lrnn, root, tmp_path, monkeypatch, capsys):
    """The code of docs/python.md runs as written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(root / "models")
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs/python.md").read_text(), re.S)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    said = capsys.readouterr().out
    assert said.startswith(PROMPT) and len(said.split("\n")[0]) > len(PROMPT) + 40
    loss = float(re.search(r"(\S+) bits per token", said).group(1))
    assert 1 < loss < 4                                # letters of English; 8 is chance
    assert "sequence 0: cannot rewind 1000 tokens; expected 0 to" in said
    assert names["session"].length(0) == len("It was a dark and stormy night")
    for name in ("session", "generation", "model"):
        names[name].close()


# ---- compare_logits.py ---------------------------------------------------------------------------

@pytest.fixture
def compare(root, config, lrnn, build):
    """compare(verify, *options): runs the script, with the stand-ins for libraries of
    test_convert_verify.py."""
    def run(verify, *options):
        environment = os.environ | {"LRNN_LIBRARY": config["liblrnn"],
                                    "PATH": f"{build / 'bin'}:{os.environ['PATH']}"}
        return subprocess.run([verify.python, root / "examples/python/compare_logits.py", *options],
                              cwd=verify.lrnn.work, env=environment, capture_output=True, text=True)
    return run


@pytest.fixture
def stand_ins(programs_in, tmp_path, root, monkeypatch):
    monkeypatch.syspath_prepend(root / "convert")
    monkeypatch.syspath_prepend(root / "convert/tests")
    import tiny
    return test_convert_verify.Verify(programs_in(tmp_path), tiny)


def test_compare_logits(compare, stand_ins):
    stand_ins.checkpoint()
    tokens, logits = stand_ins.logits()
    changed = logits.copy()
    changed[17, 5] += 2
    changed[30, 7] -= 1
    np.save(stand_ins.fake / "logits.npy", changed)
    done = compare(stand_ins, "ckpt", "--save", "both.npz")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("mamba, eigenvalues [0,1], f32, 64 tokens; logits of transformers 1")
    assert len(lines) == 3
    for line in lines[1:]:
        assert re.match(r"largest difference, [a-z ]+: +2, logit of id 5 after 18 tokens: ", line)
        assert " of 64 times" in line
    both = np.load(stand_ins.lrnn.work / "both.npz")
    assert (both["tokens"] == tokens).all() and (both["library"] == changed).all()
    assert abs(both["lrnn"] - logits).max() < 1e-5


def test_compare_logits_fails(compare, stand_ins):
    done = compare(stand_ins, "missing")
    assert done.returncode == 3 and "lrnn-convert: missing" in done.stderr
    stand_ins.checkpoint()
    for arguments, message in ((["--length", "0"], "there are no tokens to compare"),
                               (["--text", "x"], "tokenizer")):
        done = compare(stand_ins, "ckpt", *arguments)
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith("compare_logits.py: ") and message in last
    stand_ins.lrnn.write("fake/torch/__init__.py", "raise ImportError")
    done = compare(stand_ins, "ckpt")
    assert done.stderr.endswith("compare_logits.py: pip install torch transformers\n")


# ---- The library ---------------------------------------------------------------------------------

def test_library_not_found(root, tmp_path, lrnn):
    (tmp_path / "broken.so").write_text("not a library")
    libc = ctypes.util.find_library("c")
    for path, message in ((tmp_path / "missing.so", "missing.so does not exist"),
                          (tmp_path / "broken.so", "broken.so"), (libc, "no function lrnn_")):
        environment = os.environ | {"LRNN_LIBRARY": str(path), "PYTHONDONTWRITEBYTECODE": "1",
                                    "PYTHONPATH": str(root / "examples/python")}
        done = subprocess.run([sys.executable, "-c", "import lrnn"], env=environment,
                              capture_output=True, text=True)
        assert done.returncode == 1
        assert message in done.stderr.splitlines()[-1]
        assert done.stderr.splitlines()[-1].startswith("lrnn.Error: ")
