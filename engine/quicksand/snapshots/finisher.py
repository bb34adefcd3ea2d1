"""Finishing a revert in place that its client has left unfinished: its marks, and the program that
the keeper then starts (keeper_parts/finishing.py).

While the machine is marked as unfinished, the guest's memory is neither the present, which is given
up, nor the checkpoint. So the simplest way is right: the memory is thrown away, and the guest goes
on from the checkpoint in a new QEMU. In any case the present, which is complete in files by then,
is made a checkpoint (keeping.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from quicksand.base.effort import best_effort
from quicksand.base.faults import noting_faults
from quicksand.base.files import map_os_errors, write_json
from quicksand.base.paths import paths
from quicksand.qemu.keeper_parts.bounds import no_core_files
from quicksand.records.layout import MachineDir, sandbox_dir
from quicksand.records.nodes import Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots.present import Present
from quicksand.snapshots.successor import revert_in_new_qemu
from quicksand.snapshots.taking import working_on

PROGRAM = "quicksand.snapshots.finisher"
"""This module."""

PASSED = ("HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR", "USER")
PASSED_PREFIXES = ("QUICKSAND_", "XDG_")
"""Prefixes of the environment variables that the program gets: they locate all directories."""


def write_mark(machine: MachineDir, record: Record, node: Node) -> None:
    """Write the mark of a machine whose memory is about to be overwritten. Raises HostError."""
    program = {
        "argv": [sys.executable, "-P", "-m", PROGRAM],
        "env": {name: value for name, value in os.environ.items() if _is_passed(name)},
        "task": json.dumps({"sandbox": record.id, "node": node.id}),
    }
    write_json(machine.unfinished, program, durable=False)


def _is_passed(name: str) -> bool:
    return name in PASSED or name.startswith(PASSED_PREFIXES)


def pass_mark(machine: MachineDir) -> None:
    """Note that the guest has answered: only the present must still be stored. Raises HostError."""
    with map_os_errors(machine.unfinished):
        machine.unfinished.replace(machine.unstored)


def remove_marks(machine: MachineDir) -> None:
    """Note that the revert is finished and the present stored. Raises HostError."""
    for mark in (machine.unfinished, machine.unstored):
        with map_os_errors(mark):
            mark.unlink(missing_ok=True)


async def finish(registry: Registry, sandbox_id: str, node_id: str) -> None:
    """Keep the present, and have the sandbox go on from the checkpoint to which it was being
    reverted, unless another program has meanwhile done that, or reverted it to another checkpoint.
    Raises as `revert`."""
    entry = registry.inspect(sandbox_id)
    if entry is None or entry.record is None:
        return
    async with working_on(registry, entry.record, even_unfinished=True) as live:
        if live.is_unfinished:
            node = live.history.get(node_id)
            present = Present(live, node, {}, keep=False)
            await revert_in_new_qemu(registry, live, node, present, None)
        remove_marks(live.machine)


def _work(task: str) -> None:
    value = json.loads(task)
    registry = Registry(paths())
    sandbox_id, node_id = str(value["sandbox"]), str(value["node"])
    log = sandbox_dir(registry.paths, sandbox_id).engine_log
    with best_effort("finish the revert that a client has left", log):
        asyncio.run(finish(registry, sandbox_id, node_id))


if __name__ == "__main__":
    no_core_files()
    with noting_faults():
        _work(sys.stdin.read())
