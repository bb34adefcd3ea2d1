"""Removes images that were installed from packages, unless something needs them."""

from __future__ import annotations

from dataclasses import dataclass

from quicksand.base.errors import ImageNotFound, StateError
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages.names import image_of
from quicksand.disks.packages.wanted import Wanted
from quicksand.life.image_users import ImageUsers
from quicksand.life.prepared_images import drop_prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Uninstalled:
    """A package whose images have been removed."""

    name: str
    """The name of the image."""
    versions: tuple[StoredImage, ...]
    """The versions that were removed."""
    now: StoredImage | None
    """The version from which new sandboxes now boot, and which did not come from the uninstalled
    package; None if there is none."""


def installed_images(paths: Paths) -> list[StoredImage]:
    """List all versions of images that were installed from packages. Blocks for I/O."""
    store = ImageStore(paths.images)
    found = [one for image in store.list() for one in store.versions(image.root.parent.name)]
    return [image for image in found if image.package is not None]


def uninstall(wanted: Wanted, paths: Paths) -> Uninstalled:
    """Remove the images that installations of a package have put into the store; built or imported
    ones stay. Blocks for I/O.

    Raises ImageNotFound if it is not installed, StateError naming the users of an image, HostError;
    an image that is needed is left as it is.
    """
    store, name = ImageStore(paths.images), image_of(wanted.package)
    doomed = [
        image
        for image in store.versions(name)
        if image.package is not None
        and wanted.versions.contains(image.package.version, prereleases=True)
    ]
    if not doomed:
        others = ", ".join(sorted({image.name for image in installed_images(paths)}))
        raise ImageNotFound(
            f"{wanted} is not installed",
            hint=f"installed are {others}" if others else "no image is installed from a package",
        )
    _require_unneeded(name, doomed, paths)
    for image in doomed:
        store.withdraw(image)
    drop_prepared(doomed, paths)
    return Uninstalled(name=name, versions=tuple(doomed), now=store.get(name))


def _require_unneeded(name: str, images: list[StoredImage], paths: Paths) -> None:
    users = ImageUsers(paths).of_all(images)
    for kind, names, hint in (
        ("the disks of", users.sandboxes, "remove them first, and from the trash"),
        ("the saves", users.saves, "remove them first, and from the trash"),
        ("in the trash", users.trashed, "empty the trash first"),
    ):
        if names:
            raise StateError(
                f"the image {name!r} is the base of {kind} {', '.join(names)}", hint=hint
            )
