"""Converts data sets in Parquet and Arrow to JSON lines for lrnn-perplexity: the same records in
the same order with the same fields."""

import argparse
import base64
import datetime
import decimal
import gzip
import json
import math
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import hub
from .atomic import check_output, replacing
from .errors import DataError, OutputError, UsageError, shown
from .progress import ProgressLine
from .readers.config import read_json
from .usage import Parser, install_command, output_path_or_stdout

ROWS = 512            # per batch: a few MB with the documents of a web corpus
MAX_DEPTH = 32        # of folders
SAVED = ("state.json", "dataset_info.json")    # of save_to_disk

EPILOG = """\
The format is detected by the first bytes: Parquet, or Arrow in its file and
stream formats (as in the cache of the datasets library and as written by
save_to_disk). Files of a folder are read in the order of their names, or in the
order of state.json if save_to_disk wrote it. Other files in a folder are
skipped and listed.

Values that JSON lacks are written as strings: times in ISO 8601, decimal
numbers in digits, bytes in base64. Non-finite numbers become null.

Needs the package pyarrow. Without it, the error prints the line that installs
it.

examples:
  lrnn-convert data codeparrot-valid-v2-near-dedup/ -o codeparrot.jsonl.gz
  lrnn-convert data --download slimpajama -o slimpajama.jsonl
  lrnn-convert data validation.parquet -o - |
    lrnn-perplexity run -m M.gguf --dataset slimpajama --data - --out results/
"""


def build_parser() -> argparse.ArgumentParser:
    p = Parser(prog="lrnn-convert data", epilog=EPILOG,
               description="Convert a data set in Parquet or Arrow to JSON lines.")
    p.add_argument("inputs", nargs="*", type=Path, metavar="IN",
                   help="Parquet or Arrow files, or folders of them")
    p.add_argument("--download", choices=list(hub.DATA_SETS),
                   help="download this data set of the papers, instead of IN (docs/datasets.md)")
    p.add_argument("-o", "--output", required=True, type=output_path_or_stdout,
                   metavar="OUT.jsonl[.gz]",
                   help="output file, compressed if its name ends in .gz; - for standard output")
    p.add_argument("-q", "--quiet", action="store_true", help="print no summary")
    return p


def load_pyarrow():
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise UsageError("data needs the package pyarrow: "
                         + install_command("pyarrow")) from None
    return pyarrow


#
# Input files
#

def kind_of(path: Path) -> str | None:
    """None: neither Parquet nor Arrow. A pipe would wait for its writer, and cannot be sought."""
    if not stat.S_ISREG(path.stat().st_mode):
        return None
    with path.open("rb") as f:
        head = f.read(8)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "file"
    return "stream" if head.startswith(b"\xff\xff\xff\xff") else None


def saved_files(folder: Path) -> list[Path]:
    """Files of a folder written by save_to_disk, in the order of its state.json."""
    state = folder / "state.json"
    try:
        names = [entry["filename"] for entry in read_json(state)["_data_files"]]
    except (KeyError, TypeError):
        raise DataError(f"{state}: expected a list _data_files of entries with a "
                        "filename") from None
    for name in names:
        if not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
            raise DataError(f"{state}: the filename is {shown(name)}; expected the name of a file "
                            "in this folder")
    return [folder / name for name in names]


class Walk:
    """The files of a folder, by the same rules as in lrnn-perplexity (data-files.c): names in the
    order of their bytes, hidden ones skipped, links followed, no folder twice."""

    def __init__(self):
        self.is_open: dict[tuple[int, int], bool] = {}     # of the folders seen

    def files(self, folder: Path, depth: int = 0) -> Iterator[Path]:
        info = folder.stat()
        folder_id = info.st_dev, info.st_ino
        if folder_id in self.is_open:
            if self.is_open[folder_id]:
                raise DataError(f"{folder}: is a loop of links: it leads to a folder that contains "
                                "it")
            return
        if depth == MAX_DEPTH:
            raise DataError(f"{folder}: more than {MAX_DEPTH} nested folders")
        self.is_open[folder_id] = True
        if (folder / "dataset_dict.json").is_file():
            splits = sorted(p.name for p in folder.iterdir() if p.is_dir())
            raise UsageError(f"{folder} contains several splits; name one of its folders: "
                             f"{', '.join(splits)}")
        if all((folder / name).is_file() for name in SAVED):
            yield from saved_files(folder)
        else:
            for entry in sorted(folder.iterdir(), key=lambda p: os.fsencode(p.name)):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    yield from self.files(entry, depth + 1)
                else:
                    yield entry
        self.is_open[folder_id] = False


def find_files(inputs: list[Path]) -> tuple[list[tuple[Path, str]], list[Path]]:
    """(files with their kinds, other files of the folders)"""
    found, skipped = [], []
    for path in inputs:
        before = len(found)
        is_folder = path.is_dir()
        for file in Walk().files(path) if is_folder else [path]:
            kind = kind_of(file)
            if kind is not None:
                found.append((file, kind))
            elif is_folder:
                skipped.append(file)
            elif not file.is_file():
                raise DataError(f"{file}: found a device, pipe or socket; expected a regular file")
            else:
                raise DataError(f"{file}: neither Parquet nor Arrow; text and JSON, plain, gzip or "
                                "zstd, need no conversion: lrnn-perplexity run --data, with "
                                "--template '{FIELD}' if the text is not in the field text")
        if len(found) == before:
            raise DataError(f"{path}: no Parquet or Arrow files in this folder")
    return found, skipped


def input_files(files: list[tuple[Path, str]]) -> Iterator[Path]:
    """The files and the descriptions that save_to_disk writes next to them."""
    for file, _ in files:
        yield file
        for name in SAVED:
            yield file.parent / name


def ends_early(path: Path) -> bool:
    """A stream cut between two batches lacks only its end marker, which is optional."""
    with path.open("rb") as f:
        f.seek(-8, os.SEEK_END)
        return f.read() != b"\xff\xff\xff\xff\0\0\0\0"


#
# Records
#

def batches_of(pa, path: Path, kind: str) -> Iterator:
    if kind == "parquet":
        # page by page: a row group of text can be larger than memory
        with pa.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as f:
            yield from f.iter_batches(batch_size=ROWS)
        return
    with pa.memory_map(str(path)) as source:
        if kind == "stream":
            batches = iter(pa.ipc.open_stream(source))
        else:
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        for batch in batches:
            for start in range(0, batch.num_rows, ROWS):
                yield batch.slice(start, ROWS)


def plain(value):
    """The value in the types of JSON."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):      # includes datetime
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(type(value).__name__)


def json_line(record: dict) -> bytes:
    text = json.dumps(plain(record), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8") + b"\n"


def checked_lines(path: Path) -> Iterator[bytes]:
    """The records of a downloaded file that has JSON lines already."""
    with path.open("rb") as f:
        for n, line in enumerate(f, 1):
            try:
                is_record = isinstance(json.loads(line), dict)
            except (ValueError, RecursionError):
                is_record = False
            if not is_record:
                raise DataError(f"{path}: line {n} is {shown(line[:40])}; expected a JSON object")
            yield line.rstrip(b"\n") + b"\n"


def lines_of(pa, path: Path, kind: str) -> Iterator[bytes]:
    if kind == "lines":
        yield from checked_lines(path)
        return
    n = 0
    try:
        for batch in batches_of(pa, path, kind):
            for record in batch.to_pylist():
                yield json_line(record)
                n += 1
    except TypeError as e:
        raise DataError(f"{path}: record {n + 1} has a value of type {e}, which has no form in "
                        "JSON") from None
    except UnicodeError as e:
        raise DataError(f"{path}: after {n} records: not UTF-8: {e.reason}") from None
    except (pa.ArrowException, OSError) as e:
        raise DataError(f"{path}: after {n} records: {' '.join(str(e).split())}") from None


#
# Output
#

@contextmanager
def output(path: Path | None):
    """Yields a function that writes bytes; None is standard output."""
    if path is None:
        try:
            yield sys.stdout.buffer.write
            sys.stdout.buffer.flush()
        except OSError as e:
            # or the interpreter reports the error again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise OutputError(f"standard output: cannot be written: {e.strerror}") from None
        return
    with replacing(path) as f:
        if path.suffix == ".gz":
            # without name and time: equal data give equal bytes
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=f, mtime=0) as z:
                yield z.write
        else:
            yield f.write


def data(argv: list[str]) -> None:
    p = build_parser()
    args = p.parse_args(argv)
    if bool(args.inputs) == (args.download is not None):
        p.error("expected either IN or --download")
    pa = load_pyarrow()
    if args.download is not None:
        if args.output is not None:
            check_output(args.output)      # before the download
        files = [(path, kind_of(path) or "lines")
                 for path in hub.get_data_set(args.download, args.quiet)]
        skipped = []
    else:
        files, skipped = find_files(args.inputs)
    if args.output is not None:
        check_output(args.output, input_files(files))
    say = (lambda text: None) if args.quiet else (lambda text: print(text, file=sys.stderr))
    for file in skipped:
        say(f"skipped:   {file}: neither Parquet nor Arrow")
    total = 0
    with ProgressLine(args.quiet) as progress, output(args.output) as write:
        for file, kind in files:
            n = 0
            for line in lines_of(pa, file, kind):
                write(line)
                n += 1
                if n % 10000 == 0:
                    progress.draw(f"{n} records  {file}")
            progress.erase()
            total += n
            say(f"{file}: {n} records")
            if kind == "stream" and ends_early(file):
                say(f"warning:   {file}: the stream has no end marker; it may be cut off")
    say(f"written:   {total} records of {len(files)} files to "
        f"{args.output or 'standard output'}")
