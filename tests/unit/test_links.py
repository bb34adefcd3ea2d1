"""Every link of the documentation leads somewhere."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.each import each
from tests.unit.test_house import ROOT

DOCS = ROOT / "docs"
ALONE = [
    ROOT / "smb3" / "README.md",
    ROOT / "terminal" / "README.md",
    ROOT / "terminal" / "quicksand_driver" / "README.md",
    ROOT / "terminal" / "quicksand_panes" / "README.md",
    ROOT / "terminal" / "quicksand_pixels" / "README.md",
    ROOT / "terminal" / "quicksand_vnc" / "README.md",
    ROOT / "images" / "quicksand_disks" / "README.md",
    ROOT / "images" / "quicksand_wheels" / "README.md",
]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *ALONE]
READ = MarkdownIt().enable("table")


def tokens(page: Path) -> Iterator[Token]:
    for token in READ.parse(page.read_text(encoding="utf-8")):
        yield token
        yield from token.children or ()


def targets(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures."""
    for token in tokens(page):
        found = token.attrGet("href") or token.attrGet("src")
        if found is not None:
            yield str(found)


def anchors(page: Path) -> set[str]:
    """What a link can name in a page, as forges and our site make it of a heading."""
    all_tokens = list(READ.parse(page.read_text(encoding="utf-8")))
    headings = (
        following.content
        for token, following in itertools.pairwise(all_tokens)
        if token.type == "heading_open"
    )
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    for target in targets(page):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.is_relative_to(ROOT), target
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), target


def test_a_link_that_leads_nowhere_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c: d\n\n[x](there.md#a) ![y](z.svg) `[no](link)`\n")
    assert list(targets(page)) == ["there.md#a", "z.svg"]
    assert anchors(page) == {"a-b-c-d"}


def test_every_page_of_the_documentation_is_in_the_table_of_contents() -> None:
    index = (DOCS / "index.md").read_text()
    listed = set(re.findall(r"^([a-z-]+(?:/[a-z0-9-]+)?)$", index, re.MULTILINE))
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert pages - {"index"} == listed
