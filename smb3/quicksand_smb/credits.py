"""Credits: how many requests a client may have under way, and their message ids ([MS-SMB2]
3.3.1.1)."""

from quicksand_smb.minimal_stdlib import Final

MOST: Final = 8192
"""The most credits of a client. Windows and Samba grant as many, and a client takes what it
needs."""
FEWER: Final = 256
"""The most credits where the server must take everything at once that a client sends. Each stands
for 64 KiB, so that is 16 MiB."""
SPARE: Final = 16
"""Extra credits on a stream without an end of connection. A client that reconnects may receive
answers to an earlier NEGOTIATE, and counts the credit of each."""


class Window:
    """The message ids that are granted and unused."""

    def __init__(self, most: int = MOST, spare: int = 0) -> None:
        self._most = most
        self._spare = spare
        """How many ids may still be used without a grant."""
        self._low = 0
        """Every id below is used."""
        self._high = 1
        """No id from here on is granted."""
        self._used: set[int] = set()
        """The used ids in between. There are never more than the window is wide."""

    def take(self, first: int, count: int) -> bool:
        """Use up the ids of one request. Returns False if one of them is used already or was not
        granted."""
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
        """Return the credits of a response: as many as the request used, and more as far as the
        window allows."""
        given = asked if asked > charge else charge or 1
        room = self._most - (self._high - self._low)
        if given > room:
            given = room if room > 0 else 0
        self._high += given
        return given

    @property
    def held(self) -> int:
        return self._high - self._low - len(self._used)
