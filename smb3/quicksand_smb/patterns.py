"""Search patterns, matched in time linear in the name, whatever the guest sends.

[MS-FSA] 2.1.4.4 defines them: ``*`` matches any characters and ``?`` one character. Three are for
DOS programs: ``<`` matches any characters up to and including the last dot, ``>`` one character, or
none before a dot and at the end, and ``"`` a dot or the end. Matching is case-sensitive.
"""

from __future__ import annotations

from quicksand_smb.names import NAME_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_WILD = frozenset('*?<>"')


def is_literal(pattern: str) -> bool:
    """Tell whether only a file of exactly this name can match."""
    return bool(pattern) and pattern != NO_NAME and _WILD.isdisjoint(pattern)


def matcher(pattern: str) -> Callable[[str], bool] | None:
    """Return a function that tells whether a name matches, or None if every name does. A pattern
    that is too long for any name matches nothing."""
    pattern = short(pattern)
    if pattern in ("", "*"):
        return None
    if pattern == NO_NAME:
        return _nothing
    if is_literal(pattern):
        return pattern.__eq__
    if _WILD.isdisjoint(pattern.replace("*", "")):
        return _stars(*pattern.split("*"))
    return _Automaton(pattern).matches


NO_NAME = "/"
"""A pattern that no name matches."""


def short(pattern: str) -> str:
    """Return the shortest equivalent pattern, since a search keeps its pattern to its end."""
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return pattern if len(pattern) <= 2 * NAME_MAX + 1 else NO_NAME


def _nothing(_name: str) -> bool:
    return False


def _stars(start: str, *parts: str) -> Callable[[str], bool]:
    """Match the texts between stars. Each but the last is searched behind the one before; the last
    is at the end."""
    *middle, end = parts
    least = len(start) + len(end) + sum(map(len, middle))

    def matches(name: str) -> bool:
        if len(name) < least or not name.startswith(start) or not name.endswith(end):
            return False
        at, last = len(start), len(name) - len(end)
        for part in middle:
            at = name.find(part, at, last)
            if at < 0:
                return False
            at += len(part)
        return True

    return matches


class _Automaton:
    """Follows all paths through the pattern at once, with one bit for each place in it.

    Each character costs a few operations on an integer with as many bits as the pattern has
    characters. So there is no backtracking, and no pattern is slow.
    """

    __slots__ = ("_any_dot", "_any_end", "_dos_dot", "_dos_one", "_dos_star", "_end", "_literals",
                 "_one", "_star")  # fmt: skip

    def __init__(self, pattern: str) -> None:
        places: dict[str, int] = {}
        for index, char in enumerate(pattern):
            places[char] = places.get(char, 0) | 1 << index
        self._star = places.pop("*", 0)
        self._one = places.pop("?", 0)
        self._dos_star = places.pop("<", 0)
        self._dos_one = places.pop(">", 0)
        self._dos_dot = places.pop('"', 0)
        self._literals = places
        self._end = 1 << len(pattern)
        # Places that need no character before a dot, and at the end.
        self._any_dot = self._star | self._dos_star | self._dos_one
        self._any_end = self._any_dot | self._dos_dot

    def matches(self, name: str) -> bool:
        """Tell whether the whole name matches."""
        states = 1
        stars = self._star | self._dos_star
        last_dot = name.rfind(".")
        for index, char in enumerate(name):
            if char == ".":
                states = _pass(states, self._any_dot)
                eaten = self._one | self._dos_dot
                # The last dot ends what "<" stands for.
                kept = self._star if index == last_dot else stars
                eaten |= stars ^ kept
            else:
                states = _pass(states, stars)
                eaten = self._one | self._dos_one
                kept = stars
            eaten |= self._literals.get(char, 0)
            states = (states & eaten) << 1 | states & kept
            if not states:
                return False
        return bool(_pass(states, self._any_end) & self._end)


def _pass(states: int, free: int) -> int:
    """Return the states with all that are reached from them by passing `free` places.

    Within a run of free places the sum carries from the lowest state to the place after the run.
    The exclusive or marks the places that the carry passed, which are the reached states.
    """
    return states | ((states & free) + free) ^ free
