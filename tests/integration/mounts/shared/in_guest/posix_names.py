"""Every call that takes a path, with every kind of path: `posix_names.py` prints JSON, of each case
how it ended and what was there afterwards. It knows nothing of what is right: the same is asked of
two file systems, and compared. `posix_names.py few` leaves out paths that are no other request.

The cases are those of pjdfstest: ENOENT, ENOTDIR, EEXIST, ENOTEMPTY, EISDIR, ELOOP, ENAMETOOLONG,
EINVAL, and what succeeds.
"""

import errno
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable

LONG = "n" * 255
PATHS = {
    "missing": "none",
    "below missing": "none/x",
    "file": "file",
    "below a file": "file/x",
    "file with a slash": "file/",
    "missing with a slash": "none/",
    "empty directory": "empty",
    "empty directory with a slash": "empty/",
    "empty directory with a dot": "empty/.",
    "full directory": "full",
    "up from a directory": "full/..",
    "link to a file": "to-file",
    "link to a file with a slash": "to-file/",
    "link to a directory": "to-full",
    "link to a directory with a slash": "to-full/",
    "below a link to a directory": "to-full/inner",
    "new below a link to a directory": "to-full/new",
    "broken link": "broken",
    "broken link with a slash": "broken/",
    "loop": "loop",
    "below a loop": "loop/x",
    "pipe": "pipe",
    "below a pipe": "pipe/x",
    "name of 255 bytes": LONG,
    "name of 256 bytes": LONG + "n",
    "name of 255 bytes in UTF-8": "ü" * 127 + "n",
    "name of 256 bytes in UTF-8": "ü" * 128,
    "path of 4096 bytes": "./" * 2047 + "xx",
    "path of 4095 bytes": "./" * 2047 + "x",
    "nothing": "",
    "second name of a file": "twin",
}

FEW = {
    "missing", "file", "below a file", "empty directory", "full directory", "link to a file",
    "link to a directory", "new below a link to a directory", "broken link", "pipe",
    "name of 255 bytes", "name of 256 bytes", "second name of a file",
}  # fmt: skip
"""All others lead to one of these: a guest's kernel follows links and reads slashes by itself."""


def make_file() -> None:
    write("file", b"content")
    os.link("file", "twin")


def make_full() -> None:
    os.mkdir("full")
    write("full/inner", b"inner")


MADE: dict[tuple[str, ...], Callable[[], None]] = {
    ("file", "twin"): make_file,
    ("empty",): lambda: os.mkdir("empty"),
    ("full",): make_full,
    ("to-file",): lambda: os.symlink("file", "to-file"),
    ("to-full",): lambda: os.symlink("full", "to-full"),
    ("broken",): lambda: os.symlink("nowhere", "broken"),
    ("loop",): lambda: os.symlink("loop", "loop"),
    ("pipe",): lambda: os.mkfifo("pipe", 0o644),
}
"""What every case begins with."""


def lay_out(changed: set[str]) -> None:
    """Have these names, which are here, as at first, or gone if there were none."""
    for names, make in MADE.items():
        if changed & set(names):
            changed -= set(names)
            for name in names:
                remove(name)
            make()
    for name in changed:
        remove(name)


def remove(name: str) -> None:
    if os.path.isdir(name) and not os.path.islink(name):
        shutil.rmtree(name)
    elif os.path.lexists(name):
        os.unlink(name)


def write(name: str, data: bytes) -> None:
    file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(file, data)
    os.close(file)


def opened(path: str, flags: int) -> object:
    file = os.open(path, flags | os.O_NONBLOCK, 0o640)
    try:
        return stat.S_IFMT(os.fstat(file).st_mode)
    finally:
        os.close(file)


def changed_to(path: str) -> str:
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path)
        return "there"
    finally:
        os.fchdir(home)
        os.close(home)


LOOKS: dict[str, Callable[[str], object]] = {
    "lstat": lambda path: stat.S_IFMT(os.lstat(path).st_mode),
    "stat": lambda path: stat.S_IFMT(os.stat(path).st_mode),
    "access": lambda path: "yes" if os.access(path, os.R_OK) else "no",
    "readlink": os.readlink,
    "listdir": lambda path: sorted(os.listdir(path)),
    "chdir": changed_to,
    "statvfs": lambda path: os.statvfs(path).f_namemax,
    "open to read": lambda path: opened(path, os.O_RDONLY),
    "open a directory": lambda path: opened(path, os.O_RDONLY | os.O_DIRECTORY),
    "open no link": lambda path: opened(path, os.O_RDONLY | os.O_NOFOLLOW),
    "getxattr": lambda path: os.getxattr(path, "user.none"),
    "listxattr": lambda path: sorted(os.listxattr(path)),
}
"""Calls that change nothing."""
CHANGES: dict[str, Callable[[str], object]] = {
    "open to write": lambda path: opened(path, os.O_WRONLY),
    "open to empty": lambda path: opened(path, os.O_WRONLY | os.O_TRUNC),
    "create": lambda path: opened(path, os.O_RDWR | os.O_CREAT),
    "create anew": lambda path: opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL),
    "create to empty": lambda path: opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    "create no link": lambda path: opened(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW),
    "mkdir": lambda path: os.mkdir(path, 0o750),
    "rmdir": os.rmdir,
    "unlink": os.unlink,
    "mkfifo": lambda path: os.mkfifo(path, 0o644),
    "mknod of a file": lambda path: os.mknod(path, stat.S_IFREG | 0o644),
    "symlink": lambda path: os.symlink("target", path),
    "link from": lambda path: os.link(path, "linked", follow_symlinks=False),
    "link to": lambda path: os.link("file", path),
    "rename from": lambda path: os.rename(path, "renamed"),
    "rename a file to": lambda path: os.rename("full/inner", path),
    "rename a directory to": lambda path: os.rename("full", path),
    "chmod": lambda path: os.chmod(path, 0o711),
    "truncate": lambda path: os.truncate(path, 3),
    "truncate longer": lambda path: os.truncate(path, 3000),
    "truncate below nothing": lambda path: os.truncate(path, -1),
    "utime": lambda path: os.utime(path, (86400, 86400)),
    "lutime": lambda path: os.utime(path, (86400, 86400), follow_symlinks=False),
    "setxattr": lambda path: os.setxattr(path, "user.colour", b"red"),
}
KINDS = ["file", "twin", "empty", "full", "to-file", "to-full", "broken", "pipe"]


def outcome(call: Callable[[], object]) -> object:
    try:
        result = call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done" if result is None else result


def seen() -> dict[str, object]:
    """What is there: of each name its kind, mode, links, size, target and time, if it was set."""
    found: dict[str, object] = {}
    for where, directories, files in os.walk("."):
        for name in directories + files:
            path = os.path.join(where, name)
            now = os.lstat(path)
            is_link = stat.S_ISLNK(now.st_mode)
            found[path] = [
                oct(now.st_mode) if not is_link else "link to " + os.readlink(path),
                now.st_nlink,
                now.st_size if stat.S_ISREG(now.st_mode) else 0,
                now.st_mtime == 86400,
            ]
    return found


def main() -> None:
    told: dict[str, object] = {}
    is_short = sys.argv[1:] == ["few"]
    paths = {kind: PATHS[kind] for kind in PATHS if kind in FEW or not is_short}
    kinds = KINDS[::2] if is_short else KINDS
    lay_out({name for names in MADE for name in names})
    for name, look in LOOKS.items():
        for kind, path in paths.items():
            told[f"{name}: {kind}"] = outcome(lambda: look(path))  # noqa: B023 - called at once
    fresh = seen()
    told["at first"] = fresh

    def change(case: str, call: Callable[[], object]) -> None:
        told[case] = ended = outcome(call)
        if isinstance(ended, str) and ended[0] == "E":
            return  # what it has changed is seen after the next that succeeds, or by `unchanged`
        now = seen()
        changed = [path for path in now.keys() | fresh.keys() if now.get(path) != fresh.get(path)]
        if changed:
            told[f"{case}: then"] = {path: now.get(path, "gone") for path in changed}
            lay_out({path.split("/")[1] for path in changed})

    def unchanged(after: str) -> None:
        now = seen()
        assert now == fresh, (after, now)

    for name, act in CHANGES.items():
        for kind, path in paths.items():
            change(f"{name}: {kind}", lambda: act(path))  # noqa: B023
        unchanged(name)
    for old in kinds:
        for new in kinds:
            change(f"rename {old} to {new}", lambda: os.rename(old, new))  # noqa: B023
        unchanged(f"renames of {old}")
        change(
            f"link {old} over file",
            lambda: os.link(old, "file", follow_symlinks=False),  # noqa: B023
        )
    for inside in ("full/full", "full/new", "full/inner"):
        change(f"rename full to {inside}", lambda: os.rename("full", inside))  # noqa: B023
    for outside in ("..", ".", "full/.", "full/.."):
        change(f"rename full to {outside}", lambda: os.rename("full", outside))  # noqa: B023
        change(f"rename {outside} to new", lambda: os.rename(outside, "new"))  # noqa: B023
        change(f"rmdir {outside}", lambda: os.rmdir(outside))  # noqa: B023
    print(json.dumps(told))


if __name__ == "__main__":
    main()
