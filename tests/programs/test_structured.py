"""Structured output: what is generated under a grammar matches it, as re and json see it, in every
program; what cannot be obeyed is refused, and hostile grammars end in bounded time."""

import json
import re
import resource

import pytest
from server_client import serving

MODEL = "text-deltaproduct2-neg.gguf"
HOT = ["--temp", "3", "--top-k", "0", "--top-p", "1", "--min-p", "0"]
SCHEMA = {"type": "object", "required": ["name", "age", "tags"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0,
    "maximum": 130}, "tags": {"type": "array", "items": {"enum": ["a", "b", "\u00e9"]},
    "maxItems": 3}}}
GBNF = 'root ::= verb (" " noun){1,2} end\nverb ::= "see" | "hear"\n' \
       'noun ::= [a-c]+ | # nothing\nend ::= "." |\n  "!"\n'
GBNF_RE = r"(see|hear)( ([a-c]+|)){1,2}[.!]"


@pytest.fixture(scope="module")
def programs(programs_in, root, config, tmp_path_factory):
    if not config["grammar"]:
        pytest.skip("configured with LRNN_GRAMMAR=OFF")
    lrnn = programs_in(tmp_path_factory.mktemp("structured"))
    lrnn.model = root / "models" / MODEL
    (lrnn.work / "s.json").write_text(json.dumps(SCHEMA))
    (lrnn.work / "g.gbnf").write_text(GBNF)
    return lrnn


def generate(lrnn, *args, n=300, seed=1):
    return lrnn.run("lrnn-cli", "-m", lrnn.model, "-p", "It is ", "-t", 1, "-n", n, "-s", seed,
                    *HOT, *args)


def check_schema(text):
    value = json.loads(text)
    assert list(value) == ["name", "age", "tags"]
    assert isinstance(value["name"], str) and len(value["name"]) <= 12
    assert isinstance(value["age"], int) and 0 <= value["age"] <= 130
    assert len(value["tags"]) <= 3 and set(value["tags"]) <= {"a", "b", "\u00e9"}


@pytest.mark.parametrize("regex", [
    r"[a-f]{3}-[0-9]{2,4}", r"(yes|no|maybe)!?", r"[^a-z\n]{5}x", r"(ab|a)*c", r"\d+(\.\d{1,3})?;",
    r"\u00e9{2}|[\u4e00-\u9fff]{2}"])
def test_regex(programs, regex):
    for seed in range(1, 9):
        done = generate(programs, "--regex", regex, seed=seed)
        assert re.fullmatch(regex, done.stdout.removesuffix("\n")), done.stdout
        assert "ended by" in done.stderr


def test_all_texts_of_a_regex(programs):
    """Hot samples reach every text of a small language: the mask forbids none of them."""
    seen = {generate(programs, "--regex", "a?(b|cd){2};", seed=s).stdout.strip()
            for s in range(1, 60)}
    tails = ["b", "cd"]
    assert seen == {a + x + y + ";" for a in ("", "a") for x in tails for y in tails}


def test_schema_and_json(programs):
    for seed in range(1, 9):
        check_schema(generate(programs, "--json-schema", "s.json", seed=seed).stdout)
        text = generate(programs, "--json", "--temp", "1", seed=seed, n=2000).stdout
        assert isinstance(json.loads(text), dict)


def test_grammar(programs):
    for seed in range(1, 9):
        text = generate(programs, "--grammar", "g.gbnf", seed=seed).stdout.removesuffix("\n")
        assert re.fullmatch(GBNF_RE, text), text


def test_drafts_and_log_probs(programs):
    """With Q8_0 matrices drafts change nothing, and log-probabilities are the model's own."""
    lrnn = programs
    lrnn.run("lrnn-quantize", lrnn.model, "q.gguf", "Q8_0", "--allow-requantize")
    args = ["lrnn-cli", "-m", "q.gguf", "-p", "aab aab aab ", "-t", 1, "-n", 80, "-s", 3, "--jsonl",
            "--regex", "(aab )*end"]
    plain = lrnn.run(*args).stdout
    assert lrnn.run(*args, "--draft-lookup", 16).stdout == plain
    forced = lrnn.run("lrnn-cli", "-m", "q.gguf", "-p", "aab ", "-t", 1, "--jsonl", "--regex", "QZ")
    assert [json.loads(line)["logprob"] < -2 for line in forced.stdout.splitlines()] == [True, True]


def test_states(programs):
    """A grammar is that of the text after the prompt, also after a saved state."""
    generate(programs, "--regex", "ab{3}", "--state-save", "a.state")
    text = programs.run("lrnn-cli", "-m", programs.model, "--state-load", "a.state", "--regex",
                        "c[de]{4}", "-p", "").stdout
    assert re.fullmatch("c[de]{4}\n", text)


@pytest.mark.parametrize("option, text, words", [
    ("--regex", "(a", "parenthesis"), ("--regex", r"(a)\1", "not supported"),
    ("--regex", "(?=a)b", "not supported"), ("--grammar", "a ::= b", "root"),
    ("--grammar", "root ::= x", "not defined"), ("--grammar", "root ::= root", "no token"),
    ("--grammar", "root ::= " + "("*50000 + '"a"' + ")"*50000, "limit"),
    ("--grammar", "root ::= " + "a | "*300000, "bytes; expected at most"),
    ("--json-schema", "{", "JSON"), ("--json-schema", "3", "object"),
    ("--json-schema", '{"type": "strin"}', "strin"), ("--json-schema", "false", "false"),
    ("--json-schema", '{"$ref": "#"}', "no token"),
    ("--json-schema", '{"not": {"type": "string"}}', "not supported"),
    ("--json-schema", '{"allOf": [{"type": "object"}, {"type": "array"}]}', "allOf"),
    ("--json-schema", '{"type":"array","items":'*20000 + "{}" + "}"*20000, "deeper than 256"),
    ("--json-schema", '{"anyOf": [{"type": "object"}], "properties": {"a": {}}}',
     "'properties' beside 'anyOf'"),
    ("--json-schema", '{"required": ["a"], "oneOf": [{"type": "object"}]}',
     "'required' beside 'oneOf'"),
    ("--json-schema", '{"properties": {"a": {"items": [{"$ref": "#", "minLength": 1}]}}}',
     "'minLength' beside '$ref'"),
    ("--json-schema", '{"allOf": [{"anyOf": [{"enum": [1], "const": 1}]}]}',
     "'const' beside 'enum'"),
    ("--json-schema", '{"$defs": {"a": {"const": 1, "minimum": 2}}, "$ref": "#/$defs/a"}',
     "'minimum' beside 'const'")])
def test_refused(programs, option, text, words):
    if option != "--regex":
        (programs.work / "bad").write_text(text)
        text = "bad"
    error = programs.fail(programs.Code.USAGE, "lrnn-cli", "-m", programs.model, "-p", "a", option,
                          text)
    assert words in error


def test_names_and_values_are_not_keywords(programs):
    """A property may have the name of a keyword; types, titles and defaults stand anywhere."""
    names = {"anyOf": {"type": "string", "enum": ["x"], "title": "t"}, "required": {
        "anyOf": [{"type": "null"}, {"$ref": "#/$defs/c", "description": "d", "default": {}}],
        "default": {"anyOf": 1, "properties": 2}}, "enum": {"const": {"$ref": 1, "required": 2}}}
    (programs.work / "names.json").write_text(json.dumps({
        "type": "object", "properties": names, "required": list(names), "title": "t",
        "$defs": {"c": {"type": "boolean"}}}))
    value = json.loads(generate(programs, "--json-schema", "names.json").stdout)
    assert list(value) == list(names) and value["required"] in (None, True, False)
    assert (value["anyOf"], value["enum"]) == ("x", {"$ref": 1, "required": 2})


def compile_time(lrnn, option, text):
    """(exit code, stderr, seconds of processor time) of lrnn-cli with a grammar."""
    if option != "--regex":
        (lrnn.work / "hostile").write_text(text)
        text = "hostile"
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = lrnn.start("lrnn-cli", "-m", lrnn.model, "-p", "a", "-n", 20, "-q", option, text)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.code, done.stderr, end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


@pytest.mark.parametrize("option, text", [
    ("--regex", "((a{1,1000}){1,1000}){1,1000}"), ("--regex", "(a|b)*a" + "(a|b)"*40),
    ("--regex", "(a*)*(b*)*" * 30),
    ("--grammar", "root ::= r40\nr0 ::= \"a\" | \"b\"\n" + "".join(
        f"r{i} ::= r{i - 1} r{i - 1}\n" for i in range(1, 41))),
    ("--grammar", "root ::= s\ns ::= s s | s s s | \"a\" | \"\"\n"),
    ("--grammar", "root ::= " + " ".join(["[a-z]"]*150000)),
    ("--json-schema", json.dumps({"enum": [f"v{i}" for i in range(80000)]})),
    ("--json-schema", json.dumps({"$ref": "#/$defs/a30", "$defs": {"a0": {"type": "string"}} | {
        f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i - 1}"}]*2} for i in range(1, 31)}}))])
def test_hostile_grammars_end(programs, option, text):
    """They are compiled, or refused with a sentence: 5 s of processor time is the limit."""
    code, stderr, seconds = compile_time(programs, option, text)
    assert code == 0 or "expected a simpler grammar" in stderr
    assert seconds < 20


def test_the_limits_of_compiling(programs):
    """Each limit ends a grammar that the other does not."""
    names = [f"p{i}" for i in range(700)]
    slow = {"type": "object", "minProperties": 600, "properties": dict.fromkeys(names, {})}
    code, stderr, seconds = compile_time(programs, "--json-schema", json.dumps(slow))
    assert "takes more than 5 s of processor time; expected a simpler grammar" in stderr
    assert code == programs.Code.USAGE and 5 <= seconds < 20
    large = "".join(f"a{i} ::= a{i + 1} | [a-z] a{i + 1} | a{i + 1} [a-z]\n" for i in range(20000))
    code, stderr, _ = compile_time(programs, "--grammar", f'root ::= a0\n{large}a20000 ::= "x"\n')
    assert "takes more than 1024 MiB of memory; expected a simpler grammar" in stderr
    assert code == programs.Code.USAGE


def test_options_exclude_each_other(programs):
    assert "exclude" in programs.fail(programs.Code.USAGE, "lrnn-cli", "-m", programs.model, "-p",
                                      "a", "--json", "--regex", "a")


@pytest.fixture(scope="module")
def server(programs):
    with serving(programs, programs.model) as server:
        yield server


def complete(server, **fields):
    return server.post("/v1/completions", {"prompt": "It is ", "max_tokens": 400, "temperature": 2,
                                           "seed": 1} | fields)


FORM = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}


def test_server(server):
    reply = complete(server, response_format=FORM, n=3, logprobs=1).json()
    assert len({c["text"] for c in reply["choices"]}) == 3
    for choice in reply["choices"]:
        check_schema(choice["text"])
        assert choice["finish_reason"] == "stop" and choice["logprobs"]["token_logprobs"]
    reply = complete(server, response_format={"type": "json_object"}, temperature=1,
                     max_tokens=2000).json()
    assert isinstance(json.loads(reply["choices"][0]["text"]), dict)
    assert re.fullmatch(GBNF_RE, complete(server, grammar=GBNF).json()["choices"][0]["text"])


def streamed(reply):
    return "".join(event["choices"][0]["text"] for event in reply.events())


def test_server_streams(server):
    for seed in range(1, 9):
        text = streamed(complete(server, regex="[a-f]{9}|\u00e9{5}", seed=seed, stream=True))
        assert re.fullmatch("[a-f]{9}|\u00e9{5}", text), text
        check_schema(streamed(complete(server, response_format=FORM, seed=seed, stream=True)))


def test_server_drafts_and_states(programs):
    """With Q8_0 matrices drafts change nothing, also after a named state."""
    programs.run("lrnn-quantize", programs.model, "server.gguf", "Q8_0", "--allow-requantize")
    prompt = "aab aab aab "
    fields = {"prompt": prompt, "regex": "(aab )*end", "logprobs": 2, "temperature": 1}
    found, calls = [], []
    for options in ([], ["--draft-lookup", 16]):
        with serving(programs, "server.gguf", "--state-dir", "states", *options) as server:
            whole = complete(server, **fields).json()["choices"][0]
            calls.append(server.metric("eval_calls_total"))
            assert re.fullmatch("(aab )*end", whole["text"]) and whole["finish_reason"] == "stop"
            server.post("/states/aab", {"prompt": prompt})
            after = complete(server, **fields | {"prompt": "", "state": "aab"}).json()["choices"][0]
            assert after["text"] == whole["text"]
            assert after["logprobs"]["content"] == whole["logprobs"]["content"]
            assert streamed(complete(server, **fields, stream=True)) == whole["text"]
            found.append((whole, after))
    assert found[0] == found[1] and calls[1] < calls[0]


def test_server_limits_a_token(server):
    """A grammar that reads a text in too many ways ends its request, and only this one."""
    def ways(i):
        return " | ".join(f"r{(7*i + k) % 60} r{(3*i + 5*k + 1) % 60}" for k in range(8))

    hostile = "root ::= r0\n" + "".join(f'r{i} ::= {ways(i)} | "a"\n' for i in range(60))
    slow = "finding what the grammar allows next takes more than 1 s of processor time"
    assert slow in complete(server, grammar=hostile).error(400)["message"]
    assert slow in complete(server, grammar=hostile, stream=True).events()[-1]["error"]["message"]
    assert re.fullmatch("a{20}", complete(server, regex="a{20}").json()["choices"][0]["text"])


@pytest.mark.parametrize("field, value, words", [
    ("regex", "(a", "parenthesis"), ("regex", 3, "string"), ("grammar", "a", "not valid"),
    ("response_format", "json", "an object"), ("response_format", {"type": "xml"}, "json_schema"),
    ("response_format", {"type": "json_schema"}, "schema"),
    ("response_format", {"type": "json_schema", "json_schema": {"schema": ""}}, "an object"),
    ("response_format", {"type": "json_schema", "json_schema": {"schema": "a"}}, "an object"),
    ("response_format", {"type": "json_object", "schema": ""}, "an object"),
    ("response_format", {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}, "x")])
def test_server_refuses(server, field, value, words):
    error = complete(server, **{field: value}).error(400)
    assert error["param"] == field and words in error["message"]


def test_server_refuses_two(server):
    assert complete(server, regex="a", grammar=GBNF).error(400)["param"] == "regex"
