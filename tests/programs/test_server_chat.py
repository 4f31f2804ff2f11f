"""Chats of lrnn-server: the prompt is the template of the checkpoint, rendered by Jinja."""

import pytest
from server_client import cached, serving
from test_chat import EOS, SPECIAL, TEMPLATES, Chat, encode

FIELDS = {"max_tokens": 8, "temperature": 0}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is it?"}]


@pytest.fixture(params=["olmo-3", "qwen3.5"])
def chat(lrnn, request):
    return Chat(lrnn, request.param)


@pytest.fixture
def server(lrnn, chat):
    with serving(lrnn, chat.model, "--cache-type", "f32") as server:
        yield server


def ask(server, messages, **more):
    reply = server.post("/v1/chat/completions", {"messages": messages} | FIELDS | more)
    assert reply.status == 200, reply.body
    return reply.json()


def test_answer_is_the_completion_of_the_template(server, chat):
    tokens = encode(chat.template.render(MESSAGES))
    reply = ask(server, MESSAGES, logprobs=True, top_logprobs=2)
    assert reply["object"] == "chat.completion" and reply["usage"]["prompt_tokens"] == len(tokens)
    choice = reply["choices"][0]
    expected = server.complete(prompt=tokens, logprobs=2, **FIELDS)["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": expected["text"]}
    assert set(choice["logprobs"]) == {"content"}
    ids = [entry["id"] for entry in choice["logprobs"]["content"]]
    assert ids == [entry["id"] for entry in expected["logprobs"]["content"]]
    assert all(len(entry["top_logprobs"]) == 2 for entry in choice["logprobs"]["content"])


def test_end_of_an_answer(server):
    """A token that ends an answer is not part of it."""
    end = EOS + SPECIAL.index("<|im_end|>")
    choice = ask(server, MESSAGES, logit_bias={str(end): 1000})["choices"][0]
    assert choice["message"]["content"] == "" and choice["finish_reason"] == "stop"
    assert ask(server, MESSAGES, stop="\n")["choices"][0]["finish_reason"] in ("stop", "length")


def test_parts_and_thinking(server, chat):
    parts = [{"role": "user", "content": [{"type": "text", "text": "What "},
                                          {"type": "text", "text": "is it?"}]}]
    whole = [{"role": "user", "content": "What is it?"}]
    assert ask(server, parts)["choices"] == ask(server, whole)["choices"]
    for thinking in (True, False):
        tokens = encode(chat.template.render(whole, enable_thinking=thinking))
        reply = ask(server, whole, chat_template_kwargs={"enable_thinking": thinking})
        assert reply["usage"]["prompt_tokens"] == len(tokens)


def test_stream(server):
    whole = ask(server, MESSAGES, n=2)
    reply = server.post("/v1/chat/completions", {
        "messages": MESSAGES, "n": 2, "stream": True} | FIELDS)
    events = reply.events()
    assert {e["object"] for e in events} == {"chat.completion.chunk"}
    for i, expected in enumerate(whole["choices"]):
        pieces = [e["choices"][0] for e in events if e["choices"][0]["index"] == i]
        assert pieces[0]["delta"] == {"role": "assistant", "content": ""}
        assert pieces[-1]["delta"] == {} and pieces[-1]["finish_reason"] == "length"
        assert "".join(p["delta"].get("content", "") for p in pieces) == \
            expected["message"]["content"]


def test_next_turn_continues_from_a_stored_state(server, chat):
    """The state at the end of the last user message is stored: a next turn begins with it."""
    messages = [{"role": "user", "content": "A long question. " * 6}]
    answer = ask(server, messages)["choices"][0]["message"]["content"]
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And now?"}]
    reply = ask(server, messages)
    first = encode(chat.template.render(messages[:1]))
    second = encode(chat.template.render(messages))
    common = next(i for i, (a, b) in enumerate(zip(first, second)) if a != b) \
        if first != second[:len(first)] else len(first)
    assert reply["usage"]["prompt_tokens"] == len(second)
    header = len("<|im_start|>assistant\n")  # a format may change what follows it
    assert common - header <= cached(reply) <= common + len(answer.encode())


@pytest.mark.parametrize("messages", [
    None, [], "a", [1], [{}], [{"role": "user"}], [{"role": 5, "content": "a"}],
    [{"role": "user", "content": 5}], [{"role": "user", "content": [{"type": "image"}]}],
    [{"role": "tool", "content": "a"}], [{"role": "assistant", "content": "a"}],
    [{"role": "user", "content": "a"}, {"role": "system", "content": "a"}]], ids=str)
def test_bad_messages(server, messages):
    reply = server.post("/v1/chat/completions", {"messages": messages})
    assert reply.error(400)["param"].startswith("messages")


def test_model_without_chat_format(lrnn):
    model = lrnn.models / "text-deltaproduct2-neg.gguf"
    with serving(lrnn, model) as server:
        assert "chat format" in server.post("/v1/chat/completions", {
            "messages": MESSAGES}).error(400)["message"]
    model = lrnn.text_model("gla", "gla.gguf", EOS, TEMPLATES / "olmo-3.jinja", *SPECIAL)
    with serving(lrnn, model, "--chat-format", "chatml") as server:
        prompt = "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n"
        assert ask(server, MESSAGES[1:])["usage"]["prompt_tokens"] == len(encode(prompt))
    lrnn.fail(lrnn.Code.USAGE, "lrnn-server", "-m", model, "--chat-format", "nothing",
              stderr="--chat-format")
