"""`quicksand-tui images`: what sandboxes boot from."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.options import complete_images, json_option
from quicksand_tui.cli.warm import warm

if TYPE_CHECKING:
    from quicksand.images.resolve import ImageResolver
    from quicksand.images.store import StoredImage
    from quicksand.images.users import Users
    from quicksand.templates import TemplateInfo

    from quicksand_tui.cli.runner import Signals

HEADS = ("NAME", "VERSION", "ARCH", "SIZE", "AGE", "FROM", "DIGEST")
DIGEST_SHOWN = 12


@click.group("images", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List, build, warm up, inspect, remove and prune images.

    Without a further word this lists them.
    """
    if ctx.invoked_subcommand is None:
        _list(as_json)
    elif as_json:
        raise click.UsageError(f"--json goes behind {ctx.invoked_subcommand}", ctx)


command.add_command(warm)


@command.command("list")
@json_option
def list_images(as_json: bool) -> None:
    """List images, from the store and from installed packages."""
    _list(as_json)


def _resolver() -> ImageResolver:
    from quicksand.host.paths import paths
    from quicksand.images.resolve import ImageResolver

    return ImageResolver(paths())


def _list(as_json: bool) -> None:
    from quicksand_tui.cli.output import print_json, print_table, say, show_age, show_size

    found = _resolver().list()
    if as_json:
        print_json([{**asdict(image), "error": image.error or None} for image in found])
        return
    rows: list[tuple[object, ...]] = []
    for image in found:
        size = "" if image.size is None else show_size(image.size)
        age = "" if image.created is None else show_age(image.created)
        digest = image.digest.removeprefix("sha256:")[:DIGEST_SHOWN]
        rows.append((image.name, image.version, image.arch, size, age, image.source, digest))
    heads: tuple[str, ...] = HEADS
    if any(image.error for image in found):
        heads = (*HEADS, "PROBLEM")
        rows = [(*row, image.error) for row, image in zip(rows, found, strict=True)]
    print_table(heads, rows)
    if not found:
        say("there are no images yet: `quicksand-tui images build debian` makes the default one")


@command.command("inspect")
@click.argument("name", shell_complete=complete_images)
@json_option
def inspect(name: str, as_json: bool) -> None:
    """Show an image's files, digests, and the sandboxes on it."""
    from quicksand_tui.cli.output import print_json, print_table, show_size

    facts = _facts(name)
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
        elif isinstance(value, list):
            rows.append((key, ", ".join(str(item) for item in value) or "none"))
        else:
            rows.append((key, "" if value is None else value))
    print_table(("WHAT", "VALUE"), rows)


def _facts(name: str) -> dict[str, Any]:
    """What is known of an image. Raises ImageNotFound, ImageError."""
    from quicksand.host.arch import Architecture

    resolver = _resolver()
    stored = resolver.store.get(name)
    if stored is not None:
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
            "cmdline": stored.cmdline,
            "errors": list(stored.errors),
            "files": files,
            "sandboxes": _sandboxes_on(stored.root.parent),
            "saves": list(_users(resolver.store.versions(name)).saves),
            "templates": _template_facts([stored.digest]),
        }
    image = resolver.resolve(name, Architecture.host())
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


def _template_facts(digests: list[str]) -> list[dict[str, Any]]:
    return [
        {"path": str(t.root), "memory": t.memory, "cpus": t.cpus, "size": t.size, "used": t.used}
        for t in _templates_of(digests)
    ]


def _templates_of(digests: list[str]) -> list[TemplateInfo]:
    """Templates of the images of these digests, or of their first digits."""
    from quicksand.host.paths import paths
    from quicksand.templates import list_templates

    wanted = tuple(filter(None, digests))
    return [t for t in list_templates(paths()) if wanted and t.image_digest.startswith(wanted)]


def _users(versions: list[StoredImage]) -> Users:
    from quicksand.host.paths import paths
    from quicksand.images.users import ImageUsers

    return ImageUsers(paths()).of_all(versions)


def _sandboxes_on(place: Path) -> list[str]:
    """Names of the sandboxes whose disks lie on files under ``place``."""
    from quicksand.host.paths import paths
    from quicksand.registry import Registry

    place = place.resolve()
    return [
        entry.name
        for entry in Registry(paths()).list()
        if entry.record is not None
        and any(Path(layer).resolve().is_relative_to(place) for layer in entry.record.chain)
    ]


@command.command("rm")
@click.argument("name", shell_complete=complete_images)
def remove(name: str) -> None:
    """Remove an image from the store with all its versions and its templates.

    Not one that a sandbox or a save lies on: that is named.
    """
    from quicksand.errors import StateError

    store = _resolver().store
    versions = store.versions(name)
    users = _users(versions)
    if users.sandboxes:
        raise StateError(
            f"the image {name!r} is what the disks of {', '.join(users.sandboxes)} lie on",
            hint=f"`quicksand-tui rm {' '.join(users.sandboxes)}` removes them",
        )
    if users.saves:
        raise StateError(
            f"the image {name!r} is what the saves {', '.join(users.saves)} lie on",
            hint=f"`quicksand-tui saves rm {' '.join(users.saves)} --now` removes them, "
            "`quicksand-tui images prune` only what nothing needs",
        )
    if users.trashed:
        raise StateError(
            f"the image {name!r} is what the saves {', '.join(users.trashed)} in the trash lie on",
            hint="`quicksand-tui saves trash --empty` removes them for good",
        )
    store.remove(name)
    _discard_templates(versions)
    print(name)


def _discard_templates(versions: list[StoredImage]) -> None:
    from quicksand.errors import QuicksandError
    from quicksand.templates import discard

    for template in _templates_of([image.root.name for image in versions]):
        # The last used ones are kept only: what stays goes in time.
        with contextlib.suppress(QuicksandError):
            discard(template.root)


@command.command("prune")
@click.option("--dry-run", is_flag=True, help="Remove nothing, only list.")
@json_option
def prune(dry_run: bool, as_json: bool) -> None:
    """Remove old versions of images that no sandbox and no save lies on.

    The versions in use stay, and what a save in the trash lies on.
    """
    from quicksand.host.paths import paths
    from quicksand.images.users import find_unneeded

    from quicksand_tui.cli.output import print_json, print_table, say, show_age, show_size

    store = _resolver().store
    found = [(image, image.size) for image in find_unneeded(paths())]
    if not dry_run:
        found = [(image, size) for image, size in found if store.remove_old(image)]
        _discard_templates([image for image, _ in found])
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
                "" if image.created is None else show_age(image.created),
            )
            for image, size in found
        ]
        print_table(("NAME", "VERSION", "DIGEST", "SIZE", "AGE"), rows)
    what = "would be free" if dry_run else "are free again"
    say(f"{show_size(total)} {what}" if found else "every version is in use or needed")


@command.command("build")
@click.argument("name", default="debian")
@json_option
def build(name: str, as_json: bool) -> int:
    """Build an image from a recipe: one of ours, or a .toml file.

    The new version is used by sandboxes that are made from now on; those that are there keep the
    old one.
    """
    from quicksand_images import build_image

    from quicksand_tui.cli.output import print_json
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async

    progress = BuildProgress(name)

    async def main(signals: Signals) -> int:
        recipe = Path(name) if name.endswith(".toml") else name
        async with shown(progress.describe):
            image = await build_image(recipe, progress=progress.stage)
        if as_json:
            facts = {"name": image.name, "version": image.version, "digest": image.digest}
            print_json({**facts, "path": str(image.root), "size": image.size})
        else:
            print(image.root)
        return Exit.OK

    return run_async(main)


class BuildProgress:
    """A line that is rewritten on a terminal, a line for each stage elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stage = ""
        self._share = ""
        self._live = sys.stderr.isatty()

    def stage(self, name: str, done: int, total: int) -> None:
        if name != self._stage and not self._live:
            from quicksand_tui.cli.output import say
            from quicksand_tui.cli.text import clean

            say(clean(name))
        self._stage = name
        self._share = f" {100 * done // total} %" if total else ""

    def describe(self, seconds: float) -> str:
        return f"{self._name}: {self._stage}{self._share}, {seconds:.0f} s"
