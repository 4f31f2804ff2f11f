"""The training programs of models/train, without PyTorch: the models of the page of `paper` and
those that ship have recipes, training texts are read as models/README.md describes them, and only
finished runs are exported."""

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
    for name in ("torch", "torch.nn", "torch.nn.functional", "tokenizers", "checkpoint", "layers",
                 "xlstm"):
        monkeypatch.setitem(sys.modules, name, Anything(name))
    for name in ("tasks", "text", "train_tasks", "export"):
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


def test_novels_end_where_the_license_begins(train, tmp_path):
    text = train("text")
    (tmp_path / "novels").mkdir()
    file = tmp_path / "novels/1.txt"
    lines = ["Title", "*** START OF THE PROJECT GUTENBERG EBOOK X ***", "", "It was a *** night.",
             "The end.", "*** END OF THE PROJECT GUTENBERG EBOOK X ***", "License"]
    file.write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    assert text.novels(tmp_path) == ["It was a *** night.\nThe end."]
    file.write_text("\n".join(lines[:5]))
    with pytest.raises(SystemExit, match="1.txt: found 1 lines .*expected one of each"):
        text.novels(tmp_path)


def test_python_files(train, tmp_path):
    """Short files, long lines, few letters and copies are left out, and so is what exceeds the
    share of a package."""
    text = train("text")
    good = "x = 'a line of a program'\n" * 100
    files = {"a/good.py": good, "b/copy.py": good, "c.py": good.replace("line", "word"),
             "a/short.py": good[:1000], "a/wide.py": good + "y" * 1001,
             "a/long.py": ("z" * 120 + "\n") * 20, "a/signs.py": "+-=(),.;" * 12 + "\n" * 1100,
             "a/notes.txt": good, **{f"d/{i}.py": f"# {i}\n" + 40 * good for i in range(9)}}
    for name, content in files.items():
        path = tmp_path / "python" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    found = text.python(tmp_path)
    assert {good, files["c.py"]} < set(found)
    of_d = [x for x in found if x.startswith("# ")]
    assert len(found) == 2 + len(of_d) and len(of_d) == 420_000 // len(files["d/0.py"])


def test_first_records(train, tmp_path):
    text = train("text")
    record = dict(question="1 + 1?\u2028", answer="2")
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps(record, ensure_ascii=False) + "\n")
    record["answer"] = dict(value="2")
    (tmp_path / "triviaqa.jsonl").write_text((json.dumps(record) + "\n") * 3001)
    assert text.problems(tmp_path) == ["Problem: 1 + 1?\u2028, Solution: 2"]
    assert text.questions(tmp_path) == 3000 * ["Question: 1 + 1?\u2028, Answer: 2"]


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
