"""Commands in a running sandbox, and its use of the host while nothing runs in it."""

from __future__ import annotations

import asyncio
import hashlib
import resource
import sys
import time
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING

from quicksand.base.processes import process_usage

from quicksand_tui.cli.measuring.figure import Figure, Say, timed
from quicksand_tui.cli.measuring.measured import GUEST_S, qemu_pid, require

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox


async def run_process(*words: str) -> tuple[float, bytes]:
    """Returns the seconds of a command until its process has ended, and its output on stdout.
    Raises RuntimeError if it fails."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "quicksand_tui", *words, stdout=PIPE, stderr=PIPE
    )
    output, complaint = await process.communicate()
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        said = complaint.decode(errors="replace").strip()
        raise RuntimeError(f"`{' '.join(words)}` exited with {process.returncode}: {said}")
    return seconds, output


SETTLE_S = 20.0
PROCESSES = 10
"""The number of whole processes that are started for a figure."""


async def measure_running(sandbox: Sandbox, runs: int, stream_mb: int, say: Say) -> list[Figure]:
    """Measures one running sandbox."""
    say("commands, and half a minute of idling")
    ping = Figure("round trip to the agent", "ms")
    true = Figure('execute("true")', "ms")
    for _ in range(max(20, runs)):
        ping.values.append(await sandbox.ping() * 1000)
        true.values.append(await timed(lambda: sandbox.execute("true")) * 1000)
    whole = Figure("`exec NAME -- true`, the whole process", "ms")
    for _ in range(PROCESSES):
        seconds, _output = await run_process("exec", sandbox.id, "--", "true")
        whole.values.append(seconds * 1000)
    parallel = Figure("20 commands in parallel", "s")
    sleeps = Figure("three `sleep 3` at once", "s")
    parallel.values.append(
        await timed(lambda: asyncio.gather(*(sandbox.execute("echo x") for _ in range(20))))
    )
    sleeps.values.append(
        await timed(lambda: asyncio.gather(*(sandbox.execute("sleep 3") for _ in range(3))))
    )
    idle = Figure("host CPU of an idle sandbox", "% of a core")
    # A kernel stays busy for a moment after it has booted.
    await asyncio.sleep(SETTLE_S)
    idle.values.append(await idle_cpu(sandbox, seconds=10.0))
    say(f"streaming {stream_mb} MB")
    return [ping, true, whole, parallel, sleeps, idle, *await measure_stream(sandbox, stream_mb)]


async def idle_cpu(sandbox: Sandbox, *, seconds: float) -> float:
    """Returns the CPU time that QEMU takes while the guest is idle, in percent of one core."""
    pid = qemu_pid(sandbox)
    before = process_usage(pid)[0]
    await asyncio.sleep(seconds)
    return (process_usage(pid)[0] - before) / seconds * 100


async def measure_stream(sandbox: Sandbox, megabytes: int) -> list[Figure]:
    """Streams a file out of the guest through a command's stdout and compares digests."""
    make = f"head -c {megabytes}M /dev/urandom > /var/tmp/stream && sha256sum /var/tmp/stream"
    made = require(await sandbox.execute(make, timeout=GUEST_S), "making a file to stream")
    read = await sandbox.execute("cat /var/tmp/stream > /dev/null", timeout=GUEST_S)
    require(read, "reading that file")
    digest = hashlib.sha256()
    started = time.perf_counter()
    async with await sandbox.spawn("cat /var/tmp/stream") as command:
        async for _, data in command.output():
            digest.update(data)
    seconds = time.perf_counter() - started
    if digest.hexdigest() != made.split()[0]:
        raise RuntimeError("the stream's SHA-256 is not the file's")
    await sandbox.execute("rm /var/tmp/stream")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure(f"stdout of {megabytes} MB, equal SHA-256", "MB/s", [megabytes / seconds]),
        Figure("peak memory of this client", "MiB", [memory]),
    ]
