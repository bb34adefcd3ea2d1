"""`quicksand-tui demo`: goes through the main features without a screen, and proves that each
works."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import click
from quicksand import QuicksandError, Sandbox
from quicksand.base.faults import is_fault, note_fault

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.model.amounts import pause_text, seconds_text
from quicksand_tui.model.remedy_words import FAULT, hint_of, text_of

WORK = "/root/work"
"""The directory of the guest that the demo destroys."""


@dataclass(slots=True)
class Step:
    """A step of the demo."""

    name: str
    ok: bool = False
    seconds: float = 0.0
    detail: str = ""


@dataclass(slots=True)
class Report:
    """All steps so far. Prints each step as it ends, unless the output is JSON."""

    say: Callable[[str], None]
    steps: list[Step] = field(default_factory=list)
    boot_mode: str = ""
    """The way the sandbox started: "cold boot", "template" or "spare"."""

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[Step]:
        """Times a step. If the step raises, it counts as failed and the exception ends the demo."""
        step = Step(name)
        self.steps.append(step)
        started = time.perf_counter()
        try:
            yield step
            step.ok = True
        except Exception as error:
            step.detail = _told(error)
            raise
        finally:
            step.seconds = time.perf_counter() - started
            mark = "ok  " if step.ok else "FAIL"
            self.say(
                f"{mark} {step.seconds:7.3f} s  {name}" + (f": {step.detail}" * bool(step.detail))
            )


class UnexpectedError(QuicksandError):
    """A step has not done what it should."""


def _told(error: Exception) -> str:
    return FAULT if is_fault(error) else text_of(error) or type(error).__name__


def expect(condition: bool, message: str) -> None:
    """Raises UnexpectedError with ``message`` unless ``condition`` is true."""
    if not condition:
        raise UnexpectedError(message)


async def play(report: Report, image: str, say: Callable[[str], None]) -> None:
    """Runs every step. Raises the error of the first that fails; removes the sandbox anyway."""
    sandbox = Sandbox(image=image)
    try:
        async with report.step("start a sandbox") as step:
            await sandbox.start()
            timing = sandbox.boot_timing
            report.boot_mode = timing.mode if timing is not None else ""
            step.detail = f"{sandbox.accelerator}, {image}, {report.boot_mode}"
        async with report.step("first command") as step:
            result = await sandbox.execute("uname -srm && id -un")
            expect(result.exit_code == 0, result.stderr)
            step.detail = " ".join(result.stdout.split())
        async with report.step("streamed output, as it comes") as step:
            pieces = await _stream(sandbox, say)
            expect(pieces >= 3, f"only {pieces} pieces arrived apart")
            step.detail = f"{pieces} pieces"
        async with report.step("exit code, both streams apart"):
            result = await sandbox.execute("echo out; echo err >&2; exit 3")
            expect((result.stdout, result.stderr) == ("out\n", "err\n"), repr(result))
            expect(result.exit_code == 3, f"exit code {result.exit_code}")
        async with report.step("a command that never ends is ended"):
            result = await sandbox.execute("echo begun; sleep 60", timeout=0.5)
            expect(result.timed_out and result.stdout == "begun\n", repr(result))
        async with report.step("files in and out") as step:
            content = bytes(range(256)) * 4096
            await sandbox.files.write("/tmp/demo.bin", content)  # noqa: S108 - in the guest
            back = await sandbox.files.read("/tmp/demo.bin")  # noqa: S108
            expect(back == content, "the file came back different")
            step.detail = f"{len(content) // 1024} KiB, equal"
        async with report.step("a terminal") as step:
            step.detail = await _terminal(sandbox)
        await _go_back(report, sandbox)
        await _clone(report, sandbox)
    finally:
        async with report.step("stop"):
            await sandbox.stop()
            left = [entry for entry in Sandbox.list() if entry.id == sandbox.id]
            expect(not left, "the sandbox is still listed")


async def _stream(sandbox: Sandbox, say: Callable[[str], None]) -> int:
    arrivals: list[float] = []

    def on_stdout(text: str) -> None:
        arrivals.append(time.perf_counter())
        say(f"       | {text.rstrip()}")

    result = await sandbox.execute(
        "for i in 1 2 3; do echo tick $i; sleep 0.2; done", on_stdout=on_stdout
    )
    expect(result.exit_code == 0, result.stderr)
    return 1 + sum(b - a > 0.05 for a, b in pairwise(arrivals))


async def _terminal(sandbox: Sandbox) -> str:
    """Types into a shell and reads the answer from its screen."""
    shell = await sandbox.shell(columns=100, rows=30)
    await shell.write(b"stty size; echo sum=$((20+22))\n")
    seen = b""
    async with asyncio.timeout(20):
        async for data in shell.output():
            seen += data
            if b"sum=42" in seen:
                break
    expect(b"30 100" in seen, "the terminal has not the size that was asked for")
    await shell.close()
    return "100x30, the shell answers"


SETUP = f"mkdir {WORK}; seq 1000 > {WORK}/numbers; mkfifo /dev/shm/ask /dev/shm/answer"
COUNTER = "n=0; while read _ < /dev/shm/ask; do n=$((n+1)); echo $n > /dev/shm/answer; done"
"""A program of the guest that counts requests. The count exists only in its memory."""

ASK = "echo > /dev/shm/ask; cat /dev/shm/answer"


async def _go_back(report: Report, sandbox: Sandbox) -> None:
    """Takes a checkpoint, does damage, reverts, undoes the revert; checks memory and disk each
    time."""
    async with report.step("checkpoint") as step:
        await _run(sandbox, SETUP)
        await sandbox.spawn(COUNTER, detach=True)
        before = await _run(sandbox, ASK)
        made = await sandbox.checkpoint("before")
        step.detail = f"paused for {pause_text(made.pause_s)}, tier {made.tier}"
    async with report.step("damage") as step:
        await _run(sandbox, f"rm -rf {WORK}; {ASK}")
        step.detail = await _expect_state(sandbox, files=False, count=int(before) + 2)
    async with report.step("revert"):
        await sandbox.revert("before")
    async with report.step("all is as it was") as step:
        step.detail = await _expect_state(sandbox, files=True, count=int(before) + 1)
    async with report.step("undo the revert"):
        await sandbox.undo()
    async with report.step("the damage has returned") as step:
        step.detail = await _expect_state(sandbox, files=False, count=int(before) + 3)


MARK = "head -c 1M /dev/urandom | tee /root/mark > /dev/shm/mark; sync"
SUMS = "sha256sum /root/mark /dev/shm/mark"
NAMES = "hostname; cat /etc/machine-id"


async def _clone(report: Report, sandbox: Sandbox) -> None:
    """Clones the sandbox: the clone has the same files and processes under another name, and
    changes independently from then on."""
    async with report.step("clone") as step:
        await _run(sandbox, MARK)
        count = int(await _run(sandbox, ASK))
        (clone,) = await sandbox.clone()
        timing = clone.boot_timing
        step.detail = f"from a {timing.mode}" if timing is not None else ""
    try:
        async with report.step("its memory and disk are the same") as step:
            sums = [await _run(each, SUMS) for each in (sandbox, clone)]
            expect(sums[0] == sums[1], "the files of the clone are different")
            expect(int(await _run(clone, ASK)) == count + 1, "its process has not gone on")
            step.detail = f"equal SHA-256, its process counts on to {count + 1}"
        async with report.step("its names are its own") as step:
            mine, its = [(await _run(each, NAMES)).split() for each in (sandbox, clone)]
            expect(not set(mine) & set(its), f"both have {set(mine) & set(its)}")
            step.detail = f"host names {mine[0]} and {its[0]}, machine-ids differ"
        async with report.step("they part") as step:
            await _run(clone, f"rm /root/mark /dev/shm/mark; {ASK}")
            expect(await _run(sandbox, SUMS) == sums[0], "the source has changed with its clone")
            counted = int(await _run(sandbox, ASK))
            expect(counted == count + 1, f"the source counts {counted}, not {count + 1}")
            step.detail = "what is done in one does not reach the other"
    finally:
        async with report.step("remove the clone"):
            await clone.stop()
            left = [entry for entry in sandbox.list() if entry.id == clone.id]
            expect(not left, "the clone is still listed")


async def _expect_state(sandbox: Sandbox, *, files: bool, count: int) -> str:
    """Raises UnexpectedError unless files and counter are as expected; otherwise describes them."""
    there = await sandbox.files.exists(f"{WORK}/numbers")
    expect(there is files, f"the files are {'there' if there else 'gone'}")
    if there:
        lines = (await _run(sandbox, f"cat {WORK}/numbers")).split()
        expect(lines == [str(n) for n in range(1, 1001)], "the file came back different")
    counted = int(await _run(sandbox, ASK))
    expect(counted == count, f"the process counts {counted}, not {count}")
    return f"files {'there' if there else 'gone'}, the process in memory counts {counted}"


async def _run(sandbox: Sandbox, command: str) -> str:
    result = await sandbox.execute(command)
    expect(result.exit_code == 0, result.stderr)
    return result.stdout


@command_of("demo")
def demo_command(image: str, as_json: bool) -> None:
    """Run through the main steps without a screen: start a sandbox, use it, check each step, stop.

    The exit status is 0 only if every step succeeded.
    """

    def say(line: str) -> None:
        if not as_json:
            print(line, flush=True)

    report = Report(say)
    started = time.perf_counter()
    failure: Exception | None = None
    try:
        asyncio.run(play(report, image, say))
    except Exception as error:  # noqa: BLE001 - whatever it was, the report tells and the exit code says
        failure = error
    seconds = time.perf_counter() - started
    if as_json:
        steps = [
            {"name": s.name, "ok": s.ok, "seconds": round(s.seconds, 4), "detail": s.detail}
            for s in report.steps
        ]
        facts = {"ok": failure is None, "seconds": round(seconds, 3)}
        print(json.dumps({**facts, "boot_mode": report.boot_mode or None, "steps": steps}))
    elif failure is None:
        say(f"all of it happened, in {seconds_text(seconds)}")
    if failure is not None:
        hint = note_fault(failure) if is_fault(failure) else hint_of(failure)
        click.echo(f"demo failed: {_told(failure)}" + (f"\nhint: {hint}" if hint else ""), err=True)
        sys.exit(1)
