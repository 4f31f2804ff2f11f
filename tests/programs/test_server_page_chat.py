"""The chat of lrnn-server's page in a real browser. Skipped if there is none."""

import json
import re

import pytest
from server_client import serving
from test_chat import Chat
from test_server_page import CONTRAST, Page, one_browser  # noqa: F401: a fixture

import browser as chromium

MESSAGES = "[...document.querySelectorAll('#messages .m')]"


class ChatPage(Page):
    def ask(self, text):
        """Writes a message and sends it, with the keyboard."""
        self.eval("document.querySelector('#say').focus()")
        self.browser.type(text)
        self.key("Enter")
        self.idle()

    def messages(self):
        """(role, text) of every message on the screen."""
        return [tuple(m) for m in self.eval(
            f"{MESSAGES}.map(e => [e.message.role, e.message.text])")]

    def figures(self, i):
        return self.eval(f"{MESSAGES}[{i}].querySelector('.figures').textContent")

    def press(self, i, label):
        """Clicks a button of message i."""
        self.click(f"[...{MESSAGES}[{i}].querySelectorAll('button')]"
                   f".find(e => e.textContent === '{label}')")
        self.idle()

    def markdown(self, text):
        """The HTML that a text of the model becomes."""
        return self.eval(f"(() => {{ const e = document.createElement('div'); e.append("
                         f"markdown({json.dumps(text)}.split('\\n'))); return e.innerHTML; }})()")

    def requests(self):
        """The bodies of chats, from now on."""
        self.eval("window.bodies = []; window.request_ = window.request_ || request;"
                  "request = (path, body, signal) => { if (path.includes('chat'))"
                  "bodies.push(structuredClone(body)); return request_(path, body, signal); }")

    def last_body(self):
        return self.eval("bodies[bodies.length - 1]")


@pytest.fixture(scope="module")
def server(programs_in, tmp_path_factory):
    programs = programs_in(tmp_path_factory.mktemp("chat"))
    with serving(programs, Chat(programs, "qwen3.5").model) as server:
        yield f"http://127.0.0.1:{server.port}/"


@pytest.fixture
def page(one_browser, server):  # noqa: F811
    one_browser.resize(1200, 800)
    one_browser.forget(server)
    one_browser.open(server)
    one_browser.console.clear()
    one_browser.requests.clear()
    page = ChatPage(one_browser, server)
    page.wait("isChat")
    page.set(max_tokens=24, temperature=1, seed=5)
    page.requests()
    yield page
    assert one_browser.console == []
    assert [r for r in one_browser.requests if not r.startswith((server, "data:"))] == []


def test_conversation(page):
    page.ask("Hello")
    page.ask("Again\nand again")
    messages = page.messages()
    assert [role for role, _ in messages] == ["user", "assistant"] * 2
    assert [messages[0][1], messages[2][1]] == ["Hello", "Again\nand again"]
    body = page.last_body()
    assert body["messages"] == [{"role": r, "content": t} for r, t in messages[:3]]
    assert body["max_tokens"] == 24 and "n" not in body
    assert 1 <= int(page.figures(3).split()[0]) <= 24
    assert page.eval("document.activeElement.id") == "say"


CUT = ", cut off by the token limit"


def test_limit_of_tokens(page):
    """An answer that the limit has ended is marked, also after a reload; others are not."""
    page.ask("Hello")
    assert page.figures(1).startswith("24 tokens") and page.figures(1).endswith(CUT)
    page.browser.open(page.url)
    page.wait(f"isChat && {MESSAGES}.length === 2")
    assert page.figures(1).endswith(CUT)
    page.eval("""request = async () => new Response('data: ' + [
        { delta: { content: 'a' },
          logprobs: { content: [{ token: 'a', logprob: 0, bytes: [97] }] } },
        { delta: {}, finish_reason: 'stop' }].map(choice => JSON.stringify({ choices: [choice] }))
        .join('\\n\\ndata: ') + '\\n\\n')""")
    page.ask("Again")
    assert page.figures(3) == "1 tokens"


def test_speed_is_that_of_the_answer(page):
    """The time of the prompt does not count: 2 s here, before ten tokens in 0.2 s."""
    page.eval("""request = async () => new Response(new ReadableStream({ async start(to) {
        const wait = ms => new Promise(resolve => setTimeout(resolve, ms));
        const put = choice => to.enqueue(new TextEncoder().encode('data: ' + JSON.stringify({
            choices: [{ index: 0, logprobs: null, finish_reason: null, ...choice }] }) + '\\n\\n'));
        put({ delta: { role: 'assistant', content: '' } });
        await wait(2000);
        for (let i = 0; i < 10; i++, await wait(20)) put({ delta: { content: 'a' }, logprobs:
            { content: [{ id: 97, token: 'a', logprob: -1, bytes: [97] }] } });
        put({ delta: {}, finish_reason: 'stop' });
        to.close();
    } }))""")
    page.ask("Hello")
    assert page.messages()[1] == ("assistant", "a" * 10)
    found = re.fullmatch(r"10 tokens, ([\d.]+) tokens/s", page.figures(1))
    assert float(found.group(1)) > 5


def test_system_prompt(page):
    page.eval("document.querySelector('#system').value = 'Be brief.'")
    page.ask("Hello")
    assert page.last_body()["messages"][0] == {"role": "system", "content": "Be brief."}


def test_regenerate_edit_and_branch(page):
    page.ask("Hello")
    first = page.messages()
    page.press(1, "Regenerate")                        # with another seed
    second = page.messages()
    assert second[0] == first[0] and second[1] != first[1] and len(second) == 2
    assert page.last_body()["messages"] == [{"role": "user", "content": "Hello"}]
    assert "2/2" in page.eval(f"{MESSAGES}[1].textContent")
    page.press(1, "‹")
    assert page.messages() == first
    page.ask("More")
    # the last question, with the keyboard
    page.key("ArrowUp")
    page.wait("document.activeElement.closest('.editor')")
    page.browser.type(" please")
    page.key("Enter")
    page.idle()
    assert [m for m in page.messages() if m[0] == "user"] == [
        ("user", "Hello"), ("user", "More please")]
    page.press(2, "‹")
    assert page.messages()[2] == ("user", "More")
    page.press(0, "Edit")
    page.key("Escape")
    page.idle()
    assert page.messages()[2] == ("user", "More")
    page.press(1, "›")
    assert page.messages() == second
    # everything survives a reload
    page.browser.open(page.url)
    page.wait("isChat && document.querySelectorAll('#messages .m').length")
    assert page.messages() == second
    page.press(1, "‹")
    assert page.messages()[2] == ("user", "More")


def test_stop(page):
    page.set(max_tokens=30000)
    page.eval("document.querySelector('#say').focus()")
    page.browser.type("Hello")
    page.key("Enter")
    page.wait(f"{MESSAGES}.length === 2 && {MESSAGES}[1].message.n > 20")
    page.key("Escape")
    page.idle()
    assert len(page.messages()) == 2 and len(page.messages()[1][1]) > 0


def test_failed_answer(page):
    page.eval("document.querySelector('[name=temperature]').max = 1e9")
    page.set(temperature=10000000)
    page.ask("Hello")
    assert "temperature" in page.wait("document.querySelector('#error span').textContent")
    page.browser.console.clear()                       # the browser reports the status 400
    assert page.messages() == [("user", "Hello")]
    page.set(temperature=1)
    page.press(0, "Answer")
    assert [role for role, _ in page.messages()] == ["user", "assistant"]
    assert page.eval("document.querySelector('#error').hidden")


def test_thinking_is_folded(page):
    assert page.eval("props.thinking") == {"open": "<think>", "close": "</think>", "begins": True}
    page.eval("addMessage(addMessage(talk, 'user', 'a'), 'assistant', "
              "'Let me <b>see</b>.\\n</think>\\n\\nIt is **four**.'); update()")
    page.idle()
    assert page.eval("document.querySelector('.thoughts').open") is False
    assert page.eval("document.querySelector('.thoughts div').textContent") == \
        "Let me <b>see</b>."
    assert page.eval("document.querySelector('.assistant .body').innerHTML") == \
        "<p>It is <strong>four</strong>.</p>"
    page.click("document.querySelector('.thoughts summary')")
    assert page.eval("document.querySelector('.thoughts').open") is True
    for text, parts in (("a", ["a", "", True]), ("<think>a", ["a", "", True]),
                        ("a</think>b", ["a", "b", None])):
        assert page.eval(f"(s => [s.thought, s.answer, s.isOpen])(sections({{ role: 'assistant',"
                         f"text: '{text}' }}))") == parts
    assert page.eval("sections({ role: 'assistant', text: 'a', bare: true }).answer") == "a"


def test_unfinished_thoughts(page):
    """The limit of tokens ended an answer in its thoughts: the page does not say it goes on."""
    page.eval("addMessage(addMessage(talk, 'user', 'a'), 'assistant', 'Let me see'); update()")
    page.idle()
    assert page.eval("document.querySelector('.thoughts summary').textContent") == \
        "Thoughts, not finished"
    assert page.eval("document.querySelector('.thoughts').open") is False


def test_shaded_tokens(page):
    page.ask("Hello")
    text = page.messages()[1][1]
    page.click("document.querySelector('#shade')")
    page.idle()
    spans = page.eval("[...document.querySelectorAll('.shaded span')].map("
                      "e => [e.textContent, +e.style.getPropertyValue('--s'), e.title])")
    assert "".join(t for t, _, _ in spans).startswith(text.rstrip("\ufffd")) and len(spans) > 1
    assert all(0 <= s <= 1 and title.endswith("%") for _, s, title in spans)


@pytest.mark.parametrize("text, html", [
    ("a\nb\n\nc", "<p>a\nb</p><p>c</p>"),
    ("# A *b*", "<h3>A <em>b</em></h3>"),
    ("**a** __b__ *c* _d_ `e*f*`", "<p><strong>a</strong> <strong>b</strong> <em>c</em> "
                                   "<em>d</em> <code>e*f*</code></p>"),
    ("2 * 3 * 4, snake_case_name, **open", "<p>2 * 3 * 4, snake_case_name, **open</p>"),
    ("- a\n- b\n  - c\n\n1. d\n2. e", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul>"
     "</li></ul><ol start=\"1\"><li><p>d</p></li><li><p>e</p></li></ol>"),
    ("> a\n> b\n\n---", "<blockquote><p>a\nb</p></blockquote><hr>"),
    ("[a](https://b.example/c)", '<p><a href="https://b.example/c" rel="noopener noreferrer" '
     'target="_blank" title="https://b.example/c">a</a></p>'),
    ("[a](javascript:alert(1)) ![b](https://c.example/d.png)",
     "<p>[a](javascript:alert(1)) !<a href=\"https://c.example/d.png\" rel=\"noopener noreferrer\" "
     "target=\"_blank\" title=\"https://c.example/d.png\">b</a></p>"),
    ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"),
])
def test_markdown(page, text, html):
    assert page.markdown(text) == html


def test_code_blocks(page):
    block = page.markdown("```python\nprint('<b>')\n\n# x\n```\nend")
    assert "<pre tabindex=\"0\"><code>print('&lt;b&gt;')\n\n# x</code></pre>" in block
    assert "<span>python</span>" in block and block.endswith("<p>end</p>")
    assert "<code>a\nb</code>" in page.markdown("~~~\na\nb")  # not closed: still being written


@pytest.mark.parametrize("text", [
    "> " * 20000 + "a", ">" * 20000, "- " * 20000, "*" * 20000, "**a " * 20000, "_a " * 20000,
    "`" * 20001, "`a" * 20000, "[" * 20000, "[a](https://" * 5000, "  " * 9000 + "- a\n" * 3000,
    "1. a\n" * 20000, "#" * 20000, "```\n" * 20001, "- a\n\n" * 20000], ids=range(15))
def test_hostile_markdown(page, text):
    """Long, nested and unfinished marks take less than two seconds, also on a busy machine."""
    assert page.eval(f"(() => {{ const t = {json.dumps(text)}, start = performance.now();"
                     "markdown(t.split('\\n')); return performance.now() - start; })()") < 2000


def test_copy(page):
    page.eval("window.copied = []; Object.defineProperty(navigator, 'clipboard', { value: {"
              "writeText: async text => { copied.push(text); } }, configurable: true })")
    page.ask("Hello <b>")
    page.press(0, "Copy")
    page.wait("copied.length")
    assert page.eval("copied") == ["Hello <b>"]


def test_modes(page):
    page.ask("Hello")
    page.click("document.querySelector('#mode-text')")
    page.idle()
    assert page.eval("[...document.querySelectorAll('.of-chat')].every(e => !e.offsetParent)")
    assert page.eval("document.querySelector('[name=max_tokens]').value") == "64"
    page.set(max_tokens=8)
    page.write("Once")
    assert page.text().startswith("Once")
    page.click("document.querySelector('#mode-chat')")
    page.idle()
    assert len(page.messages()) == 2
    assert page.eval("document.querySelector('[name=max_tokens]').value") == "24"


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_layout(page, width, dark):
    page.browser.resize(width, 740, dark=dark, mobile=width < 600)
    page.eval("addMessage(addMessage(talk, 'user', 'Write a loop.'), 'assistant', "
              "'## Loops\\n\\n- one\\n- two\\n\\n```c\\nfor (int i = 0; i < 10; ++i) { printf("
              "\"a very long line of code that does not fit %d\\\\n\", i); }\\n```\\n' +"
              "'x'.repeat(300)); update()")
    page.idle()
    page.ask("Thank you")
    assert page.eval("document.documentElement.scrollWidth") <= width
    outside = page.eval(
        "[...document.querySelectorAll('button, input, textarea, .m, h2')].filter(e => {"
        "const r = e.getBoundingClientRect(); return r.width && (r.left < 0 || r.right > "
        f"{width}); }}).map(e => e.outerHTML)")
    assert outside == []
    if width < 600:
        heights = page.eval("[...document.querySelectorAll('.tools button')]"
                            ".map(e => e.offsetHeight)")
        assert min(heights) >= 30
    ratios = page.eval(CONTRAST)
    assert min(ratios) >= 4.5, ratios
