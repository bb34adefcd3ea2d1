"""Completes names of packages: of images, and of QEMU."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem
from quicksand.base.paths import paths
from quicksand.disks.packages.names import PUBLISHED
from quicksand.life.image_users import installed_images
from quicksand.qemu.provision import unpacked_versions

from quicksand_tui.cli.completing.words import a_file, beginning

QEMU = "qemu"


def complete_installed(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images that were installed from packages, and qemu if it was."""
    found = {image.name: image.version for image in installed_images(paths())}
    if versions := unpacked_versions(paths()):
        found[QEMU] = versions[0]
    return beginning(incomplete, sorted(found.items()))


def complete_packages(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of published images, and files of wheels; a word with a slash is a path."""
    if "/" in incomplete:
        return a_file(incomplete)
    names = [*PUBLISHED, QEMU, *(path.name for path in Path().glob("*.whl"))]
    return beginning(incomplete, ((name, "") for name in sorted(names)))
