"""A guest that waits for a revert goes through the first steps after one beforehand.

An emulating QEMU drops all code that it has translated when it loads a state; to translate again
what the first command needs is most of a revert's time. So it is done while the guest waits.
From the agent's first answer on no program but the agent gets a processor (`pause_others` of its
protocol), so little gets ahead by that; and no packet leaves.
"""

from __future__ import annotations

from quicksand import execution
from quicksand.agent.session import Session
from quicksand.config import Accelerator, NetworkMode
from quicksand.errors import AgentUnreachableError
from quicksand.qemu.qmp import Monitor
from quicksand.registry import Record, RunState
from quicksand.snapshots import restore
from quicksand.snapshots.records import Node

LIMIT_S = 5.0
"""A guest that takes longer does without. So long, by the guest's clock, its programs stand still
if nobody lets them go on."""

FIRST_COMMAND = ["/proc/self/exe", "--version"]
"""The agent's own: a program of the user's could leave traces."""

_FILTER = "hold"
_LONGEST_US = 2**32 - 1  # what QEMU's filter-buffer takes (qapi/qom.json)


def is_worth_it(record: Record, node: Node, run: RunState) -> bool:
    """Whether there is code to translate, and it can be done unheard. Not where the guest must get
    another identity first, nor where its QEMU has what we know nothing of: another network card,
    say."""
    is_same = node.owner in ("", record.id)
    return run.accel == Accelerator.TCG and is_same and not record.config.extra_qemu_args


async def hold_packets(record: Record, monitor: Monitor) -> None:
    """What the guest sends is kept until `release_packets`. Raises MachineError."""
    if record.config.network_mode is not NetworkMode.NONE:
        await monitor.execute(
            "object-add",
            **{"qom-type": "filter-buffer", "id": _FILTER, "netdev": "net0"},
            queue="rx",
            interval=_LONGEST_US,
        )


async def release_packets(record: Record, monitor: Monitor) -> None:
    """Raises MachineError."""
    if record.config.network_mode is not NetworkMode.NONE:
        await monitor.execute("object-del", id=_FILTER)


async def go_through(session: Session, record: Record, node: Node) -> None:
    """The guest runs; its programs stand still afterwards. Raises AgentError."""
    await session.request("pause_others", {"seconds": LIMIT_S})
    await restore.repair_guest(session, record, node)
    params = execution.command_params(
        FIRST_COMMAND, timeout=LIMIT_S, cwd=None, shell="", user=None, env=None
    )
    command = await execution.spawn(session, params, stdin=False)
    await execution.run(command, stdin=None, on_stdout=None, on_stderr=None)


async def give_up() -> Session:
    """In place of asking a second time."""
    raise AgentUnreachableError("the guest's agent did not answer at once")


async def let_go(session: Session) -> None:
    """The guest's programs run again. Raises AgentUnreachableError."""
    await session.request("resume_others")
