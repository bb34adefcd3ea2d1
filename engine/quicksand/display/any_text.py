"""Typing characters that a US keyboard does not have, or on another layout, with xdotool in the
guest.

Keys of the X server's map that mean nothing on the guest's keyboard get the characters
(`SpareKeys`), and xdotool presses them (XTEST). A text with one such character is typed by xdotool
as a whole: the X server has two input paths, and keeps no order between them.

A program looks up a key in the map only when it processes the key, which in a busy guest is seconds
after it was pressed. So a character stays on its key, and the least recently assigned key is the
next to get another character.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import string
from collections.abc import Container, Iterable, Iterator

from quicksand_vnc import STROKES, can_be_typed

from quicksand.base.errors import ConfigError, DisplayError
from quicksand.base.remedies import Remedy, Words
from quicksand.display.in_guest import NO_SCREEN, NO_TOOL, ask, find_server, need_tools
from quicksand.guest.agent.session import Session
from quicksand.guest.execution import ExecuteResult

MAP_MAX = 100_000
"""The most characters of a map that are read."""

LINE = re.compile(r"^keycode +([0-9]{1,3}) =(.*)$", re.MULTILINE)
"""A key in what `xmodmap -pke` prints: its code and its meanings."""

WORDS = """
space exclam quotedbl numbersign dollar percent ampersand apostrophe parenleft parenright asterisk
plus comma minus period slash colon semicolon less equal greater question at bracketleft backslash
bracketright asciicircum underscore grave braceleft bar braceright asciitilde
"""
NAMES = dict(zip(" " + string.punctuation, WORDS.split(), strict=True))
"""X's names of the characters of a US keyboard; letters and digits are their own names."""

PAIR = re.compile(r"\b([0-9]{1,3}):([0-9a-f]{1,6})\b")
"""A key and its character in our record."""

CODES = range(8, 256)
"""The codes of keys (X protocol, section 4)."""

POINTS = 0x110000
"""The code points of Unicode."""


class SpareKeys:
    """The spare keys of one X server."""

    def __init__(self, free: Iterable[int], given: Iterable[tuple[int, str]] = ()) -> None:
        self._free = list(free)
        self._given = {character: code for code, character in given}
        """The code of each character, in the order of their last use."""

    @classmethod
    def parse(cls, keymap: str, record: str) -> SpareKeys:
        """Parse a guest's answers: the map as xmodmap prints it, and our record as xprop prints it.
        Lines that name no key are skipped, and keys that have lost their characters are free.
        """
        lines = LINE.findall(keymap[:MAP_MAX])
        free = {int(code) for code, meanings in lines if not meanings.strip()} & {*CODES}
        used = {int(code) for code, meanings in lines if meanings.strip()} & {*CODES}
        given = ((int(code), int(point, 16)) for code, point in PAIR.findall(record[:MAP_MAX]))
        return cls(
            sorted(free),
            [(code, chr(point)) for code, point in given if code in used and point < POINTS],
        )

    @property
    def count(self) -> int:
        """The number of characters that they can have at once."""
        return len(self._free) + len(self._given)

    @property
    def codes(self) -> set[int]:
        """The codes of all spare keys."""
        return {*self._free, *self._given.values()}

    def give(self, characters: Iterable[str]) -> tuple[dict[int, str], bool]:
        """Assign keys to those characters, at most `count`, that have none. Returns the new
        characters by key, and whether one of these keys had another character before."""
        wanted = list(dict.fromkeys(characters))
        for character in wanted:
            if character in self._given:
                self._given[character] = self._given.pop(character)  # used last
        new, again = {}, False
        for character in wanted:
            if character in self._given:
                continue
            if self._free:
                code = self._free.pop(0)
            else:
                code, again = self._given.pop(next(iter(self._given))), True
            self._given[character] = code
            new[code] = character
        return new, again

    @property
    def record(self) -> str:
        """The characters and their keys, as `parse` takes them from xprop."""
        return " ".join(f"{code}:{ord(character):x}" for character, code in self._given.items())


def xmodmap_lines(given: dict[int, str]) -> str:
    """Return the lines by which xmodmap assigns these characters to these keys, with shift and
    without: with only one letter, the unshifted key would give its small form."""
    return "".join(
        f"keycode {code} = U{ord(character):04X} U{ord(character):04X}\n"
        for code, character in given.items()
    )


def characters_on(keymap: str, spare: Container[int] = ()) -> set[str]:
    """Return those characters of STROKES that a map, as xmodmap prints it, has on a key that is not
    ``spare``, and so keeps. Dead keys do not count: the `^` of a German keyboard is not there."""
    lines = LINE.findall(keymap[:MAP_MAX])
    kept = (meanings for code, meanings in lines if int(code) not in spare)
    names = {name for meanings in kept for name in meanings.split()}
    return {
        character
        for character in STROKES
        if character < " " or NAMES.get(character, character) in names
    }


def missing(text: str, known: Container[str] = STROKES) -> list[str]:
    """Return the characters of ``text`` not in ``known``, by default a US keyboard's, each once."""
    return [character for character in dict.fromkeys(text) if character not in known]


def parts(text: str, count: int, known: Container[str] = STROKES) -> Iterator[str]:
    """Divide a text into parts that each need at most ``count`` spare keys for characters that are
    not ``known``."""
    start, needed = 0, set[str]()
    for place, character in enumerate(text):
        if character in known or character in needed:
            continue
        if len(needed) == count:
            yield text[start:place]
            start, needed = place, set()
        needed.add(character)
    yield text[start:]


TOOLS = "xdotool xmodmap xprop"
DELAY_MS = 1
"""Between two characters."""

AGAIN_S = 2.0
"""Seconds to wait before a key gets another character: the last text may not be read yet."""

START_S = 30.0
"""Seconds for the tools' start, in an emulated guest that is busy."""

CHARACTER_S = 0.5
"""Seconds for one character, at most."""

PIECE = 200
"""Characters that are typed in one turn, some seconds; a longer text takes several."""

FIND = need_tools(TOOLS) + find_server("xdotool getmouselocation >/dev/null")

PROPERTY = "_QUICKSAND_KEYS"
"""The property of the X server's root window that records the characters given to our keys. It ends
with the server, as these do."""

LOOK = FIND + f"xmodmap -pke && exec xprop -root -notype {PROPERTY}\n"
TYPE = (
    FIND
    + f"""\
if [ -n "$NEW_KEYS" ]; then printf %s "$NEW_KEYS" | xmodmap - || exit; fi
xprop -root -f {PROPERTY} 8s -set {PROPERTY} "$ALL_KEYS" &&
    exec xdotool type --clearmodifiers --delay {DELAY_MS} --file -
"""
)
"""Types the text on stdin."""


def needs_tool(text: str) -> bool:
    """Whether a US keyboard lacks a character of ``text``."""
    return any(character not in STROKES for character in text)


def check_text(text: str, limit: int) -> None:
    """Raise ConfigError for a text that cannot be typed: longer than ``limit``, or with control
    characters other than line feed, tab and backspace."""
    if not isinstance(text, str):
        raise ConfigError(f"text must be a string, not {text!r}")  # pyright: ignore[reportUnreachable]  # for callers without types
    if len(text) > limit:
        raise ConfigError(
            f"a text of {len(text)} characters is too long to be typed; {limit} is the most",
            hint="write it to a file in the guest",
        )
    for character in text:
        if not can_be_typed(character):
            raise ConfigError(
                f"the character {character!r} cannot be typed",
                hint=Words(
                    'keys that are no characters are pressed: press_key("esc"), or ',
                    Remedy("key", key="esc"),
                    python='keys that are no characters are pressed: press_key("esc")',
                ),
            )


async def type_any(session: Session, text: str) -> None:
    """Type ``text`` by xdotool in the guest, whatever its keyboard's layout. Raises DisplayError if
    the guest lacks a tool, an X server or spare keys, or does not finish; AgentError."""
    said = await _execute(session, LOOK, text, stdin="")
    keys = SpareKeys.parse(said.stdout, said.stdout.rpartition(PROPERTY)[2])
    known = characters_on(said.stdout, keys.codes)
    if not keys.count and missing(text, known):
        raise DisplayError("no key of the guest's keyboard is free for other characters")
    for part in parts(text, keys.count, known):
        new, again = keys.give(missing(part, known))
        if again:
            await asyncio.sleep(AGAIN_S)
        env = {"NEW_KEYS": xmodmap_lines(new), "ALL_KEYS": keys.record}
        await _execute(session, TYPE, part, stdin=part, env=env)


async def _execute(
    session: Session, script: str, text: str, *, stdin: str, env: dict[str, str] | None = None
) -> ExecuteResult:
    """Run a script for a text that is typed. Raises as `type_any`."""
    timeout = START_S + CHARACTER_S * len(text)
    result = await ask(session, script, timeout=timeout, stdin=stdin, env=env)
    if result.exit_code == 0 and not result.timed_out:
        return result
    lacking = "".join(missing(text))[:20]
    why = f"a US keyboard does not have {lacking!r}" if lacking else "the layout is not the US one"
    if result.exit_code == NO_TOOL:
        raise DisplayError(
            f"{why}, and the guest does not have what types it: " + TOOLS.replace(" ", ", "),
            hint="install these in the guest; the image debian-desktop has them",
        )
    if result.exit_code == NO_SCREEN:
        raise DisplayError(
            f"{why}, and xdotool finds no X server to type it",
            hint="wait until the guest's desktop is there",
        )
    said = "did not end" if result.timed_out else result.stderr.strip()[:500]
    raise DisplayError(f"xdotool in the guest did not type the text: {shlex.quote(said)}")
