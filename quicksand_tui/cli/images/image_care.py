"""`quicksand-tui images sbom, tag, verify, new`: the contents of images, other names for them,
whether they are whole, and packages for images of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageNotFound, QuicksandError
from quicksand.base.paths import paths
from quicksand.disks.images.bill import bill_of, packages_of
from quicksand.disks.images.image_store import ImageStore, read_manifest, tag_image
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.images.stored_image import StoredImage
from quicksand_images.scaffold import make_scaffold

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, print_json, print_table, say
from quicksand_tui.cli.runner import run_async
from quicksand_tui.model.text import clean


@command_of("images new")
def new_command(kind: str, name: str, into: Path | None, on: str, as_json: bool) -> int:
    """Begin a package for an image of your own, which others can install.

    `base` is an image made of a recipe; `layer` is what a script adds to another image. NAME is the
    image's name; the package is called quicksand-NAME. Its README tells how to build, try and
    publish it.
    """
    made = make_scaffold(kind, name, place=into, on=on)
    if as_json:
        facts = {"kind": made.kind, "image": made.image, "package": made.package}
        print_json({**facts, "path": str(made.place), "files": list(made.files)})
        return Exit.OK
    print(clean(made.place))
    edited = "setup.sh" if made.kind == "layer" else f"{made.image}.toml"
    say(f"edit {edited}; README.md tells how to build and publish the package")
    return Exit.OK


def _store() -> ImageStore:
    return ImageStore(paths().images)


def _stored(name: str, arch: str | None = None) -> StoredImage:
    """Returns an image of the store by its name. Raises ImageNotFound with similar names."""
    wanted = None if arch is None else Architecture.parse(arch)
    found = _store().get(name, wanted)
    if found is not None and (wanted is None or found.arch == wanted.value):
        return found
    if found is not None:
        raise ImageNotFound(f"the image {name!r} is for {found.arch}, not for {arch}")
    if ImageResolver(paths()).knows(name):
        raise ImageNotFound(
            f"the image {name!r} is not in the store, but in a package or a file",
            hint=f"`quicksand-tui install {name}` puts the image of a package there",
        )
    raise ImageNotFound(
        f"Image not found: {name!r}", hint="`quicksand-tui images` lists those that are here"
    )


def below_of(image: StoredImage) -> str | None:
    """Returns the image on which a layer was made, in words; None for a whole system or unknown."""
    try:
        below = read_manifest(image).get("below")
    except QuicksandError:
        return None  # the errors of the image tell
    if not isinstance(below, dict):
        return None
    return f"{below.get('name')} {below.get('version')} ({str(below.get('digest'))[:12]})"


def package_count(image: StoredImage) -> int | None:
    """Returns the number of known packages in an image; None if none are known."""
    try:
        manifest = read_manifest(image)
    except QuicksandError:
        return None
    found = [packages_of(manifest, key) for key in ("packages", "python")]
    return sum(map(len, found)) or None


@command_of("images sbom")
def sbom(name: str, arch: str | None) -> None:
    """Print a bill of materials of an image, as CycloneDX JSON.

    It names, with their versions, the packages of the distribution, and those of Python outside of
    them.
    """
    print_json(bill_of(_stored(name, arch)))


@command_of("images tag")
def tag(name: str, new: str, arch: str | None) -> None:
    """Give an image another name, too.

    Both share their files. New sandboxes of NEW boot from what NAME is now, whatever is built under
    that name later. If there is an image NEW already, its old versions stay for their sandboxes.
    """
    print(clean(tag_image(_store(), _stored(name, arch), new).name))


@command_of("images verify")
def verify(names: tuple[str, ...], as_json: bool) -> int:
    """Read all bytes of images and compare their digests.

    Without names, all images are read. Old versions are checked, too. The exit status is 1 if one
    is damaged.
    """
    for name in names:
        _stored(name)

    async def main(_: object) -> int:
        found = await asyncio.to_thread(_verdicts, names)
        if as_json:
            print_json([{**facts, "whole": not facts["problems"]} for facts in found])
        else:
            _print(found)
        return Exit.FAILURE if any(facts["problems"] for facts in found) else Exit.OK

    return run_async(main)


def _verdicts(names: Sequence[str]) -> list[dict[str, Any]]:
    store = _store()
    everything = [*store.list(), *store.unpacked()]
    wanted = dict.fromkeys(names or (image.root.parent.name for image in everything))
    return [
        {
            "name": image.versioned if image.bundle else image.name,
            "version": image.version,
            "arch": image.arch,
            "digest": image.digest or image.root.name,
            "problems": store.verify(image),
        }
        for name in wanted
        for image in store.versions(name) or [_stored(name)]
    ]


def _print(found: Sequence[dict[str, Any]]) -> None:
    rows: list[tuple[object, ...]] = []
    for facts in found:
        digest = str(facts["digest"])[:12]
        about = (facts["name"], facts["version"], facts["arch"], digest)
        if not facts["problems"]:
            rows.append((*about, "whole", ""))
        rows += [(*about, "BAD", text) for text in facts["problems"]]
    print_table(("NAME", "VERSION", "ARCH", "DIGEST", "STATE", "PROBLEM"), rows)
