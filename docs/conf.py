"""How Sphinx makes the documentation site out of these files: `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(ROOT),
    *(str(ROOT / name) for name in ("engine", "images", "smb3", "terminal", "extras")),
]

from quicksand_tui import __version__  # noqa: E402
from scripts import manual  # noqa: E402

project = "quicksand-tui"
author = "the quicksand-tui authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns: list[str] = []
html_theme = "furo"
html_title = f"quicksand-tui {release}"
html_show_sphinx = html_show_copyright = html_copy_source = False

# Links to headings are checked, as deep as there are any.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]

# Docstrings name code between single backticks, as in Markdown.
default_role = "code"
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

FROM_ROOT = {"index": "README.md", "changes": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
"""Pages that are files of the root directory. What is in a page's own file follows."""

_PACKAGE = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)\s]*/README\.md\)")
"""A link to a package's own page, which is none of the site: its words stay."""

_LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def _fill(app: Any, name: str, source: list[str]) -> None:
    """Puts what stands elsewhere into its page."""
    if name == "reference/commands":
        source[0] = manual.markdown()
    elif name in FROM_ROOT:
        text = _PACKAGE.sub(r"\1", (ROOT / FROM_ROOT[name]).read_text(encoding="utf-8"))
        source[0] = f"{_LINK.sub(_moved, text)}\n{source[0]}"
    else:
        source[0] = _PACKAGE.sub(r"\1", source[0])
        for page, file in FROM_ROOT.items():
            source[0] = source[0].replace(f"](../../{file}", f"](/{page}.md")


def _moved(link: re.Match[str]) -> str:
    """Turns a link of a file in the root directory into one of a page of the site."""
    target = link[1]
    for page, file in FROM_ROOT.items():
        if target.partition("#")[0] == file:
            return f"](/{page}.md{target.removeprefix(file)})"
    inside = target.removeprefix("docs/")
    return f"]({inside})" if inside != target else f"](../{target})"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _fill)
