"""How many requests a client may have under way, and their numbers ([MS-SMB2] 3.3.1.1)."""

from quicksand_smb.minimal_stdlib import Final

MOST: Final = 8192
"""Credits a client may hold. Windows and Samba give as many; a client takes what it needs."""
FEWER: Final = 256
"""The same where all that a client sends must be taken at once: 16 MiB, since a credit stands for
64 KiB."""
SPARE: Final = 16
"""Credits beyond these: a client that makes a new connection, on a stream that has no end of
connections, may get answers to a NEGOTIATE of an earlier one, and counts the credit of each."""


class Window:
    """The numbers of messages that are granted and unused."""

    def __init__(self, most: int = MOST, spare: int = 0) -> None:
        self._most = most
        self._spare = spare
        """Numbers that may be used without having been granted."""
        self._low = 0
        """Every number below is used."""
        self._high = 1
        """Every number from here on is not granted."""
        self._used: set[int] = set()
        """Numbers between that are used: at most as many as the window is wide."""

    def take(self, first: int, count: int) -> bool:
        """Use up the numbers of one request. False: it bears numbers it may not bear."""
        count = count or 1
        beyond = first + count - self._high
        if first < self._low or beyond > self._spare:
            return False
        if beyond > 0:
            self._spare -= beyond
            self._high += beyond
        if first == self._low and not self._used:  # as nearly always
            self._low += count
            return True
        wanted = range(first, first + count)
        if not self._used.isdisjoint(wanted):
            return False
        if first == self._low:
            self._low += count
            while self._low in self._used:
                self._used.remove(self._low)
                self._low += 1
        else:
            self._used.update(wanted)
        return True

    def grant(self, charge: int, asked: int) -> int:
        """Credits for a response: as many as were used, and more as far as the window allows."""
        given = asked if asked > charge else charge or 1
        room = self._most - (self._high - self._low)
        if given > room:
            given = room if room > 0 else 0
        self._high += given
        return given

    @property
    def held(self) -> int:
        return self._high - self._low - len(self._used)
