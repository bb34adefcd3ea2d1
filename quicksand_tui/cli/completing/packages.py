"""Completes names of images that were installed from packages."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem
from quicksand.base.paths import paths
from quicksand.life.uninstalling import installed_images


def complete_installed(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images that were installed from packages."""
    found = {image.name: image.version for image in installed_images(paths())}
    return [
        CompletionItem(name, help=version)
        for name, version in sorted(found.items())
        if name.startswith(incomplete)
    ]
