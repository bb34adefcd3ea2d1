"""What a hostile guest tries with names and files, one function for each line of the list.

Each gets a `Target` and raises `Breach` if the attack succeeds; so it runs against the store and,
to prove that it is an attack, against `naive`. As a program it runs all of them against the store
as an ordinary user: ``python -m tests.unit.smb.attacks DIRECTORY UID``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from quicksand_smb import walk
from quicksand_smb.names import from_wire
from quicksand_smb.store import (
    Disposition,
    FileKind,
    Limits,
    OpenOptions,
    Reason,
    Store,
    StoreError,
)

from tests.unit.smb.naive import NaiveStore

SECRET = b"secret of the host"
READ = OpenOptions(read=True)
WRITE = OpenOptions(read=True, write=True)
MAKE = OpenOptions(read=True, write=True, disposition=Disposition.OPEN_IF)


class Breach(Exception):
    """The attack has succeeded."""


class Target:
    """A share with a secret beside it; `make` makes a store, the real or the naive one."""

    def __init__(self, place: Path, make: Callable[..., Any], *, naive: bool) -> None:
        self.share = place / "share"
        self.outside = place / "outside"
        for directory in (self.share, self.outside, self.share / "dir"):
            directory.mkdir()
        (self.outside / "secret").write_bytes(SECRET)
        (self.share / "file").write_bytes(b"data")
        self.naive = naive
        self._make = make
        self._made: list[Any] = []
        self.store = self.make()

    def make(self, root: str = "", **options: Any) -> Any:
        self._made.append(self._make(root or str(self.share), **{"read_only": False} | options))
        return self._made[-1]

    def close(self) -> None:
        for store in self._made:
            store.close()

    def names(self, text: str) -> tuple[str, ...]:
        return (text.replace("\\", "/"),) if self.naive else from_wire(text)

    def read(self, text: str, store: Any = None) -> bytes:
        """What the guest gets, b"" if it is refused."""
        with refused():
            node, _ = (store or self.store).open(self.names(text), READ)
            try:
                buffer = bytearray(64)
                return bytes(buffer[: node.read_into(memoryview(buffer), 0)])
            finally:
                node.close()
        return b""

    def write(self, text: str, data: bytes = b"planted", wish: OpenOptions = MAKE) -> bool:
        with refused():
            node, _ = self.store.open(self.names(text), wish)
            try:
                return bool(node.write(memoryview(data), 0) == len(data))
            finally:
                node.close()
        return False

    def untouched(self) -> None:
        """Nothing beside the share was made, changed or removed."""
        breach_if(os.listdir(self.outside) != ["secret"], "names outside")
        breach_if((self.outside / "secret").read_bytes() != SECRET, "data outside")
        breach_if((self.outside / "secret").stat().st_nlink != 1, "links to the outside")


def breach_if(condition: object, what: str) -> None:
    if condition:
        raise Breach(what)


@contextlib.contextmanager
def refused(*reasons: Reason) -> Iterator[None]:
    """The store's own refusal is right, for one of the reasons if any are given; so is, for the
    naive one, the kernel's."""
    try:
        yield
    except StoreError as error:
        breach_if(reasons and error.reason not in reasons, f"refused as {error.reason}")
    except OSError:
        return


@contextlib.contextmanager
def must_refuse(*reasons: Reason) -> Iterator[None]:
    with refused(*reasons):
        yield
        raise Breach("not refused")


def must_refuse_all(changes: Iterable[Callable[[], object]], *reasons: Reason) -> None:
    for change in changes:
        with must_refuse(*reasons):
            change()


@contextlib.contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """What waits for ever is a breach: one thread fewer, until none is left."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise Breach("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds)  # of pytest's own limit
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, before)


def tree(root: Path) -> list[object]:
    """All that a guest could change below a directory, access times apart."""
    found: list[object] = []
    for directory, names, files in os.walk(root):
        for name in sorted([*names, *files, "."]):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            kind = (status.st_mode, status.st_ino, status.st_nlink, status.st_mtime_ns)
            data = Path(path).read_bytes() if os.path.isfile(path) else b""
            found.append((path, kind, data, os.listxattr(path, follow_symlinks=False)))
    return found


def attack_01_paths_that_leave_the_share(t: Target) -> None:
    for text in (
        "..\\outside\\secret", "dir\\..\\..\\outside\\secret", str(t.outside / "secret"),
        "\\..\\outside\\secret", "../outside/secret", "dir\\../../outside/secret",
        "\\\\?\\..\\outside\\secret", "C:\\..\\outside\\secret",
    ):  # fmt: skip
        breach_if(t.read(text) == SECRET, text)
        t.write(text)
    t.untouched()


def attack_02_renames_and_links_that_leave_the_share(t: Target) -> None:
    for text in ("..\\outside\\planted", str(t.outside / "planted"), "dir\\..\\..\\outside\\x"):
        for change in (t.store.link, t.store.rename):
            with refused():
                change(t.names("file"), t.names(text), replace=True)
        with refused():
            t.store.rename(t.names("..\\outside\\secret"), t.names("mine"), replace=True)
    t.untouched()


def attack_03_symlinks_planted(t: Target) -> None:
    t.store.symlink(str(t.outside / "secret"), t.names("absolute"))
    t.store.symlink("../outside/secret", t.names("relative"))
    t.store.symlink("../outside", t.names("door"))
    for text in ("absolute", "relative", "door\\secret"):
        breach_if(t.read(text) == SECRET, text)
        t.write(text)
        t.write(text, wish=OpenOptions(write=True, disposition=Disposition.OVERWRITE_IF))
        with refused():
            node, _ = t.store.open(t.names(text), OpenOptions())
            node.set_mode(0o666)
            node.set_times(written_ns=0)
        breach_if((t.outside / "secret").stat().st_mtime_ns == 0, "times outside")
    for text in ("door\\new", "door\\secret"):
        with refused():
            t.store.rename(t.names("file"), t.names(text), replace=True)
        with refused():
            t.store.remove(t.names(text), directory=False)
        with refused():
            t.store.open(
                t.names("door\\dir"), OpenOptions(directory=True, disposition=Disposition.CREATE)
            )
    t.untouched()


def attack_05_symlinks_on_the_way(t: Target) -> None:
    os.symlink("dir", t.share / "way")
    os.symlink("loop", t.share / "loop")
    (t.share / "dir" / "inner").write_bytes(b"inner")
    with must_refuse(Reason.LOOP):
        t.store.open(t.names("way\\inner"), READ)[0].close()
    with must_refuse(Reason.LOOP):
        t.store.look(t.names("loop\\inner"))
    with must_refuse(Reason.BAD_NAME):
        t.store.look(t.names("\\".join(["d"] * 4096)))


def attack_06_a_name_that_begins_like_the_share(t: Target) -> None:
    twin = t.share.with_name("share2")
    twin.mkdir()
    (twin / "secret").write_bytes(SECRET)
    store = t.make(checked=True) if t.naive else t.store
    breach_if(t.read("..\\share2\\secret", store) == SECRET, "the twin was read")


def attack_07_fifos_sockets_and_devices(t: Target) -> None:
    os.mkfifo(t.share / "fifo")
    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(t.share):
        listening.bind("socket")
    names = ["fifo", "socket"]
    if os.getuid() == 0:
        os.mknod(t.share / "zero", 0o020666, os.makedev(1, 5))
        names.append("zero")
    with in_time(0.5 if t.naive else 60):
        for name in names:
            for wish in (OpenOptions(), READ, WRITE, OpenOptions(append=True)):
                with refused():
                    node, _ = t.store.open(t.names(name), wish)
                    node.stat()
                    breach_if(name == "fifo" and has_reader(t.share / name), "a reader for a host")
                    with must_refuse(Reason.DENIED):
                        node.read_into(memoryview(bytearray(8)), 0)
                    node.close()
            with refused(Reason.DENIED, Reason.UNSUPPORTED):
                t.store.open(t.names(name), OpenOptions(disposition=Disposition.OVERWRITE))
            t.store.rename(t.names(name), t.names("moved"), replace=False)
            t.store.remove(t.names("moved"), directory=False)
        with must_refuse(Reason.DENIED):
            t.store.make_node(t.names("device"), FileKind.DEVICE, 0o666)


def has_reader(fifo: Path) -> bool:
    """Whether a program of the host that writes there would now go on (fifo(7))."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


def attack_08_magic_links(t: Target) -> None:
    store = t.make("/proc/self")
    with open("/etc/passwd", "rb") as passwd:
        for text in ("root\\etc\\passwd", "cwd\\..", f"fd\\{passwd.fileno()}"):
            breach_if(t.read(text, store), text)
            with refused():
                breach_if(store.look(t.names(text)).kind is not FileKind.SYMLINK, text)


def attack_09_read_only_overwritten(t: Target) -> None:
    store = t.make(read_only=True)
    for disposition in (
        Disposition.OVERWRITE, Disposition.OVERWRITE_IF, Disposition.SUPERSEDE,
    ):  # fmt: skip
        with refused(Reason.READ_ONLY):
            store.open(t.names("file"), OpenOptions(read=True, disposition=disposition))
    breach_if((t.share / "file").read_bytes() != b"data", "emptied")


def attack_10_read_only_created(t: Target) -> None:
    store = t.make(read_only=True)
    for disposition in (
        Disposition.CREATE, Disposition.OPEN_IF, Disposition.OVERWRITE_IF, Disposition.SUPERSEDE,
    ):  # fmt: skip
        for directory in (False, True):
            with refused(Reason.READ_ONLY):
                store.open(t.names("n"), OpenOptions(disposition=disposition, directory=directory))
    breach_if((t.share / "n").exists(), "made")


def changes_by_name(t: Target, store: Any) -> list[Callable[[], object]]:
    old, new = t.names("file"), t.names("new")
    return [
        lambda: store.remove(old, directory=False),
        lambda: store.remove(t.names("dir"), directory=True),
        lambda: store.rename(old, new, replace=True),
        lambda: store.link(old, new, replace=False),
        lambda: store.symlink("x", new),
        lambda: store.make_node(new, FileKind.FIFO, 0o600),
        lambda: store.open(old, OpenOptions(write=True)),
        lambda: store.open(old, OpenOptions(append=True)),
    ]


def changes_by_node(node: Any) -> list[Callable[[], object]]:
    return [
        lambda: node.write(memoryview(b"x"), 0),
        lambda: node.resize(1),
        lambda: node.set_times(written_ns=1),
        lambda: node.set_mode(0o700),
        lambda: node.allocate(0, 1 << 16),
        lambda: node.punch(0, 2),
        lambda: node.copy_from(node, 0, 2, 2),
        lambda: node.clone_from(node, 0, 2, 2),
        lambda: node.set_attribute("a", b"b"),
        lambda: node.remove_attribute("a"),
    ]


def attack_11_read_only_changed_in_every_way(t: Target) -> None:
    before = tree(t.share)
    store = t.make(read_only=True)
    node, _ = store.open(t.names("file"), READ)
    for change in [*changes_by_name(t, store), *changes_by_node(node)]:
        with refused(Reason.READ_ONLY):
            change()
        breach_if(tree(t.share) != before, "changed")


def attack_24_sizes(t: Target) -> None:
    node, _ = t.store.open(t.names("file"), WRITE)
    for size in (1 << 43, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 80):
        with must_refuse(Reason.TOO_LARGE):
            node.resize(size)
        with must_refuse(Reason.TOO_LARGE):
            node.write(memoryview(b"x"), size)
        with must_refuse(Reason.TOO_LARGE):
            node.allocate(size, 1)
    must_refuse_all(
        [
            lambda: node.resize(-1),
            lambda: node.write(memoryview(b"x"), -1),
            lambda: node.punch(-1, 5),
            lambda: node.punch(1, 1 << 63),
        ],
        Reason.INVALID,
    )
    breach_if((t.share / "file").stat().st_size > 100, "grown")


def nearly_full(**changed: int) -> Any:
    """The disk as the server sees it: 100 GB, with less free than belongs to the host."""
    fields = {"f_bavail": 20 << 10, "f_favail": 1 << 20} | changed
    found = mock.Mock(f_frsize=4096, f_blocks=25 << 20, f_bfree=1 << 20, f_files=1 << 24, **fields)
    return mock.patch("os.fstatvfs", lambda _fd: found)


def attack_25_filling_the_disk(t: Target) -> None:
    store = t.make(limits=Limits(nodes=20))
    node, _ = store.open(t.names("file"), WRITE)
    with nearly_full():
        must_refuse_all(
            [
                lambda: node.write(memoryview(b"x" * 10000), 0),
                lambda: node.allocate(0, 1 << 20),
                lambda: node.set_attribute("a", b"x"),
                lambda: store.symlink("x", t.names("link")),
                lambda: store.open(t.names("more"), MAKE),
            ],
            Reason.NO_SPACE,
        )
        store.remove(t.names("file"), directory=False)
    with nearly_full(f_bavail=25 << 20, f_favail=5), must_refuse(Reason.NO_SPACE):
        store.open(t.names("more"), MAKE)
    with must_refuse(Reason.TOO_MANY):
        for _ in range(30):
            store.open((), OpenOptions())


def attack_26_names_that_are_none(t: Target) -> None:
    for text in (
        "file:stream", "a\0b", "file::$DATA", "a:b:$INDEX", "\ud800", "\udc2e\udc2e", "\uf029",
        "x" * 256, "\x1b[2J", "a*", "..",
    ):  # fmt: skip
        with must_refuse(Reason.BAD_NAME):
            t.store.open(t.names(text), MAKE)
    # One file of the host has one name: what looks like another one's escape is refused or its own.
    for text in ("a\uf022b", "CON", "NUL", "tail.", "\u202egnp.exe"):
        t.write(text)
        breach_if(t.read(text) != b"planted", repr(text))


def attack_27_names_that_a_host_takes_for_another(t: Target) -> None:
    store = t.make(protected=(".git",))
    for text in (".GIT", ".Git"):
        with must_refuse(Reason.READ_ONLY):
            store.open(t.names(text), OpenOptions(directory=True, disposition=Disposition.CREATE))
        with must_refuse(Reason.READ_ONLY):
            store.rename(t.names("dir"), t.names(text), replace=False)


def attack_28_what_the_host_runs_later(t: Target) -> None:
    (t.share / ".git").mkdir()
    (t.share / ".git" / "config").write_bytes(b"mine")
    store = t.make(protected=(".git", ".envrc"))
    must_refuse_all(
        [
            lambda: store.open(t.names(".git\\hooks\\x"), MAKE),
            lambda: store.open(t.names(".git\\config"), WRITE),
            lambda: store.open(t.names("dir\\.envrc"), MAKE),
            lambda: store.rename(t.names("file"), t.names(".envrc"), replace=True),
            lambda: store.rename(t.names(".git"), t.names("git"), replace=True),
            lambda: store.link(t.names(".git\\config"), t.names("x"), replace=True),
            lambda: store.open(t.names(".git\\config"), OpenOptions())[0].set_mode(0o777),
        ],
        Reason.READ_ONLY,
        Reason.NO_PATH,
    )
    wish = OpenOptions(write=True, disposition=Disposition.CREATE, mode=0o6755)
    t.store.open(t.names("program"), wish)[0].set_mode(0o6755)
    breach_if((t.share / "program").stat().st_mode & 0o6000, "set-id bits")
    os.chmod(t.share / "file", 0o4755)
    t.write("file", b"evil", WRITE)
    breach_if((t.share / "file").stat().st_mode & 0o4000, "another program, with rights")


def attack_29_hard_links_to_what_is_not_shared(t: Target) -> None:
    os.symlink(t.outside, t.share / "door")
    os.symlink(t.outside / "secret", t.share / "key")
    for text in ("..\\outside\\secret", "door\\secret", "key", str(t.outside / "secret")):
        with refused():
            t.store.link(t.names(text), t.names("mine"), replace=True)
        t.write("mine", wish=WRITE)
    t.untouched()


def attack_30_renames_below_open_files(t: Target) -> None:
    node, _ = t.store.open(t.names("file"), READ)
    t.store.rename(t.names("file"), t.names("dir\\moved"), replace=False)
    t.write("file", b"another")
    with must_refuse(Reason.NOT_FOUND):
        t.store.remove(t.names("file"), directory=False, same_as=node.stat())
    for change in (t.store.rename, t.store.link):
        with must_refuse(Reason.NOT_FOUND):
            change(t.names("file"), t.names("x"), replace=True, same_as=node.stat())
    t.store.rename(t.names("dir"), t.names("other"), replace=False)
    breach_if(t.store.where(node) != t.names("other\\moved"), "lost")
    with must_refuse(Reason.INVALID):
        t.store.rename(t.names("other"), t.names("other\\below"), replace=True)
    with must_refuse(Reason.IS_DIRECTORY):
        t.store.rename(t.names("file"), t.names("other"), replace=True)
    t.store.rename(t.names("file"), t.names("other\\moved"), replace=True)
    buffer = bytearray(10)
    breach_if(node.read_into(memoryview(buffer), 0) != 4, "the open file is gone")
    breach_if(t.store.where(node) is not None, "found though it was replaced")


def attack_31_what_the_disk_of_the_host_has(t: Target) -> None:
    def free() -> int:
        found = os.statvfs(t.share)
        return found.f_bavail * found.f_frsize

    before = free()
    available = t.store.space().available
    most = max(before, free())  # others write and remove
    breach_if(available > max(0, most - (200 << 20)), "all is told")


def attack_36_attributes_that_mean_something_to_the_host(t: Target) -> None:
    node, _ = t.store.open(t.names("file"), OpenOptions())
    for name in ("security.capability", "trusted.x", "system.posix_acl_access"):
        with refused():
            node.set_attribute(name, b"x")
    breach_if(any(not n.startswith("user.") for n in os.listxattr(t.share / "file")), "not users'")
    with must_refuse(Reason.BAD_NAME):
        node.set_attribute("DosAttrib", b"x")
    with must_refuse(Reason.TOO_LARGE):
        node.set_attribute("big", bytes(1 << 17))
    with must_refuse(Reason.BAD_NAME):
        node.set_attribute("x" * 300, b"x")
    with must_refuse(Reason.TOO_MANY, Reason.NO_SPACE):
        for index in range(1000):
            node.set_attribute(f"n{index}", b"")


def attack_37_times_out_of_range(t: Target) -> None:
    node, _ = t.store.open(t.names("file"), OpenOptions())
    for time_ns in (1 << 63, 1 << 80, 1 << 100, -(1 << 63), -(1 << 90), -1, 0):
        try:
            node.set_times(written_ns=time_ns, accessed_ns=time_ns)
            node.stat()
        except (OverflowError, ValueError) as error:
            raise Breach(str(error)) from error


ATTACKS = {name[7:]: value for name, value in globals().items() if name.startswith("attack_")}


def run(name: str, place: Path, make: Callable[..., Any], *, naive: bool) -> None:
    target = Target(place, make, naive=naive)
    try:
        ATTACKS[name](target)
    except (StoreError, OSError, ValueError) as error:
        raise Breach(f"broke: {error!r}") from error
    finally:
        target.close()


def naive_store(root: str, **options: Any) -> NaiveStore:
    return NaiveStore(root, **options)


def all_as(place: Path, user: int) -> int:
    """Run every attack on the store as this user; returns how many succeeded."""
    if user != os.getuid():
        os.chown(place, user, user)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    bad = 0
    for way in (walk.by_kernel, walk.by_steps):
        for name in ATTACKS:
            here = place / f"{name}-{way.__name__}"
            here.mkdir()
            try:
                run(name, here, lambda *a, way=way, **k: Store(*a, walk=way, **k), naive=False)
            except Breach:
                bad += 1
                traceback.print_exc()
            finally:
                shutil.rmtree(here)
    return bad


if __name__ == "__main__":
    sys.exit(all_as(Path(sys.argv[1]), int(sys.argv[2])))
