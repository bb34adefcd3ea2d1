"""Measures what a sandbox costs its host, and what a client costs both ends. Prints JSON.

python -m bench.costs [--sandboxes 1,4,8] [--recorded 1,10,100,1000] [--clients 1,4]
                      [--memory 128M] [--image debian] [--rounds 5] [PART…]

The parts are `running` (real VMs, each with a forwarded port, the first with a mount as well:
memory, descriptors, threads and sockets of each kind of process), `disk` (overlay, checkpoint and
save of one of them), `listing` (the registry's time with so many stopped sandboxes on disk),
`clients` (ssh to this machine, over a private sshd: the needs of each client at both ends) and
`watching` (the costs of following changes). Memory is PSS: pages that processes share count in
part. Figures of several processes are medians. Memory and counts are sound on a busy host; seconds
are not, and `load` says how busy it was. The model of many hosts (`bench/fleet_simulator/`) has its
figures from here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from quicksand import Mount, NetworkMode, Sandbox
from quicksand.base.footprint import Footprint
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.processes import memory_of, process_usage
from quicksand.base.removal import make_marked, remove
from quicksand.life.all_processes import OurProcess, Role, list_all
from quicksand.records.registry import Registry
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination
from quicksand.remote.peer_link import Channel
from quicksand_benchmark.measured import make_warm

from bench.commands import record_of
from quicksand_tui.door.far_lines import Learner, Lines
from tests.conftest import fresh_places
from tests.ssh_server import FarHost, far_environ, with_sshd

MIB = 1024 * 1024
PARTS = ("running", "disk", "listing", "clients", "watching")
GUEST_PORT = 8080
WRITTEN_MIB = 8
"""MiB that the guest writes before its checkpoint and its save."""
CALM_S = 1.0
"""Seconds for new processes to come to rest."""

IDLE_S = 5.0
CHANGES = 10
CHANGES_EVERY_S = 0.3

Figures = dict[str, Any]


def counts_of(pid: int) -> Figures:
    """Returns a process's use of the host; nothing if it has ended."""
    place = Path(f"/proc/{pid}")
    with suppress(OSError):
        opened = list(_opened(place / "fd"))
        return {
            "pss_mib": memory_of(pid) / MIB,
            "descriptors": len(opened),
            "sockets": sum(name.startswith("socket:") for name in opened),
            "threads": len(list((place / "task").iterdir())),
        }
    return {}


def is_ours(process: OurProcess) -> bool:
    """Returns whether a process belongs to a sandbox in our data directory: other programs of this
    user may start some meanwhile."""
    if process.role is Role.SANDBOX:
        return True
    with suppress(OSError):
        return os.fsencode(paths().data) in Path(f"/proc/{process.pid}/environ").read_bytes()
    return False


def _opened(place: Path) -> Iterator[str]:
    for link in list(place.iterdir()):
        with suppress(FileNotFoundError):  # our own look at the directory
            yield str(link.readlink())


def medians(found: Iterable[Figures]) -> Figures:
    """Returns the median of each figure, and the number of processes."""
    rows = [row for row in found if row]
    names = rows[0] if rows else ()
    middle = {name: round(statistics.median(row[name] for row in rows), 1) for name in names}
    return {"processes": len(rows), **middle}


@asynccontextmanager
async def running(options: argparse.Namespace, count: int) -> AsyncIterator[list[Sandbox]]:
    """So many sandboxes with a forwarded port each; the first has a mount."""
    async with AsyncExitStack() as stack:
        shared = stack.enter_context(tempfile.TemporaryDirectory(prefix="qsm-"))
        made = []
        for number in range(count):
            mounts = [Mount(shared, "/mnt/shared")] if number == 0 else []
            sandbox = Sandbox(
                image=options.image,
                memory=options.memory,
                network_mode=NetworkMode.MOUNTS_ONLY,
                mounts=mounts,
            )
            await stack.enter_async_context(sandbox)
            await sandbox.forward(GUEST_PORT)
            made.append(sandbox)
        yield made


async def measure_running(options: argparse.Namespace) -> Figures:
    """Returns the figures by the number of running sandboxes and by the kind of process."""
    found: Figures = {}
    await make_warm(options.image, options.memory)
    for count in options.sandboxes:
        before = {one.pid for one in list_all(Registry(paths()))}
        async with running(options, count):
            await asyncio.sleep(CALM_S)
            ours = [
                one for one in list_all(Registry(paths())) if one.pid not in before and is_ours(one)
            ]
            kinds = sorted({one.kind for one in ours})
            found[str(count)] = {
                kind: medians(counts_of(one.pid) for one in ours if one.kind == kind)
                for kind in kinds
            } | {"client": medians([counts_of(os.getpid())])}
    return found


async def measure_disk(options: argparse.Namespace) -> Figures:
    """MiB of a sandbox's directory after each step, and of its save."""
    async with running(options, 1) as (sandbox,):
        root = Registry(paths()).place(sandbox.id).root
        found = {"fresh_mib": _mib(root)}
        write = f"dd if=/dev/urandom of=/root/written bs=1M count={WRITTEN_MIB} && sync"
        result = await sandbox.execute(write)
        assert result.exit_code == 0, result.stderr
        found["written_mib"] = _mib(root)
        began = time.perf_counter()
        await sandbox.checkpoint("one")
        found["checkpoint_s"] = round(time.perf_counter() - began, 2)
        found["with_checkpoint_mib"] = _mib(root)
        await sandbox.checkpoint("two")
        found["with_a_second_mib"] = _mib(root)
        with tempfile.TemporaryDirectory(prefix="qss-") as directory:
            await sandbox.save("bench", workspace=directory)
            found["save_mib"] = round(Footprint(Path(directory)).size / MIB, 1)
            found["save_own_mib"] = _mib(Path(directory))
    image = next((paths().images / options.image).resolve().glob("*/disk.qcow2")).parent
    return {**found, "written_by_guest_mib": WRITTEN_MIB, "image_mib": _mib(image)}


def _mib(place: Path) -> float:
    """Returns the MiB that it alone has, without shared ones."""
    return round(Footprint(place).own / MIB, 1)


def make_recorded(data: Path, count: int) -> Registry:
    """Put ``count`` stopped sandboxes on disk, past the registry: it looks at all others each
    time."""
    registry = Registry(Paths(runtime=data / "run", data=data, cache=data / "cache"))
    make_private_dir(registry.paths.sandboxes)
    for number in range(count):
        record = record_of(number)
        place = registry.place(record.id)
        make_marked(place.root)
        place.lock.touch(mode=0o600)
        registry.save(record)
    return registry


@contextmanager
def timed(taken: dict[str, list[float]], name: str) -> Iterator[None]:
    """Add the milliseconds of processor time that the block takes."""
    began = time.process_time()
    yield
    taken.setdefault(name, []).append((time.process_time() - began) * 1000)


def measure_listing(options: argparse.Namespace) -> Figures:
    """Returns milliseconds of processor time by the number of stopped sandboxes on disk: for the
    registry's list, the running ones, finding one by name, and making the directory of one more."""
    found = {}
    for count in options.recorded:
        with tempfile.TemporaryDirectory(prefix="qsl-") as directory:
            registry = make_recorded(Path(directory), count)
            taken: dict[str, list[float]] = {}
            for number in range(options.rounds):
                with timed(taken, "list_ms"):
                    assert len(registry.list()) == count + number
                with timed(taken, "list_live_ms"):
                    assert not registry.list_live()
                with timed(taken, "find_ms"):
                    assert registry.named(f"bench-{count // 2}") or count == 1
                registry = Registry(registry.paths)  # or it would know where it has found it
                with timed(taken, "make_ms"):
                    os.close(registry.create(record_of(count + number)))
            kib = Footprint(registry.paths.sandboxes).size / 1024 / (count + options.rounds)
        middle = {name: round(statistics.median(values), 2) for name, values in taken.items()}
        found[str(count)] = {**middle, "disk_kib_each": round(kib, 1)}
    return found


@asynccontextmanager
async def watched(destination: Destination) -> AsyncIterator[tuple[float, Watcher]]:
    """Yield another connection to a machine that reports changes, and the time until its first
    report."""
    began = time.perf_counter()
    async with Connection(destination, asks=False) as connection:
        channel = connection.link.open("watch")
        await channel.reply
        channel.tell("look", visible=[])
        watcher = Watcher(channel)
        await watcher.take()
        yield time.perf_counter() - began, watcher


class Watcher:
    """Takes the reports of a machine, as the app does."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lines, self._learner = Lines(), Learner()
        self.bytes = self.lines = 0

    async def take(self) -> None:
        """Take the next line, or several."""
        before = self.lines
        while self.lines == before:
            data = (await self._channel.piece()).data
            self.bytes += len(data)
            for line in self._lines.feed(data):
                self._learner.learn(line)
                self.lines += 1

    async def take_all(self) -> None:
        while True:
            await self.take()


async def measure_clients(options: argparse.Namespace, far: FarHost) -> Figures:
    """Returns the figures by the number of this process's connections, all to this machine."""
    destination = Destination.parse(far.address)
    found: Figures = {}
    for count in options.clients:
        own = counts_of(os.getpid())
        async with AsyncExitStack() as stack:
            taken = [
                (await stack.enter_async_context(watched(destination)))[0] for _ in range(count)
            ]
            await asyncio.sleep(CALM_S)
            now = counts_of(os.getpid())
            found[str(count)] = {
                kind: medians(map(counts_of, pids)) for kind, pids in _brought().items()
            } | {
                "client_per_connection": {
                    name: round((now[name] - own[name]) / count, 2) for name in now
                },
                "connect_s": round(statistics.median(taken), 2),
            }
    return found


async def measure_watching(options: argparse.Namespace, far: FarHost) -> Figures:
    """Returns by the number of stopped sandboxes on the host: the processor time of one client's
    far end in each second without changes, and for each new sandbox; the client's for each line;
    the bytes of all lines, and of one."""
    destination, found = Destination.parse(far.address), {}
    for count in options.recorded:
        registry = make_recorded(paths().data, count)
        async with watched(destination) as (_, watcher), asyncio.TaskGroup() as tasks:
            first, (server,) = watcher.bytes, _brought()["serve"]
            taking = tasks.create_task(watcher.take_all())
            before = process_usage(server)[0]
            await asyncio.sleep(IDLE_S)
            idle = process_usage(server)[0] - before
            told, own, lines = watcher.bytes, time.thread_time(), watcher.lines
            for _ in range(CHANGES):
                await asyncio.to_thread(make_recorded, paths().data, 1)
                await asyncio.sleep(CHANGES_EVERY_S)
            busy = process_usage(server)[0] - before - idle
            own, lines = time.thread_time() - own, max(1, watcher.lines - lines)
            taking.cancel()
        found[str(count)] = {
            "far_end_idle_ms_a_second": round(1000 * idle / IDLE_S, 1),
            "far_end_ms_a_change": round(1000 * busy / CHANGES, 1),
            "client_ms_a_line": round(1000 * own / lines, 2),
            "lines": lines,
            "bytes_at_first": first,
            "bytes_a_line": round((watcher.bytes - told) / lines),
        }
        for id_ in [entry.id for entry in registry.list()]:
            remove(registry.place(id_).root)
    return found


def _brought() -> dict[str, list[int]]:
    """Returns the processes that connections of this process have started, by kind."""
    mine = os.fsencode(f"QUICKSAND_DATA_DIR={paths().data}")
    parents, found = _parents(), dict[str, list[int]]()
    for pid, parent in parents.items():
        with suppress(OSError, IndexError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if parent == os.getpid() and words[0].endswith(b"ssh"):
                found.setdefault("ssh", []).append(pid)
            elif b"--stdio" in words and mine in Path(f"/proc/{pid}/environ").read_bytes():
                found.setdefault("serve", []).append(pid)
                found.setdefault("sshd", []).append(parent)
    return found


def _parents() -> dict[int, int]:
    """The parent of each process (proc_pid_stat(5))."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (directory / "stat").read_text(errors="replace")
            found[int(directory.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def listed(text: str) -> list[int]:
    """Reads whole numbers between commas."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers from 1 on")
    return [int(word) for word in words]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line. Ends the program if something is wrong with it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--sandboxes", type=listed, default="1,4,8")
    parser.add_argument("--recorded", type=listed, default="1,10,100,1000")
    parser.add_argument("--clients", type=listed, default="1,4")
    parser.add_argument("--memory", default="128M")
    parser.add_argument("--image", default="debian")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(words)
    for part in given.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; one of {', '.join(PARTS)}")
    given.parts = given.parts or list(PARTS)
    return given


def main() -> None:
    options = parse()
    found: Figures = {
        "load": [round(value, 1) for value in os.getloadavg()],
        "memory": options.memory,
    }
    with fresh_places(paths()):
        if "running" in options.parts:
            found["running"] = asyncio.run(measure_running(options))
        if "disk" in options.parts:
            found["disk"] = asyncio.run(measure_disk(options))
        if "listing" in options.parts:
            found["listing"] = measure_listing(options)
        if {"clients", "watching"} & set(options.parts):
            with (
                tempfile.TemporaryDirectory(prefix="qsb-") as directory,
                with_sshd(Path(directory), far_environ()) as far,
            ):
                os.environ["PATH"] = far.environ()["PATH"]
                if "clients" in options.parts:
                    found["clients"] = asyncio.run(measure_clients(options, far))
                if "watching" in options.parts:
                    found["watching"] = asyncio.run(measure_watching(options, far))
        for place in (paths().runtime / "ssh", paths().runtime / "hosts"):
            with suppress(OSError):
                place.rmdir()
    found["load_after"] = [round(value, 1) for value in os.getloadavg()]
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
