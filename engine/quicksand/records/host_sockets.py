"""Sockets for other machines, beside the sandboxes' directories."""

from __future__ import annotations

import re
from pathlib import Path

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


def host_socket(paths: Paths, client: str) -> Path:
    """The socket of such a client."""
    return paths.runtime / f"host-{client}.sock"


def askpass_socket(runtime: Path, name: str) -> Path:
    """A socket for questions of ssh; ``name`` has 32 hexadecimal digits."""
    return runtime / f"askpass-{name}.sock"


def screen_socket(runtime: Path, name: str) -> Path:
    """A socket for a screen; ``name`` has 32 hexadecimal digits."""
    return runtime / f"screen-{name}.sock"
