"""Removes queries from a program's output, for a terminal that must not answer them: one to which
old output is replayed, or one beside the client that answers.

Only sequences known to draw or to set something pass: terminals answer far more queries than anyone
can list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from quicksand_vt.parser import Parser

_CONTROLS: Final = "\b\t\n\v\f\r\x0e\x0f"
"""Without ENQ, which is a query, and BEL."""

_ESCAPES: Final = frozenset(
    ["6", "7", "8", "9", "D", "E", "H", "M", "N", "O", "V", "W", "c", "n", "o", "=", ">", "#8"]
)

_CONTROL_SEQUENCES: Final = frozenset(
    [
        *"@ABCDEFGHIJKLMPSTXZ^`abdefghlrsu",
        *("?J", "?K", "?W", "?h", "?l", "?r", "?s"),
        *(">m", ">f", ">u", "<u", "=u"),  # the encoding of keys: xterm's and kitty's
        *(" q", "!p", '"q', "'}", "'~", "$r", "$t", "$v", "$x", "$z", "${", "*x"),
    ]
)
"""Private prefix, intermediate characters and final one, as in `control.COMMANDS`. ``n``, ``c``,
``t``, ``$p`` and more are queries."""

_COMMANDS: Final = frozenset(
    ["0", "1", "2", "4", "5", "7", "8", "10", "11", "12", "104", "105", "110", "111", "112", "133"]
)
"""The operating system commands that pass: titles, colours, the directory, links, prompts, but not
the clipboard and notifications."""

_REPORTING: Final = frozenset([9, 1000, 1001, 1002, 1003, 1004, 2048])
"""Modes in which a terminal reports by itself, some at once: mouse, focus, size."""

_QUESTION: Final = re.compile(r"(?:^|;)\?")


class Unasking:
    """A filter of output, cut anywhere, that removes queries. Never raises."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._wanted: dict[int, bool] = {}
        """The modes of `_REPORTING` as the program last set them."""
        self._settled: set[int] = set()
        """The modes of `_wanted` that are set in the terminal."""
        self._parser = Parser(self)
        self.controls: dict[str, Callable[[], object]] = {
            char: self._writer(char) for char in [*_CONTROLS, "\r\n"]
        }

    def _writer(self, text: str) -> Callable[[], object]:
        return lambda: self._out.append(text)

    def feed(self, data: bytes) -> bytes:
        """Returns the part of ``data`` that passes; an unfinished sequence comes with its rest."""
        self._parser.feed(data)
        shown = "".join(self._out)
        self._out.clear()
        return shown.encode("utf-8", "replace")

    def settle(self) -> bytes:
        """Returns the sequences that set the withheld modes of `_REPORTING` in the terminal."""
        changed = [n for n, on in sorted(self._wanted.items()) if on != (n in self._settled)]
        self._settled.symmetric_difference_update(changed)
        words = (f"\x1b[?{n}{'h' if n in self._settled else 'l'}" for n in changed)
        return "".join(words).encode("ascii")

    @property
    def unfinished(self) -> bytes:
        """The beginning of an unfinished sequence at the end, for showing the rest unfiltered."""
        return self._parser.unfinished

    # The parser's sink

    def write(self, text: str) -> None:
        self._out.append(text)

    def sgr(self, params: str) -> None:
        self._out.append(f"\x1b[{params}m")

    def csi(self, params: str, final: str) -> None:
        private = params[0] if params and params[0] in "<=>?" else ""
        if private == "?" and final in ("h", "l"):
            params = self._without_reporting(params[1:], final == "h")
            if not params:
                return
        if private + final in _CONTROL_SEQUENCES:
            self._out.append(f"\x1b[{params}{final}")

    def _without_reporting(self, params: str, on: bool) -> str:
        kept = []
        for word in params.split(";"):
            number = int(word[:6]) if word.isdecimal() else 0
            if number in _REPORTING:
                self._wanted[number] = on
            else:
                kept.append(word)
        return f"?{';'.join(kept)}" if kept else ""

    def escape(self, final: str) -> None:
        if final == "c":
            self._wanted = dict.fromkeys(self._wanted, False)
        if final in _ESCAPES or (len(final) == 2 and final[0] in "()*+"):
            self._out.append(f"\x1b{final}")

    def string(self, kind: str, data: str, end: str, *, complete: bool) -> None:
        number, _, rest = data.partition(";")
        if kind == "]" and complete and number in _COMMANDS and not _QUESTION.search(rest):
            self._out.append(f"\x1b]{data}{end}")
