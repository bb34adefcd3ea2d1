"""Reports changes by the host in directories that programs of the guest watch (inotify(7)).

Linux's client raises no events for changes of the host. So the guest's agent finds the watches and
asks for changes with a control code of our own. For each changed file it then sets the time of
writing to its present value. That raises an event in the guest and changes nothing here
(`is_touch`).

A question carries a number that stands for a set of watched inodes. The agent lists the inodes only
if the server does not know the number. The server finds them below the root and watches them.
Events stay in the kernel until the next question. The number also tells since when the watches may
have existed, and changes since then are reported first (`since_of`).
"""

import os
import struct
import time

from quicksand_smb import kernel
from quicksand_smb.host_search import Lately, find
from quicksand_smb.ledger import Ledger
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Callable, Final, start_thread
from quicksand_smb.names import Names, from_host, host_path
from quicksand_smb.own_changes import OwnChanges
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind, Stat
from quicksand_smb.wire import filetime

if TYPE_CHECKING:
    from quicksand_smb.directory_numbers import DirectoryNumbers
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
"""The most watched files and directories of a share. Watches are shared by all programs of the
host's user (fs.inotify.max_user_watches, 8192 on a small machine)."""
MOST_WAITING: Final = 2048
"""The most changed names that are kept for the next question. Beyond it only the directories
are."""
MOST_TOLD: Final = 256
"""The most files in one answer. Beyond it only their directories are named."""
COST: Final = 8 << 20
"""The most bytes of memory that all of this takes, from the ledger."""
_REST: Final = 20
"""Searches use at most this fraction of a processor's time."""
_LONGEST_PAUSE_S: Final = 300.0
"""The longest pause between searches. A missing file may have been removed on the host without the
guest's knowledge."""

_SLACK_NS: Final = 200_000_000
"""The agent rounds the time, and the question takes a moment."""
_QUESTION: Final = struct.Struct("<QII")
_ANSWER: Final = struct.Struct("<II")
_CHANGE: Final = struct.Struct("<QH")
_EVENT: Final = struct.Struct("=iIII")
_BUFFER: Final = 64 << 10


class WatchedDirectory:
    """A watched directory of the host."""

    __slots__ = ("files", "inode", "is_changed", "names", "waiting")

    def __init__(self, names: Names, inode: int, files: set[str] | None) -> None:
        self.names = names
        self.inode = inode
        self.files = files
        """The watched files in it. None means the whole directory."""
        self.waiting: dict[str, bool] = {}
        """Changed names, and whether a name came or went."""
        self.is_changed = False
        """The next answer must name the directory itself."""


class HostChanges:
    """The host's changes in one share. All but the search for files runs under the server's
    lock."""

    def __init__(
        self,
        store: "Store",
        numbers: "DirectoryNumbers",
        ledger: Ledger,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        """`run` calls a function under the lock. Raises Refusal."""
        self._store = store
        self._numbers = numbers
        self._run = run
        self._ledger = ledger
        ledger.take(COST)
        try:
            self._descriptor = kernel.inotify()
        except OSError:
            ledger.give_back(COST)
            raise Refusal(Status.NOT_SUPPORTED) from None
        self._number = 0
        self._begun: dict[int, None] = {}
        """The inodes that the agent has listed so far for this number."""
        self._since: dict[int, int] = {}
        """The new inodes. For each, the changes since this time, in nanoseconds since 1970, must
        still be reported."""
        self._inodes: dict[int, tuple[Names, bool] | None] = {}
        """The wanted inodes. Each has the names of its path, and whether it is a directory; None if
        it was not found."""
        self._is_whole = False
        self._watched: dict[int, WatchedDirectory] = {}
        self._waiting = 0
        self._told: list[dict[tuple[int, int], int]] = [{}, {}]
        """The times of writing in the last answer, and in the one before."""
        self._names: list[set[Names]] = [set(), set()]
        self._is_searching = False
        self._search_s = 0.0
        """The time of the next search."""
        self._is_looking_back = False
        self._look_back_s = 0.0
        self._pause_s = 1.0
        self._lost: set[Names] = set()
        """Directories that were moved or removed."""
        self._own_changes = store.own_changes or OwnChanges()
        self._own_changes.begin()
        store.own_changes = self._own_changes

    def end(self) -> None:
        """Stop watching. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._own_changes.end()
            self._ledger.give_back(COST)

    def ask(self, question: memoryview, most: int) -> bytes:
        """Answer the agent with at most `most` bytes. Raises Refusal."""
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
                known, inode_of = self._inodes, self._numbers.inode
                self._inodes = {inode: known.get(inode) for inode in map(inode_of, self._begun)}
                since = since_of(number)
                self._since = {
                    inode: self._since.get(inode, since)
                    for inode in self._inodes
                    if since and (inode in self._since or inode not in known)
                }
                self._pause_s = 1.0
                self._watch()
        if number != self._number or not self._is_whole:
            return _ANSWER.pack(0, 0)
        self._look_back()
        self._hear()
        changes = self._tell(most - _ANSWER.size)
        self._search()
        return _ANSWER.pack(1, len(changes)) + b"".join(changes)

    # What is watched

    def _search(self) -> None:
        """Search for missing files, if the last search is long enough ago."""
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
        """Watch the files that are wanted and found, and no others."""
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
            self._watched[number] = WatchedDirectory(names, stat.inode, files)

    def _look_back(self) -> None:
        """Find in a thread the changes to new inodes since their time."""
        if not self._since or self._is_looking_back or time.monotonic() < self._look_back_s:
            return
        wanted = []
        for inode, since in list(self._since.items()):
            if where := self._inodes.get(inode):
                wanted.append((*where, since))
                del self._since[inode]
        if not wanted:
            return
        self._is_looking_back = True

        def work() -> None:
            began = time.monotonic()
            lately = Lately(self._store)
            for names, is_directory, since in wanted:
                lately.look(names, since, is_directory=is_directory)
            rests_until = time.monotonic() + (time.monotonic() - began) * _REST
            self._run(lambda: self._has_changed(lately.found, rests_until))

        start_thread(work)

    def _has_changed(self, found: dict[Names, set[str]], rests_until: float) -> None:
        self._is_looking_back = False
        self._look_back_s = rests_until
        for one in self._watched.values():
            for name in found.get(one.names, ()):
                self._wait_with(one, name)

    def _add(self, descriptor: int) -> tuple[int, Stat]:
        path = kernel.own_path(descriptor)
        return kernel.inotify_add(self._descriptor, path, _WANTED), kernel.stat_of(descriptor)

    def _drop(self, number: int) -> WatchedDirectory | None:
        one = self._watched.pop(number, None)
        if one is not None:
            self._waiting -= len(one.waiting)
        return one

    def _forget(self, number: int) -> None:
        """Drop a directory that was moved or removed."""
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
        self._wait_with(one, file, is_of_names=bool(mask & _OF_NAMES))

    def _wait_with(self, one: WatchedDirectory, file: str, *, is_of_names: bool = False) -> None:
        """Keep a changed name for the next answer."""
        if one.files is not None and file not in one.files:
            return
        if file not in one.waiting:
            if self._waiting >= MOST_WAITING:
                one.is_changed = True
                return
            self._waiting += 1
        one.waiting[file] = one.waiting.get(file, False) or is_of_names

    def _tell(self, most: int) -> list[bytes]:
        """Return the changes that fit. The others wait for the next answer."""
        self._told = [{}, self._told[0]]
        self._names = [set(), self._names[0]]
        answer = _Answer(most, self._told[0], self._names[0])
        for number, one in list(self._watched.items()):
            if not one.waiting and not one.is_changed:
                continue
            if answer.is_full:
                break

            def judge(descriptor: int, one: WatchedDirectory = one) -> None:
                self._judge(descriptor, one, answer)

            try:
                self._store.with_directory(one.names, judge)
            except StoreError:
                self._forget(number)
                kernel.inotify_remove(self._descriptor, number)
        return answer.changes

    def _judge(self, directory: int, one: WatchedDirectory, answer: "_Answer") -> None:
        """Report the changes in a directory that this server has not made itself. Raises OSError,
        and StoreError if another directory has taken its place."""
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
                one.is_changed = not self._own_changes.has_removed(names) or one.is_changed
                continue
            if self._own_changes.is_as_recorded(found):
                continue
            self._own_changes.record_stat(found)
            is_told = found.kind in (FileKind.FILE, FileKind.DIRECTORY) and answer.add(names, found)
            one.is_changed = one.is_changed or is_of_names or not is_told
        if one.is_changed and one.files is None:
            one.is_changed = not answer.add(one.names, stat, is_directory=True)
        else:
            one.is_changed = False

    def is_touch(self, stat: Stat, written: int) -> bool:
        """Tell whether setting this time of writing (a FILETIME) is how the agent raises an event
        for a file that it was told of."""
        key = (stat.device, stat.inode)
        return any(told.get(key) == written for told in self._told)

    def was_told(self, names: Names) -> bool:
        return any(names in told for told in self._names)


class _Answer:
    """The changes of one answer."""

    def __init__(self, most: int, times: dict[tuple[int, int], int], told: set[Names]) -> None:
        self._left = most
        self._times = times
        self._told = told
        self.changes: list[bytes] = []
        self.is_full = False

    def add(self, names: Names, stat: Stat, *, is_directory: bool = False) -> bool:
        """Add a change. Returns False if it does not fit."""
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
    """Return a path as Linux's client shows it, or None if the client shows other characters."""
    path = "/".join(names)
    if any("\uf000" <= char <= "\uf0ff" or "\udc80" <= char <= "\udcff" for char in path):
        return None
    encoded = path.encode()
    return encoded if len(encoded) < 1 << 12 else None


def since_of(number: int) -> int:
    """Return the time since when the watches of a new set may have existed, in nanoseconds since
    1970. An even number has it in its bits 1 to 8, in tenths of a second. Older agents have odd
    numbers, which lack it: 0."""
    return 0 if number & 1 else time.time_ns() - (number >> 1 & 0xFF) * 100_000_000 - _SLACK_NS
