"""Links, headings and diagrams of the pages lead somewhere and say what is there."""

import re
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, blocks, name_of, prose

LINKED = (*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*/*.md")))

LANGUAGES = {"bash", "console", "text", "python", "json", "yaml", "markdown", "mermaid"}


def anchors(page: Path) -> set[str]:
    """Headings as GitHub links to them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (name if not number else f"{name}-{number}") in found:
            number += 1
        found.add(name if not number else f"{name}-{number}")
    return found


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)
    for target in targets:
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{name_of(page)}: {target}"
        assert place.is_relative_to(ROOT), f"{name_of(page)}: {target} leads out of the repository"
        if anchor:
            assert anchor in anchors(place), f"{name_of(page)}: {target}; headings: {sorted(anchors(place))}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_name_their_language(page: Path) -> None:
    """So that each is executed, read or known as output."""
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.name}: {block.language or 'no language'}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_is_listed(page: Path) -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    if page.parent == ROOT / "docs" and page.name != "README.md":
        assert f"({page.name})" in index, f"docs/README.md does not name {page.name}"


def test_paths_that_pages_name_exist() -> None:
    """Python files and folders of the packages, in backticks."""
    for page in PAGES:
        for path in re.findall(
            r"`((?:skill_bank|trainer|optimizer|mcp_server|tests|benchmarks|docs|examples)/[\w./-]+)`", prose(page)
        ):
            if not any(sign in path for sign in "*{<"):
                assert (ROOT / path).exists(), f"{name_of(page)}: {path}"


def test_diagrams_connect_what_they_name() -> None:
    """Every end of an arrow has a label somewhere: a misspelt name would be drawn as a box of its own. And no colours:
    the renderer's own are right in light and dark."""
    diagrams = [block for page in PAGES for block in blocks(page) if block.language == "mermaid"]
    assert len(diagrams) >= 2
    for block in diagrams:
        labelled = set(re.findall(r"(\w+)(?:\[|\(|\{)", block.text)) | set(re.findall(r"subgraph (\w+)", block.text))
        for line in block.text.splitlines():
            if "-->" not in line and "-.->" not in line:
                continue
            plain = re.sub(r"\|[^|]*\|", " ", re.sub(r"\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|\"[^\"]*\"", "", line))
            for name in re.split(r"-->|-\.->|&", plain):
                assert name.strip() in labelled, f"{block.name}: {name.strip()!r} has no label"
        assert not re.search(r"\b(style|classDef|fill|color)\b", block.text), block.name
