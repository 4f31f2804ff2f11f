"""What src/ops/cpu/barriers.c and src/ops/rpc-check.c assume about ggml, read from the sources of
ggml that this build compiles. If ggml changes one of these facts, look at the named file again."""

import re

import pytest

CALLED = r"\bggml_compute_forward_\w+|\bapply_\w+|\b(?:bin|un)ary_\w*"  # by kernels
KERNELS = ["ops.cpp", "unary-ops.cpp", "binary-ops.cpp", "ggml-cpu.c"]


def body(text, head):
    """The function whose definition contains `head`, from there to its last brace in column 1."""
    found = re.search(rf"^[^\n;]*{head}[^;]*?{{.*?^}}", text, re.M | re.S)
    assert found, f"no function {head}"
    return found.group()


def cases(function):
    """{op: code} of the switch of a function."""
    result, names = {}, []
    for line in function.splitlines():
        found = re.match(r"\s*case (GGML_OP_\w+):(.*)", line)
        if found:
            names = [*names, found.group(1)] if not result.get("open") else [found.group(1)]
            result["open"] = ""
            line = found.group(2)
        elif re.match(r"\s*default:", line):
            names = []
        if line.strip():
            result["open"] = "code"
            for name in names:
                result[name] = result.get(name, "") + line + "\n"
    result.pop("open", None)
    return result


@pytest.fixture(scope="module")
def ggml(build):
    folder = build / "ggml-copy/src"
    return {name: (folder / "ggml-cpu" / name).read_text() for name in KERNELS} \
        | {"ggml-alloc.c": (folder / "ggml-alloc.c").read_text()}


@pytest.fixture(scope="module")
def ours(root):
    """The ops that the glue adds to ggml."""
    glue = (root / "cmake/glue.cmake").read_text()
    edit = re.search(r"glue_edit\(op-enum (.*?)\]\]\)", glue, re.S)
    ops = set(re.findall(r"GGML_OP_\w+", edit[1])) - {"GGML_OP_COUNT"}
    assert len(ops) >= 4
    return ops


@pytest.fixture(scope="module")
def kinds(root):
    """{op: code} of kind_of in barriers.c."""
    return cases(body((root / "src/ops/cpu/barriers.c").read_text(), r"\bkind_of\("))


@pytest.fixture(scope="module")
def free(kinds):
    """Ops that barriers.c knows and that are to use no work buffer."""
    ops = [op for op, code in kinds.items() if "WORK_NONE" in code and "WORK_SHARED" not in code]
    assert len(ops) >= 14, ops
    return ops


def closure(ggml, names):
    """The code of the functions with these names and of the ggml_compute_forward_* that they call,
    in turn. Functions for quantized types are left out: barriers.c does not know these nodes."""
    functions, code = set(), ""
    while names:
        name = names.pop()
        if name in functions or name.endswith("_q_f32"):
            continue
        functions.add(name)
        for text in (ggml[file] for file in KERNELS):
            for found in re.finditer(rf"^(?:static )?(?:inline )?void {name}\([^;]*?{{.*?^}}", text,
                                     re.M | re.S):
                code += found.group()
                names |= set(re.findall(CALLED,
                                        found.group()))
    return code


def test_no_barrier_inside(ggml, free):
    """Threads may run ahead of each other in these ops, and thread 0 may compute them alone."""
    dispatch = cases(body(ggml["ggml-cpu.c"], r"\bggml_compute_forward\("))
    for op in free:
        names = set(re.findall(r"\b(ggml_compute_forward_\w+)\(", dispatch[op]))
        assert names, f"{op}: ggml computes it in another way"
        code = closure(ggml, names)
        assert "params->ith" in code or "get_thread_range" in code, f"{op}: does not use threads"
        for word in ("ggml_barrier", "threadpool"):
            assert word not in code, f"{op}: its kernel uses {word}; see kind_of in barriers.c"


def test_no_work_buffer(ggml, free):
    """Where ggml plans a work buffer for one of them, it is for types that kind_of excludes."""
    plan = cases(body(ggml["ggml-cpu.c"], r"\bggml_graph_plan\("))
    for op in set(free) & set(plan):
        found = re.search(r"if \((.*?)\) {\s*cur = ", plan[op], re.S)
        assert "cur =" not in plan[op] or found, f"{op}: always needs a work buffer"
        if found:
            assert re.search(r"ggml_is_quantized|GGML_TYPE_BF16", found.group(1)), \
                f"{op}: needs a work buffer if {found.group(1)}; see kind_of in barriers.c"


def test_fusion(ggml):
    """may_be_fused in barriers.c knows the only nodes that are computed together."""
    fused = body(ggml["ggml-cpu.c"], r"\bggml_cpu_try_fuse_ops\(")
    assert set(re.findall(r"GGML_OP_\w+", fused)) == {"GGML_OP_RMS_NORM", "GGML_OP_MUL"}


def test_in_place(ggml, ours):
    """The allocator may put a result over its source. Our ops read their sources until they are
    done, so it must not do that for them, nor for products and the rows of a matrix."""
    ops = set(re.findall(r"case (GGML_OP_\w+):", body(ggml["ggml-alloc.c"], "ggml_op_can_inplace")))
    assert {"GGML_OP_ADD", "GGML_OP_SCALE", "GGML_OP_UNARY"} <= ops
    assert not ops & (ours | {"GGML_OP_MUL_MAT", "GGML_OP_MUL_MAT_ID", "GGML_OP_GET_ROWS",
                              "GGML_OP_FLASH_ATTN_EXT", "GGML_OP_SUM_ROWS", "GGML_OP_CONT"})


def sources(ggml_c, op):
    """How many sources the builders of an op set, at most."""
    builders = [f for f in re.findall(r"^[^\n;]*\bggml_\w+\([^;]*?{.*?^}", ggml_c, re.M | re.S)
                if re.search(rf"->op\s*=\s*{op};", f)]
    assert builders, f"{op}: no builder"
    return max(len(set(re.findall(r"->src\[(\d+)\]\s*=", f))) for f in builders)


def test_ops_of_the_rpc_check(root, build, kinds, ours):
    """rpc-check.c computes every op that barriers.c knows. ggml has every op of a rule, and its
    builder sets as many sources as the rule allows."""
    code = (root / "src/ops/rpc-check.c").read_text()
    table = re.search(r"RULES\[\] = {(.*?)^};", code, re.M | re.S)[1]
    rules = {op: limit for op, limit, ok in re.findall(r"{ (\w+), +\d+, (\w+), +(\w+) }", table)
             if ok != "NULL"}  # NULL: not computed
    assert len(rules) >= 29 and set(kinds) | ours <= set(rules)

    ggml_c = (build / "ggml-copy/src/ggml.c").read_text()
    limits = {op: int(limit) for op, limit in rules.items() if op not in ours}
    refused = {"GGML_OP_SOFT_MAX": 1}  # its mask
    assert limits == {op: sources(ggml_c, op) - refused.get(op, 0) for op in limits}

    header = (build / "ggml-copy/include/ggml.h").read_text()
    for enum, name in (("ggml_op", r"GGML_OP_\w+"), ("ggml_unary_op", r"GGML_UNARY_OP_\w+")):
        known = re.findall(name, re.search(rf"enum {enum} {{(.*?)}};", header, re.S)[1])
        used = set(re.findall(rf"\b{name}\b", code))
        assert used and used <= set(known)
