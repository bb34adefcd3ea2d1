"""A sandbox of another machine, for commands that run here and talk to its guest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from quicksand.sandbox import Sandbox

from quicksand_tui.cli.runner import attached

if TYPE_CHECKING:
    from quicksand.base.errors import RemoteError
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.remote.connection import Way

    from quicksand_tui.cli.ssh.ssh_config import SshName


@contextlib.asynccontextmanager
async def reached(found: SshName) -> AsyncIterator[Sandbox]:
    """Yields a running sandbox of this machine or of another one, to which ssh has connected then.
    Raises QuicksandError."""
    if not found.host:
        with attached(found.name) as sandbox:
            yield sandbox
        return
    from quicksand_tui.cli.hosts.hosts import find_destination  # noqa: PLC0415

    destination = find_destination(found.host)
    async with reached_host(destination, asks=_has_terminal()) as host:
        sandbox = Sandbox.attach(found.name, host=host)
        try:
            yield sandbox
        finally:
            sandbox.close()


@contextlib.asynccontextmanager
async def reached_host(
    destination: Way, *, asks: bool, on_away: Callable[[RemoteError], None] = lambda _: None
) -> AsyncIterator[RemoteHost]:
    """Yields another machine, to which ssh has connected then. ``asks``: ssh may ask for a
    passphrase. ``on_away`` gets the reason when it is connected anew. Raises RemoteError,
    HostError."""
    from quicksand.hosted.remote_host import RemoteHost  # noqa: PLC0415
    from quicksand.remote.connection import SharedConnections  # noqa: PLC0415

    sharing = SharedConnections.find(destination, asks=asks)
    sharing.on_away = on_away
    with sharing.use():
        await sharing.link()
        yield RemoteHost.by(sharing)
    await sharing.ended()


def _has_terminal() -> bool:
    """Returns whether ssh can ask for a passphrase: it does so on the terminal of this process,
    which a ProxyCommand has although all its streams may be pipes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
