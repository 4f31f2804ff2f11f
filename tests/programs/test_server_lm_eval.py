"""A recorded exchange of lm-eval 0.4.13's local-completions with lrnn-server, replayed."""

import json
from pathlib import Path

import pytest
from server_client import serving

EXCHANGE = Path(__file__).resolve().parents[1] / "data/lm-eval/exchange.jsonl"
ROWS = [json.loads(line) for line in EXCHANGE.read_text().splitlines()]


@pytest.fixture(scope="module")
def server(programs_in, tmp_path_factory):
    programs = programs_in(tmp_path_factory.mktemp("lm-eval"))
    with serving(programs, programs.models / "text-deltaproduct2-neg.gguf") as server:
        yield server


def scores(reply, n_context):
    """What lm-eval computes from a reply: the sum of the continuation, and whether it is greedy."""
    lp = reply["choices"][0]["logprobs"]
    tokens, tops = lp["token_logprobs"][n_context:-1], lp["top_logprobs"][n_context:-1]
    return sum(tokens), all(t == max(top.values()) for t, top in zip(tokens, tops))


@pytest.mark.parametrize("row", ROWS, ids=[f"{i}{r['path']}" for i, r in enumerate(ROWS)])
def test_replay(server, row):
    reply = server.request(row["method"], row["path"], row["request"])
    assert reply.status == row["status"]
    got, expected = reply.json(), row["response"]
    assert set(expected) <= set(got)
    if "choices" not in expected:
        assert {key: got[key] for key in expected} == expected
    elif row["request"].get("echo"):
        n = len(row["request"]["prompt"][0])
        assert len(got["choices"][0]["logprobs"]["token_logprobs"]) == n + 1
        for n_context in (1, n // 2, n - 5):
            (a, greedy_a), (b, greedy_b) = scores(got, n_context), scores(expected, n_context)
            assert abs(a - b) <= 1e-3 * abs(b) and greedy_a == greedy_b  # CPUs round differently
    else:
        assert got["choices"][0]["text"] == expected["choices"][0]["text"]
        assert got["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"]


def test_the_exchange_has_every_kind_of_request():
    assert {row["path"] for row in ROWS} >= {"/tokenizer_info", "/tokenize", "/v1/completions"}
    assert {bool(row["request"].get("echo")) for row in ROWS
            if row["path"] == "/v1/completions"} == {True, False}
