"""Puts directories of this host into running sandboxes: `mount`, `unmount`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.verbs import engine
from quicksand_tui.verbs.commands import words_about
from quicksand_tui.verbs.record import Report, SandboxVerb, attach, no_result

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.model.specs import MountSpec


def mount(spec: MountSpec) -> SandboxVerb[None]:
    """Mounts a directory of this host in a running sandbox."""

    async def act(sandbox: Sandbox, _: Report) -> None:
        await sandbox.mount(
            spec.host,
            spec.guest,
            spec.readonly,
            type=spec.type or engine.CIFS,
            protect=spec.protect,
        )

    mode = ":ro" if spec.readonly else ":protect" if spec.protect else ""
    return SandboxVerb(
        name="mount",
        values={"mount": f"{spec.host or 'HOST'}:{spec.guest or 'GUEST'}{mode}"},
        job=JobVerb.MOUNT,
        failed="The directory is not mounted",
        stage=f"mounting {spec.guest}",
        words=lambda subject: words_about(
            "mount", subject, mount=f"{spec.host}:{spec.guest}{mode}"
        ),
        open=attach,
        act=act,
        there=no_result,
        tell=lambda name, _, keymap: f"{name} has {spec.host} at {spec.guest}",
    )


def unmount(
    guest: str, *, force: bool = False, host: str = "", shown: str = ""
) -> SandboxVerb[None]:
    """Takes away what is mounted at the path ``guest``, which the app shows as ``shown``; with
    ``force`` even if programs use it. It is the directory ``host`` of this host."""
    shown = shown or guest
    return SandboxVerb(
        name="unmount",
        flags=("force",) if force else (),
        values={"guest": shown},
        job=JobVerb.UNMOUNT,
        failed="The directory is still mounted",
        stage=f"unmounting {shown}",
        open=attach,
        act=lambda sandbox, _: sandbox.unmount(guest, force=force),
        words=lambda subject: words_about(
            "unmount", subject, *(("force",) if force else ()), guest=guest
        ),
        there=no_result,
        tell=lambda name, _, keymap: f"{name} has no longer {host} at {shown}",
    )
