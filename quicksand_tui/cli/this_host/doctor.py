"""`quicksand-tui doctor`: checks every precondition, and tells problems with their remedies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quicksand.base.arch import Architecture
from quicksand.base.capacity import available_memory
from quicksand.base.errors import QemuLacksDevice, QuicksandError, StateError
from quicksand.base.paths import is_exposed, make_private_dir, paths
from quicksand.base.progress import Course
from quicksand.base.sharing import can_share_blocks
from quicksand.disks.images.boot_files import find_agent
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.packages.names import normalised
from quicksand.guest.network import why_no_names
from quicksand.life.all_processes import spare_memory
from quicksand.life.spare_names import machine_name, order_command
from quicksand.mounts.known_mounts import known_mounts
from quicksand.qemu.accelerator import find_accelerator
from quicksand.qemu.binaries import find_binaries, require_display
from quicksand.qemu.host_usage import host_usage
from quicksand.qemu.provision import SHARES, ensure_qemu
from quicksand.qemu.stopping import find_orphans, find_unkept
from quicksand.records.config import Accelerator
from quicksand.records.fleet_files import lost_nodes
from quicksand.records.layout import directories_elsewhere, runtime_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import new_id
from quicksand.saves.finding import known_stores
from quicksand.snapshots.tier_choice import choose_tier
from quicksand.things.status import MountState, Status
from quicksand.warm.spares.claiming import end_useless
from quicksand.warm.spares.orders import makes_none
from quicksand.warm.spares.spare import is_off
from quicksand.warm.spares.stock import look
from quicksand.warm.templates import list_templates, templates_dir
from quicksand_driver.terminal_queries import known_terminal

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, print_json, show_size
from quicksand_tui.cli.progress_display import BuildProgress, shown
from quicksand_tui.home.state import terminals_file
from quicksand_tui.model.remedy_words import hint_of, text_of, worded
from quicksand_tui.model.text import clean_lines, error_text

if TYPE_CHECKING:
    from quicksand.records.sandboxes import Entry
    from quicksand.warm.spares.stock import Stocked


OURS = ("quicksand", "quicksand_tui", "quicksand_images", "quicksand_smb", "quicksand_vt")
"""The top-level modules of our distribution."""

OWN = "quicksand-tui"


class Clash(NamedTuple):
    """A package of others that has a module of ours."""

    package: str
    modules: tuple[str, ...]


def find_clashes() -> list[Clash]:
    """Lists the packages of others that have modules of our names: the package that was installed
    last has overwritten the other's files. Blocks for the disk."""
    owners = packages_distributions()
    found: dict[str, set[str]] = {}
    for module in OURS:
        for package in owners.get(module, ()):
            if normalised(package) != OWN:
                found.setdefault(normalised(package), set()).add(module)
    return [Clash(package, tuple(sorted(modules))) for package, modules in sorted(found.items())]


async def network_findings() -> list[tuple[str, str]]:
    """Returns facts for the user, each with a remedy."""
    found = [
        (
            "with --network full a guest reaches what this host reaches, its own loopback services "
            "included (as 10.0.2.2)",
            "the default, mounts_only, lets a guest open no connection at all",
        )
    ]
    if why := await asyncio.to_thread(why_no_names):
        found.append(("guests find no names by themselves", why))
    return found


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    """It works, but the user should know something about it."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    level: Level
    found: str
    hint: str = ""
    """The user's remedy."""


async def check_templates() -> list[Check]:
    """Checks the place, the number and the size of templates, and whether they can be
    hard-linked."""
    place = templates_dir(paths())
    found = await asyncio.to_thread(list_templates, paths())
    size = show_size(sum(template.size for template in found))
    text = f"{len(found)}, {size}, {place}" if found else f"none yet, {place}"
    sandboxes = paths().sandboxes
    if _device(place) != _device(sandboxes):
        return [
            Check(
                "templates",
                Level.NOTE,
                f"{text}: another file system than that of {sandboxes}, so each start copies",
                "set QUICKSAND_CACHE_DIR to a place beside it",
            )
        ]
    return [Check("templates", Level.OK, f"{text}, on the file system of the sandboxes")]


async def check_spares() -> list[Check]:
    """Tells the number of machines that wait for a start, their memory, and the orders'
    fulfilment."""
    registry = Registry(paths())
    number, memory = await asyncio.to_thread(spare_memory, registry)
    text = f"{number}, {show_size(memory)} of memory" if number else "none waits"
    if off := is_off():
        return [Check("spares", Level.OK, f"{text}; {off}")]
    try:
        orders = await look(registry)
    except StateError as error:
        return [Check("spares", Level.NOTE, f"{text}; no order holds: {error}", hint_of(error))]
    short = [one for one in orders if one.ready < one.order.count]
    ordered = [_standing(one) for one in orders if one not in short]
    text += f"; ordered: {', '.join(ordered)}" if ordered else ""
    return [Check("spares", Level.OK, text), *(_missing(registry, one) for one in short)]


def _standing(stocked: Stocked) -> str:
    return f"{stocked.ready} of {stocked.order.count} for {machine_name(stocked.order.config)}"


def _missing(registry: Registry, stocked: Stocked) -> Check:
    """Tells why spares of an order are missing, and the remedy."""
    config, count = stocked.order.config, stocked.order.count
    text = f"ordered: {_standing(stocked)}"
    if stocked.why:
        hint = f"`{order_command(registry.paths, config, 0)}` ends the order"
        return Check("spares", Level.NOTE, f"{text}: {worded(stocked.why)}", hint)
    hint = f"`{order_command(registry.paths, config, count)}` makes the missing ones"
    hint += "" if makes_none() else ", and so does the next start, in the background"
    return Check("spares", Level.NOTE, text, hint)


def _device(path: Path) -> int:
    """Returns the device of the file system of ``path``, or of its nearest existing parent."""
    return next(p for p in (path, *path.parents) if p.exists()).stat().st_dev


SHARING = "btrfs, or xfs made with reflink=1"


async def check_checkpoints() -> list[Check]:
    """Checks the tier and level of checkpoints on this host, and whether disks can share blocks."""
    tier = await asyncio.to_thread(choose_tier)
    found = f"tier {tier.name}; a pause copies {tier.copied}"
    if tier.note:
        found += f" ({tier.note})"
    return [
        Check("checkpoints", Level.OK, found, tier.hint),
        *(await asyncio.to_thread(_check_sharing)),
    ]


def _check_sharing() -> list[Check]:
    """Checks whether files can share blocks in the directories of disks and memory."""
    ours = paths()
    # The directory is made with the first sandbox that has its memory there.
    elsewhere = sorted(place for place in directories_elsewhere(ours) if place.is_dir())
    found = []
    for place in (ours.data, *elsewhere):
        shares = can_share_blocks(place)
        what = "files" if place == ours.data else "memory files"
        found.append(
            Check(
                "checkpoints",
                Level.OK,
                f"{what} at {place} {'can' if shares else 'cannot'} share blocks (reflink)",
                "" if shares else f"whole memory images would be cheaper on {SHARING}",
            )
        )
    return found


DISK_WANTED = 2 * 1024**3
MEMORY_WANTED = 1024**3


@command_of("doctor")
def doctor_command(as_json: bool, fresh: bool, fix: bool) -> int:
    """Check this host. Every line says ok, or names a problem and its cure.

    With --fix a QEMU is got first if none works here, as `setup` gets it. The exit status is 1 if a
    problem keeps all sandboxes from starting.
    """
    checks = asyncio.run(_fix_and_examine(fresh=fresh) if fix else examine(fresh=fresh))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            print(f"{check.level:<5} {check.name:<12} {clean_lines(check.found)}")
            if check.hint:
                print(f"{'':<18} → {clean_lines(check.hint)}")
    return Exit.FAILURE if any(check.level is Level.FAIL for check in checks) else Exit.OK


async def _fix_and_examine(*, fresh: bool) -> list[Check]:
    progress = BuildProgress("doctor")
    getting = Course(progress.stage).part(SHARES)
    try:
        async with shown(progress.look):
            binaries = await ensure_qemu(getting, arch=Architecture.host().value)
        fixed = Check("fix", Level.OK, f"QEMU {binaries.version_text} works ({binaries.origin})")
    except QuicksandError as error:
        fixed = Check("fix", Level.FAIL, text_of(error), hint_of(error))
    return [fixed, *await examine(fresh=fresh)]


async def examine(*, fresh: bool) -> list[Check]:
    """Runs every check. One that an error ends counts as failed for that reason; the others still
    run."""
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
        ("spares", check_spares),
        ("network", _network),
        ("mounts", _mounts),
        ("leftovers", _leftovers),
        ("terminal", _terminal),
    ]
    found: list[Check] = []
    for name, check in checks:
        try:
            found += await check()
        except QuicksandError as error:
            found.append(Check(name, Level.FAIL, text_of(error), hint_of(error)))
        except OSError as error:
            found.append(Check(name, Level.FAIL, f"cannot look: {error_text(error)}"))
    return found


async def _python() -> list[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    clashes = [
        Check(
            "python",
            Level.FAIL,
            f"the package {clash.package} has {', '.join(clash.modules)}, too: what was installed "
            "last has overwritten files of the other",
            f"uninstall {clash.package} and install quicksand-tui again, or keep them in "
            "environments of their own",
        )
        for clash in await asyncio.to_thread(find_clashes)
    ]
    return [*clashes, Check("python", Level.OK, version)]


async def _places() -> list[Check]:
    places = paths()
    used = [places.runtime, places.data, places.cache]
    used += [places.memory] if places.memory is not None else []
    for place in used:
        make_private_dir(place)
    runtime_dir(places, new_id()).check_length()
    exposed = [
        Check(
            "places",
            Level.NOTE,
            f"all users can rename {place}: they may write to {place.parent}, which has no sticky "
            "bit",
            f"chmod +t {place.parent}",
        )
        for place in used
        if place.parent.is_dir() and is_exposed(place.parent)
    ]
    return [Check("places", Level.OK, f"{places.data}, {places.runtime}"), *exposed]


async def _qemu() -> list[Check]:
    binaries = await asyncio.to_thread(find_binaries, Architecture.host().value)
    try:
        require_display(binaries)
    except QemuLacksDevice as error:
        return [Check("qemu", Level.NOTE, text_of(error), hint_of(error))]
    found = f"{binaries.version_text}, {binaries.system} ({binaries.origin})"
    return [Check("qemu", Level.OK, found)]


async def _accelerator(*, fresh: bool) -> list[Check]:
    binaries = await asyncio.to_thread(find_binaries, Architecture.host().value)
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
    agent = find_agent(Architecture.host())
    return [Check("agent", Level.OK, f"{show_size(agent.stat().st_size)}, {agent}")]


async def _memory() -> list[Check]:
    available = available_memory()
    text = f"{show_size(available)} available"
    oversized = await asyncio.to_thread(_oversized)
    if available < MEMORY_WANTED:
        hint = "stop something, or start sandboxes with less: --memory 256M"
        return [Check("memory", Level.NOTE, text, hint), *oversized]
    return [Check("memory", Level.OK, text), *oversized]


def _oversized() -> list[Check]:
    """Tells of sandboxes whose machine has more of the host's memory than their size allows."""
    found = []
    for entry in Registry(paths()).list_live():
        if why := host_usage(entry).oversized:
            hint = f"something in its guest makes QEMU grow: `quicksand-tui stats {entry.name}`"
            found.append(Check("memory", Level.NOTE, f"{entry.name}: {why}", hint))
    return found


async def _disk() -> list[Check]:
    data = paths().data
    free = shutil.disk_usage(data).free
    text = f"{show_size(free)} free at {data}"
    if free < DISK_WANTED:
        return [Check("disk", Level.NOTE, text, "free some space, or set QUICKSAND_DATA_DIR")]
    return [Check("disk", Level.OK, text)]


async def _network() -> list[Check]:
    return [Check("network", Level.NOTE, *words) for words in await network_findings()]


async def _terminal() -> list[Check]:
    """Reports the last answers of this terminal to the app. The terminal is not queried, as there
    may be none."""
    if not os.isatty(0):
        return [Check("terminal", Level.OK, "none here")]
    known = known_terminal(terminals_file(), os.environ)
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
    registry = Registry(paths())
    reaped = await asyncio.to_thread(registry.reap)
    await asyncio.to_thread(end_useless, registry)
    await asyncio.to_thread(_recover_saves)
    bad = (Status.BROKEN, Status.CRASHED, Status.UNREACHABLE)
    strangers = await asyncio.to_thread(registry.strangers)
    broken = [
        e for e in registry.list() if e.status in bad and registry.place(e.id).root not in strangers
    ]
    checks = [
        Check(
            "leftovers", Level.NOTE, f"{entry.name} is {entry.status}: {entry.error}", _out(entry)
        )
        for entry in broken
    ]
    if reaped:
        checks.append(Check("leftovers", Level.NOTE, f"removed what {len(reaped)} dead ones left"))
    if registry.expired:
        names = ", ".join(registry.expired)
        found = f"a week in the trash has passed for {names}: gone for good"
        checks.append(Check("leftovers", Level.NOTE, found))
    checks += await asyncio.to_thread(_strangers, registry, strangers)
    checks += await asyncio.to_thread(_processes)
    return checks or [Check("leftovers", Level.OK, f"none (user {os.getuid()})")]


def _out(entry: Entry) -> str:
    """Returns the remedy for a sandbox that is in no good state."""
    match entry.status:
        case Status.BROKEN:
            return (
                f"mend that, or `quicksand-tui rm -f {entry.name}`, which moves it to the trash "
                "(with --now: removes it for good)"
            )
        case Status.UNREACHABLE:
            return f"`quicksand-tui kill {entry.name}`"
        case _:
            return ""


async def _mounts() -> list[Check]:
    return await asyncio.to_thread(_check_mounts, Registry(paths()))


def _check_mounts(registry: Registry) -> list[Check]:
    """Tells of mounts whose servers have ended, for good or to be begun anew."""
    checks: list[Check] = []
    live = [(entry, known_mounts(registry, entry)) for entry in registry.list() if entry.is_live]
    for entry, mounts in live:
        for known in mounts:
            where, why = f"{entry.name}: {known.guest}", known.reason or "it was killed"
            if known.state is MountState.NOT_SERVED:
                found = f"{where} is not served: {why}"
                hint = f"`quicksand-tui unmount {entry.name} {known.guest}`, then `mount`"
                checks.append(Check("mounts", Level.NOTE, found, hint))
            elif known.state is MountState.LEFT_OUT:
                found = f"{where} is not mounted: {known.reason}"
                hint = f"if that is meant, `quicksand-tui mount {entry.name} HOST:GUEST` mounts it"
                checks.append(Check("mounts", Level.NOTE, found, hint))
            elif known.state is MountState.MOVED:
                hint = f"`quicksand-tui unmount {entry.name} {known.guest}`, then `mount`"
                checks.append(Check("mounts", Level.NOTE, f"{where}: {why}", hint))
            elif known.reason:
                checks.append(Check("mounts", Level.NOTE, f"{where} is served anew: {why}"))
    count = sum(len(mounts) for _, mounts in live)
    return checks or [Check("mounts", Level.OK, f"{count} in {len(live)} sandboxes that run")]


def _recover_saves() -> None:
    """Completes or removes unfinished saves of programs that were killed."""
    for store in known_stores(paths(), None):
        if store.root.exists():
            with contextlib.suppress(QuicksandError):
                store.recover()


def _strangers(registry: Registry, strangers: dict[Path, str]) -> list[Check]:
    lost = [
        Check(
            "leftovers",
            Level.NOTE,
            f"{path} is of a local node that no fleet has",
            "its sandboxes and saves are in it: if nobody needs them, remove it yourself"
            if (path / "sandboxes").exists()
            else "if nobody needs it, remove it yourself; `clean` removes it if it is empty",
        )
        for path in lost_nodes(registry.paths)
    ]
    return lost + [
        Check(
            "leftovers",
            Level.NOTE,
            f"{path} is left alone: {why}",
            "if nobody needs it, remove it yourself",
        )
        for path, why in sorted(strangers.items())
    ]


def _processes() -> list[Check]:
    """Looks for QEMUs and keepers without an owner, in every data directory."""
    orphans = find_orphans()
    unkept = [process for process in find_unkept() if process not in orphans]
    return [
        *(
            Check(
                "leftovers",
                Level.NOTE,
                f"{orphan.kind} {orphan.pid} runs on for {orphan.of}, which is gone",
                "`quicksand-tui clean` ends it",
            )
            for orphan in orphans
        ),
        *(
            Check(
                "leftovers",
                Level.NOTE,
                f"QEMU {process.pid} of {process.of} has lost its keeper",
                "the next command for that sandbox gives it a new one",
            )
            for process in unkept
        ),
    ]
