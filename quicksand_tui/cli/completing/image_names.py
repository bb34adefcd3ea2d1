"""Completes names of images."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem
from quicksand.base.paths import paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import BUNDLE_SUFFIX, ImageResolver
from quicksand.life.image_building import buildable_images

from quicksand_tui.cli.completing.words import a_file, beginning


def complete_images(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images; a word with a slash is a path."""
    if "/" in incomplete:
        return a_file(incomplete)
    sources = dict.fromkeys(buildable_images(), "not built yet")
    sources |= {image.name: image.source for image in ImageResolver(paths()).list()}
    here = Path().glob(f"*{BUNDLE_SUFFIX}")
    sources |= {path.name: "a bundle" for path in here if path.is_file()}
    return beginning(incomplete, sorted(sources.items()))


def complete_stored(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images that are in the store."""
    store = ImageStore(paths().images)
    found = {image.root.parent.name: image.version for image in store.list()}
    found |= {image.versioned: f"from {image.bundle}" for image in store.unpacked()}
    return beginning(incomplete, sorted(found.items()))


def complete_recipes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of recipes, and files of one's own; a word with a slash is a path."""
    if "/" in incomplete:
        return a_file(incomplete)
    names = [*buildable_images(), *(path.name for path in Path().glob("*.toml"))]
    return beginning(incomplete, ((name, "") for name in sorted(names)))
