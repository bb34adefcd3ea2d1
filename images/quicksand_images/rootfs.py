"""The root file system: mmdebstrap makes it, as root or without."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import HostError
from quicksand.host.tools import Progress, ToolError, run_tool
from quicksand.qemu import debs

from quicksand_images.recipe import Recipe
from quicksand_images.toolbox import require_tool

WORK = "quicksand-build"
"""Directory in the root file system with what is not to stay there."""

KEYRINGS = Path("/usr/share/keyrings")
SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))

_HOOK = 'PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$1" /bin/sh -eu -c "$CUSTOMIZE"'
_DPKG_HOOK = (
    'cd "$1" && mkdir -p etc/dpkg/dpkg.cfg.d && '
    'printf %s "$DPKG_CONFIG" >etc/dpkg/dpkg.cfg.d/90quicksand'
)
_DPKG_CONFIG = """\
# A sandbox has snapshots: no fsync for every file that is unpacked.
force-unsafe-io
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
"""
_STAGES = (
    ("running apt-get update", "fetching the lists of packages"),
    ("downloading packages", "downloading packages"),
    ("extracting archives", "unpacking the base system"),
    ("installing essential", "installing the base system"),
    ("installing remaining", "installing packages"),
    ("running --customize-hook", "configuring the system"),
    ("cleaning package lists", "cleaning up"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrors:
    """Where packages come from while building."""

    main: str
    security: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RootTree:
    """An unpacked root file system."""

    path: Path
    owners: Mapping[str, tuple[int, int]] | None
    """User and group by path ("/etc/shadow") of what is not root's, if the files here all belong to
    the user who builds. None: they have their owners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """How mmdebstrap can run here."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    mode: str
    """mmdebstrap's word for it."""
    makes_directory: bool
    """As root; otherwise a tar archive is the only way to learn the owners."""


async def make_tree(recipe: Recipe, place: Path, *, progress: Progress | None = None) -> RootTree:
    """Make the root file system of ``recipe`` in ``place``, an empty directory of ours.

    Raises ToolError or HostError. Cancelled, it leaves no process and no mount.
    """
    builder = await _find_builder(recipe, place, progress)
    keyring = await _find_keyring(recipe, place)
    mirrors = await asyncio.to_thread(find_mirrors, recipe)
    target = place / ("tree" if builder.makes_directory else "tree.tar")
    argv = plan_mmdebstrap(recipe, builder, target, keyring=keyring, mirrors=mirrors)
    env = {**builder.env, **hook_environment(recipe)}
    await run_tool(argv, env=env, on_line=_stage_reporter(progress))
    if builder.makes_directory:
        return RootTree(path=target, owners=None)
    tree = place / "tree"
    tree.mkdir()
    # Device nodes are not ours to make, and the guest's /dev is the kernel's.
    await run_tool(["tar", "-C", tree, "--exclude=./dev/*", "--no-same-owner", "-xpf", target])
    owners = await asyncio.to_thread(read_owners, target)
    target.unlink()
    return RootTree(path=tree, owners=owners)


def plan_mmdebstrap(
    recipe: Recipe, builder: Builder, target: Path, *, keyring: Path, mirrors: Mirrors
) -> list[str]:
    """mmdebstrap's command line."""
    system = recipe.system
    signed = f"[signed-by={keyring}]"
    components = " ".join(system.components)
    return [
        *builder.command,
        f"--mode={builder.mode}",
        "--variant=apt",
        f"--format={'directory' if builder.makes_directory else 'tar'}",
        f"--architectures={recipe.arch.debian}",
        f"--include={','.join(system.packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        "--skip=check/signed-by",
        # As --dpkgopt they would send every archive through a filter in Python: 9 s instead of 1.
        "--extract-hook=" + _DPKG_HOOK,
        "--customize-hook=" + _HOOK,
        system.suite,
        str(target),
        f"deb {signed} {mirrors.main} {system.suite} {components}",
        f"deb {signed} {mirrors.main} {system.suite}-updates {components}",
        f"deb {signed} {mirrors.security} {system.suite}-security {components}",
    ]


def hook_environment(recipe: Recipe) -> dict[str, str]:
    """The script that configures the system, and what it is told."""
    system, kernel = recipe.system, recipe.kernel
    return {
        "CUSTOMIZE": (Path(__file__).parent / "customize.sh").read_text(encoding="utf-8"),
        "DPKG_CONFIG": _DPKG_CONFIG,
        "SUITE": system.suite,
        "MIRROR": system.mirror,
        "SECURITY_MIRROR": system.security_mirror,
        "COMPONENTS": " ".join(system.components),
        "USER_NAME": system.user,
        "KERNEL_PACKAGE": kernel.package,
        "PLAIN_MODULES": " ".join(kernel.plain_modules),
        "DROPPED_MODULES": " ".join(kernel.dropped_modules),
        "WORK": f"/{WORK}",
    }


def _stage_reporter(progress: Progress | None) -> Callable[[str], None]:
    def report(line: str) -> None:
        if progress is None:
            return
        for number, (words, stage) in enumerate(_STAGES):
            if line.startswith(f"I: {words}"):
                progress(stage, number, len(_STAGES))

    return report


def read_owners(archive: Path) -> dict[str, tuple[int, int]]:
    """Who owns what in a tar archive, without what is root's."""
    with tarfile.open(archive, "r:") as file:
        return {
            "/" + member.name.removeprefix(".").strip("/"): (member.uid, member.gid)
            for member in file
            if member.uid or member.gid
        }


def find_mirrors(recipe: Recipe) -> Mirrors:
    """The recipe's mirrors, or those that a Debian host is configured for."""
    system = recipe.system
    mirrors = Mirrors(main=system.mirror, security=system.security_mirror)
    release = _os_release()
    if release.get("ID") != "debian" or not (codename := release.get("VERSION_CODENAME")):
        return mirrors
    found: dict[str, str] = {}
    for file in _sources_files():
        found |= parse_sources(file.read_text(encoding="utf-8", errors="replace"))
    return Mirrors(
        main=found.get(codename, mirrors.main),
        security=found.get(f"{codename}-security", mirrors.security),
    )


def parse_sources(text: str) -> dict[str, str]:
    """The mirror by suite, in a file of apt's old form (lines) or new one (paragraphs)."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split("]", 1)[-1].split() if "[" in line else line.split()[1:]
        if line.startswith("deb ") and len(words) >= 2:
            found.setdefault(words[1].rstrip("/"), words[0].rstrip("/"))
    for paragraph in text.split("\n\n"):
        fields = {
            key.strip().lower(): value.split()
            for key, _, value in (line.partition(":") for line in paragraph.splitlines())
            if not key.startswith("#")
        }
        if "deb" in fields.get("types", []) and fields.get("uris"):
            for suite in fields.get("suites", []):
                found.setdefault(suite.rstrip("/"), fields["uris"][0].rstrip("/"))
    return {suite: uri for suite, uri in found.items() if uri.startswith(("http://", "https://"))}


def _sources_files() -> list[Path]:
    single, directory = SOURCES
    files = [single, *sorted(directory.glob("*.list")), *sorted(directory.glob("*.sources"))]
    return [file for file in files if file.is_file() and os.access(file, os.R_OK)]


def _os_release() -> dict[str, str]:
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value.strip('"') for key, _, value in pairs}


async def _find_keyring(recipe: Recipe, place: Path) -> Path:
    package = recipe.system.keyring
    if (found := KEYRINGS / f"{package}.gpg").is_file():
        return found
    root = place / "keyring"
    root.mkdir()
    await debs.unpack([package], root)
    files = sorted((root / "usr" / "share" / "keyrings").glob(f"{package}.*"))
    if not files:
        raise HostError(f"the package {package} holds no keys")
    return files[0]


async def _find_builder(recipe: Recipe, place: Path, progress: Progress | None) -> Builder:
    if not debs.is_apt_host():
        raise HostError(
            "images can be built on Debian and Ubuntu only",
            hint="build on such a machine and copy the directory of the image",
        )
    tool = await require_tool("mmdebstrap", "mmdebstrap", place, progress=progress)
    env = {**tool.env}
    if "TMPDIR" not in os.environ:
        env["TMPDIR"] = "/var/tmp"  # noqa: S108 - on disk, where /tmp may be memory
    if debs.is_root():
        # In its own namespaces a killed build leaves no mounts; some containers forbid them.
        isolated = await _works(["unshare", "--mount", "--pid", "--fork", "true"])
        mode = "unshare" if isolated else "root"
        return Builder(command=tool.command, env=env, mode=mode, makes_directory=True)
    if await _works([*tool.command, "--unshare-helper", "true"], env):
        return Builder(command=tool.command, env=env, mode="unshare", makes_directory=False)
    same_libc = _os_release().get("VERSION_CODENAME") == recipe.system.suite
    if same_libc and shutil.which("fakechroot") and shutil.which("fakeroot"):
        return Builder(command=tool.command, env=env, mode="fakechroot", makes_directory=False)
    name = getpass.getuser()
    raise HostError(
        f"the user {name} may not build images here: that needs a range of user ids of its own",
        hint="once, as root: apt-get install uidmap mmdebstrap; usermod "
        f"--add-subuids 100000-165535 --add-subgids 100000-165535 {name}",
    )


async def _works(argv: list[str], env: Mapping[str, str] | None = None) -> bool:
    try:
        await run_tool(argv, env=env, timeout_s=30.0)
    except ToolError:
        return False
    return True


def mounts_below(place: Path) -> list[str]:
    """Mount points below ``place``, should any have been left."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    points = [line.split()[4] for line in text.splitlines()]
    return [point for point in points if point.startswith(f"{place}/")]


def remove_build(place: Path) -> None:
    """Delete a build's directory, unless something is still mounted in there."""
    if mounts_below(place.resolve()):
        return

    def make_writable(function: Callable[..., object], path: str, _: object) -> None:
        parent = Path(path).parent
        parent.chmod(stat.S_IRWXU)
        function(path)

    shutil.rmtree(place, onerror=make_writable)
