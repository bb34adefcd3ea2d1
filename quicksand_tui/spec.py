"""The forms of a new sandbox and of a checkpoint: suggestions, checks, and what the command is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from quicksand_tui.actions import find_action
from quicksand_tui.past import CheckpointView, PastView
from quicksand_tui.reasons import NO_IMAGE
from quicksand_tui.snapshot import CheckpointSpec, CloneSpec, NewSpec, Snapshot
from quicksand_tui.text import sanitise, size_text

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


def find_problems(spec: NewSpec, snapshot: Snapshot) -> dict[str, str]:
    """What is wrong, by field; empty if it can be started. The engine's own checks, so that what
    the form lets through the engine takes."""
    from quicksand.config import SandboxConfig, parse_memory

    problems: dict[str, str] = {}

    def check(field: str, test: Callable[[], object]) -> None:
        from quicksand.errors import ConfigError

        try:
            test()
        except ConfigError as error:
            problems[field] = sanitise(getattr(error, "hint", "") or str(error))

    image = snapshot.image(spec.image)
    if not spec.image:
        problems["image"] = NO_IMAGE
    elif image is not None and image.error:
        problems["image"] = image.error
    if problem := find_name_problem(spec.name, snapshot):
        problems["name"] = problem
    check("memory", lambda: parse_memory(spec.memory))
    if "memory" not in problems:
        free = snapshot.host.memory_free
        if free is not None and parse_memory(spec.memory) > free:
            problems["memory"] = f"the host has {size_text(free)} free"
    if not re.fullmatch(r"[0-9]{1,4}", spec.cpus):
        problems["cpus"] = "a whole number"
    else:
        check("cpus", lambda: SandboxConfig.parse({"image": "x", "cpus": int(spec.cpus)}))
    return problems


def run_command(spec: NewSpec) -> str:
    """The command that starts the same sandbox."""
    words = ["quicksand-tui", "run", spec.image or "IMAGE", "--name", spec.name or "NAME"]
    if spec.memory not in ("", "512M"):
        words += ["--memory", spec.memory]
    if spec.cpus not in ("", "1"):
        words += ["--cpus", spec.cpus]
    if spec.network not in ("", "mounts_only"):
        words += ["--network", spec.network]
    return sanitise(shlex.join([*words, "--detach"]))


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
