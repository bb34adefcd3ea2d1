"""`quicksand-tui info, setup`: the abilities of this host, and the missing parts."""

from __future__ import annotations

import asyncio
import hashlib
import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.base.progress import Course
from quicksand.disks.images.boot_files import find_agent
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.recipes import recipe_names
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages.names import PUBLISHED
from quicksand.qemu.accelerator import find_accelerator
from quicksand.qemu.binaries import find_binaries
from quicksand.qemu.provision import SHARES, ensure_qemu
from quicksand.records.registry import Registry
from quicksand.things.status import Status
from quicksand_images import ensure_image
from quicksand_images.shares import TOOLS_UNTIL

from quicksand_tui import __version__
from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.images.building import BuildProgress
from quicksand_tui.cli.keeping.bundle_info import tell_bundle
from quicksand_tui.cli.output import print_json, print_table, say
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.runner import run_async
from quicksand_tui.home.state import config_file, state_dir
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import packages

PACKAGES = ("click", "platformdirs", "qemu.qmp", "textual")


@command_of("info")
def info_command(file: Path | None, as_json: bool) -> None:
    """Show the directories, versions and programs in use; `doctor` checks them.

    With FILE, a bundle (.quicksand), show what it holds: an image, a save, or a sandbox, its
    machine, its files and their digests. Nothing is unpacked.
    """
    if file is not None:
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
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {**found, "host": platform.platform()}


def _qemu() -> dict[str, Any]:
    try:
        found = find_binaries(Architecture.host().value)
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
    for arch in Architecture:
        try:
            path = find_agent(arch)
        except QuicksandError:
            found[arch.value] = None
        else:
            found[arch.value] = str(path)
            found[f"{arch.value} sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _sandboxes() -> dict[str, Any]:
    counts = Counter(entry.status for entry in Registry(paths()).list())
    return {status.value: counts[status] for status in Status if counts[status]}


@command_of("setup")
def setup_command(image: str, arch: str | None, no_image: bool) -> int:
    """Get all that a first start needs: QEMU 7.2 or newer, an accelerator, the default image.

    An image with a recipe is built; one that is only published is installed. Parts that are there
    already are left alone, so a second call takes only a moment. So is an image whose base was
    built anew since, which is told then.
    """
    wanted = Architecture.parse(arch) if arch else Architecture.host()
    return run_async(lambda _: _prepare(None if no_image else image, wanted))


async def _prepare(image: str | None, arch: Architecture) -> int:
    progress = BuildProgress("setup")
    course = Course(progress.stage)
    async with shown(progress.look):
        getting = course.part(SHARES, until=1.0 if image is None else TOOLS_UNTIL)
        binaries = await ensure_qemu(getting, arch=arch.value)
        say(f"ok QEMU {binaries.version_text} ({binaries.origin})")
        status = await find_accelerator(binaries, arch)
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
    store = ImageStore(paths().images)
    there = await asyncio.to_thread(store.get, name, arch)
    if there is not None and (there.errors or there.arch != arch.value):
        there = None
    if there is not None and there.package is not None:
        return there
    if name in recipe_names() or (there is None and name not in PUBLISHED):
        return await ensure_image(name, course.part(), arch=arch, store=store, any_base=True)
    if there is not None:
        return there
    found = await packages.install(name, arch=arch.debian).carry_out(
        "", lambda one: progress.stage(one.stage, one.done, one.total)
    )
    return found[-1].image
