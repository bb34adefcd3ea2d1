"""The questions to a terminal, its answers among the typed keys, and the abilities that they
tell."""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
NAME_MAX = 60
"""The longest name of a terminal in characters."""


class TerminalAbilities(NamedTuple):
    """The known abilities of a terminal."""

    name: str = ""
    """Its own name and version, such as "kitty(0.40.0)"; "" if unknown."""
    background: tuple[int, int, int] | None = None
    """Red, green and blue from 0 to 255."""
    sync_output: bool = False
    """It supports synchronized output (mode 2026)."""
    graphics: str = "none"
    """"kitty", "sixel" or "none"."""
    cell_size: tuple[int, int] | None = None
    """Width and height of a cell in pixels."""
    kitty_keyboard: bool = False
    """It supports kitty's keyboard protocol."""
    mouse_pixels: bool = False
    """It can report the mouse in pixels (mode 1016)."""

    @property
    def is_light(self) -> bool | None:
        """Whether its background is light; None if unknown."""
        if self.background is None:
            return None
        red, green, blue = self.background
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 127  # ITU-R BT.709

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, value: object) -> TerminalAbilities:
        """Reads what `to_json` wrote. Raises ValueError for anything else."""
        if not isinstance(value, dict):
            raise ValueError("not an object")
        graphics = value.get("graphics")
        return cls(
            name=_printed(str(value.get("name", ""))),
            background=_numbers(value.get("background"), 3, 255),  # type: ignore[arg-type]
            sync_output=value.get("sync_output") is True,
            graphics=graphics if graphics in ("kitty", "sixel") else "none",
            cell_size=_numbers(value.get("cell_size"), 2, 9999),  # type: ignore[arg-type]
            kitty_keyboard=value.get("kitty_keyboard") is True,
            mouse_pixels=value.get("mouse_pixels") is True,
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


def _printed(text: str) -> str:
    """Returns a text of a terminal that is fit to be shown."""
    shown = "".join(char if char.isprintable() else REPLACEMENT for char in text[: NAME_MAX + 1])
    return shown if len(shown) <= NAME_MAX else f"{shown[: NAME_MAX - 1]}…"


class Cache(Protocol):
    """Keeps the abilities of terminals between runs, as an object of JSON."""

    def read(self) -> dict[str, Any]:
        """Returns what was written; an empty object if that cannot be read."""

    def write(self, value: dict[str, Any]) -> None:
        """Keeps an object. Raises OSError."""


def known_terminal(
    cache: Cache, environ: Mapping[str, str], fd: int = 0
) -> TerminalAbilities | None:
    """Returns this terminal's answers of the last run; None if it was never asked."""
    try:
        return TerminalAbilities.from_json(cache.read().get(cache_key(environ, fd)))
    except ValueError:
        return None


def cache_key(environ: Mapping[str, str], fd: int) -> str:
    """Returns the key of a terminal in the cache."""
    try:
        name = os.ttyname(fd)
    except OSError:
        name = ""
    words = [environ.get(word, "") for word in ("TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM")]
    return json.dumps([*words, name])


KEY_WAIT_S = 0.03
"""Seconds after which ESC, alone or with one byte, is a key."""

CUT_WAIT_S = 2.0
"""Seconds to wait for the rest of an answer that a network has cut."""

ANSWER_MAX = 4096
"""The longest answer in bytes."""

CELL_MAX = 200
"""Pixels of a cell's side; a larger one is not believed."""

CELL_DIGITS = 4
"""The most digits of a cell's width or height in pixels."""

DRAWN_QUESTION = b"\x1b[c"
"""Asks for device attributes. Every terminal answers, after it has drawn all that came before."""
_SYNC, _KEYBOARD, _NAME, _CELL = b"\x1b[?2026$p", b"\x1b[?u", b"\x1b[>0q", b"\x1b[16t"
_MOUSE = b"\x1b[?1016$p"
_BACKGROUND = b"\x1b]11;?\x1b\\"
_GRAPHICS = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_ASIDE, _BACK = b"\x1b7", b"\x1b8\x1b[K"
"""Stand around the questions, and wipe those that a terminal prints by mistake."""

_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"

_MODES = {"2026": "sync_output", "1016": "mouse_pixels"}
"""The modes that are asked for, by number, and the abilities that they tell."""

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
"""All input that is not a key (xterm's ctlseqs, kitty's protocols), except in-band resize reports
(mode 2048), which Textual reads."""

_CUT_ANSWER = re.compile(
    rb"\x1b(?:\[[?>=][\d;]*\$?|\]\d+;[^\x07\x1b]*\x1b?|P>\|?[^\x1b]*\x1b?|_G[^\x1b]*\x1b?)\Z"
)
"""The start of input that can only be an answer."""

_CUT_ANY = re.compile(rb"\x1b(?:[\]P_]|\[(?:[468](?:;[\d;]*)?|20{0,2}[01]?)?|\]\d+)?\Z")
"""The start of an answer, of a paste, or a key."""

_RGB = re.compile(r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})", re.IGNORECASE)


# Questions


def over_ssh(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"))


def questions(environ: Mapping[str, str]) -> bytes:
    """Returns the questions to write to the terminal; none where it is better not to ask.

    The last question is for device attributes: every terminal answers it, and terminals answer in
    order.
    """
    term = environ.get("TERM", "")
    if environ.get("QUICKSAND_PROBE", "").lower() in ("off", "0", "no"):
        return b""
    if term in ("", "dumb", "unknown", "linux") or term.startswith("vt"):
        return b""  # these print unknown sequences
    asked = [_KEYBOARD, _NAME, _CELL, _BACKGROUND]
    if environ.get("TERM_PROGRAM") != "Apple_Terminal":
        asked += [_SYNC, _MOUSE]  # Apple's prints their last letter
        if not in_multiplexer(environ) and not over_ssh(environ):
            # tmux reads it as a title, screen as a message. Over SSH the environment does not tell
            # whether either is there, so the terminal's name has to do.
            asked.append(_GRAPHICS)
    return b"".join([_ASIDE, *asked, _BACK, DRAWN_QUESTION])


def in_multiplexer(environ: Mapping[str, str]) -> bool:
    """Returns whether another program, such as tmux, draws on the real terminal for this one."""
    return any(environ.get(name) for name in ("TMUX", "STY", "ZELLIJ")) or environ.get(
        "TERM", ""
    ).startswith(("screen", "tmux"))


# Answers


class ReplyReader:
    """Separates a terminal's input: keys and pastes pass byte for byte; answers are noted in
    ``abilities``."""

    def __init__(self, *, expects: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """``expects`` says that questions were asked, so that a single ESC may begin an answer."""
        self.abilities = UNKNOWN
        self.answered = False
        """The answer to the last question has come."""
        self.answers = 0
        """The number of answers to the last question, which is asked again and again."""
        self._expects = expects
        self._clock = clock
        self._held = b""
        """The start of an unfinished sequence."""
        self._since = 0.0
        self._pasting = False
        self._passed = b""
        """The last bytes of a paste that were passed on, since its end may be cut."""

    @property
    def waits(self) -> bool:
        """Whether a sequence is unfinished, so that `tick` must be called."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Returns the part of ``data`` that is for the app."""
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
        """Returns an unfinished sequence that is a key after all, once enough time has passed."""
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
        """Treats a single ESC as a key from now on; answers may still come."""
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
        # Without questions, Textual tells the key ESC from a sequence; waiting here doubles it.
        return _CUT_ANY.match(rest) is not None and (self._expects or len(rest) > 2)

    def _note(self, answer: re.Match[bytes]) -> bool:
        """Notes an answer. Returns whether Textual needs it, too."""
        kind = answer.lastgroup
        text = answer[kind].decode("utf-8", "replace") if kind is not None else ""
        match kind:
            case "da1":
                if "4" in text.split(";")[1:] and self.abilities.graphics == "none":
                    self._know(graphics="sixel")
                self.answered = True
                self.answers += 1
            case "mode":
                if (fact := _MODES.get(text.partition(";")[0])) is not None:
                    self._know(**{fact: text[5:] in ("1", "2", "3")})
                return True
            case "keyboard":
                self._know(kitty_keyboard=True)
            case "cell":
                height, width = (int(part[:CELL_DIGITS]) for part in text.split(";"))
                if 0 < width <= CELL_MAX >= height > 0 and len(text) <= 2 * CELL_DIGITS + 1:
                    self._know(cell_size=(width, height))
            case "background":
                if (colour := _colour(text)) is not None:
                    self._know(background=colour)
            case "name":
                name = _printed(text)
                draws = name.lower().startswith(("kitty", "ghostty"))
                self._know(name=name, graphics="kitty" if draws else self.abilities.graphics)
            case "graphics":
                if text.startswith("i=31") and text.endswith(";OK"):
                    self._know(graphics="kitty")
        return False

    def _know(self, **facts: Any) -> None:
        self.abilities = self.abilities._replace(**facts)


def _colour(text: str) -> tuple[int, int, int] | None:
    """Parses a colour as X11 writes it: "rgb:ffff/8080/0000", with one to four digits each."""
    match = _RGB.match(text)
    if match is None:
        return None
    red, green, blue = (int(part, 16) * 255 // (16 ** len(part) - 1) for part in match.groups())
    return red, green, blue
