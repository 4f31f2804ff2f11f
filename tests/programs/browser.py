"""A real browser for tests of the server's page: Chromium, through its DevTools protocol.

The protocol runs over two pipes, messages end with a zero byte, so no package is needed. Its
reference is https://chromedevtools.github.io/devtools-protocol/.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# keys that are not characters: name: (code, Windows virtual key code)
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "Delete": 46, "Home": 36, "End": 35,
        "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
CTRL = 2


def find():
    """The path of a browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a headless browser with an empty profile in the folder `profile`. `options` are
    further options of the browser."""

    TIMEOUT_S = 60

    def __init__(self, path, profile, *options):
        to_read, self.write_fd = os.pipe()
        self.read_fd, to_write = os.pipe()

        def use_pipes():                   # the protocol is on descriptors 3 and 4
            os.dup2(to_read, 1000)         # first out of the way of each other
            os.dup2(to_write, 1001)
            os.dup2(1000, 3)
            os.dup2(1001, 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
             "--hide-scrollbars", f"--user-data-dir={profile}", *options, "about:blank"],
            preexec_fn=use_pipes, pass_fds=(3, 4, to_read, to_write),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.n_calls, self.session = b"", 0, None
        self.console = []                  # errors and exceptions of the page
        self.requests = []                 # addresses
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.read_fd)
        os.close(self.write_fd)

    def _receive(self):
        """The next message."""
        end = time.monotonic() + self.TIMEOUT_S
        while b"\0" not in self.buffer:
            assert time.monotonic() < end, "the browser does not answer"
            if select.select([self.read_fd], [], [], 1)[0]:
                data = os.read(self.read_fd, 1 << 20)
                assert data, "the browser has ended"
                self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        """Calls a method of the protocol. Collects the events that arrive meanwhile."""
        self.n_calls += 1
        message = {"id": self.n_calls, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self.n_calls:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.console.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, url):
        """Opens an address and waits until the page is there, not the one before it."""
        self.eval("window.isOld = true")
        self.call("Page.navigate", url=url)
        self.wait("!window.isOld && document.readyState === 'complete'")

    def forget(self, url):
        """Deletes what pages of this origin have stored. None may be open: it could store more."""
        self.open("about:blank")
        self.call("Storage.clearDataForOrigin", origin=url.rstrip("/"), storageTypes="all")

    def eval(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait(self, expression):
        """Waits until an expression is true. Returns its value."""
        end = time.monotonic() + self.TIMEOUT_S
        while not (value := self.eval(expression)):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)
        return value

    def resize(self, width, height, *, dark=False, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def key(self, name, modifiers=0):
        """Presses a key: a character or one of KEYS."""
        params = {"key": name, "modifiers": modifiers}
        if name in KEYS:
            params |= {"code": name, "windowsVirtualKeyCode": KEYS[name]}
        if name == "Enter":
            params["text"] = "\r"
        elif name not in KEYS:
            params |= {"text": name, "windowsVirtualKeyCode": ord(name.upper())}
        self.call("Input.dispatchKeyEvent", type="keyDown", **params)
        params.pop("text", None)
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def point(self, selector):
        """The middle of the first line of an element on the screen."""
        return self.eval(
            f"(() => {{ const e = {selector}; e.scrollIntoView({{block: 'nearest'}});"
            "const r = e.getClientRects()[0];"
            "return [r.left + r.width/2, r.top + r.height/2]; })()")

    def hover(self, selector):
        """Moves the mouse to an element, given by an expression."""
        x, y = self.point(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        x, y = self.point(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


def started(profile, *args):
    """A browser, for a fixture; skips the test where none starts."""
    path = find()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is in PATH")
    try:
        browser = Browser(path, profile, *args)
    except (AssertionError, OSError) as e:
        pytest.skip(f"{path} does not start: {e}")
    yield browser
    browser.close()
