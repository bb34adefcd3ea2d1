"""Makes a layer: boots its base in a VM, installs what the recipe names, runs its steps, and keeps
what the VM has written as a layer above the base's.

The host downloads and verifies packages and hands them over on a disk that the VM can only read. So
the VM needs no network and no proxy, certificate or key of the host, and the same checks count as
for a base.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.fields import Fields
from quicksand.base.files import map_os_errors, read_json
from quicksand.base.sharing import share_file
from quicksand.base.threads import in_thread_to_the_end
from quicksand.disks.diff.ext4.files import read_from_disk
from quicksand.disks.images.merge import write_merged
from quicksand.disks.images.parts import LAYERS_MAX, file_name, layer_part
from quicksand.disks.images.recipes import has_recipe
from quicksand.disks.images.store import MANIFEST, ImageStore, StoredImage
from quicksand.guest.files import GuestFiles
from quicksand.qemu.provision import ensure_qemu
from quicksand.records.config import NetworkMode

from quicksand_images import disk, fetching
from quicksand_images.debfile import read_deb
from quicksand_images.in_vm import HANDED, BuildMachine, build_config, run_machine, run_script
from quicksand_images.log import BuildLog
from quicksand_images.packages import open_packages
from quicksand_images.recipe import Layer, System, read_recipe
from quicksand_images.sources import find_keyring, find_mirrors

FORM = 1
"""Part of a layer's digest; to be raised when the same recipe gives other files."""

STATUS = "/var/lib/dpkg/status"
STATUS_MAX = 64 * 1024 * 1024
"""Bytes of what dpkg knows of the packages on a base; that of a desktop has 2 MB."""

LIST_MAX = 4 * 1024 * 1024
"""Bytes of a list of packages that the guest writes."""

WORK = "/run/quicksand-layer"
_STEPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """A base, and what its manifest tells besides that."""

    image: StoredImage
    system: System | None
    """Where its packages come from; None if that is not known."""
    packages: Mapping[str, str]
    python: Mapping[str, str]
    status: bytes | None
    """What dpkg knows of the packages that are there; None without dpkg."""


def layer_digest(layer: Layer, base: StoredImage) -> str:
    """Return the digest of a layer's recipe, of its base, of the scripts, and of `FORM`. Raises
    OSError."""
    scripts = "".join(map(_script, (True, False)))
    text = f"{FORM}\n{layer!r}\n{base.digest}\n{scripts}"
    return hashlib.sha256(text.encode()).hexdigest()


def _script(has_dpkg: bool) -> str:
    """Return what is run in the machine whose base has dpkg, or another manager of packages."""
    place = Path(__file__).parent
    names = ("layer.sh", "clean.sh" if has_dpkg else "clean_other.sh", "layer_end.sh")
    return "\n".join((place / name).read_text(encoding="utf-8") for name in names)


async def build_layer(
    layer: Layer, image: StoredImage, store: ImageStore, place: Path, log: BuildLog
) -> StoredImage:
    """Make the image of ``layer`` on the base ``image`` in ``place``, a private directory on the
    store's file system.

    Raises HostError, ImageError, MachineError, AgentError. A cancellation leaves no process.
    """
    image = await in_thread_to_the_end(lambda: _hold(image, place / "base"))
    base = await asyncio.to_thread(_look_at, image)
    arch = Architecture.parse(image.arch)
    if layer.arch not in (None, arch):
        assert layer.arch is not None
        raise ImageError(
            f"{layer.name!r} is for {layer.arch.debian}, and its base {image.name!r} for "
            f"{arch.debian}"
        )
    if len(image.chain) >= LAYERS_MAX:
        raise ImageError(f"{image.name!r} has {LAYERS_MAX} layers, to which none can be added")
    await ensure_qemu(log.stage, arch=arch.value)
    tools = await disk.require_filesystem_tools(place, log.stage)
    handed = place / "handed"
    with map_os_errors(handed):
        handed.mkdir(mode=0o755)
        (handed / "steps").write_text(layer.script, encoding="utf-8")
        await _fetch(layer, base, arch, handed, place, log)
        log.stage("making a disk to hand over", 2, _STEPS)
        await disk.make_handed(handed, place / "handed.raw", tools)
        log.stage("booting the base", 3, _STEPS)
        config = build_config(
            str(image.root),
            arch=arch,
            network=NetworkMode.FULL if layer.network else NetworkMode.NONE,
            handed=place / "handed.raw",
        )
        async with run_machine(place, config, image=image) as machine:
            packages, python = await machine.guarded(_install(machine, base, log))
            log.stage("ending the machine", 4, _STEPS)
            await machine.power_off()
            top = machine.top()
        log.stage("compressing the layer", 5, _STEPS)
        staging = place / "staging"
        staging.mkdir(mode=0o755)
        await in_thread_to_the_end(lambda: _gather(image, top, staging))
    manifest = _manifest(layer, base, packages, python)
    return await in_thread_to_the_end(lambda: store.publish(staging, manifest))


def _hold(image: StoredImage, place: Path) -> StoredImage:
    """Return the image with links of its files in ``place``: it may be removed meanwhile. Raises
    ImageError, ImageNotFound, DiskSpaceError, PathError."""
    with map_os_errors(place):
        place.mkdir(mode=0o700)
        for name in (MANIFEST, *(str(found["name"]) for found in image.files.values())):
            share_file(image.root / name, place / name)
    return ImageStore.load(place)


def _look_at(image: StoredImage) -> _Base:
    """Read what a base's manifest tells. Raises ImageError."""
    path = image.root / MANIFEST
    try:
        manifest = read_json(path)
        told = Fields({"packages": {}, "python": {}, **manifest}, "bad manifest")
        lists = [told.fields(key) for key in ("packages", "python")]
        found = manifest.get("system")
        system = None if found is None else _parse_system(found)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ImageError(f"{path} is damaged: {error!r}") from error
    if system is None and image.package is None and has_recipe(image.name):
        # Images that were built before manifests told it.
        recipe = read_recipe(image.name)
        system = None if isinstance(recipe, Layer) else recipe.system
    status = None
    # On a disk of another kind there is no dpkg that we could find.
    with contextlib.suppress(ImageError):
        status = read_from_disk(image.chain, STATUS, most=STATUS_MAX)
    packages, python = ({name: str(value) for name, value in one.items()} for one in lists)
    return _Base(
        image=image,
        system=system,
        packages=packages,
        python=python,
        status=status,
    )


def _parse_system(value: object) -> System:
    """Read what `system_facts` has written. Raises ValueError."""
    found = Fields(value, "system")
    lines = ("distribution", "suite", "mirror", "security_mirror", "keyring", "keys", "user")
    facts: dict[str, Any] = {name: found.text(name) for name in lines}
    facts |= {name: found.texts(name) for name in ("components", "packages")}
    return System(**facts)


def system_facts(system: System) -> dict[str, Any]:
    """Return what an image's manifest tells of where its packages come from."""
    return {**asdict(system), "packages": []}


async def _fetch(
    layer: Layer, base: _Base, arch: Architecture, handed: Path, place: Path, log: BuildLog
) -> None:
    """Put what is to be installed into ``handed``."""
    if layer.packages:
        await _fetch_debs(layer, base, arch, handed, place, log)
    if layer.wheels:
        log.stage("downloading Python packages", 1, _STEPS)
        target = handed / "wheels"
        target.mkdir(mode=0o755)
        # A base's own Python, or the one that comes with the packages.
        packages = {**base.packages, **_versions(handed / "debs")}
        python = fetching.guest_python(packages, arch)
        await fetching.fetch_wheels(layer.wheels, python, target, log.stage)
        (handed / "wanted").write_text("".join(f"{wheel}\n" for wheel in layer.wheels))


def _versions(debs: Path) -> dict[str, str]:
    """Return the versions of packages by their names, as their files' names tell them."""
    names = [path.name.split("_") for path in debs.glob("*.deb")]
    return {words[0]: words[1].replace("%3a", ":") for words in names if len(words) > 1}


async def _fetch_debs(
    layer: Layer, base: _Base, arch: Architecture, handed: Path, place: Path, log: BuildLog
) -> None:
    system = base.system
    if system is None or base.status is None:
        raise ImageError(
            f"{layer.name!r} names packages, and it is not known where those of its base "
            f"{base.image.name!r} come from: no recipe made it",
            hint="install them in `steps`, with `network = true`",
        )
    log.stage("fetching the lists of packages", 0, _STEPS)
    packages = await open_packages(
        system,
        arch,
        place / "apt",
        keyring=await find_keyring(system, place),
        mirrors=await asyncio.to_thread(find_mirrors, system),
        status=base.status,
    )
    await packages.update()
    log.stage("downloading packages", 1, _STEPS)
    files = await packages.download(layer.packages)
    await in_thread_to_the_end(lambda: _unpack(files, handed, layer))


def _unpack(files: list[Path], handed: Path, layer: Layer) -> None:
    """Write packages without compression, which takes seconds here and minutes in an emulated
    guest."""
    if not files:
        return  # the base has them all
    target = handed / "debs"
    target.mkdir(mode=0o755)
    for path in files:
        read_deb(path).write(target / path.name)
    automatic = {path.name.split("_")[0] for path in files} - set(layer.packages)
    (handed / "automatic").write_text("".join(f"{name}\n" for name in sorted(automatic)))


async def _install(
    machine: BuildMachine, base: _Base, log: BuildLog
) -> tuple[dict[str, str], dict[str, str]]:
    """Run all in the machine; return the versions of the packages there, and of Python's."""
    env = {
        "WORK": WORK,
        "SERIAL": HANDED,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "DEBCONF_NONINTERACTIVE_SEEN": "true",
    }
    await run_script(
        machine.session,
        _script(base.status is not None),
        env,
        lambda stage: log.stage(stage, 3, _STEPS),
        log=log.write,
        failure="the layer could not be made",
    )

    async def session() -> Any:
        return machine.session

    files = GuestFiles(session)
    texts = [
        (await files.read(f"{WORK}/{name}", length=LIST_MAX)).decode("utf-8", "replace")
        for name in ("packages", "python")
    ]
    packages = dict(line.split("\t", 1) for line in texts[0].splitlines() if "\t" in line)
    return packages, dict(line.rsplit("-", 1) for line in texts[1].splitlines() if "-" in line)


def _gather(image: StoredImage, top: Path, staging: Path) -> None:
    """Put the files of the new image together: those of the base, and the layer."""
    parts = [*map(layer_part, range(len(image.chain))), "kernel", "initrd"]
    for part in parts:
        share_file(image.root / str(image.files[part]["name"]), staging / file_name(part))
    own = layer_part(len(image.chain))
    backing = Path(file_name(layer_part(len(image.chain) - 1)))
    write_merged([top], staging / file_name(own), backing=backing, base=image.chain, compress=True)


def _manifest(
    layer: Layer, base: _Base, packages: Mapping[str, str], python: Mapping[str, str]
) -> dict[str, Any]:
    image = base.image
    parts = [*map(layer_part, range(len(image.chain) + 1)), "kernel", "initrd"]
    return {
        "name": layer.name,
        "version": layer.version,
        "arch": image.arch,
        "recipe": layer_digest(layer, image),
        "created": image.created,
        "cmdline": image.cmdline,
        "machine": {**image.machine, **layer.machine},
        "below": {"name": image.name, "version": image.version, "digest": image.digest},
        "system": None if base.system is None else system_facts(base.system),
        "packages": dict(packages),
        "python": dict(python),
        "files": {part: {"name": file_name(part)} for part in parts},
    }
