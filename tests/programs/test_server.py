"""lrnn-server: every endpoint with good and bad input, next to lrnn-cli and lrnn-perplexity."""

import json
from pathlib import Path

import numpy as np
import pytest
from server_client import cached, serving

MODEL = "text-deltaproduct2-neg.gguf"
PROMPT = "The old man looked at"


@pytest.fixture(scope="module")
def server(programs):
    with serving(programs, programs.models / MODEL) as server:
        yield server


@pytest.fixture(scope="module")
def log_probs(programs):
    """The log-probabilities after every token of a text, computed by lrnn-perplexity and numpy."""
    def compute(text):
        ids = " ".join(str(b) for b in text.encode())
        programs.write("ids.txt", ids)
        programs.run("lrnn-perplexity", "logits", "-m", programs.models / MODEL, "--tokens",
                     "ids.txt", "--out", "logits.npy")
        logits = np.load(programs.work / "logits.npy").astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return compute


# ---- Information

def test_information(server):
    assert server.get("/health").json() == {"status": "ok"}
    models = server.get("/v1/models").json()
    assert models["object"] == "list" and models["data"][0]["id"] == "text-deltaproduct2-neg"
    props = server.get("/props").json()
    assert props["total_slots"] == 16 and props["state_bytes"] == 120320
    assert props["eigenvalues"] == "[-1,1]"
    assert server.slots_busy() == 0 and len(server.get("/slots").json()) == 16
    info = server.get("/tokenizer_info").json()  # the model has neither; lm-eval needs one
    assert info["bos_token"] == "\n" and info["eos_token"] is None
    page = server.get("/")
    assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
    assert b"http://" not in page.body and b"https://" not in page.body  # no external resources


def test_metrics(server):
    before = server.metric("tokens_predicted_total")
    server.complete(prompt=PROMPT, max_tokens=5)
    assert server.metric("tokens_predicted_total") == before + 5
    assert server.metric("requests_processing") == 0


def test_wrong_paths_and_methods(server):
    server.get("/nothing").error(404)
    server.get("/v1/completions").error(405)
    server.post("/health").error(405)
    server.get("/" + "a" * 5000).error(404)
    server.request("PUT", "/v1/models").error(405)


# ---- Text

@pytest.mark.parametrize("key", ["prompt", "content"])
def test_tokenize(server, key):
    text = "caf\u00e9 \U0001f600\n"
    tokens = server.post("/tokenize", {key: text, "add_special_tokens": False}).json()["tokens"]
    assert tokens == list(text.encode())
    back = server.post("/detokenize", {"tokens": tokens}).json()
    assert back == {"prompt": text, "content": text}


def test_bad_text_requests(server):
    assert server.post("/tokenize", {}).error(400)["param"] == "prompt"
    assert server.post("/tokenize", {"prompt": 5}).error(400)["param"] == "prompt"
    server.post("/tokenize", {"prompt": "a", "add_special": "yes"}).error(400)
    assert server.post("/detokenize", {"tokens": "a"}).error(400)["param"] == "tokens"
    for token in (-1, 256, 1.5, "1", None, 1e300):
        server.post("/detokenize", {"tokens": [token]}).error(400)


# ---- Completions

def test_greedy_text_is_that_of_the_cli(server, programs):
    reply = server.complete(prompt=PROMPT, max_tokens=40, temperature=0)
    out = programs.run("lrnn-cli", "-m", programs.models / MODEL, "-p", PROMPT, "-n", 40, "--temp",
                       0, "--quiet").stdout
    assert out.removeprefix(PROMPT).rstrip("\n") == reply["choices"][0]["text"].rstrip("\n")
    choice = reply["choices"][0]
    assert choice["index"] == 0 and choice["finish_reason"] == "length"
    assert choice["logprobs"] is None and reply["object"] == "text_completion"
    assert reply["usage"]["prompt_tokens"] == len(PROMPT)
    assert reply["usage"]["completion_tokens"] == 40


def test_prompt_forms(server):
    ids = list(PROMPT.encode())
    other = "Once upon"
    def texts(prompt, **more):
        reply = server.complete(prompt=prompt, max_tokens=8, temperature=0, **more)
        assert [c["index"] for c in reply["choices"]] == list(range(len(reply["choices"])))
        return [c["text"] for c in reply["choices"]]
    one = texts(PROMPT)
    assert texts(ids) == one and texts([PROMPT]) == one and texts([ids]) == one
    both = texts([PROMPT, other])
    assert both[0] == one[0] and both == texts([ids, list(other.encode())])
    assert texts([PROMPT, ids], n=2) == one * 4


def test_sampling_is_reproducible(server):
    def sample(**more):
        reply = server.complete(prompt=PROMPT, max_tokens=16, **more)
        return [c["text"] for c in reply["choices"]]
    assert sample(seed=1) == sample(seed=1) != sample(seed=2)
    assert sample(seed=3, n=3)[:2] == sample(seed=3, n=2)
    assert sample(seed=1, top_k=1) == sample(temperature=0)
    assert len(set(sample(n=4))) > 1  # without a seed, choices differ
    assert sample(seed=1, repeat_penalty=1.5) == sample(seed=1, repetition_penalty=1.5) != sample(
        seed=1)
    assert sample(seed=1, temperature=0.5, top_p=0.9, min_p=0.01, top_k=40, repeat_penalty=1.1)


def test_logit_bias(server):
    for bias in ({"65": 100}, [[65, 100]]):
        reply = server.complete(prompt=PROMPT, max_tokens=3, temperature=0, logit_bias=bias,
                                logprobs=1)
        choice = reply["choices"][0]
        assert choice["text"] == "AAA"
        # the log-probability is that of the model, without the bias
        assert choice["logprobs"]["content"][0]["logprob"] < -1


@pytest.mark.parametrize("more", [{}, {"logit_bias": {"101": 0.5, "32": -1}}])
def test_penalties(server, log_probs, more):
    """OpenAI's formula, for the tokens that were generated, not for those of the prompt."""
    for frequency, presence in ((0, 0), (1.5, 0), (0, 1.5), (0.25, 0.75), (-0.5, 0), (2, -2)):
        reply = server.complete(prompt=PROMPT, max_tokens=24, temperature=0, logprobs=1,
                                frequency_penalty=frequency, presence_penalty=presence, **more)
        tokens = [c["id"] for c in reply["choices"][0]["logprobs"]["content"]]
        scores = log_probs(PROMPT + bytes(tokens).decode())[len(PROMPT) - 1:]
        bias, count = np.zeros(256), np.zeros(256)
        for token, value in more.get("logit_bias", {}).items():
            bias[int(token)] = value
        for token, row in zip(tokens, scores):
            row = row + bias - count * frequency - (count > 0) * presence
            assert row[token] > row.max() - 1e-3
            count[token] += 1


def test_stop_strings(server):
    plain = server.complete(prompt=PROMPT, max_tokens=40, temperature=0)["choices"][0]["text"]
    stop = plain[5:8]
    reply = server.complete(prompt=PROMPT, max_tokens=40, temperature=0, stop=stop)
    choice = reply["choices"][0]
    assert choice["text"] == plain[:plain.index(stop)] and choice["finish_reason"] == "stop"
    same = server.complete(prompt=PROMPT, max_tokens=40, temperature=0, stop=["\x01zz", stop])
    assert same["choices"][0]["text"] == choice["text"]


def test_echo_and_log_probabilities(server, log_probs):
    """The request of lm-eval. The arrays have one entry more than the prompt."""
    expected = log_probs(PROMPT)
    reply = server.complete(prompt=[list(PROMPT.encode())], max_tokens=1, temperature=0, logprobs=1,
                            seed=1234, echo=True)
    choice = reply["choices"][0]
    lp = choice["logprobs"]
    n = len(PROMPT)
    assert choice["text"][:n] == PROMPT and len(choice["text"]) == n + 1
    assert all(len(lp[key]) == n + 1
               for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content"))
    assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    assert lp["text_offset"] == list(range(n + 1))
    ids = list(choice["text"].encode())
    for i in range(1, n + 1):
        row = expected[i - 1]
        assert abs(lp["token_logprobs"][i] - row[ids[i]]) < 1e-4
        top = lp["top_logprobs"][i]
        assert abs(max(top.values()) - row.max()) < 1e-4
        # lm-eval's test for greedy tokens is an exact comparison
        assert (lp["token_logprobs"][i] == max(top.values())) == (ids[i] == row.argmax())
        entry = lp["content"][i]
        assert entry["id"] == ids[i] and entry["logprob"] == lp["token_logprobs"][i]
        assert entry["top_logprobs"][0]["id"] == row.argmax()
        assert entry["bytes"] == [ids[i]]


@pytest.mark.parametrize("kind, options", [("F32", ()), ("F16", ("-b", 32)), ("Q8_0", ("-b", 32))])
def test_perplexity_is_that_of_lrnn_perplexity(programs, kind, options):
    """Of a window as lm-eval asks for it. In F32 with the default options of both programs."""
    path = programs.models / MODEL
    if kind != "Q8_0":
        programs.run("lrnn-quantize", path, f"{kind}.gguf", kind, "--allow-requantize")
        path = programs.work / f"{kind}.gguf"
    ids = list((Path(__file__).parents[1] / "data/lm-eval/rolling.jsonl").read_bytes()[:512])
    programs.write("ids.txt", " ".join(map(str, ids)))
    programs.run("lrnn-perplexity", "logits", "-m", path, "--tokens", "ids.txt", "--out",
                 "logits.npy", *options)
    logits = np.load(programs.work / "logits.npy").astype(np.float64)
    losses = np.log(np.exp(logits).sum(axis=1))[:-1] - logits[range(511), ids[1:]]
    with serving(programs, path) as server:
        reply = server.complete(prompt=[ids], echo=True, logprobs=1, max_tokens=1, temperature=0)
    scores = reply["choices"][0]["logprobs"]["token_logprobs"][1:-1]
    assert abs(np.exp(-np.mean(scores)) / np.exp(losses.mean()) - 1) < 1e-5


def test_echo_without_generation(server):
    reply = server.complete(prompt=PROMPT, max_tokens=0, echo=True, logprobs=0)
    choice = reply["choices"][0]
    assert choice["text"] == PROMPT and len(choice["logprobs"]["tokens"]) == len(PROMPT)
    assert all(len(top) == 1 for top in choice["logprobs"]["top_logprobs"][1:])
    assert server.complete(prompt=PROMPT, max_tokens=0, echo=True)["choices"][0]["text"] == PROMPT


def test_many_alternatives(server, log_probs):
    reply = server.complete(prompt=PROMPT, max_tokens=1, temperature=0, logprobs=20)
    top = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    row = log_probs(PROMPT)[-1]
    assert [t["id"] for t in top] == list(np.argsort(-row, kind="stable")[:20])
    assert np.allclose([t["logprob"] for t in top], np.sort(row)[::-1][:20], atol=1e-4)
    # bytes that are not a character have a name of their own
    names = [t["token"] for t in top]
    assert len(set(names)) == 20


def test_text_that_is_not_utf_8(server):
    reply = server.complete(prompt=[195], max_tokens=0, echo=True, logprobs=1)
    choice = reply["choices"][0]
    assert choice["logprobs"]["tokens"] == ["bytes:\\xc3"] and choice["text"] == "\ufffd"


def test_stream_is_the_reply_in_pieces(server):
    fields = {"prompt": PROMPT, "max_tokens": 30, "temperature": 0, "n": 2, "logprobs": 2,
              "stop": ["\x01"]}
    for more in ({}, {"echo": True}):
        whole = server.complete(**fields, **more)
        reply = server.post("/v1/completions", fields | more | {
            "stream": True, "stream_options": {"include_usage": True}})
        assert reply.status == 200
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        events = reply.events()
        assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 60
        for i, expected in enumerate(whole["choices"]):
            pieces = [e["choices"][0] for e in events[:-1] if e["choices"][0]["index"] == i]
            assert "".join(p["text"] for p in pieces) == expected["text"]
            assert [p["finish_reason"] for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
            for key, values in expected["logprobs"].items():
                assert sum((p["logprobs"][key] for p in pieces), []) == values


def test_unknown_fields_are_accepted(server):
    server.complete(prompt=PROMPT, max_tokens=1, model="anything", user="x", best_of=None,
                    presence_penalty=0, do_sample=False, nested={"a": [1, {"b": None}]})


BAD = [
    ("prompt", {}), ("prompt", {"prompt": None}), ("prompt", {"prompt": 5}),
    ("prompt", {"prompt": [256]}), ("prompt", {"prompt": [-1]}), ("prompt", {"prompt": [1.5]}),
    ("prompt", {"prompt": [1, "a"]}), ("prompt", {"prompt": ["a", 1]}),
    ("prompt", {"prompt": ["a", [1, 999]]}), ("prompt", {"prompt": {"a": 1}}),
    ("prompt", {"prompt": ""}), ("prompt", {"prompt": []}), ("prompt", {"prompt": ["a"] * 1025}),
    ("n", {"n": 0}), ("n", {"n": 1e9}), ("n", {"n": "2"}), ("n", {"prompt": ["a"] * 600, "n": 2}),
    ("max_tokens", {"max_tokens": -1}), ("max_tokens", {"max_tokens": 1.5}),
    ("max_tokens", {"max_tokens": 100000}), ("max_tokens", {"max_tokens": "many"}),
    ("temperature", {"temperature": -0.1}), ("temperature", {"temperature": 1e9}),
    ("temperature", {"temperature": "hot"}), ("top_p", {"top_p": 1.1}), ("min_p", {"min_p": -1}),
    ("top_k", {"top_k": 1.5}), ("repeat_penalty", {"repeat_penalty": 0}),
    ("repetition_penalty", {"repetition_penalty": "a"}),
    ("frequency_penalty", {"frequency_penalty": 2.5}),
    ("presence_penalty", {"presence_penalty": "much"}),
    ("logprobs", {"logprobs": 21}), ("logprobs", {"logprobs": -1}), ("echo", {"echo": 1}),
    ("stream", {"stream": "yes"}), ("stop", {"stop": 5}), ("stop", {"stop": [""]}),
    ("stop", {"stop": ["a\0b"]}), ("stop", {"stop": ["a"] * 17}), ("seed", {"seed": 1e99}),
    ("logit_bias", {"logit_bias": {"256": 1}}), ("logit_bias", {"logit_bias": {"a": 1}}),
    ("logit_bias", {"logit_bias": {"0x1": 1}}), ("logit_bias", {"logit_bias": {"": 1}}),
    ("logit_bias", {"logit_bias": {"1": "a"}}), ("logit_bias", {"logit_bias": [[1]]}),
    ("logit_bias", {"logit_bias": 5}), ("state", {"state": "a"}), ("state", {"state": "../a"}),
]


@pytest.mark.parametrize("param, fields", BAD, ids=lambda x: x if isinstance(x, str) else None)
def test_bad_fields(server, param, fields):
    body = fields if param == "prompt" else {"prompt": PROMPT} | fields
    assert server.post("/v1/completions", body).error(400)["param"] == param


@pytest.mark.parametrize("body", [
    b"", b"[]", b"{", b"\xff\xfe", b'{"prompt": "\xff"}', b"[" * 100000,
    b'{"prompt":' + b"[" * 100000 + b"]" * 100000 + b"}", b"null", b"\0" * 1000], ids=str)
def test_bodies_that_are_not_requests(server, body):
    server.post("/v1/completions", body).error(400)
    server.post("/tokenize", body).error(400)
    assert server.get("/health").status == 200


# ---- Stored states

def test_cached_tokens_are_those_not_computed(server):
    """The counter of computed tokens and cached_tokens add up to the prompts."""
    prefix = "It was the best of times, it was the worst of times, it was the age of "
    def run(prompt):
        before = server.metric("prompt_tokens_total")
        reply = server.complete(prompt=prompt, max_tokens=24, temperature=0)
        assert server.metric("prompt_tokens_total") - before + cached(reply) == len(prompt)
        return cached(reply), reply["choices"][0]["text"]
    assert run(prefix)[0] == 0
    n, text = run(prefix)
    assert n == len(prefix) - 1  # the last token is computed for its logits
    assert run(prefix + "wisdom")[0] == len(prefix) - 1
    # the end of the request: all tokens but the last, which was not fed
    assert run(prefix + text + " and so on")[0] == len(prefix) + 23
    assert run(prefix[:40])[0] == 0  # shorter than any stored state


# ---- Other models

@pytest.fixture(scope="module")
def forgetful(programs):
    """A server that stores no states."""
    with serving(programs, programs.models / MODEL, "--state-memory", 0) as server:
        yield server


def test_scored_prompts_share_their_beginning(programs, forgetful):
    """The second prompt shows where prompts part; the third continues from there, bit for bit."""
    context = "Question: which of these animals can fly? Answer: the "
    with serving(programs, programs.models / MODEL) as server:
        def score(end, n_top, **more):
            request = {"prompt": context + end, "logprobs": n_top, "echo": True, "max_tokens": 1,
                       "temperature": 0} | more
            reply, plain = server.complete(**request), forgetful.complete(**request)
            assert reply["choices"] == plain["choices"] and cached(plain) == 0
            return cached(reply)

        assert [score(end, 1) for end in ("dog", "horse", "eagle", "bee")] == [
            0, 0, len(context), len(context)]
        assert score("bee", 0) == len(context)  # fewer alternatives than are stored
        assert score("bee", 5) == 0  # more; they are stored now
        assert score("cat", 5) == score("ox", 2, max_tokens=20) == len(context)
        assert score("ox", 3, max_tokens=0, seed=1) >= len(context)
        # a state with scores serves a prompt without, but not the other way round
        assert cached(server.complete(prompt=context + "fly", max_tokens=1)) == len(context)
        server.complete(prompt="Without scores, " + context, max_tokens=1)
        request = {"prompt": "Without scores, " + context + "fly", "max_tokens": 1}
        assert cached(server.complete(**request)) > 0
        assert cached(server.complete(**request, echo=True, logprobs=0)) == 0


def test_prompts_of_one_request_share_their_beginning(server, forgetful):
    context = "All of these begin with the same words, more than fit into one call, and go on " * 2
    request = {"prompt": [context + end for end in ("here", "there", "elsewhere", "nowhere")],
               "logprobs": 3, "echo": True, "max_tokens": 1, "temperature": 0}
    reply = server.complete(**request)
    assert reply["choices"] == forgetful.complete(**request)["choices"]
    assert cached(reply) == 2 * len(context)


def test_prompts_that_part_share_their_beginning(server, forgetful):
    """Also if none of them ends there."""
    context = "Once upon a time, in a land of which nobody had heard, "
    for end, expected in (("a king", 0), ("two sisters", 0), ("the sun", len(context))):
        request = {"prompt": context + end, "max_tokens": 5, "seed": 1, "logprobs": 1}
        reply = server.complete(**request)
        assert cached(reply) == expected
        assert reply["choices"] == forgetful.complete(**request)["choices"]


def test_model_without_tokenizer(lrnn):
    with serving(lrnn, lrnn.golden / "gla.gguf") as server:
        reply = server.complete(prompt=[1, 2, 3], max_tokens=3, temperature=0, logprobs=1)
        assert len(reply["choices"][0]["logprobs"]["token_logprobs"]) == 3
        assert reply["choices"][0]["text"] == ""
        echo = server.complete(prompt=[1, 2, 3], max_tokens=3, temperature=0, logprobs=1, echo=True)
        assert len(echo["choices"][0]["logprobs"]["token_logprobs"]) == 6
        assert echo["choices"][0]["text"] == ""
        assert server.post("/v1/completions", {"prompt": "a"}).error(400)["param"] == "prompt"
        server.post("/tokenize", {"prompt": "a"}).error(400)
        server.get("/tokenizer_info").error(400)


def test_attention_cache_is_a_limit(lrnn):
    model = lrnn.text_model("delta_net_hybrid", "hybrid.gguf")
    with serving(lrnn, model, "-c", 64) as server:
        server.post("/v1/completions", {"prompt": "a" * 64}).error(400)
        reply = server.complete(prompt="a" * 60, max_tokens=50)
        assert reply["usage"]["completion_tokens"] == 4
        assert reply["choices"][0]["finish_reason"] == "length"


def test_end_token(lrnn):
    """eos ends a text and is not part of it, but has a score."""
    model = lrnn.text_model("gla", "gla.gguf", 10)
    with serving(lrnn, model) as server:
        fields = {"prompt": "ab", "max_tokens": 4, "logit_bias": {"10": 100}, "logprobs": 1}
        choice = server.complete(**fields)["choices"][0]
        assert choice["text"] == "" and choice["finish_reason"] == "stop"
        assert [e["id"] for e in choice["logprobs"]["content"]] == [10]
        assert len(server.complete(**fields, ignore_eos=True)["choices"][0]["text"]) == 4
        assert server.complete(prompt="", max_tokens=1)["usage"]["prompt_tokens"] == 1


# ---- Access

def test_api_key(lrnn):
    with serving(lrnn, lrnn.models / MODEL, "--api-key", "secret") as server:
        assert server.get("/health").status == 200
        for headers in ({}, {"Authorization": "secret"}, {"Authorization": "Bearer secre"},
                        {"Authorization": "Bearer secrets"}, {"Authorization": "Bearer "}):
            error = server.get("/v1/models", headers=headers).error(401)
            assert error["type"] == "authentication_error"
        assert server.get("/v1/models", headers={"Authorization": "Bearer secret"}).status == 200


def test_command_line(lrnn):
    lrnn.fail(lrnn.Code.USAGE, "lrnn-server", stderr="--model")
    lrnn.fail(lrnn.Code.MODEL, "lrnn-server", "-m", "missing.gguf", stderr="missing.gguf")
    lrnn.fail(lrnn.Code.USAGE, "lrnn-server", "-m", "a", "--port", 65536, stderr="--port")
    model = lrnn.models / MODEL
    lrnn.fail(lrnn.Code.SYSTEM, "lrnn-server", "-m", model, "--host", "203.0.113.1", "--port", 0,
              stderr="cannot listen on 203.0.113.1")
    with serving(lrnn, model) as server:
        lrnn.fail(lrnn.Code.SYSTEM, "lrnn-server", "-m", model, "--port", server.port,
                  stderr=f"cannot listen on 127.0.0.1 port {server.port}")
    with serving(lrnn, model, "--host", "0.0.0.0") as server:
        assert "warning" in server.log.read_text()
        assert json.loads(server.get("/health").body)["status"] == "ok"
