"""The lines of the request `watch`: the sandboxes of a machine, and then their changes, a JSON
object in each line. Both ends are here: the one writes, the other reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quicksand.things.frozen import frozen
from quicksand.things.status import Status

from quicksand_tui.door.wire_values import (
    Kept,
    WireError,
    changed_fields,
    parse_object,
    plain,
    read_field,
    with_facts,
)
from quicksand_tui.model.sandboxes import ImageView, SandboxView, UseHistory
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import HostView, World

SANDBOXES_MAX = 5000
READINGS_MAX = 120
"""The most readings in a history, as with sandboxes of this machine."""

ID = re.compile(r"[0-9a-f]{8,64}")
"""The id of a sandbox, as the engine makes them."""

OWN = frozenset({"id", "host", "away", "history", "traffic"})
"""Fields of a sandbox that are not sent: this end fills them in."""


@frozen
class FarWorld:
    """The known state of another machine. Ids and names are those of that machine."""

    sandboxes: Mapping[str, SandboxView]
    images: tuple[ImageView, ...] = ()
    host: HostView = HostView()
    error: str = ""
    """The reason why some of its sandboxes could not be read."""
    now: float = 0.0
    """The Unix time there when it told this."""


# The far end


def difference(before: World | None, after: World) -> dict[str, Any]:
    """Returns the message for a reader who knows ``before``, to know ``after``; {} if they are
    equal."""
    known = {} if before is None else {view.id: view for view in before.sandboxes}
    told: dict[str, Any] = {}
    changed = {}
    for view in after.sandboxes:
        was = known.get(view.id)
        if view is was or not ID.fullmatch(view.id):
            continue
        if found := changed_fields(was, view, OWN):
            changed[view.id] = found
    if changed:
        told["sandboxes"] = changed
    if gone := sorted(known.keys() - {view.id for view in after.sandboxes}):
        told["gone"] = gone
    for name in ("images", "host", "error"):
        now = getattr(after, name)
        if before is None or now != getattr(before, name):
            told[name] = plain(now)
    return {**told, "now": round(after.taken, 3)} if told else {}


# The near end


class Learner:
    """Keeps the world that a machine has told."""

    def __init__(self) -> None:
        self.world = FarWorld(sandboxes={})
        self._kept = Kept()

    def learn(self, line: bytes) -> FarWorld:
        """Takes a line; returns all that is known then. Raises WireError, and keeps nothing of the
        line."""
        told = parse_object(line)
        sandboxes = dict(self.world.sandboxes)
        changed, gone = told.get("sandboxes", {}), told.get("gone", [])
        if not isinstance(changed, dict) or not isinstance(gone, list):
            raise WireError("its list of sandboxes is none")
        for id_ in gone:
            sandboxes.pop(id_ if isinstance(id_, str) else "", None)
        for id_, facts in changed.items():
            if not ID.fullmatch(id_):
                raise WireError(f"{sanitise(id_, limit=80)!r} is no id of a sandbox")
            sandboxes[id_] = _learned(id_, sandboxes.get(id_), facts)
        if len(sandboxes) > SANDBOXES_MAX:
            raise WireError(f"it has more than {SANDBOXES_MAX} sandboxes")
        self._kept.count(line, changed, sandboxes)
        now = self.world
        self.world = FarWorld(
            sandboxes=sandboxes,
            images=read_field(tuple[ImageView, ...], told, "images", now.images),
            host=read_field(HostView, told, "host", now.host),
            error=read_field(str, told, "error", now.error),
            now=read_field(float, told, "now", now.now),
        )
        return self.world


def _learned(id_: str, before: SandboxView | None, facts: object) -> SandboxView:
    if not isinstance(facts, dict):
        raise WireError("what it tells of a sandbox is no JSON object")
    known = before or SandboxView(id=id_, name=id_, state=Status.BROKEN)
    now = with_facts(known, {name: told for name, told in facts.items() if name not in OWN})
    if before is not None and not facts.keys() & {"cpu_percent", "memory_used", "disk"}:
        return now
    return replace(now, history=_longer(now)) if now.cpu_percent is not None else now


def _longer(view: SandboxView) -> UseHistory:
    before = view.history
    return UseHistory(
        cpu=(*before.cpu, view.cpu_percent or 0.0)[-READINGS_MAX:],
        memory=(*before.memory, view.memory_used or 0)[-READINGS_MAX:],
        disk=(*before.disk, view.disk or 0)[-READINGS_MAX:],
    )
