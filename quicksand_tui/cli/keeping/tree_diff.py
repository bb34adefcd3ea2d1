"""`quicksand-tui checkpoint, revert, undo, tree, diff`: keep moments of a sandbox, go back to them,
and tell how they differ."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand.snapshots.history import history_of
from quicksand.snapshots.tree import list_checkpoints, read_tree

from quicksand_tui.cli import lazy_commands as lazy
from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import (
    Exit,
    complain,
    format_table,
    has_colour,
    is_unicode,
    print_json,
    say,
    show_age,
    show_size,
)
from quicksand_tui.model.amounts import clock_text, pause_text
from quicksand_tui.model.lanes import FANCY_LINES, PLAIN_LINES, LaneRow, lane_rows
from quicksand_tui.model.shown_sandboxes import FANCY, PLAIN, Marks
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import checkpoints

if TYPE_CHECKING:
    from quicksand.snapshots.comparison import Difference
    from quicksand.things.checkpoint import Checkpoint
    from quicksand_disks.changes import FileChange
    from quicksand_disks.comparing import PackageChange, Patch

    from quicksand_tui.cli.runner import Signals


HEADS = ("CHECKPOINT", "AGE", "PAUSE", "WRITTEN", "NOTE")
NOTE_MAX = 200
"""The longest note that is shown, in characters; `--json` has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The checkpoints of a sandbox, as they are on disk."""

    name: str
    checkpoints: list[Checkpoint]
    """The readable checkpoints, oldest first."""
    broken: dict[str, str]
    """The ids of unreadable checkpoints, and why each cannot be read."""
    head: str | None
    """The id of the checkpoint from which the sandbox has run on."""
    changed: int | None = None
    """Bytes written to the disk since ``head``; None if unknown."""

    @property
    def parents(self) -> dict[str, str | None]:
        """The id of each checkpoint's parent by the checkpoint's id. The parents of unreadable
        checkpoints are not known."""
        return dict.fromkeys(self.broken) | {made.id: made.parent for made in self.checkpoints}


@command_of("tree")
def tree_command(name: str, as_json: bool) -> None:
    """Show a sandbox's checkpoints as a tree, and its place among them.

    The sandbox may run or not. Automatic checkpoints, which `revert` takes, are dim. A checkpoint
    that cannot be read is shown with the reason.
    """
    past = read_past(name)
    if as_json:
        print_json(_facts(past))
        return
    for line in draw(
        past, FANCY if is_unicode(sys.stdout) else PLAIN, colour=has_colour(sys.stdout)
    ):
        print(line)
    sys.stdout.flush()
    if not past.checkpoints and not past.broken:
        shown = clean(past.name)
        say(f"there are no checkpoints yet: `quicksand-tui checkpoint {shown} TAG` takes one")


def read_past(name: str) -> Past:
    """Reads the checkpoints of a sandbox, which need not run. Raises SandboxNotFoundError."""
    registry = Registry(paths())
    entry = registry.find(name)
    tree = read_tree(history_of(registry, entry.id))
    if tree.error:
        complain(tree.error, hint="so it is unknown where the sandbox stands")
    return Past(
        name=entry.name,
        checkpoints=list_checkpoints(history_of(registry, entry.id)),
        broken=dict(tree.broken),
        head=tree.head,
        changed=tree.changed,
    )


def draw(past: Past, marks: Marks, *, colour: bool = False) -> list[str]:
    """Returns the tree as lines of text.

    Does not use `rich.tree`, which indents every generation: hundreds of checkpoints in a line stay
    in one column here. Nor has it columns for age, pause, size and note.
    """
    made = {checkpoint.id: checkpoint for checkpoint in past.checkpoints}

    def rank(id_: str) -> tuple[float, str]:
        return (made[id_].created if id_ in made else 0.0, id_)

    drawn = lane_rows(past.parents, past.head, rank, FANCY_LINES if marks is FANCY else PLAIN_LINES)
    width = max((row.width for row in drawn), default=0)
    rows: list[tuple[object, ...]] = [(past.name, "", "", "", "")]
    styles: list[dict[str, Any]] = [{}]
    for row in drawn:
        if not row.id:
            rows.append((_stem(row, "", width), "", "", "", ""))
            styles.append({})
        elif row.id in made:
            here = _here(past, marks) if row.id == past.head else ""
            mark = marks.head if row.id == past.head else marks.node
            rows.append(_row(_stem(row, mark, width), made[row.id], here=here))
            styles.append({"bold": row.id == past.head or None, "dim": made[row.id].auto or None})
        else:
            reason = past.broken[row.id][:NOTE_MAX]
            name = f"{_stem(row, marks.broken, width)}{row.id} (broken)"
            rows.append((name, "", "", "", reason))
            styles.append({"fg": "red"})
    head, *lines = format_table(HEADS, rows)
    if colour:
        head = click.style(head, bold=True)
        lines = [click.style(line, **style) for line, style in zip(lines, styles, strict=True)]
    return [head, *lines]


def _stem(row: LaneRow, mark: str, width: int) -> str:
    """Returns the drawing of a row in ``width`` cells, and a space."""
    before, after = ("".join(stroke.text for stroke in part) for part in (row.before, row.after))
    return f"{before}{mark}{after}".ljust(width + 1)


def _here(past: Past, marks: Marks) -> str:
    """Returns the mark of the sandbox's present state, with the bytes written to the disk since its
    checkpoint."""
    return f"{marks.here} +{show_size(past.changed)}" if past.changed else marks.here


def _row(stem: str, made: Checkpoint, *, here: str) -> tuple[object, ...]:
    pinned = " (pinned)" if made.pinned else ""
    return (
        f"{stem}{made.tag}{pinned}" + (f" {here}" if here else ""),
        show_age(made.created),
        pause_text(made.pause_s) if made.has_memory else made.tier,
        show_size(made.bytes_written),
        made.note[:NOTE_MAX],
    )


def _facts(past: Past) -> dict[str, Any]:
    return {
        "sandbox": past.name,
        "head": past.head,
        "changed": past.changed,
        "checkpoints": [
            {**checkpoints.facts_of(made), "is_head": made.id == past.head}
            for made in past.checkpoints
        ],
        "broken": [{"id": id_, "error": error} for id_, error in past.broken.items()],
    }


LETTERS = {"added": "A", "removed": "D", "changed": "M", "type-changed": "T"}
PACKAGES = {
    "added": ("A", "added"),
    "removed": ("D", "removed"),
    "version-changed": ("M", "of another version"),
}
"""The letter and the words for changes of packages, by the engine's names."""


@command_of("diff")
def diff_command(
    name: str, a: str, b: str | None, parent: bool, stat: bool, patch: bool, as_json: bool
) -> int:
    """Show the files that differ between checkpoint A and checkpoint B.

    Without B, A is compared with the disk as it is now; with --parent, its parent is compared with
    A. A marks an added path, D a removed one, M a changed one (in brackets, if more than its
    content changed), T one whose type changed. A moved file is listed as removed in one place and
    added in another.

    Packages of dpkg and apk that were added, removed or exchanged for another version are listed
    below the files; --json has them in the database's entry, as "packages".

    --patch writes a patch to stdout, for `git apply` or `patch -p1` in a directory with A's files.
    Large and binary files, devices, owners and empty directories are not in it.

    The files are read from the sandbox's disk; it may run or not, and nothing is booted. A running
    guest is asked first to write what it still holds in memory.
    """
    if parent and b is not None:
        raise click.UsageError("--parent compares A with its parent: leave B out")
    if sum((stat, patch, as_json)) > 1:
        raise click.UsageError("--stat, --patch and --json exclude each other")

    async def main(signals: Signals) -> int:
        entry = Registry(paths()).find(name)
        sandbox = lazy.Sandbox.open(entry.id)
        try:
            async with lazy.shown(f"{name}: comparing"):
                if patch:
                    _write_patch(await sandbox.patch(a, b, parent=parent))
                    return Exit.OK
                found = await sandbox.compare(a, b, parent=parent)
        finally:
            sandbox.close()
        if found.is_live:
            say(freshness(entry.name, found))
        if as_json:
            print_json([_diff_facts(change, found) for change in found.changes])
        elif stat:
            _show_lines(found)
        else:
            _show_changes(found)
        return Exit.OK

    return lazy.run_async(main)


def freshness(name: str, found: Difference) -> str:
    """Returns a note about the running sandbox whose disk was compared: when it was read, and
    whether the guest had written out its memory."""
    when = f"{clean(name)} is running: compared with its disk at {clock_text(found.read)}"
    if found.is_synced:
        return when
    return f"{when}, without what its guest still holds in memory"


def _diff_facts(change: FileChange, found: Difference) -> dict[str, Any]:
    added, removed = found.lines.get(change.path, (None, None))
    facts = {**asdict(change), "lines_added": added, "lines_removed": removed}
    if (packages := found.packages.get(change.path)) is not None:
        facts["packages"] = [{**asdict(each), "kind": each.kind} for each in packages]
    return facts


def _write_patch(patch: Patch) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(patch.data)
    sys.stdout.buffer.flush()
    for path, why in patch.left_out:
        say(f"not in the patch: {clean(path)}: {why}")


def _show_changes(found: Difference) -> None:
    if found.changes:
        rows = [_diff_row(change, found) for change in found.changes]
        for line in format_table(("",) * 5, rows)[1:]:
            print(line)
    packages = [each for some in found.packages.values() for each in some]
    if packages:
        print()
        for line in format_table(("",) * 3, [_package_row(each) for each in packages])[1:]:
            print(line)
    say(counts_text(found.changes) or "no file differs")
    _say_packages(found)


def _say_packages(found: Difference) -> None:
    kinds = [str(each.kind) for some in found.packages.values() for each in some]
    counts = [
        f"{count} {word}" for kind, (_, word) in PACKAGES.items() if (count := kinds.count(kind))
    ]
    if counts:
        say(f"packages: {', '.join(counts)}")


def _package_row(package: PackageChange) -> tuple[str, ...]:
    versions = [each for each in (package.before, package.after) if each is not None]
    letter, _ = PACKAGES[package.kind]
    return letter, f"package {package.name}", " -> ".join(versions)


def counts_text(changes: Any) -> str:
    """Returns the numbers of paths by kind of change."""
    kinds = [change.kind for change in changes]
    return ", ".join(f"{count} {kind}" for kind in LETTERS if (count := kinds.count(kind)))


def _diff_row(change: FileChange, found: Difference) -> tuple[str, ...]:
    """Returns the cells of a changed file: letter, path, lines, size, remarks."""
    before, after = change.type_before, change.type_after
    remarks = ""
    if change.kind == "type-changed":
        remarks = f"({before} -> {after})"
    elif change.differs not in ((), ("content",), ("content", "mtime")):
        remarks = f"({', '.join(change.differs)})"
    lines = found.lines.get(change.path)
    return (
        LETTERS[change.kind],
        _path(change),
        "" if lines is None else "+{} -{}".format(*lines),
        _sizes(change),
        remarks,
    )


def _path(change: FileChange) -> str:
    is_directory = "directory" in (change.type_after or change.type_before or "")
    return change.path + "/" * (is_directory and change.path != "/")


def _sizes(change: FileChange) -> str:
    before, after = change.size_before, change.size_after
    known = [show_size(size) for size in (before, after) if size is not None]
    return known[0] if before == after and known else " -> ".join(known)


def _show_lines(found: Difference) -> None:
    """Prints the lines added and removed in each file, and their sums."""
    rows = []
    added = removed = 0
    for change in found.changes:
        if "directory" in (change.type_after or change.type_before or ""):
            continue
        lines = found.lines.get(change.path)
        if lines is None:
            rows.append((change.path, f"{LETTERS[change.kind]}  {_sizes(change)}"))
        else:
            added, removed = added + lines[0], removed + lines[1]
            rows.append((change.path, "{}  +{} -{}".format(LETTERS[change.kind], *lines)))
    if rows:
        for line in format_table(("", ""), rows)[1:]:
            print(line)
    files = f"{len(rows)} file{'s' * (len(rows) != 1)}"
    say(f"{files}, {added} lines added, {removed} removed" if rows else "no file differs")
    _say_packages(found)
