// ---- Chat ---------------------------------------------------------------------------------------
//
// A message is a node of a tree: another answer, or an edited question, is a sibling. `last` is the
// child that was opened last; the conversation on the screen is the path of these. An answer has
// tokens { bytes, logprob }, and its figures: n, speed. `bare`: no thinking section was wanted.
// `isCut`: the limit of tokens ended it.

const newChat = () => ({ parent: null, children: [], last: null });
let talk = newChat(), editing = null;

function conversation() {
    const list = [];
    for (let m = talk.last; m; m = m.last) list.push(m);
    return list;
}

function addMessage(parent, role, text) {
    const message = { parent, children: [], last: null, role, text, tokens: [], n: 0 };
    parent.children.push(message);
    parent.last = message;
    return message;
}

function removeMessage(message) {
    const { parent } = message;
    parent.children.splice(parent.children.indexOf(message), 1);
    parent.last = parent.children[parent.children.length - 1] || null;
}

// The thinking section of an answer and what follows it. `isOpen`: it has not ended.
function sections(message) {
    const marks = props.thinking;
    let text = message.text, inside = Boolean(marks && marks.begins && !message.bare);
    if (!marks || message.role === "user") return { thought: "", answer: text };
    if (text.trimStart().startsWith(marks.open)) {
        text = text.slice(text.indexOf(marks.open) + marks.open.length);
        inside = true;
    }
    const end = inside ? text.indexOf(marks.close) : -1;
    if (inside && end < 0) return { thought: text, answer: "", isOpen: true };
    return inside ? { thought: text.slice(0, end), answer: text.slice(end + marks.close.length) }
        : { thought: "", answer: text };
}

async function send() {
    const text = $("say").value, list = conversation(), end = list[list.length - 1];
    if (running || !text.trim()) return;
    $("say").value = "";
    // a question without an answer is replaced
    await answer(addMessage(end ? (end.role === "user" ? end.parent : end) : talk, "user", text));
}

async function answer(question) {
    if (running || !inputs().every(input => input.reportValidity())) return;
    running = new AbortController();
    showError("");
    const path = [], system = $("system").value;
    for (let m = question; m.parent; m = m.parent) path.unshift(m);
    const body = { stream: true, stream_options: { include_usage: true }, logprobs: true,
        messages: path.map(m => ({ role: m.role, content: m.text })) };
    if (system.trim()) body.messages.unshift({ role: "system", content: system });
    for (const input of inputs()) {
        if (input.value !== "" && input.name !== "n") body[input.name] = Number(input.value);
    }
    if (body.seed !== undefined) body.seed += question.children.length;    // another answer
    const message = addMessage(question, "assistant", "");
    message.bare = props.thinking ? !$("think").checked : false;
    if (message.bare) body.chat_template_kwargs = { enable_thinking: false };
    update();
    say("Answering");
    try {
        let start, n;               // when the first tokens came, after the prompt, and how many
        const response = await request("/v1/chat/completions", body, running.signal);
        for await (const event of events(response)) {
            for (const choice of event.choices) {
                message.text += choice.delta.content || "";
                message.isCut = choice.finish_reason === "length";
                for (const item of (choice.logprobs && choice.logprobs.content) || []) {
                    message.tokens.push({ bytes: bytesOf(item), logprob: item.logprob });
                }
            }
            message.n = message.tokens.length;
            if (start) {
                message.speed = (message.n - n) / (performance.now() - start) * 1000;
            } else if (message.n) {
                start = performance.now();
                n = message.n;
            }
            update();
        }
        say(figures(message));
    } catch (e) {
        if (e.name !== "AbortError") showError(e.message);
    } finally {
        if (!message.text && !message.n) removeMessage(message);
        running = null;
        update();
    }
}

const figures = m => !m.n ? "" : `${m.n} tokens`
    + (m.speed ? `, ${m.speed.toPrecision(3) / 1} tokens/s` : "")
    + (m.isCut ? ", cut off by the token limit" : "");

// ---- Messages on the screen

// Tokens in plain text, shaded by their surprise.
function shaded(tokens) {
    const out = element("div");
    let rest = [];
    out.className = "shaded";
    for (const token of tokens) {
        const bytes = [...rest, ...token.bytes], tail = incompleteTail(bytes);
        rest = bytes.slice(bytes.length - tail);
        const span = element("span", decode(bytes.slice(0, bytes.length - tail)));
        span.style.setProperty("--s", Math.min(1, -token.logprob / Math.LN2 / MAX_BITS));
        span.title = percent(token.logprob);
        out.append(span);
    }
    return out;
}

function tool(label, title, action, isDisabled = running !== null) {
    const button = element("button", label);
    button.type = "button";
    button.title = title;
    button.setAttribute("aria-label", title);
    button.disabled = isDisabled;
    button.onclick = () => action(button);
    return button;
}

// Opens the sibling of a message.
function turn(message, by) {
    const all = message.parent.children;
    message.parent.last = all[all.indexOf(message) + by];
    update();
}

function edit(message) {
    editing = message;
    update();
}

function editor(message) {
    const area = element("textarea"), form = element("form", area, element("div",
        tool("Cancel", "Cancel", () => edit(null)), Object.assign(element("button", "Send"),
            { className: "primary" })));
    area.value = message.text;
    area.rows = Math.min(12, message.text.split("\n").length + 1);
    area.setAttribute("aria-label", "Message");
    form.className = "editor";
    form.onsubmit = e => {
        e.preventDefault();
        if (running || !area.value.trim()) return;
        editing = null;
        answer(addMessage(message.parent, "user", area.value));
    };
    area.onkeydown = e => {
        if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
            e.preventDefault();
            form.requestSubmit();
        } else if (e.key === "Escape") {
            e.stopPropagation();
            edit(null);
            $("say").focus();
        }
    };
    return form;
}

function tools(message) {
    const all = message.parent.children, at = all.indexOf(message), bar = element("div");
    bar.className = "tools";
    if (all.length > 1) {
        bar.append(tool("‹", "Previous version", () => turn(message, -1), running || at === 0),
            element("span", `${at + 1}/${all.length}`),
            tool("›", "Next version", () => turn(message, 1), running || at === all.length - 1));
    }
    bar.append(tool("Copy", "Copy", b => copyText(sections(message).answer.trim(), b), false));
    if (message.role === "user") {
        bar.append(tool("Edit", "Edit, in a new branch", () => edit(message)));
        if (!message.last) bar.append(tool("Answer", "Answer", () => answer(message)));
    } else {
        bar.append(tool("Regenerate", "Another answer", () => answer(message.parent)));
    }
    const figure = element("span", figures(message));
    figure.className = "figures";
    bar.append(figure);
    return bar;
}

function renderMessage(message) {
    const { thought, answer: text, isOpen } = sections(message);
    const body = element("div"), box = element("article");
    box.className = "m " + message.role;
    box.message = message;
    box.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
    if (editing === message) {
        box.append(editor(message));
        return box;
    }
    const isShaded = $("shade").checked && message.tokens.length > 0;
    if (thought.trim() && !isShaded) {
        const isBusy = Boolean(isOpen && running && !message.children.length);
        const title = isBusy ? "Thinking …" : isOpen ? "Thoughts, not finished" : "Thoughts";
        const fold = element("details", element("summary", title), element("div", thought.trim()));
        fold.className = "thoughts";
        fold.open = message.isUnfolded === undefined ? isBusy : message.isUnfolded;
        fold.firstChild.onclick = () => { message.isUnfolded = !fold.open; };
        box.append(fold);
    }
    body.className = "body";
    if (isShaded) body.append(shaded(message.tokens));
    else if (message.role === "user") body.append(element("p", text));
    else body.append(markdown(text.split("\n")));
    box.append(body, tools(message));
    return box;
}

// What a message looks like depends on this.
const lookOf = m => JSON.stringify([m.text.length, m.n, m.parent.children.length,
    m.parent.children.indexOf(m), m.children.length, m.isCut, editing === m, $("shade").checked,
    running !== null]);

function renderChat() {
    const list = conversation(), boxes = [...$("messages").children];
    list.forEach((message, i) => {
        const old = boxes[i], look = lookOf(message);
        if (old && old.message === message && old.look === look) return;
        const box = renderMessage(message);
        box.look = look;
        if (old) old.replaceWith(box); else $("messages").append(box);
        if (editing === message) box.querySelector("textarea").focus();
    });
    for (const box of boxes.slice(list.length)) box.remove();
    $("no-messages").hidden = list.length > 0;
    $("new-chat").disabled = !list.length || running !== null;
    $("send").disabled = running !== null;
    $("halt").hidden = running === null;
    if (!running) saveChat();
}

// ---- The chat survives a reload; its tokens do not

function saveChat() {
    const rows = [], index = new Map([[talk, -1]]), queue = [talk];
    for (const node of queue) {
        for (const child of node.children) {
            index.set(child, rows.length);
            rows.push([index.get(node), child.role, child.text, child.n, child.speed || 0,
                child.bare ? 1 : 0, node.last === child ? 1 : 0, child.isCut ? 1 : 0]);
            queue.push(child);
        }
    }
    try {
        localStorage.setItem("lrnn.chat", JSON.stringify({ model: props.model, rows,
            system: $("system").value }));
    } catch {
        localStorage.removeItem("lrnn.chat");  // too large
    }
}

function loadChat() {
    let saved = null;
    try { saved = JSON.parse(localStorage.getItem("lrnn.chat")); } catch { /* none */ }
    if (!saved || saved.model !== props.model) return;
    const nodes = [], opened = [];
    for (const [parent, role, text, n, speed, bare, isLast, isCut] of saved.rows) {
        const message = addMessage(nodes[parent] || talk, role, text);
        nodes.push(Object.assign(message, { n, speed, bare: Boolean(bare),
            isCut: Boolean(isCut) }));
        if (isLast) opened.push(message);
    }
    for (const message of opened) message.parent.last = message;
    $("system").value = saved.system;
}

// ---- The mode of the page

let isChat = false;
const limits = { true: 512, false: 64 };       // tokens to generate, by mode

function setMode(chatMode) {
    const input = document.querySelector("[name=max_tokens]");
    limits[isChat] = input.value;
    isChat = chatMode;
    input.value = Math.min(limits[isChat], props.max_tokens);
    document.body.classList.toggle("chat", isChat);
    $("mode-text").setAttribute("aria-pressed", !isChat);
    $("mode-chat").setAttribute("aria-pressed", isChat);
    localStorage.setItem("lrnn.mode", isChat ? "chat" : "text");
    closePop();
    update();
}

function beginChat() {
    $("modes").hidden = !props.has_chat;
    $("think-label").hidden = !props.thinking;
    if (!props.has_chat) return;
    loadChat();
    setMode(localStorage.getItem("lrnn.mode") !== "text");
    if (isChat && !matchMedia("(pointer: coarse)").matches) $("say").focus();
}

$("mode-text").onclick = () => running || setMode(false);
$("mode-chat").onclick = () => running || setMode(true);
$("chat-form").onsubmit = e => { e.preventDefault(); send(); };
$("halt").onclick = () => running && running.abort();
$("shade").onchange = update;
$("system").onchange = () => saveChat();
$("new-chat").onclick = () => {
    if (!confirm("Delete the conversation and all its branches?")) return;
    talk = newChat();
    update();
    $("say").focus();
};
$("say").onkeydown = e => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        e.stopPropagation();
        send();
    } else if (e.key === "ArrowUp" && !$("say").value && !running) {
        const question = conversation().filter(m => m.role === "user").pop();
        if (question) edit(question);
    }
};
