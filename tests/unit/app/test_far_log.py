"""A log of another machine, which is followed over the connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand.base.errors import RemoteRefusedError
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.remote.peer_link import Link, Request

from quicksand_tui.door import far_sandbox
from quicksand_tui.door.far_end import WatchOffer
from quicksand_tui.door.far_sandbox import FarLog
from quicksand_tui.door.service_protocol import LogKind
from tests.unit.cli.run_cli import make_stopped
from tests.unit.remote.far import links, until


async def answer(request: Request) -> None:
    async def keep() -> None: ...

    await WatchOffer().answer(request, keep)


class Shown:
    """The app's log of a sandbox there."""

    def __init__(self, link: Link, sandbox: str, kind: LogKind) -> None:
        host: Any = SimpleNamespace(link=link, connection=1, sandbox=lambda _: None)
        self.text = ""
        self.tasks: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        self.log = FarLog(cast("Any", host), sandbox, kind, engine=loop, tasks=self.tasks)

    async def shows(self, text: str) -> None:
        def has_it() -> bool:
            self.text += self.log.read()
            return text in self.text

        await until(has_it, f"{text!r} to be shown")

    async def close(self) -> None:
        self.log.close()
        await until(lambda: not self.tasks, "the log to end")


@pytest.mark.parametrize("kind", LogKind)
async def test_the_end_of_a_log_is_shown_and_then_what_is_added(
    places: Paths, monkeypatch: pytest.MonkeyPatch, kind: LogKind
) -> None:
    monkeypatch.setattr(far_sandbox, "LINES", 2)
    monkeypatch.setattr(Registry, "is_live", lambda *_: True)
    record = make_stopped(places, "web")
    place = sandbox_dir(places, record.id)
    path = place.qemu_log if kind is LogKind.QEMU else place.console_log
    path.write_text("first\nsecond\nthird ä\n")
    async with links(answer) as (asking, _):
        shown = Shown(asking, record.id, kind)
        await shown.shows("second\nthird ä\n")
        assert "first" not in shown.text
        with path.open("a") as file:
            file.write("fourth\n")
        await shown.shows("third ä\nfourth\n")
        await shown.close()


async def test_a_log_ends_with_its_sandbox(places: Paths) -> None:
    record = make_stopped(places, "web")
    sandbox_dir(places, record.id).console_log.write_text("all\n")
    async with links(answer) as (asking, _), asyncio.timeout(60):
        channel = asking.open("log", sandbox="web", qemu=False, lines=0)
        await channel.reply
        assert (await channel.piece()).data == b""


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"sandbox": "web", "qemu": 1, "lines": 1},
        {"sandbox": "web", "qemu": False, "lines": -1},
        {"sandbox": "nobody", "qemu": False, "lines": 1},
    ],
)
async def test_a_log_that_makes_no_sense_is_refused(places: Paths, params: dict[str, Any]) -> None:
    make_stopped(places, "web")
    async with links(answer) as (asking, _):
        with pytest.raises(RemoteRefusedError):
            await asking.request("log", **params)
