"""Verbs that end a machine or let it wait: what the command and the app share."""

from __future__ import annotations

import pytest
from quicksand.base.errors import StateError
from quicksand.sandbox import Sandbox

from quicksand_tui.verbs import halting
from quicksand_tui.verbs.call import Call
from quicksand_tui.verbs.index import find_verb
from quicksand_tui.verbs.parameters import GRACE_S
from tests.each import each


class FakeSandbox:
    """Notes what is asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._error = error

    async def _note(self, call: str) -> None:
        self.calls.append(call)
        if self._error is not None:
            raise self._error

    async def stop(self, *, grace: float) -> None:
        await self._note(f"stop {grace:g}")

    async def kill(self) -> None:
        await self._note("kill")

    async def pause(self) -> None:
        await self._note("pause")

    async def resume(self) -> None:
        await self._note("resume")

    async def look(self) -> None:
        """As of a sandbox of this machine."""

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> FakeSandbox:
    return opened_by(monkeypatch, FakeSandbox())


def opened_by(monkeypatch: pytest.MonkeyPatch, box: FakeSandbox) -> FakeSandbox:
    def open_(name: str, *, to_end_it: bool, host: object) -> FakeSandbox:
        box.calls.append(f"open {name} to end it: {to_end_it}")
        return box

    def attach(name: str, *, host: object) -> FakeSandbox:
        box.calls.append(f"attach {name}")
        return box

    monkeypatch.setattr(Sandbox, "open", open_)
    monkeypatch.setattr(Sandbox, "attach", attach)
    return box


VERBS = [
    (halting.stop(), "open web to end it: True", f"stop {GRACE_S:g}"),
    (halting.stop(grace=0.5), "open web to end it: True", "stop 0.5"),
    (halting.kill(), "open web to end it: True", "kill"),
    (halting.pause(), "attach web", "pause"),
    (halting.resume(), "attach web", "resume"),
]


@pytest.mark.parametrize(("verb", "opens", "does"), VERBS)
async def test_a_verb_opens_a_sandbox_acts_and_closes_it(
    box: FakeSandbox, verb: Call[None], opens: str, does: str
) -> None:
    await verb.carry_out("web", opened=lambda _: box.calls.append("shown"))
    assert box.calls == [opens, "shown", does, "close"]


@each("verb", [halting.stop(), halting.kill(), halting.pause(), halting.resume()])
async def test_a_verb_that_fails_closes_the_sandbox_too(
    monkeypatch: pytest.MonkeyPatch, verb: Call[None]
) -> None:
    box = opened_by(monkeypatch, FakeSandbox(StateError("it is not running")))
    with pytest.raises(StateError):
        await verb.carry_out("web")
    assert box.calls[-1] == "close"


@each("verb", [halting.stop(), halting.kill(), halting.pause(), halting.resume()])
def test_the_job_of_a_verb_is_called_as_the_command(verb: Call[None]) -> None:
    assert find_verb(verb.job.value) is verb.verb
    assert verb.doing and verb.done and not verb.failed.endswith(".")
