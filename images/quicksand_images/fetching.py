"""What fetches by HTTP, each imported when it is used (PEP 562): the commands that only list images
load the builder, too, and are free of httpx."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.disks.packages.installing import install_package

    from quicksand_images.alpine import make_alpine_tree
    from quicksand_images.apk_mirror import fetch_apks
    from quicksand_images.wheels import fetch_wheels, guest_python

__all__ = ["fetch_apks", "fetch_wheels", "guest_python", "install_package", "make_alpine_tree"]

_HOMES = {
    "install_package": "quicksand.disks.packages.installing",
    "make_alpine_tree": "quicksand_images.alpine",
    "fetch_apks": "quicksand_images.apk_mirror",
    "fetch_wheels": "quicksand_images.wheels",
    "guest_python": "quicksand_images.wheels",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
