"""Downloads from the Hugging Face hub: checkpoints, single files and data sets.

The package huggingface_hub speaks the protocol: names, tokens, redirections, cut connections. This
file decides which files are needed, and trusts nothing of a reply: names must stay inside the
folder, and a file gets its name only if its size and its hash are those of the listing. The bytes
that did arrive are kept as NAME.HASH.part, so that the next call goes on after them.
"""

import fnmatch
import hashlib
import io
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import chat, tokenizers
from .atomic import check_output
from .checkpoint import INDEX_FILES, READERS, SINGLE_FILES, some
from .errors import ConvertError, DataError, HubError, UsageError, shown
from .progress import ProgressLine
from .usage import Parser, did_you_mean, install_command, output_path

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)       # org/name
PART = re.compile(r"[\w+=@,()-][\w.+=@,() -]*")                 # of a path, not hidden
HASHES = {40: "git", 64: "sha256"}         # digits of a hash
PIECE = 1 << 20

# preset of lrnn-perplexity: repository, and the files of the papers (docs/datasets.md)
DATA_SETS = {
    "codeparrot": ("codeparrot/codeparrot-valid-v2-near-dedup", "*.parquet"),
    "math-hard":  ("lighteval/MATH-Hard", "train/*"),
    "triviaqa":   ("sentence-transformers/trivia-qa", "*.parquet"),
    "slimpajama": ("DKYoon/SlimPajama-6B", "*validation*"),
}


@dataclass(frozen=True)
class Listed:
    """A file of a repository."""

    name: str
    size: int
    hash: str                              # SHA-256, or the git object of a small file


@dataclass(frozen=True)
class Repository:
    name: str
    kind: str                              # model, dataset
    commit: str
    files: dict[str, Listed]


def is_name(path: Path) -> bool:
    """Whether a path that does not exist can be the name of a checkpoint on the hub."""
    return (NAME.fullmatch(str(path)) is not None and path.suffix not in READERS
            and not path.parent.is_dir())


def load_package():
    try:
        import huggingface_hub
        import huggingface_hub.file_download
    except ImportError:
        raise UsageError("downloads need the package huggingface_hub: "
                         + install_command("huggingface_hub")) from None
    huggingface_hub.utils.disable_progress_bars()
    huggingface_hub.utils.logging.set_verbosity_error()
    return huggingface_hub


def failure(name: str, e: Exception, hf) -> ConvertError:
    """What an exception of the package, or of a library below it, says to the user."""
    where = f"{hf.constants.ENDPOINT}/{name}"
    status = getattr(getattr(e, "response", None), "status_code", None)
    if isinstance(e, hf.errors.GatedRepoError):
        return HubError(f"{where} is gated: accept its terms there, then sign in with `hf auth "
                        "login` or set HF_TOKEN")
    if isinstance(e, hf.errors.RepositoryNotFoundError):
        return HubError(f"{where}: no such repository, or a private one (`hf auth login`)")
    if status is not None:
        return HubError(f"{where}: the hub answers with status {status}")
    text = " ".join(str(e).split()) or type(e).__name__
    return HubError(f"{where}: the download failed: {text[:300]}; what has arrived is kept, and "
                    "the same command goes on from there")


def open_repository(name: str, kind: str, hf) -> Repository:
    try:
        info = hf.HfApi().repo_info(name, repo_type=kind, files_metadata=True)
    except Exception as e:                 # of httpx, requests, json, …: by version of the package
        raise failure(name, e, hf) from None
    files = {}
    for x in info.siblings or []:
        digest = x.lfs.sha256 if x.lfs else x.blob_id
        if (not isinstance(x.rfilename, str) or not isinstance(x.size, int) or x.size < 0
                or not isinstance(digest, str) or len(digest) not in HASHES
                or not re.fullmatch("[0-9a-f]+", digest)):
            raise DataError(f"{name}: the hub lists {shown(x.rfilename)} with size {shown(x.size)} "
                            f"and hash {shown(digest)}; expected a size and a hash")
        files[x.rfilename] = Listed(x.rfilename, x.size, digest)
    if not isinstance(info.sha, str) or not re.fullmatch("[0-9a-f]{40}", info.sha):
        raise DataError(f"{name}: the commit is {shown(info.sha)}; expected 40 digits")
    return Repository(name, kind, info.sha, files)


def checkpoint_files(repo: Repository) -> list[Listed]:
    """The files that a conversion reads: one set of weights, configuration, tokenizer, template."""
    names = [name for name in repo.files if "/" not in name]
    weights: list[str] = []
    for index in INDEX_FILES:
        stem, end, _, _ = index.split(".")
        shards = re.compile(rf"{stem}-\d+-of-\d+\.{end}")
        if index in names and not weights:
            weights = [index, *filter(shards.fullmatch, names)]
    weights = weights or [name for name in SINGLE_FILES if name in names][:1]
    if not weights:
        found = [name for name in names if Path(name).suffix in READERS]
        one = found[0] if found else "FILE"
        raise DataError(f"{repo.name}: no {', '.join(INDEX_FILES + SINGLE_FILES)}; found "
                        f"{some(found) or 'no weights'}; a single file is downloaded with: "
                        f"lrnn-convert get {repo.name} {one}")
    patterns = ("config.json", *tokenizers.FILES, *tokenizers.CONFIG_FILES, *chat.FILES)
    others = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    return [repo.files[name] for name in [*others, *weights]]


def checked_path(folder: Path, name: str) -> Path:
    """Where a file of a repository goes. A reply of the hub must not leave the folder."""
    parts = name.split("/")
    if not all(PART.fullmatch(part) for part in parts):
        raise DataError(f"the hub lists a file {shown(name)}; expected a relative path without "
                        "hidden parts")
    return folder.joinpath(*parts)


def digest_of(path: Path, listed: Listed) -> str:
    if HASHES[len(listed.hash)] == "git":
        digest = hashlib.sha1(b"blob %d\0" % listed.size, usedforsecurity=False)
    else:
        digest = hashlib.sha256()
    with path.open("rb") as f:
        while piece := f.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


class PartFile(io.FileIO):
    """The beginning of a file; draws progress."""

    def __init__(self, path: Path, listed: Listed, progress: ProgressLine):
        super().__init__(path, "a+b")
        self.listed, self.progress = listed, progress

    def write(self, data) -> int:
        if self.tell() + len(data) > self.listed.size:
            raise DataError(f"{self.listed.name}: the hub sends more than the {self.listed.size} "
                            "bytes that it lists")
        n = super().write(data)
        self.progress.draw_share(self.tell(), max(self.listed.size, 1),
                                 f"{self.listed.name}, {self.listed.size / 1e6:.1f} MB")
        return n


def fetch(repo: Repository, listed: Listed, path: Path, hf, progress: ProgressLine) -> None:
    """Downloads a file to `path`, unless it is there."""
    if path.is_file() and path.stat().st_size == listed.size \
            and digest_of(path, listed) == listed.hash:
        return
    part = path.with_name(f"{path.name}.{listed.hash[:16]}.part")
    if part.is_symlink():
        raise HubError(f"{part}: found a symbolic link, expected a regular file or none")
    url = hf.hf_hub_url(repo.name, listed.name, repo_type=repo.kind, revision=repo.commit)
    # as it is: the length of a compressed reply does not tell where to go on
    headers = hf.utils.build_hf_headers() | {"Accept-Encoding": "identity"}
    with PartFile(part, listed, progress) as f:
        have = f.tell()
        try:
            if have < listed.size:
                hf.file_download.http_get(url, f, resume_size=have, headers=headers,
                                          expected_size=listed.size)
        except (ConvertError, MemoryError):
            raise
        except OSError as e:
            if e.errno is not None:        # of the disk
                raise
            raise failure(repo.name, e, hf) from None
        except Exception as e:
            raise failure(repo.name, e, hf) from None
    found = digest_of(part, listed)
    if found != listed.hash:
        part.unlink()
        raise DataError(f"{repo.name}: {listed.name} arrived with the hash {found}; expected "
                        f"{listed.hash}; it was deleted")
    os.replace(part, path)


def download(repo: Repository, files: Iterable[Listed], folder: Path, hf,
             quiet: bool = False) -> list[Path]:
    files = list(files)
    paths = [checked_path(folder, x.name) for x in files]
    if not quiet:
        size = sum(x.size for x in files)
        print(f"download:  {hf.constants.ENDPOINT}/{repo.name}, {len(files)} files, "
              f"{size / 1e6:.1f} MB, to {folder}", file=sys.stderr)
    with ProgressLine(quiet) as progress:
        for listed, path in zip(files, paths):
            path.parent.mkdir(parents=True, exist_ok=True)
            fetch(repo, listed, path, hf, progress)
    return paths


def cache_folder(name: str) -> Path:
    """Of a repository; its last part is the name of the model."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "lrnn", "hub", *name.split("/"))


def get_checkpoint(name: str, quiet: bool) -> Path:
    """The folder of a downloaded checkpoint."""
    hf = load_package()
    repo = open_repository(name, "model", hf)
    folder = cache_folder(name)
    download(repo, checkpoint_files(repo), folder, hf, quiet)
    return folder


def get_data_set(preset: str, quiet: bool) -> list[Path]:
    hf = load_package()
    name, pattern = DATA_SETS[preset]
    repo = open_repository(name, "dataset", hf)
    files = [x for n, x in sorted(repo.files.items()) if fnmatch.fnmatchcase(n, pattern)]
    if not files:
        raise DataError(f"{name}: no file matches {pattern}; found {some(list(repo.files))}")
    return download(repo, files, cache_folder(name), hf, quiet)


EPILOG = """\
HF_TOKEN, HF_ENDPOINT and `hf auth login` work as in the package
huggingface_hub. Without it, the error prints the line that installs it.

example:
  lrnn-convert get org/name model-Q8_0.gguf
"""


def get(argv: list[str]) -> None:
    p = Parser(prog="lrnn-convert get", epilog=EPILOG,
               description="Download a file of a repository on the Hugging Face hub.")
    p.add_argument("repository", metavar="ORG/NAME", help="the repository")
    p.add_argument("file", metavar="FILE", help="a file in it, usually a .gguf")
    p.add_argument("-o", "--output", type=output_path, metavar="OUT",
                   help="output file (default: the name of FILE, in the current folder)")
    p.add_argument("-q", "--quiet", action="store_true", help="print no summary")
    args = p.parse_args(argv)
    if not NAME.fullmatch(args.repository):
        raise UsageError(f"the repository is {shown(args.repository)}; expected ORG/NAME")
    output = args.output or Path(Path(args.file).name)
    check_output(output)
    hf = load_package()
    repo = open_repository(args.repository, "model", hf)
    if args.file not in repo.files:
        hint = did_you_mean(args.file, repo.files)
        raise UsageError(f"{repo.name} has no file {args.file}"
                         + (hint or f"; found {some(sorted(repo.files))}"))
    with ProgressLine(args.quiet) as progress:
        fetch(repo, repo.files[args.file], output, hf, progress)
    if not args.quiet:
        print(f"written:   {output}, {repo.files[args.file].size} bytes", file=sys.stderr)
