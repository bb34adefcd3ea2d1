"""The templates and spares that were prepared for an image, and are removed with it."""

from __future__ import annotations

from collections.abc import Iterable

from quicksand.base.effort import best_effort
from quicksand.base.paths import Paths
from quicksand.disks.images.stored_image import StoredImage
from quicksand.records.registry import Registry
from quicksand.warm.spares.discarding import end_useless
from quicksand.warm.templates import TemplateInfo, discard, list_templates


def templates_of(digests: Iterable[str], paths: Paths) -> list[TemplateInfo]:
    """Return the templates of images, given by their digests or the first digits of these."""
    wanted = tuple(filter(None, digests))
    return [t for t in list_templates(paths) if wanted and t.image_digest.startswith(wanted)]


def drop_prepared(images: Iterable[StoredImage], paths: Paths) -> None:
    """Remove the templates of images that are gone, and end their spares, which would keep the
    space."""
    for template in templates_of([image.root.name for image in images], paths):
        # Only the templates used last are kept: one that cannot be removed now goes later.
        with best_effort("remove a template of an image that is gone", paths.engine_log):
            discard(template.root)
    end_useless(Registry(paths))
