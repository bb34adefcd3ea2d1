"""Recipes: TOML files that describe images."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand.disks.images.suggested import check_suggested
from quicksand.life.image_building import known_options
from quicksand.records.config import SandboxConfig
from quicksand.records.sizes import parse_size

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_MODULE = re.compile(r"[A-Za-z0-9_-]+")
_DEBIAN_NAMES = frozenset(arch.debian for arch in Architecture)
_SIZE_MIN = 1024**3
_SCRIPT_MAX = 64 * 1024
"""Bytes of a recipe's script: it is passed on as one variable of an environment, which Linux limits
to 128 KiB (MAX_ARG_STRLEN, execve(2))."""
_BUILD_SPACE = "2G"
_PLACES = (Path(__file__).resolve().parent / "recipes", Path(__file__).resolve().parents[1])
"""The recipes of an installation and of a checkout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The packages of the root file system."""

    suite: str
    mirror: str
    security_mirror: str
    components: tuple[str, ...]
    keyring: str
    """The package with the keys that sign the suite."""
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
    """A whole image."""

    name: str
    version: str
    arch: Architecture
    system: System
    kernel: Kernel
    disk: Disk
    machine: Mapping[str, Any]
    """What a machine gets where the user says nothing (`quicksand.disks.images.suggested`)."""
    script: str
    """What is run in the new system after its packages are configured; "" for nothing."""


def recipe_names() -> tuple[str, ...]:
    """Return the names that `find_recipe` knows."""
    return tuple(sorted({path.stem for place in _PLACES for path in place.glob("*.toml")}))


def find_recipe(name: str | Path) -> Path:
    """Find a recipe's file by path or by name. Raises ImageNotFound."""
    path = Path(name)
    if path.suffix == ".toml" or "/" in str(name):
        if not path.is_file():
            raise ImageNotFound(f"Image not found: there is no recipe {str(path)!r}")
        return path
    for place in _PLACES:
        if (found := place / f"{name}.toml").is_file():
            return found
    known = recipe_names()
    raise ImageNotFound(
        f"Image not found: there is no recipe {str(name)!r}",
        hint=f"there are recipes for {', '.join(known)}" if known else "",
    )


def load_recipe(name: str | Path, arch: Architecture | str | None = None) -> Recipe:
    """Read and check a recipe for guests of ``arch``; without it, for those of this host's
    architecture or else of the first that the recipe names.

    Raises ImageNotFound, ConfigError for an unknown architecture, or ImageError naming what is
    wrong in it, or which architectures it is for.
    """
    path = find_recipe(name)
    asked = Architecture.parse(arch) if arch else None
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
        known = _architectures(table)
        ours = Architecture.host()
        wanted = asked or (ours if ours in known else known[0])
        if wanted not in known:
            names = ", ".join(one.debian for one in known)
            raise ImageError(f"the recipe {path.stem!r} is for {names}, not for {wanted.debian}")
        return _parse(_specific(table, wanted), wanted, path.parent)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ImageError(f"the recipe {path} is wrong: {reason}") from error


def _architectures(table: Mapping[str, Any]) -> tuple[Architecture, ...]:
    """The architectures that a recipe is for. Raises ValueError, KeyError, ConfigError."""
    value = table["architecture"]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise ValueError("architecture is neither a name nor a list of names")
    return tuple(Architecture.parse(name) for name in names)


def _specific(table: Mapping[str, Any], arch: Architecture) -> dict[str, Any]:
    """The recipe for one architecture: what stands in ``[amd64.kernel]`` and the like replaces what
    stands in ``[kernel]``, value by value. Raises ValueError."""
    found = {key: value for key, value in table.items() if key not in _DEBIAN_NAMES}
    for part, values in table.get(arch.debian, {}).items():
        if not isinstance(values, dict) or not isinstance(found.get(part), dict):
            raise ValueError(f"{arch.debian}.{part} replaces nothing: there is no [{part}]")
        found[part] = {**found[part], **values}
    return found


def _parse(table: Mapping[str, Any], arch: Architecture, place: Path) -> Recipe:
    known = {"name", "version", "architecture", "system", "kernel", "disk"}
    _refuse_unknown(table, known | {"machine", "customize"}, "")
    disk = table["disk"]
    _refuse_unknown(disk, {"size", "journal_mib", "build_space"}, "disk.")
    recipe = Recipe(
        name=str(table["name"]),
        version=str(table["version"]),
        arch=arch,
        system=System(**_checked(System, table["system"], "system.")),
        kernel=Kernel(**_checked(Kernel, table["kernel"], "kernel.")),
        disk=Disk(
            size_bytes=parse_size(disk["size"], what="disk.size"),
            journal_mib=int(disk["journal_mib"]),
            build_bytes=parse_size(disk.get("build_space", _BUILD_SPACE), what="disk.build_space"),
        ),
        machine=_read_machine(table.get("machine", {})),
        script=_read_script(table.get("customize", ""), place),
    )
    for name in (recipe.name, recipe.system.user, recipe.system.suite):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be a name")
    for package in (*recipe.system.packages, recipe.system.keyring, recipe.kernel.package):
        if not _PACKAGE.fullmatch(package):
            raise ValueError(f"{package!r} cannot be the name of a package")
    for module in (*recipe.kernel.boot_modules, *recipe.kernel.plain_modules):
        if not _MODULE.fullmatch(module):
            raise ValueError(f"{module!r} cannot be the name of a module")
    if recipe.disk.size_bytes < _SIZE_MIN:
        raise ValueError("disk.size is less than 1G")
    return recipe


def _read_machine(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check what a machine gets by default. Raises ValueError, ConfigError."""
    machine = check_suggested(table)
    _refuse_unknown(table, set(machine), "machine.")
    SandboxConfig.parse({"image": "x", **known_options(machine)})
    return machine


def _read_script(name: object, place: Path) -> str:
    """Read the script that a recipe in the directory ``place`` names. Raises ValueError,
    OSError."""
    if name == "":
        return ""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"customize {name!r} is not the name of a file beside the recipe")
    data = (place / name).read_bytes()
    if len(data) > _SCRIPT_MAX:
        raise ValueError(f"{name} has more than {_SCRIPT_MAX} bytes")
    return data.decode("utf-8")


def _checked(kind: type[System | Kernel], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check the values for a dataclass of strings and tuples of strings. Raises ValueError,
    KeyError."""
    names = {field.name: str(field.type) for field in fields(kind)}
    _refuse_unknown(table, set(names), where)
    values: dict[str, Any] = {}
    for name, annotation in names.items():
        value = table[name]
        if annotation == "str":
            if not isinstance(value, str) or not value.isprintable():
                raise ValueError(f"{where}{name} is not a line of text")
            values[name] = value
        else:
            if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
                raise ValueError(f"{where}{name} is not a list of texts")
            values[name] = tuple(value)
    return values


def _refuse_unknown(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in table:
        if name not in known:
            raise ValueError(f"{where}{name} is unknown")
