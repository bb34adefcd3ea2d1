"""Carries out operating system commands: titles, links, colours, clipboard, notifications, prompts.

The numbers are those of xterm's ctlseqs; 8 are hyperlinks (VTE, iTerm2), 9 and 777 notifications
(iTerm2, rxvt-unicode), 133 semantic prompts (FinalTerm).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from quicksand_vt.cell_rows import Mark
from quicksand_vt.outbox import (
    ClipboardWrite,
    CommandFinished,
    CwdChanged,
    Notification,
    PaletteChanged,
)
from quicksand_vt.shown_text import one_line
from quicksand_vt.style import INDICES, Special, colour_text, parse_colour

if TYPE_CHECKING:
    from quicksand_vt.terminal_state import State

TITLE_MAX: Final = 256
"""In characters."""
BODY_MAX: Final = 1024
"""In characters."""
PATH_MAX: Final = 4096
"""In characters; Linux's PATH_MAX is as many bytes."""


def handle_osc(state: State, data: str, end: str, *, complete: bool) -> None:
    """Carries out an OSC; answers end like it, with ``end``."""
    number, _, rest = data.partition(";")
    if number in ("0", "2"):
        # Only a title may be incomplete, as it is cut anyway.
        state.set_title(one_line(rest, limit=TITLE_MAX))
    elif not complete:
        return
    elif number in ("10", "11", "12"):
        _special_colours(state, int(number), rest, end)
    elif number in ("110", "111", "112"):
        _reset_colours(state, [Special(int(number) - 100)])
    elif number in _COMMANDS:
        _COMMANDS[number](state, rest, end)


def _palette(state: State, rest: str, end: str) -> None:
    """OSC 4: pairs of an index and a colour, or ``?`` to ask for it. Beyond the palette are the
    colours of attributes."""
    _indexed(state, rest, end, 4, 0)


def _attribute_colours(state: State, rest: str, end: str) -> None:
    """OSC 5: likewise, but counted from the first colour of an attribute. They are remembered, and
    not shown: bold text has the text's colour, as in xterm's defaults."""
    _indexed(state, rest, end, 5, 256)


def _indexed(state: State, rest: str, end: str, command: int, first: int) -> None:
    words = rest.split(";")
    for word, spec in zip(words[::2], words[1::2], strict=False):
        if (index := _index(word, first)) is not None:
            _one_colour(state, index, spec, f"{command};{index - first}", end)


def _index(word: str, first: int) -> int | None:
    index = first + int(word) if re.fullmatch("[0-9]{1,3}", word) else INDICES
    return index if index < INDICES else None


def _special_colours(state: State, first: int, rest: str, end: str) -> None:
    """OSC 10, 11, 12: a colour, then those of the following numbers."""
    for number, spec in enumerate(rest.split(";"), first):
        if number > Special.CURSOR.value:
            return
        _one_colour(state, Special(number), spec, str(number), end)


def _one_colour(state: State, which: int | Special, spec: str, name: str, end: str) -> None:
    if spec == "?":
        state.replies.send(f"\x1b]{name};{colour_text(state.colours.get(which))}{end}")
        return
    colour = parse_colour(spec)
    if colour is not None and state.colours.get(which) != colour:
        state.colours.changed[which] = colour
        state.events.put(PaletteChanged())


def _reset_palette(state: State, rest: str, end: str) -> None:
    """OSC 104: resets these indices, or all of the palette."""
    _reset_indexed(state, rest, range(256))


def _reset_attribute_colours(state: State, rest: str, end: str) -> None:
    """OSC 105: resets the colours of these attributes, or of all."""
    _reset_indexed(state, rest, range(256, INDICES))


def _reset_indexed(state: State, rest: str, those: range) -> None:
    words = [word for word in rest.split(";") if word]
    if words:
        found = (_index(word, those.start) for word in words)
        _reset_colours(state, [index for index in found if index is not None])
    else:
        _reset_colours(state, [n for n in state.colours.changed if n in those])


def _reset_colours(state: State, which: Sequence[int | Special]) -> None:
    gone = [state.colours.changed.pop(colour, None) for colour in which]
    if any(colour is not None for colour in gone):
        state.events.put(PaletteChanged())


def _cwd(state: State, rest: str, end: str) -> None:
    """OSC 7: a file URL, whose host is ignored."""
    try:
        parts = urlsplit(rest[: 4 * PATH_MAX])
        path = unquote(parts.path, errors="strict") if parts.scheme == "file" else ""
    except ValueError:
        return
    if path.startswith("/") and len(path) <= PATH_MAX and path.isprintable() and path != state.cwd:
        state.cwd = path
        state.events.put(CwdChanged(path))


def _link(state: State, rest: str, end: str) -> None:
    """OSC 8: parameters, then an address; an empty one ends the link."""
    _, _, address = rest.partition(";")
    screen = state.screen
    style = screen.cursor.style._replace(link=state.links.number(address))
    screen.set_style(screen.styles.intern(style))


def _notify(state: State, rest: str, end: str) -> None:
    """OSC 9: a text. A number is a command of ConEmu (9;4 is its progress bar)."""
    if not re.match("[0-9]+(?:;|$)", rest):
        _put_notification(state, "", rest)


def _notify_titled(state: State, rest: str, end: str) -> None:
    """OSC 777;notify: a title and a text."""
    kind, _, rest = rest.partition(";")
    if kind == "notify":
        title, _, body = rest.partition(";")
        _put_notification(state, title, body)


def _put_notification(state: State, title: str, body: str) -> None:
    note = Notification(one_line(title, limit=TITLE_MAX), one_line(body, limit=BODY_MAX))
    if note.title or note.body:
        state.events.put(note)


def _clipboard(state: State, rest: str, end: str) -> None:
    """OSC 52: a text in base64. Guests may not read the clipboard, so queries get no answer."""
    _, _, coded = rest.partition(";")
    try:
        data = base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError):
        return
    if data:
        state.events.put(ClipboardWrite(data.decode("utf-8", "replace")))


def _prompt(state: State, rest: str, end: str) -> None:
    """OSC 133: A before the prompt, B after it, C before the output, D after it."""
    kind, *options = rest.split(";")
    marks = {"A": Mark.PROMPT, "B": Mark.COMMAND, "C": Mark.OUTPUT}
    if kind in marks:
        state.screen.mark(marks[kind])
    elif kind == "D":
        status = options[0] if options else ""
        known = re.fullmatch("-?[0-9]{1,9}", status)
        state.events.put(CommandFinished(int(status) if known else None))


_COMMANDS: Final[Mapping[str, Callable[[State, str, str], None]]] = {
    "4": _palette,
    "5": _attribute_colours,
    "7": _cwd,
    "8": _link,
    "9": _notify,
    "52": _clipboard,
    "104": _reset_palette,
    "105": _reset_attribute_colours,
    "133": _prompt,
    "777": _notify_titled,
}
