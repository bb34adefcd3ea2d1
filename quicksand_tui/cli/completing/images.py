"""Completes names of images."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem
from quicksand.base.paths import paths
from quicksand.disks.images.resolve import ImageResolver
from quicksand.life.image_building import buildable_images


def complete_images(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images."""
    sources = dict.fromkeys(buildable_images(), "not built yet")
    sources |= {image.name: image.source for image in ImageResolver(paths()).list()}
    return [
        CompletionItem(name, help=source)
        for name, source in sorted(sources.items())
        if name.startswith(incomplete)
    ]
