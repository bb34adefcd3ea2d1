"""Background programs of ours, which outlive the process that has started them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any, Self

_SHELL = '{ sleep "$1"; shift; exec "$@"; } <&3 3<&- >/dev/null 2>&1 &'

PASSED_MAX = 200
"""Descriptors that one message carries; the kernel's limit is 253 (unix(7), SCM_MAX_FD)."""

CHUNK = 64 * 1024


async def run_later(
    module: str, value: Any, *, seconds: int = 0, descriptors: Sequence[int] = ()
) -> None:
    """Start a separate process that runs ``module`` in so many ``seconds``, with ``value`` as JSON
    on its stdin, and return without waiting for it. It inherits ``descriptors``. Raises OSError.
    """
    read, write = os.pipe()
    try:
        # Records always fit into the pipe's buffer (64 KiB on Linux, pipe(7)).
        os.write(write, json.dumps(value).encode())
    finally:
        os.close(write)
    try:
        await _start(module, seconds, read, descriptors)
    finally:
        os.close(read)


async def _start(module: str, seconds: int, stdin: int, descriptors: Sequence[int]) -> None:
    starter = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f"exec 3<&0; {_SHELL}",
        "sh",
        *(str(seconds), sys.executable, "-P", "-m", module),
        stdin=stdin,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,
    )
    await starter.wait()


class StandBy:
    """A separate process that begins to run a module, and waits for its work (`receive`). It ends
    if it is given none, also because this process has died."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours

    @classmethod
    async def start(cls, module: str) -> Self:
        """Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            await _start(module, 0, theirs.fileno(), ())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(ours)

    def give(self, value: Any, descriptors: Sequence[int]) -> None:
        """Give it ``value``, as JSON, and copies of ``descriptors``, and leave it alone. Raises
        OSError; it ends then."""
        with self._ours:
            for start in range(0, len(descriptors), PASSED_MAX):
                # JSON may begin with any number of blanks.
                socket.send_fds(self._ours, [b" "], descriptors[start : start + PASSED_MAX])
            self._ours.sendall(json.dumps(value).encode())

    def close(self) -> None:
        """Let it end, unless it was given something. Idempotent."""
        self._ours.close()


def receive(stdin: int = 0) -> tuple[Any, list[int]]:
    """Return the value and the descriptors that this process is given over its stdin. Blocks until
    they have come. Raises ValueError if it is given nothing, OSError."""
    text, passed = b"", []
    with socket.socket(fileno=os.dup(stdin)) as given:
        while True:
            data, found, _, _ = socket.recv_fds(given, CHUNK, PASSED_MAX)
            for descriptor in found:
                os.set_inheritable(descriptor, False)
            passed += found
            if not data:
                return json.loads(text), passed
            text += data


async def run_to_its_end(module: str, value: Any) -> None:
    """Start a separate process that runs ``module`` with ``value`` as JSON on its stdin, and wait
    until it ends in any way. Raises OSError."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    await process.communicate(json.dumps(value).encode())
