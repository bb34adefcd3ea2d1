"""Finishing a revert in place that its client has begun and not finished: its mark, and the program
that the keeper starts then (keeper_parts/finishing.py), which goes on from the checkpoint in a new
QEMU.

What the guest has in memory is neither the present, which is given up, nor the checkpoint. So what
is simplest is right: all of it is thrown away.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from quicksand.base.effort import best_effort
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
"""The variables of the environment that the program gets: they tell where everything is."""


def write_mark(machine: MachineDir, record: Record, node: Node) -> None:
    """Write the mark of a machine whose memory is about to be written anew. Raises HostError."""
    program = {
        "argv": [sys.executable, "-P", "-m", PROGRAM],
        "env": {name: value for name, value in os.environ.items() if _is_passed(name)},
        "task": json.dumps({"sandbox": record.id, "node": node.id}),
    }
    write_json(machine.unfinished, program, durable=False)


def _is_passed(name: str) -> bool:
    return name in PASSED or name.startswith(PASSED_PREFIXES)


def remove_mark(machine: MachineDir) -> None:
    """Remove the mark: the guest has answered. Raises HostError."""
    with map_os_errors(machine.unfinished):
        machine.unfinished.unlink(missing_ok=True)


async def finish(registry: Registry, sandbox_id: str, node_id: str) -> None:
    """Have the sandbox go on from the checkpoint to which it was being reverted, unless somebody
    has done that, or reverted it to another one, meanwhile. Raises as `revert`."""
    entry = registry.inspect(sandbox_id)
    if entry is None or entry.record is None:
        return
    async with working_on(registry, entry.record, even_unfinished=True) as live:
        if live.is_unfinished:
            node = live.history.get(node_id)
            present = Present(live, node, {}, keep=False)
            await revert_in_new_qemu(registry, live, node, present, None)


def _work(task: str) -> None:
    value = json.loads(task)
    registry = Registry(paths())
    sandbox_id, node_id = str(value["sandbox"]), str(value["node"])
    log = sandbox_dir(registry.paths, sandbox_id).engine_log
    with best_effort("finish the revert that a client has left", log):
        asyncio.run(finish(registry, sandbox_id, node_id))


if __name__ == "__main__":
    no_core_files()
    _work(sys.stdin.read())
