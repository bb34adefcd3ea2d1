"""Waiting until a booted guest is ready for its user: the agent answers long before a desktop is
there."""

from __future__ import annotations

import time
from dataclasses import replace

from quicksand.base.errors import AgentError, AgentRefusedError
from quicksand.base.progress import COLD, STAGES, Progress
from quicksand.guest.agent.session import Session
from quicksand.qemu.started_machine import StartedMachine

READY = "/usr/lib/quicksand/ready"
"""A program that an image may have; it ends with 0 when the guest is ready for its user."""

START_S = 180.0
"""Seconds that a start waits for READY. A desktop takes a minute on a busy host that emulates."""

COMMAND_S = 20
"""Seconds for the agent to start a program, and to report its end."""

DESKTOP = "desktop"
"""The stage of a start, after those of `Stopwatch`."""


async def run_if_there(session: Session, program: str, limit_s: float) -> object:
    """Run a program that an image may have; returns its exit code, 0 if there is none, or None if
    it did not end within ``limit_s``. Raises AgentError."""
    params = {"command": f"[ ! -x {program} ] || exec {program}", "timeout": limit_s}
    try:
        reply = await session.request("execute", params, timeout=limit_s + COMMAND_S)
    except AgentRefusedError as error:
        if error.parameter != "shell":
            raise
        return 0  # an image without a shell has no such program either
    return None if reply.get("timed_out") else reply.get("exit_code") or 0


async def with_desktop(
    machine: StartedMachine, progress: Progress | None = None, *, limit_s: float = START_S
) -> StartedMachine:
    """Wait until the desktop of a machine that has just booted is there; at once if the machine has
    no display or did not boot. Returns the machine, with a notice if the desktop did not come
    within ``limit_s``. Raises MachineError if it has ended."""
    if not machine.record.config.enable_display or machine.timing.mode != COLD:
        return machine
    if progress is not None:
        progress(DESKTOP, len(STAGES), len(STAGES) + 1)
    began = time.monotonic()
    try:
        session = await machine.link.session()
        code = await run_if_there(session, READY, limit_s)
        why = _why_not(code, limit_s)
    except AgentError as error:
        why = f"the guest cannot be asked whether its desktop is there: {error}"
    took = time.monotonic() - began
    return replace(
        machine,
        timing=replace(machine.timing, post_boot_s=machine.timing.post_boot_s + took),
        notices=(*machine.notices, why) if why else machine.notices,
    )


def _why_not(code: object, limit_s: float) -> str:
    """Return the notice for the user when READY ended with ``code``; "" if the desktop is there."""
    if code is None:
        return (
            f"the desktop was not there after {limit_s:g} s; the sandbox runs, and `screenshot` "
            "shows how far it is"
        )
    if code:
        return f"it is not known whether the desktop is there: {READY} ended with {code!r}"
    return ""
