"""Files in the runtime directory beside the directories of sandboxes: sockets for other machines,
and those of ssh. All such files have their names here, by which `doctor` recognises them as
ours."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

from quicksand.base.listing import own_directories, own_sockets
from quicksand.base.paths import Paths

HOST_SOCKETS = re.compile(r"host-[0-9a-f]{32}\.sock")
"""Names of sockets in the runtime directory: each is of a client at another machine that may come
again (`quicksand.remote`)."""

ASKPASS_SOCKETS = re.compile(r"askpass-[0-9a-f]{32}\.sock")
"""Names of sockets there, each of a program that asks ssh's questions."""

SCREEN_SOCKETS = re.compile(r"screen-[0-9a-f]{32}\.sock")
"""Names of sockets there, each of which leads to the screen of a sandbox of another machine
(`quicksand.hosted.relayed_screen`)."""

ALL_SOCKETS = (HOST_SOCKETS, ASKPASS_SOCKETS, SCREEN_SOCKETS)

SSH_MASTERS = re.compile(r"ssh(?:-[0-9a-f]{8})?")
"""Names of directories for the sockets of ssh's masters (ControlPath): without digits for an
earlier version, which had one for all data directories."""


def ours_beside_sandboxes(runtime: Path) -> frozenset[str]:
    """Return the names of all of these that are ours. Things that only have such a name, such as a
    link or a file in place of a socket, are not."""
    found = own_directories(runtime, SSH_MASTERS)
    for names in ALL_SOCKETS:
        found += own_sockets(runtime, names)
    return frozenset(path.name for path in found)


def host_socket(paths: Paths, client: str) -> Path:
    """The socket of the client at another machine whose id is ``client``."""
    return paths.runtime / f"host-{client}.sock"


def askpass_socket(runtime: Path, name: str) -> Path:
    """A socket for questions of ssh; ``name`` has 32 hexadecimal digits."""
    return runtime / f"askpass-{name}.sock"


def screen_socket(runtime: Path, name: str) -> Path:
    """A socket for a screen; ``name`` has 32 hexadecimal digits."""
    return runtime / f"screen-{name}.sock"


def host_places(paths: Paths) -> Path:
    """The directory, in the cache, of files that commands of other machines read and write. It need
    not exist."""
    return paths.cache / "hosts"


def ssh_masters(paths: Paths) -> Path:
    """Return the directory of ssh's masters, which need not exist: ssh makes and removes its files.
    Each data directory has its own, since ssh distinguishes masters by the name of the host, which
    is that of a sandbox."""
    return paths.runtime / f"ssh-{zlib.crc32(os.fsencode(paths.data)):08x}"
