"""The page of lrnn-server in a real browser. Skipped if there is none."""

import math
import re
import urllib.request

import numpy as np
import pytest

import browser as chromium
from server_client import serving

MODEL = "text-deltaproduct2-neg.gguf"
PROMPT = "The old man looked at"
TOKENS = "[...document.querySelectorAll('#text .t')]"
POP = "document.querySelector('#pop')"


class Page:
    """A browser that shows the page of a running server."""

    def __init__(self, browser, url):
        self.browser, self.url = browser, url
        self.eval, self.wait, self.key = browser.eval, browser.wait, browser.key
        self.click, self.hover = browser.click, browser.hover

    def set(self, **settings):
        for name, value in settings.items():
            self.eval(f"document.querySelector('[name={name}]').value = '{value}'")

    def write(self, text):
        """Adds a text and generates, with the keyboard."""
        self.eval("document.querySelector('#draft').focus()")
        self.browser.type(text)
        self.key("Enter", chromium.CTRL)
        self.idle()

    def idle(self):
        """Waits for the end of a generation and for what it draws."""
        self.wait("running === null && !updating")

    def text(self, selector=".t"):
        return self.eval(f"[...document.querySelectorAll('#text {selector}')]"
                         ".map(e => e.textContent).join('')").replace("↵", "")

    def tree(self):
        """(level, label, whether it is on the screen) of every branch."""
        return self.eval("[...document.querySelectorAll('#tree li')].map(e => [+e.ariaLevel,"
                         "e.querySelector('.s').textContent, e.ariaSelected === 'true'])")

    def focused(self):
        return self.eval("document.activeElement.textContent")


@pytest.fixture(scope="module")
def server(programs_in, tmp_path_factory):
    """The address of a server."""
    programs = programs_in(tmp_path_factory.mktemp("server"))
    with serving(programs, programs.models / MODEL) as server:
        yield f"http://127.0.0.1:{server.port}/"


@pytest.fixture(scope="module")
def one_browser(tmp_path_factory):
    yield from chromium.started(tmp_path_factory.mktemp("profile"))


@pytest.fixture
def page(one_browser, server):
    """The page without text, at a common size. The test fails if the page reports an error."""
    one_browser.resize(1200, 800)
    one_browser.forget(server)
    one_browser.open(server)
    one_browser.console.clear()
    one_browser.requests.clear()
    page = Page(one_browser, server)
    page.wait("document.querySelector('#model').textContent")
    page.set(max_tokens=24, temperature=1, seed=5)
    yield page
    assert one_browser.console == []
    assert [r for r in one_browser.requests if not r.startswith((server, "data:"))] == []


def test_page_is_one_file(server):
    with urllib.request.urlopen(server) as answer:
        html = answer.read().decode()
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert html.startswith("<!doctype html>") and "@" + "page." not in html
    assert not re.search(r"""(src|href)\s*=\s*["']?(?!data:)[^"'\s>]""", html)
    assert not re.search(r"@import|url\(", html)


def test_write_and_generate(page):
    page.write(PROMPT)
    assert page.text(".written") == PROMPT
    generated = page.text(".t:not(.written)")
    assert page.text() == PROMPT + generated and len(generated.encode()) >= 24
    assert page.eval("document.querySelector('#length').textContent") == str(len(PROMPT) + 24)
    assert page.eval("document.querySelector('#state').textContent") == "120 kB"
    assert float(page.eval("document.querySelector('#speed').textContent")) > 0
    assert re.fullmatch(r"\d+/21", page.eval("document.querySelector('#reused').textContent"))
    # a seed gives the same text again; its prompt is known by now
    page.click(f"{TOKENS}[{len(PROMPT) - 1}]")
    page.key("g")
    page.idle()
    assert page.text() == PROMPT + generated
    assert page.eval("document.querySelector('#reused').textContent") == "20/21"


def test_probabilities(page, server, root, config, programs_in, tmp_path):
    """Shades and alternatives are those of the model, computed by another program."""
    page.write(PROMPT)
    programs = programs_in(tmp_path)
    text = page.text().encode()
    programs.write("ids.txt", " ".join(map(str, text)))
    programs.run("lrnn-perplexity", "logits", "-m", programs.models / MODEL, "--tokens", "ids.txt",
                 "--out", "logits.npy")
    logits = np.load(tmp_path / "logits.npy").astype(np.float64)
    log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    shades = page.eval(f"{TOKENS}.map(e => +e.style.getPropertyValue('--s'))")
    assert len(shades) == len(text)
    expected = [0] + [min(1, -log_probs[i, t]/math.log(2)/8.3) for i, t in enumerate(text[1:])]
    assert np.allclose(shades, expected, atol=1e-3)

    at = len(PROMPT) + 3
    page.hover(f"{TOKENS}[{at}]")
    page.wait(f"!{POP}.hidden")
    rows = page.eval(f"[...{POP}.querySelectorAll('.alt')].map(e => [...e.children]"
                     ".map(c => c.textContent))")
    best = np.argsort(-log_probs[at - 1])[:9]
    names = [chr(t).replace(" ", "␣").replace("\n", "↵") for t in best]
    assert [row[1] for row in rows[:9]] == names
    assert abs(float(rows[0][2].split()[0]) - 100*np.exp(log_probs[at - 1].max())) < 0.06
    page.hover("document.querySelector('h1')")
    page.wait(f"{POP}.hidden")


def test_rewind_and_branch(page):
    page.write(PROMPT)
    first = page.text()
    page.click(f"{TOKENS}[29]")
    page.wait("document.querySelector('#length').textContent === '30'")
    assert page.text(".ghost") == first[30:]           # still there until it is replaced
    page.set(seed=6)
    page.click(f"{POP}.querySelector('.do button')")
    page.idle()
    second = page.text()
    assert second[:30] == first[:30] and second != first and page.text(".ghost") == ""
    # the two texts share more than 30 tokens if they agree by chance
    fork = next(i for i in range(len(first)) if first[i] != second[i])
    tree = page.tree()
    assert [level for level, _, _ in tree] == [1, 2, 2]
    assert [here for _, _, here in tree] == [True, False, True]
    assert tree[0][1].startswith(PROMPT)
    assert page.eval("document.querySelector('#tree .n').textContent") == str(fork)
    page.click("document.querySelectorAll('#tree .b')[1]")
    page.idle()
    assert page.text() == first
    # an alternative in place of a token
    page.click(f"{TOKENS}[25]")
    page.click(f"[...{POP}.querySelectorAll('.alt')].find(e => e.ariaCurrent !== 'true')")
    page.idle()
    assert page.text()[:25] == first[:25] and page.text()[25] != first[25]
    assert len(page.tree()) == 5
    # everything survives a reload
    text, tree = page.text(), page.tree()
    page.browser.open(page.url)
    page.wait("document.querySelectorAll('#tree li').length")
    assert page.text() == text and page.tree() == tree


def test_several_branches_at_once(page):
    page.set(n=3)
    page.write(PROMPT)
    assert sum(level > 1 for level, _, _ in page.tree()) >= 3
    assert sum(here for _, _, here in page.tree()) >= 2


def test_keyboard(page):
    assert page.eval("document.activeElement.id") == "draft"  # typing begins at once
    page.write(PROMPT)
    first = page.text()
    page.eval("document.querySelector('#text .caret').focus()")
    page.key("Home")
    assert page.focused() == "T"
    page.key("ArrowRight")
    assert page.focused() == "h"
    page.wait(f"!{POP}.hidden")                        # alternatives appear on focus
    page.key("Escape")
    assert page.eval(f"{POP}.hidden")
    for _ in range(25):
        page.key("ArrowRight")
    page.key("Enter")                                  # rewind to token 26
    page.wait("document.querySelector('#length').textContent === '27'")
    page.key("ArrowLeft")
    page.wait(f"!{POP}.hidden")
    other = page.eval(f"[...{POP}.querySelectorAll('.alt')]"
                      ".findIndex(e => e.ariaCurrent !== 'true')")
    page.key(str(other + 1))
    page.idle()
    assert page.text()[:25] == first[:25] and page.text()[25] != first[25]

    page.eval("document.querySelector('#tree [tabindex=\"0\"]').focus()")
    page.key("Home")
    assert page.focused().startswith(PROMPT)
    page.key("ArrowRight")
    page.key("Enter")
    page.idle()
    assert page.text() == first
    page.key("ArrowDown")
    page.key("Delete")
    page.idle()
    assert len(page.tree()) == 1 and page.text() == first
    assert page.eval("document.activeElement.closest('#tree') !== null")


def test_stop(page):
    page.set(max_tokens=30000)
    page.eval("document.querySelector('#draft').focus()")
    page.browser.type(PROMPT)
    page.key("Enter", chromium.CTRL)
    page.wait("document.querySelectorAll('#text .t').length > 30")
    page.key("Escape")
    page.idle()
    n_tokens = page.eval("document.querySelectorAll('#text .t').length")
    page.set(max_tokens=1)
    page.click("document.querySelector('#go')")
    page.idle()
    assert page.eval("document.querySelectorAll('#text .t').length") == n_tokens + 1


def test_text_is_not_markup(page):
    """Neither the user's nor the model's text becomes HTML, and characters of several tokens are
    shown once."""
    text = "<img src=x onerror=alert(1)> Grüße 世界 🦉\n\n<b>"
    page.write(text)
    assert page.text(".written") == text
    assert page.eval("document.querySelectorAll('#text img, #text b').length") == 0


def test_errors(page):
    page.eval("document.querySelector('[name=temperature]').max = 1e9")
    page.set(temperature=10000000)
    page.eval("document.querySelector('#draft').focus()")
    page.browser.type(PROMPT)
    page.key("Enter", chromium.CTRL)
    message = page.wait("document.querySelector('#error span').textContent")
    assert "temperature" in message
    page.set(temperature=1)
    page.click("document.querySelector('#go')")
    page.idle()
    assert page.eval("document.querySelector('#error').hidden")
    assert page.text().startswith(PROMPT)
    page.browser.console.clear()                       # the browser reports the status 400


def test_api_key(one_browser, programs_in, tmp_path):
    """The page asks for the key, and again after a wrong one."""
    programs = programs_in(tmp_path)
    dialog = "document.querySelector('#key-dialog').open"
    with serving(programs, programs.models / MODEL, "--api-key", "secret") as server:
        one_browser.open(f"http://127.0.0.1:{server.port}/")
        for key in ("wrong", "secret"):
            one_browser.wait(dialog)
            one_browser.eval("document.querySelector('#key').value = ''")
            one_browser.eval("document.querySelector('#key').focus()")
            one_browser.type(key)
            one_browser.key("Enter")
        one_browser.wait(f"document.querySelector('#model').textContent && !{dialog}")
        Page(one_browser, None).write(PROMPT)
        assert one_browser.eval("document.querySelectorAll('#text .t').length") > len(PROMPT)


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_layout(page, width, dark):
    """Nothing is cut off, the text stays readable on the darkest shade, and targets on a narrow
    screen are large enough for a finger."""
    page.browser.resize(width, 740, dark=dark, mobile=width < 600)
    page.set(n=2)
    page.write(PROMPT)
    assert page.eval("document.documentElement.scrollWidth") <= width
    assert page.eval("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    outside = page.eval(
        "[...document.querySelectorAll('button, input, textarea, dd, h2, #tree .b')].filter(e => {"
        "const r = e.getBoundingClientRect(); return r.width && (r.left < 0 || r.right > "
        f"{width}); }}).map(e => e.outerHTML)")
    assert outside == []
    cut = page.eval("[...document.querySelectorAll('dd, button, label')].filter("
                    "e => e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML)")
    assert cut == []
    page.click(f"{TOKENS}[24]")
    page.wait(f"!{POP}.hidden")
    box = page.eval(f"(r => [r.left, r.right])({POP}.getBoundingClientRect())")
    assert 0 <= box[0] and box[1] <= width
    if width < 600:
        heights = page.eval(f"[...{POP}.querySelectorAll('button')].map(e => e.offsetHeight)")
        assert min(heights) >= 30
    ratios = page.eval(CONTRAST)
    assert min(ratios) >= 4.5, ratios


# Contrast ratios of WCAG: text on the darkest shade, plain text, muted text, the main button.
CONTRAST = r"""(() => {
    const style = getComputedStyle(document.documentElement);
    const rgb = value => {
        const c = document.createElement("canvas").getContext("2d");
        c.fillStyle = value;
        c.fillRect(0, 0, 1, 1);
        return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const color = name => rgb(style.getPropertyValue(name).trim());
    const luminance = c => c.map(v => v/255)
        .map(v => v <= 0.04045 ? v/12.92 : ((v + 0.055)/1.055)**2.4)
        .reduce((sum, v, i) => sum + v*[0.2126, 0.7152, 0.0722][i], 0);
    const ratio = (a, b) => {
        const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
        return (x + 0.05)/(y + 0.05);
    };
    const tint = style.getPropertyValue("--tint").trim().split(/\s+/).map(Number);
    const max = Number(style.getPropertyValue("--tint-max"));
    const darkest = color("--card").map((v, i) => v*(1 - max) + tint[i]*max);
    return [ratio(color("--ink"), darkest), ratio(color("--ink"), color("--card")),
        ratio(color("--muted"), color("--card")), ratio(color("--muted"), color("--page")),
        ratio(color("--on-accent"), color("--accent")), ratio(color("--ink"), color("--soft"))];
})()"""
