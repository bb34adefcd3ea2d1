"""Programs of ours that go on in the background after the process that has started them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

_SHELL = '{ sleep "$1"; shift; exec "$@"; } <&3 3<&- >/dev/null 2>&1 &'


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
        starter = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            f"exec 3<&0; {_SHELL}",
            "sh",
            *(str(seconds), sys.executable, "-P", "-m", module),
            stdin=read,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=descriptors,
            start_new_session=True,
        )
        await starter.wait()
    finally:
        os.close(read)


async def run_to_its_end(module: str, value: Any) -> None:
    """Start a separate process that runs ``module`` with ``value`` as JSON on its stdin, and wait
    for its end, however that is. Raises OSError."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    await process.communicate(json.dumps(value).encode())
