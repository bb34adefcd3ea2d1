"""Images: what is known of one, wherever it is listed, and its keys in `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field

from quicksand.things.fact import shown, shown_of
from quicksand.things.frozen import frozen

DIGEST_SHOWN = 12
"""The digits of a digest that are shown."""


@frozen
class ImageInfo:
    """An image as it is listed."""

    name: str = shown(MISSING, head="NAME", json="name")
    version: str = shown("", head="VERSION", json="version", empty="")
    arch: str = shown("", head="ARCH", json="arch", empty="")
    size: int | None = shown(head="SIZE", kind="bytes", json="size")
    """Allocated bytes, None if unknown."""
    built: float | None = shown(head="AGE", kind="age", json="built")
    """Unix time at which it was put into the store."""
    source: str = shown("store", head="FROM", json="source")
    """"store", "package", "bundle", or "recipe" if it is built when first needed."""
    digest: str = shown("", head="DIGEST", drawn="short_digest", json="digest", empty="")
    created: float | None = shown(json="created")
    """Unix time of the newest file it was built from."""
    error: str = shown("", head="PROBLEM", rare=True, json="error")
    """The reason why it cannot be used; "" if it can."""
    machine: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The options that it suggests for its machines, as typed in a form, by their keywords; only
    the app looks for them."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def short_digest(self) -> str:
        return self.digest.removeprefix("sha256:")[:DIGEST_SHOWN]

    @property
    def is_built(self) -> bool:
        return self.source != "recipe"


IMAGE = shown_of(ImageInfo)
"""How the facts of an image are shown."""
