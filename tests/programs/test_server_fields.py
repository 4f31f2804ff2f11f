"""Fields of requests to lrnn-server: what is not implemented is refused, not ignored."""

import pytest
from server_client import serving
from test_chat import Chat, encode

MODEL = "text-deltaproduct2-neg.gguf"
USER = {"role": "user", "content": "What is it?"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.fixture(scope="module")
def chat(programs):
    return Chat(programs, "olmo-3")


@pytest.fixture(scope="module")
def server(programs, chat):
    with serving(programs, chat.model, "--state-dir", "states", "-a", "org/name") as server:
        yield server


def complete(server, **fields):
    return server.post("/v1/completions", {"prompt": "Once", "max_tokens": 1} | fields)


def answer(server, *messages, **fields):
    return server.post("/v1/chat/completions",
                       {"messages": messages or [USER], "max_tokens": 1} | fields)


@pytest.mark.parametrize("field, value", [
    ("tools", [TOOL]), ("tool_choice", "required"), ("tool_choice", TOOL), ("functions", [TOOL]),
    ("function_call", {"name": "f"}), ("suffix", "end"), ("best_of", 2), ("best_of", "2"),
    ("mirostat", 2), ("typical_p", 0.5), ("min_tokens", 5), ("stop_token_ids", [1]),
    ("use_beam_search", True), ("modalities", ["text", "audio"])])
def test_unsupported_fields_are_refused(server, field, value):
    for reply in (complete(server, **{field: value}), answer(server, **{field: value})):
        error = reply.error(400)
        assert error["param"] == field and field in error["message"]
    server.post("/states/a", {"prompt": "a", field: value}).error(400)
    assert server.get("/states").json()["states"] == []


@pytest.mark.parametrize("field, value", [
    ("tools", []), ("tools", None), ("tool_choice", "none"), ("tool_choice", "auto"),
    ("suffix", ""), ("suffix", None), ("best_of", 1), ("best_of", 1.0), ("mirostat", 0),
    ("typical_p", 1), ("min_tokens", 0), ("use_beam_search", False), ("modalities", ["text"]),
    ("response_format", {"type": "text"}), ("response_format", None)])
def test_unsupported_fields_that_ask_for_nothing(server, field, value):
    assert complete(server, **{field: value}).status == 200
    assert answer(server, **{field: value}).status == 200


@pytest.mark.parametrize("field, meant", [
    ("temprature", "temperature"), ("Temperature", "temperature"), ("max_token", "max_tokens"),
    ("maxtokens", "max_tokens"), ("stops", "stop"), ("top-p", "top_p"), ("tempertaure",
    "temperature"), ("logitbias", "logit_bias"), ("stream_option", "stream_options"),
    ("chat_template_kwarg", "chat_template_kwargs"), ("promt", "prompt"), ("max_\\u0074oken",
    "max_tokens")])
def test_misspelled_fields(server, field, meant):
    body = '{"prompt": "a", "messages": [], "max_tokens": 1, "%s": 1}' % field
    error = server.post("/v1/completions", body).error(400)
    assert f"did you mean {meant}?" in error["message"]
    assert error["param"] == field.replace("\\u0074", "t")


@pytest.mark.parametrize("field", ["model", "user", "store", "metadata", "service_tier", "mode",
                                   "cache_prompt", "reasoning_effort", "x", "", "é", "a\u0000b",
                                   "x" * 5000])
def test_other_fields_are_ignored(server, field):
    assert complete(server, **{field: "value"}).status == 200
    assert answer(server, **{field: {"a": 1}}).status == 200


def test_number_of_fields(server):
    """Each is compared with all names: too many would keep a core busy."""
    fields = {f"unknown-{i}": i for i in range(254)}
    assert complete(server, **fields).status == 200
    fields["one-more"] = 1
    assert "256 fields" in complete(server, **fields).error(400)["message"]


def test_chats_have_no_echo_and_no_state(server):
    for field, value in (("echo", True), ("state", "a")):
        assert answer(server, **{field: value}).error(400)["param"] == field
    assert answer(server, echo=False, state=None).status == 200


def test_calls_of_tools_in_messages(server):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [USER, {"role": "assistant", "content": "a", "tool_calls": [call]}, USER]
    assert answer(server, *messages).error(400)["param"] == "messages.tool_calls"
    messages[1]["tool_calls"] = []
    assert answer(server, *messages).status == 200


def test_developer_is_another_name_of_system(server, chat):
    messages = [{"role": "system", "content": "Be brief."}, USER]
    expected = answer(server, *messages, seed=1, max_tokens=9).json()
    assert expected["usage"]["prompt_tokens"] == len(encode(chat.template.render(messages)))
    messages[0]["role"] = "developer"
    reply = answer(server, *messages, seed=1, max_tokens=9).json()
    assert reply["choices"] == expected["choices"] and reply["usage"]["prompt_tokens"] == \
        expected["usage"]["prompt_tokens"]


def test_one_model(server):
    """A name may have slashes; the client of OpenAI's API escapes them."""
    model = server.get("/v1/models").json()["data"][0]
    assert model["id"] == "org/name"
    for path in ("org/name", "org%2Fname"):
        assert server.get(f"/v1/models/{path}").json() == model
    for path in ("other", "", "org/name/", "org"):
        assert "'org/name'" in server.get(f"/v1/models/{path}").error(404)["message"]
    server.post("/v1/models/org/name").error(405)
