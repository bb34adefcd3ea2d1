"""Compares the two ways by which a port of the host can lead into a guest: QEMU's own network
(slirp's hostfwd), and the guest's agent, which dials. Prints JSON.

python bench/forwards.py [--mib 64] [--at-once 300 1000] [--image debian]

One sandbox has both, and each figure is taken by turns: the median time of a connection with a
small answer, MB/s each way, how many of a burst of connections get an answer, a reset (or an end
without data), or neither, and the answer of a service on the guest's own 127.0.0.1. `pss_mib` is
the memory of the process that carries the forwards, `keeper_pss_mib` that of the keeper.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from quicksand import NetworkMode, Sandbox
from quicksand.base.processes import running_modules
from quicksand.qemu.keeper_successor import widen_backlogs
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.records.layout import runtime_dir
from quicksand.warm.publishing import FORWARDER

PORT, OWN = 8080, 8081
ROUNDS = 40
"""Connections with a small answer."""

TURNS = 3
"""Turns of each direction in bulk."""

PATIENCE_S = 25.0
"""Seconds that a connection of a burst waits for its answer."""

MIB = 1 << 20

SERVER = """
import asyncio, resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
async def serve(reader, writer):
    try:
        what, _, rest = (await reader.readline()).decode().strip().partition(" ")
        if what == "send":
            for _ in range(int(rest)):
                writer.write(bytes(1 << 20))
                await writer.drain()
        elif what == "take":
            count = 0
            while data := await reader.read(1 << 20):
                count += len(data)
            writer.write(b"%d" % count)
        else:
            writer.write(b"answer")
        await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
async def main():
    await asyncio.start_server(serve, "0.0.0.0", 8080, backlog=4096)
    await asyncio.start_server(serve, "127.0.0.1", 8081, backlog=4096)
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def ask(port: int, line: bytes = b"hi\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(line)
        return await reader.read()
    finally:
        writer.close()


async def latency(port: int) -> float:
    """Milliseconds of a connection from its beginning to its end."""
    began = time.perf_counter()
    assert await ask(port) == b"answer"
    return (time.perf_counter() - began) * 1000


async def receive(port: int, mib: int) -> float:
    """MB/s from the guest."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    with contextlib.closing(writer):
        writer.write(b"send %d\n" % mib)
        count = 0
        while data := await reader.read(MIB):
            count += len(data)
    assert count == mib * MIB
    return count / 1e6 / (time.perf_counter() - began)


async def send(port: int, mib: int) -> float:
    """MB/s to the guest."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(b"take\n")
        for _ in range(mib):
            writer.write(bytes(MIB))
            await writer.drain()
        writer.write_eof()
        assert int(await reader.read()) == mib * MIB
    return mib * MIB / 1e6 / (time.perf_counter() - began)


async def burst(port: int, count: int) -> dict[str, Any]:
    async def one() -> str:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return "answer" if await ask(port) == b"answer" else "reset"
        except OSError as error:
            return "neither" if isinstance(error, TimeoutError) else "reset"

    began = time.perf_counter()
    found = Counter(await asyncio.gather(*(one() for _ in range(count))))
    return {**found, "seconds": round(time.perf_counter() - began, 2)}


def pss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return round(int(found[1]) / 1024, 1)


async def by_qemu(sandbox: Sandbox, guest: int) -> int:
    """Forward a port by QEMU's network; returns the host's."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    machine = runtime_dir(sandbox._parts.life.registry.paths, sandbox.id).current()
    hypervisor = await Qemu.connect(machine)
    try:
        await hypervisor.add_forward(f"tcp:127.0.0.1:{port}-10.0.2.15:{guest}")
    finally:
        await hypervisor.close()
    run = sandbox._parts.life.entry().run
    assert run is not None
    widen_backlogs(run.qemu_pid, [port])
    return port


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    others = {pid for pid, _ in running_modules({FORWARDER})}
    async with Sandbox(image=options.image, network_mode=NetworkMode.MOUNTS_ONLY) as sandbox:
        service = await sandbox.spawn(["python3", "-c", SERVER], detach=True)
        async for _ in service.output():
            break
        ways = {
            "slirp": (await by_qemu(sandbox, PORT), await by_qemu(sandbox, OWN)),
            "agent": ((await sandbox.forward(PORT)).host, (await sandbox.forward(OWN)).host),
        }
        found: dict[str, dict[str, Any]] = {way: {} for way in ways}
        taken: dict[str, dict[str, list[float]]] = {
            way: {"connection_ms": [], "from_guest_mb_s": [], "to_guest_mb_s": []} for way in ways
        }
        for _ in range(ROUNDS):
            for way, (port, _own) in ways.items():
                taken[way]["connection_ms"].append(await latency(port))
        for _ in range(TURNS):
            for way, (port, _own) in ways.items():
                taken[way]["from_guest_mb_s"].append(await receive(port, options.mib))
                taken[way]["to_guest_mb_s"].append(await send(port, options.mib))
        for way, (_port, own) in ways.items():
            for name, values in taken[way].items():
                found[way][name] = round(statistics.median(values), 1)
            found[way]["worst_connection_ms"] = round(max(taken[way]["connection_ms"]), 1)
            try:
                found[way]["own_loopback"] = (await ask(own)).decode() or "end"
            except OSError as error:
                found[way]["own_loopback"] = type(error).__name__
        for count in options.at_once:
            for way, (port, _own) in ways.items():
                found[way][f"burst_{count}"] = await burst(port, count)
        (forwarder,) = {pid for pid, _ in running_modules({FORWARDER})} - others
        found["agent"]["pss_mib"] = pss_mib(forwarder)
        run = sandbox._parts.life.entry().run
        assert run is not None
        found["slirp"]["keeper_pss_mib"] = pss_mib(run.keeper_pid)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--at-once", type=int, nargs="*", default=[300, 1000])
    parser.add_argument("--image", default="debian")
    print(json.dumps(asyncio.run(measure(parser.parse_args())), indent=2))


if __name__ == "__main__":
    main()
