"""What lies in the runtime directory beside the directories of sandboxes: sockets for other
machines, and those of ssh. Whoever puts something there gives it a name here, by which `doctor`
knows it as ours."""

from __future__ import annotations

import re
from pathlib import Path

from quicksand.base.listing import own_directories, own_sockets
from quicksand.base.paths import Paths

HOST_SOCKETS = re.compile(r"host-[0-9a-f]{32}\.sock")
"""Names of sockets in the runtime directory: each is of a client at another machine that may come
again (`quicksand.remote`)."""

ASKPASS_SOCKETS = re.compile(r"askpass-[0-9a-f]{32}\.sock")
"""Names of sockets there, each of a program that asks what ssh wants to know."""

SCREEN_SOCKETS = re.compile(r"screen-[0-9a-f]{32}\.sock")
"""Names of sockets there, each of which leads to the screen of a sandbox of another machine
(`quicksand.hosted.relayed_screen`)."""

ALL_SOCKETS = (HOST_SOCKETS, ASKPASS_SOCKETS, SCREEN_SOCKETS)

SSH_MASTERS = re.compile(r"ssh")
"""The name of the directory of the sockets that ssh's masters have (ControlPath)."""


def ours_beside_sandboxes(runtime: Path) -> frozenset[str]:
    """The names of what is ours of all this. What only has such a name, such as a link or a file in
    place of a socket, is not."""
    found = own_directories(runtime, SSH_MASTERS)
    for names in ALL_SOCKETS:
        found += own_sockets(runtime, names)
    return frozenset(path.name for path in found)


def host_socket(paths: Paths, client: str) -> Path:
    """The socket of such a client."""
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
    """The directory of ssh's masters. It need not exist: ssh makes and removes what is in it."""
    return paths.runtime / "ssh"
