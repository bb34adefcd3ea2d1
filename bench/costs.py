"""Measures what a sandbox costs its host, and what a client costs both ends. Prints JSON.

python -m bench.costs [--sandboxes 1,4,8] [--recorded 1,10,100,1000] [--clients 1,4] [--memory 128M]
                      [--image debian] [--rounds 5] [PART…]

The parts are `running` (real VMs, each with a forwarded port, the first with a mount as well: memory,
descriptors, threads and sockets of each kind of process), `disk` (overlay, checkpoint and save of
one of them), `listing` (the registry's list, with so many stopped sandboxes on disk) and `clients`
(ssh to this machine, over a private sshd: memory and descriptors of what each client needs at both
ends). Memory is PSS: pages that processes share count in part. Figures of several processes are
medians. Memory and counts are sound on a busy host; seconds are not, and `load` says how busy it was.
The model of many hosts reads this file's output (`bench/fleet_simulator/`).
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
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from quicksand import Mount, NetworkMode, Sandbox
from quicksand.base.footprint import allocated_size
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.process_usage import memory_of
from quicksand.base.removal import make_marked
from quicksand.life.all_processes import list_all
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination

from quicksand_tui.cli.measuring.machines import make_warm
from tests.conftest import fresh_places
from tests.ssh_server import FarHost, far_environ, with_sshd

MIB = 1024 * 1024
PARTS = ("running", "disk", "listing", "clients")
GUEST_PORT = 8080
WRITTEN_MIB = 8
"""What the guest writes before its checkpoint and its save."""
CALM_S = 1.0
"""Seconds for what has just started to come to rest."""

Figures = dict[str, Any]


def counts_of(pid: int) -> Figures:
    """What a process takes of the host; empty if it has ended."""
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


def _opened(place: Path) -> Iterator[str]:
    for link in list(place.iterdir()):
        with suppress(FileNotFoundError):  # our own look at the directory
            yield os.readlink(link)


def medians(found: Iterable[Figures]) -> Figures:
    """Of each figure the median, and how many processes there were."""
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
    """By how many run, and by the kind of process."""
    found: Figures = {}
    await make_warm(options.image, options.memory)
    for count in options.sandboxes:
        before = {one.pid for one in list_all(Registry(paths()))}
        async with running(options, count):
            await asyncio.sleep(CALM_S)
            ours = [one for one in list_all(Registry(paths())) if one.pid not in before]
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
            found["save_mib"] = _mib(Path(directory))
    image = next((paths().images / options.image).resolve().glob("*/disk.qcow2")).parent
    return {**found, "written_by_guest_mib": WRITTEN_MIB, "image_mib": _mib(image)}


def _mib(place: Path) -> float:
    return round(allocated_size(place) / MIB, 1)


def record_of(number: int) -> Record:
    """The record of a stopped sandbox."""
    return Record(
        id=new_id(),
        name=f"bench-{number}",
        config=SandboxConfig(image="debian"),
        image_digest="",
        chain=(),
        created=time.time(),
        committed=True,
        discard=False,
    )


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


def measure_listing(options: argparse.Namespace) -> Figures:
    """By the number of stopped sandboxes on disk: milliseconds of the registry's list, and of
    making the directory of one more."""
    found = {}
    for count in options.recorded:
        with tempfile.TemporaryDirectory(prefix="qsl-") as directory:
            registry = make_recorded(Path(directory), count)
            taken: dict[str, list[float]] = {"list_ms": [], "make_ms": []}
            for number in range(options.rounds):
                began = time.perf_counter()
                assert len(registry.list()) == count + number
                listed = time.perf_counter()
                os.close(registry.create(record_of(count + number)))
                taken["list_ms"].append((listed - began) * 1000)
                taken["make_ms"].append((time.perf_counter() - listed) * 1000)
            kib = allocated_size(registry.paths.sandboxes) / 1024 / (count + options.rounds)
        middle = {name: round(statistics.median(values), 2) for name, values in taken.items()}
        found[str(count)] = {**middle, "disk_kib_each": round(kib, 1)}
    return found


async def measure_clients(options: argparse.Namespace, far: FarHost) -> Figures:
    """By how many connections this process has, all of them to this machine."""
    os.environ["PATH"] = far.environ()["PATH"]
    destination = Destination.parse(far.address)
    found: Figures = {}
    for count in options.clients:
        before, own = set(_pids()), counts_of(os.getpid())
        async with AsyncExitStack() as stack:
            taken = []
            for _ in range(count):
                connection = Connection(destination, asks=False)
                began = time.perf_counter()
                await stack.enter_async_context(connection)
                taken.append(time.perf_counter() - began)
                channel = connection.link.open("watch")
                await channel.reply
                channel.tell("look", visible=[])
                await channel.piece()
            await asyncio.sleep(CALM_S)
            ours = [(pid, kind) for pid in set(_pids()) - before if (kind := _kind_of(pid))]
            now = counts_of(os.getpid())
            found[str(count)] = {
                kind: medians(counts_of(pid) for pid, one in ours if one == kind)
                for kind in sorted({kind for _, kind in ours})
            } | {
                "client_per_connection": {
                    name: round((now[name] - own[name]) / count, 2) for name in now
                },
                "connect_s": round(statistics.median(taken), 2),
            }
    return found


def _pids() -> Iterator[int]:
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if directory.stat().st_uid == os.geteuid():
                yield int(directory.name)


def _kind_of(pid: int) -> str:
    """What a process is that a connection has brought; "" for any other."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0].startswith(b"sshd"):
            return "sshd"
        if Path(os.fsdecode(words[0])).name == "ssh":
            return "ssh"
        if b"serve" in words and b"--stdio" in words:
            return "serve"
    return ""


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
    found: Figures = {"load": [round(value, 1) for value in os.getloadavg()], "memory": options.memory}
    with fresh_places(paths()):
        if "running" in options.parts:
            found["running"] = asyncio.run(measure_running(options))
        if "disk" in options.parts:
            found["disk"] = asyncio.run(measure_disk(options))
        if "listing" in options.parts:
            found["listing"] = measure_listing(options)
        if "clients" in options.parts:
            with (
                tempfile.TemporaryDirectory(prefix="qsb-") as directory,
                with_sshd(Path(directory), far_environ()) as far,
            ):
                found["clients"] = asyncio.run(measure_clients(options, far))
        for place in (paths().runtime / "ssh", paths().runtime / "hosts"):
            with suppress(OSError):
                place.rmdir()
    found["load_after"] = [round(value, 1) for value in os.getloadavg()]
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
