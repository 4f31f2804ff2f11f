"""The training programs of models/train, without PyTorch: the models of the page of `paper` and
those that ship have recipes, and only finished runs are exported."""

import importlib
import json
import re
import sys
from types import ModuleType

import pytest


class Anything(ModuleType):
    """Stands for a module that the environment of the tests does not have, and for what is in it:
    a function that returns what it is given, or itself."""

    def __getattr__(self, name):
        return type(name, (), {}) if name[0].isupper() else Anything(name)

    def __call__(self, *args, **_):
        return args[0] if args and callable(args[0]) else self


@pytest.fixture
def train(root, monkeypatch):
    """Imports a training program."""
    for name in ("torch", "torch.nn", "torch.nn.functional", "checkpoint", "layers", "xlstm"):
        monkeypatch.setitem(sys.modules, name, Anything(name))
    for name in ("tasks", "train_tasks", "export"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(root / "models/train")
    return importlib.import_module


def strings(text, array):
    """The strings of each row of an array in C."""
    body = re.search(rf"\b{array}\[\w*\] = {{\n(.*?)\n}};", text, re.S)[1]
    rows = re.findall(r"^    {(.*?)}(?:,$|\Z)", body, re.S | re.M)
    return [re.findall(r'"(.*?)"', row) for row in rows]


def names_of_the_page(root):
    text = (root / "examples/paper/main.c").read_text()
    models = {name: [row[2] for row in strings(text, name) if row]
              for name in ("TABLE_MODELS", "GROUP_MODELS", "S5_MODELS", "SMALL_MODELS")}
    tables = re.search(r"} TABLES\[\] = {\n(.*?)\n};", text, re.S)[1]
    figures = re.search(r"} FIGURES\[\] = {\n(.*?)\n};", text, re.S)[1]
    found = re.findall(r'^    { "[^"]*", "(.*?)"', tables, re.M)
    found = [(file, "TABLE_MODELS") for file in found]
    found += re.findall(r'^    { "[^"]*", "(.*?)", (\w+)', figures, re.M)
    return [f"{file}-{model}" for file, array in found for model in models[array]]


def test_every_model_of_the_page_has_a_recipe(root, train):
    names = names_of_the_page(root)
    assert len(names) == len(set(names)) == 21 + 5 * 7 + 2 + 2 * 6
    assert set(names) - set(train("train_tasks").recipes()) == set()


def test_every_shipped_model_has_a_recipe_and_a_row(root, train):
    shipped = {path.stem for path in (root / "models").glob("*.gguf")}
    text = (root / "models/README.md").read_text()
    assert len(shipped) > 30
    tracking = {name for name in shipped if not name.startswith(("text-", "stories-", "code-"))}
    assert tracking - set(train("train_tasks").recipes()) == set()
    assert {name for name in shipped if f"| `{name}` |" not in text} == set()


def write_log(folder, *steps):
    folder.mkdir(parents=True)
    lines = [json.dumps(dict(step=step, steps=200, length=512, cpu_seconds=60,
                             held_out=dict(novels=2.0))) for step in steps]
    (folder / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_only_finished_runs_are_exported(train, tmp_path, monkeypatch, capsys):
    export = train("export")
    exported = []

    def convert(folder, output, signed, *options):
        exported.append((output.name, signed, options[-3:] if "bytes" in options else options))
        return 1000

    monkeypatch.setattr(export, "convert", convert)
    write_log(tmp_path / "text-delta-neg", 100, 200)
    write_log(tmp_path / "text-delta-pos", 100)
    write_log(tmp_path / "code-delta-neg")
    (tmp_path / "parity-slstm").mkdir()
    (tmp_path / "parity-slstm/curve.jsonl").write_text("")
    export.export_tasks(tmp_path, tmp_path)
    export.export_text(tmp_path, tmp_path)
    assert exported == [("text-delta-neg.gguf", True, ("512", "--tokenizer", "bytes"))]
    out, err = capsys.readouterr()
    assert "| `text-delta-neg` | 200 | 2.000 | 1 min |" in out
    assert err.splitlines() == ["not finished: parity-slstm",
                                "not finished: code-delta-neg, 0 steps",
                                "not finished: text-delta-pos, 100 steps"]
