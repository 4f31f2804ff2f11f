"""Who may use lrnn-server: names of the host, web pages of other origins, content types, keys."""

import contextlib
import http.server
import json
import threading

import pytest

import browser as chromium
from server_client import serving

MODEL = "text-deltaproduct2-neg.gguf"
EVIL = "http://evil.example"
JSON = "application/json"


@pytest.fixture(scope="module")
def server(programs):
    with serving(programs, programs.models / MODEL, "--state-dir", "states", "--allow-host",
                 "models.example", "--allow-host", "Other.Example") as server:
        yield server


def raw(server, head, body=b""):
    """The status of a request that is sent as it stands, and the whole reply."""
    with contextlib.closing(server.socket(20)) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + body)
        reply = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                reply += piece
    return int(reply.split(b" ")[1]), reply


def with_host(server, host):
    return raw(server, f"GET /v1/models HTTP/1.1\nHost: {host}\nConnection: close\n\n")[0]


def save(server, **headers):
    """Tries to save a state, as an attack would."""
    return server.post("/states/evil", '{"prompt": "x"}',
                       headers={k.replace("_", "-"): v for k, v in headers.items()})


# ---- Host

@pytest.mark.parametrize("host", [
    "localhost", "localhost:1", "LOCALHOST", "localhost.", "a.localhost:80", "127.0.0.1",
    "127.0.0.1:8080", "10.1.2.3:80", "[::1]", "[::1]:8080", "[fe80::1]:1", "models.example",
    "MODELS.example:8080", "models.example.", "other.example"])
def test_names_of_this_server(server, host):
    assert with_host(server, host) == 200


@pytest.mark.parametrize("host", [
    "rebind.evil.example", "localhost.evil.example", "evil.example:8080", "127.0.0.1.evil.example",
    "127.1", "0x7f000001", "2130706433", "[::1].evil.example", "[::1", "::1", "evil-localhost",
    "models.example.evil", "models.example:80:80", "localhost:", "localhost:80x", ".localhost", "",
    "models.example@evil", "."])
def test_other_names_are_refused(server, host):
    status, reply = raw(
        server, f"GET /v1/models HTTP/1.1\nHost: {host}\nConnection: close\n\n")
    assert status in (400, 403) and b"--allow-host" in reply


def test_two_hosts_are_refused(server):
    assert raw(server, "GET /v1/models HTTP/1.1\nHost: localhost\nHost: localhost\n\n")[0] == 400


def test_the_page_has_the_same_rule(server):
    for path in ("/", "/health", "/nothing"):
        assert raw(server, f"GET {path} HTTP/1.1\nHost: evil.example\n\n")[0] == 403


def test_the_value_of_host_is_a_name(programs):
    with serving(programs, programs.models / MODEL, "--host", "localhost") as server:
        assert with_host(server, "localhost") == 200 and with_host(server, "a.example") == 403


# ---- Origin and content type

def test_other_origins_are_refused(server):
    for content in ("text/plain", JSON, None):
        for origin in (EVIL, "null", "", "http://localhost", "http://127.0.0.1:1", "file://",
                       f"ftp://127.0.0.1:{server.port}", f"http://127.0.0.1:{server.port}@evil",
                       f"http://127.0.0.1:{server.port}.evil", f"127.0.0.1:{server.port}"):
            headers = {"Origin": origin} | ({"Content_Type": content} if content else {})
            error = save(server, **headers).error(403)
            assert "--cors" in error["message"]
    assert server.get("/states").json() == {"states": []}
    assert server.get("/v1/models", headers={"Origin": EVIL}).status == 403


def test_the_own_origin_is_accepted(server):
    for scheme in ("http", "https", "HTTP"):  # https: a proxy may end TLS
        origin = f"{scheme}://127.0.0.1:{server.port}"
        assert save(server, Origin=origin, Content_Type=JSON).status == 200
        assert server.get("/v1/models", headers={"Origin": origin}).status == 200
    assert raw(server, "GET /health HTTP/1.1\nHost: models.example\nConnection: close\n"
                       "Origin: https://Models.Example\n\n")[0] == 200
    server.request("DELETE", "/states/evil")


def test_content_types(server):
    own = f"http://127.0.0.1:{server.port}"
    body = {"prompt": "Once"}
    for content in (JSON, "Application/JSON; charset=utf-8", "application/vnd.x+json"):
        assert server.post("/tokenize", body, headers={"Content-Type": content}).status == 200
    for content in ("text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x",
                    "application/jsonp", "application/octet-stream", "json"):
        error = server.post("/tokenize", body, headers={"Content-Type": content}).error(415)
        assert "application/json" in error["message"]
    # what curl -d sends, but no form of a page
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.post("/tokenize", body, headers=form).status == 200
    assert server.post("/tokenize", body, headers=form | {"Origin": own}).status == 415
    assert server.post("/tokenize", body).status == 200
    assert server.get("/health", headers={"Content-Type": "text/plain"}).status == 200


# ---- CORS

def preflight(server, origin, method="POST", path="/v1/completions", headers="x-a, authorization"):
    return server.request("OPTIONS", path, headers={
        "Origin": origin, "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": headers})


def test_preflight(programs):
    with serving(programs, programs.models / MODEL, "--cors", "https://app.example", "--cors",
                 "http://localhost:3000", "--api-key", "secret") as server:
        for origin in ("https://app.example", "http://localhost:3000"):
            reply = preflight(server, origin)  # a browser sends no key with it
            assert reply.status == 204 and reply.body == b""
            assert reply.headers["Access-Control-Allow-Origin"] == origin
            assert reply.headers["Vary"] == "Origin"
            assert reply.headers["Access-Control-Allow-Headers"] == "x-a, authorization"
            methods = reply.headers["Access-Control-Allow-Methods"].split(", ")
            assert {"GET", "POST", "DELETE"} <= set(methods)
            # the reply itself, and an error, can be read by the page
            for key, status in (("secret", 200), ("wrong", 401)):
                reply = server.get("/v1/models", headers={"Origin": origin,
                                                          "Authorization": f"Bearer {key}"})
                assert reply.status == status
                assert reply.headers["Access-Control-Allow-Origin"] == origin
                assert reply.headers["Vary"] == "Origin"
        for origin in (EVIL, "null", "https://app.example.evil", "http://app.example",
                       "https://app.example:444"):
            reply = preflight(server, origin)
            assert reply.status == 403 and "Access-Control-Allow-Origin" not in reply.headers
        plain = server.get("/health")
        assert plain.status == 200 and "Access-Control-Allow-Origin" not in plain.headers


def test_any_origin(programs):
    with serving(programs, programs.models / MODEL, "--cors", "*") as server:
        for origin in (EVIL, "null"):
            assert preflight(server, origin).headers["Access-Control-Allow-Origin"] == origin
            assert server.get("/health", headers={"Origin": origin}).status == 200
        assert with_host(server, "evil.example") == 403  # the names of the host are another matter


def test_no_cors_by_default(server):
    reply = preflight(server, EVIL)
    assert reply.status == 403 and "Access-Control-Allow-Origin" not in reply.headers
    server.request("OPTIONS", "/health").error(405)


def test_options_of_access(lrnn):
    model = lrnn.models / MODEL
    for origin in ("app.example", "https://app.example/", "https://app.example/path", "https://",
                   "ws://app.example", ""):
        lrnn.fail(lrnn.Code.USAGE, "lrnn-server", "-m", model, "--cors", origin, stderr="--cors")
    for name in ("", "http://a.example", "a.example:80", "a.example/"):
        lrnn.fail(lrnn.Code.USAGE, "lrnn-server", "-m", model, "--allow-host", name,
                  stderr="--allow-host")


# ---- Keys

def test_sources_of_the_key(lrnn, monkeypatch):
    model = lrnn.models / MODEL
    lrnn.write("key", "from-file\n")

    def check(key, *args):
        with serving(lrnn, model, *args) as server:
            for scheme in ("Bearer", "bearer", "BEARER"):
                assert server.get("/v1/models", headers={"Authorization": f"{scheme} {key}"}
                                  ).status == 200
            server.get("/v1/models", headers={"Authorization": f"Bearer {key}x"}).error(401)
            server.get("/v1/models").error(401)

    check("from-file", "--api-key-file", "key")
    monkeypatch.setenv("LRNN_API_KEY", "from-environment")
    check("from-environment")
    check("from-option", "--api-key", "from-option")


def test_without_the_key(lrnn):
    """The page, /health, and 401 before the body arrives, also where there is nothing."""
    with serving(lrnn, lrnn.models / MODEL, "--api-key", "secret") as server:
        for path in ("/", "/health", "/health?x=1"):
            assert server.get(path).status == 200
        for method, path in (("GET", "/nothing"), ("GET", "//health"), ("GET", "/health/"),
                             ("POST", "/health"), ("DELETE", "/v1/models"), ("GET", "/states/x"),
                             ("OPTIONS", "/v1/completions"), ("PUT", "/")):
            server.request(method, path).error(401)
            key = {"Authorization": "Bearer secret"}
            assert server.request(method, path, headers=key).status in (404, 405)
        for more in ("", "Expect: 100-continue\n"):
            assert raw(server, "POST /v1/completions HTTP/1.1\nHost: localhost\n"
                               f"Content-Length: 10000000\n{more}\n")[0] == 401


def test_bad_keys(lrnn, monkeypatch):
    command = ("lrnn-server", "-m", lrnn.models / MODEL)
    lrnn.write("empty", "")
    lrnn.write("key", "key")
    for args in (("--api-key", ""), ("--api-key", "two words"), ("--api-key-file", "empty"),
                 ("--api-key", "a", "--api-key-file", "key")):
        lrnn.fail(lrnn.Code.USAGE, *command, *args, stderr=args[0])
    monkeypatch.setenv("LRNN_API_KEY", "")
    lrnn.fail(lrnn.Code.USAGE, *command, stderr="LRNN_API_KEY")


# ---- A real browser

@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    yield from chromium.started(tmp_path_factory.mktemp("profile"),
                                "--host-resolver-rules=MAP *.example 127.0.0.1")


@pytest.fixture(scope="module")
def origin():
    """Another web site on this machine, with an empty page."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>evil</title>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        threading.Thread(target=site.serve_forever).start()
        yield f"http://evil.example:{site.server_address[1]}"
        site.shutdown()


def fetch(browser, url, **options):
    """[status, text] as a script of the page sees it, or the name of the exception."""
    return browser.eval(f"fetch('{url}', {json.dumps(options)})"
                        ".then(async r => [r.status, await r.text()], e => e.name)")


def test_a_page_of_another_origin_in_a_browser(browser, origin, server):
    url = f"http://127.0.0.1:{server.port}"
    browser.open(origin + "/")
    assert browser.eval("document.title") == "evil"
    post = {"method": "POST", "body": '{"prompt": "x"}'}
    assert fetch(browser, f"{url}/states/evil", **post, mode="no-cors") == [0, ""]
    assert fetch(browser, f"{url}/states/evil", **post) == "TypeError"
    assert fetch(browser, f"{url}/states/evil", **post, headers={"Content-Type": JSON}
                 ) == "TypeError"
    assert fetch(browser, f"{url}/v1/models") == "TypeError"
    assert fetch(browser, f"{url}/states/evil", method="DELETE") == "TypeError"
    # a form, whose body can be made to look like JSON
    browser.eval(f"""(() => {{ document.body.innerHTML = `<iframe name=f></iframe>
        <form method=post enctype=text/plain target=f action={url}/states/evil>
        <input name='{{"prompt": "x' value='"}}'></form>`; document.forms[0].submit(); }})()""")
    browser.wait("new Promise(done => setTimeout(() => done(true), 500))")
    assert server.get("/states").json() == {"states": []}


def test_a_rebound_name_in_a_browser(browser, server):
    """The name of the page's own host leads to this server: same origin, for the browser."""
    browser.open(f"http://rebind.example:{server.port}/")
    assert "--allow-host" in browser.eval("document.body.textContent")
    assert fetch(browser, "/v1/models")[0] == 403
    browser.open(f"http://models.example:{server.port}/")  # a name that was allowed
    assert fetch(browser, "/v1/models")[0] == 200


def test_cors_in_a_browser(browser, origin, programs):
    with serving(programs, programs.models / MODEL, "--cors", origin, "--api-key",
                 "secret") as server:
        url = f"http://127.0.0.1:{server.port}"
        browser.open(origin + "/")
        headers = {"Content-Type": JSON, "Authorization": "Bearer secret", "X-Stainless-Lang": "js"}
        status, text = fetch(browser, f"{url}/v1/completions", method="POST", headers=headers,
                             body=json.dumps({"prompt": "Once", "max_tokens": 3}))
        assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 3
        assert fetch(browser, f"{url}/v1/models")[0] == 401
        browser.open(f"http://other.example:{origin.rsplit(':', 1)[1]}/")
        assert fetch(browser, f"{url}/v1/models", headers=headers) == "TypeError"
