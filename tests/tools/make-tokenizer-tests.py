#!/usr/bin/env python3
"""Writes tests/data/tokenizer/*.bin: small vocabularies of every kind, with texts and their ids
according to the reference library.

usage: make-tokenizer-tests.py OUT_DIRECTORY

Needs `tokenizers` and `sentencepiece`. The vocabularies are trained on documents of this repository
and the lines below. World, bytes and symbols have no library; their reference is a few lines of
Python. The file format is in tests/kit/tokenizer-data.h.
"""

import io
import json
import random
import struct
import sys
from pathlib import Path

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
ADD_SPECIAL, PARSE_SPECIAL = 1, 2

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
          .replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"))
OTHER_PARTS = r"\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]"
FRONT, REST = r"[\p{Lu}\p{Lt}" + OTHER_PARTS + "]", r"[\p{Ll}" + OTHER_PARTS + "]"
BEFORE, SHORT = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = "|".join([r"[\p{Han}]+", BEFORE + FRONT + "*" + REST + "+" + SHORT,
                 BEFORE + FRONT + "+" + REST + "*" + SHORT, LLAMA3[LLAMA3.index(r"\p{N}{1,3}"):]])

LINES = """
The state of a linear recurrence is a matrix; the text that follows depends on nothing else.
Don't, won't, can't, it's, we're, they've, I'm, she'll, he'd - DON'T, WON'T, IT'S, WE'RE, \
THEY'VE, I'M, SHE'LL, HE'D
0 1 12 123 1234 12345 123456 3.14159 1,000,000 2^10 = 1024 0xDEADBEEF 1e-5
Die Größe des Zustands hängt nicht von der Länge des Textes ab. Où est la bibliothèque ? \
El niño comió una piña.
Зелёный чай и чёрный хлеб. Ελληνικά γράμματα, άλφα και ωμέγα. שלום עולם. \
مرحبا بالعالم. नमस्ते दुनिया। สวัสดีชาวโลก
线性循环模型的状态大小不随文本长度变化。日本語のテキストも読みます。カタカナとひらがな。한국어 문장도 있습니다.
int main(void) { for (int i = 0; i < 10; ++i) { printf("%d\\n", i); } return 0; }
def f(x):\n    if x > 0:\n        return x*x\n\n    return None\n
\tindented\twith\ttabs\r\nand\r\nDOS\r\nlines\n\n\n\nand   many    spaces     here      .
e\u0301 a\u030a o\u0308\u0323 \u1100\u1161\u11a8 \uac00\u11a8 \u0915\u093c \u212b \u2126 \
\ufb01 \u0344 q\u0307\u0323 \u0323\u0307
👍🏽 👨‍👩‍👧‍👦 🇩🇪 ☃️ ½ ² Ⅷ ⅷ ٣ ३ ㊿ 𝟘 𝔸 ﬀ ſ '\u017f 's'S 'Re 'lL \u2581 \u2581\u2581x
"""


def unicode_blocks(step):
    """A text with characters from all of Unicode, each next to a letter, a digit and a space."""
    excluded = [(0xD800, 0xE000), (0x4E80, 0x9F80), (0xAC80, 0xD780), (0x20000, 0xE0000)]
    out = []
    for c in range(0x80, 0x110000, step):
        if c < 0xE0200 and not any(lo <= c < hi for lo, hi in excluded):
            out.append(f"a{chr(c)}{chr(c)} {chr(c)}1")
    return "".join(out)


def random_text(rng, n, more=""):
    """Characters of the classes that pre-tokenizers distinguish, in random order."""
    pool = more + ("aZéжщ中한" "019٣½" "  \t\n\r\u00a0\u3000\u2028" ".,'\"-_{}()\u0301\u200d👍"
            "'s't're've'm'll'dſ" "\u2581")
    return "".join(rng.choice(pool) for _ in range(n))


def random_utf8ish(rng, n):
    """Bytes that are often nearly UTF-8."""
    parts = [b"\x80", b"\xc0\x80", b"\xc2", b"\xe0\x80\x80", b"\xe2\x82", b"\xe2\x82\xac",
             b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xf0\x9f\x98\x80",
             b"\xf4\x90\x80\x80", b"\xf5", b"\xff\xfe", b"a", b" ", b"b c", b"\xc3\xa9",
             b"\xf0\x80\x80\x80", b"\xe2"]
    return b"".join(rng.choice(parts) for _ in range(n))


def texts(corpus, specials):
    rng = random.Random(1)
    out = [b"", b" ", b"  ", b"\n", b"a", b"\0", b"a\0b"]
    out += [line.encode() for line in LINES.split("\n")]
    out += [LINES.encode(), corpus[2000:3200].encode(), unicode_blocks(0x180).encode()]
    out += [b"a"*300, b" "*100 + b"x", b"ab"*100, "é".encode()*50, b"\n"*50, b"1"*50]
    out += [random_text(rng, 300).encode() for _ in range(3)]
    out += [random_utf8ish(rng, 150) for _ in range(2)]
    out += [bytes(rng.randrange(256) for _ in range(500))]
    for s in specials:
        out += [t.encode() for t in (s, f"a{s}b", f" {s} {s}{s} c", f"{s[:-1]} {s[1:]}",
                                     f"{s}\u0301x")]
    return out


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def string(s):
    s = s if isinstance(s, bytes) else s.encode()
    return varint(len(s)) + s


class Definition:
    def __init__(self, model, tokens, types, scores=(), merges=(), pre="", normalizer="", bos=-1,
                 eos=-1, unk=-1, pad=-1, add_bos=-1, add_eos=-1, add_space_prefix=-1):
        self.__dict__.update(locals())

    def write(self, path, cases):
        """cases: [(text, flags, ids or None if the text is an error)]"""
        f = io.BytesIO()
        f.write(b"LRNNTOK1" + string(self.model) + string(self.pre) + string(self.normalizer))
        f.write(struct.pack("<4i3b", self.bos, self.eos, self.unk, self.pad, self.add_bos,
                            self.add_eos, self.add_space_prefix))
        f.write(varint(len(self.tokens)) + b"".join(map(string, self.tokens)))
        f.write(varint(len(self.types)) + bytes(self.types))
        f.write(varint(len(self.scores)) + struct.pack(f"<{len(self.scores)}f", *self.scores))
        f.write(varint(len(self.merges)) + b"".join(map(string, self.merges)))
        f.write(varint(len(cases)))
        for text, flags, ids in cases:
            f.write(bytes([flags]) + string(text))
            f.write(varint(0) if ids is None else varint(len(ids) + 1) + b"".join(map(varint, ids)))
        Path(path).write_bytes(f.getvalue())


def definition_of_bpe(tok, pre, normalizer="", **ids):
    """The definition of a byte-level BPE of the `tokenizers` library."""
    added = tok.get_added_tokens_decoder()
    vocab = {i: t for t, i in tok.get_vocab(with_added_tokens=True).items()}
    n = max(vocab) + 1
    tokens = [vocab.get(i, f"[PAD{i}]") for i in range(n)]

    def type_of(i):
        if i in added:
            return CONTROL if added[i].special else USER_DEFINED
        return NORMAL if i in vocab else UNUSED

    types = [type_of(i) for i in range(n)]
    merges = [m if isinstance(m, str) else " ".join(m)
              for m in json.loads(tok.to_str())["model"]["merges"]]
    return Definition("gpt2", tokens, types, merges=merges, pre=pre, normalizer=normalizer, **ids)


def encode_bpe(tok, text, flags):
    tok.encode_special_tokens = not flags & PARSE_SPECIAL
    text = text.decode("utf-8", "replace")
    return tok.encode(text, add_special_tokens=bool(flags & ADD_SPECIAL)).ids


def definition_of_spm(model):
    p = sentencepiece.SentencePieceProcessor(model_proto=model)
    n = p.get_piece_size()

    def type_of(i):
        return (UNKNOWN if p.is_unknown(i) else CONTROL if p.is_control(i)
                else UNUSED if p.is_unused(i) else BYTE if p.is_byte(i)
                else USER_DEFINED if p.id_to_piece(i) in USER else NORMAL)

    return Definition("llama", [p.id_to_piece(i) for i in range(n)], [type_of(i) for i in range(n)],
                      scores=[p.get_score(i) for i in range(n)], bos=p.bos_id(), eos=p.eos_id(),
                      unk=p.unk_id(), add_bos=1, add_eos=0, add_space_prefix=1)


USER = ["<user>", "<us", "ab\u2581c"]


def encode_spm(p, text, flags):
    """Splits the text at control tokens first, because SentencePiece never finds them in a text."""
    ids = [p.bos_id()] if flags & ADD_SPECIAL else []
    control = {p.id_to_piece(i): i for i in range(p.get_piece_size())
               if flags & PARSE_SPECIAL and (p.is_control(i) or p.is_unknown(i))}
    rest = text
    while rest:
        at, piece = min([(rest.find(c.encode()), c) for c in control if c.encode() in rest],
                        default=(len(rest), None))
        ids += p.encode(rest[:at]) if at > 0 else []
        rest = rest[at:]
        if piece is not None:
            ids.append(control[piece])
            rest = rest[len(piece.encode()):]
    return ids


def train_bpe(corpus, pre, normalizer, n, specials, ignore_merges=False, added=()):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus.split("\n\n"), trainers.BpeTrainer(
        vocab_size=n, special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    if ignore_merges:  # make tokens that no merge yields
        j = json.loads(tok.to_str())
        merges = j["model"]["merges"]
        j["model"]["merges"] = [m for i, m in enumerate(merges)
                                if i % 5 != 4 or any("".join(m) in q for q in merges)]
        tok = Tokenizer.from_str(json.dumps(j))
    tok.add_tokens([AddedToken(t, normalized=True) for t in added])
    return tok


def world(tokens):
    """Greedy longest match over bytes."""
    by_bytes = {t: i for i, t in tokens.items()}
    longest = max(map(len, by_bytes))

    def encode(text):
        ids, at = [], 0
        while at < len(text):
            n = next(n for n in range(min(longest, len(text) - at), 0, -1)
                     if text[at:at + n] in by_bytes)
            ids.append(by_bytes[text[at:at + n]])
            at += n
        return ids
    return encode


def escaped(b):
    r = repr(b)
    return r[2:-1]


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).resolve().parents[2]
    corpus = "\n\n".join([(root/"convert/FORMAT.md").read_text(),
                          (root/"CONTRIBUTING.md").read_text(), LINES*3])

    def cases(encode, specials, more=()):
        c = [(t, 0, encode(t, 0)) for t in (*texts(corpus, specials), *more)]
        some = texts("", specials)[:4] + texts("", specials)[-5*len(specials):]
        return c + [(t, f, encode(t, f)) for t in some for f in (1, 2, 3)]

    # SentencePiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus.split("\n")), model_writer=model, model_type="bpe",
        vocab_size=620, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=True, character_coverage=0.999,
        user_defined_symbols=USER, split_digits=True, minloglevel=2)
    p = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    definition_of_spm(model.getvalue()).write(
        out/"spm.bin", cases(lambda t, f: encode_spm(p, t, f), ["<s>", "<user>", "</s>"]))

    # byte-level BPE
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def split(pattern):
        return pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    spaces = [" "*n for n in range(12, 1, -1)]
    for name, pre, norm, pattern, added in [
        ("gpt-2",     "gpt-2",     "",    byte_level,    []),
        ("gpt-neox",  "gpt-neox",  "nfc", byte_level,    spaces),
        ("llama-bpe", "llama-bpe", "",    split(LLAMA3), []),
        ("qwen2",     "qwen2",     "nfc", split(QWEN2),  ["<tool>"]),
        ("qwen35",    "qwen35",    "nfc", split(QWEN35), ["<tool>"]),
        ("kimi-k2",   "kimi-k2",   "",    split(KIMI),   []),
    ]:
        specials = ["<|endoftext|>", "<|end|>"]
        tok = train_bpe(corpus, pattern, norm, 500, specials,
                        ignore_merges=pre in ("llama-bpe", "kimi-k2"), added=added)
        if pre == "llama-bpe":
            tok.post_processor = processors.TemplateProcessing(
                single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
        d = definition_of_bpe(tok, pre, norm, bos=0, eos=1, add_bos=int(pre == "llama-bpe"))
        tools = ["<tool>"] if "<tool>" in added else []
        # letters without case, of title case, Han and other characters of the script Han
        pool = "\u02b0\u01c5\u3005\u3007\u2e80\u05d0AbCdEf'"
        more = [random_text(random.Random(i), 300, pool).encode()
                for i in range(12 if pre == "kimi-k2" else 0)]
        d.write(out/f"{name}.bin",
                cases(lambda t, f: encode_bpe(tok, t, f), specials + tools, more))

    # World: all bytes, and pieces of the corpus
    rng = random.Random(2)
    words = {bytes([b]) for b in range(256)}
    while len(words) < 500:
        at, n = rng.randrange(len(corpus)), rng.randrange(1, 9)
        words.add(corpus[at:at + n].encode()[:rng.randrange(2, 12)])
    words = dict(enumerate(sorted(words, key=lambda w: (len(w), w)), 1))
    tokens = ["<s>"] + [escaped(w) for w in words.values()] + ["[PAD0]"]
    types = [CONTROL] + [NORMAL]*len(words) + [UNUSED]
    encode = world(words)

    def encode_world(t, f):
        if not f & PARSE_SPECIAL:
            return encode(t)
        parts = t.split(b"<s>")
        return [i for k, q in enumerate(parts) for i in ([0] if k else []) + encode(q)]

    Definition("rwkv", tokens, types, bos=0, eos=0).write(
        out/"rwkv.bin", cases(encode_world, ["<s>"]))

    # bytes
    def encode_bytes(t, f):
        parts = t.split(b"<eos>") if f & PARSE_SPECIAL else [t]
        return [i for k, q in enumerate(parts) for i in ([256] if k else []) + list(q)]

    byte_tokens = [f"<0x{b:02X}>" for b in range(256)] + ["<eos>"]
    Definition("lrnn-bytes", byte_tokens, [BYTE]*256 + [CONTROL], eos=256).write(
        out/"bytes.bin", [c for c in cases(encode_bytes, ["<eos>"]) if len(c[0]) < 1500])

    # symbols
    names = ["<s>", "<pad>"] + [f"g{i}" for i in range(60)] + ["é", "="]
    index = {n: i for i, n in enumerate(names)}

    def encode_symbols(t, f):
        ids = [index.get(s.decode(), -1) for s in t.split()]
        ids = [i if i > 1 or f & PARSE_SPECIAL else -1 for i in ids]
        return None if -1 in ids else ([0] if f & ADD_SPECIAL else []) + ids

    some = [b"", b" ", b"g1 g2\tg3\n", b"g59", b"g60", b"g1g2", b"<s> g1", "é = g0\r\n".encode()]
    some.append(b" ".join(b"g%d" % (i % 60) for i in range(300)))
    symbol_types = [CONTROL, CONTROL] + [NORMAL]*62
    Definition("lrnn-symbols", names, symbol_types, bos=0, pad=1, add_bos=1).write(
        out/"symbols.bin", [(t, f, encode_symbols(t, f)) for t in some for f in range(4)])


if __name__ == "__main__":
    main()
