"""The verbs that move saves and sandboxes to other hosts by file: `snapshot`, `export`,
`import`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Unpack

from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Report
from quicksand_tui.verbs.parameters import FILE, JSON, NOTE, SANDBOX
from quicksand_tui.verbs.saves import SHOWN_MAX, bytes_to, time_text
from quicksand_tui.verbs.verb import Kind, argument, command, flag, option

if TYPE_CHECKING:
    from quicksand.records.params import HostPlaces
    from quicksand.saves.bundle.exporting import Exported
    from quicksand.saves.bundle.receiving import Imported

    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.specs import ExportSpec, ImportSpec


class Sent(NamedTuple):
    """The result of an export."""

    exported: Exported
    file: Path | None
    """The file; None if the export went to a stream."""
    size: int
    """Bytes of the file."""
    seconds: float


# fmt: off
SNAPSHOT = command("snapshot", ".keeping.export_import",
    "Write a sandbox's disk to a portable file.",
    SANDBOX,
    argument("file", Kind.FILE, "FILE"),
    NOTE,
    flag("--compress", "Compress the file, which takes longer."),
    flag("--replace", "Replace FILE if it exists."),
    JSON)

EXPORT = command("export", ".keeping.export_import",
    "Write a save, a sandbox or an image to one file.",
    argument("name", Kind.EXPORTED, "NAME"),
    FILE,
    flag("--full", "Include the image, so that FILE needs nothing else."),
    flag("--tree", "Export the sandbox NAME with all its checkpoints and their memory."),
    flag("--image", "Export the image NAME."),
    flag("--compress/--no-compress",
         "Compress FILE (Zstandard).  [default: only with --tree]"),
    JSON)

IMPORT = command("import", ".keeping.export_import",
    "Import a save, a sandbox or an image from an exported file.",
    FILE,
    option("--name", Kind.TEXT, "NEW", "Give it another name."),
    flag("--replace", "Move a save that has this name to the trash."),
    flag("--trust",
         "Accept the network, ports and QEMU arguments that FILE brings."),
    option("--memory-dir", Kind.DIRECTORY, "DIR",
           "Put the memory of a sandbox's checkpoints into this directory."),
    JSON)
# fmt: on


def export(
    source: str | Path,
    spec: ExportSpec,
    *,
    shown: str = "",
    target: Path | BinaryIO | None = None,
    tree: bool = False,
    image: bool = False,
) -> Call[Sent]:
    """Writes a save, given by name or path, with ``tree`` a sandbox, or with ``image`` an image to
    one file, or to ``target``. Commands use the word ``shown`` for it."""

    async def run(_: str, report: Report) -> Sent:
        from quicksand import saves  # noqa: PLC0415

        there = Path(spec.file).expanduser().absolute() if target is None else target
        if isinstance(there, Path) and not spec.replace and there.exists():
            raise lazy_engine.PathError(
                f"there is {there} already", hint="choose another name, or replace it"
            )
        started = time.monotonic()
        done = await saves.export(
            source,
            there,
            full=spec.full,
            tree=tree,
            image=image,
            compress=spec.compress,
            progress=bytes_to(report),
        )
        spent = time.monotonic() - started
        file = there if isinstance(there, Path) else None
        return Sent(done, file, file.stat().st_size if file is not None else 0, spent)

    return Call(
        verb=EXPORT,
        values={
            "full": spec.full,
            "compress": spec.compress,
            "name": shown or str(source),
            "file": spec.file or "FILE",
        },
        job=JobVerb.EXPORT,
        failed="No file was written",
        run=run,
        spec=spec,
        tell=_tell_sent,
        facts=lambda _, sent: {**asdict(sent.exported), "file": str(Path(spec.file).absolute())},
    )


def _tell_sent(_: str, sent: Sent, keymap: Keymap) -> Told:
    done = sent.exported
    file, size = sanitise(str(sent.file)), size_text(sent.size)
    summary = f"{sanitise(done.name, limit=60)} is in {file}: {size}"
    if not done.full:
        return Told(summary=f"{summary}; whoever imports it needs {sanitise(done.base)}")
    return Told(summary=f"{summary} in {time_text(sent.seconds)}")


def import_(
    spec: ImportSpec,
    *,
    source: Path | BinaryIO | None = None,
    replace: bool = False,
    trusted: bool = False,
    **places: Unpack[HostPlaces],
) -> Call[Imported]:
    """Imports what a file, or ``source``, holds: a save, a stopped sandbox, for which ``places``
    of this host can be chosen, or an image."""

    async def run(_: str, report: Report) -> Imported:
        from quicksand import saves  # noqa: PLC0415

        there = Path(spec.file).expanduser().absolute() if source is None else source
        return await saves.import_(
            there,
            name=spec.name or None,
            replace=replace,
            trusted=trusted,
            **places,
            progress=bytes_to(report),
        )

    return Call(
        verb=IMPORT,
        values={"name": spec.name, "file": spec.file or "FILE"},
        job=JobVerb.IMPORT,
        failed="Nothing was imported",
        run=run,
        spec=spec,
        tell=_tell_imported,
        facts=lambda _, done: {**asdict(done), "root": str(done.root)},
    )


def _tell_imported(_: str, done: Imported, keymap: Keymap) -> Told:
    name, kind = sanitise(done.name, limit=200), str(done.kind.value)
    what = {"save": "save", "tree": "sandbox", "image": "image"}.get(kind, kind)
    lines = [f"It is the {what} {name}: {size_text(done.size)} were in the file."]
    if done.checkpoints:
        lines.append(f"It has {done.checkpoints} checkpoints; it can be started at each.")
    if done.base:
        came = "came with it" if done.image_added else "was here"
        lines.append(f"The image below it, {sanitise(done.base)}, {came}.")
    lines += [f"Know that {sanitise(note)}" for note in done.notes[:SHOWN_MAX]]
    return Told(summary=f"{name} is imported", lines=tuple(lines))
