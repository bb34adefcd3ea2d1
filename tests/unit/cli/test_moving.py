"""`saves send` and `saves fetch`: what they ask of the machine, and what they say."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
import quicksand
from quicksand.errors import SaveError
from quicksand.hosted.save_moving import MovedSave

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit


class Box:
    """Another machine."""

    asked: ClassVar[list[tuple[Any, ...]]] = []
    moved = MovedSave(name="dev", sent=3_000_000, notes=("a note",))

    def __init__(self, address: str) -> None:
        self.address = address

    async def send_save(self, name: str, **terms: Any) -> MovedSave:
        terms.pop("progress")("sending", 1, 2)
        Box.asked.append(("send", self.address, name, terms))
        if name == "taken":
            raise SaveError("there is a save 'taken' already")
        return self.moved

    async def fetch_save(self, name: str, **terms: Any) -> MovedSave:
        terms.pop("progress")
        Box.asked.append(("fetch", self.address, name, terms))
        return MovedSave(name=name, sent=0, was_there=True)


@pytest.fixture(autouse=True)
def box(monkeypatch: pytest.MonkeyPatch) -> type[Box]:
    monkeypatch.setattr(quicksand, "RemoteHost", Box)
    monkeypatch.setattr(Box, "asked", [])
    return Box


def test_a_save_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["saves", "send", "dev", "--to", "box", "--name", "other", "--replace"]) == Exit.OK
    terms = {"new_name": "other", "replace": True, "trusted": False}
    assert Box.asked == [("send", "box", "dev", terms)]
    said = capsys.readouterr()
    assert said.out == "dev\n"
    assert "were sent" in said.err and "a note" in said.err


def test_a_save_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["saves", "fetch", "dev", "--from", "ssh://me@box", "--trust"]) == Exit.OK
    terms = {"new_name": "", "replace": False, "trusted": True}
    assert Box.asked == [("fetch", "ssh://me@box", "dev", terms)]
    assert "it was there already" in capsys.readouterr().err


def test_the_result_is_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["saves", "send", "dev", "--to", "box", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        "name": "dev",
        "sent": 3_000_000,
        "was_there": False,
        "notes": ["a note"],
    }


def test_what_is_wrong_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["saves", "send", "taken", "--to", "box"]) == Exit.FAILURE
    assert "there is a save 'taken' already" in capsys.readouterr().err
    assert run(["saves", "send", "dev"]) == Exit.USAGE
    assert "--to" in capsys.readouterr().err
