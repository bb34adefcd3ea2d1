"""`quicksand-tui images`: lists, builds, warms up, inspects and removes the images that sandboxes
boot from."""

from __future__ import annotations

import contextlib
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from quicksand.base.arch import Architecture
from quicksand.base.errors import StateError
from quicksand.base.footprint import allocated_size
from quicksand.base.paths import paths
from quicksand.disks.images.resolve import ImageResolver, is_bundle
from quicksand.life.basis import find_basis, unpack_basis
from quicksand.life.image_building import build_if_missing, suggested_options
from quicksand.life.image_users import ImageUsers, find_unneeded
from quicksand.life.prepared_images import drop_prepared, templates_of
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.things.fact import json_of
from quicksand.things.image_info import IMAGE
from quicksand.warm.spares.stock import check_order, set_order
from quicksand.warm.template_maker import warm as warm_up
from quicksand_images import build_image

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.images import image_care
from quicksand_tui.cli.images.building import build_of_container, carry_out
from quicksand_tui.cli.images.image_care import below_of, package_count
from quicksand_tui.cli.machine import machine_options
from quicksand_tui.cli.output import (
    Exit,
    print_json,
    print_table,
    print_things,
    say,
    show_age,
    show_size,
)
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.reported_progress import StartProgress
from quicksand_tui.cli.runner import run_async
from quicksand_tui.cli.this_host.spares import (
    end_order,
    order_told,
    require_image,
    require_image_bundle,
)
from quicksand_tui.model.amounts import seconds_text
from quicksand_tui.model.text import clean
from quicksand_tui.verbs.parameters import DEFAULT_IMAGE

if TYPE_CHECKING:
    from quicksand.base.progress import Progress
    from quicksand.disks.images.image_store import ImageStore
    from quicksand.disks.images.stored_image import StoredImage
    from quicksand.life.image_users import Users

    from quicksand_tui.cli.runner import Signals


@command_of("images warm")
# A template has no ports, and none is used for sandboxes with QEMU arguments.
@machine_options(but=("port_forwards", "extra_qemu_args"))
def warm(
    image: str, machine: dict[str, Any], spares: int | None, build: bool | None, as_json: bool
) -> int:
    """Boot a machine once and keep its state for later starts.

    Even the first start continues from there then. IMAGE may be a bundle (a .quicksand file).

    A template fits one machine: give the same memory, CPUs, network and disk size as `run` will
    get. `run` has one made in the background after a cold start; this command waits for it and
    reports errors. The last used ones are kept, about 100 MB each.

    With --spares N, N of these machines wait from now on, started and paused. A start takes one
    over and answers at once; another one is made then. Each takes some 60 MiB, and ends when the
    host is short of memory. --spares 0 ends the order; `doctor` lists all. QUICKSAND_SPARES=off
    allows none, QUICKSAND_SPARES=use makes none.
    """
    head = None
    if is_bundle(image):
        basis = find_basis(image, machine, paths(), workspace=None, trust=False)
        config, head = basis.config, require_image_bundle(basis)
    else:
        usual = suggested_options(image, paths(), machine.get("arch"))
        config = SandboxConfig.parse({**usual, "image": image, **machine})
    progress, registry = StartProgress(image), Registry(paths())
    build = False if as_json and build is None else build

    async def main(signals: Signals) -> int:
        started, wanted = time.perf_counter(), config
        if head is not None:
            async with shown(progress.look):
                wanted, _ = await unpack_basis(head, config, paths(), progress.stage)
        if spares == 0:
            await end_order(registry, wanted, as_json=as_json)
            return Exit.OK
        require_image(wanted, registry)
        telling = order_told(registry, wanted) if spares else contextlib.nullcontext()
        ready, follow = None, cast("Progress | None", progress.stage)
        async with telling, shown(progress.look):
            if head is None:
                follow = await build_if_missing(
                    image, paths(), arch=config.arch, build=build, progress=follow
                )
            if spares is not None:
                await check_order(registry, wanted, spares)
            origin, made = await warm_up(registry, wanted, progress=follow)
            if spares is not None:
                ready = await set_order(registry, wanted, spares)
        seconds = time.perf_counter() - started
        root = origin.place.root
        size = allocated_size(root)
        if as_json:
            facts = {"image": image, "made": made, "path": str(root), "size": size}
            print_json({**facts, "seconds": round(seconds, 3), "spares": ready})
        else:
            what = f"made in {seconds_text(seconds)}" if made else "there already"
            what += "" if ready is None else f", spares ready: {ready}"
            print(f"{clean(image)}: {what}, {show_size(size)}, {clean(root)}", flush=True)
        return Exit.OK

    return run_async(main)


new = image_care.new_command
"""A part of this verb, in a module of its own."""


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


@command_of("images build")
def build(
    name: str | None,
    arch: str | None,
    in_sandbox: bool,
    from_oci: str | None,
    new_name: str | None,
    kernel_from: str | None,
    pick: str | None,
    init: bool,
    plain_http: bool,
    build: bool | None,
    as_json: bool,
) -> int:
    """Build an image from a recipe or a container image.

    A recipe is one of ours, by its name (default: debian), or a .toml file of yours; --from-oci
    takes a container image.

    A recipe with a base makes a layer on that image, which is built or installed first if it is
    missing. Packages that were downloaded are kept for the next build, and for one that was
    interrupted; the log of the last build is kept, too, in builds/NAME.log in the
    cache directory.

    A host without apt or e2fsprogs uses those in a sandbox of an image that is here, or of a
    published one, which is installed for that. --in-sandbox does so on any host.

    Sandboxes that are made from now on use the new version; existing ones keep the old one. With
    --arch it is for guests of another architecture, which are emulated: `run --arch` starts them.

    A container image is an OCI layout (a directory or a tar), an archive of `docker save`, or a
    reference such as ghcr.io/example/app:1.0, for which a password in ~/.docker/config.json is
    used. It gets the kernel of an image of ours. Its user, directory and variables apply to
    commands that do not say otherwise; `run --entrypoint` runs its own command.
    """
    if from_oci is not None:
        if name and new_name:
            raise click.UsageError("NAME and --name say the same: give one of them")
        return build_of_container(
            from_oci,
            new_name or name or "",
            {
                "kernel_from": kernel_from,
                "pick": pick,
                "init": init,
                "plain_http": plain_http,
                "arch": None if arch is None else Architecture.parse(arch),
            },
            build=False if as_json and build is None else build,
            in_sandbox=in_sandbox,
            as_json=as_json,
        )
    if new_name or kernel_from or pick or init or plain_http or build is not None:
        raise click.UsageError("these options go with --from-oci")
    wanted = name or DEFAULT_IMAGE
    recipe = Path(wanted) if wanted.endswith(".toml") else wanted
    return carry_out(
        wanted,
        lambda stage: build_image(recipe, arch=arch, progress=stage, in_sandbox=in_sandbox),
        as_json=as_json,
    )
