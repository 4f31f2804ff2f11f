"""Errors that a new user meets name the next step."""

import json
import pickle
import shlex
import sys
import zipfile
from pathlib import Path

import pytest

from lrnn_convert.cli import main

DISTCP = Path(__file__).parent / "data" / "distcp"


class Model:
    """Pickled as a whole, by reference to its class."""


@pytest.fixture
def fails(tmp_path, capsys, monkeypatch):
    """fails(code, *args): the error, which must be one line."""
    monkeypatch.chdir(tmp_path)

    def run(code, *args):
        assert main([str(a) for a in args]) == code
        err = capsys.readouterr().err
        assert err.startswith("lrnn-convert: ") and err.count("\n") == 1
        return err

    return run


def test_a_distributed_checkpoint_needs_a_configuration(fails):
    err = fails(4, DISTCP, "-o", "x.gguf")
    assert "no config.json" in err and "add --config FILE" in err
    Path("other.json").write_text(json.dumps({"model_type": "nonsense"}))
    assert "--config" not in fails(4, DISTCP, "--config", "other.json", "-o", "x.gguf")


@pytest.mark.parametrize("is_in_folder", [False, True])
def test_lightning(fails, is_in_folder):
    Path("d").mkdir()
    Path("d/last.ckpt").write_bytes(b"PK")
    err = fails(3, "d" if is_in_folder else "d/last.ckpt", "-o", "x.gguf")
    assert "torch.save(torch.load('last.ckpt')['state_dict'], 'weights.pth')" in err


def test_a_pickle_of_a_whole_model(fails):
    with zipfile.ZipFile("model.pt", "w") as z:
        z.writestr("model/data.pkl", pickle.dumps(Model(), protocol=2))
    err = fails(3, "model.pt", "-o", "x.gguf")
    assert "refers to test_next_steps.Model; refused" in err
    assert "torch.save(model.state_dict(), 'weights.pth')" in err


def test_a_model_file(fails):
    Path("m.gguf").write_bytes(b"GGUF")
    assert "lrnn-quantize" in fails(3, "m.gguf", "-o", "x.gguf")


def test_downloads_without_the_package(fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    needs = ("downloads need the package huggingface_hub: "
             f"{shlex.quote(sys.executable)} -m pip install huggingface_hub")
    for args in (["org/some-name", "-o", "x.gguf"], ["get", "org/some-name", "m.gguf"],
                 ["data", "--download", "triviaqa", "-o", "x.jsonl"]):
        assert needs in fails(2, *args)
    Path("org").mkdir()
    for path in ("org/some-name", "name", "a/b/c", "/org/name", "../org/name", "org/name.pth"):
        assert "no such file" in fails(3, path, "-o", "x.gguf")


def test_json_lines_are_read_directly(fails):
    Path("a.jsonl").write_text('{"content": "a"}\n')
    err = fails(3, "data", "a.jsonl", "-o", "b.jsonl")
    assert "lrnn-perplexity run --data" in err and "--template '{FIELD}'" in err


@pytest.mark.parametrize("args, says", [
    (["x", "-o", "y", "--tpye", "f16"], "unknown option --tpye; did you mean --type?"),
    (["--ouput=y", "x"], "unknown option --ouput; did you mean --output?"),
    (["x", "-o", "y", "--eigenvalue-range", "signed"], "did you mean --eigenvalues?"),
    (["data", "--ouput", "o", "x"], "unknown option --ouput; did you mean --output?"),
    (["automaton", "--regexp", "a"], "unknown option --regexp; did you mean --regex?"),
    (["exact", "--verbose"], "unknown option --verbose (--help lists the options)"),
    (["automatn", "--regex", "a"], "automatn: no such file or folder; did you mean the command "
                                   "automaton?"),
    (["dta", "x", "-o", "y"], "did you mean the command data?"),
    (["exact", "-o", ".", "parity-kd"], "did you mean parity-kda?"),
])
def test_misspellings(fails, args, says):
    assert says in fails(2, *args)


def test_abbreviations_and_values_are_not_misspellings(fails):
    assert "no such file" in fails(3, "x", "-o", "y", "--typ", "f16", "--ignore-key=--a")
    assert "no such file" in fails(3, "-o", "y", "--", "--tpye")
    Path("dta").mkdir()
    assert "no weights" in fails(3, "dta", "-o", "y")
