"""Saves as tests want them, and what a fake service does to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from quicksand.life.kept_things import RemovedSave, RemovedSaves, RestoredThings, Swept
from quicksand.saves.verifying import Verdict
from quicksand.things.save import (
    BaseState,
    SaveFacts,
    TrashFacts,
    Verification,
    freed_together,
    total_size,
)

from quicksand_tui.model.shown_saves import SavesView
from quicksand_tui.verbs.bundles import Sent
from quicksand_tui.verbs.call import Call, Progress, Report
from quicksand_tui.verbs.saves import Saved
from quicksand_tui.verbs.verdicts import Verified

NOW = 1_800_000_000.0
KIB, MIB = 1 << 10, 1 << 20
WEEK_S = 7 * 86400
LAYER = (1, 77)
"""A file that DEV, DEV2 and one in the trash have."""


def saved(name: str, **facts: Any) -> SaveFacts:
    """A save, an hour old unless ``facts`` say otherwise."""
    values: dict[str, Any] = {
        "address": name,
        "place": "user",
        "path": f"/saves/{name}",
        "id": name.encode().hex()[:12],
        "created": NOW - 3600,
        "own": 12 * KIB,
        "base": "debian",
        "base_version": "13.1",
        "base_digest": "9c1e5a77b0d2",
        "arch": "x86_64",
        "layers": 2,
        "memory": 512 * MIB,
        "cpus": 1,
        "network": "mounts_only",
    }
    values |= facts
    return SaveFacts(name=name, **values)


def trashed(name: str, **facts: Any) -> TrashFacts:
    values: dict[str, Any] = {
        "path": f"/saves/.trash/{name}",
        "id": name.encode().hex()[:12],
        "removed": NOW - 2 * 86400,
        "until": NOW + 5 * 86400,
        "own": 40 * KIB,
    }
    return TrashFacts(name=name, **{**values, **facts})


SHARED = {LAYER: (64 * MIB, 3, 1)}
DEV = saved(
    "dev",
    note="gcc, make",
    created=NOW - 8 * 86400,
    shared=64 * MIB,
    shared_files=SHARED,
    children=("dev2",),
    sandboxes=("web",),
    frozen=True,
)
DEV2 = saved(
    "dev2", created=NOW - 3 * 86400, own=5 * MIB, shared=64 * MIB, shared_files=SHARED, parent="dev"
)
APP = saved(
    "my-app",
    place="workspace",
    address="my-app",
    own=3 * MIB,
    note="[red]not markup[/]",
    volatile=("/run/lock", "/tmp"),
)
LOST = saved(
    "lost",
    own=900 * MIB,
    base="ubuntu",
    base_version="24.04",
    base_state=BaseState.MISSING,
    problems=("its base 'ubuntu', version 24.04, digest 0000 is not here",),
)
DAMAGED = saved(
    "damaged",
    base="",
    base_version="",
    base_digest="",
    memory=None,
    layers=None,
    is_readable=False,
    problems=("the save at /saves/damaged cannot be used: manifest.json: no JSON",),
)
LOW = saved("low", above=("top",), layers=None, id="")
GONE = trashed("dev", shared=64 * MIB, shared_files=SHARED, note="before gcc")
SPOILT = trashed("spoilt", error="overlays/0.qcow2 has 3 bytes instead of 9")


def view_of(*saves: SaveFacts, trash: Sequence[TrashFacts] = ()) -> SavesView:
    return SavesView(
        saves=saves,
        trash=tuple(trash),
        size=total_size(saves),
        trash_frees=freed_together(trash),
    )


SAVES = view_of(APP, DAMAGED, DEV, DEV2, LOST, trash=(GONE, SPOILT))
NOTHING = view_of()


class FakeSave(SimpleNamespace):
    """A save as the engine has it."""

    def __init__(self, name: str, manifest: Any = None) -> None:
        super().__init__(name=name, root=Path(f"/saves/{name}"), manifest=manifest)

    def require(self) -> Any:
        return self.manifest


class FakeSaves:
    """The part of `FakeService` that is about saves."""

    calls: list[str]
    reports: list[Report]
    operate: Callable[..., Awaitable[None]]

    def __init__(self) -> None:
        super().__init__()
        self.kept = SAVES
        """What there is."""
        self.imported = SimpleNamespace(
            name="dev3",
            kind=SimpleNamespace(value="save"),
            size=64 * MIB,
            checkpoints=0,
            base="",
            image_added=False,
            notes=(),
        )
        """What an import brings."""

    def read_saves(self, *, fresh: bool = False, there: bool = False) -> SavesView:
        if fresh:
            self.calls.append("read saves fresh")
        return self.kept

    def _put_saves(self, *saves: SaveFacts, trash: Sequence[TrashFacts] | None = None) -> None:
        self.kept = view_of(*saves, trash=self.kept.trash if trash is None else trash)

    def _without(self, keys: Sequence[str]) -> tuple[SaveFacts, ...]:
        return tuple(save for save in self.kept.saves if save.key not in keys)

    async def save(self, sandbox_id: str, values: Mapping[str, Any], report: Report) -> Any:
        report(Progress("", "copying", done=10 * MIB, total=40 * MIB))
        name, note = values["save"], values.get("note", "")
        how = " compressed" if values.get("compress") else ""
        await self.operate(f"save {sandbox_id} {name} {note!r}{how}", report)
        self._put_saves(*self.kept.saves, saved(name, note=note, created=NOW))
        manifest = SimpleNamespace(unsynced=False, volatile=())
        return Saved(cast(Any, FakeSave(name, manifest)), 67 * MIB, 1.0)

    async def do_to_saves(self, verb: Call[Any], report: Report) -> Any:
        """Does what a verb about saves asks for; its result is what the engine's would be."""
        spec: Any = verb.spec
        match verb.name:
            case "saves rm":
                return await self._discard(spec, report, now=bool(verb.values.get("now")))
            case "restore":
                return await self._restore(spec, report, name=str(verb.values["new_name"]))
            case "trash":
                return await self._purge(spec)
            case "export":
                return await self._export(spec, report)
            case "import":
                return await self._import(spec, report)
            case "install":
                return await self._install(verb, report)
            case "uninstall":
                (name,) = cast("list[str]", verb.values["names"])
                await self.operate(f"uninstall {name}", report)
                return SimpleNamespace(name=name)
            case "saves verify":
                return await self._verify(spec, report, deep=bool(verb.values.get("deep")))
        raise AssertionError(verb.name)

    async def _install(self, verb: Call[Any], report: Report) -> Any:
        (name,) = cast("list[str]", verb.values["names"])
        report(Progress("", "downloading", done=30 * MIB, total=86 * MIB))
        await self.operate(f"install {name} {verb.values['arch']}".strip(), report)
        image = SimpleNamespace(name=name, version="0.10.1")
        return [SimpleNamespace(image=image, is_new=True, is_below=False, notes=())]

    async def _discard(self, keys: Sequence[str], report: Report, *, now: bool) -> Any:
        report(Progress("", "removing", 1, len(keys)))
        await self.operate(f"delete {' '.join(keys)}{' now' if now else ''}", report)
        gone = [] if now else [trashed(s.name) for s in self.kept.saves if s.key in keys]
        self._put_saves(*self._without(keys), trash=[*gone, *self.kept.trash])
        each = [RemovedSave(name=Path(key).name, own=0, removed=NOW) for key in keys]
        return RemovedSaves(each=each, swept=Swept())

    async def _restore(self, places: Sequence[Path], report: Report, *, name: str) -> Any:
        keys = [str(place) for place in places]
        await self.operate(f"restore {' '.join(keys)} {name}".rstrip(), report)
        back = [saved(name or found.name) for found in self.kept.trash if found.key in keys]
        left = [found for found in self.kept.trash if found.key not in keys]
        self._put_saves(*self.kept.saves, *back, trash=left)
        return RestoredThings(names=[save.name for save in back], failed=(), swept=Swept())

    async def _purge(self, places: Sequence[Path]) -> Any:
        keys = [str(place) for place in places]
        await self.operate(f"purge {' '.join(keys)}")
        left = [found for found in self.kept.trash if found.key not in keys]
        self._put_saves(*self.kept.saves, trash=left)
        return [place.name for place in places]

    async def _export(self, spec: Any, report: Report) -> Any:
        report(Progress("", "writing", done=30 * MIB, total=64 * MIB))
        await self.operate(f"export {spec}", report)
        done = SimpleNamespace(name="dev", full=True, base="")
        return Sent(cast(Any, done), Path(spec.file), 64 * MIB, 1.0)

    async def _import(self, spec: Any, report: Report) -> Any:
        report(Progress("", "reading", done=MIB, total=2 * MIB))
        await self.operate(f"import {spec}", report)
        return self.imported

    async def _verify(self, keys: Sequence[str], report: Report, *, deep: bool) -> Any:
        report(Progress("", "reading", done=16 * MIB, total=64 * MIB))
        await self.operate(f"verify {' '.join(keys)}{' deep' if deep else ''}", report)
        verdict = Verification(deep=deep, when=NOW)
        self._put_saves(
            *(replace(s, verdict=verdict) if s.key in keys else s for s in self.kept.saves)
        )
        verdicts = [Verdict(save=cast(Any, FakeSave(Path(key).name)), deep=deep) for key in keys]
        return Verified(verdicts, 64 * MIB, 1.0, NOW)
