"""The keys that leave a terminal without ending it."""

from __future__ import annotations

from dataclasses import dataclass, field

from quicksand.errors import ConfigError

DEFAULT_KEYS = "ctrl-],d"
_CONTROL = "ctrl-"


def parse_keys(text: str) -> bytes:
    """The bytes of a sequence such as "ctrl-],d". Raises ConfigError.

    >>> parse_keys("ctrl-],d")
    b'\\x1dd'
    """
    codes = bytearray()
    for key in text.split(","):
        name = key.strip()
        if name.lower().startswith(_CONTROL) and len(name) == len(_CONTROL) + 1:
            code = ord(name[-1].upper()) ^ 0x40
        else:
            code = ord(name) if len(name) == 1 else -1
        if not 0 <= code < 0x80 or (len(name) > 1 and code >= 0x20):
            raise ConfigError(
                f"{key!r} in the keys {text!r} is no key",
                hint='one character or ctrl- and one of a-z @ [ ] \\ ^ _, as in "ctrl-],d"',
            )
        codes.append(code)
    return bytes(codes)


@dataclass(slots=True)
class DetachKeys:
    """Looks for the sequence in what is typed.

    Keys that begin it are held back until it is clear that they are not it. The first key twice
    sends it once.
    """

    sequence: bytes
    _held: int = 0
    """How much of the sequence has been typed."""
    found: bool = field(default=False, init=False)

    def feed(self, data: bytes) -> bytes:
        """What is to be sent on; nothing more once `found`."""
        out = bytearray()
        for code in b"" if self.found else data:
            if code == self.sequence[self._held]:
                self._held += 1
                if self._held == len(self.sequence):
                    self.found = True
                    return bytes(out)
            elif self._held == 1 and code == self.sequence[0]:
                out.append(code)
                self._held = 0
            else:
                out += self.sequence[: self._held]
                self._held = 1 if code == self.sequence[0] else 0
                if not self._held:
                    out.append(code)
        return bytes(out)
