"""Images: what is known of one, wherever it is listed, and its keys in `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from quicksand.things.fact import shown, shown_of
from quicksand.things.frozen import frozen


@frozen
class ImageInfo:
    """An image as it is listed."""

    name: str = shown("", json="name")
    source: str = shown("store", json="source")
    """"store", "package", "bundle", or "recipe" if it is built when first needed."""
    version: str = shown("", json="version", empty="")
    digest: str = shown("", json="digest", empty="")
    arch: str = shown("", json="arch", empty="")
    size: int | None = shown(json="size")
    """Allocated bytes, None if unknown."""
    created: float | None = shown(json="created")
    """Unix time of the newest file it was built from."""
    built: float | None = shown(json="built")
    """Unix time at which it was put into the store."""
    error: str = shown("", json="error")
    """The reason why it cannot be used; "" if it can."""
    machine: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The options that it suggests for its machines, as typed in a form, by their keywords; only
    the app looks for them."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def is_built(self) -> bool:
        return self.source != "recipe"


IMAGE = shown_of(ImageInfo)
"""How the facts of an image are shown."""
