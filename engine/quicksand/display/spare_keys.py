"""Keys of an X server's map that mean nothing on the guest's keyboard, and the characters that they
were given.

A program looks up a key in the map only when it processes the key, which in a busy guest is seconds
after it was pressed. So a character stays on its key, and the least recently assigned key is the
next to get another character.
"""

from __future__ import annotations

import re
import string
from collections.abc import Container, Iterable, Iterator

from quicksand.display.keys import STROKES

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
