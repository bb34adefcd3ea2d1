"""Rehearsing a revert: a guest that waits for one runs the first steps after it in advance.

QEMU's TCG discards all translated code when it loads a state, and translating what the first
command needs takes most of a revert's time. So the waiting guest runs that code beforehand. Once
the agent has answered, only the agent gets CPU time (``pause_others`` in its protocol), so the
user's programs hardly advance; and no packet leaves the machine.
"""

from __future__ import annotations

from quicksand.base.errors import AgentUnreachableError
from quicksand.base.hypervisor import Features, Hypervisor
from quicksand.guest import execution
from quicksand.guest.agent.session import Session
from quicksand.records.config import Accelerator, NetworkMode
from quicksand.records.nodes import Node
from quicksand.records.sandboxes import Record, RunState
from quicksand.snapshots import restore

LIMIT_S = 5.0
"""Seconds after which a rehearsal is given up. After as many seconds of the guest's clock the agent
resumes the other programs by itself."""

FIRST_COMMAND = ["/proc/self/exe", "rehearse"]
"""The agent's own program, which becomes the shell where that leaves no trace. An older agent, in
the memory of a checkpoint, prints its usage."""


def is_worth_it(record: Record, node: Node, run: RunState, features: Features) -> bool:
    """Whether a rehearsal saves time (only with TCG) and has no side effects: no packet may leave.
    It is not done where the guest must get another identity first, nor with extra QEMU arguments,
    which might add another network card."""
    is_same = node.owner in ("", record.id)
    is_quiet = features.holds_packets and not record.config.extra_qemu_args
    return run.accel == Accelerator.TCG and is_same and is_quiet


async def hold_packets(record: Record, hypervisor: Hypervisor) -> None:
    """Hold back the packets that the guest sends until `release_packets`. Raises MachineError."""
    if record.config.network_mode is not NetworkMode.NONE:
        await hypervisor.hold_packets()


async def release_packets(record: Record, hypervisor: Hypervisor) -> None:
    """Send the packets that were held back. Raises MachineError."""
    if record.config.network_mode is not NetworkMode.NONE:
        await hypervisor.release_packets()


async def go_through(session: Session, record: Record, node: Node) -> None:
    """Run the first steps in the running guest; its other programs are stopped afterwards. Raises
    AgentError."""
    await session.request("pause_others", {"seconds": LIMIT_S})
    await restore.repair_guest(session, record, node)
    params = execution.command_params(
        FIRST_COMMAND, timeout=LIMIT_S, cwd=None, shell="", user=None, env=None
    )
    command = await execution.spawn(session, params, stdin=False)
    await execution.run(command, stdin=None, on_stdout=None, on_stderr=None)


async def give_up() -> Session:
    """Raise AgentUnreachableError, where a revert would connect a second time."""
    raise AgentUnreachableError("the guest's agent did not answer at once")


async def let_go(session: Session) -> None:
    """Resume the guest's other programs. Raises AgentError."""
    await session.request("resume_others")
