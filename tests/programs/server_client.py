"""lrnn-server as a process, and a small client for it."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import time


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self, status):
        """The error of a reply that must be one, in OpenAI's form."""
        assert self.status == status, (self.status, self.body[:500])
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == status and error["message"], error
        return error

    def events(self):
        """The objects of a stream, which must end with [DONE]."""
        lines = self.body.decode().split("\n\n")
        assert lines[-1] == "" and lines[-2] == "data: [DONE]", lines[-3:]
        assert all(line.startswith("data: ") for line in lines[:-2])
        return [json.loads(line[len("data: "):]) for line in lines[:-2]]


class Server:
    TIMEOUT_S = 600

    def __init__(self, lrnn, model, *args):
        self.log = lrnn.work / f"server-{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [lrnn.bin / "lrnn-server", "-m", model, "--port", "0", "-t", "1", *map(str, args)],
                cwd=lrnn.work, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + self.TIMEOUT_S
        while not (found := re.search(r"listening on http://[^\n]*:(\d+)\n", self.log.read_text())):
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)
        self.port = int(found.group(1))

    def connect(self, timeout=TIMEOUT_S):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def socket(self, timeout=TIMEOUT_S):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def request(self, method, path, body=None, headers=None):
        """Sends a request; a body that is neither bytes nor text is sent as JSON."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return Reply(reply.status, dict(reply.getheaders()), reply.read())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=b"", **options):
        return self.request("POST", path, body, **options)

    def complete(self, **fields):
        """A completion that must succeed."""
        reply = self.post("/v1/completions", fields)
        assert reply.status == 200, reply.body
        return reply.json()

    def metric(self, name):
        return float(re.search(rf"^lrnn:{name} (\S+)$", self.get("/metrics").body.decode(),
                               re.M).group(1))

    def slots_busy(self):
        return sum(slot["is_processing"] for slot in self.get("/slots").json())

    def stop(self):
        """SIGTERM: the server must end with exit code 0."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(self.TIMEOUT_S)
        assert code == 0, (code, self.log.read_text())

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def serving(lrnn, model, *args):
    server = Server(lrnn, model, *args)
    try:
        yield server
        server.stop()
    finally:
        server.kill()


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]
