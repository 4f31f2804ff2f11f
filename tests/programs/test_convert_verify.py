"""lrnn-convert --verify, with stand-ins for torch, transformers and fla.

The stand-ins compute nothing: their logits are those of a file, which a test takes from
lrnn-perplexity and changes. So the comparison is tested on every machine. Next to the logits they
write down how they were called.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

N_TOKENS = 64

TORCH = '''
import numpy as np

float32 = "float32"


class cuda:
    @staticmethod
    def is_available():
        return False


class no_grad:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


class Tensor:
    def __init__(self, x):
        self.x, self.shape = x, x.shape

    def __getitem__(self, i):
        return Tensor(self.x[i])

    def to(self, device):
        return self

    float = cpu = lambda self: self

    def numpy(self):
        return self.x


def from_numpy(x):
    return Tensor(x)


def cat(tensors):
    return Tensor(np.concatenate([t.x for t in tensors]))
'''

TRANSFORMERS = '''
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

__version__ = "1.2.3"
HERE = Path(__file__).resolve().parents[1]


class Model:
    device, at = "cpu", 0

    def to(self, device):
        return self

    eval = lambda self: self

    def __call__(self, ids, use_cache, past_key_values=None):
        assert (past_key_values == self.at) if self.at else past_key_values is None
        logits = np.load(HERE / "logits.npy")[self.at : self.at + ids.shape[1]]
        self.at += ids.shape[1]
        note("calls", [list(map(int, ids.x[0])), use_cache])
        return SimpleNamespace(logits=torch.Tensor(logits[None]), past_key_values=self.at)


def note(key, value):
    path = HERE / "notes.json"
    notes = json.loads(path.read_text()) if path.exists() else {}
    notes.setdefault(key, []).append(value)
    path.write_text(json.dumps(notes))


class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(folder, output_loading_info, **options):
        note("options", {key: str(value) for key, value in options.items()})
        note("config", json.loads(Path(folder, "config.json").read_text()))
        note("files", sorted(os.listdir(folder)))
        note("fla", sys.modules.get("fla") is not None)
        note("folder", folder)
        behavior = (HERE / "behavior.txt").read_text()
        if behavior == "raise":
            raise ValueError("first line\\nsecond line")
        if behavior == "die":
            os.kill(os.getpid(), 9)
        return Model(), {"missing_keys": ["a.weight", "b.weight"] if behavior == "lose" else []}
'''

AUTO = 'CONFIG_MAPPING_NAMES = {"mamba": "MambaConfig"}\n'

FLA = '__version__ = "4.5.6"\n'

AUTOTUNER = '''
class Autotuner:
    pass
'''


class Verify:
    """A tiny checkpoint, stand-ins, and lrnn-convert --verify on them."""

    def __init__(self, lrnn, tiny):
        self.lrnn, self.tiny = lrnn, tiny
        self.fake = lrnn.work / "fake"
        lrnn.write("fake/torch/__init__.py", TORCH)
        lrnn.write("fake/transformers/__init__.py", TRANSFORMERS)
        lrnn.write("fake/transformers/models/__init__.py", "")
        lrnn.write("fake/transformers/models/auto/__init__.py", "")
        lrnn.write("fake/transformers/models/auto/configuration_auto.py", AUTO)
        lrnn.write("fake/fla/__init__.py", FLA)
        lrnn.write("fake/fla/models.py", "")
        lrnn.write("fake/fla/layers/__init__.py", "")
        lrnn.write("fake/fla/layers/attn.py", "flash_attn_func = None\n")
        lrnn.write("fake/triton/runtime/autotuner.py", AUTOTUNER)
        lrnn.write("fake/behavior.txt", "compute")
        # an interpreter that has these packages
        self.python = lrnn.write("python", f'#!/bin/sh\nexport PYTHONPATH="{self.fake}"\n'
                                           f'exec "{sys.executable}" "$@"\n')
        self.python.chmod(0o755)

    def checkpoint(self, family="mamba", **config):
        from safetensors.numpy import save_file
        base, tensors = getattr(self.tiny, family)()
        (self.lrnn.work / "ckpt").mkdir(exist_ok=True)
        self.lrnn.write("ckpt/config.json", json.dumps((base or {}) | config))
        save_file(tensors, self.lrnn.work / "ckpt/model.safetensors")
        return tensors

    def logits(self, *options):
        """What the model file computes for the tokens of --verify."""
        self.lrnn.run("lrnn-convert", "ckpt", "-o", "plain.gguf", "--quiet", *options)
        n_vocab = self.tiny.V
        tokens = np.random.default_rng(1).integers(0, n_vocab, N_TOKENS).astype(np.int32)
        np.save(self.lrnn.work / "ids.npy", tokens)
        self.lrnn.run("lrnn-perplexity", "logits", "-m", "plain.gguf", "--tokens", "ids.npy",
                      "--out", "plain.npy", "--quiet")
        return tokens, np.load(self.lrnn.work / "plain.npy")

    def run(self, logits, *options, code=0, behavior="compute", **patterns):
        np.save(self.fake / "logits.npy", logits)
        self.lrnn.write("fake/behavior.txt", behavior)
        (self.fake / "notes.json").unlink(missing_ok=True)
        return self.lrnn.run("lrnn-convert", "ckpt", "-o", "out.gguf", "--verify-python",
                             self.python, *options, code=code, **patterns)

    def notes(self):
        return json.loads((self.fake / "notes.json").read_text())


@pytest.fixture
def verify(lrnn, root, monkeypatch):
    monkeypatch.syspath_prepend(root / "convert")
    monkeypatch.syspath_prepend(root / "convert/tests")
    import tiny
    return Verify(lrnn, tiny)


def test_equal_logits(verify):
    verify.checkpoint(auto_map={"AutoModelForCausalLM": "evil.Model"})
    # modules that must not be imported: in the checkpoint and in the current folder
    for name in ("ckpt/evil.py", "ckpt/torch.py", "torch.py", "transformers.py", "json.py"):
        verify.lrnn.write(name, f"open({str(verify.lrnn.work / 'executed')!r}, 'w')\n")
    tokens, logits = verify.logits()
    done = verify.run(logits, stderr=r"\nverified:  transformers 1\.2\.3 \(CPU\), 64 tokens; "
                      r"largest difference 0 .*equal 64 of 64 times\n$")
    assert done.stdout == "" and (verify.lrnn.work / "out.gguf").is_file()
    assert not (verify.lrnn.work / "executed").exists()
    notes = verify.notes()
    assert notes["calls"] == [[tokens.tolist(), False]]
    assert notes["options"] == [{"trust_remote_code": "False", "local_files_only": "True",
                                 "use_safetensors": "True", "torch_dtype": "float32"}]
    assert "auto_map" not in notes["config"][0]
    assert notes["files"] == [["config.json", "model-0.safetensors", "model.safetensors.index.json",
                               "tokens.npy"]]
    assert notes["fla"] == [False], "transformers must not see fla"
    assert not os.path.exists(notes["folder"][0]), "a temporary folder is left"
    assert verify.run(logits, "--quiet").stderr == ""


def test_one_logit_differs(verify):
    """The place and the size of the difference are those that were put in."""
    verify.checkpoint()
    _, logits = verify.logits()
    limit = 1e-3 * logits.std()
    for amount, code in ((0.5 * limit, 0), (1.5 * limit, 6), (-2.0, 6)):
        changed = logits.astype(np.float64)
        changed[30, 7] += amount / 1.2
        changed[17, 5] += amount           # the largest; not the first
        changed[12, 3] += amount / 1.1
        err = verify.run(changed.astype(np.float32), code=code).stderr
        assert f"largest difference {abs(amount):.2g} (limit {limit:.2g}), logit of id 5 after " \
               f"18 tokens: {logits[17, 5]:.6g}, " in err
        if code == 6:
            assert "lrnn-convert: out.gguf differs from transformers 1.2.3 (CPU) from token 13 on" \
                in err
        assert (verify.lrnn.work / "out.gguf").is_file()   # for a look at what is wrong
    swapped = logits.copy()
    best = logits[40].argsort()[-2:]
    swapped[40, best] = swapped[40, best[::-1]]
    verify.run(swapped, code=6, stderr="equal 63 of 64 times")


def test_rounded_file(verify):
    """The verdict is about F32; a file of another type may differ by its rounding."""
    verify.checkpoint()
    _, logits = verify.logits()
    tokens, rounded = verify.logits("--type", "bf16")
    assert abs(rounded - logits).max() > 2e-3 * logits.std()
    error = np.sqrt(np.square(rounded - logits).mean())
    verify.run(logits, "--type", "bf16", stderr=r"largest difference 0 .*\nverified:  rounded to "
               rf"bf16; root mean square difference {error:.2g} \(limit {0.3 * logits.std():.2g}\)")
    verify.run(rounded, "--type", "bf16", code=6, stderr="out.gguf in f32 differs from")


def test_reference_that_is_no_reference(verify):
    verify.checkpoint()
    _, logits = verify.logits()
    broken = logits.copy()
    broken[2, 9] = np.nan
    verify.run(broken, code=6, stderr="logit of id 9 after 3 tokens is nan")
    verify.run(logits[:, :-1], code=6, stderr=r"logits of shape \[64, 11\]; .* computes \[64, 10\]")
    model = verify.lrnn.Code.MODEL
    for behavior, text in (("raise", "ValueError: first line"),
                           ("lose", "finds no tensor a.weight in the checkpoint .2 are missing")):
        verify.run(logits, behavior=behavior, code=model,
                   stderr=f"transformers 1.2.3 cannot run the checkpoint: .*{text}.*out.gguf was "
                          "written, but not verified")
    verify.run(logits, behavior="die", code=verify.lrnn.Code.SYSTEM, stderr="ended by signal 9")


def test_fla(verify):
    """fla is called in pieces, with a cache; the eigenvalue range is that of the conversion."""
    verify.checkpoint("delta_net", allow_neg_eigval=True)
    tokens, logits = verify.logits("--eigenvalues", "unsigned")
    verify.run(logits, "--eigenvalues", "unsigned",
               stderr=r"verified:  fla 4\.5\.6 \(CPU, interpreted\), 64 tokens")
    notes = verify.notes()
    assert notes["fla"] == [True]
    assert notes["config"][0]["allow_neg_eigval"] is False
    assert [ids for ids, _ in notes["calls"]] == [tokens[:32].tolist(), tokens[32:].tolist()]
    assert all(use_cache for _, use_cache in notes["calls"])


def test_pickles_stay_unread(verify):
    """Tensors of a checkpoint that is not in safetensors, and names with a prefix, reach the
    library in a file that was written here."""
    from safetensors.numpy import load_file, save_file
    tensors = verify.checkpoint()
    save_file({"_orig_mod." + name: x for name, x in tensors.items()},
              verify.lrnn.work / "ckpt/model.safetensors")
    _, logits = verify.logits()
    source = (verify.fake / "transformers/__init__.py").read_text()
    verify.lrnn.write("fake/transformers/__init__.py", source.replace(
        'behavior = (', 'import shutil; shutil.copy(Path(folder, "model.safetensors"), HERE)\n'
        '        behavior = ('))
    verify.run(logits)
    assert verify.notes()["files"] == [["config.json", "model.safetensors", "tokens.npy"]]
    found = load_file(verify.fake / "model.safetensors")
    assert found.keys() == tensors.keys()
    assert all((found[name] == tensors[name]).all() for name in tensors)


def test_missing_packages(verify):
    """What to install, before anything is written."""
    verify.checkpoint("delta_net")
    for folder, text in (("fla", "flash-linear-attention"), ("transformers", "transformers"),
                         ("torch", "torch transformers")):
        # a module of the environment must not replace the one that is taken away
        verify.lrnn.write(f"fake/{folder}/__init__.py", "raise ImportError('not installed')\n")
        line = verify.run(np.zeros(0), "--quiet", code=verify.lrnn.Code.USAGE).stderr
        assert f"pip install {text}, or name an interpreter with --verify-python\n" in line
        assert line.startswith("lrnn-convert: --verify: ") and line.count("\n") == 1
    assert not list(verify.lrnn.work.glob("out.gguf*"))


def test_refusals(verify):
    lrnn, usage = verify.lrnn, verify.lrnn.Code.USAGE
    verify.checkpoint()
    convert = ["lrnn-convert", "ckpt", "-o", "out.gguf", "--quiet"]
    lrnn.fail(usage, *convert, "--verify", "--dry-run")
    lrnn.fail(usage, *convert, "--verify", "--vocab-only")
    lrnn.fail(usage, *convert, "--verify-python", "none/python", stderr="none/python: No such file")
    lrnn.fail(usage, *convert, "--verify-python", verify.python, "--eigenvalues", "signed",
              stderr=r"no library has a mamba with eigenvalues in \[-1,1\]")
    verify.checkpoint("rwkv7")
    (lrnn.work / "ckpt/config.json").unlink()
    lrnn.fail(usage, *convert, "--verify-python", verify.python, stderr="no model_type")
    assert not list(lrnn.work.glob("out.gguf*"))


def test_signal(verify):
    """SIGTERM ends the library's process and removes the temporary folder."""
    verify.checkpoint()
    _, logits = verify.logits()
    np.save(verify.fake / "logits.npy", logits)
    source = (verify.fake / "transformers/__init__.py").read_text()
    verify.lrnn.write("fake/transformers/__init__.py", source.replace(
        'behavior = (', '(HERE / "pid").symlink_to(str(os.getpid()))\n'
        '        import time; time.sleep(60)\n        behavior = ('))
    temporary = verify.lrnn.work / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [verify.lrnn.bin / "lrnn-convert", "ckpt", "-o", "out.gguf", "--quiet", "--verify-python",
         verify.python], cwd=verify.lrnn.work, env=os.environ | {"TMPDIR": str(temporary)})
    while process.poll() is None and not (verify.fake / "pid").is_symlink():
        time.sleep(0.01)
    process.terminate()
    assert process.wait() == -15
    assert list(temporary.iterdir()) == []
    pid = int(os.readlink(verify.fake / "pid"))
    with pytest.raises(ProcessLookupError):
        for _ in range(3000):              # a killed process exists until its parent collects it
            os.kill(pid, 0)
            time.sleep(0.01)
