"""One list of exit codes for all programs: each code has its cause, and --help lists it."""

import re
from pathlib import Path

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
    folder = bench.path
    (folder / "a.txt").write_text("states: a b\nstart: a\nx: b a\n")
    (folder / "bert.json").write_text('{"model_type": "bert"}')
    (folder / "folder").mkdir()
    pq.write_table(pa.table({"text": ["one"]}), folder / "t.parquet")
    return {"GOOD": bench.save(*tiny.delta_net()), "DIR": folder / "folder", "OUT": folder / "out",
            "A": folder / "a.txt", "P": folder / "t.parquet", "BERT": folder / "bert.json",
            "NONE": folder / "none", "HERE": folder}


# those that no other test has, and one for every code
CASES = [
    (0, "GOOD -o OUT"), (0, "GOOD --dry-run"), (1, "GOOD -o DIR"),
    (2, ""), (2, "GOOD"), (2, "GOOD -o NONE/x"), (2, "exact -o NONE"), (2, "data P"),
    (3, "DIR -o OUT"), (3, "GOOD -o OUT --tokenizer NONE"), (3, "automaton NONE -o OUT"),
    (3, "data NONE -o OUT"), (4, "GOOD --config BERT -o OUT"),
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
