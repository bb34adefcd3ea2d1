"""Protects files that a client has open for writing against lost writes of the host.

Linux's client with a page cache and without a lease appends at the end that it knows, and writes
whole cached pages. It checks neither before it writes, and never shortens a file that it has open
for writing (`is_size_safe_to_change` in fs/smb/client/file.c). So a `Guard` tracks which end the
client assumes. It learns of other writers from `host_watch`, and from the size before and after
each write:

- The guard asks the client to drop its cache. It sends a lease break with the key of the lease that
  the client has asked for. The client needs no lease for that (`smb2_is_valid_lease_break` in
  fs/smb/client/smb2misc.c): it writes its dirty pages, drops all pages, mapped ones too, and
  answers (`cifs_oplock_break`).
- Bytes that the client appends at an old end are written at the present end.
- Until the client has answered, it may hold bytes at offsets that no longer match the file. Such
  bytes before an appended part of the same write are not written.
- A client that sees a file grow takes the new part for zeros until it drops its pages (`zero_point`
  in `netfs_perform_write`). Such zeros are not written either.
"""

from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Callable, Final, NamedTuple, Protocol
from quicksand_smb.store_errors import StoreError

if TYPE_CHECKING:
    from quicksand_smb.node import Node
    from quicksand_smb.store_types import Stat

Key = tuple[bytes, bytes]
"""A client's GUID, and the key of the lease that it has asked for."""
TAKEN_IN_S: Final = 1.0
"""The seconds after which a client surely uses what it was told."""
ANSWERED_S: Final = 3.0
"""The seconds without an answer after which the client is asked again."""
_PAGE: Final = 4096
RECENT_NS: Final = 2 * 10**9
"""The age in nanoseconds of a change that a client may not know. It trusts its cache for a second
(`actimeo`); the rest allows for clock differences."""


class Client(Protocol):
    """The part of a connection that guards use."""

    def send_cache_drop(self, key: bytes) -> None:
        """Ask the client to drop its cached pages of a file."""


class Watch(Protocol):
    """The host's watch of one file. Its methods never fail; without a watch nothing is reported."""

    def hear(self) -> None:
        """Process the queued events of all files."""

    def mute(self, node: "Node") -> None:
        """Ignore the following changes, which are the server's own."""

    def unmute(self, node: "Node") -> None: ...

    def end(self) -> None: ...

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Call a function under the server's lock after some seconds, and send the output."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""


class Writer(Protocol):
    """A handle with which a client may write."""

    @property
    def node(self) -> "Node": ...


class Part(NamedTuple):
    """A part of the bytes of one write."""

    start: int
    stop: int
    at: int | None
    """The offset in the file. None means its end at the moment of writing."""


class Guard:
    """The guard of one open file, for the client that has it open for writing."""

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
        """The time from which on a dropped cache counts. Before, the client may not yet know that
        it has the file open, or how large it is."""
        self.writers: set[Writer] = set()
        self._busy = 0
        """The number of the server's own changes under way."""
        self._size = stat.size
        """The size that the file would have without changes of the host."""
        self._written_ns = stat.written_ns
        self.end = stat.size
        """The end that the client assumes."""
        self._before: int | None = None
        """The end that the client assumed before it was told, and may still assume."""
        self._is_moved = False
        """The host has changed the size since the client was told it."""
        self._agreed: int | None = None
        """The offset beyond which the client may hold bytes at other places than the file. None
        means that it has dropped its cache since the size changed."""
        self.is_stale = False
        """The host has changed bytes of which the client may still cache the old ones."""
        self._is_suspect = False
        """The client may take for zeros what the host has appended."""
        self._is_waiting = False
        """A request to drop the cache is scheduled."""
        self._asked_s: float | None = None
        self._again = False
        """The file changed again after the client was asked."""

    def add_writer(self, handle: Writer) -> None:
        self.writers.add(handle)

    def remove_writer(self, handle: Writer) -> bool:
        """Remove a writer. Returns True if no writer is left."""
        self.writers.discard(handle)
        if self.writers:
            return False
        self._watch.end()
        if self._table.get(self.key) is self:
            del self._table[self.key]
        return True

    # What the host does

    def heard(self, *, is_closed: bool) -> None:
        """Handle an event. A file that was closed counts as changed only if its size or time
        differs: the program may not have written, or may be this server."""
        try:
            stat = next(iter(self.writers)).node.stat()
        except StoreError:
            return  # the share is gone
        is_same = is_closed and (stat.size, stat.written_ns) == (self._size, self._written_ns)
        if not self._note(stat) and not is_same:
            self.changed()

    def changed(self) -> None:
        """Record that the host has written to the file or has cut it."""
        self.is_stale = True
        self._ask_again()

    def suspect(self) -> None:
        """Record that the client learns of a file that the host has just changed or lengthened."""
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
        """Record that the client has dropped its cache as asked."""
        self._asked_s = None
        if self._again:
            self._ask()
        elif self._watch.now() < self._final_s:
            self._wait()
        else:
            self.is_stale = self._is_suspect = False
            self._agreed = None

    # The client's view and changes

    def report_size(self, size: int) -> None:
        """Record the size that the client is being told. It believes a larger one."""
        if size > self.end:
            self._before, self.end = self.end, size
            self.suspect()
        if size == self.end:
            self._is_moved = False

    def begin(self, node: "Node") -> None:
        """Prepare a change of bytes or size by the client."""
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
        """Complete a change: `reached` is the end of what was written, `appended` the bytes that
        went to the end."""
        self._size = max(self._size + appended, reached)
        self._busy -= 1
        if not self._busy:
            self._watch.unmute(node)
            self._note(node.stat())

    def finish_sizing(self, node: "Node", *, is_set: bool = False) -> None:
        """Complete a change that may have changed the size, or has set it (`is_set`)."""
        self._busy -= 1
        if not self._busy:
            self._watch.unmute(node)
        stat = node.stat()
        self._size, self._written_ns = stat.size, stat.written_ns
        self.end = self._size if is_set else max(self.end, self._size)
        self._is_moved = self._is_moved and self.end != self._size

    def _note(self, stat: "Stat") -> bool:
        """Compare with the file's present state. Returns True if the host has changed the size."""
        self._written_ns = stat.written_ns
        if stat.size == self._size:
            return False
        # A file that was cut may have been rewritten.
        self._agree(0 if stat.size < self._size else min(self._size, self.end))
        self._size = stat.size
        self._is_moved = True
        self.changed()
        return True

    def _agree(self, offset: int) -> None:
        self._agreed = offset if self._agreed is None else min(self._agreed, offset)

    @property
    def is_as_known(self) -> bool:
        """Whether the client knows the present state of the file."""
        return not (self._is_moved or self.is_stale or self._is_suspect)

    def place(self, offset: int, data: memoryview) -> list[Part]:
        """Return where the bytes of a write go. Call it between `begin` and `finish`. Keep the lock
        while the parts are written, unless one part goes where the client has it."""
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
            # The client holds these bytes at another offset.
            self._agree(min(end, real))
            self.changed()
        if self._size != real:
            return [Part(0, count, offset)]  # a hole of the client's own making
        if offset == real:
            return [Part(0, count, None)]
        agreed = real if self._agreed is None else min(self._agreed, real)
        kept = max(0, min(end, agreed) - offset)
        if self._is_suspect and kept == end - offset and any(data[kept:]):
            # Linux puts zeros before appended bytes. Other bytes are the client's.
            kept -= _zeros_at_end(data[max(0, kept - end % _PAGE) : kept])
        tail = Part(end - offset, count, None)
        return [Part(0, kept, offset), tail] if kept else [tail]

    def _believed_end(self, offset: int, stop: int) -> int:
        """Return the end that the client assumed when it sent a write. It may be the one before it
        was last told. Then the write begins there or at its page, and ends before the new end."""
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
    """A context in which the client changes a file by other means than writes, or sets its size
    (`is_set`). Setting the time of writing looks like a write, too (`fsnotify_change`)."""

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
    """Tell whether somebody else changed a file that is being opened while the client trusted its
    cache. `known` is the size and time when this client last wrote to it."""
    return 0 <= now_ns - stat.written_ns < RECENT_NS and known != (stat.size, stat.written_ns)
