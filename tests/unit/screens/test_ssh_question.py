"""The dialog in which ssh's questions are asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from quicksand_panes.widgets import Pane
from textual.pilot import Pilot

from quicksand_tui.kit.key_handling import Hands
from quicksand_tui.model.specs import ANSWER_MAX, SshQuestion, SshQuestionKind
from quicksand_tui.screens import ssh_question
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.ssh_question import SshQuestions, SshQuestionScreen
from quicksand_tui.ui.app import QuicksandApp
from tests.each import each
from tests.unit.app.fakes import FakeService, SlowHands, screen_text, shown, toasts, until

PROMPT = "Enter passphrase for key '/home/me/.ssh/id_ed25519':"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question takes keys at once, except where a test wants it otherwise."""
    monkeypatch.setattr(ssh_question, "ANSWER_AFTER_S", 0.01)


def secret(prompt: str = PROMPT, host: str = "box") -> SshQuestion:
    return SshQuestion(host=host, prompt=prompt, kind=SshQuestionKind.SECRET)


class Asking:
    """Questions that are asked as the engine does."""

    def __init__(self, app: QuicksandApp) -> None:
        self._questions = SshQuestions(app, app.keys, ascii_only=False)
        self._app = app
        self.tasks: list[asyncio.Task[str | None]] = []

    def begin(self, question: SshQuestion) -> asyncio.Task[str | None]:
        self.tasks.append(asyncio.create_task(self._questions.ask(question)))
        return self.tasks[-1]

    async def shown(self, question: SshQuestion) -> asyncio.Task[str | None]:
        task = self.begin(question)
        await self.is_ready(question)
        return task

    async def is_ready(self, question: SshQuestion) -> None:
        """Wait until the question is shown, and takes its answer."""
        await until(lambda: isinstance(self._app.screen, SshQuestionScreen))
        await until(lambda: [one for one in self._app.screen.query("#prompt") if one.region])
        await until(lambda: question.prompt.split("\n")[0] in screen_text(self._app))
        screen = self._app.screen
        assert isinstance(screen, SshQuestionScreen)
        assert screen._question is question
        if question.kind is SshQuestionKind.SECRET and not screen._waits:
            await until(lambda: screen._field.has_focus)


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[tuple[QuicksandApp, Pilot[int], Asking]]:
    async with shown(FakeService()) as (app, pilot):
        found = Asking(app)
        try:
            yield app, pilot, found
        finally:
            for task in found.tasks:
                task.cancel()
            if found.tasks:
                await asyncio.wait(found.tasks)


async def test_a_passphrase_is_typed_unseen_and_leaves_nothing_behind() -> None:
    async with asking() as (app, pilot, ssh):
        answer = await ssh.shown(secret())
        assert "ssh to box" in screen_text(app)
        await pilot.press(*"s3cret")
        await until(lambda: "••••••" in screen_text(app))
        screen = app.screen
        assert isinstance(screen, SshQuestionScreen)
        assert "s3cret" not in screen_text(app)
        await pilot.press("ctrl+t")
        await until(lambda: "s3cret" in screen_text(app))
        await pilot.press("ctrl+t", "shift+home", "ctrl+c", "ctrl+x")
        await until(lambda: "s3cret" not in screen_text(app))
        await pilot.press("enter")
        await until(answer.done)
        assert answer.result() == "s3cret"
        await until(lambda: app.screen is app.main)
        assert screen._field.value == ""
        assert "s3cret" not in app.clipboard
        assert not app.operations.log
        assert toasts(app) == []


async def test_esc_gives_up_and_the_next_host_comes() -> None:
    async with asking() as (app, pilot, ssh):
        first = await ssh.shown(secret())
        den = secret("Password:", "den")
        second = ssh.begin(den)
        third = ssh.begin(secret("Password:", "ark"))
        await pilot.press("x")
        await pilot.press("escape")
        await until(first.done)
        assert first.result() is None
        await ssh.is_ready(den)
        assert "ssh to den" in screen_text(app)
        third.cancel()  # it has not been shown
        await pilot.press("y", "enter")
        await until(second.done)
        assert second.result() == "y"
        await until(lambda: app.screen is app.main)
        assert len(app.screen_stack) == 1


async def test_a_host_key_is_answered_in_words_of_several_lines() -> None:
    prompt = "The authenticity of host 'box' can't be established.\nED25519 key fingerprint is X."
    async with asking() as (app, pilot, ssh):
        answer = await ssh.shown(secret(f"{prompt}\nContinue (yes/no/[fingerprint])? [red]"))
        for line in (*prompt.split("\n"), "[fingerprint])? [red]"):
            assert line in screen_text(app)
        await pilot.press(*"yes", "enter")
        await until(answer.done)
        assert answer.result() == "yes"


@each(("key", "expected"), [("ctrl+y", "yes"), ("n", "no"), ("escape", None)])
async def test_a_confirmation_is_yes_or_no(key: str, expected: str | None) -> None:
    question = SshQuestion(host="box", prompt="Allow it?", kind=SshQuestionKind.CONFIRM)
    async with asking() as (app, pilot, ssh):
        answer = await ssh.shown(question)
        await until(lambda: "ctrl+y: yes" in screen_text(app))
        await pilot.press("y", "enter")
        assert not answer.done()
        await pilot.press(key)
        await until(answer.done)
        assert answer.result() == expected


async def test_a_notice_goes_when_ssh_takes_it_back() -> None:
    question = SshQuestion(
        host="box", prompt="Confirm user presence for key", kind=SshQuestionKind.NOTICE
    )
    async with asking() as (app, pilot, ssh):
        answer = await ssh.shown(question)
        await pilot.press("enter", "y", "n", "ctrl+y")
        assert not answer.done()
        answer.cancel()
        await until(lambda: app.screen is app.main)


async def test_it_stays_when_ssh_ends_within_an_answer_and_what_is_typed_goes_nowhere() -> None:
    """Else the rest of a password, with its Enter, would get into what is below."""
    async with asking() as (app, pilot, ssh):
        answer = await ssh.shown(secret())
        den = secret("Password:", "den")
        after = ssh.begin(den)
        await pilot.press(*"s3c")
        answer.cancel()
        await until(lambda: "does not wait" in screen_text(app))
        assert "•" not in screen_text(app)
        await pilot.press(*"ret")
        assert isinstance(app.screen, SshQuestionScreen)
        assert toasts(app) == [], "nor does it say which keys it does not take"
        await pilot.press("enter")
        await ssh.is_ready(den)
        after.cancel()
        await until(lambda: app.screen is app.main)


async def test_it_takes_nothing_that_was_typed_elsewhere() -> None:
    async with asking() as (app, pilot, ssh):
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane) and app.focused.is_open)
        answer = await ssh.shown(secret())
        await until(lambda: "ctrl+y begins" in screen_text(app))
        await pilot.press(*"ls", "enter")
        await pilot.pause()
        assert not answer.done()
        screen = app.screen
        assert isinstance(screen, SshQuestionScreen)
        assert screen._field.value == ""
        await pilot.press("ctrl+y")
        await until(lambda: screen._field.has_focus)
        await pilot.press("p", "enter")
        await until(answer.done)
        assert answer.result() == "p"


async def test_a_form_below_stays_as_it_was() -> None:
    async with asking() as (app, pilot, ssh):
        await pilot.press("n")
        await until(lambda: isinstance(app.screen, FormScreen) and app.focused is not None)
        form = app.screen
        answer = await ssh.shown(secret())
        assert "ctrl+y begins" in screen_text(app)
        await pilot.press("escape")
        await until(answer.done)
        await until(lambda: app.screen is form)


async def test_keys_that_follow_each_other_without_a_pause_are_no_answer() -> None:
    """They were on their way when it came."""
    clock = SlowHands()
    async with shown(FakeService(), hands=Hands(lambda _, act: act(), clock)) as (app, pilot):
        ssh = Asking(app)
        await pilot.press("j")
        answer = await ssh.shown(secret())
        clock.of = lambda key: clock.time  # type: ignore[method-assign]
        await pilot.press("p", "w", "enter")
        screen = app.screen
        assert isinstance(screen, SshQuestionScreen)
        assert screen._field.value == ""
        answer.cancel()
        await asyncio.wait([answer])
        await until(lambda: app.screen is app.main)


async def test_what_ssh_would_cut_is_refused() -> None:
    async with asking() as (app, pilot, ssh):
        answer = await ssh.shown(secret())
        screen = app.screen
        assert isinstance(screen, SshQuestionScreen)
        screen._field.value = "x" * (ANSWER_MAX + 1)
        await pilot.press("enter")
        await until(lambda: "longer than" in screen_text(app))
        screen._field.value = "x" * ANSWER_MAX
        await pilot.press("enter")
        await until(answer.done)


async def test_the_end_of_the_app_gives_up() -> None:
    async with shown(FakeService()) as (app, _):
        answer = await Asking(app).shown(secret())
    async with asyncio.timeout(60):
        assert await answer is None
