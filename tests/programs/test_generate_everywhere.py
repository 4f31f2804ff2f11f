"""lrnn-cli, lrnn-server and lrnn.py generate in one way: the same prompt and options give the same
text, tokens and finish reason, and a state saved by one is continued by the others."""

import json
import re
import shutil
import struct

import numpy as np
import pytest
from server_client import serving
from test_llama_cpp_files import write

EOS, SPECIAL = 256, ["<|end|>", "<|name|>"]
OPTIONS = {"max_tokens": 40, "temperature": 0.9, "seed": 7, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
# Up to 32 tokens are computed one by one: the server, which cuts prompts elsewhere, gives the bits
# of the others.
REPEATS = "one two, one two, one two, one "
LONG = "for (int i = 0; i < 10; ++i) { sum += table[i]; }\n" * 4
FINISHES = {"ended by -n": "length", "ended by the model": "eos", "ended by a stop string": "stop"}


class Cli:
    def __init__(self, lrnn, model):
        self.lrnn, self.model = lrnn, model

    def generate(self, prompt, *, special=False, stop=(), state=None, draft=0, mtp=0, **options):
        """(text, tokens, finish reason)"""
        names = {"max_tokens": "-n", "temperature": "--temp", "seed": "-s"}
        args = ["-t", "1", "--prompt=" + prompt, "--draft-lookup", draft, "--draft-mtp", mtp]
        for name, value in options.items():
            args += [names.get(name, "--" + name.replace("_", "-")), value]
        args += [a for text in stop for a in ("--stop", text)]
        args += ["--special"] if special else []
        args += ["--state-load", state] if state else []
        text = self.lrnn.run("lrnn-cli", "-m", self.model, *args).stdout.removesuffix("\n")
        done = self.lrnn.run("lrnn-cli", "-m", self.model, *args, "--jsonl")
        tokens = [json.loads(line)["id"] for line in done.stdout.splitlines()]
        return text, tokens, FINISHES[re.search(r"generated[^,]*(?:, [\d.]+ per call\))?, ([^;]*)",
                                                done.stderr).group(1).strip()]

    def refuse(self, prompt):
        return self.lrnn.fail(self.lrnn.Code.USAGE, "lrnn-cli", "-m", self.model, "-n", 1,
                              "--prompt=" + prompt)

    def save(self, prompt, path, mtp=0):
        self.lrnn.run("lrnn-cli", "-m", self.model, "-p", prompt, "-n", 0, "--state-save", path,
                      "--draft-mtp", mtp)


class Server:
    """A server for each number of draft tokens."""

    def __init__(self, lrnn, model):
        self.lrnn, self.model = lrnn, model

    def generate(self, prompt, *, state=None, draft=0, mtp=0, stop=(), **options):
        with serving(self.lrnn, self.model, "--state-dir", ".", "--draft-lookup", draft,
                     "--draft-mtp", mtp) as server:
            fields = {"prompt": prompt, "logprobs": 0, **options}
            fields |= {"state": state.removesuffix(".state")} if state else {}
            fields |= {"stop": list(stop)} if stop else {}
            choice, = server.complete(**fields)["choices"]
            tokens = [t["id"] for t in choice["logprobs"]["content"]]
            eos = choice["finish_reason"] == "stop" and tokens[-1] == EOS
            return choice["text"], tokens, "eos" if eos else choice["finish_reason"]

    def refuse(self, prompt):
        with serving(self.lrnn, self.model) as server:
            return server.post("/v1/completions", {"prompt": prompt}).error(400)["message"]

    def save(self, prompt, path, mtp=0):
        with serving(self.lrnn, self.model, "--state-dir", ".", "--draft-mtp", mtp) as server:
            assert server.post(f"/states/{path.removesuffix('.state')}",
                               {"prompt": prompt}).status == 200


class Python:
    def __init__(self, lrnn, model, module):
        self.lrnn, self.model, self.module = lrnn, model, module

    def session(self, draft=0, mtp=0):
        n = draft + mtp
        return self.module.Session(self.module.Model(self.model), n_threads=1,
                                   n_rewind=n + 1 if n else 0, draft_block=mtp > 0)

    def generate(self, prompt, *, special=False, state=None, draft=0, mtp=0, **options):
        with self.session(draft, mtp) as session:
            if state:
                session.load(self.lrnn.work / state)
            generation = self.module.Generation(session, n_draft=draft, n_draft_mtp=mtp, **options)
            generation.prompt(prompt, parse_special=special)
            text, tokens = "", []
            while generation.finish is None:
                new = generation.step()
                text += new.text
                tokens += new.tokens
            return text, tokens, generation.finish

    def refuse(self, prompt):
        with pytest.raises(self.module.InputError) as error:
            self.generate(prompt)
        return str(error.value)

    def save(self, prompt, path, mtp=0):
        with self.session(mtp=mtp) as session:
            session.eval(session.model.tokenize(prompt))
            session.save(self.lrnn.work / path)


@pytest.fixture(scope="module")
def module(root, config):
    """lrnn.py."""
    if not config["shared"] or config["sanitize"]:
        pytest.skip("lrnn.py needs a shared library without sanitizers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LRNN_LIBRARY", config["liblrnn"])
        patch.syspath_prepend(root / "examples/python")
        import lrnn
    return lrnn


@pytest.fixture(scope="module")
def make(programs_in, tmp_path_factory, module, root):
    """make(model) returns the three programs, in a folder of their own."""
    lrnn = programs_in(tmp_path_factory.mktemp("everywhere"))

    def make(model):
        path = lrnn.work / f"{model}.gguf"
        if model.startswith("text"):
            if not path.exists():
                lrnn.run("lrnn-quantize", root / "models/text-deltaproduct2-neg.gguf", path,
                         model.split("-")[1], "--allow-requantize")
        elif model.startswith("draft"):
            if not path.exists():
                draft_model(lrnn, path, *model.split("-")[1:])
        elif model == "special":
            lrnn.text_model("gla", path.name, EOS, root / "tests/data/chat/chatml.jinja", *SPECIAL)
        else:
            lrnn.text_model("gla", path.name)
        return Cli(lrnn, path), Server(lrnn, path), Python(lrnn, path, module)
    return make


def draft_model(lrnn, path, kind, share="1.5"):
    """Writes a Qwen3.5 whose draft block guesses the token after x from x alone. The model does so,
    too, but for what its layers add: `share`, 0 for nothing."""
    def change(name, data):
        if name.endswith(("attn_output.weight", "ssm_out.weight", "ffn_down.weight")):
            return data * np.float32(0 if name.startswith("blk.2.") else share)
        if name.endswith("eh_proj.weight"):
            return np.eye(*data.shape, dtype=np.float32)
        return data

    write(lrnn.work / "plain.gguf", None, False, change)
    lrnn.tool("make-text-model", lrnn.work / "plain.gguf", lrnn.work / "text.gguf")
    lrnn.run("lrnn-quantize", "text.gguf", path, kind)


def same(programs, prompt, *, first=0, **options):
    """What all programs generate, beginning with result `first`: text, tokens, finish reason."""
    results = [p.generate(prompt, **OPTIONS | options)[first:] for p in programs]
    assert results[0] == results[1] == results[2]
    return results[0]


@pytest.mark.parametrize("options", [
    {}, {"seed": 8}, {"temperature": 0}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.2},
    {"repeat_penalty": 1.5}, {"repeat_penalty": 1.5, "repeat_last": 3}], ids=str)
def test_sampling(make, options):
    text, tokens, finish = same(make("text-Q8_0"), "The old man", **options)
    assert len(tokens) == 40 and finish == "length" and text.encode() == bytes(tokens)


def test_top_p_0_keeps_the_most_likely_token(make):
    programs = make("text-Q8_0")
    greedy = same(programs, "The old man", temperature=0)
    assert same(programs, "The old man", top_p=0.0, temperature=5) == greedy
    assert same(programs, "The old man", temperature=5) != greedy


def test_repeat_last_0_is_no_penalty(make):
    programs = make("text-Q8_0")
    assert same(programs, "A", repeat_penalty=3, repeat_last=0) == same(programs, "A")


def test_empty_prompt(make):
    """It begins with eos if there is no bos, and is refused if there is neither."""
    _, tokens, _ = same(make("special"), "", temperature=0)
    assert tokens
    for program in make("plain"):
        assert "the prompt is empty, and the model has neither bos nor eos" in program.refuse("")


def test_names_of_special_tokens(make):
    programs = make("special")
    plain = same(programs, "a<|name|>b", temperature=0)
    assert same(programs, "a<|name|>b", temperature=0, special=True) != plain
    cli, server, python = programs
    with serving(server.lrnn, server.model) as s:
        def count(**fields):
            return s.complete(prompt="a<|name|>b", max_tokens=0, **fields)["usage"]["prompt_tokens"]
        assert (count(), count(special=True)) == (10, 3)


def test_eos(make):
    """A model ends its text with a token that has no text. Random bytes are no text to compare."""
    programs = make("special")
    options = OPTIONS | {"max_tokens": 400}
    seed = next(seed for seed in range(1, 50)
                if programs[2].generate("ab", **options | {"seed": seed})[2] == "eos")
    tokens, finish = same(programs, "ab", first=1, seed=seed, max_tokens=400)
    assert tokens.index(EOS) == len(tokens) - 1 and finish == "eos"


@pytest.mark.parametrize("draft", [0, 8])
def test_stop_strings_across_tokens(make, draft):
    """Every token is a byte, so a stop string of several bytes always crosses borders."""
    programs = make("text-Q8_0")
    whole, *_ = same(programs, REPEATS, temperature=0, draft=draft)
    stop = whole[20:25]
    text, tokens, finish = same(programs, REPEATS, temperature=0, draft=draft,
                                stop=["never", whole[20:24] + "\x7f", stop])
    assert text == whole[:whole.index(stop)] and finish == "stop"
    assert bytes(tokens).decode() == text + stop


@pytest.mark.parametrize("model", ["text-Q8_0", "text-Q4_0"])
@pytest.mark.parametrize("temperature", [0, 0.9])
def test_drafts_change_nothing(make, model, temperature):
    options = OPTIONS | {"temperature": temperature, "max_tokens": 90}
    for program in make(model):
        results = [program.generate(LONG, **options, draft=draft) for draft in (0, 5, 31)]
        assert results[0] == results[1] == results[2]
    assert len({str(same(make(model), REPEATS, temperature=temperature, draft=draft))
                for draft in (0, 5)}) == 1


@pytest.mark.parametrize("model", ["text-Q8_0", "text-Q4_0"])
def test_drafts_of_the_server_change_no_digit(make, model):
    """Neither those of scores, nor with penalties and several choices side by side."""
    _, server, _ = make(model)
    fields = {"prompt": [LONG, REPEATS, "a b a b"], "n": 2, "max_tokens": 80, "logprobs": 3,
              "frequency_penalty": 0.1, "temperature": 0.4, "seed": 3}
    replies, calls = [], []
    for draft in (0, 5, 31):
        with serving(server.lrnn, server.model, "--draft-lookup", draft) as s:
            replies.append(s.complete(**fields)["choices"])
            calls.append(s.metric("eval_calls_total"))
            # the state at the end of a text is that of its tokens
            again = s.complete(prompt=LONG + replies[-1][0]["text"], max_tokens=9, logprobs=1,
                               temperature=0)
            replies[-1].append(again["choices"][0]["logprobs"])
    assert replies[0] == replies[1] == replies[2]
    assert calls[2] <= calls[1] < calls[0]


@pytest.mark.parametrize("model", ["draft-Q8_0", "draft-Q4_0"])
@pytest.mark.parametrize("temperature", [0, 0.5])
def test_drafts_of_the_model_change_nothing(make, model, temperature):
    """Random bytes are no text to compare."""
    options = {"temperature": temperature, "max_tokens": 60}
    plain = same(make(model), REPEATS, first=1, **options)
    for mtp in (1, 3, 8):
        assert same(make(model), REPEATS, first=1, mtp=mtp, **options) == plain


@pytest.mark.parametrize("share", ["0", "1.5"])
def test_good_drafts_save_calls(make, share):
    cli, server, _ = make(f"draft-Q8_0-{share}")
    rates = []
    for mtp in (1, 3, 8):
        done = cli.lrnn.run("lrnn-cli", "-m", cli.model, "-p", "ab", "--greedy", "-n", 90,
                            "--draft-mtp", mtp)
        rates.append(float(re.search(r"([\d.]+) per call", done.stderr).group(1)))
    if share == "0":
        assert rates[0] > 1.9 and rates[1] > 3.5 and rates[2] > 7
        with serving(server.lrnn, server.model, "--draft-mtp", 3) as s:
            s.complete(prompt=["ab", "cde"], max_tokens=60, temperature=0)
            assert s.metric("eval_calls_total") < 22
    else:                                  # some are accepted, and some are not
        assert 1.1 < rates[0] < 1.9 and rates[0] < rates[1] < 3.5


@pytest.mark.parametrize("model", ["draft-Q8_0", "draft-Q4_0"])
def test_drafts_of_the_model_in_company(make, model):
    """No digit of a score changes, side by side and after stored states."""
    _, server, _ = make(model)
    fields = {"prompt": [LONG, REPEATS, "a b a b"], "n": 2, "logprobs": 3, "max_tokens": 50,
              "temperature": 0.5, "seed": 3}
    replies = []
    for mtp in (0, 1, 3, 8):
        with serving(server.lrnn, server.model, "--draft-mtp", mtp) as s:
            replies.append([choice["logprobs"] for choice in s.complete(**fields)["choices"]])
            replies[-1] += [s.complete(**fields | {"prompt": LONG + "and", "n": 1})["choices"][0][
                "logprobs"]]
    assert replies[0] == replies[1] == replies[2] == replies[3]


def test_states_with_and_without_the_draft_block(make):
    """A program with drafts continues a state without them and the other way round."""
    programs = make("draft-Q8_0")
    expected = same(programs, REPEATS + "!", first=1)
    for i, program in enumerate(programs):
        for saved in (0, 3):
            name = f"draft{i}{saved}.state"
            program.save(REPEATS, name, mtp=saved)
            for mtp in (0, 3):
                assert same(programs, "!", first=1, state=name, mtp=mtp) == expected


def test_both_drafts_are_refused(make):
    cli, server, _ = make("draft-Q8_0")
    for program in ("lrnn-cli", "lrnn-server"):
        cli.lrnn.fail(cli.lrnn.Code.USAGE, program, "-m", cli.model, "--draft-lookup", 2,
                      "--draft-mtp", 2, stderr="give only one")
    cli, *_ = make("plain")
    cli.lrnn.fail(cli.lrnn.Code.USAGE, "lrnn-cli", "-m", cli.model, "-p", "a", "--draft-mtp", 2,
                  stderr="the model has no draft block")


@pytest.mark.parametrize("prompt", ["", " and then"])
@pytest.mark.parametrize("i", range(3), ids=["cli", "server", "python"])
def test_a_state_saved_by_one_is_continued_by_the_others(make, i, prompt):
    programs = make("text-Q8_0")
    name = f"s{i}.state"
    programs[i].save("The old man looked at", name)
    assert same(programs, prompt, state=name) == same(programs, "The old man looked at" + prompt)


def test_named_states_of_old_servers_still_load(make):
    programs = make("text-Q8_0")
    programs[1].save("The old man looked at", "new.state")
    data = (programs[1].lrnn.work / "new.state").read_bytes()
    has, length, n_memory = struct.unpack_from("<12xH10xqq", data)
    memory, n_tokens = data[40:40 + n_memory], len("The old man looked at")
    tokens = data[40 + n_memory + 8:-8]
    assert has == 4 and length == n_tokens - 1 and tokens[::4] == b"The old man looked at"
    old = b"lrnn-srv" + struct.pack("<II8sqq", 1, 0, data[16:24], n_tokens, n_memory)
    old += tokens + memory
    total = 0xcbf29ce484222325  # FNV-1a
    for byte in old:
        total = (total ^ byte) * 0x100000001b3 & (1 << 64) - 1
    programs[1].lrnn.write("old.state", old + struct.pack("<Q", total))
    assert same(programs, "!", state="old.state") == same(programs, "!", state="new.state")
    assert same(programs, "", state="old.state") == same(programs, "The old man looked at")


def test_a_copied_state_is_a_named_state(make):
    """The server lists it and forks it."""
    cli, server, python = make("text-Q8_0")
    cli.save("The old man", "c.state")
    (server.lrnn.work / "folder").mkdir()
    shutil.copy(server.lrnn.work / "c.state", server.lrnn.work / "folder/c.state")
    with serving(server.lrnn, server.model, "--state-dir", "folder") as s:
        listed, = s.get("/states").json()["states"]
        assert listed["n_tokens"] == 11 and listed["is_usable"]
        s.post("/states/c/fork", {"name": "d"})
        a, b = (s.complete(state=n, prompt="x", temperature=0)["choices"][0]["text"] for n in "cd")
        assert a == b
        assert "no tokens" in s.post("/states/c/load").error(400)["message"]
        saved = s.post("/states/e", {"state": "c", "prompt": "x"})
        assert "no tokens" in saved.error(400)["message"]
        s.post("/v1/completions", {"state": "c", "prompt": "x", "echo": True,
                                   "logprobs": 1}).error(400)
