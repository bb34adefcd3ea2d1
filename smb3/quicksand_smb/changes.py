"""What the host changes in directories that programs of the guest watch (inotify(7)).

Linux's client raises no event for it. So the guest's agent, which finds the watches, asks for the
changes by a control code of our own, and sets of each file that it is told the time of writing to
what it is: that is an event in the guest, and here nothing (`is_touch`).

A question says by which number the agent knows what is watched, and tells the inodes only where the
number is not known here. They are looked for below the root, and watched; events wait in the kernel
until the next question.
"""

import os
import struct
import time

from quicksand_smb import kernel
from quicksand_smb.ledger import Ledger
from quicksand_smb.light import TYPE_CHECKING, Callable, Final, deque, start_thread
from quicksand_smb.names import Names, from_host, host_path
from quicksand_smb.own import Own
from quicksand_smb.reasons import Reason, StoreError
from quicksand_smb.status import Refusal, Status
from quicksand_smb.values import Kind, Stat
from quicksand_smb.wire import filetime

if TYPE_CHECKING:
    from quicksand_smb.numbering import Numbering
    from quicksand_smb.store import Store

# linux/inotify.h
_MODIFY, _ATTRIB, _CLOSED, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATED, _GONE, _MOVED, _OVERFLOW, _IGNORED = 0x100, 0x200, 0x800, 0x4000, 0x8000
_ONLY_DIRECTORY = 0x01000000
_WANTED: Final = (
    _MODIFY | _ATTRIB | _CLOSED | _MOVED_FROM | _MOVED_TO | _CREATED | _GONE | _MOVED
    | _ONLY_DIRECTORY
)  # fmt: skip
_OF_NAMES: Final = _MOVED_FROM | _MOVED_TO | _CREATED | _GONE

MOST: Final = 2048
"""Files and directories that are watched, of one share. They are the host's user's
(fs.inotify.max_user_watches, 8192 on a small machine)."""
MOST_NAMES: Final = 200_000
"""How many names of a share are looked at to find them, those near the root first."""
MOST_DIRECTORIES: Final = 10_000
MOST_DEPTH: Final = 32
"""How many directories and names deep it is looked for them."""
MOST_WAITING: Final = 2048
"""Changed names that are kept until the next question; of more, only the directories are."""
MOST_TOLD: Final = 256
"""Files in one answer; of more, only their directories are told."""
COST: Final = 8 << 20
"""Bytes that all this takes at most, of the ledger."""
_REST: Final = 20
"""Looking for files takes no more than one part in so many of a processor's time."""
_LONGEST_PAUSE_S: Final = 300.0
"""What is not found may have been removed here, which the guest does not know."""

_QUESTION: Final = struct.Struct("<QII")
_ANSWER: Final = struct.Struct("<II")
_CHANGE: Final = struct.Struct("<QH")
_EVENT: Final = struct.Struct("=iIII")
_BUFFER: Final = 64 << 10


class Watched:
    """A directory of the host."""

    __slots__ = ("files", "inode", "is_changed", "names", "waiting")

    def __init__(self, names: Names, inode: int) -> None:
        self.names = names
        self.inode = inode
        self.files: set[str] | None = None
        """Only these of it are watched; None: all of it."""
        self.waiting: dict[str, bool] = {}
        """What has changed, and whether names came or went."""
        self.is_changed = False
        """It is to be told itself."""


class Changes:
    """Of one share. Everything but the search for files runs under the lock of the house."""

    def __init__(
        self,
        store: "Store",
        numbering: "Numbering",
        ledger: Ledger,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        """`run` does something under the lock. Raises Refusal."""
        self._store = store
        self._numbering = numbering
        self._run = run
        self._ledger = ledger
        ledger.take(COST)
        try:
            self._descriptor = kernel.inotify()
        except OSError:
            ledger.give(COST)
            raise Refusal(Status.NOT_SUPPORTED) from None
        self._number = 0
        self._begun: dict[int, None] = {}
        """What was told so far by this number."""
        self._inodes: dict[int, tuple[Names, bool] | None] = {}
        """What is wanted, and where it is and whether it is a directory, if that is known."""
        self._is_whole = False
        self._watched: dict[int, Watched] = {}
        self._waiting = 0
        self._told: list[dict[tuple[int, int], int]] = [{}, {}]
        """The times of writing that were told last, and before."""
        self._names: list[set[Names]] = [set(), set()]
        self._is_searching = False
        self._search_s = 0.0
        """When to look for files again."""
        self._pause_s = 1.0
        self._lost: set[Names] = set()
        """Directories that are elsewhere by now, or gone."""
        self._own = store.own = Own()

    def end(self) -> None:
        """Done twice, it does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._store.own = None
            self._ledger.give(COST)

    def ask(self, question: memoryview, most: int) -> bytes:
        """Answer the agent with up to `most` bytes. Raises Refusal."""
        if len(question) < _QUESTION.size or (len(question) - _QUESTION.size) % 8:
            raise Refusal(Status.INVALID_PARAMETER)
        number, first, total = _QUESTION.unpack_from(question)
        count = (len(question) - _QUESTION.size) // 8
        inodes = struct.unpack_from(f"<{count}Q", question, _QUESTION.size)
        if not number or not total or total > MOST or first + count > total:
            raise Refusal(Status.INVALID_PARAMETER)
        if number != self._number and not first and count:
            self._number, self._is_whole = number, False
            self._begun = {}
        if number == self._number and not self._is_whole and first == len(self._begun):
            self._begun.update(dict.fromkeys(inodes))
            if len(self._begun) == total:
                self._is_whole = True
                known, inode_of = self._inodes, self._numbering.inode
                self._inodes = {inode: known.get(inode) for inode in map(inode_of, self._begun)}
                self._pause_s = 1.0
                self._watch()
        if number != self._number or not self._is_whole:
            return _ANSWER.pack(0, 0)
        self._hear()
        changes = self._tell(most - _ANSWER.size)
        self._search()
        return _ANSWER.pack(1, len(changes)) + b"".join(changes)

    # What is watched

    def _search(self) -> None:
        """Find what is not found, if somebody has looked long enough ago."""
        self._forget_lost()
        missing = {inode for inode, where in self._inodes.items() if where is None}
        if not missing or self._is_searching or time.monotonic() < self._search_s:
            return
        self._is_searching = True

        def work() -> None:
            since = time.monotonic()
            try:
                found = find(self._store, missing)
            except StoreError:
                found = {}
            took = time.monotonic() - since
            self._run(lambda: self._found(found, took))

        start_thread(work)

    def _found(self, found: dict[int, tuple[Names, bool]], took_s: float) -> None:
        self._is_searching = False
        self._pause_s = 1.0 if found else min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._search_s = time.monotonic() + max(self._pause_s, took_s * _REST)
        if self._descriptor < 0:
            return
        for inode, where in found.items():
            if inode in self._inodes:
                self._inodes[inode] = where
        self._watch()

    def _watch(self) -> None:
        """Watch what is wanted and found, and nothing else."""
        self._forget_lost()
        wanted: dict[Names, set[str] | None] = {}
        for where in self._inodes.values():
            if where is None:
                continue
            names, is_directory = where
            if is_directory:
                wanted[names] = None
            elif (files := wanted.setdefault(names[:-1], set())) is not None:
                files.add(names[-1])
        for number, one in list(self._watched.items()):
            if one.names in wanted:
                one.files = wanted.pop(one.names)
            else:
                self._drop(number)
                kernel.inotify_remove(self._descriptor, number)
        for names, files in wanted.items():
            try:
                number, stat = self._store.with_directory(names, self._add)
            except StoreError:
                continue  # gone, or there are no more watches
            one = self._watched[number] = Watched(names, stat.inode)
            one.files = files

    def _add(self, descriptor: int) -> tuple[int, Stat]:
        path = kernel.own_path(descriptor)
        return kernel.inotify_add(self._descriptor, path, _WANTED), kernel.stat_of(descriptor)

    def _drop(self, number: int) -> Watched | None:
        one = self._watched.pop(number, None)
        if one is not None:
            self._waiting -= len(one.waiting)
        return one

    def _forget(self, number: int) -> None:
        """A directory is elsewhere, or gone."""
        one = self._drop(number)
        if one is not None:
            self._lost.add(one.names)

    def _forget_lost(self) -> None:
        if not self._lost:
            return
        for inode, where in self._inodes.items():
            if where is not None and (where[0] in self._lost or where[0][:-1] in self._lost):
                self._inodes[inode] = None
        self._lost.clear()

    # What has changed

    def _hear(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                return
            at = 0
            while at + _EVENT.size <= len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].rstrip(b"\0")
                at += length
                self._heard(number, mask, name)

    def _heard(self, number: int, mask: int, name: bytes) -> None:
        if mask & _OVERFLOW:
            for each in self._watched.values():
                each.is_changed = True
        one = self._watched.get(number)
        if one is None:
            return
        if mask & (_IGNORED | _MOVED):
            self._forget(number)
            if mask & _MOVED:
                kernel.inotify_remove(self._descriptor, number)
            return
        file = from_host(name) if name else ""
        if one.files is not None and file not in one.files:
            return
        if file not in one.waiting:
            if self._waiting >= MOST_WAITING:
                one.is_changed = True
                return
            self._waiting += 1
        one.waiting[file] = one.waiting.get(file, False) or bool(mask & _OF_NAMES)

    def _tell(self, most: int) -> list[bytes]:
        """What has changed, as far as it fits; the rest waits."""
        self._told = [{}, self._told[0]]
        self._names = [set(), self._names[0]]
        answer = _Answer(most, self._told[0], self._names[0])
        for number, one in list(self._watched.items()):
            if not one.waiting and not one.is_changed:
                continue
            if answer.is_full:
                break

            def judge(descriptor: int, one: Watched = one) -> None:
                self._judge(descriptor, one, answer)

            try:
                self._store.with_directory(one.names, judge)
            except StoreError:
                self._forget(number)
                kernel.inotify_remove(self._descriptor, number)
        return answer.changes

    def _judge(self, directory: int, one: Watched, answer: "_Answer") -> None:
        """Tell what was changed in a directory since this server has. Raises OSError, and
        StoreError if it is another directory by now."""
        stat = kernel.stat_of(directory)
        if stat.inode != one.inode:
            raise StoreError(Reason.NOT_FOUND)
        waiting, one.waiting = one.waiting, {}
        self._waiting -= len(waiting)
        for name, is_of_names in waiting.items():
            names = (*one.names, name) if name else one.names
            try:
                found = kernel.stat_at(directory, host_path((name,))[0]) if name else stat
            except FileNotFoundError:
                one.is_changed = not self._own.has_removed(names) or one.is_changed
                continue
            if self._own.is_as_left(found):
                continue
            self._own.left_as(found)
            is_told = found.kind in (Kind.FILE, Kind.DIRECTORY) and answer.add(names, found)
            one.is_changed = one.is_changed or is_of_names or not is_told
        if one.is_changed and one.files is None:
            one.is_changed = not answer.add(one.names, stat, is_directory=True)
        else:
            one.is_changed = False

    def is_touch(self, stat: Stat, written: int) -> bool:
        """Whether to set this time of writing (as the protocol has it) is what the agent does with
        a file that it was told of."""
        key = (stat.device, stat.inode)
        return any(told.get(key) == written for told in self._told)

    def was_told(self, names: Names) -> bool:
        return any(names in told for told in self._names)


class _Answer:
    """Changes as they are told."""

    def __init__(self, most: int, times: dict[tuple[int, int], int], told: set[Names]) -> None:
        self._left = most
        self._times = times
        self._told = told
        self.changes: list[bytes] = []
        self.is_full = False

    def add(self, names: Names, stat: Stat, *, is_directory: bool = False) -> bool:
        """Whether it was told, or need not be."""
        path = guest_path(names)
        if path is None:
            return is_directory  # the guest has another name for it
        if len(self._told) >= MOST_TOLD and not is_directory:
            return False
        size = _CHANGE.size + len(path)
        if size > self._left:
            self.is_full = True
            return False
        if names not in self._told:
            self._left -= size
            written = filetime(stat.written_ns)
            self._told.add(names)
            self._times[stat.device, stat.inode] = written
            self.changes.append(_CHANGE.pack(written, len(path)) + path)
        return True


def guest_path(names: Names) -> bytes | None:
    """A path as Linux's client shows it; None if that has other characters than the host's."""
    path = "/".join(names)
    if any("\uf000" <= char <= "\uf0ff" or "\udc80" <= char <= "\udcff" for char in path):
        return None
    encoded = path.encode()
    return encoded if len(encoded) < 1 << 12 else None


def find(store: "Store", inodes: set[int]) -> dict[int, tuple[Names, bool]]:
    """Where files are that are known by their inodes, in the file system of the root, and whether
    they are directories. Raises StoreError if the share is gone."""
    missing = set(inodes)
    found: dict[int, tuple[Names, bool]] = {}
    root = store.look(())
    if root.inode in missing:
        missing.discard(root.inode)
        found[root.inode] = (), True
    # By where the directory above it is in the list: whole paths may be long.
    above: list[tuple[int, str]] = [(-1, "")]
    waiting = deque((0,))
    left = MOST_NAMES

    def names_of(at: int) -> Names:
        names: list[str] = []
        while at > 0:
            at, name = above[at]
            names.append(name)
        return tuple(reversed(names))

    def scan(descriptor: int) -> None:
        nonlocal left
        if kernel.stat_of(descriptor).device != root.device:
            return
        flags = os.O_RDONLY | kernel.O_DIRECTORY | kernel.O_ALWAYS
        directory = os.open(b".", flags, dir_fd=descriptor)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or not missing:
                        return
                    name = from_host(os.fsencode(entry.name))
                    is_directory = entry.is_dir(follow_symlinks=False)
                    if entry.inode() in missing:
                        missing.discard(entry.inode())
                        found[entry.inode()] = (*names, name), is_directory
                    is_near = len(names) < MOST_DEPTH and len(above) < MOST_DIRECTORIES
                    if is_directory and is_near:
                        above.append((at, name))
                        waiting.append(len(above) - 1)
        finally:
            os.close(directory)

    while waiting and missing and left > 0:
        at = waiting.popleft()
        names = names_of(at)
        try:
            store.with_directory(names, scan)
        except StoreError as error:
            if error.reason is Reason.GONE:
                raise
    return found
