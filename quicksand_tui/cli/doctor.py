"""`quicksand-tui doctor`: every precondition, what is wrong with it, and what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict

import click
from quicksand.errors import QuicksandError

from quicksand_tui.cli.checks import Check, Level
from quicksand_tui.cli.doctor_snapshots import check_checkpoints, check_templates
from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.output import print_json, show_size
from quicksand_tui.cli.text import clean_lines

DISK_WANTED = 2 * 1024**3
MEMORY_WANTED = 1024**3


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--fresh", is_flag=True, help="Probe the accelerator again.")
def command(as_json: bool, fresh: bool) -> int:
    """Check this host. Every line says ok, or what is wrong and what to do about it.

    Exit status 1 if something fails without which no sandbox starts.
    """
    checks = asyncio.run(examine(fresh=fresh))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            print(f"{check.level:<5} {check.name:<12} {clean_lines(check.found)}")
            if check.hint:
                print(f"{'':<18} → {clean_lines(check.hint)}")
    return Exit.FAILURE if any(check.level is Level.FAIL for check in checks) else Exit.OK


async def examine(*, fresh: bool) -> list[Check]:
    """Run every check; one that raises has failed and says why."""
    checks: list[tuple[str, Callable[[], Awaitable[list[Check]]]]] = [
        ("python", _python),
        ("places", _places),
        ("qemu", _qemu),
        ("accelerator", lambda: _accelerator(fresh=fresh)),
        ("image", _image),
        ("agent", _agent),
        ("memory", _memory),
        ("disk", _disk),
        ("checkpoints", check_checkpoints),
        ("templates", check_templates),
        ("network", _network),
        ("leftovers", _leftovers),
        ("terminal", _terminal),
    ]
    found: list[Check] = []
    for name, check in checks:
        try:
            found += await check()
        except QuicksandError as error:
            found.append(Check(name, Level.FAIL, str(error), error.hint))
    return found


async def _python() -> list[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    return [Check("python", Level.OK, version)]


async def _places() -> list[Check]:
    from quicksand.host.paths import make_private_dir, paths
    from quicksand.layout import runtime_dir
    from quicksand.registry import new_id

    places = paths()
    for place in (places.runtime, places.data, places.cache):
        make_private_dir(place)
    runtime_dir(places, new_id()).check_length()
    return [Check("places", Level.OK, f"{places.data}, {places.runtime}")]


async def _qemu() -> list[Check]:
    from quicksand.qemu.binaries import find_binaries

    binaries = await asyncio.to_thread(find_binaries)
    return [Check("qemu", Level.OK, f"{binaries.version_text}, {binaries.system}")]


async def _accelerator(*, fresh: bool) -> list[Check]:
    from quicksand.config import Accelerator
    from quicksand.qemu.accelerator import find_accelerator
    from quicksand.qemu.binaries import find_binaries

    binaries = await asyncio.to_thread(find_binaries)
    status = await find_accelerator(binaries, fresh=fresh)
    if status.accelerator is not Accelerator.TCG:
        return [Check("accelerator", Level.OK, f"{status.accelerator}, probed")]
    return [
        Check("accelerator", Level.NOTE, f"tcg; {status.error}", status.hint or ""),
        Check(
            "isolation",
            Level.NOTE,
            "TCG emulation is no security boundary (QEMU's own security policy)",
            "run code that you would not run yourself only where KVM, HVF or WHPX works",
        ),
    ]


async def _image() -> list[Check]:
    from quicksand.host.paths import paths
    from quicksand.images.resolve import ImageResolver

    images = await asyncio.to_thread(ImageResolver(paths()).list)
    usable = [image for image in images if not image.error]
    checks = [
        Check("image", Level.NOTE, f"{image.name} is broken: {image.error}")
        for image in images
        if image.error
    ]
    if not usable:
        hint = "`quicksand-tui images build debian` makes the default one"
        return [*checks, Check("image", Level.FAIL, "there is no image", hint)]
    names = ", ".join(f"{image.name} {image.version}".strip() for image in usable)
    return [*checks, Check("image", Level.OK, names)]


async def _agent() -> list[Check]:
    from quicksand.host.arch import Architecture
    from quicksand.images.initrd import find_agent

    agent = find_agent(Architecture.host())
    return [Check("agent", Level.OK, f"{show_size(agent.stat().st_size)}, {agent}")]


async def _memory() -> list[Check]:
    from quicksand.host.memory import available_memory

    available = available_memory()
    text = f"{show_size(available)} available"
    if available < MEMORY_WANTED:
        hint = "stop something, or start sandboxes with less: --memory 256M"
        return [Check("memory", Level.NOTE, text, hint)]
    return [Check("memory", Level.OK, text)]


async def _disk() -> list[Check]:
    from quicksand.host.paths import paths

    data = paths().data
    free = shutil.disk_usage(data).free
    text = f"{show_size(free)} free at {data}"
    if free < DISK_WANTED:
        return [Check("disk", Level.NOTE, text, "free some space, or set QUICKSAND_DATA_DIR")]
    return [Check("disk", Level.OK, text)]


async def _network() -> list[Check]:
    return [
        Check(
            "network",
            Level.NOTE,
            "with --network full a guest reaches what this host reaches, its own loopback services "
            "included (as 10.0.2.2)",
            "the default, mounts_only, lets a guest open no connection at all",
        )
    ]


async def _terminal() -> list[Check]:
    """What this terminal told the app; nothing is asked here, as there may be none."""
    from quicksand_tui.probing import known_terminal

    if not os.isatty(0):
        return [Check("terminal", Level.OK, "none here")]
    known = known_terminal(os.environ)
    if known is None:
        return [Check("terminal", Level.OK, "not asked yet; the app asks it")]
    can = [
        known.name or "no name",
        {True: "light", False: "dark", None: "background unknown"}[known.is_light],
        f"graphics: {known.graphics}",
    ]
    can += ["draws frames at once"] if known.sync_output else []
    can += ["kitty's keyboard"] if known.kitty_keyboard else []
    return [Check("terminal", Level.OK, ", ".join(can))]


async def _leftovers() -> list[Check]:
    from quicksand.host.paths import paths
    from quicksand.registry import Registry, Status

    registry = Registry(paths())
    reaped = await asyncio.to_thread(registry.reap)
    broken = [e for e in registry.list() if e.status in (Status.BROKEN, Status.CRASHED)]
    checks = [
        Check("leftovers", Level.NOTE, f"{entry.name} is {entry.status}: {entry.error}")
        for entry in broken
    ]
    if reaped:
        checks.append(Check("leftovers", Level.NOTE, f"removed what {len(reaped)} dead ones left"))
    return checks or [Check("leftovers", Level.OK, f"none (user {os.getuid()})")]
