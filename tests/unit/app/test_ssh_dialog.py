"""The whole way of a question: a real ssh on the engine's loop, the app's dialog, and back."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from quicksand.base.errors import RemoteUnansweredError
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination

from quicksand_tui.door.ssh_asking import askpass_for
from quicksand_tui.screens.ssh_question import SshQuestionScreen
from quicksand_tui.ui.app import QuicksandApp
from tests.ssh_server import FarHost, far_environ, find_sshd, lock_key, with_sshd
from tests.unit.app.fakes import FakeService, screen_text, shown, until

PASSPHRASE = "sesame"

pytestmark = pytest.mark.skipif(find_sshd() is None, reason="there is no sshd on this host")


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarHost]:
    root = tmp_path / "far"
    root.mkdir()
    with with_sshd(root, far_environ()) as found:
        lock_key(found, PASSPHRASE)
        monkeypatch.setenv("PATH", f"{found.bin}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield found


@pytest.fixture
def engine() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop on a thread of its own, as the engine's is."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def begin(
    app: QuicksandApp, engine: asyncio.AbstractEventLoop, far: FarHost
) -> Awaitable[dict[str, object]]:
    """Connect as the app does, and ask for a sign of life."""
    ui = asyncio.get_running_loop()

    async def connect() -> dict[str, object]:
        async with (
            askpass_for(app.dialogs.ssh_questions.ask, ui) as askpass,
            Connection(Destination.parse(far.address), asks=False, askpass=askpass) as near,
        ):
            return await near.link.request("ping")

    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(connect(), engine))


def shows(app: QuicksandApp) -> Callable[[], bool]:
    return lambda: isinstance(app.screen, SshQuestionScreen) and app.screen._field.has_focus


async def test_a_passphrase_typed_in_the_app_opens_the_connection(
    far: FarHost, engine: asyncio.AbstractEventLoop
) -> None:
    async with shown(FakeService()) as (app, pilot):
        answered = asyncio.ensure_future(begin(app, engine, far))
        await until(shows(app))
        assert "Enter passphrase for key" in screen_text(app)
        await pilot.press(*PASSPHRASE, "enter")
        assert await answered == {}
        await until(lambda: app.screen is app.main)


async def test_giving_up_ends_ssh_and_the_end_of_ssh_the_dialog(
    far: FarHost, engine: asyncio.AbstractEventLoop
) -> None:
    async with shown(FakeService()) as (app, pilot):
        answered = asyncio.ensure_future(begin(app, engine, far))
        await until(shows(app))
        await pilot.press("escape")
        with pytest.raises(RemoteUnansweredError):
            await answered
        await until(lambda: app.screen is app.main)
        again = asyncio.ensure_future(begin(app, engine, far))
        await until(shows(app))
        again.cancel()
        await until(lambda: app.screen is app.main)
