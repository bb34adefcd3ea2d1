"""CHANGE_NOTIFY: reports changes that go through this server to clients that watch a directory.

It does not report changes by the host. A client that needs them has to look again.
"""

import struct

from quicksand_smb.ledger import EVENT_COST, NAME_COST, PENDING_COST, Ledger
from quicksand_smb.minimal_stdlib import Callable, Final
from quicksand_smb.names import Names, to_wire
from quicksand_smb.status import Status
from quicksand_smb.wire import encode_text, pad

MOST_WATCHES: Final = 256
"""The most watches of one share."""
MOST_BYTES: Final = 64 << 10
"""The most bytes of names that a watch keeps between two requests. The answer to one is limited to
the same."""
MOST_EVENTS: Final = 512
"""The most events that a watch keeps between two requests. Beyond it the client is told to list the
directory itself."""

# Actions, [MS-FSCC] 2.7.1
ADDED: Final = 1
REMOVED: Final = 2
MODIFIED: Final = 3
RENAMED_OLD: Final = 4
RENAMED_NEW: Final = 5

# What is watched, [MS-SMB2] 2.2.35
FILE_NAME: Final = 0x1
DIR_NAME: Final = 0x2
ATTRIBUTES: Final = 0x4
SIZE: Final = 0x8
LAST_WRITE: Final = 0x10
SECURITY: Final = 0x100

Answer = Callable[[Status, bytes], None]


class Watch:
    """The watch of a directory handle."""

    def __init__(
        self, names: Names, wanted: int, ledger: Ledger, *, recursive: bool, most: int
    ) -> None:
        """Raises Refusal if there is no memory for it."""
        self._ledger = ledger
        self._cost = ledger.take(PENDING_COST + NAME_COST * len(names) + 4 * sum(map(len, names)))
        self.names = names
        self.wanted = wanted
        self.recursive = recursive
        self.most = most
        """The largest answer in bytes, from the first request."""
        self._events: list[tuple[int, bytes]] = []
        """The actions, and the names in UTF-16."""
        self._bytes = 0
        self._taken = 0
        self._overflowed = False
        self._waiting: list[tuple[int, Answer]] = []

    def hear(self, names: Names, action: int, kind: int) -> None:
        depth = len(self.names)
        if not self.wanted & kind or names[:depth] != self.names or len(names) == depth:
            return
        if not self.recursive and len(names) != depth + 1:
            return
        if self._overflowed:
            return
        name = encode_text("\\".join(to_wire(name) for name in names[depth:]))
        self._bytes += len(name)
        cost = EVENT_COST + len(name)
        is_much = len(self._events) >= MOST_EVENTS or self._bytes > MOST_BYTES
        if is_much or not self._ledger.try_take(cost):
            self._forget_events()
            self._overflowed = True
        else:
            self._taken += cost
            self._events.append((action, name))

    def _forget_events(self) -> None:
        self._events = []
        self._bytes = 0
        self._ledger.give_back(self._taken)
        self._taken = 0

    def ask(self, most: int, answer: Answer) -> None:
        self._waiting.append((most, answer))

    def drop(self, answer: Answer) -> None:
        self._waiting = [one for one in self._waiting if one[1] is not answer]

    def answer(self) -> None:
        """Answer the oldest requests while there are events."""
        while self._waiting and (self._events or self._overflowed):
            most, answer = self._waiting.pop(0)
            encoded = encode(self._events)
            fits = not self._overflowed and len(encoded) <= min(most, self.most)
            self._forget_events()
            self._overflowed = False
            if fits:
                answer(Status.SUCCESS, encoded)
            else:
                answer(Status.NOTIFY_ENUM_DIR, b"")

    def end(self, status: Status) -> None:
        """End the watch of a directory that is closed or removed."""
        self._forget_events()
        self._ledger.give_back(self._cost)
        self._cost = 0
        waiting, self._waiting = self._waiting, []
        for _, answer in waiting:
            answer(status, b"")


# [MS-FSCC] 2.7.1
def encode(events: list[tuple[int, bytes]]) -> bytes:
    encoded = b""
    for index, (action, text) in enumerate(events):
        length = 12 + len(text)
        fill = 0 if index == len(events) - 1 else pad(length, 4)
        following = 0 if index == len(events) - 1 else length + fill
        encoded += struct.pack("<III", following, action, len(text)) + text + bytes(fill)
    return encoded


def tell(watches: list[Watch], names: Names, action: int, kind: int) -> None:
    for watch in watches:
        watch.hear(names, action, kind)
        watch.answer()


def tell_rename(watches: list[Watch], old: Names, new: Names, kind: int) -> None:
    """Report a rename. A watch on both directories gets both halves in one answer."""
    for watch in watches:
        watch.hear(old, RENAMED_OLD, kind)
        watch.hear(new, RENAMED_NEW, kind)
        watch.answer()
