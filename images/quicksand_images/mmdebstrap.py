"""Makes a root file system with mmdebstrap, as root or in a user namespace: the fast way."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.progress import Progress
from quicksand.base.tools import ToolError, run_tool
from quicksand.qemu import debs

from quicksand_images.log import BuildLog
from quicksand_images.recipe import Recipe
from quicksand_images.rootfs import RootTree, hook_environment, unpack_tree
from quicksand_images.shares import IN_NAMESPACE
from quicksand_images.sources import Mirrors, reaching_mirrors, source_lines
from quicksand_images.toolbox import Tool, require_tool

_HOOK = 'PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$1" /bin/sh -eu -c "$CUSTOMIZE"'
_DPKG_HOOK = (
    'cd "$1" && mkdir -p etc/dpkg/dpkg.cfg.d && '
    'printf %s "$DPKG_CONFIG" >etc/dpkg/dpkg.cfg.d/90quicksand'
)
TRIAL_S = 30.0
MAPPED = ("--user", "--map-root-user", "--map-auto", "--mount")
TRIAL = "mount -t tmpfs none /mnt && touch /mnt/file && chown 1:1 /mnt/file && chroot / true"
"""The steps of a build in its namespace. With AppArmor
(kernel.apparmor_restrict_unprivileged_userns) anybody can make one, but all of these may fail in
it."""

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
class Builder:
    """The way in which mmdebstrap can run on this host."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    mode: str
    """The value of mmdebstrap's --mode."""
    makes_directory: bool
    """Whether it makes a directory, as root; otherwise only a tar archive preserves the owners."""


async def make_tree(
    recipe: Recipe,
    builder: Builder,
    place: Path,
    *,
    keyring: Path,
    mirrors: Mirrors,
    log: BuildLog,
) -> RootTree:
    """Make the root file system of ``recipe`` in ``place``, a private directory.

    Raises ToolError, HostError. A cancellation leaves no process and no mount.
    """
    target = place / ("tree" if builder.makes_directory else "tree.tar")
    reaching = place / "acquire.conf"
    reaching.write_text(await reaching_mirrors(), encoding="utf-8")
    argv = plan_mmdebstrap(
        recipe, builder, target, keyring=keyring, mirrors=mirrors, reaching=reaching
    )
    env = {**builder.env, **hook_environment(recipe)}
    log.follow(IN_NAMESPACE)
    await run_tool(argv, env=env, on_line=_reporter(log))
    if builder.makes_directory:
        return RootTree(path=target, owners=None)
    return await unpack_tree(target)


def plan_mmdebstrap(
    recipe: Recipe,
    builder: Builder,
    target: Path,
    *,
    keyring: Path,
    mirrors: Mirrors,
    reaching: Path,
) -> list[str]:
    """Return mmdebstrap's command line. ``reaching`` is an apt.conf(5) with the settings for the
    mirrors."""
    system = recipe.system
    return [
        *builder.command,
        f"--mode={builder.mode}",
        "--variant=apt",
        f"--format={'directory' if builder.makes_directory else 'tar'}",
        f"--architectures={recipe.arch.debian}",
        f"--include={','.join(system.packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        f"--aptopt={reaching}",
        "--skip=check/signed-by",
        # With --dpkgopt mmdebstrap would filter every archive in Python: 9 s instead of 1.
        "--extract-hook=" + _DPKG_HOOK,
        "--customize-hook=" + _HOOK,
        system.suite,
        str(target),
        *source_lines(system, keyring, mirrors),
    ]


def _reporter(log: BuildLog) -> Callable[[str], None]:
    def report(line: str) -> None:
        log.line(line)
        for words, stage in _STAGES:
            if line.startswith(f"I: {words}"):
                log.stage(stage, 0, 0)

    return report


async def find_builder(place: Path, progress: Progress | None) -> Builder | None:
    """Find out how mmdebstrap can make a root file system here; return None if it cannot.

    It tries each way, because the outcome depends on subordinate ids, security modules and
    containers. Raises HostError.
    """
    if debs.is_root():
        # A build killed in its own namespaces leaves no mounts; some containers forbid those.
        if await _works(["unshare", "--mount", "--pid", "--fork", "sh", "-c", TRIAL]):
            mode = "unshare"
        elif await _works(["chroot", "/", "true"]):
            mode = "root"
        else:
            return None
        tool = await require_tool("mmdebstrap", "mmdebstrap", place, progress=progress)
        return Builder(command=tool.command, env=_env(tool), mode=mode, makes_directory=True)
    # Most users lack this, and finding out needs no download.
    if not await _works(["unshare", *MAPPED, "sh", "-c", TRIAL]):
        return None
    try:
        tool = await require_tool("mmdebstrap", "mmdebstrap", place, progress=progress)
    except HostError:
        return None
    if not await _works([*tool.command, "--unshare-helper", "sh", "-c", TRIAL], _env(tool)):
        return None
    return Builder(command=tool.command, env=_env(tool), mode="unshare", makes_directory=False)


def _env(tool: Tool) -> dict[str, str]:
    env = {**tool.env}
    if "TMPDIR" not in os.environ:
        env["TMPDIR"] = "/var/tmp"  # noqa: S108 - on disk, where /tmp may be memory
    return env


async def _works(argv: list[str], env: Mapping[str, str] | None = None) -> bool:
    try:
        await run_tool(argv, env=env, timeout_s=TRIAL_S)
    except ToolError:
        return False
    return True
