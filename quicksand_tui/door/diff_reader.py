"""Compares disks of a sandbox for the app: asks the engine, and makes its answers fit to show."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from quicksand.base.errors import HistoryError, QuicksandError
from quicksand_panes.guest_terminal import named

from quicksand_tui.door.typed import running_of
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.diffs import (
    ChangedPackage,
    ChangedPackages,
    ChangedPath,
    DiffSpec,
    DiffView,
    Losing,
    TextDiff,
    places_of,
)
from quicksand_tui.model.shown_sandboxes import Glance
from quicksand_tui.model.text import sanitise, sanitise_lines
from quicksand_tui.panes.last_lines import lines_of_output

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from quicksand.guest.shell import ShellInfo
    from quicksand.sandbox import Sandbox
    from quicksand.snapshots.comparison import Difference
    from quicksand_disks.changes import FileChange
    from quicksand_disks.comparing import FileVersions, PackageChange, Version

LETTERS = {"added": "A", "removed": "D", "changed": "M", "type-changed": "T"}
PACKAGE_LETTERS = {"added": "A", "removed": "D", "version-changed": "M"}
SHELL_LINES = 10
"""The most lines that are shown of a shell at a checkpoint."""
ANSWER_S = 2.0
"""Seconds to wait for a guest to list its terminals."""
LINES_MAX = 10_000
"""The most lines of a text that are shown."""


async def compare(sandbox: Sandbox, spec: DiffSpec, report: Callable[[int], None]) -> DiffView:
    """Returns the differences; ``report`` gets the steps done, perhaps on another thread."""
    found = await sandbox.compare(spec.a, spec.b, parent=spec.parent, on_progress=report)
    # There may be a million paths.
    return await asyncio.to_thread(_view_of, found)


async def compare_file(sandbox: Sandbox, spec: DiffSpec, path: str) -> TextDiff:
    """Returns the differences within a path."""
    found = await sandbox.compare_file(path, spec.a, spec.b, parent=spec.parent)
    return await asyncio.to_thread(_text_of, found)


async def write_patch(sandbox: Sandbox, spec: DiffSpec, below: str, file: Path) -> int:
    """Writes the differences below a path into a new file of this machine; returns the number of
    paths left out. Raises OSError."""
    patch = await sandbox.patch(spec.a, spec.b, parent=spec.parent, below=below)
    if not patch.data:
        raise HistoryError("there is nothing that a patch could say")
    await asyncio.to_thread(_write_new, file, patch.data)
    return len(patch.left_out)


async def losing(sandbox: Sandbox, checkpoint: str) -> Losing:
    """Returns the losses of going back to a checkpoint."""
    found = await sandbox.compare(checkpoint, lines=False)
    then = {made.id: made.created for made in sandbox.checkpoints()}.get(checkpoint, 0.0)
    shells = await _shells(sandbox) if found.is_live else []
    view = await asyncio.to_thread(_view_of, found)
    letters = [path.letter for path in view.paths if not path.is_directory]
    commands = [
        (shell.created > then, named(running_of(shell).command)) for shell in shells if shell.alive
    ]
    return Losing(
        added=letters.count("A"),
        changed=letters.count("M") + letters.count("T"),
        removed=letters.count("D"),
        places=places_of(view.paths),
        ending=tuple(name for is_new, name in commands if is_new),
        staying=tuple(name for is_new, name in commands if not is_new),
        read=found.read,
    )


async def shell_then(sandbox: Sandbox, checkpoint: str) -> Glance | None:
    """Returns a shell's last lines at a checkpoint; None if nobody kept them."""
    kept = await sandbox.checkpoint_shell(checkpoint)
    if kept is None:
        return None
    lines = await asyncio.to_thread(
        lines_of_output, kept.output, kept.columns, kept.rows, SHELL_LINES
    )
    return Glance(title=sanitise(kept.program, limit=60), lines=lines)


async def _shells(sandbox: Sandbox) -> list[ShellInfo]:
    """Returns the terminals in a guest; none if it does not answer."""
    with contextlib.suppress(QuicksandError, TimeoutError, OSError):
        async with asyncio.timeout(ANSWER_S):
            return await sandbox.shells()
    return []


def _write_new(file: Path, data: bytes) -> None:
    with file.open("xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _view_of(found: Difference) -> DiffView:
    return DiffView(
        paths=tuple(_path_of(change, found) for change in found.changes),
        packages=tuple(
            ChangedPackages(path=path, packages=tuple(map(_package_of, packages)))
            for path, packages in found.packages.items()
            if packages
        ),
        read=found.read,
        is_live=found.is_live,
        is_synced=found.is_synced,
    )


def _package_of(change: PackageChange) -> ChangedPackage:
    versions = [each for each in (change.before, change.after) if each is not None]
    return ChangedPackage(
        name=sanitise(change.name),
        letter=PACKAGE_LETTERS[change.kind],
        versions=sanitise(" → ".join(versions)),
    )


def _path_of(change: FileChange, found: Difference) -> ChangedPath:
    before, after = change.type_before, change.type_after
    remark = ""
    if change.kind == "type-changed":
        remark = f"{before} → {after}"
    elif change.differs not in ((), ("content",), ("content", "mtime")):
        remark = ", ".join(change.differs)
    elif (after or before) not in ("file", "directory"):
        remark = str(after or before).replace("-", " ")
    added, removed = found.lines.get(change.path, (None, None))
    return ChangedPath(
        path=change.path,
        names=tuple(sanitise(name) for name in change.path.split("/") if name),
        letter=LETTERS[change.kind],
        is_directory="directory" in (after or before or ""),
        size=change.size_before if change.size_after is None else change.size_after,
        added=added,
        removed=removed,
        remark=remark,
    )


def _text_of(found: FileVersions) -> TextDiff:
    before, after = found.before, found.after
    if before is None and after is None:
        return TextDiff(why="it is on neither disk any more")
    sides = [side for side in (before, after) if side is not None]
    facts = _facts(before, after)
    if any(side.data is None for side in sides):
        return TextDiff(lines=(*facts, *_too_much(sides)))
    if not found.is_text:
        return TextDiff(lines=(*facts, (" ", "It is binary.")))
    lines: list[tuple[str, str]] = []
    for hunk in found.hunks():
        lines.append(("@", hunk.head))
        for sign, line in hunk.lines:
            (text, *_) = sanitise_lines(line.decode("utf-8", "replace").rstrip("\n"))
            lines.append((sign, text))
            if not line.endswith(b"\n") and sides[0].type == "file":
                lines.append(("@", "(no line end)"))
        if len(lines) > LINES_MAX:
            lines[LINES_MAX:] = [("@", "(the rest is left out; a patch has all of it)")]
            break
    if not lines:
        return TextDiff(lines=(*facts, (" ", "The contents are the same.")))
    return TextDiff(lines=(*facts, *lines))


def _too_much(sides: list[Version]) -> list[tuple[str, str]]:
    if all(side.type == "file" for side in sides):
        return [(" ", "It is too large to be compared line by line.")]
    return [(" ", "It has no contents to compare.")]


def _facts(before: Version | None, after: Version | None) -> list[tuple[str, str]]:
    """Returns lines on type, permissions and size, where the text does not show them."""
    lines = []
    for sign, side, other in (("-", before, after), ("+", after, before)):
        if side is None:
            continue
        same = other is not None and (side.type, side.mode) == (other.type, other.mode)
        shown = side.type not in ("file", "symlink") or side.data is None or b"\0" in side.data
        if (not same and other is not None) or shown:
            kind = side.type.replace("-", " ")
            lines.append((sign, f"{kind} {side.mode:04o} {size_text(side.size)}"))
    return lines
