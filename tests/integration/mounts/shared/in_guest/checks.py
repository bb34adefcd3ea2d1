"""What programs expect of a file system, run in the guest in an empty directory: `checks.py NAME`.

`checks.py all` runs those that need nothing told, each in a directory and a process of its own.

Nothing but the standard library is at hand there.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@contextlib.contextmanager
def refused(code: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        assert error.errno == code, f"{error!r} is not {errno.errorcode[code]}"
    else:
        raise AssertionError(f"it was not refused ({errno.errorcode[code]})")


def modes() -> None:
    for umask, wanted in ((0o022, 0o644), (0o077, 0o600), (0, 0o666)):
        os.umask(umask)
        name = f"file-{umask:o}"
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o666))
        assert mode_of(name) == wanted, oct(mode_of(name))
        os.mkdir(f"dir-{umask:o}")
        assert mode_of(f"dir-{umask:o}") == 0o777 & ~umask, oct(mode_of(f"dir-{umask:o}"))
        os.mkfifo(f"fifo-{umask:o}")
        assert mode_of(f"fifo-{umask:o}") == 0o644, oct(mode_of(f"fifo-{umask:o}"))
    os.umask(0o022)
    for mode in (0o755, 0o500, 0o444, 0, 0o700):
        os.chmod("file-22", mode)
        assert mode_of("file-22") == mode, oct(mode_of("file-22"))
    file = os.open("open", os.O_CREAT | os.O_RDWR, 0o600)
    os.fchmod(file, 0o751)
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o751
    os.write(file, b"x")
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o751
    os.close(file)
    read_only = os.open("read-only", os.O_CREAT | os.O_WRONLY, 0o400)
    os.write(read_only, b"who creates it may write it")
    os.close(read_only)
    assert mode_of("read-only") == 0o400
    os.chmod("dir-22", 0o1777)
    assert mode_of("dir-22") & 0o777 == 0o777


def programs_run() -> None:
    with open("script", "w") as file:
        file.write("#!/bin/sh\nexit 42\n")
    os.chmod("script", 0o755)
    assert os.waitstatus_to_exitcode(os.system("./script")) == 42


def symlinks() -> None:
    with open("target", "w") as file:
        file.write("x")
    os.mkdir("sub")
    for name, target in (
        ("relative", "target"),
        ("absolute", "/etc/passwd"),
        ("sub/up", "../target"),
        ("broken", "no/such file"),
        ("odd", "a:b|c*? "),
        ("long", "x/" * 500 + "y"),
    ):
        os.symlink(target, name)
        assert os.readlink(name) == target, (name, os.readlink(name))
        assert os.path.islink(name)
    assert Path("relative").read_text() == "x"
    assert Path("sub/up").read_text() == "x"
    assert not os.path.exists("broken")
    with refused(errno.EEXIST):
        os.symlink("other", "relative")
    os.rename("relative", "renamed")
    assert os.readlink("renamed") == "target"
    os.unlink("renamed")
    assert Path("target").read_text() == "x"
    os.symlink("sub", "to-directory")
    assert os.listdir("to-directory") == ["up"]
    with refused(errno.ENOTDIR):
        os.rmdir("to-directory")
    os.unlink("to-directory")
    assert os.listdir("sub") == ["up"]
    os.symlink("loop", "loop")
    with refused(errno.ELOOP):
        os.stat("loop")


def hard_links() -> None:
    with open("one", "w") as file:
        file.write("x")
    os.mkdir("sub")
    os.link("one", "sub/two")
    assert os.stat("one").st_ino == os.stat("sub/two").st_ino
    assert os.stat("one").st_nlink == 2
    with open("sub/two", "a") as file:
        file.write("y")
    assert Path("one").read_text() == "xy"
    with refused(errno.EEXIST):
        os.link("one", "sub/two")
    os.unlink("one")
    assert Path("sub/two").read_text() == "xy"
    assert os.stat("sub/two").st_nlink == 1


def fifos() -> None:
    os.mkfifo("fifo", 0o600)
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)
    child = os.fork()
    if not child:
        with open("fifo", "w") as file:
            file.write("through")
        os._exit(0)
    with open("fifo") as file:
        assert file.read() == "through"
    os.waitpid(child, 0)
    os.rename("fifo", "other")
    os.unlink("other")


def renames() -> None:
    os.makedirs("a/b")
    os.makedirs("c/d")
    with open("a/b/new", "w") as file:
        file.write("new")
    with open("c/d/old", "w") as file:
        file.write("old")
    reader = open("c/d/old")
    os.rename("a/b/new", "c/d/old")
    assert Path("c/d/old").read_text() == "new"
    assert reader.read() == "old", "an open file is the one that was opened"
    reader.close()
    writer = open("a/b/w", "w")
    writer.write("first ")
    writer.flush()
    os.rename("a/b/w", "c/w")
    writer.write("second")
    writer.close()
    assert Path("c/w").read_text() == "first second"
    os.rename("c/d", "a/d")
    assert sorted(os.listdir("a")) == ["b", "d"]
    with refused(errno.ENOTEMPTY):
        os.rename("a/b", "a/d")
    os.rename("a/d", "a/b")
    assert os.listdir("a/b") == ["old"]
    with refused(errno.EINVAL):
        os.rename("a", "a/b/a")
    with refused(errno.ENOENT):
        os.rename("none", "some")
    with refused(errno.ENOTDIR):
        os.rename("a", "c/w")
    with refused(errno.EISDIR):
        os.rename("c/w", "a")
    assert Path("c/w").read_text() == "first second"
    os.rename("c/w", "c/W")
    assert os.listdir("c") == ["W"]


def directories_move_with_open_files() -> None:
    os.makedirs("from/sub")
    with open("from/sub/f", "w+") as file:
        file.write("a")
        file.flush()
        os.rename("from", "to")
        file.write("b")
        file.flush()
        assert Path("to/sub/f").read_text() == "ab"
    assert not os.path.exists("from")


def unlinked_files_live() -> None:
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(file, b"alive")
    os.unlink("f")
    assert os.listdir(".") == []
    assert os.pread(file, 9, 0) == b"alive"
    os.pwrite(file, b"A", 0)
    assert os.pread(file, 9, 0) == b"Alive"
    with open("f", "w") as other:
        other.write("another")
    assert os.pread(file, 9, 0) == b"Alive"
    os.close(file)
    assert Path("f").read_text() == "another"
    os.unlink("f")
    os.mkdir("d")
    inside = open("d/f", "w")
    os.unlink("d/f")
    os.rmdir("d")
    inside.close()


def full_directories_stay() -> None:
    os.makedirs("d/e")
    with refused(errno.ENOTEMPTY):
        os.rmdir("d")
    assert os.listdir("d") == ["e"]
    with refused(errno.EISDIR):
        os.unlink("d")
    with open("f", "w"):
        pass
    with refused(errno.ENOTDIR):
        os.rmdir("f")
    os.rmdir("d/e")
    os.rmdir("d")
    with refused(errno.ENOENT):
        os.rmdir("d")
    with refused(errno.EEXIST):
        os.mkdir("f")
    with refused(errno.EEXIST):
        os.open("f", os.O_CREAT | os.O_EXCL)
    with refused(errno.ENOTDIR):
        os.open("f/g", os.O_CREAT)


def cases() -> None:
    for name in ("Case", "case", "CASE"):
        with open(name, "x") as file:
            file.write(name)
    os.mkdir("cASE")
    for name in ("Case", "case", "CASE"):
        assert Path(name).read_text() == name
    assert sorted(os.listdir(".")) == ["CASE", "Case", "cASE", "case"]
    os.unlink("case")
    assert sorted(os.listdir(".")) == ["CASE", "Case", "cASE"]


def attributes() -> None:
    with open("f", "w"):
        pass
    os.setxattr("f", "user.colour", b"red\0blue")
    os.setxattr("f", "user.empty", b"")
    assert os.getxattr("f", "user.empty") == b""
    assert os.getxattr("f", "user.colour") == b"red\0blue"
    assert sorted(os.listxattr("f")) == ["user.colour", "user.empty"], os.listxattr("f")
    os.setxattr("f", "user.colour", b"x" * 3000)
    assert os.getxattr("f", "user.colour") == b"x" * 3000
    os.removexattr("f", "user.colour")
    with refused(errno.ENODATA):
        os.getxattr("f", "user.colour")
    with contextlib.suppress(OSError):
        os.setxattr("f", "security.capability", b"x" * 20)
    with contextlib.suppress(OSError):
        os.setxattr("f", "trusted.x", b"x")


def sizes_and_holes() -> None:
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(file, b"x" * 10)
    os.truncate("f", 4)
    assert os.fstat(file).st_size == 4
    os.ftruncate(file, 100)
    assert os.pread(file, 200, 0) == b"xxxx" + bytes(96)
    os.ftruncate(file, 0)
    os.ftruncate(file, 4 << 20)
    os.pwrite(file, b"d" * 65536, 1 << 20)
    os.fsync(file)
    assert os.lseek(file, 0, os.SEEK_DATA) == 1 << 20
    assert os.lseek(file, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 65536
    with refused(errno.ENXIO):
        os.lseek(file, 2 << 20, os.SEEK_DATA)
    punch(file, 1 << 20, 32768)
    os.fsync(file)
    assert os.pread(file, 65536, 1 << 20) == bytes(32768) + b"d" * 32768
    assert os.fstat(file).st_size == 4 << 20
    assert os.lseek(file, 0, os.SEEK_DATA) == (1 << 20) + 32768
    os.posix_fallocate(file, 0, 5 << 20)
    assert os.fstat(file).st_size == 5 << 20
    assert os.pread(file, 65536, 1 << 20) == bytes(32768) + b"d" * 32768
    with refused(errno.ENOSPC):
        os.ftruncate(file, (1 << 63) - 1)
    os.close(file)


def punch(file: int, offset: int, length: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(file, 3, offset, length):
        raise OSError(ctypes.get_errno(), "fallocate")


def whole_file_locks() -> None:
    first = os.open("f", os.O_CREAT | os.O_RDWR)
    second = os.open("f", os.O_RDWR)
    fcntl.flock(first, fcntl.LOCK_EX)
    with refused(errno.EAGAIN):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(second, b"locks are advice")
    fcntl.flock(first, fcntl.LOCK_SH)
    fcntl.flock(second, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(first)
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)


def range_locks() -> None:
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(file, b"x" * 100)
    fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
    tried, tries = os.pipe()
    child = os.fork()
    if not child:
        other = os.open("f", os.O_RDWR)
        with refused(errno.EAGAIN):
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 10)
        os.pwrite(other, b"y", 5)
        os.write(tries, b"x")
        signal.alarm(20)
        fcntl.lockf(other, fcntl.LOCK_EX, 5, 5)  # waits
        os._exit(0)
    os.close(tries)
    assert os.read(tried, 1) == b"x"
    time.sleep(0.3)
    fcntl.lockf(file, fcntl.LOCK_UN, 10, 0)
    assert os.waitpid(child, 0)[1] == 0


def shared_memory() -> None:
    size = 1 << 20
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    os.ftruncate(file, size)
    with mmap.mmap(file, size) as memory:
        for at in range(0, size, 4096):
            memory[at : at + 4] = (at // 4096).to_bytes(4, "big")
        memory.flush()
        assert os.pread(file, 4, 4096) == b"\0\0\0\1"
        memory[100:103] = b"end"
    os.close(file)
    with open("f", "rb") as again, mmap.mmap(again.fileno(), 0, prot=mmap.PROT_READ) as memory:
        assert memory[100:103] == b"end"
        assert memory[-4096:-4092] == (255).to_bytes(4, "big")


def appending_together() -> None:
    children = []
    for number in range(4):
        child = os.fork()
        if not child:
            file = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            for line in range(50):
                os.write(file, b"%d %04d\n" % (number, line))
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    lines = Path("log").read_bytes().splitlines()
    assert len(lines) == 200, len(lines)
    for number in range(4):
        mine = [line for line in lines if line.startswith(b"%d " % number)]
        assert mine == [b"%d %04d" % (number, line) for line in range(50)], mine


def times() -> None:
    with open("f", "w"):
        pass
    for stamp in (1_234_567_890_123_456_700, 0, 100, -86_400_000_000_000, 4_102_444_800 * 10**9):
        os.utime("f", ns=(stamp + 100, stamp))
        found = os.stat("f")
        assert (found.st_atime_ns, found.st_mtime_ns) == (stamp + 100, stamp), (stamp, found)
    os.mkdir("d")
    os.utime("d", ns=(10**18, 10**18))
    assert os.stat("d").st_mtime_ns == 10**18
    with open("d/f", "w"):
        pass
    os.stat("d")
    deadline = time.monotonic() + 5
    is_late = False
    while os.stat("d").st_mtime_ns == 10**18:
        assert not is_late, "a new entry changes its directory's time"
        time.sleep(0.1)
        is_late = time.monotonic() > deadline  # then one more look must tell


def many_entries(count: str) -> None:
    names = {f"entry-{number:06}" for number in range(int(count))}
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    assert set(os.listdir(".")) == names
    assert sum(
        1 for entry in os.scandir(".") if entry.is_file() and entry.stat().st_size == 0
    ) == len(names)
    for name in sorted(names)[::2]:
        os.unlink(name)
    assert set(os.listdir(".")) == set(sorted(names)[1::2])


def names() -> None:
    made = set()
    for byte in range(1, 256):
        if byte != ord("/"):
            made.add(b"n" + bytes([byte]) + b"m")
            made.add(bytes([byte]) if byte != ord(".") else b"...")
    made |= {b" lead", b"trail ", b"trail.", b"a:b:$DATA", b"con", b"NUL.txt", b"x" * 255}
    made |= {
        "ünï😀".encode(),
        "\u202eabc".encode(),
        b"a\\b",
        b"..a",
        b"-rf",
        b"\xc3\x28",
        b"\xed\xa0\x80",
    }
    refusals: dict[bytes, int | None] = {}
    for name in sorted(made):
        try:
            with open(name, "xb") as file:
                file.write(b"I am " + name)
        except OSError as error:
            refusals[name] = error.errno
    kept = made - set(refusals)
    assert all(is_text(name) for name in kept), "the client cannot say a byte that is no UTF-8"
    assert not any(is_text(name) for name in refusals), refusals
    listed = set(os.listdir(b"."))
    assert listed == kept, (listed - kept, kept - listed)
    for name in kept:
        assert Path(os.fsdecode(name)).read_bytes() == b"I am " + name, name
    assert set(refusals.values()) == {errno.ENOENT}, refusals


def is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def copies_in_the_host() -> None:
    with open("f", "wb") as file:
        file.write(os.urandom(300_000))
    source, target = os.open("f", os.O_RDONLY), os.open("g", os.O_CREAT | os.O_RDWR)
    copied = 0
    while step := os.copy_file_range(source, target, 1 << 20):
        copied += step
    assert copied == 300_000
    assert Path("f").read_bytes() == Path("g").read_bytes()


def owners_do_not_break_programs() -> None:
    with open("f", "w"):
        pass
    before = os.stat("f")
    assert before.st_uid == 0
    os.chown("f", 1000, 1000)
    os.lchown("f", 0, 0)
    assert os.stat("f").st_mode == before.st_mode


def deep_trees() -> None:
    path = "/".join(["directory"] * 40)
    os.makedirs(path)
    Path(path, "f").write_text("deep")
    assert Path(path, "f").read_text() == "deep"
    with refused(errno.ENAMETOOLONG):
        os.mkdir("x" * 256)


ALL = (
    modes, programs_run, symlinks, hard_links, fifos, renames, directories_move_with_open_files,
    unlinked_files_live, full_directories_stay, cases, attributes, sizes_and_holes,
    whole_file_locks, range_locks, shared_memory, appending_together, times, names,
    copies_in_the_host, owners_do_not_break_programs, deep_trees,
)  # fmt: skip


def try_all() -> None:
    """All are tried; the traceback of each that fails names it."""
    failed = 0
    for check in ALL:
        os.mkdir(check.__name__)
        child = os.fork()
        if not child:
            os.chdir(check.__name__)
            try:
                check()
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        failed += os.waitpid(child, 0)[1] != 0
    sys.exit(f"{failed} of {len(ALL)} checks failed" if failed else 0)


def main() -> None:
    if sys.argv[1:] == ["all"]:
        try_all()
    check: Callable[..., None] = globals()[sys.argv[1]]
    check(*sys.argv[2:])


if __name__ == "__main__":
    main()
