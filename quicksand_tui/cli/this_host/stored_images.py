"""`quicksand-tui images`: lists, inspects, checks, tags and removes the images that sandboxes boot
from; `image_making` makes them."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageNotFound, QuicksandError, StateError
from quicksand.base.paths import paths
from quicksand.disks.images.bill import bill_of, packages_of
from quicksand.disks.images.image_store import ImageStore, read_manifest, tag_image
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.images.stored_image import StoredImage
from quicksand.life.image_users import ImageUsers, drop_prepared, find_unneeded, templates_of
from quicksand.records.registry import Registry
from quicksand.things.fact import json_of
from quicksand.things.image_info import IMAGE
from quicksand_images.scaffold import make_scaffold

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import (
    Exit,
    print_json,
    print_table,
    print_things,
    say,
    show_age,
    show_size,
)
from quicksand_tui.cli.runner import run_async
from quicksand_tui.cli.this_host import image_making  # noqa: F401 - has parts of `images`
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.life.image_users import Users


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


AGES = {"created": "newest file", "built": "built"}
"""The words for the times of an image: it was not created when its files were."""


@command_of("images")
@click.pass_context
def images_command(ctx: click.Context, as_json: bool) -> None:
    """List, build, check, tag and remove images.

    Without a further word the images are listed.
    """
    if ctx.invoked_subcommand is None:
        _list(as_json)
    elif as_json:
        raise click.UsageError(f"--json goes behind {ctx.invoked_subcommand}", ctx)


@command_of("images list")
def list_images(as_json: bool) -> None:
    """List images, from the store and from installed packages."""
    _list(as_json)


@command_of("images ls")
def list_again(as_json: bool) -> None:
    """List images; the same as `images list`."""
    _list(as_json)


def _resolver() -> ImageResolver:
    return ImageResolver(paths())


def _list(as_json: bool) -> None:
    found = _resolver().list(every_arch=True)
    if as_json:
        print_json([json_of(image, IMAGE) for image in found])
        return
    print_things(found, IMAGE)
    if not found:
        say("there are no images yet: `quicksand-tui images build debian` makes the default one")


@command_of("images inspect")
def inspect(name: str, arch: str | None, as_json: bool) -> None:
    """Show an image's files and digests, and the sandboxes that use it."""
    _show(name, arch, as_json)


def _show(name: str, arch: str | None, as_json: bool) -> None:
    facts = _facts(name, None if arch is None else Architecture.parse(arch))
    if as_json:
        print_json(facts)
        return
    rows: list[tuple[object, object]] = []
    for key, value in facts.items():
        if key == "files":
            rows += [(part, f"{f['path']} ({show_size(f['size'])})") for part, f in value.items()]
        elif key == "templates":
            size = show_size(sum(template["size"] for template in value))
            rows.append((key, f"{len(value)}, {size}" if value else "none"))
        elif key in AGES and value is not None:
            rows.append((AGES[key], f"{show_age(value)} ago"))
        elif isinstance(value, dict):
            rows += [(f"{key} {part}", _told(inner)) for part, inner in value.items()]
        elif isinstance(value, list):
            rows.append((key, ", ".join(str(item) for item in value) or "none"))
        else:
            rows.append((key, "" if value is None else value))
    print_table(("WHAT", "VALUE"), rows)


def _told(value: object) -> str:
    """Returns a value of a container image in words, which may have spaces."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    words = value if isinstance(value, list) else [value]
    return " ".join(shlex.quote(word) if isinstance(word, str) else str(word) for word in words)


@command_of("images info")
def info(name: str, arch: str | None, as_json: bool) -> None:
    """Show an image's files, digests and users, like `inspect`."""
    _show(name, arch, as_json)


def _facts(name: str, arch: Architecture | None) -> dict[str, Any]:
    """Returns the facts of an image. Raises ImageNotFound, ImageError."""
    resolver = _resolver()
    stored = resolver.store.get(name, arch)
    if stored is not None and (arch is None or stored.arch == arch.value):
        files = {
            part: {"path": str(stored.root / str(facts["name"])), **facts}
            for part, facts in stored.files.items()
        }
        return {
            "name": stored.name,
            "version": stored.version,
            "digest": stored.digest,
            "arch": stored.arch,
            "created": stored.created,
            "built": stored.built,
            "cmdline": stored.cmdline,
            "below": below_of(stored),
            "packages": package_count(stored),
            "container": dict(stored.container) or None,
            "errors": list(stored.errors),
            "files": files,
            "sandboxes": _sandboxes_on(stored.root.parent if name == stored.name else stored.root),
            "bundle": stored.bundle or None,
            "saves": list(_users(_versions_of(resolver.store, name, stored)).saves),
            "templates": _template_facts([stored.digest]),
        }
    image = resolver.resolve(name, arch or Architecture.host())
    places = {"kernel": image.kernel, "initrd": image.initrd}
    places |= {f"disk {number}": path for number, path in enumerate(image.chain)}
    return {
        "name": image.name,
        "arch": image.guest_arch.value,
        "digest": image.digest,
        "cmdline": image.cmdline,
        "files": {
            part: {"path": str(path), "size": path.stat().st_size} for part, path in places.items()
        },
        "sandboxes": _sandboxes_on(image.chain[-1].parent),
        "templates": _template_facts([image.digest]),
    }


def _versions_of(store: ImageStore, name: str, stored: StoredImage) -> list[StoredImage]:
    """Returns all versions of an image, or only ``stored`` if ``name`` is NAME@DIGEST."""
    return store.versions(name) or [stored]


def _template_facts(digests: list[str]) -> list[dict[str, Any]]:
    return [
        {"path": str(t.root), "memory": t.memory, "cpus": t.cpus, "size": t.size, "used": t.used}
        for t in templates_of(digests, paths())
    ]


def _users(versions: list[StoredImage]) -> Users:
    return ImageUsers(paths()).of_all(versions)


def _sandboxes_on(place: Path) -> list[str]:
    """Returns the names of the sandboxes whose disks are overlays of files under ``place``."""
    place = place.resolve()
    return [
        entry.name
        for entry in Registry(paths()).list()
        if entry.record is not None
        and any(Path(layer).resolve().is_relative_to(place) for layer in entry.record.chain)
    ]


@command_of("images rm")
def remove(name: str) -> None:
    """Remove an image from the store, with versions and templates.

    NAME@DIGEST, as images of bundles are called, is one version of NAME. An image that a sandbox or
    a save needs is refused, and they are named.
    """
    store = _resolver().store
    versions = store.versions(name)
    one = store.get(name) if not versions else None
    versions = [one] if one is not None else versions
    users = _users(versions)
    if users.sandboxes:
        raise StateError(
            f"the image {name!r} is the base of the disks of {', '.join(users.sandboxes)}",
            hint=f"`quicksand-tui rm --now {' '.join(users.sandboxes)}` removes them for good",
        )
    if users.saves:
        raise StateError(
            f"the image {name!r} is the base of the saves {', '.join(users.saves)}",
            hint=f"`quicksand-tui saves rm {' '.join(users.saves)} --now` removes them, "
            "`quicksand-tui images prune` only what nothing needs",
        )
    if users.trashed:
        raise StateError(
            f"the image {name!r} is the base of {', '.join(users.trashed)} in the trash",
            hint="`quicksand-tui trash --empty` removes what is in it for good",
        )
    if one is not None:
        store.withdraw(one)
    else:
        store.remove(name)
    drop_prepared(versions, paths())
    print(name)


@command_of("images prune")
def prune(dry_run: bool, as_json: bool) -> None:
    """Remove old versions of images that no sandbox and no save needs.

    Versions in use stay, and so do those that a save in the trash needs.
    """
    store = _resolver().store
    found = [(image, image.size) for image in find_unneeded(paths())]
    if not dry_run:
        found = [(image, size) for image, size in found if store.remove_old(image)]
        drop_prepared([image for image, _ in found], paths())
    total = sum(size for _, size in found)
    if as_json:
        print_json(
            {
                "removed": not dry_run,
                "freed": total,
                "images": [
                    {
                        "name": image.root.parent.name,
                        "version": image.version,
                        "digest": image.digest or image.root.name,
                        "size": size,
                    }
                    for image, size in found
                ],
            }
        )
        return
    if found:
        rows = [
            (
                image.root.parent.name,
                image.version,
                image.root.name,
                show_size(size),
                "" if image.built is None else show_age(image.built),
            )
            for image, size in found
        ]
        print_table(("NAME", "VERSION", "DIGEST", "SIZE", "AGE"), rows)
    what = "would be free" if dry_run else "are free again"
    say(f"{show_size(total)} {what}" if found else "every version is in use or needed")
