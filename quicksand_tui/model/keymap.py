"""The names of keys, the actions that they trigger, and the letters of jump mode.

Does not import the registry of actions: every `World` holds a keymap, and the registry's reasons
name keys from it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final, Protocol

from quicksand.things.frozen import frozen

UNBOUND = "unbound"
"""Textual gets this for an action without a key; no key has this name."""

ALIKE = {
    "ctrl+h": "backspace",
    "ctrl+i": "tab",
    "ctrl+j": "enter",
    "ctrl+m": "enter",
    "ctrl+left_square_bracket": "escape",
}
"""Keys for which a terminal sends the same byte as for another key (ASCII control codes)."""

_FRIENDLY = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
"""Characters to which Textual gives another name than Unicode."""
_NAMED = frozenset(
    {
        *("escape", "enter", "tab", "space", "backspace", "delete", "insert", "home", "end"),
        *("pageup", "pagedown", "up", "down", "left", "right"),
        *(f"f{number}" for number in range(1, 25)),
    }
)
_OTHER_NAMES = {
    "esc": "escape",
    "return": "enter",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "del": "delete",
    "ins": "insert",
}
_SHOWN = {"escape": "esc", "pageup": "pgup", "pagedown": "pgdn"}
_PARTS = re.compile(r"((?:[A-Za-z]+[+-])*)(.+)")
"""Modifiers, each followed by + or -, then the key, which may itself be + or -."""
_CONTROL_SIGNS = "@\\]^_"
"""Besides letters, the characters that make a control byte with Ctrl (ASCII 0x40 to 0x5F)."""


class KeyNameError(ValueError):
    """Text that names no key. The message continues a sentence that begins with the text."""


def key_text(key: str) -> str:
    """Returns the usual name of a key that Textual names ``key``.

    >>> key_text("question_mark"), key_text("ctrl+right_square_bracket"), key_text("escape")
    ('?', 'ctrl+]', 'esc')
    """
    modifiers, plus, name = key.rpartition("+")
    return modifiers + plus + (_SHOWN.get(name) or _character(name) or name)


def parse_key(text: str) -> str:
    """Returns Textual's name of a key that a person wrote. Raises KeyNameError.

    >>> parse_key("?"), parse_key("Ctrl-R"), parse_key("shift+g"), parse_key("PgUp")
    ('question_mark', 'ctrl+r', 'G', 'pageup')
    """
    if len(text) == 1:
        return _key_of(text)
    match = _PARTS.match(text)
    modifiers, last = match.groups() if match is not None else ("", text)
    known = {modifier.lower() for modifier in re.split(r"[+-]", modifiers) if modifier}
    if "alt" in known or "meta" in known:
        raise KeyNameError("is not told apart from esc and a letter by every terminal")
    if not known <= {"ctrl", "shift"}:
        raise KeyNameError("begins with no modifier: ctrl and shift are known")
    name = _parse_last(last)
    if not known:
        return name
    if known == {"shift"} and len(name) == len(name.upper()) == 1 and name.isalpha():
        return name.upper()
    character = _character(name)
    if "ctrl" in known and character is not None:
        letter = character.isascii() and character.isalpha()
        if "shift" in known or not (letter or character in _CONTROL_SIGNS + "["):
            raise KeyNameError("is a key that terminals do not send: ctrl goes with a letter")
        return f"ctrl+{name.lower()}" if character != "@" else "ctrl+@"
    if character is not None:
        raise KeyNameError(f"is typed as the character itself, for example {character!r}")
    return "+".join([*sorted(known), name])


def _parse_last(name: str) -> str:
    if len(name) == 1:
        return _key_of(name)
    lower = name.lower()
    lower = _OTHER_NAMES.get(lower, lower)
    if lower in _NAMED:
        return lower
    if (character := _character(lower)) is not None:
        return _key_of(character)
    raise KeyNameError(
        "is no key: one character, ctrl+x, f1 to f24, or a name such as space, home, pageup"
    )


def _key_of(character: str) -> str:
    """Returns Textual's name of the key that types a character. Raises KeyNameError."""
    name = _name_of(character)
    if character != " " and _character(name) != character:
        raise KeyNameError("is no character that Textual has a name for")
    return name


def _name_of(character: str) -> str:
    """Returns Textual's name of a character. Raises KeyNameError if it cannot be typed."""
    if character == " ":
        return "space"
    if character.isalnum():
        return character
    if not character.isprintable():
        raise KeyNameError("is no character that can be typed")
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return _FRIENDLY.get(name, name) or character


def _character(name: str) -> str | None:
    """Returns the character that Textual calls ``name``, or None."""
    if len(name) == 1:
        return name
    if name in _NAMED:
        return None
    if name in _SIGNS:
        return _SIGNS[name]
    try:
        return unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return None


_SIGNS = {
    _name_of(sign): sign
    for sign in map(chr, range(0x21, 0x100))
    if sign.isprintable() and not sign.isalnum()
}
"""The signs of Latin-1: Textual's names drop the hyphens of Unicode's, so no lookup finds them."""


@frozen
class Prefix:
    """The key that introduces a command to the panes, as Ctrl-b does in tmux."""

    data: bytes
    """The byte that a terminal sends for it."""
    key: str
    """Textual's name of the key."""
    text: str
    """The name shown to the user."""


def parse_prefix(text: str) -> Prefix:
    """Parses the prefix from the config. Raises KeyNameError.

    >>> parse_prefix("ctrl-a").data
    b'\\x01'
    """
    key = parse_key(text)
    character = _character(key.removeprefix("ctrl+"))
    if not key.startswith("ctrl+") or character is None:
        raise KeyNameError("is no prefix: ctrl and a letter or one of @ \\ ] ^ _")
    if key in ALIKE:
        raise KeyNameError(f"is what a terminal sends for {ALIKE[key]}")
    if key in TAKEN_BY_APP:
        raise KeyNameError("is taken: " + TAKEN_BY_APP[key])
    data = bytes([ord(character.upper()) ^ 0x40])
    return Prefix(data=data, key=key, text=f"ctrl-{character}")


_LISTS = "lists move with it"
_PANELS = "it goes between panels"
TAKEN_BY_APP = {"ctrl+q": "the app is left with it", "ctrl+p": "it searches all actions"}
RESERVED = {
    **dict.fromkeys(("up", "down", "left", "right", "pageup", "pagedown", "home", "end"), _LISTS),
    **dict.fromkeys(("j", "k", "g", "G", "ctrl+u", "ctrl+d"), _LISTS),
    **dict.fromkeys(("tab", "shift+tab", *"123456789"), _PANELS),
    **dict.fromkeys(("backspace", "delete"), "inputs need it"),
    "enter": "it opens what is selected",
    "escape": "it goes back everywhere",
    "ctrl+c": "it copies what is selected",
    **TAKEN_BY_APP,
}
"""Keys that the config cannot give to an action, with the reasons. Actions that have one of them in
the registry keep it. After the prefix of the panes, all keys are free."""


class Bound(Protocol):
    """Something that keys trigger: an action of the registry."""

    @property
    def address(self) -> str: ...

    @property
    def keys(self) -> tuple[str, ...]: ...


DEFAULT_PREFIX = parse_prefix("ctrl-]")

BEHIND_PREFIX = frozenset({"panes", "desktop"})
"""Scopes whose keys work only after the prefix."""
WITH_MAIN = frozenset({"log", "tree", "mounts"})
"""Scopes of parts of the main screen, where its keys work, too, unless the part has them."""


@frozen(kw_only=False)
class Keymap:
    """The keys of all actions."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys by the address of their action, for example "main.stop"; the first key is shown."""
    prefix: Prefix = DEFAULT_PREFIX
    here: str = "main"
    """The scope that has the focus, which decides what `hint` returns."""

    def seen_from(self, scope: str) -> Keymap:
        """Returns the same keys, with the hints that count while ``scope`` has the focus."""
        return replace(self, here=scope)

    def keys_of(self, action: Bound) -> tuple[str, ...]:
        return self.keys.get(action.address, action.keys)

    def first_of(self, action: Bound) -> str:
        """Returns the usual name of the action's first key, or ""."""
        keys = self.keys_of(action)
        return key_text(keys[0]) if keys else ""

    def hint(self, action_id: str, scope: str = "main") -> str:
        """Returns the way to an action: its key, or its ``:`` command if it has none.

        For an action of the main screen, it is the way from the scope `here`: behind the prefix in
        a shell, or after the key that leaves the scope.
        """
        keys = self.keys.get(f"{scope}.{action_id}", ())
        shown = key_text(keys[0]) if keys else ":" + action_id.replace("_", "-")
        if scope != "main" or self.here == "main":
            return shown
        prefix = f"{self.prefix.text} " if self.here in BEHIND_PREFIX else ""
        if own := self.keys.get(f"{self.here}.{action_id}", ()):
            return prefix + key_text(own[0])
        if not keys or (self.here in WITH_MAIN and not self._is_taken(keys[0])):
            return prefix + shown
        back = self.keys.get(f"{self.here}.back", ())
        return f"{prefix}{key_text(back[0])}, {shown}" if back else shown

    def _is_taken(self, key: str) -> bool:
        """Whether the scope that has the focus has that key itself."""
        own = (keys for address, keys in self.keys.items() if address.startswith(f"{self.here}."))
        return any(key in keys for keys in own)

    def changes_from(self, usual: Keymap) -> dict[str, str]:
        """Returns the keys that differ from ``usual``, in the form Textual's keymap takes."""
        return {
            address: ",".join(keys) or UNBOUND
            for address, keys in self.keys.items()
            if keys != usual.keys.get(address)
        }


NO_KEYS = Keymap()


LETTERS: Final = "asdfghjklqwertyuiopzxcvbnm"
"""The letters of the codes; those under the fingers come first."""


def jump_codes(count: int) -> list[str]:
    """Returns a code for each of ``count`` places: one letter, or two if there are more places than
    letters; at most as many as there are pairs. No code is the beginning of another."""
    if count <= len(LETTERS):
        return list(LETTERS[:count])
    pairs = [first + second for first in LETTERS for second in LETTERS]
    return pairs[:count]
