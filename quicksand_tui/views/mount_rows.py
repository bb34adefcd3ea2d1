"""Turns mounts into rows of a table, and into words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import MountState

from quicksand_tui.views.sandbox_rows import PADDING, rates_text
from quicksand_tui.views.tables import Cell, Column, Row, Words

if TYPE_CHECKING:
    from quicksand.things.mount_facts import MountFacts

    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World

_PATH_MIN, _PATH_MAX = 8, 60
TOLD_MAX = 3
"""The most files that are named in a line."""
_WITH_RATES = 70
"""Cells from which on there is room for the traffic of each mount."""


def plan_mount_columns(width: int) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells; the two paths share the rest."""
    fixed: tuple[Column, ...] = (Column("mode", "Mode", 5), Column("state", "State", 14))
    if width >= _WITH_RATES:
        fixed = (*fixed, Column("rates", "Traffic", 13))
    elif width < 48:
        fixed = (Column("mode", "Mode", 5), Column("state", "", 1))
    left = width - sum(column.width + PADDING for column in fixed) - 2 * PADDING
    guest = max(_PATH_MIN, min(_PATH_MAX, left * 2 // 5))
    host = max(_PATH_MIN, min(_PATH_MAX, left - guest))
    return (Column("guest", "Guest", guest), Column("host", "Host", host), *fixed)


def mount_row(mount: MountFacts) -> Row:
    is_now = mount.state.is_now
    state = Cell(mount.state.text, mount.state.role)
    if mount.told and mount.state is MountState.MOUNTED:
        state = Cell(f"! {len(mount.told)} to look at", "warning")
    cells = {
        "guest": Cell(mount.guest, "" if is_now else "muted", gives_way=True),
        "host": Cell(mount.host, "" if is_now else "muted", gives_way=True),
        "mode": Cell(mode_text(mount), "muted"),
        "state": state,
        "rates": Cell(rates_text(mount.traffic) if is_now else "", "muted"),
    }
    return Row(mount.key, cells)


def mode_text(mount: MountFacts) -> str:
    mode = "ro" if mount.readonly else "rw"
    return f"{mode} {mount.type}" if mount.type else mode


def mount_words(mount: MountFacts) -> list[Words]:
    """Returns a mount as one line."""
    state = "" if mount.state is MountState.MOUNTED else f" · {mount.state.value}"
    role = mount.state.role if mount.state is not MountState.MOUNTED else "muted"
    where = f"{mount.host} → {mount.guest}"
    marks = " · read-only" * mount.readonly + " · hooks protected" * mount.protect
    marks += f" · {mount.type}" * bool(mount.type)
    return [(where, ""), (marks, "muted"), (state, role)]


def told_words(mount: MountFacts) -> list[Words]:
    """Returns a line about files written by the guest that programs here run; nothing if none."""
    if not mount.told:
        return []
    shown = ", ".join(mount.told[:TOLD_MAX])
    more = f" and {len(mount.told) - TOLD_MAX} more" if len(mount.told) > TOLD_MAX else ""
    return [(f"! it wrote {shown}{more}: programs of the host run that", "warning")]


def no_mounts_text(world: World, sandbox: SandboxView | None) -> str:
    """Returns the text shown instead of an empty list."""
    if sandbox is None:
        return "No sandbox is selected." if world.loaded and world.sandboxes else ""
    if sandbox.network == "none":
        return "It has no network card, which mounts need."
    key = world.keymap.hint("mount")
    when = "" if sandbox.is_live else ", while it runs"
    return f"Nothing of this host is in it.\n{key} mounts a directory{when}."
