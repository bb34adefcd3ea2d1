"""What the host writes into files that a client has open for writing.

Linux's client with a page cache and without a lease appends at the end that it knows, and writes
whole pages of what it keeps; it looks at neither again before it writes, and never takes a file for
shorter than it was while it has it open for writing (`is_size_safe_to_change` in
fs/smb/client/file.c). So a `Guard` of such a file knows what the client takes for its end, and is
told when somebody else changes it (`hostwatch`, and the size before and after each write):

- The client is asked to drop what it keeps. That is the message by which a lease is asked back,
  for the key by which it has asked for one: it needs to have none (`smb2_is_valid_lease_break` in
  fs/smb/client/smb2misc.c), writes what it has not written, drops its pages, mapped ones, too, and
  answers (`cifs_oplock_break`).
- What it appends where the file no longer ends is put where the file ends now.
- Until it has answered, it may have bytes at another place than the file has: what stands there,
  before an appended part in the same write, is not written.
- A client that learns by itself that a file has grown takes what is new for zeros until it drops
  its pages (`zero_point` in `netfs_perform_write`). Such zeros are not written, either.
"""

from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Callable, Final, NamedTuple, Protocol
from quicksand_smb.store_errors import StoreError

if TYPE_CHECKING:
    from quicksand_smb.node import Node
    from quicksand_smb.store_types import Stat

Key = tuple[bytes, bytes]
"""A client's GUID and the key of the lease that it has asked for."""
TAKEN_IN_S: Final = 1.0
"""What a client was told so long ago it goes by."""
ANSWERED_S: Final = 3.0
"""After so long without an answer it is asked again."""
_PAGE: Final = 4096
RECENT_NS: Final = 2 * 10**9
"""A client may go by what it knows of a file for a second (`actimeo`); the rest is for clocks."""


class Client(Protocol):
    """A connection, as far as guards know it."""

    def send_cache_drop(self, key: bytes) -> None:
        """Have the client drop what it keeps of a file."""


class Watch(Protocol):
    """The host's watch of one file. Nothing here fails: who has no watch hears nothing."""

    def hear(self) -> None:
        """Take in at once what was told so far, of all files."""

    def mute(self, node: "Node") -> None:
        """What follows is this server's own doing."""

    def unmute(self, node: "Node") -> None: ...

    def end(self) -> None: ...

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something under the lock of the server, and send what is to be sent."""

    def now(self) -> float:
        """Seconds of a clock that nobody sets."""


class Writer(Protocol):
    """A handle by which a client may write."""

    @property
    def node(self) -> "Node": ...


class Part(NamedTuple):
    """Of the bytes of one write."""

    start: int
    stop: int
    at: int | None
    """Where in the file they go; None: to its end, wherever that is by then."""


class Guard:
    """Of one open file, for the client that has it open for writing."""

    __slots__ = (
        "_again", "_agreed", "_asked_s", "_before", "_busy", "_client", "_final_s", "_is_moved",
        "_is_suspect", "_is_waiting", "_size", "_table", "_watch", "_written_ns", "end", "is_stale",
        "key", "writers",
    )  # fmt: skip

    def __init__(
        self, client: Client, key: Key, watch: Watch, stat: "Stat", table: "dict[Key, Guard]"
    ) -> None:
        self._client = client
        self.key = key
        self._watch = watch
        self._table = table
        table[key] = self
        self._final_s = watch.now() + TAKEN_IN_S
        """From when on it counts that the client has dropped what it kept: before, it may not have
        taken in that it has the file open, or how large that is."""
        self.writers: set[Writer] = set()
        self._busy = 0
        """Changes of ours under way."""
        self._size = stat.size
        """What it would be, had only we changed it."""
        self._written_ns = stat.written_ns
        self.end = stat.size
        """What the client takes for it."""
        self._before: int | None = None
        """What it took for the end until it was told, and may still."""
        self._is_moved = False
        """The host has changed the size since the client was told."""
        self._agreed: int | None = None
        """Beyond this offset the client may have bytes at another place than the file; None: it has
        dropped what it kept since the size was changed."""
        self.is_stale = False
        """The host has changed bytes of which the client may still keep what was there."""
        self._is_suspect = False
        """The client may take for zeros what the host has written up to the end."""
        self._is_waiting = False
        """It will be asked in a while."""
        self._asked_s: float | None = None
        self._again = False
        """There was another change after the client was asked."""

    def add_writer(self, handle: Writer) -> None:
        self.writers.add(handle)

    def remove_writer(self, handle: Writer) -> bool:
        """Whether nobody is left."""
        self.writers.discard(handle)
        if self.writers:
            return False
        self._watch.end()
        if self._table.get(self.key) is self:
            del self._table[self.key]
        return True

    # What the host does

    def heard(self, *, is_closed: bool) -> None:
        """The watch has told of something. A file that is closed was written to by a mapping, if
        its time says so: it may be one that nobody has written to, or our own."""
        try:
            stat = next(iter(self.writers)).node.stat()
        except StoreError:
            return  # the share is gone
        is_same = is_closed and (stat.size, stat.written_ns) == (self._size, self._written_ns)
        if not self._note(stat) and not is_same:
            self.changed()

    def changed(self) -> None:
        """The host has written, or has cut the file."""
        self.is_stale = True
        self._ask_again()

    def suspect(self) -> None:
        """The client is being told of a file that the host has just changed, or lengthened."""
        self._is_suspect = True
        self._final_s = self._watch.now() + TAKEN_IN_S
        self._wait()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._watch.later(self._final_s - self._watch.now(), self._ask_late)

    def _ask_late(self) -> None:
        self._is_waiting = False
        if not self.is_as_known and self.writers:
            self._ask_again()

    def _ask_again(self) -> None:
        if self._asked_s is None or self._is_late():
            self._ask()
        else:
            self._again = True

    def _ask(self) -> None:
        self._asked_s, self._again = self._watch.now(), False
        self._client.send_cache_drop(self.key[1])

    def _is_late(self) -> bool:
        since = self._final_s if self._asked_s is None else self._asked_s
        is_due = self.is_stale or self._is_suspect
        return is_due and self._watch.now() - since > ANSWERED_S

    def answered(self) -> None:
        """The client has dropped what it kept when it was asked."""
        self._asked_s = None
        if self._again:
            self._ask()
        elif self._watch.now() < self._final_s:
            self._wait()
        else:
            self.is_stale = self._is_suspect = False
            self._agreed = None

    # What the client is told, and does

    def told(self, size: int) -> None:
        """The client is being told how large the file is. It believes it if that is more."""
        if size > self.end:
            self._before, self.end = self.end, size
            self.suspect()
        if size == self.end:
            self._is_moved = False

    def begin(self, node: "Node") -> None:
        """Before the client changes bytes or the size."""
        self._busy += 1
        if self._busy > 1:
            return
        try:
            self._watch.hear()
            self._note(node.stat())
        except BaseException:
            self._busy -= 1  # nobody will call `finish`
            raise
        self._watch.mute(node)

    def finish(self, node: "Node", *, reached: int = 0, appended: int = 0) -> None:
        """After it: where what was written ends, or how much of it went to the end."""
        self._size = max(self._size + appended, reached)
        self._busy -= 1
        if not self._busy:
            self._watch.unmute(node)
            self._note(node.stat())

    def finish_sizing(self, node: "Node", *, is_set: bool = False) -> None:
        """As `finish`, after what may have changed the size, or has set it."""
        self._busy -= 1
        if not self._busy:
            self._watch.unmute(node)
        stat = node.stat()
        self._size, self._written_ns = stat.size, stat.written_ns
        self.end = self._size if is_set else max(self.end, self._size)
        self._is_moved = self._is_moved and self.end != self._size

    def _note(self, stat: "Stat") -> bool:
        """Compare with what the file is; whether its size was changed by the host."""
        self._written_ns = stat.written_ns
        if stat.size == self._size:
            return False
        # A file that was cut may have been written anew.
        self._agree(0 if stat.size < self._size else min(self._size, self.end))
        self._size = stat.size
        self._is_moved = True
        self.changed()
        return True

    def _agree(self, offset: int) -> None:
        self._agreed = offset if self._agreed is None else min(self._agreed, offset)

    @property
    def is_as_known(self) -> bool:
        """Whether the client knows the file as it is."""
        return not (self._is_moved or self.is_stale or self._is_suspect)

    def place(self, offset: int, data: memoryview) -> list[Part]:
        """Where the bytes of a write go, between `begin` and `finish`. All parts are to be written
        without letting go of the lock, unless it is one that goes where the client has it."""
        count = len(data)
        stop = offset + count
        end = self._believed_end(offset, stop)
        self.end = max(self.end, stop)
        if self._is_late():
            self._ask()
        if self._busy > 1 or not offset <= end < stop:
            return [Part(0, count, offset)]
        real = self._size if self._is_moved else end
        if real not in (end, offset):
            # It has these bytes at another place.
            self._agree(min(end, real))
            self.changed()
        if self._size != real:
            return [Part(0, count, offset)]  # a hole of the client's own making
        if offset == real:
            return [Part(0, count, None)]
        agreed = real if self._agreed is None else min(self._agreed, real)
        kept = max(0, min(end, agreed) - offset)
        if self._is_suspect and kept == end - offset and any(data[kept:]):
            # Linux's own zeros stand before what is appended; others are the client's.
            kept -= _zeros_at_end(data[max(0, kept - end % _PAGE) : kept])
        tail = Part(end - offset, count, None)
        return [Part(0, kept, offset), tail] if kept else [tail]

    def _believed_end(self, offset: int, stop: int) -> int:
        """What the client took for the end when it sent a write. That may have been before it took
        in what it was told: then the write begins there, or with the page, and ends before the new
        end."""
        before = self._before
        if before is None or not offset <= before < stop:
            return self.end
        if not self._is_suspect or self._watch.now() > self._final_s:
            self._before = None
        elif offset == before or (not offset % _PAGE and stop % _PAGE and stop < self.end):
            self._before = stop
            self._is_moved = True
            return before
        return self.end


def _zeros_at_end(data: memoryview) -> int:
    return len(data) - len(bytes(data).rstrip(b"\0"))


class SizeChange:
    """A `with` in which the client changes a file by other means than writes, or sets its size
    (`is_set`). A time of writing that is set looks like a write, too (`fsnotify_change`)."""

    __slots__ = ("_guard", "_is_set", "_node")

    def __init__(self, guard: Guard | None, node: "Node", *, is_set: bool = False) -> None:
        self._guard, self._node, self._is_set = guard, node, is_set

    def __enter__(self) -> None:
        if self._guard is not None:
            self._guard.begin(self._node)

    def __exit__(self, *_: object) -> None:
        if self._guard is not None:
            self._guard.finish_sizing(self._node, is_set=self._is_set)


def is_suspect(stat: "Stat", known: "tuple[int, int] | None", now_ns: int) -> bool:
    """Whether a file that is being opened was changed by somebody else while the client went by
    what it had. `known` is its size and time when this client had last written to it."""
    return 0 <= now_ns - stat.written_ns < RECENT_NS and known != (stat.size, stat.written_ns)
