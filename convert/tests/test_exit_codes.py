"""One list of exit codes for all programs: each code has its cause, and --help lists it."""

import re
from pathlib import Path

import numpy as np
import pytest
import tiny
from lrnn_convert.cli import COMMANDS, main
from lrnn_convert.errors import EXIT_CODES

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "examples" / "common" / "exit-code.c"


def test_the_list_is_that_of_the_programs():
    numbers = re.findall(r"^    (EXIT_CODE_\w+),", LIST.with_suffix(".h").read_text(), re.M)
    texts = dict(re.findall(r'\[(EXIT_CODE_\w+)\]\s*= "(.*)"', LIST.read_text()))
    shared = {numbers.index(name): text for name, text in texts.items()}
    assert len(shared) == 7
    # the converter cannot be stopped and resumed
    assert EXIT_CODES == {code: text for code, text in shared.items() if code != 5}


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_lists_the_codes_and_fits_a_terminal(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--help"])
    lines = [f"  {code} {text}" for code, text in EXIT_CODES.items()]
    lines.append("  128 + N ended by signal N")
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert text.endswith("\n".join(["exit status:", *lines, ""]))
    assert [line for line in text.splitlines() if len(line) > 80] == []


@pytest.fixture
def places(bench):
    """Names of the inputs below."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    good, folder = bench.save(*tiny.delta_net()), bench.path
    (folder / "a.txt").write_text("states: a b\nstart: a\nx: b a\n")
    pq.write_table(pa.table({"text": ["one"]}), folder / "t.parquet")
    (folder / "folder").mkdir()
    damaged = folder / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_text("{")
    (damaged / "model.safetensors").write_bytes((good / "model.safetensors").read_bytes())
    config, tensors = tiny.delta_net()
    unsupported = folder / "unsupported"
    bench.folder = unsupported
    bench.save(config | {"model_type": "bert"}, tensors)
    infinite = folder / "infinite"
    bench.folder = infinite
    tensors["lm_head.weight"][0, 0] = np.inf
    bench.save(config, tensors)
    # its images are too many sets
    states = [f"q{i}" for i in range(24)]
    rows = [" ".join(states[i * i * k % 23 + (i * k % 11 == 0)] for i in range(24))
            for k in (1, 2, 3)]
    rows.append(" ".join(states[(i + 1) % 24] for i in range(24)))
    lines = [f"states: {' '.join(states)}", "start: q0"]
    lines += [f"{k}: {row}" for k, row in enumerate(rows)]
    (folder / "large.txt").write_text("\n".join(lines))
    (folder / "bad.txt").write_text("start: a\n")
    (folder / "bad.parquet").write_bytes(b"PAR1")
    return {"GOOD": good, "DIR": folder / "folder", "OUT": folder / "out", "A": folder / "a.txt",
            "P": folder / "t.parquet", "DAMAGED": damaged, "UNSUPPORTED": unsupported,
            "INFINITE": infinite, "LARGE": folder / "large.txt", "BAD": folder / "bad.txt",
            "BADP": folder / "bad.parquet", "NONE": folder / "none", "HERE": folder}


CASES = [
    (0, "GOOD -o OUT"), (0, "GOOD --dry-run"), (0, "automaton A -o OUT"), (0, "data P -o OUT"),
    (0, "exact parity-delta-net -o DIR"), (0, "data P -o -"),
    (1, "GOOD -o DIR"), (1, "automaton A -o DIR"), (1, "data P -o DIR"),
    (2, ""), (2, "GOOD"), (2, "GOOD -o NONE/x"), (2, "GOOD -o -"), (2, "GOOD -o OUT --type q3"),
    (2, "GOOD -o OUT --trained-length 0"), (2, "GOOD -o GOOD/config.json"), (2, "automaton"),
    (2, "automaton A -o A"), (2, "exact nothing -o DIR"), (2, "exact -o NONE"), (2, "data P"),
    (2, "data P -o P"), (2, "GOOD -o OUT --nonsense"),
    (3, "NONE -o OUT"), (3, "DAMAGED -o OUT"), (3, "DIR -o OUT"), (3, "INFINITE -o OUT"),
    (3, "GOOD -o OUT --tokenizer NONE"), (3, "GOOD -o OUT --tokenizer bytes"),
    (3, "automaton NONE -o OUT"), (3, "automaton BAD -o OUT"), (3, "data NONE -o OUT"),
    (3, "data BADP -o OUT"), (3, "data A -o OUT"),
    (4, "UNSUPPORTED -o OUT"),
    (4, "automaton LARGE -o OUT"),
]


def path_of(word, places):
    first, slash, rest = word.partition("/")
    return str(places[first] / rest) if first in places else word


@pytest.mark.parametrize("code, command", CASES)
def test_codes(bench, places, code, command):
    before = sorted(places["HERE"].rglob("*"))
    assert main([path_of(word, places) for word in command.split()]) == code
    err = bench.capsys.readouterr().err
    assert [line[:14] for line in err.splitlines()].count("lrnn-convert: ") == (code != 0)
    if code != 0:
        assert sorted(places["HERE"].rglob("*")) == before


def test_every_code_has_a_case():
    # 6: tests/programs/test_convert_verify.py
    assert {code for code, _ in CASES} | {6} == set(EXIT_CODES)
