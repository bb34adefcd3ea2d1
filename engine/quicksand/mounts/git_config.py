"""Reading git's configuration (git-config(1), "SYNTAX"), even if it is broken: git refuses a file
with a mistake, but the part before it may count after somebody has mended it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_HEADER = re.compile(r'\[\s*([-.A-Za-z0-9]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_NAME = re.compile(r"([A-Za-z][-A-Za-z0-9]*)[ \t]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable with its value."""

    section: str
    """In lower case, without the subsection."""
    key: str
    """In lower case."""
    value: str

    def is_one_of(self, known: Collection[str]) -> bool:
        """Whether `SECTION.KEY` or `SECTION.*` is among those."""
        return f"{self.section}.{self.key}" in known or f"{self.section}.*" in known


def parse(text: str) -> Iterator[Setting]:
    """Yield the variables of a file, in their order. Unreadable parts are skipped."""
    # A byte order mark, as git skips it.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section, at = "", 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] == "[" and (header := _HEADER.match(text, at)):
            # `[section.subsection]` is the old way to write one.
            section, at = header[1].partition(".")[0].lower(), header.end()
        elif name := _NAME.match(text, at):
            at = name.end()
            if text[at : at + 1] == "=":
                value, at = _value(text, at + 1)
                yield Setting(section, name[1].lower(), value)
        else:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins at a place, and the end of its line."""
    found: list[str] = []
    kept, is_quoted = 0, False
    while at < len(text) and text[at] != "\n":
        char, at = text[at], at + 1
        if char == '"':
            is_quoted = not is_quoted
            kept = len(found)
        elif char == "\\":
            escaped, at = text[at : at + 1], at + 1
            if escaped != "\n":
                found.append(_ESCAPES.get(escaped, escaped))
                kept = len(found)
        elif char in "#;" and not is_quoted:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif char.isspace() and not is_quoted:
            found.extend(char if found else "")
        else:
            found.append(char)
            kept = len(found)
    return "".join(found[:kept]), at
