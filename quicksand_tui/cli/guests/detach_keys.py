"""Finds the detach keys in a user's input."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class DetachKeys:
    """Looks for the detach keys in typed input.

    Keys that may begin the sequence are held back until it is clear whether they do. Typing the
    first key twice sends it once.
    """

    sequence: bytes
    _held: int = 0
    """The number of keys of the sequence that have been typed."""
    found: bool = field(default=False, init=False)

    def feed(self, data: bytes) -> bytes:
        """Returns the bytes to send to the guest. After `found` there are none."""
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
