// ---- Markdown -----------------------------------------------------------------------------------
//
// The text of a model is not trusted. It becomes elements and text nodes, never HTML; no image is
// loaded and a link shows its address. Time is linear in the length, nesting is limited.

const MAX_NESTING = 6;

const element = (name, ...children) => {
    const e = document.createElement(name);
    e.append(...children);
    return e;
};

// Where the text between the mark at `i` and the next equal one ends; -1: it is no pair.
function closingMark(text, i, mark) {
    const begin = i + mark.length, end = text.indexOf(mark, begin);
    if (end <= begin || /\s/.test(text[begin]) || /\s/.test(text[end - 1])) return -1;
    const inWord = mark[0] === "_" && (/\w/.test(text[i - 1] || " ")
        || /\w/.test(text[end + mark.length] || " "));     // snake_case has no emphasis
    return inWord ? -1 : end;
}

// Code, emphasis and links of a paragraph.
function inline(text, depth = 0) {
    const out = document.createDocumentFragment();
    const missing = new Set();             // marks that do not occur again
    let plain = 0, i = 0;
    const add = (e, next) => {
        out.append(text.slice(plain, i), e);
        i = plain = next;
    };
    while (i < text.length) {
        const mark = text[i] === "`" ? text.slice(i, i + 64).match(/^`+/)[0]
            : /[*_]/.test(text[i]) ? (text[i + 1] === text[i] ? text[i] + text[i] : text[i]) : "";
        if (mark && !missing.has(mark)) {
            const isCode = mark[0] === "`";
            const end = isCode ? text.indexOf(mark, i + mark.length) : closingMark(text, i, mark);
            if (end >= 0 && (isCode || depth < MAX_NESTING)) {
                const inner = text.slice(i + mark.length, end);
                add(isCode ? element("code", inner.trim() || inner)
                    : element(mark.length === 2 ? "strong" : "em", inline(inner, depth + 1)),
                    end + mark.length);
                continue;
            }
            if (text.indexOf(mark, i + mark.length) < 0) missing.add(mark);
        }
        const link = text[i] === "[" && depth < MAX_NESTING && text.slice(i, i + 2000).match(
            /^\[([^\][\n]{1,300})\]\((https?:\/\/[^\s()<>"]{1,1500})\)/);
        if (link) {
            const a = element("a", link[1]);
            a.setAttribute("href", link[2]);
            a.setAttribute("rel", "noopener noreferrer");
            a.target = "_blank";
            a.title = link[2];
            add(a, i + link[0].length);
            continue;
        }
        i += mark.length || 1;
    }
    out.append(text.slice(plain));
    return out;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)/;
const isBlock = line => FENCE.test(line) || ITEM.test(line) || RULE.test(line)
    || HEADING.test(line) || /^ {0,3}>/.test(line);

function codeBlock(lines, language) {
    const code = lines.join("\n"), copy = element("button", "Copy");
    copy.type = "button";
    copy.onclick = () => copyText(code, copy);
    const bar = element("div", element("span", language), copy);
    bar.className = "bar";
    const pre = element("pre", element("code", code));
    pre.tabIndex = 0;                      // scrolls with the keyboard
    const block = element("div", bar, pre);
    block.className = "code";
    return block;
}

// The lines of a list, from `i` on: [its element, the next line].
function list(lines, i, depth) {
    const [, indent, bullet] = lines[i].match(ITEM);
    const isOrdered = /\d/.test(bullet), out = element(isOrdered ? "ol" : "ul");
    if (isOrdered) out.start = parseInt(bullet);
    while (i < lines.length) {
        const item = lines[i].match(ITEM);
        if (!item || item[1].length > indent.length + 1 || /\d/.test(item[2]) !== isOrdered) break;
        const inner = [lines[i].slice(item[0].length)], width = item[1].length + 2;
        for (i++; i < lines.length; i++) {         // lines that are indented, or go on
            const isIndented = lines[i].search(/\S/) >= width;
            if (lines[i].trim() === "" ? !(lines[i + 1] || "").startsWith(" ".repeat(width))
                : !isIndented && (isBlock(lines[i]) || lines[i - 1].trim() === "")) break;
            inner.push(isIndented ? lines[i].slice(width) : lines[i]);
        }
        out.append(element("li", markdown(inner, depth + 1)));
        while (i + 1 < lines.length && lines[i].trim() === "" && ITEM.test(lines[i + 1])) i++;
    }
    return [out, i];
}

function markdown(lines, depth = 0) {
    const out = document.createDocumentFragment();
    for (let i = 0; i < lines.length;) {
        const line = lines[i], fence = line.match(FENCE), heading = line.match(HEADING);
        let end = i + 1;
        if (line.trim() === "") {
            i++;
        } else if (fence) {
            const isEnd = l => l.trim().startsWith(fence[1]) && /^[`~]+$/.test(l.trim());
            while (end < lines.length && !isEnd(lines[end])) end++;
            out.append(codeBlock(lines.slice(i + 1, end), fence[2]));
            i = end + 1;
        } else if (heading) {
            out.append(element("h" + Math.min(6, heading[1].length + 2), inline(heading[2])));
            i++;
        } else if (RULE.test(line)) {
            out.append(element("hr"));
            i++;
        } else if (depth < MAX_NESTING && /^ {0,3}>/.test(line)) {
            while (end < lines.length && /^ {0,3}>/.test(lines[end])) end++;
            const inner = lines.slice(i, end).map(l => l.replace(/^ {0,3}> ?/, ""));
            out.append(element("blockquote", markdown(inner, depth + 1)));
            i = end;
        } else if (depth < MAX_NESTING && ITEM.test(line)) {
            const [e, next] = list(lines, i, depth);
            out.append(e);
            i = next;
        } else {
            while (end < lines.length && lines[end].trim() !== "" && !isBlock(lines[end])) end++;
            out.append(element("p", inline(lines.slice(i, end).join("\n"))));
            i = end;
        }
    }
    return out;
}

// Works without the clipboard API too, which a page that came from another machine does not have.
async function copyText(text, button) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        const area = element("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
        button.focus();
    }
    const label = button.textContent;
    button.textContent = "Copied";
    say("Copied");
    setTimeout(() => { button.textContent = label; }, 1200);
}
