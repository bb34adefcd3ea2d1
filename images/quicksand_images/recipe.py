"""Recipes: TOML files that describe images. One that names a base is a layer on another image; one
without makes a whole system."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand.disks.images.recipes import SUFFIX, recipe_names, recipe_places
from quicksand.disks.images.stored_image import KINDS, check_suggested
from quicksand.life.image_building import known_options
from quicksand.records.config import SandboxConfig

from quicksand_images.tables import Table, read_tables

DEPTH_MAX = 8
"""The most recipes that may lie on each other."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_-]{0,62}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_MODULE = re.compile(r"[A-Za-z0-9_-]+")
_DEBIAN_NAMES = frozenset(arch.debian for arch in Architecture)
_DIRECTORY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_./-]*")
_MIRROR = re.compile(r"https?://[!-~]+")
_SIZE_MIN = 1024**3
_SCRIPT_MAX = 64 * 1024
"""The most bytes of a recipe's script: it is passed on as one environment variable, which Linux
limits to 128 KiB (MAX_ARG_STRLEN, execve(2))."""
_FILES_MAX = 1024 * 1024
"""Bytes of all files of a recipe."""
_GUEST_PATH = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
_BUILD_SPACE = "2G"
_JOURNAL_MAX = 1024
ALPINE = "alpine"
DISTRIBUTIONS = ("debian", "ubuntu", ALPINE)
"""The distributions whose systems can be made from their packages, by their ID in os-release(5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The packages of the root file system."""

    distribution: str
    suite: str
    mirror: str
    security_mirror: str
    """"" for Alpine, whose mirrors have everything in one place."""
    components: tuple[str, ...]
    keyring: str
    """The package with the keys that sign the suite; "" if the recipe has the keys."""
    keys: str
    """The suite's keys as text: OpenPGP's, or for Alpine PEM's; "" if the package has them."""
    packages: tuple[str, ...]
    user: str
    """The name of a user with password-less sudo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The kernel and its modules."""

    package: str
    boot_modules: tuple[str, ...]
    """Modules in the initrd."""
    plain_modules: tuple[str, ...]
    """Modules that are stored uncompressed."""
    dropped_modules: tuple[str, ...]
    """Directories below the modules' `kernel/` that are left out."""
    cmdline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system of the image."""

    size_bytes: int
    """The size that the guest sees; unused blocks take no space."""
    journal_mib: int
    build_bytes: int
    """The free space that a build needs, for the unpacked system, the file system and the result
    at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A whole system."""

    name: str
    version: str
    arch: Architecture
    system: System
    kernel: Kernel
    disk: Disk
    machine: Mapping[str, Any]
    """The default options of a machine (`quicksand.disks.images.stored_image`)."""
    script: str
    """The script that is run in the new system after its packages are configured; "" for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The additions to another image."""

    name: str
    version: str
    base: str
    """The image below it."""
    arch: Architecture | None
    """The architecture; None for that of the base."""
    packages: tuple[str, ...]
    """Packages of the base's distribution. They are downloaded and verified on the host."""
    wheels: tuple[str, ...]
    """Python packages, each with its version ("uv==0.13.9"); likewise."""
    files: tuple[tuple[str, bytes], ...]
    """The files that are put into the guest next, by their paths there."""
    script: str
    """The script that is then run, by `sh -eu` as root; "" for none."""
    network: bool
    """Whether the script can reach the network."""
    build_bytes: int
    """The free space that a build needs."""
    machine: Mapping[str, Any]
    """The default options of a machine, besides those that the base suggests."""


def find_recipe(name: str | Path) -> Path:
    """Find a recipe's file by path or by name. Raises ImageNotFound."""
    path = Path(name)
    if path.suffix == SUFFIX or "/" in str(name):
        if not path.is_file():
            raise ImageNotFound(f"Image not found: there is no recipe {str(path)!r}")
        return path
    for place in recipe_places():
        if (found := place / f"{name}{SUFFIX}").is_file():
            return found
    known = recipe_names()
    raise ImageNotFound(
        f"Image not found: there is no recipe {str(name)!r}",
        hint=f"there are recipes for {', '.join(known)}" if known else "",
    )


def read_recipe(name: str | Path, arch: Architecture | str | None = None) -> Recipe | Layer:
    """Read and check a recipe for guests of ``arch``; without it, for this host's architecture or
    else the first that the recipe names.

    Raises ImageNotFound, ConfigError for an unknown architecture, RecipeError naming the fault in
    the recipe and its line, or ImageError naming the recipe's architectures.
    """
    path = find_recipe(name)
    table = read_tables(path)
    asked = Architecture.parse(arch) if arch else None
    if "base" in table:
        known = _architectures(table) if "architecture" in table else ()
        return _read_layer(table, path, _choose(known, asked, path) if known else asked)
    return _read_system(table, path, _choose(_architectures(table), asked, path))


def load_recipe(name: str | Path, arch: Architecture | str | None = None) -> Recipe:
    """Read and check the recipe of a whole system. Raises as `read_recipe`, and ImageError for a
    layer's."""
    recipe = read_recipe(name, arch)
    if isinstance(recipe, Layer):
        raise ImageError(f"{recipe.name!r} is a layer on {recipe.base!r}, no whole system")
    return recipe


def _architectures(table: Table) -> tuple[Architecture, ...]:
    """Take the architectures that a recipe is for. Raises RecipeError."""
    names = table.names("architecture")
    if not names:
        raise table.bad("architecture", "names none")
    return tuple(table.checked("architecture", partial(Architecture.parse, name)) for name in names)


def _choose(known: Sequence[Architecture], asked: Architecture | None, path: Path) -> Architecture:
    ours = Architecture.host()
    wanted = asked or (ours if ours in known else known[0])
    if wanted not in known:
        names = ", ".join(one.debian for one in known)
        raise ImageError(f"the recipe {path.stem!r} is for {names}, not for {wanted.debian}")
    return wanted


def _read_layer(table: Table, path: Path, arch: Architecture | None) -> Layer:
    steps = table.lines("steps")
    script = _read_script(table, path.parent)
    layer = Layer(
        name=_image_name(table, path),
        version=table.line("version", pattern=_WORD, default="1"),
        base=table.line("base", pattern=_NAME),
        arch=arch,
        packages=table.lines("packages", pattern=_PACKAGE),
        wheels=_wheels(table),
        files=_read_files(table, path.parent),
        script="\n".join([script, *steps] if script else steps),
        network=table.flag("network"),
        build_bytes=table.size("build_space", default=_BUILD_SPACE),
        machine=_read_machine(table),
    )
    if layer.base == layer.name:
        raise table.bad("base", "is the image itself")
    if len(layer.script.encode()) > _SCRIPT_MAX:
        raise table.bad("steps", f"have more than {_SCRIPT_MAX} bytes together")
    table.end()
    return layer


def _read_system(table: Table, path: Path, arch: Architecture) -> Recipe:
    others = [one.debian for one in Architecture if one is not arch]
    table.replace_parts(arch.debian, others)
    recipe = Recipe(
        name=_image_name(table, path),
        version=table.line("version", pattern=_WORD),
        arch=arch,
        system=read_packages(table.table("system", required=True)),
        kernel=_read_kernel(table.table("kernel", required=True)),
        disk=_read_disk(table.table("disk", required=True)),
        machine=_read_machine(table),
        script=_read_script(table, path.parent),
    )
    table.end()
    return recipe


def read_packages(table: Table) -> System:
    """Read and check the packages and their source. Raises RecipeError."""
    keys = table.text("keys").strip()
    distribution = table.line("distribution", default="debian")
    if distribution not in DISTRIBUTIONS:
        raise table.bad("distribution", f"can be {' or '.join(DISTRIBUTIONS)}")
    is_alpine = distribution == ALPINE
    system = System(
        distribution=distribution,
        suite=table.line("suite", pattern=_NAME),
        mirror=table.line("mirror", pattern=_MIRROR),
        security_mirror=table.line(
            "security_mirror", pattern=_MIRROR, default="" if is_alpine else None
        ),
        components=table.lines("components", pattern=_NAME, required=True),
        keyring=table.line("keyring", pattern=_PACKAGE, default="" if keys or is_alpine else None),
        keys=f"{keys}\n" if keys else "",
        packages=table.lines("packages", pattern=_PACKAGE, required=True),
        user=table.line("user", pattern=_NAME),
    )
    _check_keys(table, system)
    table.end()
    return system


def _check_keys(table: Table, system: System) -> None:
    """Raises RecipeError."""
    if system.distribution == ALPINE:
        for key in ("security_mirror", "keyring"):
            if getattr(system, key):
                raise table.bad(key, "has no meaning for Alpine")
        if not system.keys.startswith("-----BEGIN PUBLIC KEY-----"):
            raise table.bad("keys", "are no RSA keys in PEM's text form, which Alpine needs")
    elif system.keys and not system.keys.startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----"):
        raise table.bad("keys", "are no OpenPGP keys in text form")


def _read_kernel(table: Table) -> Kernel:
    kernel = Kernel(
        package=table.line("package", pattern=_PACKAGE),
        boot_modules=table.lines("boot_modules", pattern=_MODULE, required=True),
        plain_modules=table.lines("plain_modules", pattern=_MODULE, required=True),
        dropped_modules=table.lines("dropped_modules", pattern=_DIRECTORY, required=True),
        cmdline=table.line("cmdline"),
    )
    table.end()
    return kernel


def _read_disk(table: Table) -> Disk:
    disk = Disk(
        size_bytes=table.size("size"),
        journal_mib=table.whole("journal_mib", least=1, most=_JOURNAL_MAX),
        build_bytes=table.size("build_space", default=_BUILD_SPACE),
    )
    if disk.size_bytes < _SIZE_MIN:
        raise table.bad("size", "is less than 1G")
    table.end()
    return disk


def _image_name(table: Table, path: Path) -> str:
    """Take the image's name, by default that of the file. Raises RecipeError."""
    name = table.line("name", pattern=_NAME, default=path.stem)
    if not _NAME.fullmatch(name):
        raise table.bad("name", "is missing, and the file's name cannot be one")
    return name


def _wheels(table: Table) -> tuple[str, ...]:
    wheels = table.lines("python")
    for wheel in wheels:
        try:
            found = Requirement(wheel)
        except InvalidRequirement:
            found = None
        pins = [] if found is None else list(found.specifier)
        if found is None or found.url or found.marker or found.extras or len(pins) != 1:
            raise table.bad("python", f"cannot contain {wheel!r}: name each as uv==0.13.9", wheel)
        if pins[0].operator != "==" or pins[0].version.endswith(".*"):
            raise table.bad("python", f"leaves the version open: {wheel!r}", wheel)
    return wheels


def _read_machine(table: Table) -> Mapping[str, Any]:
    """Check the default options of a machine. Raises RecipeError."""
    inner = table.table("machine")
    machine = inner.rest()
    for key, value in machine.items():
        if key not in KINDS:
            raise inner.bad(key, f"is unknown: a machine can be given {', '.join(KINDS)}")
        inner.checked(key, partial(_check_option, key, value))
    return machine


def _check_option(name: str, value: object) -> None:
    """Raises ValueError, ConfigError."""
    known = known_options(check_suggested({name: value}))
    SandboxConfig.parse({"image": "x", **known})


def _read_files(table: Table, place: Path) -> tuple[tuple[str, bytes], ...]:
    """Read the files that a recipe in the directory ``place`` puts into the guest. Raises
    RecipeError."""
    inner = table.table("files")
    found: list[tuple[str, bytes]] = []
    for target, name in inner.rest().items():
        if not _GUEST_PATH.fullmatch(target):
            raise inner.bad(target, "is no absolute path of a file or a directory")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise inner.bad(
                target, f"is not the name of a file or a directory beside the recipe: {name!r:.100}"
            )
        found += inner.checked(target, partial(_read_tree, place / name, target))
    if sum(len(data) for _, data in found) > _FILES_MAX:
        raise table.bad("files", f"have more than {_FILES_MAX} bytes together")
    return tuple(found)


def _read_tree(path: Path, target: str) -> list[tuple[str, bytes]]:
    """Read a file, or those directly in a directory. Raises OSError."""
    if not path.is_dir():
        return [(target, path.read_bytes())]
    files = (one for one in sorted(path.iterdir()) if one.is_file() and one.name[0] != ".")
    return [(f"{target}/{one.name}", one.read_bytes()) for one in files]


def _read_script(table: Table, place: Path) -> str:
    """Read the scripts that a recipe in the directory ``place`` names, one after the other. Raises
    RecipeError."""
    if "customize" not in table:
        return ""
    texts = []
    for name in table.names("customize"):
        if not _NAME.fullmatch(name):
            raise table.bad(
                "customize", f"is not the name of a file beside the recipe: {name!r}", name
            )
        data = table.checked("customize", (place / name).read_bytes)
        texts.append(table.checked("customize", partial(data.decode, "utf-8")))
    script = "\n".join(texts)
    if len(script.encode()) > _SCRIPT_MAX:
        raise table.bad("customize", f"names files of more than {_SCRIPT_MAX} bytes")
    return script
