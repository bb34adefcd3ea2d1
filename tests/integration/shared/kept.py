"""Kept sandboxes on local nodes, and an onlooker who sees where their QEMUs run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.paths import Paths
from quicksand_fleet.keeping import process
from quicksand_fleet.node import NodeDestination
from quicksand_fleet.record import NodeRecord

PIPE = asyncio.subprocess.PIPE


class Nodes:
    """The local nodes, which can be killed, frozen, and cut off."""

    def __init__(self, places: Paths, nodes: tuple[NodeRecord, ...], patch: pytest.MonkeyPatch):
        self.places = places
        self.by_name = {one.name: one for one in nodes}
        self._away: set[str] = set()
        start = NodeDestination.start

        async def start_unless_away(
            to: NodeDestination, *words: str, **streams: Any
        ) -> asyncio.subprocess.Process:
            if to.name in self._away:
                return await asyncio.create_subprocess_exec(
                    "false", stdin=PIPE, stdout=PIPE, stderr=PIPE
                )
            return await start(to, *words, **streams)

        patch.setattr(NodeDestination, "start", start_unless_away)

    def processes(self, name: str, *, served: bool = True, sandboxes: bool = True) -> list[int]:
        """All processes of a node, or those that serve it, or those of its sandboxes."""
        data = str(self.by_name[name].data(self.places)).encode()
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_served = b"QUICKSAND_DATA_DIR=" + data in (one / "environ").read_bytes()
                is_sandbox = data in (one / "cmdline").read_bytes()
                if (is_served and served) or (is_sandbox and sandboxes):
                    found.append(int(one.name))
        return found

    def signal(self, name: str, number: int, **which: bool) -> None:
        for pid in self.processes(name, **which):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, name: str) -> None:
        """The node goes down, and stays away."""
        self._away.add(name)
        self.signal(name, signal.SIGKILL)

    def cut_off(self, name: str) -> None:
        """Nobody reaches it, and its sandboxes live on."""
        self._away.add(name)
        self.signal(name, signal.SIGKILL, sandboxes=False)

    def freeze(self, name: str) -> None:
        self.signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.signal(name, signal.SIGCONT)

    def come_back(self, name: str) -> None:
        self._away.discard(name)


class Onlooker:
    """Looks all the time which QEMUs run, by their command lines and the records on the disk."""

    def __init__(self, nodes: Nodes) -> None:
        self._roots = {one.data(nodes.places): name for name, one in nodes.by_name.items()}
        self._over = threading.Event()
        self._pardons = False
        self.looks = 0
        self.twice: list[dict[str, set[str]]] = []
        """What ran at two places at the same time."""
        self._thread = threading.Thread(target=self._look_on)

    @contextlib.contextmanager
    def looking(self) -> Iterator[Onlooker]:
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(0.05):
            self.looks += 1
            found = self.running()
            if any(len(where) > 1 for where in found.values()) and not self._pardons:
                self.twice.append(found)

    @contextlib.contextmanager
    def pardoning(self) -> Iterator[None]:
        """Pass over what is seen in the block: a thawed QEMU runs until its keeper gets a
        processor."""
        self._pardons = True
        try:
            yield
        finally:
            self._pardons = False

    def running(self) -> dict[str, set[str]]:
        """The nodes where QEMUs of each sandbox run."""
        found: dict[str, set[str]] = {}
        for process_ in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = (process_ / "cmdline").read_bytes()
                if not words.split(b"\0")[0].rsplit(b"/", 1)[-1].startswith(b"qemu-system"):
                    continue
                for root, name in self._roots.items():
                    start = words.find(str(root / "sandboxes").encode() + b"/")
                    if start >= 0 and self._lives(process_):
                        id_ = words[start + len(str(root / "sandboxes")) + 1 :][:12].decode()
                        found.setdefault(_kept_name(root / "sandboxes" / id_), set()).add(name)
        return found

    @staticmethod
    def _lives(process_: Path) -> bool:
        """Neither a zombie nor frozen."""
        return (process_ / "stat").read_text().rpartition(")")[2].split()[0] not in "ZXT"


def _kept_name(place: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return str(json.loads((place / "lease.json").read_text())["name"])
    return str(json.loads((place / "sandbox.json").read_text())["name"])


@contextlib.asynccontextmanager
async def coordinator(places: Paths) -> AsyncIterator[asyncio.Task[None]]:
    """A coordinator in this process, where the nodes' connections can be cut."""
    task = asyncio.create_task(process.coordinate(places))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
