"""Makes the parts of a `Sandbox` of this machine: of a new one, or of one that exists."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quicksand.base.errors import StateError
from quicksand.base.paths import paths
from quicksand.base.remedies import Remedy, Words
from quicksand.life import machinery
from quicksand.life.basis import find_basis, workspace_of
from quicksand.life.parts import LocalParts
from quicksand.life.sandbox_life import Life
from quicksand.records.registry import Registry


def make_here(own: Mapping[str, Any], options: Mapping[str, Any]) -> LocalParts:
    """Return the parts of a sandbox that `start` makes. ``own`` are the keywords of `Sandbox` that
    are not ``options`` of the machine. Raises as `Sandbox`."""
    registry = Registry(paths())
    workspace, base_dir = own["workspace"], own["base_dir"]
    place = workspace_of(workspace) if workspace is not None else None
    basis = find_basis(own["image"], options, registry.paths, workspace=place, trust=own["trust"])
    basis.warn_caller()
    life = Life(
        registry,
        basis,
        name=own["name"],
        discard=own["ephemeral"],
        base_dir=Path(base_dir).absolute() if base_dir is not None else None,
        warm=own["warm"],
        build=own["build"],
        progress=own["progress_callback"],
    )
    parts = LocalParts(life, place)
    if own["save"] is not None:
        parts.saves.save_on_stop(own["save"], parts.saves.store())
    return parts


def attach_here(id_or_name: str, *, set_clock: bool) -> LocalParts:
    """The parts of a running sandbox. Raises as `Sandbox.attach`."""
    registry = Registry(paths())
    life = Life.of_entry(registry, registry.find(id_or_name), set_clock=set_clock)
    if life.run is None:
        raise StateError(
            f"the sandbox {life.name!r} is not running",
            hint=Words(Remedy("start", name=life.name), " starts it"),
        )
    return LocalParts(life)


def restore_here(id_or_name: str, name: str | None) -> LocalParts:
    """The parts of a sandbox that is brought back from the trash. Raises as `Sandbox.restore`."""
    registry = Registry(paths())
    entry = machinery.SandboxTrash(registry).restore(id_or_name, name)
    return LocalParts(Life.of_entry(registry, entry))
