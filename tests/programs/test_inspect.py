"""lrnn-inspect: devices, and model files that must be refused."""

import json
import re

import pytest


def test_usage(lrnn):
    lrnn.fail(lrnn.Code.USAGE, "lrnn-inspect")


def test_devices(lrnn, config):
    devices = json.loads(lrnn.run("lrnn-inspect", "--devices", "--json").stdout)
    assert devices["devices"][0]["name"]
    cuda = devices["cuda"]
    text = lrnn.run("lrnn-inspect", "--devices",
                    stdout=r"(\A|\n)CPU +CPU, [^\n]* GiB of memory").stdout
    if not config["cuda"]:
        assert cuda is None and "CUDA" not in text
        return
    assert re.search(r"\nCUDA kernels: compiled \(nvcc [0-9.]+, sm_[0-9a-z_, ]+\) and emulated, "
                     r"not run on a GPU\n\Z", text)
    if cuda["missing"]:
        assert cuda["missing"].startswith("no CUDA GPU was found")
        assert "\nno CUDA GPU was found" in text


@pytest.fixture(scope="module")
def bad_models(programs_in, tmp_path_factory):
    """Every model file that test-model-load says is refused."""
    folder = tmp_path_factory.mktemp("bad-models")
    programs_in(folder).tool("test-model-load", folder)
    models = sorted(folder.glob("*.gguf"))
    assert len(models) >= 50
    return models


@pytest.mark.parametrize("every, command", [(1, ["lrnn-inspect"]),
                                            (4, ["lrnn-cli", "-p", "1", "-m"])],
                         ids=["inspect", "cli"])
def test_bad_models(lrnn, bad_models, every, command):
    # lrnn-cli takes longer to start and reads the model in the same way: a quarter is enough
    for model in bad_models[::every]:
        line = lrnn.fail(lrnn.Code.MODEL, *command, model)
        assert line.startswith(f"{command[0]}: {model}: "), line
