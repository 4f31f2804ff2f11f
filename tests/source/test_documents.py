"""The documents: every link leads somewhere, and the README lists every document once."""

import re
import subprocess

import pytest

LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def documents(root):
    """The Markdown files of the project, with their text."""
    if (root / ".git").exists():
        out = subprocess.run(["git", "ls-files", "*.md"], cwd=root, check=True, capture_output=True,
                             text=True).stdout
        paths = [root / line for line in out.splitlines() if (root / line).is_file()]
    else:
        paths = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    assert len(paths) > 15
    return {path: path.read_text(encoding="utf-8") for path in paths}


def anchors(text):
    """The anchors that GitHub gives to the headings of a document."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    titles = [re.sub(r"[`*]", "", title) for title in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links(root, documents):
    broken = []
    for path, text in documents.items():
        for link in LINK.findall(re.sub(r"`[^`]*`", "", text)):
            if link.startswith(("http:", "https:")):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
                broken.append(f"{path.relative_to(root)}: {link}")
    assert broken == []


def test_readme_lists_every_document(root, documents):
    section = re.search(r"\n## Documentation\n(.*?)\n## ", documents[root / "README.md"], re.S)[1]
    listed = LINK.findall(section)
    docs = {str(p.relative_to(root)) for p in documents if p.is_relative_to(root / "docs")}
    assert len(listed) == len(set(listed))
    assert docs <= set(listed)
