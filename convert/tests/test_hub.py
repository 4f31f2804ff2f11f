"""Downloads, from a local server that speaks the protocol of the hub: only what is needed, resumed
after a cut, with every hash checked."""

import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tiny
from conftest import File

pytest.importorskip("huggingface_hub")

PACKAGE = Path(__file__).resolve().parents[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """Repositories {path of the API: {file: bytes}}, and how the server misbehaves."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests, self.lock = {}, [], threading.Lock()
        self.cuts = {}                     # file: [bytes to send before the connection is cut, …]
        self.swapped = {}                  # file: other bytes of the same size
        self.names = {}                    # file: name in the listing
        self.is_gated = self.is_busy = self.ignores_ranges = False

    def listing(self, repository):
        files = []
        for name, data in self.files[repository].items():
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            file = {"rfilename": self.names.get(name, name), "size": len(data), "blobId": git}
            if len(data) > 3000:
                file["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data),
                               "pointerSize": 130}
            files.append(file)
        return {"id": repository, "sha": COMMIT, "siblings": files, "private": False,
                "gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": []}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, data=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        hub, path = self.server, self.path.partition("?")[0]
        api = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)", path)
        file = re.fullmatch(rf"/(datasets/)?([^/]+/[^/]+)/resolve/{COMMIT}/(.+)", path)
        if api and hub.is_busy:
            self.reply(418)
        elif api and api[2] in hub.files:
            self.reply(200, json.dumps(hub.listing(api[2])).encode(),
                       Content_Type="application/json")
        elif file and hub.is_gated:
            self.reply(403, X_Error_Code="GatedRepo", X_Error_Message="no access")
        elif file and file[3] in hub.files.get(file[2], ()):
            self.send_file(hub, file[3], hub.files[file[2]][file[3]])
        else:
            self.reply(404, X_Error_Code="RepoNotFound")

    def send_file(self, hub, name, data):
        data = hub.swapped.get(name, data)
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(found[1]) if found and not hub.ignores_ranges else 0
        with hub.lock:
            hub.requests.append((name, int(found[1]) if found else 0))
            cut = hub.cuts.get(name, []).pop(0) if hub.cuts.get(name) else None
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:] if cut is None else data[start:][:cut])
        self.close_connection = cut is not None


@pytest.fixture
def hub():
    server = Hub()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def convert(hub, tmp_path):
    """Runs lrnn-convert with the hub; returns its messages."""
    def run(*args, code=0):
        url = f"http://127.0.0.1:{hub.server_port}"
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("proxy")}
        env |= {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "5",
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                "PYTHONPATH": os.pathsep.join([str(PACKAGE), *filter(None, sys.path)])}
        done = subprocess.run([sys.executable, "-m", "lrnn_convert", *map(str, args)], env=env,
                              cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        errors = [x for x in done.stderr.splitlines() if x.startswith("lrnn-convert: ")]
        assert len(errors) == (code != 0) and "Traceback" not in done.stderr
        return done.stderr.replace(url, "HUB")

    return run


@pytest.fixture
def repository(hub, bench):
    """A checkpoint on the hub, among files that a conversion does not need."""
    folder = bench.save(*tiny.delta_net())
    names = ("config.json", "model.safetensors")
    hub.files["org/tiny"] = {name: (folder / name).read_bytes() for name in names} | {
        "README.md": b"#", "pytorch_model.bin": b"x" * 5000, "original/model.safetensors": b"y",
        "modeling_tiny.py": b"raise SystemExit", "optimizer.pt": b"z" * 5000}
    return hub.files["org/tiny"]


def test_a_checkpoint_is_downloaded_and_converted(hub, convert, repository, bench, tmp_path):
    err = convert("org/tiny", "-o", "out.gguf")
    assert [name for name, _ in hub.requests] == ["config.json", "model.safetensors"]
    assert "download:  HUB/org/tiny, 2 files" in err and "family:    delta_net" in err
    assert bench.run("--name", "tiny") == 0
    downloaded, local = File(tmp_path / "out.gguf"), File(bench.out)
    assert downloaded.kv["general.name"] == "tiny"
    assert all((downloaded.data[n] == x).all() for n, x in local.data.items())
    convert("org/tiny", "-o", "out.gguf")                  # nothing is downloaded twice
    assert len(hub.requests) == 2
    repository["config.json"] += b" "                      # but a new version is
    convert("org/tiny", "-o", "out.gguf", "--quiet")
    assert [name for name, _ in hub.requests[2:]] == ["config.json"]


def test_shards(hub, convert, repository):
    weights = repository.pop("model.safetensors")
    shard = "model-00001-of-00001.safetensors"
    n = int.from_bytes(weights[:8], "little")
    names = [x for x in json.loads(weights[8:8 + n]) if x != "__metadata__"]
    repository[shard] = weights
    repository["consolidated.safetensors"] = b"other"
    repository["model.safetensors.index.json"] = json.dumps(
        {"weight_map": dict.fromkeys(names, shard)}).encode()
    convert("org/tiny", "-o", "out.gguf")
    assert {name for name, _ in hub.requests} == {"config.json", shard,
                                                 "model.safetensors.index.json"}


CHUNK = 10 << 20                           # the package writes as much at once
LARGE = bytes(range(256)) * (3 * CHUNK // 256 + 1)


def test_a_cut_connection_is_resumed(hub, convert, tmp_path):
    hub.files["org/files"] = {"m.gguf": LARGE}
    hub.cuts["m.gguf"] = [CHUNK + 1000, CHUNK + 500]
    convert("get", "org/files", "m.gguf")
    assert hub.requests == [("m.gguf", at) for at in (0, CHUNK, 2 * CHUNK)]
    assert (tmp_path / "m.gguf").read_bytes() == LARGE


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_a_later_call_goes_on(hub, convert, tmp_path, ignores_ranges):
    """Nothing arrives any more, then the command is repeated."""
    hub.files["org/files"] = {"m.gguf": LARGE}
    hub.cuts["m.gguf"] = [CHUNK + 1000] + [0] * 20
    err = convert("get", "org/files", "m.gguf", code=1)
    assert "the same command goes on from there" in err and not (tmp_path / "m.gguf").exists()
    part, = tmp_path.glob("*.part")
    assert part.read_bytes() == LARGE[:CHUNK]
    hub.cuts.clear()
    hub.requests.clear()
    hub.ignores_ranges = ignores_ranges
    convert("get", "org/files", "m.gguf")
    assert hub.requests == [("m.gguf", CHUNK)]
    assert (tmp_path / "m.gguf").read_bytes() == LARGE and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_wrong_hash(hub, convert, repository, tmp_path, name):
    """SHA-256 of a large file, git's hash of a small one."""
    data = bytearray(repository[name])
    data[-3] ^= 1
    hub.swapped[name] = bytes(data)
    err = convert("org/tiny", "-o", "out.gguf", code=3)
    assert f"{name} arrived with the hash " in err and "it was deleted" in err
    left = [p.name for p in (tmp_path / "cache").rglob("*") if name in p.name]
    assert left == [] and not (tmp_path / "out.gguf").exists()
    hub.swapped.clear()
    convert("org/tiny", "-o", "out.gguf")


def test_more_bytes_than_listed(hub, convert, repository):
    hub.swapped["config.json"] = repository["config.json"] + b"x" * 9000
    assert "config.json" in convert("org/tiny", "-o", "out.gguf", code=3)


def test_refusals_of_the_hub(hub, convert, repository):
    assert "HUB/org/none: no such repository, or a private one" in convert(
        "org/none", "-o", "x.gguf", code=1)
    hub.is_busy = True
    assert "HUB/org/tiny: the hub answers with status 418" in convert(
        "org/tiny", "-o", "x.gguf", code=1)
    hub.is_busy, hub.is_gated = False, True
    err = convert("org/tiny", "-o", "x.gguf", code=1)
    assert "HUB/org/tiny is gated: accept its terms there" in err and "hf auth login" in err


@pytest.mark.parametrize("name", ["../m.gguf", "/tmp/m.gguf", "a/../../m.gguf", ".ssh/m.gguf",
                                  "a//m.gguf", "a\\m.gguf"])
def test_names_stay_in_the_folder(hub, convert, tmp_path, name):
    hub.files["lighteval/MATH-Hard"] = {"train/x": b"{}\n"}
    hub.names["train/x"] = f"train/{name}"
    err = convert("data", "--download", "math-hard", "-o", "out.jsonl", code=3)
    assert "expected a relative path" in err
    assert not [p for p in tmp_path.rglob("*") if p.name == "m.gguf"] and hub.requests == []


def test_get(hub, convert, tmp_path):
    hub.files["org/files"] = {"m-Q8_0.gguf": b"GGUF" + bytes(9000), "sub/n.gguf": b"GGUF"}
    convert("get", "org/files", "m-Q8_0.gguf")
    assert (tmp_path / "m-Q8_0.gguf").read_bytes() == hub.files["org/files"]["m-Q8_0.gguf"]
    convert("get", "org/files", "sub/n.gguf", "-o", "here.gguf", "--quiet")
    assert (tmp_path / "here.gguf").read_bytes() == b"GGUF"
    assert "did you mean m-Q8_0.gguf?" in convert("get", "org/files", "m-Q8_1.gguf", code=2)
    assert "expected ORG/NAME" in convert("get", "files", "m.gguf", code=2)
    assert "lrnn-convert get org/files" in convert("org/files", "-o", "x.gguf", code=3)


def test_data_sets(hub, convert, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"text": ["one", "two"]}), sink)
    parquet = sink.getvalue().to_pybytes()
    hub.files["DKYoon/SlimPajama-6B"] = {"data/validation-0.parquet": parquet,
                                         "data/train-0.parquet": b"x", "README.md": b"#"}
    convert("data", "--download", "slimpajama", "-o", "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text() == '{"text":"one"}\n{"text":"two"}\n'
    hub.files["lighteval/MATH-Hard"] = {"train/b.jsonl": b'{"a": 2}', "test/c.jsonl": b"{}\n",
                                        "train/a.jsonl": b'{"a": 1}\n'}
    convert("data", "--download", "math-hard", "-o", "b.jsonl", "--quiet")
    assert (tmp_path / "b.jsonl").read_text() == '{"a": 1}\n{"a": 2}\n'
    assert sorted(name for name, _ in hub.requests) == ["data/validation-0.parquet",
                                                        "train/a.jsonl", "train/b.jsonl"]
    hub.files["lighteval/MATH-Hard"]["train/a.jsonl"] = b"[1]\n"
    assert "line 1 is" in convert("data", "--download", "math-hard", "-o", "c.jsonl", code=3)
    assert "either IN or --download" in convert("data", "-o", "c.jsonl", code=2)
    assert not (tmp_path / "c.jsonl").exists()
