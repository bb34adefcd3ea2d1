"""Images: what is known of one, wherever it is listed."""

from __future__ import annotations

from quicksand.things.frozen import frozen


@frozen
class ImageInfo:
    """An image as it is listed."""

    name: str
    source: str = "store"
    """"store", "package", "bundle", or "recipe" if it is built when first needed."""
    version: str = ""
    digest: str = ""
    arch: str = ""
    size: int | None = None
    """Allocated bytes, None if unknown."""
    created: float | None = None
    """Unix time of the newest file it was built from."""
    built: float | None = None
    """Unix time at which it was put into the store."""
    error: str = ""
    """The reason why it cannot be used; "" if it can."""
