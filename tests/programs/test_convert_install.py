"""An installed lrnn-convert: the launcher, its errors, the man pages and completions."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "convert"), str(ROOT / "convert" / "tests")]

import tiny  # noqa: E402
from lrnn_convert.cli import COMMANDS  # noqa: E402

SITE = Path(next(p for p in sys.path if p.endswith("site-packages")))


@pytest.fixture(scope="module")
def plain_python(tmp_path_factory):
    """Without packages."""
    folder = tmp_path_factory.mktemp("plain")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    """Moved after the installation."""
    folder = tmp_path_factory.mktemp("install with a space")
    subprocess.run(["cmake", "--install", build, "--prefix", folder / "first"], check=True,
                   capture_output=True)
    return (folder / "first").rename(folder / "prefix")


@pytest.fixture
def convert(prefix, plain_python, tmp_path):
    """Runs the installed launcher."""
    def run(*args, program=prefix / "bin/lrnn-convert", path="/usr/bin:/bin", **env):
        env = {"PATH": path, "LRNN_PYTHON": str(plain_python)} | env
        return subprocess.run([program, *args], cwd=tmp_path, env=env, capture_output=True,
                              text=True)

    return run


def test_version_needs_no_packages(convert, prefix, tmp_path):
    (tmp_path / "link").symlink_to(prefix / "bin/lrnn-convert")
    for program in (prefix / "bin/lrnn-convert", tmp_path / "link"):
        done = convert("--version", program=program)
        assert re.fullmatch(r"lrnn-convert \d+\.\d+\.\d+\n", done.stdout), done.stderr


def test_missing_packages_are_named(convert, plain_python, tmp_path):
    def missing():
        done = convert("--help", PYTHONPATH=str(tmp_path / "modules"))
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
        found = re.fullmatch(rf"lrnn-convert: {plain_python} has no (.*); install what is missing: "
                             rf"{plain_python} -m pip install (.*), or set LRNN_PYTHON .*\n",
                             done.stderr)
        assert re.findall(r"'?(\w+)[^ ]*", found[2]) == found[1].split(", ")
        return found[1]

    assert missing() == "gguf, jinja2, numpy"
    (tmp_path / "modules").mkdir()
    for name in ("gguf", "numpy", "numpy.libs"):
        if (SITE / name).exists():
            (tmp_path / "modules" / name).symlink_to(SITE / name)
    assert missing() == "jinja2"
    for path in SITE.iterdir():            # all but numpy
        if not (tmp_path / "modules" / path.name).exists():
            (tmp_path / "modules" / path.name).symlink_to(path)
    (tmp_path / "modules/numpy").unlink()
    assert missing() == "numpy"


def test_no_python(convert, tmp_path):
    for python in ("missing-python", str(tmp_path / "python")):
        done = convert("--version", LRNN_PYTHON=python)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
        assert "Python 3.11 or later" in done.stderr and "LRNN_PYTHON" in done.stderr


@pytest.mark.parametrize("how", ["PYTHONPATH", "LRNN_PYTHON"])
def test_conversion(convert, prefix, tmp_path, lrnn, how):
    """Packages from PYTHONPATH, or from another interpreter. The folder of the checkpoint has a
    module that must not be imported."""
    from safetensors.numpy import save_file
    config, tensors = tiny.delta_net()
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported from the current folder')")
    value = str(SITE) if how == "PYTHONPATH" else sys.executable
    done = convert(".", "-o", "../out.gguf", **{how: value})
    assert done.returncode == 0, done.stderr
    assert "family:    delta_net" in done.stderr
    lrnn.run("lrnn-inspect", tmp_path.parent / "out.gguf", stdout="delta_net")
    installed = prefix / "share/lrnn/convert"
    assert not list(installed.rglob("__pycache__")) and (installed / "pyproject.toml").is_file()


# ---- man pages and completions


@pytest.fixture(scope="module")
def parsers():
    """--help of the converter and its commands, by name of the man page."""
    def options(command):
        done = subprocess.run([sys.executable, "-m", "lrnn_convert", *command, "--help"],
                              capture_output=True, text=True, check=True,
                              env=os.environ | {"PYTHONPATH": str(ROOT / "convert")})
        return set(re.findall(r"^  (?:-\w(?: \S+)?, )?--([a-z-]+)", done.stdout, re.M))

    return {"lrnn-convert": options([])} | {f"lrnn-convert-{c}": options([c]) for c in COMMANDS}


def test_man_pages_name_every_option(prefix, parsers):
    for page, options in parsers.items():
        path = prefix / "share/man/man1" / f"{page}.1"
        text = path.read_text().replace("\\-", "-")
        assert len(options) >= 2 and [o for o in options if f"--{o}" not in text] == []
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-K", "utf8", "-ww", path],
                                  capture_output=True, text=True, check=True)
            assert done.stderr == "" and "SYNOPSIS" in re.sub(".\b", "", done.stdout)


@pytest.mark.parametrize("file, mark", [("bash-completion/completions/lrnn-convert", "--"),
                                        ("zsh/site-functions/_lrnn-convert", "--"),
                                        ("fish/vendor_completions.d/lrnn-convert.fish", "-l ")])
def test_completions_name_every_option_and_command(prefix, parsers, file, mark):
    text = (prefix / "share" / file).read_text()
    words = {mark + o for options in parsers.values() for o in options} | set(COMMANDS)
    assert [word for word in words if word not in text] == []


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize("words, expected", [
    (["--ty"], {"--type"}), (["x", "--type", ""], {"f32", "f16", "bf16", "q8_0"}),
    (["da"], {"data", "database"}), (["data", "--ou"], {"--output"}),
    (["data", "-o", "d"], {"database"}),
    (["chat-format", "--"], {"--help", "--output", "--describe"}),
    (["x", "--eigenvalues", "s"], {"signed"}), (["database", "--re"], set()),
])
def test_bash_completes(prefix, tmp_path, words, expected):
    (tmp_path / "database").mkdir()
    file = prefix / "share/bash-completion/completions/lrnn-convert"
    script = (f'source "{file}"\nCOMP_WORDS=(lrnn-convert "$@")\nCOMP_CWORD=$#\n_lrnn_convert\n'
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", *words], cwd=tmp_path, check=True,
                          capture_output=True, text=True)
    assert set(done.stdout.split()) == expected
