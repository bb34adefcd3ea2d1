"""A process that confines itself and then tries what it must not do; prints what it could.

``python -m tests.unit.smb.confined SHARE READONLY_SHARE OUTSIDE UID``
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

from quicksand_smb import confine
from quicksand_smb.store import Disposition, FileKind, OpenOptions, Store, StoreError

MAKE = OpenOptions(read=True, write=True, disposition=Disposition.OPEN_IF)


def serve(store: Store) -> None:
    """All that a server needs works still."""
    node, _ = store.open(("file",), MAKE)
    node.write(memoryview(b"data"), 0)
    node.resize(2)
    node.set_times(written_ns=5)
    node.set_mode(0o600)
    node.set_attribute("a", b"b")
    again, _ = store.open(("file",), OpenOptions(read=True, write=True))
    assert again.stat().size == 2
    other, _ = store.open(("copy",), MAKE)
    assert other.copy_from(again, 0, 0, 10) == 2
    make_dir = OpenOptions(directory=True, disposition=Disposition.CREATE, mode=0o755)
    store.open(("dir",), make_dir)[0].close()
    store.rename(("copy",), ("dir", "moved"), replace=False)
    store.link(("file",), ("dir", "link"), replace=False)
    store.symlink("x", ("symlink",))
    store.make_node(("fifo",), FileKind.FIFO, 0o600)
    assert store.where(other) == ("dir", "moved")
    listed = {entry.name for entry in store.open((), OpenOptions())[0].entries("*")}
    assert listed == {"file", "dir", "symlink", "fifo"}
    for name in ("moved", "link"):
        store.remove(("dir", name), directory=False)
    store.remove(("dir",), directory=True)
    store.space()
    ran: list[int] = []
    thread = threading.Thread(target=lambda: ran.append(store.look(()).inode))
    thread.start()
    thread.join()
    assert ran


def attempts(share: str, read_only: str, outside: str) -> dict[str, Callable[[], object]]:
    libc = ctypes.CDLL(None, use_errno=True)

    def raw(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), name)

    return {
        "read outside": lambda: open(f"{outside}/secret").close(),
        "read passwd": lambda: open("/etc/passwd").close(),
        "write outside": lambda: open(f"{outside}/new", "w").close(),
        "write read-only": lambda: open(f"{read_only}/new", "w").close(),
        "remove read-only": lambda: os.unlink(f"{read_only}/file"),
        "link outside": lambda: os.link(f"{outside}/secret", f"{share}/mine"),
        "rename outside": lambda: os.rename(f"{share}/file", f"{outside}/file"),
        "run": lambda: subprocess.run(["/bin/true"], check=True),
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "fork": os.fork,
        "socket": socket.socket,
        "pair": socket.socketpair,
        "ptrace": lambda: raw("ptrace", 0, 0, 0, 0),
        "unshare": lambda: raw("unshare", 0x10000000),
        "set-id": lambda: os.chmod(f"{share}/file", 0o4755),
        "device": lambda: os.mknod(f"{share}/zero", 0o020666, os.makedev(1, 5)),
        "kill": lambda: os.kill(os.getppid(), 0),
        "root": lambda: os.setuid(0),
    }


def main(share: str, read_only: str, outside: str, user: str) -> None:
    if int(user) != os.getuid():
        # Another user may not be allowed to read where Python is installed.
        __import__("json"), __import__("resource")
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    store, other = Store(share, read_only=False), Store(read_only, read_only=True)
    for measure in confine.confine([(share, False), (read_only, True)]):
        print("measure", measure)
    serve(store)
    assert [entry.name for entry in other.open((), OpenOptions())[0].entries("*")] == ["file"]
    other.open(("file",), OpenOptions(read=True))[0].close()
    # What the store's own gate would have to refuse is refused without it, too.
    other.read_only = False
    for wish in (MAKE, OpenOptions(write=True, disposition=Disposition.OVERWRITE)):
        try:
            other.open(("file",), wish)
            print("could: write through the store")
        except StoreError as error:
            print("refused", error.reason.name)
    for name, attempt in attempts(share, read_only, outside).items():
        try:
            attempt()
        except OSError as error:
            print("refused", name, error.errno)
        else:
            print("could:", name)
    __import__("json")  # modules are found still
    print("served")


if __name__ == "__main__":
    main(*sys.argv[1:])
