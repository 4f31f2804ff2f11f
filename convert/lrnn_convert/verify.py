"""--verify: compares the logits of the model file with those of the library that defines the
checkpoint, on 64 tokens.

The library runs in a process of its own, in the Python environment that has it
(reference/logits.py). It gets a folder that is written here: the configuration without references
to code, and the weights in safetensors. So it neither imports code of the checkpoint nor reads its
pickles.
"""

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from . import signals
from .checkpoint import Checkpoint
from .eigenvalues import SIGNED
from .errors import ModelError, OutputError, UsageError, VerifyError
from .model import Model
from .readers.tensor import FLOAT_DTYPES
from .writer import write_gguf

N_TOKENS = 64
PROGRAM = "lrnn-perplexity"
SAFETENSORS = ".safetensors"
SCRIPT = Path(__file__).parent / "reference" / "logits.py"

# In standard deviations of the library's logits: the largest difference of a logit in F32, and the
# root mean square of the differences in a file with matrices of another type. Rounding alone made
# at most 2e-5 and 0.06 in random models of two layers; it grows with the number of layers.
LIMIT = 1e-3
ROUNDED_LIMIT = 0.3


def check(m: Model) -> None:
    """Refuses a checkpoint that no library can be asked about."""
    if not isinstance(m.config.get("model_type"), str):
        raise UsageError("--verify: config.json has no model_type, so neither transformers nor fla "
                         "can load the checkpoint")
    if m.eigenvalue_key is None and m.eigenvalues[0] == SIGNED:
        raise UsageError(f"--verify: no library has a {m.family.name} with eigenvalues in "
                         f"{SIGNED}")


class Verification:
    """Finds the library, before the conversion. `run` compares, after it."""

    def __init__(self, m: Model, python: Path | None):
        check(m)
        self.model = m
        self.config = {key: value for key, value in m.config.items() if key != "auto_map"}
        if m.eigenvalue_key is not None:
            self.config[m.eigenvalue_key] = m.eigenvalues[0] == SIGNED
        self.program = shutil.which(PROGRAM)
        if self.program is None:
            raise UsageError(f"--verify: {PROGRAM} is not in PATH")
        self.python = self._find_python(python)

    def _find_python(self, chosen: Path | None) -> str:
        """An interpreter that has the library: the chosen one, or our own or the first in PATH."""
        names = [str(chosen)] if chosen else [sys.executable, shutil.which("python3")]
        for name in filter(None, names):
            with temporary_folder() as folder:
                answer = self._ask(name, "check", folder)
            if "error" in answer:
                raise UsageError(f"--verify: {name}: {answer['error']}")
            if "install" not in answer:
                return name
            missing = answer["install"]
        raise UsageError(f"--verify: {name} has no {' and no '.join(missing)}; pip install "
                         f"{' '.join(missing)}, or name an interpreter with --verify-python")

    def _ask(self, python: str, what: str, folder: Path) -> dict:
        """Runs reference/logits.py; its answer."""
        (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        # not in the current folder: Python may look for modules there
        code, text = run([python, str(SCRIPT), what, str(folder)], cwd=folder)
        try:
            return json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise OutputError(f"--verify: {python} {ending(code, text)}") from None

    def run(self, path: Path, kind: str, n_vocab: int) -> list[str]:
        """Verifies the model file at `path`, whose matrices have type `kind`: lines for the user,
        or a VerifyError. If they are not in F32, a file in F32 is verified first: rounding would
        hide a mistake."""
        # any ids will do; these are spread over the vocabulary
        tokens = np.random.default_rng(1).integers(0, n_vocab, N_TOKENS).astype(np.int32)
        with temporary_folder() as folder:
            np.save(folder / "tokens.npy", tokens)
            write_weights(self.model.checkpoint, folder)
            answer = self._ask(self.python, "run", folder)
            library = answer.get("library", "the library")
            if "error" in answer or "install" in answer:
                raise ModelError(f"--verify: {library} cannot run the checkpoint: "
                                 f"{answer.get('error', 'a package is missing')} ({path} was "
                                 "written, but not verified)")
            reference = np.load(folder / "reference.npy", allow_pickle=False)
            library += f" ({answer['device']})"
            exact = path
            if kind != "f32":
                exact = folder / "f32.gguf"
                write_gguf(self.model, exact, "f32")
            where = f"{path}" if exact == path else f"{path} in f32"
            lines = [compare(self._our_logits(exact, folder), reference, library, where)]
            if exact != path:
                lines.append(compare_rounded(self._our_logits(path, folder), reference, kind, path))
        return lines

    def _our_logits(self, path: Path, folder: Path) -> np.ndarray:
        """[T, vocabulary]. On the CPU, where F32 is F32."""
        out = folder / "ours.npy"
        code, text = run([self.program, "logits", "-m", str(path.absolute()), "--tokens",
                          str(folder / "tokens.npy"), "--out", str(out), "-ngl", "0",
                          "--quiet"])
        if code != 0:
            raise VerifyError(f"--verify: {PROGRAM} {ending(code, text)}")
        return np.load(out, allow_pickle=False)


def compare(ours: np.ndarray, reference: np.ndarray, library: str, where: str) -> str:
    """ours, reference: [T, vocabulary]."""
    if ours.shape != reference.shape:
        raise VerifyError(f"{where}: logits of shape {list(ours.shape)}; {library} computes "
                          f"{list(reference.shape)}")
    if not np.isfinite(reference).all():
        t, v = np.argwhere(~np.isfinite(reference))[0]
        raise VerifyError(f"{library}: the logit of id {v} after {t + 1} tokens is "
                          f"{reference[t, v]}; nothing can be compared")
    difference = np.abs(ours.astype(np.float64) - reference)
    t, v = np.unravel_index(difference.argmax(), difference.shape)
    limit = LIMIT * deviation(reference)
    found = (f"largest difference {difference[t, v]:.2g} (limit {limit:.2g}), logit of id {v} "
             f"after {t + 1} tokens: {ours[t, v]:.6g}, {reference[t, v]:.6g} in the library; "
             + most_likely(ours, reference))
    if difference[t, v] > limit:
        first = int((difference.max(1) > limit).argmax()) + 1
        raise VerifyError(f"{where} differs from {library} from token {first} on; {found}")
    return f"{library}, {len(ours)} tokens; {found}"


def compare_rounded(ours: np.ndarray, reference: np.ndarray, kind: str, path: Path) -> str:
    error = float(np.sqrt(np.square(ours.astype(np.float64) - reference).mean()))
    limit = ROUNDED_LIMIT * deviation(reference)
    found = (f"root mean square difference {error:.2g} (limit {limit:.2g}); "
             + most_likely(ours, reference))
    if error > limit:
        raise VerifyError(f"{path} is right in f32 and wrong in {kind}; {found}")
    return f"rounded to {kind}; {found}"


def deviation(reference: np.ndarray) -> float:
    """Standard deviation, not 0."""
    return max(float(reference.std(dtype=np.float64)), float(np.finfo(np.float32).tiny))


def most_likely(ours: np.ndarray, reference: np.ndarray) -> str:
    same = int((ours.argmax(1) == reference.argmax(1)).sum())
    return f"most likely token equal {same} of {len(ours)} times"


def write_weights(c: Checkpoint, folder: Path) -> None:
    """The tensors of the checkpoint: links to its files if they are in safetensors, otherwise
    model.safetensors."""
    files = {t.file for t in c.tensors.values()}
    if (all(file.endswith(SAFETENSORS) for file in files)
            and all(name == t.name for name, t in c.tensors.items())):
        names = {file: f"model-{i}{SAFETENSORS}" for i, file in enumerate(sorted(files))}
        for file, name in names.items():
            (folder / name).symlink_to(Path(file).resolve())
        weight_map = {name: names[t.file] for name, t in c.tensors.items()}
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / f"model{SAFETENSORS}.index.json").write_text(json.dumps(index), encoding="utf-8")
    else:
        with (folder / f"model{SAFETENSORS}").open("wb") as f:
            write_safetensors(c, f)


def write_safetensors(c: Checkpoint, f: BinaryIO) -> None:
    """One tensor at a time, in its own type. Integers are not weights."""
    tensors = {name: t for name, t in c.tensors.items() if t.dtype in FLOAT_DTYPES}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, t in tensors.items():
        size = math.prod(t.shape) * FLOAT_DTYPES[t.dtype].itemsize
        header[name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    f.write(len(text).to_bytes(8, "little") + text)
    for t in tensors.values():
        f.write(np.ascontiguousarray(t.read()).reshape(-1).view(np.uint8))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """In $TMPDIR. Also removed on a signal."""
    name = tempfile.mkdtemp(prefix="lrnn-verify-")
    signals.temporary_folders.add(name)
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)
        signals.temporary_folders.discard(name)


def run(command: list[str], cwd: Path | None = None) -> tuple[int, str]:
    """Exit code and standard error of a program. It ends with us on a signal."""
    try:
        child = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as e:
        raise UsageError(f"--verify: {command[0]}: {e.strerror}") from None
    signals.children.add(child.pid)
    text = child.communicate()[1].decode("utf-8", "replace")
    signals.children.discard(child.pid)
    return child.returncode, text


def ending(code: int, text: str) -> str:
    """How a program ended, with its last line."""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    lines = text.strip().splitlines()
    return f"{how}: {lines[-1]}" if lines else how
