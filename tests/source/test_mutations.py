"""The defects of tests/tools/mutations.toml can be injected: every text occurs exactly once."""

import importlib.machinery
import importlib.util
import re


def load_tool(root):
    loader = importlib.machinery.SourceFileLoader("mutate", str(root / "tests/tools/mutate"))
    spec = importlib.util.spec_from_loader("mutate", loader)
    tool = importlib.util.module_from_spec(spec)
    loader.exec_module(tool)
    return tool


def test_mutations(root):
    defects = load_tool(root).read_list()
    problems = [f"{d.name}: {d.problem(root)}" for d in defects if d.problem(root) is not None]
    assert not problems, "\n".join(problems)
    assert len(defects) >= 150
    assert len({(d.file, d.find, d.replace) for d in defects}) == len(defects), "a defect twice"
    for defect in defects:
        re.compile(defect.tests)
        assert "\n" not in defect.about and (defect.reason is None or "\n" not in defect.reason)
