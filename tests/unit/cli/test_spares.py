"""What the commands say of orders for spares. No machine starts here: what makes spares is replaced
where a test needs some."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from typing import Any

import pytest
from quicksand.base.errors import MachineError
from quicksand.base.paths import Paths
from quicksand.base.settings import SPARES
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.warm.spares import stock
from quicksand.warm.spares.orders import Orders
from quicksand.warm.spares.spare import Spare

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import BY_SIGNAL, Exit
from quicksand_tui.cli.this_host.doctor import Level, check_spares
from tests.unit.records.making import RUN

DEBIAN = SandboxConfig(image="debian")
LARGE = SandboxConfig(image="debian", memory="1024M")


@pytest.fixture(autouse=True)
def spares_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPARES.variable, "use")


def ordered(places: Paths) -> dict[str, int]:
    return {f"{o.config.image} {o.config.memory}": o.count for o in Orders(places).list()}


def warm(*words: str) -> int:
    return run(["images", "warm", *words])


def test_an_order_ends_however_its_machine_is_written(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    Orders(places).set(SandboxConfig(image="debian", memory="1G", disk_size="10240M"), 2)
    assert warm("debian", "--memory", "1024M", "--disk-size", "10G", "--spares", "0") == Exit.OK
    assert ordered(places) == {}
    told = capsys.readouterr().out
    assert told.startswith("debian --memory 1G --disk-size 10G: the order of 2 is ended")


def test_taking_back_what_was_not_ordered_names_what_was(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    Orders(places).set(LARGE, 2)
    assert warm("debian", "--spares", "0") == Exit.OK
    assert ordered(places) == {"debian 1G": 2}
    told = capsys.readouterr()
    assert told.out == "debian: no spares of this machine were ordered\n"
    assert "ordered: 2 of debian --memory 1G\n" in told.err
    assert "`quicksand-tui images warm debian --memory 1G --spares 0` ends it" in told.err


def test_json_tells_what_was_ended(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    Orders(places).set(LARGE, 2)
    for count in (2, 0):
        assert warm("debian", "--memory", "1G", "--spares", "0", "--json") == Exit.OK
        facts = json.loads(capsys.readouterr().out)
        assert facts["ended_order"] == count
        assert facts["ended_spares"] == facts["spares"] == 0


def test_an_image_that_is_gone(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    """Its order can be ended; without one, its name is a mistake."""
    assert warm("gone", "--spares", "0") == Exit.FAILURE
    assert "Image not found: 'gone'" in capsys.readouterr().err
    Orders(places).set(SandboxConfig(image="gone"), 1)
    assert warm("gone", "--spares", "0") == Exit.OK
    assert "gone: the order of 1 is ended" in capsys.readouterr().out
    assert ordered(places) == {}


async def no_template(*words: object, **options: object) -> None:
    pytest.fail("a template was made")


def test_what_can_never_wait_is_refused_first(
    places: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("quicksand_tui.cli.lazy_commands.warm_up", no_template)
    assert warm("debian", "--display", "--vnc-port", "0", "--spares", "2") == Exit.FAILURE
    assert "hint: leave out --vnc-port" in capsys.readouterr().err
    assert ordered(places) == {}


def test_too_little_memory_is_told_with_the_reason(
    places: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("quicksand_tui.cli.lazy_commands.warm_up", no_template)
    monkeypatch.setattr("quicksand.warm.spares.spare_making.available_memory", lambda: 1 << 30)
    Orders(places).set(DEBIAN, 1)
    assert warm("debian", "--spares", "3") == Exit.FAILURE
    told = capsys.readouterr().err
    assert "a spare with 512 MiB of memory needs 1.2 GiB, twice its own" in told
    assert "a start must still fit beside it" in told
    assert "debian: 1 stay ordered as before" in told
    assert ordered(places) == {"debian 512M": 1}


def test_a_save_is_no_image(
    places: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Meaning:
        save = "a save"

    monkeypatch.setattr("quicksand_tui.cli.lazy_commands.find_meaning", lambda *_: Meaning())
    assert warm("sv", "--spares", "1") != Exit.OK
    told = capsys.readouterr().err
    assert "'sv' is a save, and only images are warmed up" in told
    assert "`quicksand-tui run sv`" in told


@pytest.fixture
def makes(monkeypatch: pytest.MonkeyPatch) -> list[Spare]:
    """The spares that wait: records only. To make the third one fails."""
    waiting: list[Spare] = []

    async def make_spare(registry: Registry, record: Record, *, seconds: float | None) -> None:
        if len(waiting) == 2:
            raise MachineError("the third one failed")
        key = (await stock._fit(registry, record)).key
        waiting.append(Spare(id=record.id, key=key, record=record, run=RUN, port=0, until=None))

    def end(registry: Registry, spare: Spare) -> bool:
        waiting.remove(spare)
        return True

    monkeypatch.setattr(stock, "list_spares", lambda _: list(waiting))
    monkeypatch.setattr(stock, "make_spare", make_spare)
    monkeypatch.setattr(stock, "end", end)
    return waiting


@pytest.mark.parametrize("before", [0, 1])
async def test_after_a_failure_order_and_spares_are_as_before(
    places: Paths, makes: list[Spare], before: int
) -> None:
    registry = Registry(places)
    if before:
        await stock.set_order(registry, DEBIAN, before)
    waited = list(makes)
    with pytest.raises(MachineError):
        await stock.set_order(registry, DEBIAN, 4)
    assert makes == waited
    assert ordered(places) == ({"debian 512M": before} if before else {})


async def test_the_spares_of_an_order_end_with_it(places: Paths, makes: list[Spare]) -> None:
    registry = Registry(places)
    for config in (DEBIAN, LARGE):
        await stock.set_order(registry, config, 1)
    assert await stock.end_order(registry, replace(LARGE, memory="1G")) == stock.Ended(1, 1)
    assert [spare.record.config for spare in makes] == [DEBIAN]
    assert await stock.end_order(registry, LARGE) == stock.Ended(0, 0)


async def test_two_orders_at_once(places: Paths, makes: list[Spare]) -> None:
    """Neither is lost, and a process that makes spares waits for the other."""
    await asyncio.gather(
        stock.set_order(Registry(places), DEBIAN, 1), stock.set_order(Registry(places), LARGE, 1)
    )
    assert sorted(spare.record.config.memory for spare in makes) == ["1G", "512M"]
    assert ordered(places) == {"debian 512M": 1, "debian 1G": 1}


def test_an_interrupted_order_says_what_stands(
    places: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Origin:
        place = sandbox_dir(places, "0" * 12)

    async def warmed(*words: object, **options: object) -> tuple[Any, bool]:
        return Origin(), False

    async def make_spare(registry: Registry, record: Record, *, seconds: float | None) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    monkeypatch.setattr("quicksand_tui.cli.lazy_commands.warm_up", warmed)
    monkeypatch.setattr(stock, "make_spare", make_spare)
    assert warm("debian", "--memory", "1G", "--spares", "4") == BY_SIGNAL + signal.SIGINT
    told = capsys.readouterr().err
    assert "debian --memory 1G: interrupted, but 4 are ordered: 0 ready" in told
    assert "`quicksand-tui images warm debian --memory 1G --spares 0` ends it" in told
    assert ordered(places) == {"debian 1G": 4}


async def test_doctor_names_each_order_and_its_command(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    Orders(places).set(DEBIAN, 1)
    Orders(places).set(LARGE, 2)
    Orders(places).set(SandboxConfig(image="gone"), 1)
    whole, *orders = await check_spares()
    assert (whole.level, whole.found) == (Level.OK, "none waits")
    assert [check.level for check in orders] == [Level.NOTE] * 3
    usual, large, gone = orders
    assert usual.found == "ordered: 0 of 1 for debian"
    assert usual.hint == "`quicksand-tui images warm debian --spares 1` makes the missing ones"
    assert large.found == "ordered: 0 of 2 for debian --memory 1G"
    assert "`quicksand-tui images warm debian --memory 1G --spares 2`" in large.hint
    assert gone.found.startswith("ordered: 0 of 1 for gone: Image not found")
    monkeypatch.delenv(SPARES.variable)
    usual, *_ = (await check_spares())[1:]
    assert usual.hint.endswith("the missing ones, and so does the next start, in the background")
    assert gone.hint == "`quicksand-tui images warm gone --spares 0` ends the order"


async def test_doctor_names_orders_that_cannot_be_read(places: Paths) -> None:
    file = places.data / "spares.json"
    file.write_text("{")
    (check,) = await check_spares()
    assert check.level is Level.NOTE
    assert str(file) in check.found
    assert "order the spares again" in check.hint


def test_orders_that_cannot_be_read_are_not_said_to_be_none(
    places: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (places.data / "spares.json").write_text("{")
    monkeypatch.setattr("quicksand.warm.spares.spare_making.available_memory", lambda: 0)
    for count in ("0", "1"):
        assert warm("debian", "--spares", count) == Exit.FAILURE
        assert "nothing is ordered" not in capsys.readouterr().err
