"""Both ends of a connection in one process, and a far end as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from quicksand.remote.peer_link import Answer, Link

FAR_END = """
import asyncio, sys
from quicksand.remote.serving import serve_stdio
async def finish(registry, record):
    raise AssertionError("no revert is left")

asyncio.run(serve_stdio(sys.argv[1:], lambda argv: None, finish))
"""
"""A far end whose program is given."""


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def two_ends() -> tuple[Ends, Ends]:
    """Two connected ends."""
    one, other = socket.socketpair()
    return await asyncio.open_connection(sock=one), await asyncio.open_connection(sock=other)


@contextlib.asynccontextmanager
async def links(answer: Answer) -> AsyncIterator[tuple[Link, Link]]:
    """An asking and an answering end, running."""
    here, there = await two_ends()
    asking = Link(*here, name="box")
    answering = Link(*there, name="the client", answer=answer)
    tasks = [asyncio.create_task(link.run()) for link in (asking, answering)]
    try:
        yield asking, answering
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await answering.settle()


SSH = """
import os, subprocess, sys, threading
with open(sys.argv[1], "w") as file:
    print(os.getpid(), file=file)
far = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, start_new_session=True)
with open(sys.argv[1].replace("ssh.pid", "far.pid"), "w") as file:
    print(far.pid, file=file)
def copy(source, target):
    while data := os.read(source, 65536):
        os.write(target, data)
    os.close(target)
threading.Thread(target=copy, args=(0, far.stdin.fileno()), daemon=True).start()
copy(far.stdout.fileno(), 1)
"""
"""An ssh that can be killed: it takes the connection with it, but not what is at the other end."""


def make_ssh(directory: Path, program: Sequence[str]) -> None:
    """An `ssh` that leads to a far end with that program, and writes its pid to `ssh.pid`."""
    directory.mkdir(exist_ok=True)
    (directory / "far_end.py").write_text(FAR_END)
    (directory / "ssh.py").write_text(SSH)
    end = (sys.executable, str(directory / "far_end.py"), *program)
    words = (sys.executable, str(directory / "ssh.py"), str(directory / "ssh.pid"), *end)
    ssh = directory / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
    ssh.chmod(0o755)


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until ``condition`` is true, for at most a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited 60 s for {what}"
        await asyncio.sleep(0.01)
