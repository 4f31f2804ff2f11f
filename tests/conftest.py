"""Paths and settings of the build under test, for every test written in Python.

ctest passes --build; by hand: build/convert-env/bin/python -m pytest tests/source --build build
"""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser):
    parser.addoption("--build", type=Path, default=ROOT / "build", help="the build directory")


@pytest.fixture(scope="session")
def root():
    """The source tree."""
    return ROOT


@pytest.fixture(scope="session")
def build(pytestconfig):
    """The build directory."""
    return pytestconfig.getoption("build").resolve()


@pytest.fixture(scope="session")
def config(build):
    """Settings of the build: tests/config.json, written by tests/CMakeLists.txt."""
    return json.loads((build / "tests/config.json").read_text())
