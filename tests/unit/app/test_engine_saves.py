"""What the service does to saves on disk, and what it tells of it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.files import read_json, write_json
from quicksand.base.footprint import Footprint
from quicksand.base.paths import Paths
from quicksand.base.threads import Stopped, in_thread_to_the_end
from quicksand.life.sandbox_saves import Saves
from quicksand.saves import verifying
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Base, Save
from quicksand.saves.saving import SaveOptions
from quicksand.saves.store import SaveStore
from quicksand.things.save import SaveFacts

from quicksand_tui.door.service import EngineService
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.specs import ExportSpec, ImportSpec, NewSpec, Told
from quicksand_tui.verbs import bundles, launching, saves, verdicts
from quicksand_tui.verbs.call import Progress
from tests.unit.aged import make_overdue
from tests.unit.app.carrying import carry_out, told_of
from tests.unit.saves.making import make_published, make_save


@pytest.fixture
def service() -> Iterator[EngineService]:
    found = EngineService()
    yield found
    found.close()


@pytest.fixture
def dev(store: SaveStore, base: Base) -> str:
    """The key of a save."""
    return str(make_save(store, "dev", os.urandom(65536), base=base, note="gcc").root)


Reports = list[Progress]


def places_of(keys: list[str]) -> list[Path]:
    return [Path(key) for key in keys]


def names(service: EngineService) -> list[str]:
    return [save.name for save in service.read_saves().saves]


def only(service: EngineService) -> SaveFacts:
    (found,) = service.read_saves().saves
    return found


async def test_to_the_trash_and_back(service: EngineService, dev: str) -> None:
    reports: Reports = []
    told = await told_of(service, saves.discard([dev], now=False), report=reports.append)
    assert told.summary == "dev is in the trash for a week: T shows it"
    assert (reports[-1].step, reports[-1].steps) == (1, 1)
    (gone,) = service.read_saves().trash
    assert (names(service), gone.name, gone.note) == ([], "dev", "gcc")
    assert (
        await told_of(service, saves.bring_back(places_of([gone.key])), report=reports.append)
    ).summary == "dev is restored"
    assert names(service) == ["dev"]
    await told_of(service, saves.discard([dev], now=False), report=reports.append)
    (gone,) = service.read_saves().trash
    await told_of(
        service, saves.bring_back(places_of([gone.key]), name="dev-old"), report=reports.append
    )
    assert names(service) == ["dev-old"]


async def test_for_good_and_out_of_the_trash(service: EngineService, dev: str) -> None:
    told = await told_of(service, saves.discard([dev], now=True))
    assert told.summary == "dev is deleted for good"
    assert service.read_saves().trash == ()


async def test_some_of_the_trash_goes_and_the_rest_stays(
    service: EngineService, store: SaveStore, base: Base
) -> None:
    keys = [str(make_save(store, name, b"1", base=base).root) for name in ("a", "b", "c")]
    told = await told_of(service, saves.discard(keys, now=False))
    assert told.summary == "3 saves are in the trash for a week: T shows it"
    trash = {found.name: found.key for found in service.read_saves().trash}
    assert (
        await told_of(service, saves.purge(places_of([trash["a"]])))
    ).summary == "a is deleted for good"
    assert {found.name for found in service.read_saves().trash} == {"b", "c"}
    assert (
        "2 things are deleted"
        in (await told_of(service, saves.purge(places_of([trash["b"], trash["c"]])))).summary
    )
    assert list((store.root / ".trash").iterdir()) == []


async def test_a_change_ends_the_week_of_what_is_overdue(
    service: EngineService, store: SaveStore, base: Base, dev: str
) -> None:
    make_save(store, "old", b"1", base=base)
    make_overdue(store.remove("old").root)
    await told_of(service, saves.discard([dev], now=False))
    assert [found.name for found in service.read_saves().trash] == ["dev"]


async def test_what_cannot_be_removed_is_told_and_the_others_are_gone(
    service: EngineService, store: SaveStore, dev: str
) -> None:
    low = make_published(store.root / "low", b"1")
    make_published(store.root / "top", b"2", image="low")
    with pytest.raises(OperationError) as caught:
        await told_of(service, saves.discard([dev, str(low), str(store.root / "no")], now=False))
    failure = caught.value.failure
    assert failure.title == "2 of 3 saves were not removed"
    assert "top is based on it" in failure.message and "remove that first" in failure.hint
    assert len(failure.log) == 1 and "there is no save" in failure.log[0]
    assert names(service) == ["low", "top"]


async def test_a_name_that_is_taken_says_so(
    service: EngineService, store: SaveStore, base: Base, dev: str
) -> None:
    await told_of(service, saves.discard([dev], now=False))
    make_save(store, "dev", b"1", base=base)
    (gone,) = service.read_saves().trash
    with pytest.raises(OperationError) as caught:
        await told_of(service, saves.bring_back(places_of([gone.key])))
    assert caught.value.failure.title == "It was not restored"
    assert "there is a save 'dev'" in caught.value.failure.message
    assert len(service.read_saves().trash) == 1


@pytest.mark.parametrize(("full", "compress"), [(False, True), (True, False)])
async def test_out_to_a_file_and_in_again(
    service: EngineService, store: SaveStore, dev: str, full: bool, compress: bool
) -> None:
    reports: Reports = []
    spec = ExportSpec(file="dev.quicksand", full=full, compress=compress)
    told = await told_of(service, bundles.export(Path(dev), spec), report=reports.append)
    assert told.summary.startswith(f"dev is in {Path.cwd() / 'dev.quicksand'}: ")
    assert ("whoever imports it needs" in told.summary) is not full
    assert reports[-1].stage == "writing" and reports[-1].done == reports[-1].total > 0
    with pytest.raises(OperationError, match="quicksand already"):
        await told_of(service, bundles.export(Path(dev), spec))
    again = ExportSpec(file="dev.quicksand", full=full, compress=compress, replace=True)
    await told_of(service, bundles.export(Path(dev), again))
    with pytest.raises(OperationError, match="there is a save 'dev'"):
        await told_of(service, bundles.import_(ImportSpec(file="dev.quicksand")))
    reports.clear()
    told = await told_of(
        service,
        bundles.import_(ImportSpec(file="dev.quicksand", name="dev2")),
        report=reports.append,
    )
    assert told.summary == "dev2 is imported"
    assert told.lines[0].startswith("It is the save dev2: ")
    assert told.lines[1].startswith("The image below it, debian ")
    assert told.lines[1].endswith("was here.")
    assert reports[-1].stage == "reading" and reports[-1].total
    assert names(service) == ["dev", "dev2"]


async def test_what_is_no_bundle_changes_nothing(service: EngineService, dev: str) -> None:
    Path("bad.quicksand").write_bytes(b"\x1b[2J" * 300)
    with pytest.raises(OperationError) as caught:
        await told_of(service, bundles.import_(ImportSpec(file="bad.quicksand")))
    assert caught.value.failure.title == "Nothing was imported"
    assert "\x1b" not in caught.value.failure.message
    assert names(service) == ["dev"]


async def test_verifying_tells_and_the_views_know_it(service: EngineService, dev: str) -> None:
    service.read_saves()
    told = await told_of(service, verdicts.verify([dev], deep=False))
    assert told.summary == "dev is fine by a quick check; F reads every byte"
    reports: Reports = []
    told = await told_of(service, verdicts.verify([dev], deep=True), report=reports.append)
    assert told.summary.startswith("dev is whole: ")
    assert reports[-1].total > 0
    verdict = only(service).verdict
    assert verdict is not None and verdict.deep and verdict.problems == ()


async def test_what_is_not_whole_is_told_with_the_file(
    service: EngineService, store: SaveStore, base: Base, dev: str
) -> None:
    whole = str(make_save(store, "whole", b"1", base=base).root)
    layer = Path(dev) / OVERLAYS / "0.qcow2"
    data = bytearray(layer.read_bytes())
    data[-1] ^= 1
    layer.write_bytes(data)
    with pytest.raises(OperationError) as caught:
        await told_of(service, verdicts.verify([dev, whole], deep=True))
    failure = caught.value.failure
    assert failure.title == "1 of 2 saves are not whole"
    assert failure.message.startswith("dev: overlays/0.qcow2: ")
    assert "has changed" in failure.message
    found = {save.name: save.verdict for save in service.read_saves().saves}
    assert found["dev"] is not None and found["dev"].problems
    assert found["whole"] is not None and not found["whole"].problems
    (Path(dev) / MANIFEST).unlink()
    with pytest.raises(OperationError) as caught:
        await told_of(service, verdicts.verify([dev], deep=False))
    assert caught.value.failure.title == "dev is not whole"


async def test_verifying_can_be_cancelled(
    service: EngineService, dev: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "CHUNK", 4096)
    reading, go_on = threading.Event(), threading.Event()

    def report(progress: Progress) -> None:
        if progress.total:
            reading.set()
            go_on.wait(60)

    task = asyncio.create_task(told_of(service, verdicts.verify([dev], deep=True), report=report))
    assert await asyncio.to_thread(reading.wait, 60)
    task.cancel()
    # The engine's loop hears of it before it hears of anything else, and only then it goes on.
    await asyncio.wait((task,), timeout=0)
    await service.ask("it failed", lambda _: asyncio.sleep(0))
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert only(service).verdict is None


# Saving: what the engine does is tested there; here, what the app hands it


class FakeSandbox(Saves):
    """Saves as the engine does: in a thread that is waited for, whatever happens."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.options: SaveOptions | None = None
        self.stopped_by: BaseException | None = None
        self.closed = False
        self.goes_on = threading.Event()
        self.goes_on.set()

    async def _save(self, store: SaveStore, name: str, options: SaveOptions) -> Any:
        self.options = options
        await in_thread_to_the_end(self._work)
        manifest = SimpleNamespace(unsynced=False, volatile=("/run\x1b[2J",) * 7)
        with (self.root / "0.qcow2").open("wb") as file:
            file.write(b"x" * (1 << 20))
            file.truncate(64 << 20)  # the rest is a hole, which takes nothing
        return SimpleNamespace(name=name, root=self.root, require=lambda: manifest)

    def _work(self) -> None:
        assert self.options is not None and self.options.progress is not None
        try:
            self.options.progress("copy", 1, 2)
            while not self.goes_on.wait(0.001):
                self.options.progress("compress", 1, 2)
        except BaseException as error:
            self.stopped_by = error
            raise

    async def look(self) -> None:
        """As of a sandbox of this machine."""

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSandbox:
    from quicksand import sandbox as module

    root = tmp_path / "made"
    root.mkdir()
    found = FakeSandbox(root)
    monkeypatch.setattr(module.Sandbox, "open", lambda _, host: found)
    return found


async def test_saving_never_replaces_and_says_what_is_not_in_it(
    service: EngineService, sandbox: FakeSandbox
) -> None:
    reports: Reports = []
    told: Told = await told_of(
        service,
        saves.save("dev", note="x", compress=True),
        "0" * 12,
        report=reports.append,
    )
    size = size_text(Footprint(sandbox.root).size)
    assert size.startswith("1.0")
    assert told.summary.startswith(
        f"dev is saved: {size}; not in it, since only in the guest's memory"
    )
    assert told.summary.endswith("/run and 2 more") and "\x1b" not in told.summary
    assert sandbox.options is not None
    assert (sandbox.options.replace, sandbox.options.note, sandbox.options.compress) == (
        False,
        "x",
        True,
    )
    assert [(r.stage, r.done, r.total) for r in reports] == [("copying", 1, 2)]
    assert sandbox.closed


async def test_a_save_that_is_cancelled_ends_at_its_next_step(
    service: EngineService, sandbox: FakeSandbox
) -> None:
    sandbox.goes_on.clear()
    begun = threading.Event()
    task = asyncio.create_task(
        told_of(service, saves.save("dev"), "0" * 12, report=lambda _: begun.set())
    )
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(sandbox.stopped_by, Stopped)
    assert sandbox.closed


async def test_a_sandbox_begins_with_a_save_and_what_that_says(
    service: EngineService, places: Paths, dev: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quicksand import sandbox as module

    begun: list[tuple[str, int, Save | None]] = []

    async def start(self: Any, *, at: str | None = None) -> None:
        begun.append((self.name, self.config.cpus, self._parts.life._source))

    monkeypatch.setattr(module.Sandbox, "start", start)
    monkeypatch.setattr(module.Sandbox, "detach", lambda _: None)
    path = Path(dev) / MANIFEST
    manifest = read_json(path)
    manifest["config"]["cpus"] = 3
    write_json(path, manifest)
    spec = NewSpec(image="dev", save=dev, name="dev-1")
    await carry_out(service, launching.create(spec))
    ((name, cpus, source),) = begun
    assert (name, cpus) == ("dev-1", 3)
    assert source is not None and str(source.root) == dev
