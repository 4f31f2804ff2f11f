"""The boundaries between the public API, the floors of the library, the evaluation library and the
programs."""

import re
import subprocess
from pathlib import Path

import pytest

LRNN_H_MAX_LINES = 565

# A floor includes itself and those before it. The ops are beside the first three: they are compiled
# into ggml's libraries and know only lrnn.h.
FLOORS = ["base", "file", "text", "model", "run", "generate"]
OPS_HEADERS = {"model": ["ops/glue.h", "ops/lrnn-ops.h", "ops/product-limits.h"],
               "run": ["ops/lrnn-ops.h", "ops/scan-common.h"]}
EVAL_FLOORS = ["data", "scores", "estimates", "report"]
EVAL_TASKS = "tasks"  # beside them
# what lrnn-eval uses of examples/common
EVAL_COMMON = ["json-write.h", "log-softmax.h", "memory.h"]
GGML_HEADER = re.compile(r"ggml[\w-]*\.h|gguf\.h")
INCLUDE_PATHS = ["src", "src/ops", "examples", "examples/common"]
SOURCES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".comp", ".glsl", ".inc"}


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
    """The files of a folder that may have include lines."""
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCES)


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


def cpp_scope(name):
    """The outermost namespace, class or function of a mangled name; None: one of std."""
    found = re.match(r"_Z(?:T[VTIS]|GV|Z)*N?[rVKRO]*(?:(S[tabsiod])|L?(\d+))", name)
    assert found, name
    return None if found[1] else name[found.end():][: int(found[2])]


@pytest.mark.parametrize("name, scope", [
    ("_ZN4ggml3cpu17extra_buffer_typeD0Ev", "ggml"), ("_Z8dl_errorv", "dl_error"),
    ("_ZNK7gguf_kv6get_neEv", "gguf_kv"), ("_ZTVN4ggml3cpu17extra_buffer_typeE", "ggml"),
    ("_ZNSt6vectorIcSaIcEE17_M_default_appendEm", None), ("_ZSt4moveIRiEvOT_", None)])
def test_scope_of_mangled_names(name, scope):
    assert cpp_scope(name) == scope


def test_ggml_exports_no_private_function(root, config):
    """The libraries of ggml with our ops export what stock ggml exports, and ggml_* of ours. Of
    C++ they export std and what ggml's own sources name; ours do not occur there."""
    stock = r"(ggml|gguf|quantize|dequantize)_\w+|iq[23]xs_(init|free)_impl|llamafile_sgemm"
    folder = Path(config["ggml_source"]) / "src"
    sources = [*(p for p in folder.iterdir() if p.is_file()), *c_files(folder / "ggml-cpu")]
    assert len(sources) > 50
    words = {None}.union(*(re.findall(r"\w+", p.read_text(errors="replace")) for p in sources))
    for library in config["libggml"]:
        names = exports(config, library)
        assert any(name.startswith("ggml_") for name in names)
        private = {n for n in names if not re.fullmatch(stock, n)
                   and not (n.startswith("_Z") and cpp_scope(n) in words)}
        nothing(private, f"private exports of {library}")


def test_library_exports_exactly_lrnn_h(config, public_functions):
    exported = exports(config, config["liblrnn"])
    nothing(exported - public_functions, "exported, but not declared in lrnn.h")
    nothing(public_functions - exported, "declared in lrnn.h, but not exported")


def test_lrnn_h_is_short(root):
    n_lines = len((root / "src/lrnn.h").read_text().splitlines())
    assert n_lines <= LRNN_H_MAX_LINES


def includes(path):
    """(bracket, header) of every include line."""
    text = strip_comments_and_strings(path.read_text())
    return re.findall(r'^\s*#\s*include\s*(["<])([^">]+)[">]', text, flags=re.M)


def bad_includes(root, folder, quoted):
    """Include lines of a folder that are neither quoted headers that `quoted` accepts nor system
    headers. A project header in angle brackets is no system header."""
    bad = []
    for path in c_files(root / folder):
        searched = (path.parent, *(root / f for f in INCLUDE_PATHS))
        for bracket, header in includes(path):
            if bracket == "<":
                ours = any((f / header).exists() for f in searched)
                good = not ours and not GGML_HEADER.fullmatch(header)
            else:
                good = quoted(path, header)
            if not good:
                bad.append(f"{path.relative_to(root)}: {header}")
    return bad


def below(folders, folder):
    return folders[: folders.index(folder) + 1]


@pytest.mark.parametrize("floor", FLOORS)
def test_includes_point_down_the_floors(root, floor):
    def quoted(path, header):
        return (header == "lrnn.h" or header in OPS_HEADERS.get(floor, [])
                or GGML_HEADER.fullmatch(header) or header.endswith(".inc")
                or header.split("/")[0] in below(FLOORS, floor))

    assert list(c_files(root / "src" / floor))
    nothing(bad_includes(root, f"src/{floor}", quoted), "includes of a floor above")


def test_every_file_of_the_library_is_on_a_floor(root):
    found = {p.relative_to(root / "src").parts[0] for p in c_files(root / "src")}
    assert found == {*FLOORS, "ops", "lrnn.h"}
    assert all(bracket == "<" for bracket, _ in includes(root / "src/lrnn.h"))


def test_ops_know_nothing_about_the_library(root):
    def quoted(path, header):
        return header.split("/")[0] not in FLOORS

    nothing(bad_includes(root, "src/ops", quoted), "includes of the library")


@pytest.mark.parametrize("floor", [*EVAL_FLOORS, EVAL_TASKS])
def test_eval_includes_point_down_its_floors(root, floor):
    floors = [EVAL_TASKS] if floor == EVAL_TASKS else below(EVAL_FLOORS, floor)
    allowed = [f"eval/{f}/" for f in floors] + (["chart/"] if floor == "report" else [])

    def quoted(path, header):
        return header in ("lrnn.h", *EVAL_COMMON) or header.startswith(("base/", *allowed))

    assert list(c_files(root / "examples/eval" / floor))
    nothing(bad_includes(root, f"examples/eval/{floor}", quoted), "includes of a floor above")


def test_charts_know_nothing_about_the_evaluation(root):
    def quoted(path, header):
        return header == "memory.h" or header.startswith(("base/", "chart/"))

    nothing(bad_includes(root, "examples/chart", quoted), "includes of other folders")


def test_every_file_of_the_evaluation_library_is_on_a_floor(root):
    folder = root / "examples/eval"
    found = {p.relative_to(folder).parts[0] for p in c_files(folder)}
    assert found == {*EVAL_FLOORS, EVAL_TASKS}


def test_programs_include_no_private_header(root):
    files = [p.relative_to(root / "examples") for p in c_files(root / "examples")]
    assert all(len(p.parts) > 1 for p in files)
    for name in sorted({p.parts[0] for p in files} - {"eval"}):
        program = root / "examples" / name
        own = {p.name for f in (program, root / "examples/common") for p in f.rglob("*.h")}

        def quoted(path, header, own=own):
            return (header in own or header in ("lrnn.h", "lrnn-ops.h", "httplib.h")
                    or GGML_HEADER.fullmatch(header)
                    or header.startswith(("base/", "generate/", "chart/", "eval/")))

        nothing(bad_includes(root, program.relative_to(root), quoted), "private includes")


def test_errno_is_no_class_of_errors(root):
    """errno says why a system call failed. The kind of an error is in struct lrnn_error."""
    users = {"base/atomic-file.c", "base/error.c", "file/model-file.c"}
    found = {str(p.relative_to(root / "src")) for p in c_files(root / "src")
             if re.search(r"\berrno\b", strip_comments_and_strings(p.read_text()))}
    nothing(found - users, "a new user of errno")


def test_private_names_have_no_prefix(root, lrnn_h):
    """Functions and types whose names begin with lrnn_ are those of lrnn.h."""
    public = set(re.findall(r"\blrnn_\w+", lrnn_h))
    bad = []
    for folder in [root / "src" / f for f in FLOORS] + [root / "examples"]:
        for path in c_files(folder):
            text = strip_comments_and_strings(path.read_text())
            for name in sorted(set(re.findall(r"\blrnn_\w+", text)) - public):
                bad.append(f"{path.relative_to(root)}: {name}")
    nothing(bad, "private names with the prefix lrnn_")


def test_runs_of_a_unit_test_share_no_file(root):
    """Two runs in one folder do not disturb each other: test_own_path makes their names."""
    found = []
    for path in c_files(root / "tests/unit"):
        text = re.sub(r"test_own_path\([^;]*;", "", path.read_text())
        found += [f"{path.name}: {name}" for name in re.findall(r'"test-[\w-]+\.\w+"', text)]
    nothing(found, "files with a fixed name")
