"""The boundaries between the public API, its implementation, the programs and src/eval."""

import re
import subprocess

import pytest

LRNN_H_MAX_LINES = 480
PRIVATE = ["base", "file", "text", "models", "run", "eval"]


def strip_comments_and_strings(text):
    """C source without comments and with empty string literals; include lines stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|^\s*#\s*include[^\n]*|"(?:\\.|[^"\\\n])*"'

    def replace(match):
        found = match.group()
        if found.startswith(("//", "/*")):
            return " "
        return '""' if found.startswith('"') else found

    return re.sub(pattern, replace, text, flags=re.S | re.M)


def nothing(found, title):
    assert not found, "\n".join([f"{title}:", *sorted(found)])


def c_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h", ".cpp"))


@pytest.fixture(scope="module")
def lrnn_h(root):
    return strip_comments_and_strings((root / "src/lrnn.h").read_text())


@pytest.fixture(scope="module")
def public_functions(lrnn_h):
    functions = set(re.findall(r"\b(lrnn_\w+)\s*\(", lrnn_h))
    assert len(functions) > 20
    return functions


def exports(config, library):
    if not config["shared"]:
        pytest.skip("static libraries export everything")
    out = subprocess.run(["nm", "-D", "--defined-only", library],
                         check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1] for line in out.splitlines()}
    if config["sanitize"]:
        names = {name for name in names if not name.startswith(("__asan", "__odr_asan"))}
    return names


def test_ggml_exports_no_private_function(config):
    """The libraries of ggml with our ops export what stock ggml exports, and ggml_* of ours."""
    stock = r"(ggml|gguf|quantize|dequantize)_\w+|iq[23]xs_(init|free)_impl|llamafile_sgemm|_Z.*"
    for library in config["libggml"]:
        names = exports(config, library)
        assert any(name.startswith("ggml_") for name in names)
        nothing({n for n in names if not re.fullmatch(stock, n)}, f"private exports of {library}")


def test_library_exports_exactly_lrnn_h(config, public_functions):
    exported = exports(config, config["liblrnn"])
    nothing(exported - public_functions, "exported, but not declared in lrnn.h")
    nothing(public_functions - exported, "declared in lrnn.h, but not exported")


def test_lrnn_h_is_short(root):
    n_lines = len((root / "src/lrnn.h").read_text().splitlines())
    assert n_lines <= LRNN_H_MAX_LINES


def bad_includes(root, folder, quoted):
    """Include lines of a folder that are neither quoted headers that `quoted` accepts nor system
    headers. A project header in angle brackets is no system header."""
    bad = []
    for path in c_files(root / folder):
        for line in strip_comments_and_strings(path.read_text()).splitlines():
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if not match:
                continue
            bracket, header = match.groups()
            if bracket == "<":
                ours = (root / "src" / header).exists() or (root / "src/ops" / header).exists()
                good = not ours and not header.startswith("ggml")
            else:
                good = quoted(header)
            if not good:
                bad.append(f"{path.relative_to(root)}: {line.strip()}")
    return bad


def in_folder(root, folder, header):
    return header.startswith(f"{folder}/") and (root / "src" / header).is_file()


def test_base_includes_only_base(root):
    bad = bad_includes(root, "src/base", lambda header: in_folder(root, "base", header))
    nothing(bad, "private includes")


def test_eval_includes_only_the_api_and_base(root):
    def quoted(header):
        return header == "lrnn.h" or any(in_folder(root, f, header) for f in ("base", "eval"))

    nothing(bad_includes(root, "src/eval", quoted), "private includes")


def test_programs_include_no_private_header(root):
    own = {p.name for p in (root / "examples").rglob("*.h")}

    def quoted(header):
        return (header in own or header in ("lrnn.h", "lrnn-ops.h", "httplib.h")
                or re.fullmatch(r"ggml[\w-]*\.h|gguf\.h", header)
                or any(in_folder(root, f, header) for f in ("base", "eval")))

    nothing(bad_includes(root, "examples", quoted), "private includes")


def test_private_names_have_no_prefix(root, lrnn_h):
    """Functions and types whose names begin with lrnn_ are those of lrnn.h."""
    public = set(re.findall(r"\blrnn_\w+", lrnn_h))
    bad = []
    for folder in [root / "src" / f for f in PRIVATE] + [root / "examples"]:
        for path in c_files(folder):
            text = strip_comments_and_strings(path.read_text())
            for name in sorted(set(re.findall(r"\blrnn_\w+", text)) - public):
                bad.append(f"{path.relative_to(root)}: {name}")
    nothing(bad, "private names with the prefix lrnn_")
