"""The form of a new mount, its checks, and the completion of the directory's path."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.errors import ConfigError, MountError
from quicksand.base.paths import paths
from quicksand.mounts.directories import check_directory
from quicksand.records.mount import CIFS, Mount, parse_mount

from quicksand_tui.forms.form_fields import Field, Form, Option, Values
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.specs import MountSpec
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.mounts import mount

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.verbs.call import Call

PATH_MAX = 1000
"""The longest path that can be typed, in characters."""
CANDIDATES_MAX = 50
LOOKED_AT_MAX = 5000
"""The most entries of a directory that are searched for a completion."""
READ_ONLY, PROTECT = "ro", "protect"
MODES = (
    Option(value="", label="read and write"),
    Option(value=READ_ONLY, label="read-only", note="not even root there can change anything"),
    Option(
        value=PROTECT,
        label="protect hooks",
        note="read and write, except files that programs of the host run, such as git's hooks",
    ),
)


def mount_form(sandbox: SandboxView) -> Form:
    """Makes the form of a mount in a running sandbox."""

    def problems(values: Values, now: World) -> Mapping[str, str]:
        found = find_mount_problems(mount_spec(values), now.sandbox(sandbox.id) or sandbox)
        if sandbox.host and not values["host"].startswith(("/", "~")):
            return {**found, "host": f"write its whole path on {sandbox.host}"}
        return found

    def look(values: Values) -> Mapping[str, str]:
        problem = look_at_directory(mount_spec(values))
        return {"host": problem} if problem else {}

    return Form(
        title=f"Mount a directory in {sandbox.name}",
        does="mounts it",
        button="Mount",
        fields=(
            Field(
                id="host",
                label="Host",
                hint=f"a directory of {sandbox.host or 'this host'}",
                limit=PATH_MAX,
                complete=None if sandbox.host else complete_directory,
            ),
            Field(
                id="guest",
                label="Guest",
                hint="its path in the sandbox",
                limit=PATH_MAX,
                suggest=lambda _, values: suggest_guest(values.get("host", "")),
            ),
            Field(id="mode", label="Mode", options=lambda world, values: MODES),
        ),
        command=lambda values: mount_of(values).command_for(sandbox.name),
        problems=problems,
        look=None if sandbox.host else look,
    )


def mount_spec(values: Values) -> MountSpec:
    host = values["host"]
    return MountSpec(
        host=host.rstrip("/") or host[:1],
        guest=values["guest"],
        readonly=values["mode"] == READ_ONLY,
        protect=values["mode"] == PROTECT,
    )


def mount_of(values: Values) -> Call[None]:
    """Returns what the form asks for."""
    return mount(mount=mount_spec(values))


def read_spec(word: str) -> MountSpec:
    """Reads HOST:GUEST[:ro|:protect]. Raises ConfigError, which is a ValueError."""
    read = parse_mount(word)
    if read.type != CIFS:
        raise ConfigError(f"{read.type} mounts are possible at a start only")
    return MountSpec(host=read.host, guest=read.guest, readonly=read.readonly, protect=read.protect)


def find_mount_problem(word: str, sandbox: SandboxView) -> str:
    """Returns the problem of HOST:GUEST that is seen without the disk, which could take long; "" if
    there is none."""
    try:
        spec = read_spec(word)
    except ConfigError as error:
        return str(error)
    return "; ".join(find_mount_problems(spec, sandbox).values())


def suggest_guest(host: str) -> str:
    """Suggests a place in the guest for a directory of this host."""
    name = os.path.basename(os.path.abspath(host)) if host else ""  # noqa: PTH100, PTH119 - no look
    return f"/mnt/{name}" if name else ""


def find_mount_problems(spec: MountSpec, sandbox: SandboxView) -> dict[str, str]:
    """Returns the problems of a mount, by field, seen without the disk. The checks are the
    engine's."""
    problems: dict[str, str] = {}
    for field, places in {"host": (spec.host, "/mnt/x"), "guest": ("/", spec.guest)}.items():
        try:
            checked = Mount(*places)
        except ConfigError as error:
            problems[field] = sanitise(text_of(error))
            continue
        there = sandbox.mount_at(checked.guest)
        if field == "guest" and there is not None and there.state.is_now:
            problems[field] = f"{there.host} is mounted there already"
    return problems


def look_at_directory(spec: MountSpec) -> str:
    """Returns why a directory of this host cannot be mounted; "" if it can. Waits for the disk."""
    try:
        check_directory(Mount(spec.host, "/mnt/x", spec.readonly), paths())
    except ConfigError:
        return ""  # told by `find_mount_problems`
    except MountError as error:
        return sanitise(text_of(error))
    return ""


def complete_directory(typed: str) -> tuple[str, ...]:
    """Returns the directories whose paths begin with the typed text, each with a slash at its end;
    hidden ones only if the text has a dot. Waits for the disk."""
    return complete_file(typed, ())


def complete_file(typed: str, endings: tuple[str, ...]) -> tuple[str, ...]:
    """Does the same as `complete_directory`, with files that end in one of ``endings``, too. Waits
    for the disk."""
    if typed == "~":
        return ("~/",)
    head, slash, begin = typed.rpartition("/")
    try:
        place = Path(f"{head}{slash}" or ".").expanduser()
        names = sorted(_entries(place, begin, endings))
    except (OSError, RuntimeError, ValueError):
        return ()
    return tuple(f"{head}{slash}{name}" for name in names[:CANDIDATES_MAX])


def complete_mounts(typed: str) -> tuple[str, ...]:
    """Returns the continuations of a list of mounts, with words as in a shell: the last word goes
    on as a directory of this host. Names to be quoted are not offered. Waits for the disk."""
    before, space, word = typed.rpartition(" ")
    if not word or ":" in word or any(mark in word for mark in "'\"\\"):
        return ()
    return tuple(
        f"{before}{space}{path}"
        for path in complete_directory(word)
        if shlex.quote(path.removeprefix("~")) == path.removeprefix("~")
    )


def _entries(place: Path, begin: str, endings: tuple[str, ...]) -> list[str]:
    """Returns the names of directories that can be typed, each with a slash, and of files that end
    in one of ``endings``. Raises OSError."""
    found = []
    with os.scandir(place) as entries:
        for number, entry in enumerate(entries):
            if number == LOOKED_AT_MAX:
                break
            name = entry.name
            is_wanted = name.startswith(begin) and (begin != "" or not name.startswith("."))
            if not is_wanted or not name.isprintable():
                continue
            if entry.is_dir():
                found.append(f"{name}/")
            elif name.endswith(endings) and entry.is_file():
                found.append(name)
    return found
