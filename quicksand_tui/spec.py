"""The forms of a new sandbox and of a checkpoint: suggestions, checks, and what the command is."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quicksand_tui.actions import find_action
from quicksand_tui.reasons import NO_IMAGE
from quicksand_tui.saves_view import trouble_of
from quicksand_tui.text import clip, sanitise, size_text

if TYPE_CHECKING:
    from quicksand_tui.past import CheckpointView, PastView
    from quicksand_tui.snapshot import Snapshot
    from quicksand_tui.specs import CheckpointSpec, CloneSpec, NewSpec

COMMAND_MAX = 4000
_FORWARD = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})")

NETWORKS = ("mounts_only", "full", "none")
NETWORK_NOTES = {
    "mounts_only": "only forwarded ports are open",
    "full": "reaches all the host can, loopback too",
    "none": "no network card",
}


def suggest_name(image: str, snapshot: Snapshot) -> str:
    """The first free of image-1, image-2 …"""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", image.rsplit("/", 1)[-1]).strip("-._")[:50] or "sandbox"
    taken = _taken(snapshot)
    number = 1
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


def _taken(snapshot: Snapshot) -> set[str]:
    """Names that no new sandbox can have."""
    beginning = {job.name for job in snapshot.jobs if job not in snapshot.save_jobs}
    return beginning | {name for view in snapshot.sandboxes for name in (view.name, view.id)}


def find_name_problem(name: str, snapshot: Snapshot) -> str:
    """What is wrong with the name of a new sandbox; "" if nothing is."""
    from quicksand.config import check_name
    from quicksand.errors import ConfigError

    try:
        check_name(name)
    except ConfigError as error:
        return sanitise(error.hint or str(error))
    return f"{name} is taken" if name in _taken(snapshot) else ""


def parse_ports(text: str) -> tuple[tuple[int, int], ...]:
    """(host, guest) of each forward, separated by commas or spaces, as `run --publish` has them: a
    port alone is the guest's, and host port 0 takes a free one. Raises ValueError."""
    found = []
    for word in re.split(r"[,\s]+", text.strip(", \t")) if text.strip(", \t") else ():
        match = _FORWARD.fullmatch(word)
        if match is None:
            raise ValueError(f"{clip(word, 20)} is not HOST:GUEST, as in 8080:80")
        found.append((int(match[1] or 0), int(match[2])))
    return tuple(found)


def machine_options(spec: NewSpec) -> dict[str, Any]:
    """What the form says, as keywords of the engine; of a save, the engine takes over what it does
    not say. Raises ValueError for ports or CPUs that are none."""
    options: dict[str, Any] = {"memory": spec.memory, "network_mode": spec.network}
    if spec.cpus:
        options["cpus"] = int(spec.cpus)
    if ports := parse_ports(spec.ports):
        options["port_forwards"] = [{"host": host, "guest": guest} for host, guest in ports]
    return {key: value for key, value in options.items() if value}


def find_problems(spec: NewSpec, snapshot: Snapshot) -> dict[str, str]:
    """What is wrong, by field; empty if it can be started. The engine's own checks, so that what
    the form lets through the engine takes."""
    from quicksand.config import SandboxConfig, parse_memory
    from quicksand.errors import ConfigError

    problems: dict[str, str] = {}

    def check(field: str, test: Callable[[], object]) -> None:
        try:
            test()
        except ConfigError as error:
            problems[field] = sanitise(getattr(error, "hint", "") or str(error))

    if problem := _find_origin_problem(spec, snapshot):
        problems["begin"] = problem
    if problem := find_name_problem(spec.name, snapshot):
        problems["name"] = problem
    inherits = bool(spec.save)
    if spec.memory or not inherits:
        check("memory", lambda: parse_memory(spec.memory))
        free = snapshot.host.memory_free
        if "memory" not in problems and free is not None and parse_memory(spec.memory) > free:
            problems["memory"] = f"the host has {size_text(free)} free"
    if spec.cpus or not inherits:
        if not re.fullmatch(r"[0-9]{1,4}", spec.cpus):
            problems["cpus"] = "a whole number"
        else:
            check("cpus", lambda: SandboxConfig.parse({"image": "x", "cpus": int(spec.cpus)}))
    if problem := _find_ports_problem(spec, snapshot):
        problems["ports"] = problem
    return problems


def _find_origin_problem(spec: NewSpec, snapshot: Snapshot) -> str:
    if not spec.image:
        return "choose what it begins with" if snapshot.usable_images else NO_IMAGE
    if spec.save:
        save = next((save for save in snapshot.saves.saves if save.key == spec.save), None)
        if save is None:
            return "this save is gone" if snapshot.saves.loaded else ""
        trouble, problems = trouble_of(save)
        return problems[0] if problems else trouble
    if any(save.address == spec.image for save in snapshot.saves.saves):
        return f"the save {spec.image} would be taken: it has the same name"
    image = snapshot.image(spec.image)
    return image.error if image is not None else ""


def _find_ports_problem(spec: NewSpec, snapshot: Snapshot) -> str:
    from quicksand.config import PortForward, SandboxConfig
    from quicksand.errors import ConfigError

    try:
        ports = parse_ports(spec.ports)
        forwards = tuple(PortForward(host=host, guest=guest) for host, guest in ports)
        SandboxConfig(image="x", port_forwards=forwards)
    except ConfigError as error:
        message = str(error.args[0])
        return sanitise(f"{message}: {error.hint}" if error.hint else message)
    except ValueError as error:
        return sanitise(str(error))
    if ports and spec.network == "none":
        return "ports need a network: mounts_only opens nothing else"
    wanted = {host for host, _ in ports if host}
    for view in snapshot.sandboxes:
        for host, _ in view.ports:
            if host in wanted and view.is_live:
                return f"port {host} leads to {view.name} already"
    return ""


def look_at_ports(text: str) -> str:
    """What is wrong with ports on this host; asks the system, so it is called in a thread."""
    import socket

    try:
        ports = parse_ports(text)
    except ValueError:
        return ""
    for port in (host for host, _ in ports if 0 < host <= 65535):
        with socket.socket() as asked:
            # As QEMU does: what has just been closed counts as free.
            asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                asked.bind(("127.0.0.1", port))
            except PermissionError:
                return f"port {port} is not for ordinary users: take one from 1024 on"
            except OSError:
                return f"another program has port {port} of this host"
    return ""


def run_command(spec: NewSpec) -> str:
    """The command that starts the same sandbox."""
    # What begins with a save has its values where none are given.
    usual = ("",) if spec.save else ("", "512M", "1", "mounts_only")
    image = spec.image or "IMAGE"
    words = ["--name", spec.name or "NAME"]
    for option, value in (
        ("--memory", spec.memory),
        ("--cpus", spec.cpus),
        ("--network", spec.network.replace("_", "-") if spec.network not in usual else ""),
    ):
        if value not in usual:
            words += [option, value]
    with contextlib.suppress(ValueError):
        for host, guest in parse_ports(spec.ports):
            words += ["--publish", f"{host}:{guest}"]
    words.append("--detach")
    # A name that begins with a dash is no option.
    words = [*words, "--", image] if image.startswith("-") else [image, *words]
    return sanitise(shlex.join(["quicksand-tui", "run", *words]), limit=COMMAND_MAX)


def find_tag_problem(tag: str, past: PastView) -> str:
    """What is wrong with a tag for a new checkpoint; "" if nothing is."""
    from quicksand.errors import ConfigError
    from quicksand.snapshots.records import check_tag

    if any(made.tag == tag for made in past.checkpoints):
        return f"there is a {tag} already"
    try:
        if tag:
            check_tag(tag)
    except ConfigError as error:
        return sanitise(error.hint or str(error))
    return ""


def clone_command(name: str, spec: CloneSpec, made: CheckpointView | None = None) -> str:
    """The command that makes the same clones; ``made``: what they go on from."""
    words = ["-n", str(spec.count)] if spec.count != 1 else []
    if made is not None:
        words += ["--at", made.name]
    return sanitise(find_action("clone").command_for(name, *words))


def checkpoint_command(name: str, spec: CheckpointSpec) -> str:
    """The command that takes the same checkpoint."""
    words = ["-m", spec.note] if spec.note else []
    if spec.tag.startswith("-"):
        words.append("--")
    if spec.tag:
        words.append(spec.tag)
    return sanitise(find_action("checkpoint").command_for(name, *words))
