"""The verbs that put host directories into running sandboxes: `mount`, `unmount`, `mounts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import RUNS

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import shown
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Report, attach
from quicksand_tui.verbs.parameters import JSON, MAYBE_SANDBOXES, SANDBOX
from quicksand_tui.verbs.verb import Kind, argument, command, flag, verb

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.model.specs import MountSpec


@verb("mount",
    SANDBOX,
    argument("mount", Kind.MOUNT, "HOST:GUEST[:ro|:protect]", on_line=True),
    module=".guests.mount_unmount", summary="Mount a directory of this host in a running sandbox.",
    states=RUNS)  # fmt: skip
def mount(mount: MountSpec) -> Call[None]:
    """Mount a directory of this host in a running sandbox, until `unmount` or until it stops.

    HOST is a directory here, GUEST an absolute path there, which is made if it is missing. With :ro
    nobody in the sandbox can change anything in the directory, not even root. With :protect nobody
    there can change files that programs of the host run unasked, such as git's hooks and the tasks
    of editors. A revert leaves the directory as it is. `run -v HOST:GUEST` mounts it at each start.
    """

    async def act(sandbox: Sandbox, _: Report) -> None:
        await sandbox.mount(
            mount.host,
            mount.guest,
            mount.readonly,
            type=mount.type or lazy_engine.CIFS,
            protect=mount.protect,
        )

    return Call(
        job=JobVerb.MOUNT,
        failed="The directory is not mounted",
        stage=f"mounting {mount.guest}",
        open=attach,
        act=act,
        tell=lambda name, _, keymap: f"{name} has {mount.host} at {mount.guest}",
    )


@verb("unmount",
    SANDBOX,
    argument("guest", Kind.MOUNTED, "GUEST", on_line=True),
    flag("--force -f", "Unmount it even while programs use it; they get errors."),
    module=".guests.mount_unmount", summary="Unmount a directory of this host from a sandbox.",
    states=RUNS)  # fmt: skip
def unmount(guest: str, *, force: bool = False) -> Call[None]:
    """Unmount a directory of this host from a running sandbox. The directory itself stays.

    This is refused while a program in the sandbox uses it. With --force it is unmounted in any
    case: such programs get errors, and data that they have not written yet are lost. One that
    `mounts` lists as `not mounted` is taken from that list.
    """
    return Call(
        job=JobVerb.UNMOUNT,
        failed="The directory is still mounted",
        stage=f"unmounting {shown(guest)}",
        open=attach,
        act=lambda sandbox, _: sandbox.unmount(guest, force=force),
        tell=lambda name, _, keymap: f"{shown(guest)} is unmounted from {name}",
    )


MOUNTS = command(
    "mounts",
    ".guests.mount_unmount",
    "List the directories of this host that are in sandboxes.",
    MAYBE_SANDBOXES,
    JSON,
    reads=True,
)
