"""`quicksand-tui info, setup, config, du, clean`: all that the program has on this host, what it
lacks there, and what it can do without."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths

from quicksand_tui import __version__
from quicksand_tui.cli import lazy_commands as lazy
from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, complain, print_json, print_table, say, show_size
from quicksand_tui.home.state import config_file, is_config_named, state_dir
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import packages

if TYPE_CHECKING:
    from quicksand.base.arch import Architecture
    from quicksand.base.processes import Process
    from quicksand.base.progress import Course
    from quicksand.disks.images.stored_image import StoredImage
    from quicksand.life.cleaning import Heap
    from quicksand.life.disk_usage import Usage

    from quicksand_tui.cli.progress_display import BuildProgress


PACKAGES = ("click", "platformdirs", "qemu.qmp", "textual")


@command_of("info")
def info_command(file: Path | None, as_json: bool) -> None:
    """Show the directories, versions and programs in use; `doctor` checks them.

    With FILE, a bundle (.quicksand), show what it holds: an image, a save, or a sandbox, its
    machine, its files and their digests. Nothing is unpacked.
    """
    if file is not None:
        from quicksand_tui.cli.keeping.export_import import tell_bundle  # noqa: PLC0415

        tell_bundle(file, as_json=as_json)
        return
    facts = _facts()
    if as_json:
        print_json(facts)
        return
    rows = [
        (group, key, "" if value is None else value)
        for group, values in facts.items()
        for key, value in values.items()
    ]
    print_table(("", "WHAT", "VALUE"), rows)


def _facts() -> dict[str, dict[str, Any]]:
    return {
        "places": _places(),
        "versions": _versions(),
        "qemu": _qemu(),
        "agent": _agent(),
        "sandboxes": _sandboxes(),
    }


def _places() -> dict[str, Any]:
    found = paths()
    return {
        "config": str(config_file()),
        "state": str(state_dir()),
        "runtime": str(found.runtime),
        "data": str(found.data),
        "cache": str(found.cache),
        "sandboxes": str(found.sandboxes),
        "images": str(found.images),
        "saves": str(found.saves),
        "memory": None if found.memory is None else str(found.memory),
    }


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {"quicksand-tui": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = lazy.version(package)
        except lazy.PackageNotFoundError:
            found[package] = None
    return {**found, "host": platform.platform()}


def _qemu() -> dict[str, Any]:
    try:
        found = lazy.find_binaries(lazy.Architecture.host().value)
    except QuicksandError as error:
        return {"error": text_of(error)}
    return {
        "program": str(found.system),
        "version": found.version_text,
        "from": found.origin,
        "qemu-img": str(found.img) if found.img is not None else None,
    }


def _agent() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for arch in lazy.Architecture:
        try:
            path = lazy.find_agent(arch)
        except QuicksandError:
            found[arch.value] = None
        else:
            found[arch.value] = str(path)
            found[f"{arch.value} sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _sandboxes() -> dict[str, Any]:
    counts = Counter(entry.status for entry in lazy.Registry(paths()).list())
    return {status.value: counts[status] for status in lazy.Status if counts[status]}


@command_of("setup")
def setup_command(image: str, arch: str | None, no_image: bool) -> int:
    """Get all that a first start needs: QEMU 7.2 or newer, an accelerator, the default image.

    An image with a recipe is built; one that is only published is installed. Parts that are there
    already are left alone, so a second call takes only a moment. So is an image whose base was
    built anew since, which is told then.
    """
    wanted = lazy.Architecture.parse(arch) if arch else lazy.Architecture.host()
    return lazy.run_async(lambda _: _prepare(None if no_image else image, wanted))


async def _prepare(image: str | None, arch: Architecture) -> int:
    progress = lazy.BuildProgress("setup")
    course = lazy.Course(progress.stage)
    async with lazy.shown(progress.look):
        getting = course.part(lazy.SHARES, until=1.0 if image is None else lazy.TOOLS_UNTIL)
        binaries = await lazy.ensure_qemu(getting, arch=arch.value)
        say(f"ok QEMU {binaries.version_text} ({binaries.origin})")
        status = await lazy.find_accelerator(binaries, arch)
        why = f"; {status.error}" if status.error else ""
        say(f"ok accelerator {status.accelerator}{why}")
        if image is not None:
            found = await _ready_image(image, arch, progress, course)
            say(clean(f"ok image {found.name} {found.version} ({found.digest[:12]})"))
    return 0


async def _ready_image(
    name: str, arch: Architecture, progress: BuildProgress, course: Course
) -> StoredImage:
    """Builds an image, or installs a published one. Raises as these do."""
    store = lazy.ImageStore(paths().images)
    there = await asyncio.to_thread(store.get, name, arch)
    if there is not None and (there.errors or there.arch != arch.value):
        there = None
    if there is not None and there.package is not None:
        return there
    if name in lazy.recipe_names() or (there is None and name not in lazy.PUBLISHED):
        return await lazy.ensure_image(name, course.part(), arch=arch, store=store, any_base=True)
    if there is not None:
        return there
    found = await packages.install(name, arch=arch.debian).carry_out(
        "", lambda one: progress.stage(one.stage, one.done, one.total)
    )
    return found[-1].image


@command_of("clean")
def clean_command(dry_run: bool, yes: bool, as_json: bool) -> int:
    """Empty the trash, and remove files that can be made again.

    Sandboxes, saves, images and checkpoints stay, and so does everything in use. QEMU processes of
    sandboxes that no longer exist are ended.
    """
    if as_json and not (dry_run or yes):
        raise click.UsageError("--json goes with --dry-run or --yes: it asks nothing")
    cleaner = lazy.Cleaner(paths())
    heaps, orphans = cleaner.look(), lazy.find_orphans()
    if dry_run:
        if as_json:
            print_json(_heap_facts(heaps, orphans, None))
        else:
            _print(heaps, orphans)
        return Exit.OK
    if not as_json:
        _print(heaps, orphans)
    if not orphans and not any(not heap.kept for heap in heaps):
        say("there is nothing to remove")
    elif not yes and not _agreed():
        return Exit.FAILURE
    lazy.end_orphans(orphans)
    freed = cleaner.clean(heaps)
    if as_json:
        print_json(_heap_facts(heaps, orphans, freed))
    else:
        say(f"{show_size(freed)} are free again")
    return Exit.OK


def _agreed() -> bool:
    if sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm("Remove all this?", default=False, err=True)
    complain("nobody can be asked, so nothing was removed", hint="say --yes")
    return False


def _print(heaps: list[Heap], orphans: list[Process]) -> None:
    rows: list[tuple[object, ...]] = [
        (
            heap.kind.value,
            len(heap.paths),
            show_size(heap.frees),
            f"stay: {heap.kept}" if heap.kept else lazy.COST[heap.kind],
        )
        for heap in heaps
    ]
    for orphan in orphans:
        what = f"{orphan.kind} {orphan.pid} of {orphan.of}, which is gone: it is ended"
        rows.append(("process", 1, "", clean(what)))
    rows.append(("total", "", show_size(sum(heap.frees for heap in heaps)), ""))
    print_table(("WHAT", "NUMBER", "FREES", ""), rows)


def _heap_facts(heaps: list[Heap], orphans: list[Process], freed: int | None) -> dict[str, Any]:
    return {
        "freed": freed,
        "orphans": [
            {"kind": orphan.kind.value, "pid": orphan.pid, "of": orphan.of} for orphan in orphans
        ],
        "heaps": [
            {
                "kind": heap.kind.value,
                "paths": [str(path) for path in heap.paths],
                "frees": heap.frees,
                "kept": heap.kept or None,
            }
            for heap in heaps
        ],
    }


@command_of("du")
def du_command(each: bool, as_json: bool) -> None:
    """Show how much disk space sandboxes, saves, images and the rest take.

    Deleting a whole group frees its OWN bytes; SHARED ones belong to others, too. The total counts
    every file once.
    """
    usage = lazy.measure_disk(paths())
    if as_json:
        print_json(_usage_facts(usage))
        return
    if each:
        _print_items(usage)
    else:
        _print_rows(usage)
    say("`quicksand-tui clean` removes what can be made again; --each lists every thing")


def _print_rows(usage: Usage) -> None:
    rows: list[tuple[object, ...]] = []
    for row in usage.rows():
        shared = show_size(row.shared) if row.shared else ""
        rows.append((row.kind.value, row.number, show_size(row.own), shared))
    rows.append(("total", len(usage.items), show_size(usage.total), ""))
    print_table(("WHAT", "NUMBER", "OWN", "SHARED"), rows)


def _print_items(usage: Usage) -> None:
    items = sorted(usage.items, key=lambda item: item.footprint.size, reverse=True)
    rows: list[tuple[object, ...]] = [
        (
            item.kind.value,
            item.name,
            show_size(item.footprint.own),
            show_size(item.footprint.shared) if item.footprint.shared else "",
            item.path,
        )
        for item in items
    ]
    rows.append(("total", "", show_size(usage.total), "", ""))
    print_table(("WHAT", "NAME", "OWN", "SHARED", "PATH"), rows)


def _usage_facts(usage: Usage) -> dict[str, Any]:
    return {
        "total": usage.total,
        "kinds": [
            {"kind": row.kind.value, "number": row.number, "own": row.own, "shared": row.shared}
            for row in usage.rows()
        ],
        "items": [
            {
                "kind": item.kind.value,
                "name": item.name,
                "path": str(item.path),
                "own": item.footprint.own,
                "shared": item.footprint.shared,
            }
            for item in usage.items
        ],
    }


@command_of("config")
@click.pass_context
def config_command(ctx: click.Context) -> None:
    """Check, find or create the app's config: colours, keys, read-only.

    Without a further word the config is checked. The app reads it at its start, and again when it
    changes; QUICKSAND_CONFIG names another file.

    \b
    quicksand-tui config example --write   creates one
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_check())


@command_of("config path")
def path() -> None:
    """Print the path of the config, even if there is none yet."""
    click.echo(os.fspath(config_file()))


@command_of("config check")
def check() -> int:
    """Check the config.

    Problems are listed by line, and the exit status is 2 if there are any.
    """
    return _check()


def _check() -> int:
    place = config_file()
    shown = clean(place)
    loaded = lazy.read_config(place, must_exist=is_config_named())
    if loaded.config.theme:
        loaded = lazy.check_theme(loaded, _themes())
    for problem in loaded.problems:
        complain(problem.text, about=shown if problem.line or problem.key else "")
    if loaded.problems:
        return Exit.USAGE
    exists = place.exists()
    click.echo(f"{shown}: {'no problems' if exists else 'there is none, which is fine'}")
    return Exit.OK


def _themes() -> Collection[str]:
    """Returns the names of the app's themes. Imports Textual, which other commands never do."""
    from quicksand_tui.ui.themes import theme_names  # noqa: PLC0415

    return theme_names()


@command_of("config example")
def example(write: bool) -> int:
    """Print a config that changes nothing.

    It has all settings and all keys as comments.
    """
    if write:
        return _begin(lazy.example_config())
    click.echo(lazy.example_config(), nl=False)
    return Exit.OK


def _begin(text: str) -> int:
    """Writes the first config; an existing one is left alone. Returns the exit code."""
    place = config_file()
    shown = clean(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        complain(f"there is {shown} already", hint="without --write the example is printed")
        return Exit.FAILURE
    click.echo(shown)
    return Exit.OK


@command_of("config keys")
def keys() -> int:
    """Show what the config calls each key that you press.

    q twice ends this.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain("there is no terminal to press keys in")
        return Exit.USAGE
    from quicksand_tui.ui.key_tester import KeyTester  # noqa: PLC0415

    KeyTester().run()
    return Exit.OK
