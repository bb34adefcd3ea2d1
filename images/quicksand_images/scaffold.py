"""Makes the beginning of an image package: a directory from which others can build and install a
wheel. Its files are templates in `scaffolds`, in which words between @ are replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import ConfigError, ImageError, ImageNotFound, StateError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import paths
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.recipes import require_own_name
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages.names import SHOWN_MAX, image_of, is_image_name, package_of

KINDS = ("base", "layer")

TAKEN = (
    "benchmark",
    "build-tools",
    "core",
    "disks",
    "driver",
    "e2b",
    "fleet",
    "image-tools",
    "images",
    "panes",
    "pixels",
    "qemu",
    "smb",
    "tui",
    "vnc",
    "vt",
    "wheels",
)
"""What cannot be an image's name: the package or its module would be one of ours, or of the
ecosystem's (specification, "Package Structure"), which is no image."""

_TEMPLATES = Path(__file__).parent / "scaffolds"
_WORD = re.compile(r"@([A-Z_]+)@")
_PLAIN = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
"""An image's name that can be part of a module's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold:
    """A package that has just begun."""

    kind: str
    image: str
    package: str
    place: Path
    """Its directory."""
    files: tuple[str, ...]
    """The names of its files, with slashes."""


def make_scaffold(
    kind: str,
    name: str,
    *,
    place: Path | None = None,
    on: str = "alpine",
    store: ImageStore | None = None,
) -> Scaffold:
    """Make the directory of a package for an image, by default ./quicksand-NAME. ``kind`` is "base"
    for an image made of a recipe, "layer" for one that lies on the image ``on``, which must have
    been installed from a package. Blocks for I/O.

    Raises ConfigError for a name that cannot be used, StateError if the directory is there,
    ImageNotFound or ImageError for an image that no package can lie on, PathError, DiskSpaceError.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"{kind!r} is no kind of image package", hint=f"it is {' or '.join(KINDS)}"
        )
    image = _checked_name(name)
    words = {
        "IMAGE": image,
        "PACKAGE": package_of(image),
        "MODULE": package_of(image).replace("-", "_"),
    }
    if kind == "layer":
        below = _find_base(on, store or ImageStore(paths().images))
        assert below.package is not None
        words |= {
            "BASE": below.name,
            "BASE_PACKAGE": below.package.name,
            "BASE_VERSION": below.package.version,
        }
        if below.name == image:
            raise ConfigError(
                f"the image {image!r} cannot be based on itself", hint="choose another name"
            )
    root = (place or Path(words["PACKAGE"])).absolute()
    files = {_target(path, words): _filled(path, words) for path in (_TEMPLATES / kind).iterdir()}
    _write(root, files)
    return Scaffold(
        kind=kind, image=image, package=words["PACKAGE"], place=root, files=tuple(sorted(files))
    )


def _checked_name(name: str) -> str:
    image = image_of(name)
    if not is_image_name(image) or not _PLAIN.fullmatch(image):
        raise ConfigError(
            f"{name[:SHOWN_MAX]!r} cannot be the name of an image package",
            hint="use small letters, digits and dashes, such as my-tools",
        )
    if image in TAKEN:
        raise ConfigError(
            f"{package_of(image)} is another package, which is no image",
            hint=f"choose another name, such as my-{image}",
        )
    require_own_name(image)
    return image


def _find_base(name: str, store: ImageStore) -> StoredImage:
    image = image_of(name)
    found = store.get(image)
    install = Words(Remedy("install", name=image), " installs one", python=f"install {image} first")
    if found is None:
        raise ImageNotFound(
            f"Image not found: {image!r}, on which the layer is to lie, is not installed",
            hint=install,
        )
    if found.errors:
        raise ImageError(f"the image {image!r} is damaged: {'; '.join(found.errors)}", hint=install)
    if found.package is None:
        raise StateError(
            f"the image {image!r} was built or imported here: whoever installs the layer could not "
            "get the very same image",
            hint="lay it on one that comes from a package, such as alpine",
        )
    return found


def _target(template: Path, words: Mapping[str, str]) -> str:
    """Return the name in the package of a template's file."""
    name = template.name.removesuffix(".in")
    special = {
        "gitignore": ".gitignore",
        "module.py": f"src/{words['MODULE']}/__init__.py",
        "recipe.toml": f"{words['IMAGE']}.toml",
    }
    return special.get(name, name)


def _filled(template: Path, words: Mapping[str, str]) -> str:
    text = template.read_text(encoding="utf-8")
    return _WORD.sub(lambda found: words[found[1]], text)


def _write(root: Path, files: Mapping[str, str]) -> None:
    """Write the files into a new directory. Raises StateError if it already exists."""
    with map_os_errors(root):
        try:
            root.mkdir(parents=True)
        except FileExistsError:
            if not root.is_dir() or any(root.iterdir()):
                raise StateError(
                    f"{root} is there already", hint="name a new directory: --into DIR"
                ) from None
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
