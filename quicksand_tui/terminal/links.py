"""Hyperlinks (OSC 8): numbers in styles, and the addresses they stand for."""

from __future__ import annotations

import re
from typing import Final

ADDRESS_MAX: Final = 2083
"""Characters of an address, as in VTE and iTerm2."""

LINKS_MAX: Final = 8192
CHARACTERS_MAX: Final = 1024 * 1024
"""Of all addresses together. Beyond either limit the oldest are forgotten: their text stays, but is
no link any more."""

_ADDRESS: Final = re.compile(r"(?:https?|file|mailto):[!-~]+", re.IGNORECASE)
"""Kinds that may be opened, in the characters that an address may have (RFC 3986)."""


class Links:
    """Addresses by number. Numbers are not used twice."""

    def __init__(self) -> None:
        self._addresses: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._characters = 0
        self._next = 1

    def number(self, address: str) -> int:
        """The number of an address; 0 if it is none that can be a link."""
        known = self._numbers.get(address)
        if known is not None:
            return known
        if len(address) > ADDRESS_MAX or not _ADDRESS.fullmatch(address):
            return 0
        while len(self._addresses) >= LINKS_MAX or self._characters > CHARACTERS_MAX:
            oldest = next(iter(self._addresses))
            gone = self._addresses.pop(oldest)
            del self._numbers[gone]
            self._characters -= len(gone)
        # Numbers are packed as 32 bits: after four thousand million links they begin anew.
        number = self._next
        self._next = number % 0xFFFFFFFF + 1
        self._addresses[number] = address
        self._numbers[address] = number
        self._characters += len(address)
        return number

    def address(self, number: int) -> str:
        """The address; empty for 0, or if it is forgotten."""
        return self._addresses.get(number, "")

    def clear(self) -> None:
        self._addresses.clear()
        self._numbers.clear()
        self._characters = 0
