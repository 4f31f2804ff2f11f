"""Tokenizers: small ones of every kind, and errors that name the unknown part."""

import base64
import json
import random
import struct

import pytest
import tiny
from gguf import TokenType

from lrnn_convert.errors import DataError, ModelError
from lrnn_convert.tokenizers import hf_json, rwkv_world, sentencepiece, tiktoken
from lrnn_convert.tokenizers.tokenizer import (BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED,
                                               USER_DEFINED)


def test_token_types_are_those_of_gguf():
    for name in ("NORMAL", "UNKNOWN", "CONTROL", "USER_DEFINED", "UNUSED", "BYTE"):
        assert globals()[name] == TokenType[name]


def write(path, data):
    path.write_text(json.dumps(data))
    return path


SPM = {
    "added_tokens": [{"id": 0, "content": "<unk>", "special": True},
                     {"id": 1, "content": "<s>", "special": True}],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "pre_tokenizer": None,
    "post_processor": {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
    "model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>",
              "vocab": {"<unk>": 0, "<s>": 1, "<0x0A>": 2, "a": 3, "b": 4, "ab": 5,
                        "\u2581\u2581": 6, "abb": 7, "\u2581": 8},
              "merges": ["ab b", ["a", "b"], "\u2581 \u2581", "a bb"]},
}


def test_sentencepiece_scores_are_merge_ranks(tmp_path):
    t = hf_json.read(write(tmp_path / "tokenizer.json", SPM))
    assert t.model == "llama" and t.tokens[5] == "ab" and t.bos == 1 and t.unk == 0
    assert t.add_bos and not t.add_eos and t.add_space_prefix
    assert t.types == [UNKNOWN, CONTROL, BYTE, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL]
    # the first of two merges that make a token counts; the ids do not matter
    assert t.scores == [0, 0, 0, 0, 0, -1, -2, 0, 0]


def test_tokenizer_config_decides_whether_bos_is_added(tmp_path):
    write(tmp_path / "tokenizer_config.json",
          {"add_bos_token": False, "add_eos_token": True, "eos_token": {"content": "b"}})
    t = hf_json.read(write(tmp_path / "tokenizer.json", SPM))
    assert not t.add_bos and t.add_eos and t.eos == 4


def test_metaspace(tmp_path):
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never",
                 "split": False}
    data = SPM | {"normalizer": None, "pre_tokenizer": metaspace}
    assert hf_json.read(write(tmp_path / "t.json", data)).add_space_prefix is False


GPT2 = {
    "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": True},
                     {"id": 4, "content": "  ", "special": False}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "model": {"type": "BPE", "vocab": {"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3},
              "merges": ["a b"]},
}


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}


def test_byte_level(tmp_path):
    t = hf_json.read(write(tmp_path / "t.json", GPT2))
    assert (t.model, t.pre, t.normalizer) == ("gpt2", "mpt", "nfc") and t.merges == ["a b"]
    assert t.types == [CONTROL, NORMAL, NORMAL, NORMAL, USER_DEFINED]
    assert (t.bos, t.eos, t.add_bos) == (0, 0, False)      # explicit: defaults of readers differ
    t = hf_json.read(write(tmp_path / "t.json", GPT2 | {"normalizer": None}))
    assert (t.pre, t.normalizer) == ("gpt-2", None)


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "qwen35", "bailingmoe2", "kimi-k2"])
def test_known_patterns(tmp_path, name):
    pattern = next(p for p, n in hf_json.PATTERNS.items() if n == name)
    data = GPT2 | {"pre_tokenizer": split(pattern)}
    data["model"] = data["model"] | {"ignore_merges": True}
    assert hf_json.read(write(tmp_path / "t.json", data)).pre == name


def test_pieces_that_are_always_merged(tmp_path):
    data = GPT2 | {"pre_tokenizer": split(next(iter(hf_json.PATTERNS)))}
    assert hf_json.read(write(tmp_path / "t.json", data)).pre == "dbrx"
    data["pre_tokenizer"] = split(hf_json.KIMI)
    with pytest.raises(ModelError, match="ignore_merges"):
        hf_json.read(write(tmp_path / "t.json", data))


@pytest.mark.parametrize("change, named", [
    ({"pre_tokenizer": split(r"\d+")}, r"\\d+"),
    ({"pre_tokenizer": {"type": "Digits", "individual_digits": True}}, "Digits"),
    ({"pre_tokenizer": None}, "none"),
    ({"normalizer": {"type": "Lowercase"}}, "Lowercase"),
    ({"model": {"type": "Unigram", "vocab": {}}}, "Unigram"),
])
def test_unknown_steps_are_refused_by_name(tmp_path, change, named):
    with pytest.raises(ModelError) as e:
        hf_json.read(write(tmp_path / "t.json", GPT2 | change))
    assert named in str(e.value)


def test_symbols(tmp_path):
    model = {"type": "WordLevel", "vocab": {"0": 0, "1": 1, "[UNK]": 2}, "unk_token": "[UNK]"}
    data = {"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    t = hf_json.read(write(tmp_path / "t.json", data))
    assert t.model == "lrnn-symbols" and t.tokens == ["0", "1", "[UNK]"] and t.unk == 2


@pytest.mark.parametrize("data", [[], {}, {"vocab": {"a": "x"}}, {"vocab": {"a": 0, "b": 0}},
                                  {"vocab": {"a": 0}, "merges": ["a"]}])
def test_broken_json(tmp_path, data):
    data = GPT2 | {"model": {"type": "BPE", "merges": []} | data} if data else data
    with pytest.raises(DataError):
        hf_json.read(write(tmp_path / "t.json", data))


# -- SentencePiece

def field(number, value):
    def varint(n):
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_proto(algorithm=2, normalizer=b"identity"):
    pieces = [(b"<unk>", 0.0, UNKNOWN), (b"<s>", 0.0, CONTROL), (b"</s>", 0.0, CONTROL),
              (b"<0x41>", 0.0, BYTE), ("\u2581a".encode(), -1.5, None)]
    data = b"".join(field(1, field(1, text) + field(2, score) + (field(3, kind) if kind else b""))
                    for text, score, kind in pieces)
    trainer = field(3, algorithm) + field(43, 2**64 - 1)
    return data + field(2, trainer) + field(3, field(1, normalizer) + field(3, 0))


def test_sentencepiece_model(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model_proto())
    added = {"1": {"content": "<s>"}, "5": {"content": "<x>", "special": True}}
    write(tmp_path / "tokenizer_config.json",
          {"add_bos_token": True, "added_tokens_decoder": added})
    t = sentencepiece.read(path)
    assert t.tokens == ["<unk>", "<s>", "</s>", "<0x41>", "\u2581a", "<x>"]
    assert t.scores[4] == -1.5
    assert t.types == [UNKNOWN, CONTROL, CONTROL, BYTE, NORMAL, CONTROL]
    assert (t.unk, t.bos, t.eos, t.pad) == (0, 1, 2, None) and t.add_space_prefix is False


def test_sentencepiece_refusals(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model_proto(algorithm=1))
    with pytest.raises(ModelError, match="unigram"):
        sentencepiece.read(path)
    path.write_bytes(model_proto(normalizer=b"nmt_nfkc"))
    with pytest.raises(ModelError, match="nmt_nfkc"):
        sentencepiece.read(path)
    path.write_bytes(model_proto()[:20])
    with pytest.raises(DataError):
        sentencepiece.read(path)


# -- RWKV World

WORLD = ("1 '\\x00' 1\n2 ' a b' 4\n3 b'\\xe4\\xbd' 2\n4 '\\xe9' 2\n5 \"it's\" 4\n7 '\\n\\n' 2\n"
         "8 '\\\\' 1\n9 '\u2028' 3\n")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_world(tmp_path, end):
    path = tmp_path / "rwkv_vocab.txt"
    path.write_bytes(WORLD.replace("\n", end).encode())
    t = rwkv_world.read(path)
    # \xe9 is a code point in a string (two bytes in UTF-8) and \xe4 a byte in bytes
    assert t.tokens == ["<s>", "\\x00", " a b", "\\xe4\\xbd", "\\xc3\\xa9", "it's", "[PAD6]",
                        "\\n\\n", "\\\\", "\\xe2\\x80\\xa8"]
    assert t.types == [CONTROL, *[NORMAL] * 5, UNUSED, *[NORMAL] * 3]
    assert (t.bos, t.eos, t.eot) == (0, 0, 7)


@pytest.mark.parametrize("line", ["1 'ab' 3", "x 'a' 1", "1 __import__('os') 1", "1 'a", "0 'a' 1",
                                  "1 '\\ud800' 3", "1 2 1"])
def test_world_refusals(tmp_path, line):
    path = tmp_path / "v.txt"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match="line 1"):
        rwkv_world.read(path)


# -- into the file

KIMI = {"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        "bos_token": "[BOS]", "eos_token": {"content": "[EOS]"},
        "added_tokens_decoder": {"261": {"content": "[BOS]", "special": True},
                                 "263": {"content": "[EOS]", "special": True},
                                 "264": {"content": "<think>", "special": False}}}


def tiktoken_model(tmp_path, words, config=KIMI):
    write(tmp_path / "tokenizer_config.json", config)
    tokens = [*(bytes([b]) for b in range(256)), *words]
    path = tmp_path / "tiktoken.model"
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(t), i)
                              for i, t in enumerate(tokens)))
    return path


def test_tiktoken(tmp_path):
    # é and abcde are not the result of two tokens, and are found as whole pieces only
    t = tiktoken.read(tiktoken_model(tmp_path, [b"bc", b"ab", b"abc", "é ".encode(), b"abcde"]))
    assert t.model == "gpt2" and t.pre == "kimi-k2" and not t.add_bos
    assert t.tokens[256:] == ["bc", "ab", "abc", "Ã©Ġ", "abcde", "[BOS]", "[PAD262]", "[EOS]",
                              "<think>"]
    assert t.merges == ["b c", "a b", "a bc"]
    assert t.types[259:] == [NORMAL, NORMAL, CONTROL, UNUSED, CONTROL, USER_DEFINED]
    assert (t.bos, t.eos) == (261, 263)


def lowest_first(parts, ranks):
    """Merges the neighbors whose result has the lowest rank, until there are none."""
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
                 if a + b in ranks]
        if not found:
            return parts
        i = min(found)[1]
        parts = parts[:i] + [parts[i] + parts[i + 1]] + parts[i + 2:]


def test_merges_of_tiktoken_are_its_ranks(tmp_path):
    """tiktoken merges by the result, a reader of merges by the pair."""
    rng = random.Random(1)
    words = []
    while len(words) < 60:                 # as training does: the parts of a token are older
        pool = [*words, b"a", b"b", b"c"]
        word = rng.choice(pool) + rng.choice(pool)
        if word not in words:
            words.append(word)
    t = tiktoken.read(tiktoken_model(tmp_path, words, KIMI | {"added_tokens_decoder": {}}))
    ranks = {w: i for i, w in enumerate(words)}
    pairs = {tuple(map(str.encode, m.split(" "))): i for i, m in enumerate(t.merges)}
    for _ in range(300):
        text = bytes(rng.choices(b"abc", k=rng.randrange(1, 40)))
        parts = [bytes([b]) for b in text]
        while found := [(pairs[pair], i) for i, pair in enumerate(zip(parts, parts[1:]))
                        if pair in pairs]:
            i = min(found)[1]
            parts = parts[:i] + [parts[i] + parts[i + 1]] + parts[i + 2:]
        assert parts == lowest_first([bytes([b]) for b in text], ranks), text


@pytest.mark.parametrize("config, error", [
    ({}, ModelError), (KIMI | {"auto_map": {"AutoTokenizer": ["other.Class", None]}}, ModelError),
    (KIMI | {"added_tokens_decoder": {"3": {"content": "x"}}}, DataError),
    (KIMI | {"added_tokens_decoder": {"9999999": {"content": "x"}}}, DataError)])
def test_tiktoken_configurations_are_refused(tmp_path, config, error):
    with pytest.raises(error):
        tiktoken.read(tiktoken_model(tmp_path, [b"ab"], config))


@pytest.mark.parametrize("lines", [b"", b"YQ==\n", b"YQ== 1\n", b"Y 0\n", b"YQ== 0\nYg== 0\n"])
def test_broken_tiktoken_model(tmp_path, lines):
    path = tiktoken_model(tmp_path, [])
    path.write_bytes(lines)
    with pytest.raises(DataError):
        tiktoken.read(path)


def test_rows_without_a_token_are_padded(bench):
    config, t = tiny.delta_net()
    bench.save(config, t)
    write(bench.folder / "tokenizer.json", SPM)
    f = bench.convert(config | {"eos_token_id": [2, 5], "pad_token_id": 100}, t)
    kv = f.kv
    assert kv["tokenizer.ggml.model"] == "llama"
    assert len(kv["tokenizer.ggml.tokens"]) == tiny.V
    assert kv["tokenizer.ggml.tokens"][-1] == "[PAD10]"
    assert kv["tokenizer.ggml.token_type"][-1] == UNUSED
    assert kv["tokenizer.ggml.add_bos_token"] is True
    assert kv["tokenizer.ggml.eos_token_id"] == 2 and "tokenizer.ggml.padding_token_id" not in kv
    assert "2 padding rows" in bench.err


def test_no_merges(bench):
    config, t = tiny.delta_net()
    bench.save(config, t)
    write(bench.folder / "tokenizer.json", GPT2 | {"model": GPT2["model"] | {"merges": []}})
    f = bench.convert(config, t)
    assert f.kv["tokenizer.ggml.model"] == "gpt2" and "tokenizer.ggml.merges" not in f.kv


def test_none_and_bytes(bench):
    f = bench.convert(*tiny.delta_net())
    assert f.kv["tokenizer.ggml.model"] == "none" and "none found" in bench.err
    assert bench.run("--tokenizer", "bytes") == 3 and "256" in bench.err   # for 11 rows


def test_more_tokens_than_rows(bench):
    config, t = tiny.delta_net()
    bench.save(config, t)
    data = SPM | {"added_tokens": [{"id": 50, "content": "far", "special": True}]}
    write(bench.folder / "tokenizer.json", data)
    code, err = bench.refuse(config, t)
    assert code == 3 and "51" in err and "11" in err


def test_eos_without_an_id(bench):
    config, t = tiny.delta_net()
    bench.save(config, t)
    write(bench.folder / "tokenizer.json", SPM | {"post_processor": None})
    write(bench.folder / "tokenizer_config.json", {"add_eos_token": True})
    code, err = bench.refuse(config, t)
    assert code == 3 and "eos" in err
