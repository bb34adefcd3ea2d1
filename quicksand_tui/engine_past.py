"""What the service does about checkpoints, on the engine's loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.past import CheckpointView
    from quicksand_tui.specs import CheckpointSpec

CLONES_AT_ONCE = 2
"""Started beside each other: more would only wait for the CPU."""


Stay = Callable[["Sandbox"], None]
"""Keeps a sandbox from being let go of: it makes its next revert ready."""


@contextlib.contextmanager
def _opened(sandbox_id: str, stay: Stay | None = None) -> Iterator[Sandbox]:
    """The sandbox, running or not; let go of at the end, but for one that may ``stay``."""
    from quicksand.sandbox import Sandbox

    sandbox = Sandbox.open(sandbox_id)
    try:
        yield sandbox
    except BaseException:
        sandbox.close()
        raise
    (stay or Sandbox.close)(sandbox)


async def checkpoint(sandbox_id: str, spec: CheckpointSpec, stay: Stay) -> CheckpointView:
    from quicksand_tui.past_reader import view_of

    with _opened(sandbox_id, stay) as sandbox:
        return view_of(await sandbox.checkpoint(spec.tag or None, note=spec.note))


async def revert(sandbox_id: str, checkpoint_id: str, stay: Stay) -> CheckpointView:
    from quicksand_tui.past_reader import view_of

    with _opened(sandbox_id, stay) as sandbox:
        return view_of(await sandbox.revert(checkpoint_id))


async def undo(sandbox_id: str) -> CheckpointView:
    from quicksand_tui.past_reader import view_of

    with _opened(sandbox_id) as sandbox:
        return view_of(await sandbox.undo())


async def clone(sandbox_id: str, count: int, *, at: str) -> list[str]:
    """Names of the new sandboxes, which outlive this process."""
    with _opened(sandbox_id) as sandbox:
        clones = await sandbox.clone(count, concurrency=CLONES_AT_ONCE, at=at or None)
    for made in clones:
        made.detach()
        made.close()
    return [made.name for made in clones]


async def pin(sandbox_id: str, checkpoint_id: str, *, pinned: bool) -> None:
    with _opened(sandbox_id) as sandbox:
        await sandbox.pin_checkpoint(checkpoint_id, pinned)


async def write_note(sandbox_id: str, checkpoint_id: str, note: str) -> None:
    with _opened(sandbox_id) as sandbox:
        await sandbox.note_checkpoint(checkpoint_id, note)


async def delete(sandbox_id: str, checkpoint_id: str) -> None:
    with _opened(sandbox_id) as sandbox:
        await sandbox.delete_checkpoint(checkpoint_id)
