"""Both ends of a connection in one process, and a far end as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from quicksand.remote.peer_link import Answer, Link

FAR_END = """
import asyncio
from quicksand.remote.serving import serve_stdio
async def finish(registry, record):
    raise AssertionError("no revert is left")

asyncio.run(serve_stdio(finish))
"""
"""A far end that offers nothing."""


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
far = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                       stderr=None if sys.argv[2] == "2" else subprocess.DEVNULL,
                       start_new_session=True)
with open(sys.argv[1].replace("ssh.pid", "far.pid"), "w") as file:
    print(far.pid, file=file)
def copy(source, target):
    while data := os.read(source, 65536):
        os.write(target, data)
    os.close(target)
threading.Thread(target=copy, args=(0, far.stdin.fileno()), daemon=True).start()
copy(far.stdout.fileno(), 1)
sys.exit(far.wait())
"""
"""An ssh that can be killed: it takes the connection with it, but not what is at the other end."""


def make_ssh(directory: Path) -> None:
    """An `ssh` that leads to a far end, and writes its pid to `ssh.pid`."""
    directory.mkdir(exist_ok=True)
    (directory / "far_end.py").write_text(FAR_END)
    write_ssh(directory, shlex.join((sys.executable, str(directory / "far_end.py"))), stderr="-")


def write_ssh(directory: Path, program: str, stderr: str = "2") -> None:
    """An `ssh` that runs ``program``, words of a shell in which ``$last`` is the line for there,
    and writes its pid. With another ``stderr`` than "2" it passes none on."""
    (directory / "ssh.py").write_text(SSH)
    words = shlex.join(
        (sys.executable, str(directory / "ssh.py"), str(directory / "ssh.pid"), stderr)
    )
    ssh = directory / "ssh"
    ssh.write_text(f"#!/bin/sh\nfor last; do :; done\nexec {words} {program}\n")
    ssh.chmod(0o755)


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until ``condition`` is true, for at most a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited 60 s for {what}"
        await asyncio.sleep(0.01)
