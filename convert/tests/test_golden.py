"""The golden models of the runtime's tests cover every family."""

from pathlib import Path

from conftest import File

from lrnn_convert.families import FAMILIES

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"


def test_every_family_has_a_golden_model():
    found = {File(path).kv["lrnn.family"] for path in GOLDEN.glob("*.gguf")}
    assert found == set(FAMILIES)
