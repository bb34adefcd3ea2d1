"""Launching a second QEMU of a sandbox under the existing keeper, for a revert."""

from __future__ import annotations

from quicksand.base.files import map_os_errors
from quicksand.base.threads import in_thread_to_the_end
from quicksand.qemu.command import MachinePlan, plan
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.planning import Parts, make_run_state
from quicksand.qemu.process import Listeners
from quicksand.records.layout import MachineDir
from quicksand.records.sandboxes import RunState

FIRST_DESCRIPTOR = 128
"""The first number for descriptors passed to a QEMU that the keeper launches: usually above all
that the keeper itself has open, and low enough that all stay below 256, the most that a process of
macOS may have open (`ulimit -n`)."""


async def launch_second(
    keeper: KeeperLink,
    machine: MachinePlan,
    parts: Parts,
    directory: MachineDir,
    *,
    keeper_pid: int,
    token: str,
    run: str,
    origin: str,
) -> RunState:
    """Launch the planned ``machine``, whose ``directory`` was made for it; its VM is paused.
    ``keeper`` ends it when the link closes, unless told otherwise. The other parameters are fields
    of the `RunState`. Raises PathError, HostError, MachineError."""
    listeners = Listeners(directory)
    try:
        with map_os_errors(directory.root):
            await in_thread_to_the_end(listeners.open)
        numbers = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + len(listeners.descriptors))
        listeners.renumber(numbers)
        binaries = parts.binaries
        words = [*binaries.firmware_arguments, *plan(machine, listeners.inherited)]
        reply = await keeper.ask(
            "launch",
            name=directory.name,
            argv=[str(binaries.system), *words],
            descriptors=list(numbers),
            pass_descriptors=listeners.descriptors,
        )
    finally:
        listeners.close()
    pids = (keeper_pid, int(reply["pid"]))
    return make_run_state(machine, parts, listeners, pids=pids, token=token, run=run, origin=origin)
