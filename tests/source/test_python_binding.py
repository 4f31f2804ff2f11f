"""The declarations of examples/python/lrnn.py are those of src/lrnn.h: fields, types, layout,
prototypes, constants."""

import ctypes
import inspect
import re
import subprocess

import pytest

# C type: the ctypes that may stand for it. A char * may be NUL-terminated or not.
VALUES = {
    "bool": [ctypes.c_bool],
    "int": [ctypes.c_int],
    "int32_t": [ctypes.c_int32],
    "int64_t": [ctypes.c_int64],
    "uint64_t": [ctypes.c_uint64],
    "unsigned": [ctypes.c_uint],
    "size_t": [ctypes.c_size_t],
    "float": [ctypes.c_float],
    "double": [ctypes.c_double],
    "void": [None],
    "void *": [ctypes.c_void_p],
    "char *": [ctypes.c_char_p, ctypes.POINTER(ctypes.c_char)],
}


@pytest.fixture(scope="module")
def header(root):
    """lrnn.h without comments and preprocessor lines."""
    text = re.sub(r"//[^\n]*", "", (root / "src/lrnn.h").read_text())
    return re.sub(r"^\s*#.*$", "", text, flags=re.M)


@pytest.fixture(scope="module")
def binding(root, config):
    if not config["shared"]:
        pytest.skip("lrnn.py needs a shared library")
    if config["sanitize"]:
        pytest.skip("the header is the same without sanitizers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LRNN_LIBRARY", config["liblrnn"])
        patch.syspath_prepend(root / "examples/python")
        import lrnn
    return lrnn


def normalized(c_type):
    """A type without `const`, with one space before each asterisk."""
    words = re.sub(r"\bconst\b|\bLRNN_API\b", " ", c_type).replace("*", " * ").split()
    return " ".join(words).replace("* *", "**")


def declarations(text, separator):
    """(type, name) for each declaration: "int64_t n, m" are two, "" for a name that is left out."""
    found = []
    for part in text.split(separator):
        if not (part := " ".join(part.split())) or part == "void":
            continue
        first, *others = part.split(",") if separator == ";" else [part]
        c_type, name, array = re.fullmatch(r"(.*[\s*])(\w+)(\[\d*\])?", first.strip()).groups()
        found.append((normalized(c_type) + (array or ""), name))
        found += [(normalized(c_type), other.strip()) for other in others]
    return found


def expected_types(binding, c_type):
    """The ctypes that may stand for a type of the header."""
    structs = {f"struct {s.c_name}": s for s in binding._STRUCTS}
    if c_type in VALUES:
        return VALUES[c_type]
    if array := re.fullmatch(r"char\[(\d+)\]", c_type):
        return [ctypes.c_char * int(array.group(1))]
    if c_type in structs:
        return [structs[c_type]]
    if c_type.startswith("enum "):
        return [ctypes.c_int]
    if re.fullmatch(r"lrnn_\w+", c_type):          # a callback
        return [getattr(binding, c_type.removeprefix("lrnn"))]
    assert c_type.endswith("*"), f"no rule for the type '{c_type}'"
    target = c_type[:-1].strip()
    if target.startswith("struct ") and target not in structs and "*" not in target:
        return [ctypes.c_void_p]
    return [ctypes.POINTER(t) for t in expected_types(binding, target)]


def check(binding, where, c_type, found):
    expected = expected_types(binding, c_type)
    assert found in expected, f"{where}: {found} in lrnn.py, '{c_type}' in lrnn.h"


def fields_of(header, struct):
    body = re.search(rf"\bstruct {struct} \{{(.*?)\}};", header, re.S)
    assert body, f"lrnn.h has no struct {struct}"
    return declarations(body.group(1), ";")


def test_fields(binding, header):
    assert len(binding._STRUCTS) >= 5
    for struct in binding._STRUCTS:
        fields = fields_of(header, struct.c_name)
        names = [name for name, _ in struct._fields_]
        assert names == [name for _, name in fields], \
            f"update struct {struct.c_name} in examples/python/lrnn.py"
        for (c_type, name), (_, found) in zip(fields, struct._fields_):
            check(binding, f"{struct.c_name}.{name}", c_type, found)


def test_a_class_per_kind_of_error(binding, header):
    kinds = re.findall(r"\bLRNN_ERROR_(\w+)", header)
    assert len(binding._ERRORS) == len(kinds) > 8
    named = {"NONE": "Error", "NO_MEMORY": "MemoryShortError", "SYSTEM": "SystemCallError"}
    for kind, error in zip(kinds, binding._ERRORS):
        words = kind.removeprefix("BAD_").split("_")
        name = named.get(kind, "".join(w.capitalize() for w in words) + "Error")
        assert error.__name__ == name and error.__name__ in [*binding.__all__, "Error"]


def test_functions(binding, header):
    pattern = r"LRNN_API\s+([^;()]*?)\b(lrnn_\w+)\s*\(([^;]*?)\)\s*;"
    prototypes = {name: (normalized(result), declarations(arguments, ","))
                  for result, name, arguments in re.findall(pattern, header)}
    assert len(binding._FUNCTIONS) >= 28
    for name, (result, arguments) in binding._FUNCTIONS.items():
        assert name in prototypes, f"lrnn.h has no function {name}"
        c_result, c_arguments = prototypes[name]
        check(binding, f"{name}, result", c_result, result)
        assert len(arguments) == len(c_arguments), name
        for (c_type, argument), found in zip(c_arguments, arguments):
            check(binding, f"{name}, {argument}", c_type, found)


def test_callbacks(binding, header):
    found = re.findall(r"typedef\s+([\w\s]+?)\s*\(\*(lrnn_\w+)\)\(([^;]*?)\)\s*;", header)
    ours = 0
    for result, name, arguments in found:
        kind = getattr(binding, name.removeprefix("lrnn"), None)
        if kind is None:
            continue
        ours += 1
        check(binding, f"{name}, result", normalized(result), kind._restype_)
        assert len(kind._argtypes_) == len(declarations(arguments, ",")), name
        for (c_type, argument), ctype in zip(declarations(arguments, ","), kind._argtypes_):
            check(binding, f"{name}, {argument}", c_type, ctype)
    assert ours == 3


def test_layout(binding, config, root, tmp_path):
    """What the compiler says about sizes, offsets and constants."""
    constants = {name: f"LRNN_{name.lstrip('_')}" for name in vars(binding)
                 if name.startswith(("_TOKENIZE_", "CACHE_"))}
    assert len(constants) == 6
    values = {f"sizeof(struct {s.c_name})": ctypes.sizeof(s) for s in binding._STRUCTS}
    values |= {f"offsetof(struct {s.c_name}, {name})": getattr(s, name).offset
               for s in binding._STRUCTS for name, _ in s._fields_}
    values |= {c_name: getattr(binding, name) for name, c_name in constants.items()}
    source = tmp_path / "layout.c"
    source.write_text('#include "lrnn.h"\n#include <stdio.h>\nint main(void) {\n'
                      + "".join(f'    printf("%zu\\n", (size_t) ({e}));\n' for e in values)
                      + "    return 0;\n}\n")
    program = tmp_path / "layout"
    subprocess.run([config["c_compiler"], "-std=c11", f"-I{root / 'src'}", source, "-o", program],
                   check=True)
    out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    compiled = dict(zip(values, map(int, out.split()), strict=True))
    assert compiled == values


def test_public_functions_are_typed_and_described(binding):
    public = [getattr(binding, name) for name in binding.__all__]
    functions = [f for f in public if inspect.isfunction(f)]
    for kind in filter(inspect.isclass, public):
        assert kind.__doc__, kind
        functions += [f for base in kind.__mro__ if base.__module__ == "lrnn"
                      for name, f in inspect.getmembers(base, inspect.isfunction)
                      if base is not binding._Object and (name == "__init__" or name[0] != "_")]
        functions += [f.fget for f in vars(kind).values() if isinstance(f, property)]
    assert len(functions) > 40
    for f in functions:
        parameters = [p for p in inspect.signature(f).parameters.values() if p.name != "self"]
        assert all(p.annotation is not p.empty for p in parameters), f
        assert inspect.signature(f).return_annotation is not inspect.Signature.empty, f
        assert f.__doc__ or f.__name__ == "__init__", f
