"use strict";

const $ = id => document.getElementById(id);
const N_ALTERNATIVES = 9;          // the digits of a keyboard
const MAX_BITS = 8.3;              // surprise of the darkest shade: probability 1/315

// ---- The tree of tokens -------------------------------------------------------------------------
//
// A node is a token after the tokens of its ancestors. `bytes` are its text, `logprob` is null if
// it is unknown, `alternatives` are the most likely tokens in its place, `last` is the child that
// was opened last. The text on the screen is the path from the root to `leaf`; the model continues
// after `tip`, which is the leaf or one of its ancestors.

const newRoot = () => ({ parent: null, children: [], last: null, bytes: [], depth: 0 });
let root = newRoot(), tip = root, leaf = root;

function pathTo(node) {
    const path = [];
    for (; node.parent; node = node.parent) path.push(node);
    return path.reverse();
}

const isAncestor = (a, node) => {
    while (node && node !== a) node = node.parent;
    return node === a;
};

// The child of `parent` with this token, made if necessary. `item` has the form of the API:
// { id, token, bytes, logprob, top_logprobs }.
function addChild(parent, item, written) {
    let node = parent.children.find(child => child.id === item.id);
    if (!node) {
        node = { parent, children: [], last: null, id: item.id, bytes: bytesOf(item),
            depth: parent.depth + 1, logprob: null, alternatives: [], written: false };
        parent.children.push(node);
    }
    if (written) node.written = true;
    if (item.logprob !== null && item.logprob !== undefined) {
        node.logprob = item.logprob;
        node.alternatives = (item.top_logprobs || []).map(
            t => ({ id: t.id, bytes: bytesOf(t), logprob: t.logprob }));
    }
    parent.last = node;
    return node;
}

const bytesOf = item => item.bytes && item.bytes.length ? item.bytes
    : [...new TextEncoder().encode(item.token)];

// Shows the text that ends with `node`, and the branch after it that was opened last.
function openBranch(node) {
    for (let n = node; n.parent; n = n.parent) n.parent.last = n;
    while (node.last) node = node.last;
    tip = leaf = node;
    update();
}

// The next token will follow `node`. The text after it stays on the screen until it is replaced.
function rewindTo(node) {
    if (running) return;
    tip = node;
    if (!isAncestor(node, leaf)) leaf = node;
    update();
}

function deleteBranch(node) {
    const parent = node.parent;
    parent.children.splice(parent.children.indexOf(node), 1);
    if (parent.last === node) parent.last = parent.children[0] || null;
    if (isAncestor(node, leaf)) leaf = parent;
    if (isAncestor(node, tip)) tip = parent;
    update();
}

// ---- The server ---------------------------------------------------------------------------------

let apiKey = sessionStorage.getItem("lrnn.key") || "";
let specials = [];                 // names of the tokens that are not text

async function request(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    if (apiKey) headers.Authorization = "Bearer " + apiKey;
    let response;
    try {
        response = await fetch(path, body === undefined ? { headers, signal }
            : { method: "POST", headers, body: JSON.stringify(body), signal });
    } catch (e) {
        throw e.name === "AbortError" ? e : new Error("The server does not answer.");
    }
    if (response.status === 401 && await askForKey()) return request(path, body, signal);
    if (!response.ok) {
        const text = await response.text();
        let message = `${response.status} ${response.statusText}`;
        try { message = JSON.parse(text).error.message; } catch { /* not an error of the API */ }
        throw new Error(message);
    }
    return response;
}

const getJson = async (path, body) => (await request(path, body)).json();

function askForKey() {
    return new Promise(resolve => {
        $("key-dialog").onclose = () => {
            const changed = $("key").value !== apiKey;
            apiKey = $("key").value;
            sessionStorage.setItem("lrnn.key", apiKey);
            resolve(changed);
        };
        $("key-dialog").showModal();
    });
}

// The events of a stream: lines "data: {...}", the last one "data: [DONE]".
async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        buffer += value;
        const lines = buffer.split("\n");
        buffer = lines.pop();
        for (const line of lines) {
            if (!line.startsWith("data:")) continue;
            const data = line.slice(5).trim();
            if (data === "[DONE]") return;
            const event = JSON.parse(data);
            if (event.error) throw new Error(event.error.message);
            yield event;
        }
    }
}

const idsOf = path => path.map(node => node.id);

// Adds a text that the user wrote after `tip`. One call gives the tokens their probabilities.
async function addText(text) {
    const first = tip === root;
    const { tokens } = await getJson("/tokenize",
        { content: text, add_special: first, add_special_tokens: first });
    if (!tokens.length) return;
    const before = idsOf(pathTo(tip));
    const answer = await getJson("/v1/completions", { prompt: [...before, ...tokens], echo: true,
        max_tokens: 0, temperature: 0, logprobs: N_ALTERNATIVES });
    for (const item of answer.choices[0].logprobs.content.slice(before.length)) {
        tip = addChild(tip, item, true);
    }
    leaf = tip;
}

let running = null;                // the AbortController of a generation
const inputs = () => [...$("settings").querySelectorAll("input")];

async function generate() {
    if (running || !inputs().every(input => input.reportValidity())) return;
    running = new AbortController();
    closePop();
    showError("");
    update();
    const timer = { start: 0, n: 0 };      // when the request was sent, tokens since
    try {
        const text = $("draft").value;
        if (text || tip === root) await addText(text);
        if (tip === root) {
            $("draft").focus();
            return;
        }
        $("draft").value = "";
        leaf = tip;
        update();
        await stream(timer);
    } catch (e) {
        if (e.name !== "AbortError") showError(e.message);
    } finally {
        running = null;
        update();
        if (timer.n) say(`${timer.n} tokens, ${$("speed").textContent} per second`);
    }
}

async function stream(timer) {
    const body = { prompt: idsOf(pathTo(tip)), stream: true, logprobs: N_ALTERNATIVES,
        stream_options: { include_usage: true } };
    for (const input of inputs()) {
        if (input.value !== "") body[input.name] = Number(input.value);
    }
    const ends = new Array(body.n).fill(tip);      // the last token of each branch
    say("Generating");
    timer.start = performance.now();
    const response = await request("/v1/completions", body, running.signal);
    for await (const event of events(response)) {
        if (event.usage) showUsage(event.usage);
        for (const choice of event.choices) {
            for (const item of (choice.logprobs && choice.logprobs.content) || []) {
                timer.n++;
                ends[choice.index] = addChild(ends[choice.index], item, false);
            }
        }
        tip = leaf = ends[0];
        for (let n = tip; n.parent; n = n.parent) n.parent.last = n;
        if (event.choices.length) {
            const speed = timer.n / (performance.now() - timer.start) * 1000;
            $("speed").textContent = speed.toPrecision(3) / 1;
        }
        update();
    }
}

// Takes a token in place of `node`, or after it, and generates from there.
function takeAlternative(parent, alternative, alternatives) {
    if (running) return;
    const node = addChild(parent, alternative, false);
    node.logprob = alternative.logprob;
    node.alternatives = alternatives;
    tip = leaf = node;
    generate();
}

// The most likely tokens after `node`.
async function nextTokens(node) {
    const known = node.children.find(child => child.alternatives.length);
    if (known) return known.alternatives;
    if (!node.next) {
        const answer = await getJson("/v1/completions", { prompt: idsOf(pathTo(node)),
            max_tokens: 1, temperature: 0, logprobs: N_ALTERNATIVES });
        node.next = answer.choices[0].logprobs.content[0].top_logprobs.map(
            t => ({ id: t.id, bytes: bytesOf(t), logprob: t.logprob }));
    }
    return node.next;
}

// ---- The text -----------------------------------------------------------------------------------

let shown = [];                    // { node, rest, span }: tokens on the screen, in order
const caret = document.createElement("span");
caret.className = "caret";
caret.setAttribute("role", "button");
caret.setAttribute("aria-label", "End of the text: the next tokens");

// Bytes at the end that may still become a character of UTF-8.
function incompleteTail(bytes) {
    for (let n = 1; n <= Math.min(3, bytes.length); n++) {
        const byte = bytes[bytes.length - n];
        if (byte >= 0xc0) return (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) > n ? n : 0;
        if (byte < 0x80) return 0;
    }
    return 0;
}

const decode = bytes => new TextDecoder().decode(new Uint8Array(bytes));
const isSpecial = node => {
    const name = decode(node.bytes);
    return specials.includes(name) || /^<\|.+\|>$/.test(name);
};
const percent = logprob => {
    const p = Math.exp(logprob) * 100;
    return p >= 99.95 ? "100 %" : p >= 0.1 ? p.toFixed(1) + " %" : p >= 0.001
        ? p.toPrecision(1) + " %" : "< 0.001 %";
};
const visible = text => text.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥")
    || "(part of a character)";
const nameOf = bytes => visible(incompleteTail(bytes) || decode(bytes) === "\ufffd"
    ? bytes.map(b => "<" + b.toString(16).padStart(2, "0").toUpperCase() + ">").join("")
    : decode(bytes));

function makeSpan(node, rest) {
    const span = document.createElement("span");
    const special = isSpecial(node);
    const bytes = special ? node.bytes : [...rest, ...node.bytes];
    const tail = special ? 0 : incompleteTail(bytes);
    const text = decode(bytes.slice(0, bytes.length - tail));
    span.className = "t" + (node.written ? " written" : "") + (special ? " special" : "");
    span.node = node;
    span.hidden = text === "";
    span.tabIndex = -1;
    span.setAttribute("role", "button");
    text.split("\n").forEach((line, i) => {
        if (i > 0) {
            const mark = document.createElement("span");
            mark.className = "mark";
            mark.textContent = "↵";
            span.append(mark, "\n");
        }
        span.append(line);
    });
    return { node, span, ghost: false, logprob: undefined, rest: bytes.slice(bytes.length - tail) };
}

function renderText() {
    const path = pathTo(leaf);
    let same = 0;
    while (same < path.length && same < shown.length && shown[same].node === path[same]) same++;
    for (const entry of shown.splice(same)) entry.span.remove();
    const fragment = document.createDocumentFragment();
    for (const node of path.slice(same)) {
        const entry = makeSpan(node, shown.length ? shown[shown.length - 1].rest : []);
        shown.push(entry);
        fragment.append(entry.span);
    }
    $("text").append(fragment);
    for (const entry of shown) {
        const { node, span } = entry;
        if (entry.logprob !== node.logprob) {
            entry.logprob = node.logprob;
            span.style.setProperty("--s", Math.min(1, -node.logprob / Math.LN2 / MAX_BITS));
            span.setAttribute("aria-label", nameOf(node.bytes) + ", " + percent(node.logprob));
        }
        const ghost = node.depth > tip.depth;
        if (ghost !== entry.ghost) span.classList.toggle("ghost", entry.ghost = ghost);
    }
    const after = tip.depth ? shown[tip.depth - 1].span : null;
    if (after ? after.nextSibling !== caret : $("text").firstChild !== caret) {
        if (after) after.after(caret); else $("text").prepend(caret);
    }
    const empty = leaf === root;
    $("empty").hidden = !empty;
    $("text").hidden = empty;
    const focusable = $("text").querySelector("[tabindex='0']");
    if (!focusable || !focusable.isConnected) setFocusable(caret);
}

function setFocusable(element) {
    for (const e of $("text").querySelectorAll("[tabindex='0']")) e.tabIndex = -1;
    element.tabIndex = 0;
}

const stops = () => [...$("text").children].filter(e => !e.hidden);

// The stop on the next line, or the previous one, that is nearest to `from`.
function stopOnLine(from, direction) {
    const all = stops(), at = from.getClientRects()[0];
    let best = null, line = null;
    for (let i = all.indexOf(from) + direction; i >= 0 && i < all.length; i += direction) {
        const r = all[i].getClientRects()[0];
        if (Math.abs(r.top - at.top) < at.height / 2) continue;
        if (line !== null && Math.abs(r.top - line) > at.height / 2) break;
        line = r.top;
        const distance = Math.abs(r.left - at.left);
        if (!best || distance < best.distance) best = { element: all[i], distance };
    }
    return best && best.element;
}

$("text").addEventListener("keydown", e => {
    const from = e.target.closest(".t, .caret");
    if (!from || e.ctrlKey || e.metaKey || e.altKey) return;
    const all = stops(), i = all.indexOf(from);
    const to = e.key === "ArrowLeft" ? all[i - 1] : e.key === "ArrowRight" ? all[i + 1]
        : e.key === "Home" ? all[0] : e.key === "End" ? all[all.length - 1]
        : e.key === "ArrowUp" ? stopOnLine(from, -1)
        : e.key === "ArrowDown" ? stopOnLine(from, 1) : undefined;
    if (to !== undefined) {
        if (to) to.focus();
    } else if (e.key === "Enter" || e.key === " ") {
        if (from !== caret) rewindTo(from.node);
    } else if (e.key === "g" || e.key === "G") {
        if (from !== caret) rewindTo(from.node);
        generate();
    } else if (e.key >= "1" && e.key <= "9") {
        const button = $("pop").querySelectorAll(".alt")[e.key - 1];
        if (!$("pop").hidden && button) button.click();
    } else {
        return;
    }
    e.preventDefault();
});

$("text").addEventListener("focusin", e => {
    const on = e.target.closest(".t, .caret");
    if (!on) return;
    setFocusable(on);
    if (on.matches(":focus-visible")) openPop(on);
});

$("text").addEventListener("click", e => {
    const on = e.target.closest(".t, .caret");
    if (!on) return;
    if (on !== caret) rewindTo(on.node);
    openPop(on);
});

// ---- Alternatives -------------------------------------------------------------------------------

let popFor = null, hoverTimer = 0;

function closePop() {
    clearTimeout(hoverTimer);
    if (popFor) popFor.classList.remove("active");
    popFor = null;
    $("pop").hidden = true;
}

async function openPop(element) {
    clearTimeout(hoverTimer);
    if (popFor) popFor.classList.remove("active");
    popFor = element;
    element.classList.add("active");
    const node = element === caret ? tip : element.node;
    if (element !== caret) {
        fillPop(nameOf(node.bytes), node.alternatives, node.parent, node);
    } else if (!running && tip !== root) {
        try {
            const alternatives = await nextTokens(node);
            if (popFor !== caret || running) return;
            fillPop("Next token", alternatives, node, null);
        } catch (e) {
            return showError(e.message);
        }
    }
    placePop(element);
}

// `node` is the token on the screen; null: there is none yet.
function fillPop(title, alternatives, parent, node) {
    const pop = $("pop");
    const row = (number, alternative) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "alt";
        button.style.setProperty("--p", Math.exp(alternative.logprob));
        for (const text of [number, nameOf(alternative.bytes), percent(alternative.logprob)]) {
            const span = document.createElement("span");
            span.textContent = text;
            button.append(span);
        }
        if (node && alternative.id === node.id) {
            button.setAttribute("aria-current", "true");
        }
        button.onclick = () => takeAlternative(parent, alternative, alternatives);
        return button;
    };
    const head = document.createElement("div");
    head.className = "head";
    const left = document.createElement("span"), right = document.createElement("span");
    const close = document.createElement("button");
    left.textContent = node && node.logprob !== null ? percent(node.logprob) : title;
    right.textContent = node ? `token ${node.id}, position ${node.depth}` : "";
    close.type = "button";
    close.textContent = "Close";
    close.onclick = closePop;
    head.append(left, right, close);
    pop.replaceChildren(head, ...alternatives.map((a, i) => row(i + 1, a)));
    if (node && node.logprob !== null && !alternatives.some(a => a.id === node.id)) {
        pop.append(row("", node));
    }
    if (!alternatives.length) {
        const none = document.createElement("p");
        none.className = "none";
        none.textContent = "No probability: nothing comes before it.";
        pop.append(none);
    }
    const bar = document.createElement("div"), go = document.createElement("button");
    bar.className = "do";
    go.type = "button";
    go.textContent = node ? "Generate after this token" : "Generate";
    go.disabled = running !== null;
    go.onclick = () => { if (node) rewindTo(node); generate(); };
    bar.append(go);
    pop.append(bar);
    pop.hidden = false;
}

function placePop(element) {
    const pop = $("pop"), rects = element.getClientRects();
    if (pop.hidden || !rects.length) return;
    if (!pop.offsetParent) {       // fixed at the bottom of a narrow screen
        element.scrollIntoView({ block: "nearest" });
        return;
    }
    const area = pop.offsetParent.getBoundingClientRect(), r = rects[0];
    const left = Math.max(8, Math.min(r.left - area.left - 12, area.width - pop.offsetWidth - 8));
    const below = r.bottom - area.top + 6;
    const fits = r.bottom + pop.offsetHeight + 12 < innerHeight || r.top < pop.offsetHeight + 12;
    pop.style.left = left + "px";
    pop.style.top = (fits ? below : r.top - area.top - pop.offsetHeight - 6) + "px";
}

// with a mouse: after a moment on a token, until a moment after it left
const hover = (element, delay, then) => {
    clearTimeout(hoverTimer);
    hoverTimer = setTimeout(then, delay, element);
};
$("text").addEventListener("pointermove", e => {
    const on = e.target.closest(".t, .caret");
    if (e.pointerType !== "mouse" || running || !on) return;
    if (on === popFor) clearTimeout(hoverTimer); else hover(on, popFor ? 60 : 140, openPop);
});
$("text").addEventListener("pointerout", e => {
    if (e.pointerType === "mouse") hover(null, 300, closePop);
});
$("pop").addEventListener("pointerenter", () => clearTimeout(hoverTimer));
$("pop").addEventListener("pointerleave", e => {
    if (e.pointerType === "mouse") hover(null, 300, closePop);
});
document.addEventListener("pointerdown", e => {
    if (!e.target.closest("#pop, #text")) closePop();
});
document.addEventListener("focusin", e => {
    if (!e.target.closest("#pop, #text")) closePop();
});

// ---- Branches -----------------------------------------------------------------------------------

// A branch: tokens without a fork, from `node` on.
function branchFrom(node) {
    const nodes = [node];
    while (node.children.length === 1) nodes.push(node = node.children[0]);
    return { nodes, end: node };
}

const plainText = nodes => decode(nodes.filter(n => !isSpecial(n)).flatMap(n => n.bytes));

function renderBranch(node, level, onPath) {
    const { nodes, end } = branchFrom(node);
    const item = document.createElement("li"), row = document.createElement("div");
    const label = document.createElement("span"), count = document.createElement("span");
    const remove = document.createElement("button");
    const here = onPath.has(node);
    const text = plainText(nodes.slice(0, 80)).replace(/\ufffd+$/, "");
    const before = document.createElement("i");    // the beginning of a word that the fork cuts
    if (/^\w/.test(text)) {
        before.textContent = plainText(pathTo(node.parent).slice(-16)).match(/\w*$/)[0];
    }
    label.append(before, text.replace(/\s+/g, " ").trim() || visible(text));
    count.textContent = nodes.length;
    count.title = `${nodes.length} tokens`;
    remove.textContent = "×";
    remove.title = "Delete this branch";
    remove.tabIndex = -1;
    remove.setAttribute("aria-hidden", "true");
    label.className = "s";
    count.className = "n";
    remove.className = "x";
    row.className = here ? "b here" : "b";
    row.append(label, count, remove);
    item.node = node;
    item.tabIndex = -1;
    item.setAttribute("role", "treeitem");
    item.setAttribute("aria-level", level);
    item.setAttribute("aria-selected", here);
    item.setAttribute("aria-label", `${label.textContent}, ${nodes.length} tokens`);
    item.append(row);
    if (end.children.length) {
        const list = document.createElement("ul");
        list.setAttribute("role", "group");
        list.append(...end.children.map(child => renderBranch(child, level + 1, onPath)));
        item.setAttribute("aria-expanded", "true");
        item.append(list);
    }
    return item;
}

function renderTree() {
    const focused = document.activeElement.closest("#tree li");
    const list = document.createElement("ul");
    list.setAttribute("role", "tree");
    list.setAttribute("aria-labelledby", "branches");
    const onPath = new Set(pathTo(leaf));
    list.append(...root.children.map(child => renderBranch(child, 1, onPath)));
    $("tree").replaceChildren(list);
    const items = [...list.querySelectorAll("li")];
    const first = items.find(i => focused && i.node === focused.node)
        || items.filter(i => onPath.has(i.node)).pop() || items[0];
    if (first) first.tabIndex = 0;
    if (first && focused) first.focus({ preventScroll: true });
    if (first) {                   // keep it in view
        const view = $("tree").getBoundingClientRect();
        const row = first.firstChild.getBoundingClientRect();
        const over = Math.max(0, row.bottom - view.bottom) - Math.max(0, view.top - row.top);
        $("tree").scrollTop += over;
    }
    $("no-tree").hidden = items.length > 0;
    $("clear").disabled = !items.length || running !== null;
}

$("tree").addEventListener("click", e => {
    const item = e.target.closest("li");
    if (!item || running) return;
    item.focus();
    if (e.target.closest(".x")) deleteBranch(item.node); else openBranch(branchFrom(item.node).end);
});

$("tree").addEventListener("keydown", e => {
    const item = e.target.closest("li");
    if (!item) return;
    const items = [...$("tree").querySelectorAll("li")], i = items.indexOf(item);
    const to = e.key === "ArrowDown" ? items[i + 1] : e.key === "ArrowUp" ? items[i - 1]
        : e.key === "Home" ? items[0] : e.key === "End" ? items[items.length - 1]
        : e.key === "ArrowRight" ? item.querySelector("li")
        : e.key === "ArrowLeft" ? item.parentElement.closest("li") : undefined;
    if (to !== undefined) {
        if (to) {
            item.tabIndex = -1;
            to.tabIndex = 0;
            to.focus();
            to.firstChild.scrollIntoView({ block: "nearest" });
        }
    } else if (!running && (e.key === "Enter" || e.key === " ")) {
        openBranch(branchFrom(item.node).end);
    } else if (!running && e.key === "Delete") {
        deleteBranch(item.node);
    } else {
        return;
    }
    e.preventDefault();
    e.stopPropagation();
});

// ---- The rest of the page -----------------------------------------------------------------------

let props = {};                    // facts about the model
let updating = false;

// Draws everything, once per frame.
function update() {
    if (updating) return;
    updating = true;
    requestAnimationFrame(() => {
        updating = false;
        document.body.classList.toggle("busy", running !== null);
        if (isChat) {
            const end = document.documentElement;
            const isAtEnd = innerHeight + scrollY >= end.scrollHeight - 60;
            renderChat();
            if (isAtEnd) scrollTo(0, end.scrollHeight);
            return;
        }
        const follow = running && caret.getBoundingClientRect().top < innerHeight;
        renderText();
        if (follow) caret.scrollIntoView({ block: "nearest" });
        renderTree();
        $("go").disabled = running !== null;
        $("stop").hidden = running === null;
        $("length").textContent = tip.depth;
        if (props.state_bytes !== undefined) {
            const cache = (props.cache_bytes_per_token || 0) * tip.depth;
            $("state").textContent = size(props.state_bytes) + (cache ? ` + ${size(cache)}` : "");
        }
        if (!running) saveTree();
    });
}

function size(bytes) {
    const unit = bytes >= 1e9 ? [1e9, "GB"] : bytes >= 1e6 ? [1e6, "MB"] : [1e3, "kB"];
    return `${(bytes / unit[0]).toPrecision(3) / 1} ${unit[1]}`;
}

function showUsage(usage) {
    const details = usage.prompt_tokens_details;
    if (details) $("reused").textContent = `${details.cached_tokens}/${usage.prompt_tokens}`;
}

function showError(message) {
    $("error").hidden = !message;
    $("error").firstElementChild.textContent = message;
}

const say = text => { $("status").textContent = text; };

// The tree survives a reload of the page.
function saveTree() {
    const nodes = [], index = new Map([[root, -1]]);
    const visit = node => {
        for (const child of node.children) {
            index.set(child, nodes.length);
            nodes.push([index.get(node), child.id, child.bytes, child.logprob,
                child.written ? 1 : 0, ...child.alternatives.flatMap(
                    a => [a.id, a.bytes, Number(a.logprob.toFixed(4))])]);
            visit(child);
        }
    };
    visit(root);
    try {
        localStorage.setItem("lrnn.tree", JSON.stringify(
            { model: props.model, nodes, tip: index.get(tip), leaf: index.get(leaf) }));
    } catch {
        localStorage.removeItem("lrnn.tree");  // too large
    }
}

function loadTree() {
    let saved = null;
    try { saved = JSON.parse(localStorage.getItem("lrnn.tree")); } catch { /* none */ }
    if (!saved || saved.model !== props.model || !saved.nodes.length) return;
    const nodes = [];
    for (const [parent, id, bytes, logprob, written, ...rest] of saved.nodes) {
        const node = addChild(nodes[parent] || root, { id, bytes, logprob: null }, written);
        node.logprob = logprob;
        for (let i = 0; i < rest.length; i += 3) {
            node.alternatives.push({ id: rest[i], bytes: rest[i + 1], logprob: rest[i + 2] });
        }
        nodes.push(node);
    }
    tip = nodes[saved.tip] || root;
    leaf = nodes[saved.leaf] || root;
    for (let n = leaf; n.parent; n = n.parent) n.parent.last = n;
}

$("composer").onsubmit = e => { e.preventDefault(); generate(); };
$("stop").onclick = () => running && running.abort();
$("error").querySelector("button").onclick = () => showError("");
$("help").onclick = () => $("keys").showModal();
$("clear").onclick = () => {
    if (!confirm("Delete the text and all branches?")) return;
    root = tip = leaf = newRoot();
    closePop();
    update();
    $("draft").focus();
};
document.addEventListener("keydown", e => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
        e.preventDefault();
        if (isChat) send(); else generate();
    } else if (e.key === "Escape") {
        if (!$("pop").hidden) closePop(); else if (running) running.abort();
    } else if (e.key === "?" && !e.target.closest("input, textarea, dialog")) {
        $("keys").showModal();
    }
});

const dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme() {
    const theme = localStorage.getItem("lrnn.theme") || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    $("theme").setAttribute("aria-pressed", theme === "dark");
}
$("theme").onclick = () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("lrnn.theme", other);
    setTheme();
};
dark.onchange = setTheme;
setTheme();

// Typing begins at once, but on a touch screen no keyboard covers the page before it is wanted.
if (!matchMedia("(pointer: coarse)").matches) $("draft").focus();

for (const text of ["The old man looked at", "It was a dark night", "Once upon a time"]) {
    const button = document.createElement("button");
    button.textContent = text;
    button.onclick = () => {
        $("draft").value = text;
        generate();
    };
    $("starts").append(button);
}

async function begin() {
    try {
        props = await getJson("/props");
        $("model").textContent = [props.model, props.family, props.eigenvalues].filter(x => x)
            .join(" · ");
        document.title = `${props.model} – lrnn`;
        document.querySelector("[name=max_tokens]").max = props.max_tokens;
        const info = await getJson("/tokenizer_info");
        specials = [info.bos_token, info.eos_token].filter(name => name && name.trim());
        loadTree();
        beginChat();
    } catch (e) {
        showError(e.message);
    }
    update();
}
