"""A tree with every type of file, and what a tree is: `trees.py make DIRECTORY`, `trees.py tell
DIRECTORY`.

Told is what the file system says, one line of JSON for each name, so that two places can be
compared; `tell` runs in the guest and, imported, on the host. Nothing but the standard library is
at hand there.
"""

import contextlib
import hashlib
import json
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

MODES = (0o644, 0o755, 0o600, 0o444, 0o400, 0o640, 0o777, 0o664, 0o200, 0o000)
TARGETS = {
    "relative": "plain-644",
    "up": "../plain-644",
    "absolute": "/usr/bin/env",
    "absolute-with-slash": "/usr/lib/",
    "two-slashes": "//a",
    "root": "/",
    "dots": "..",
    "broken": "no/such file",
    "odd": 'a:b|c*?<d>"e" ',
    "space-inside": "a /b. /c",
    "dot-at-end": "end.",
    "to-directory": "sub",
    "unicode": "ünï/😀",
    "long": "/" + "x" * 200 + "/" + "y" * 200,
    "control": "a\tb\x01",
}
NAMES = (
    "with space",
    " lead",
    "trail ",
    "trail.",
    "a:b*c?",
    'q"<>|',
    "ünï😀",
    "-rf",
    "x" * 255,
    "a\\b",
)
WHEN = (0, 1, 10**18 + 123_456_700, 4_102_444_800 * 10**9, 1_700_000_000_999_999_900)


def make(root: str) -> None:
    """Every type of file, name, mode, size, time, kind of link and attribute."""
    os.umask(0)
    os.makedirs(root)
    os.chdir(root)
    for mode in MODES:
        Path(f"plain-{mode:o}").write_text(f"{mode:o}\n")
    for size in (0, 1, 4095, 4096, 4097, 70_000, 1_500_001):
        Path(f"size-{size}").write_bytes(os.urandom(size))
    with open("holes", "wb") as file:
        file.truncate(3 << 20)
        os.pwrite(file.fileno(), b"amid", 1 << 20)
    for mode in (0o755, 0o700, 0o777):
        os.mkdir(f"dir-{mode:o}")
    for name in NAMES:
        Path(name).write_text(name)
        os.mkdir(f"{name[:200]}.d")
        Path(f"{name[:200]}.d", name).write_text(name)
    os.mkdir("sub")
    for name, target in TARGETS.items():
        os.symlink(target, name)
        os.symlink(target, f"sub/{name}")
    Path("linked").write_text("one file")
    for name in ("linked-too", "sub/linked-as-well"):
        os.link("linked", name)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    os.setxattr("plain-644", "user.colour", b"red\0blue")
    os.setxattr("sub", "user.of-directory", b"x" * 300)
    for number, name in enumerate(sorted(os.listdir("."))):
        when = WHEN[number % len(WHEN)]
        if not stat.S_ISDIR(os.lstat(name).st_mode):
            os.utime(name, ns=(when, when), follow_symlinks=False)
    for mode in MODES:
        os.chmod(f"plain-{mode:o}", mode)
    for mode in (0o755, 0o700, 0o777):
        os.chmod(f"dir-{mode:o}", mode)
        os.utime(f"dir-{mode:o}", ns=(10**18, 10**18))
    os.chmod("pipe", 0o644)
    os.chmod("socket", 0o644)


def tell(root: str) -> list[dict[str, Any]]:
    """One record for each name below `root`, in their order. Names of one file have one number.

    All are looked at before one is opened: of a file that it opens Linux's client believes for a
    second that it has one name.
    """
    found = []
    numbers: dict[tuple[int, int], int] = {}
    for directory, directories, files in os.walk(os.fsencode(root)):
        for name in directories + files:
            path = os.path.join(directory, name)
            found.append((os.path.relpath(path, os.fsencode(root)), path, os.lstat(path)))
    return [_tell(name, path, now, numbers) for name, path, now in sorted(found)]


def _tell(
    name: bytes, path: bytes, now: os.stat_result, numbers: dict[tuple[int, int], int]
) -> dict[str, Any]:
    kind = stat.S_IFMT(now.st_mode)
    record: dict[str, Any] = {
        "name": name.decode("utf-8", "surrogateescape"),
        "kind": stat.filemode(kind)[0],
        "mode": f"{stat.S_IMODE(now.st_mode):o}",
    }
    if kind == stat.S_IFLNK:
        target = os.readlink(path)
        record |= {"target": target.decode("utf-8", "surrogateescape"), "size": now.st_size}
    if kind == stat.S_IFREG:
        record |= {"size": now.st_size, "links": now.st_nlink}
        if now.st_nlink > 1:
            record["same"] = numbers.setdefault((now.st_dev, now.st_ino), len(numbers))
        with contextlib.suppress(PermissionError):
            record["content"] = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
    if kind in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
        record["time"] = now.st_mtime_ns
    if kind in (stat.S_IFREG, stat.S_IFDIR):
        record["attributes"] = {
            key: os.getxattr(path, key).hex()
            for key in sorted(os.listxattr(path))
            if key.startswith("user.")
        }
    return record


def main() -> None:
    if sys.argv[1] == "make":
        make(sys.argv[2])
        return
    for record in tell(sys.argv[2]):
        print(json.dumps(record))


if __name__ == "__main__":
    main()
