"""`quicksand-tui save, snapshot, export, import`: keep a disk or a whole sandbox, on this host or
in one file. `info FILE` tells its facts from its manifest."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click
from quicksand.base.errors import PathError
from quicksand.base.paths import expand, paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.sandbox import Sandbox
from quicksand.saves.bundle.manifest import BundleBase, BundledSandbox, BundleKind
from quicksand.saves.bundle.unpacked import BundleHead, Contents, find_unpacked, read_contents
from quicksand.saves.resolving import left_out_of
from quicksand.saves.save_manifest import SaveManifest

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, print_json, print_table, say, show_age, show_size
from quicksand_tui.cli.progress_display import Rate, shown
from quicksand_tui.cli.runner import Signals, chosen_host, run_async
from quicksand_tui.model.specs import ExportSpec, ImportSpec
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import bundles
from quicksand_tui.verbs.saves import UNSYNCED

STREAM = "-"
"""Stands for stdout or stdin in place of FILE."""


@command_of("export")
def export_command(
    name: str,
    file: str,
    full: bool,
    tree: bool,
    image: bool,
    compress: bool | None,
    as_json: bool,
) -> int:
    """Write a save to one file, which `import` and `run` read on another host.

    Without --full, the other host must have the image that the save is based on. With --tree, NAME
    is a sandbox, running or stopped, and FILE gets its checkpoints with the guest's memory and
    every secret in it. With --image, NAME is an image. Only you can read FILE; - is stdout.
    """
    if as_json and file == STREAM:
        raise click.UsageError("--json and - as FILE do not go together: both are for stdout")
    if tree and image:
        raise click.UsageError("--tree and --image do not go together: NAME is one of them")
    target = _stdout() if file == STREAM else Path(file)
    rate = Rate(f"{name}: exporting")
    packed = tree if compress is None else compress
    spec = ExportSpec(file=file, full=full, compress=packed, replace=True)
    verb = bundles.export(name, spec, target=target, tree=tree, image=image)

    async def main(signals: Signals) -> int:
        async with chosen_host() as host, shown(rate.look):
            sent = await verb.carry_out(name, rate.take, host=host)
        _note(name, sent.exported.notes)
        if as_json:
            print_json({**verb.facts(name, sent), "file": str(Path(file).absolute())})
        elif file != STREAM:
            print(file, flush=True)
        return Exit.OK

    return run_async(main)


@command_of("import")
def import_command(
    file: str,
    name: str | None,
    replace: bool,
    trust: bool,
    memory_dir: Path | None,
    as_json: bool,
) -> int:
    """Import a file that `export` wrote: a save, a sandbox with its checkpoints, or an image.

    All of it is checked before any of it becomes visible, and nothing else is touched. A sandbox
    arrives stopped; `start --at TAG` continues from one of its checkpoints. Do that only with files
    of people whom you trust: QEMU does not defend itself against a forged machine state. FILE may
    be -, which is stdin.
    """
    if file == STREAM and sys.stdin.isatty():
        raise click.UsageError("stdin is a terminal: give a FILE, or pipe one in")
    rate = Rate(f"{name or file}: importing")

    async def main(signals: Signals) -> int:
        source = sys.stdin.buffer if file == STREAM else Path(file)
        spec = ImportSpec(file=file, name=name or "")
        verb = bundles.import_(
            spec, source=source, replace=replace, trusted=trust, memory_dir=memory_dir
        )
        async with chosen_host() as host, shown(rate.look):
            done = await verb.carry_out("", rate.take, host=host)
        _note(done.name, done.notes)
        if as_json:
            print_json(verb.facts("", done))
        else:
            print(done.name, flush=True)
        return Exit.OK

    return run_async(main)


def _stdout() -> BinaryIO:
    if sys.stdout.isatty():
        raise click.UsageError("stdout is a terminal: give a FILE, or pipe it somewhere")
    return sys.stdout.buffer


def _note(name: str, notes: Sequence[str]) -> None:
    for note in notes:
        say(clean(f"{name}: {note}"))


@command_of("snapshot")
def snapshot_command(
    name: str, file: Path, note: str, compress: bool, replace: bool, as_json: bool
) -> int:
    """Write the disk of the sandbox NAME, running or stopped, to FILE, a qcow2 image.

    `quicksand-tui run ./FILE` starts sandboxes from it, here or on any host that has the same
    image.
    """
    if file.exists() and not replace:
        raise PathError(f"{file} is there already", hint="choose another name, or --replace it")
    rate = Rate(f"{name}: writing {file}")

    async def main(signals: Signals) -> int:
        async with chosen_host() as host, shown(rate.look):
            with contextlib.closing(Sandbox.open(name, host=host)) as sandbox:
                made = await sandbox.snapshot(
                    file, note=note, compress=compress, report=rate.report
                )
        if as_json:
            facts = made.manifest.to_json()
            print_json({"sandbox": sandbox.name, "path": str(made.path), **facts})
        else:
            size = show_size(made.path.stat().st_blocks * 512)
            print_table(("FILE", "SIZE", "IMAGE"), [(str(file), size, made.manifest.config.image)])
            if made.manifest.unsynced:
                say(UNSYNCED)
        return Exit.OK

    return run_async(main)


RECORD = "/node.json"
"""The end of the names of the records of checkpoints in a bundle."""

DIGEST_SHOWN = 12


def tell_bundle(file: Path, *, as_json: bool) -> None:
    """Prints the contents of a bundle. Raises BundleError, ImageNotFound, PathError."""
    found = read_contents(expand(str(file)).absolute())
    if as_json:
        print_json(bundle_facts(found))
    else:
        print_table(("WHAT", "VALUE"), [(key, clean(value)) for key, value in _rows(found)])


def bundle_facts(found: Contents) -> dict[str, Any]:
    """Returns the facts of a bundle that is not unpacked."""
    head, store = found.head, ImageStore(paths().images)
    base = head.bundle.base if head.bundle is not None else head.image
    unpacked = find_unpacked(head, paths()) if head.kind is not BundleKind.TREE else None
    image = unpacked.image if unpacked is not None else ""
    return {
        "file": str(head.path),
        "size": found.size,
        "compressed": found.packed,
        "kind": head.kind.value,
        "name": head.name,
        "created": None if head.bundle is None else head.bundle.created,
        "full": head.bundle is None or head.bundle.is_full,
        "base": None if base is None else _base_facts(base, store),
        "machine": _machine(head),
        "asks": _asks(head),
        "layers": sum(name.endswith(".qcow2") for name in found.files),
        "checkpoints": sum(name.endswith(RECORD) for name in found.files),
        "files": [
            {"name": name, "size": size, "sha256": sha256 or None}
            for name, (size, sha256) in found.files.items()
        ],
        "unpacked": unpacked is not None,
        "image": image or None,
    }


def _base_facts(base: BundleBase, store: ImageStore) -> dict[str, Any]:
    return {
        "name": base.name,
        "version": base.version,
        "arch": base.arch,
        "digest": base.digest,
        "here": store.find_version(base.name, base.digest) is not None,
    }


def _machine(head: BundleHead) -> dict[str, Any]:
    """Returns the options of the machine that a save or sandbox has, or an image suggests."""
    config = None if head.bundle is None else head.bundle.config
    return dict(head.machine) if config is None else config.to_json()


def _asks(head: BundleHead) -> list[str]:
    """Returns the settings that it asks for and that a start leaves out without --trust."""
    config = None if head.bundle is None else head.bundle.config
    return [] if config is None else list(left_out_of(config))


def _rows(found: Contents) -> list[tuple[str, str]]:
    facts = bundle_facts(found)
    base, content = facts["base"], found.head.bundle and found.head.bundle.content
    rows = [
        ("kind", _kind(facts)),
        ("name", facts["name"]),
        ("size", show_size(facts["size"]) + (", compressed" if facts["compressed"] else "")),
    ]
    if facts["created"]:
        rows.append(("age", show_age(facts["created"])))
    if isinstance(content, SaveManifest) and content.note:
        rows.append(("note", content.note))
    if base is not None:
        what = "image" if facts["kind"] == BundleKind.IMAGE else "base"
        version = f" {base['version']}" if base["version"] else ""
        rows.append((what, f"{base['name']}{version}, {base['arch']}, {base['digest']}"))
    if facts["kind"] != BundleKind.IMAGE:
        rows.append(("base is", _where(facts)))
    if isinstance(content, BundledSandbox):
        rows.append(("checkpoints", str(facts["checkpoints"])))
    machine = {key: value for key, value in facts["machine"].items() if value not in (None, [])}
    rows += [(f"machine {key}", str(value)) for key, value in machine.items() if key != "image"]
    if facts["asks"]:
        rows.append(("left out", f"{'; '.join(facts['asks'])} (unless --trust)"))
    for file in facts["files"]:
        digest = (file["sha256"] or "no digest")[:DIGEST_SHOWN]
        rows.append((file["name"], f"{show_size(file['size'])}, {digest}"))
    unpacked = facts["image"] or ("yes" if facts["unpacked"] else "no, the first start does that")
    if facts["kind"] != BundleKind.TREE:
        rows.append(("unpacked here", unpacked))
    return rows


def _kind(facts: dict[str, Any]) -> str:
    if facts["kind"] == BundleKind.TREE:
        return "a sandbox with its checkpoints: `quicksand-tui import` takes it"
    return f"{facts['kind']}"


def _where(facts: dict[str, Any]) -> str:
    if facts["full"]:
        return "in the bundle"
    return "here" if facts["base"]["here"] else "not here, and not in the bundle"
