"""What a terminal can do, asked of it: the questions, and its answers told from keys.

Answers come as if they were typed, and over a slow line long after the questions. So all that is
read goes through a `ReplyReader`, from before the app is loaded until it has ended: what only a
terminal says is no key, however late it comes. No import of Textual here, or of the engine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from quicksand_tui.text import sanitise

ANSWER_LOCAL_S, ANSWER_SSH_S = 0.5, 2.0
"""How long the last answer is waited for, beside all else. Later ones still count, if they come."""

KEY_WAIT_S = 0.03
"""ESC and one byte that nothing follows for so long are a key."""

CUT_WAIT_S = 2.0
"""How long the rest of an answer is waited for that a network has cut."""

ANSWER_MAX = 4096
"""Bytes of an answer."""

NAME_MAX = 60

CELL_DIGITS = 4
"""Of a cell's width, and of its height; more is nonsense."""

_DA1 = b"\x1b[c"
_SYNC, _KEYBOARD, _NAME, _CELL = b"\x1b[?2026$p", b"\x1b[?u", b"\x1b[>0q", b"\x1b[16t"
_BACKGROUND = b"\x1b]11;?\x1b\\"
_GRAPHICS = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_ASIDE, _BACK = b"\x1b7", b"\x1b8\x1b[K"
"""Around the questions: a terminal that prints one has it wiped."""

_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"

_ANSWER = re.compile(
    rb"\x1b\[\?(?P<da1>[\d;]*)c"
    rb"|\x1b\[[>=][\d;]*c"
    rb"|\x1b\[\?(?P<mode>\d+;\d+)\$y"
    rb"|\x1b\[\?(?P<keyboard>\d+)u"
    rb"|\x1b\[6;(?P<cell>\d+;\d+)t"
    rb"|\x1b\[[48];\d+;\d+t"
    rb"|\x1b\]11;(?P<background>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    rb"|\x1b\]\d+;[^\x07\x1b]*(?:\x07|\x1b\\)"
    rb"|\x1bP>\|(?P<name>[^\x1b]*)\x1b\\"
    rb"|\x1b_G(?P<graphics>[^\x1b]*)\x1b\\"
)
"""All that is no key (xterm's ctlseqs, kitty's protocols); but sizes in the band are Textual's."""

_CUT_ANSWER = re.compile(
    rb"\x1b(?:\[[?>=][\d;]*\$?|\]\d+;[^\x07\x1b]*\x1b?|P>\|?[^\x1b]*\x1b?|_G[^\x1b]*\x1b?)\Z"
)
"""The beginning of what can only be an answer."""

_CUT_ANY = re.compile(rb"\x1b(?:[\]P_]|\[(?:[468](?:;[\d;]*)?|20{0,2}[01]?)?|\]\d+)?\Z")
"""The beginning of an answer, or of a paste, or a key."""

_RGB = re.compile(r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalAbilities:
    """What is known of a terminal."""

    name: str = ""
    """With its version, as it calls itself, such as "kitty(0.40.0)"; "" if it does not say."""
    background: tuple[int, int, int] | None = None
    """Red, green, blue, of 255."""
    sync_output: bool = False
    """It draws what is between two marks at once (mode 2026)."""
    graphics: str = "none"
    """"kitty", "sixel" or "none"."""
    cell_size: tuple[int, int] | None = None
    """Width and height of a cell in pixels."""
    kitty_keyboard: bool = False
    """It reports keys by kitty's keyboard protocol."""

    @property
    def is_light(self) -> bool | None:
        """Whether its background is light; None if that is not known."""
        if self.background is None:
            return None
        red, green, blue = self.background
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 127  # ITU-R BT.709

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> TerminalAbilities:
        """Raises ValueError for anything that `to_json` does not make."""
        if not isinstance(value, dict):
            raise ValueError("not an object")
        graphics = value.get("graphics")
        return cls(
            name=sanitise(str(value.get("name", "")), limit=NAME_MAX),
            background=_numbers(value.get("background"), 3, 255),  # type: ignore[arg-type]
            sync_output=value.get("sync_output") is True,
            graphics=graphics if graphics in ("kitty", "sixel") else "none",
            cell_size=_numbers(value.get("cell_size"), 2, 9999),  # type: ignore[arg-type]
            kitty_keyboard=value.get("kitty_keyboard") is True,
        )


UNKNOWN = TerminalAbilities()


def _numbers(value: object, count: int, limit: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"not {count} numbers: {value!r}")
    if not all(type(number) is int and 0 <= number <= limit for number in value):
        raise ValueError(f"not numbers up to {limit}: {value!r}")
    return tuple(value)


# Questions


def over_ssh(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"))


def questions(environ: Mapping[str, str]) -> bytes:
    """What to write to the terminal; "" where it is better not asked.

    Device attributes are asked for last: every terminal answers that, and they answer in order.
    """
    term = environ.get("TERM", "")
    if environ.get("QUICKSAND_PROBE", "").lower() in ("off", "0", "no"):
        return b""
    if term in ("", "dumb", "unknown", "linux") or term.startswith("vt"):
        return b""  # they print what they do not know
    asked = [_KEYBOARD, _NAME, _CELL, _BACKGROUND]
    if environ.get("TERM_PROGRAM") != "Apple_Terminal":
        asked.append(_SYNC)  # that one prints its last letter
        if not _in_multiplexer(environ) and not over_ssh(environ):
            # tmux takes it for a title, screen for a message. From afar nobody tells whether there
            # is one: there the terminal's name has to do.
            asked.append(_GRAPHICS)
    return b"".join([_ASIDE, *asked, _BACK, _DA1])


def _in_multiplexer(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in ("TMUX", "STY", "ZELLIJ")) or environ.get(
        "TERM", ""
    ).startswith(("screen", "tmux"))


# Answers


class ReplyReader:
    """Parts what is read from a terminal: keys and pastes go on, byte for byte; answers are noted
    in ``abilities``."""

    def __init__(self, *, expects: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """``expects``: questions have been asked, so that even a single ESC may begin an answer."""
        self.abilities = UNKNOWN
        self.answered = False
        """The last answer has come."""
        self._expects = expects
        self._clock = clock
        self._held = b""
        """The beginning of a sequence."""
        self._since = 0.0
        self._pasting = False
        self._passed = b""
        """The last bytes of a paste that went on: its end may be cut."""

    @property
    def waits(self) -> bool:
        """Whether there is the beginning of a sequence, so that `tick` is to be called."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """What of ``data`` is for the app."""
        data, self._held = self._held + data, b""
        kept = bytearray()
        at = 0
        while at < len(data):
            if self._pasting:
                end = self._paste_end(data, at)
                kept += data[at:end]
                at = end
                continue
            escape = data.find(b"\x1b", at)
            if escape < 0:
                kept += data[at:]
                break
            kept += data[at:escape]
            at = escape
            if (answer := _ANSWER.match(data, at)) is not None:
                if self._note(answer):
                    kept += answer[0]
                at = answer.end()
            elif self._may_go_on(data[at:]):
                self._held, self._since = data[at:], self._clock()
                break
            else:
                self._pasting = data.startswith(_PASTE, at)
                self._passed = b""
                length = len(_PASTE) if self._pasting else 1
                kept += data[at : at + length]
                at += length
        return bytes(kept)

    def tick(self) -> bytes:
        """To be called when nothing has come for a while: what is a key after all."""
        held = self._held
        if not held:
            return b""
        certain = _CUT_ANSWER.match(held) is not None
        wait = CUT_WAIT_S if certain or len(held) > 2 else KEY_WAIT_S
        if self._clock() - self._since < wait:
            return b""
        self._held = b""
        return b"" if certain else held

    def stop_expecting(self) -> None:
        """Answers may still come, but whoever types ESC has waited long enough."""
        self._expects = False

    def _paste_end(self, data: bytes, at: int) -> int:
        joined = self._passed + data[at:]
        found = joined.find(_PASTE_END)
        if found < 0:
            self._passed = joined[-len(_PASTE_END) + 1 :]
            return len(data)
        self._pasting = False
        return at + found + len(_PASTE_END) - len(self._passed)

    def _may_go_on(self, rest: bytes) -> bool:
        if len(rest) > ANSWER_MAX:
            return False
        if _CUT_ANSWER.match(rest) is not None:
            return True
        # Without questions Textual tells ESC, the key, from a sequence; twice would take twice.
        return _CUT_ANY.match(rest) is not None and (self._expects or len(rest) > 2)

    def _note(self, answer: re.Match[bytes]) -> bool:
        """Take an answer. Returns whether Textual wants to see it, too."""
        kind = answer.lastgroup
        text = answer[kind].decode("utf-8", "replace") if kind is not None else ""
        match kind:
            case "da1":
                if "4" in text.split(";")[1:] and self.abilities.graphics == "none":
                    self._know(graphics="sixel")
                self.answered = True
            case "mode":
                if text.startswith("2026;"):
                    self._know(sync_output=text[5:] in ("1", "2", "3"))
                return True
            case "keyboard":
                self._know(kitty_keyboard=True)
            case "cell":
                height, width = (int(part[:CELL_DIGITS]) for part in text.split(";"))
                if width and height and len(text) <= 2 * CELL_DIGITS + 1:
                    self._know(cell_size=(width, height))
            case "background":
                if (colour := _colour(text)) is not None:
                    self._know(background=colour)
            case "name":
                name = sanitise(text, limit=NAME_MAX)
                draws = name.lower().startswith(("kitty", "ghostty"))
                self._know(name=name, graphics="kitty" if draws else self.abilities.graphics)
            case "graphics":
                if text.startswith("i=31") and text.endswith(";OK"):
                    self._know(graphics="kitty")
        return False

    def _know(self, **facts: Any) -> None:
        self.abilities = replace(self.abilities, **facts)


def _colour(text: str) -> tuple[int, int, int] | None:
    """A colour as X11 writes it: "rgb:ffff/8080/0000", one to four digits each."""
    match = _RGB.match(text)
    if match is None:
        return None
    red, green, blue = (int(part, 16) * 255 // (16 ** len(part) - 1) for part in match.groups())
    return red, green, blue
