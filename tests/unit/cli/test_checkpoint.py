"""checkpoint, revert, undo and start --at where there is no VM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from quicksand.base.errors import RevertedError
from quicksand.base.paths import Paths
from quicksand.guest.shell import ShellInfo
from quicksand.snapshots.history import History
from quicksand.snapshots.tier_choice import WAYS

from quicksand_tui.cli.click_commands import load
from quicksand_tui.cli.guests import terminal as sessions
from quicksand_tui.cli.guests.executing import Wish
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.runner import Signals, why_gone
from quicksand_tui.verbs.index import find_verb, sections
from tests.each import each
from tests.unit.cli.histories import add, history_of, spoil, stand_at
from tests.unit.cli.run_cli import make_stopped
from tests.unit.cli.test_main import complete


@pytest.fixture
def history(places: Paths) -> History:
    """Of a stopped sandbox that is called web, with checkpoints tag-1 and tag-2."""
    found = history_of(places, make_stopped(places, "web"))
    add(found, 1)
    add(found, 2, 1)
    stand_at(found, 2)
    return found


def tags(history: History) -> list[str]:
    return [node.tag for node in history.nodes()]


# Removing


def test_checkpoints_are_removed_and_their_children_stay(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["checkpoint", "rm", "web", "tag-1"]) == Exit.OK
    assert capsys.readouterr().out == "tag-1\n"
    (left,) = history.nodes()
    assert (left.tag, left.parent) == ("tag-2", None)


def test_a_bad_tag_does_not_stop_the_others(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["checkpoint", "rm", "web", "tag-1", "tga-2", "tag-2", "tag-1"]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert out == "tag-1\ntag-2\n"
    assert "there is no checkpoint 'tga-2'" in err
    assert tags(history) == []


def test_a_near_tag_is_suggested(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["checkpoint", "rm", "web", "tag2"]) == Exit.FAILURE
    assert "did you mean 'tag-2'?" in capsys.readouterr().err


def test_a_tag_like_an_option_is_removed_after_two_dashes(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    add(history, 3, 2, tag="--json")
    assert run(["checkpoint", "rm", "web", "--", "--json"]) == Exit.OK
    assert capsys.readouterr().out == "--json\n"


def test_what_was_typed_is_shown_harmless(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["checkpoint", "rm", "web", "\x1b[2J\u202e"]) == Exit.FAILURE
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\u202e" not in err


def test_a_sandbox_called_rm_can_be_reached(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "rm")
    for argv in (["checkpoint", "--", "rm"], ["checkpoint", "-m", "note", "rm", "tag"]):
        assert run(argv) == Exit.FAILURE
        assert "the sandbox 'rm' is not running" in capsys.readouterr().err


# Stopped sandboxes


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["checkpoint", "web", "x"], "`quicksand-tui start web`"),
        (["revert", "web", "tag-1"], "`quicksand-tui start web --at TAG`"),
        (["undo", "web"], "start web --at TAG"),
    ],
    ids=" ".join,
)
def test_a_stopped_sandbox_is_refused_with_what_helps(
    argv: list[str], hint: str, history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert out == ""
    assert "the sandbox 'web' is not running" in err
    assert hint in err


@each("verb", ["checkpoint", "revert", "undo", "tree"])
def test_an_unknown_sandbox_is_named(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [verb, "nobody", *(["tag"] if verb == "revert" else [])]
    assert run(argv) == Exit.FAILURE
    assert "nobody" in capsys.readouterr().err


@each(
    ("argv", "said"),
    [
        (["checkpoint"], "NAME"),
        (["checkpoint", "rm", "web"], "TAG"),
        (["checkpoint", "web", "--replace"], "--replace needs the TAG"),
        (["revert", "web"], "TAG"),
        (["start", "one", "two", "--at", "x"], "--at goes with one sandbox"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_explained(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_removing_has_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["checkpoint", "rm", "--help"]) == Exit.OK
    assert capsys.readouterr().out.startswith("Usage: quicksand-tui checkpoint rm [OPTIONS] NAME")
    assert run(["checkpoint", "--help"]) == Exit.OK
    assert "checkpoint rm NAME TAG..." in capsys.readouterr().out


# Completion


def test_tags_are_completed(history: History) -> None:
    add(history, 3, 2, tag="other")
    spoil(history, 4)
    assert complete("quicksand-tui revert web ta", 3) == ["tag-1", "tag-2"]
    assert complete("quicksand-tui checkpoint rm web other t", 5) == ["tag-1", "tag-2"]
    assert complete("quicksand-tui start web --at o", 4) == ["other"]
    assert complete("quicksand-tui revert nobody t", 3) == [""]
    assert complete("quicksand-tui checkpoint rm w", 3) == ["web"]


# A terminal whose sandbox is reverted


class FakeSandbox:
    """Of which only the terminals matter: those before the revert, those after it."""

    name = "web"

    def __init__(self, before: list[ShellInfo], after: list[ShellInfo]) -> None:
        self._listed = [before, after]

    async def shells(self) -> list[ShellInfo]:
        return self._listed.pop(0) if len(self._listed) > 1 else self._listed[0]

    async def attach_shell(self, session: str, **_: int) -> Any:
        return SimpleNamespace(session=session)


def terminal(session: str, *, alive: bool = True, created: float = 1.0) -> ShellInfo:
    return ShellInfo(
        session=session,
        pid=7,
        argv=("bash",),
        columns=80,
        rows=24,
        attached=1,
        created=created,
        alive=alive,
    )


@pytest.fixture
def relayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sessions that were relayed; each but "new" meets one revert."""
    seen: list[str] = []

    async def relay_once(_through: Any, _sandbox: Any, shell: Any, *, keep: bool) -> int:
        seen.append(shell.session)
        if seen.count(shell.session) == 1 and shell.session != "new":
            raise RevertedError("the sandbox was reverted to '\x1bclean'")
        return 7

    async def open_terminal(_sandbox: Any, _wish: Wish) -> Any:
        return SimpleNamespace(session="new")

    monkeypatch.setattr(sessions, "_relay_once", relay_once)
    monkeypatch.setattr(sessions, "open_terminal", open_terminal)
    return seen


async def relay(sandbox: FakeSandbox, session: str, *argv: str) -> int:
    return await sessions.relay(
        cast("Any", sandbox),
        cast("Any", SimpleNamespace(session=session)),
        Wish(argv=argv, env={}),
        b"",
        cast("Signals", None),
        keep=True,
    )


async def test_a_terminal_that_was_there_then_goes_on(
    relayed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox = FakeSandbox([terminal("mine")], [terminal("other"), terminal("mine")])
    assert await relay(sandbox, "mine") == 7
    assert relayed == ["mine", "mine"]
    assert capsys.readouterr().err == "the sandbox was reverted to '\\x1bclean'\n"


@pytest.mark.parametrize(
    "then",
    [
        [],
        [terminal("other")],
        [terminal("mine", alive=False)],
        [terminal("mine", created=2.0)],
    ],
    ids=["none", "another", "ended", "another with its number"],
)
async def test_a_shell_that_did_not_come_back_becomes_a_new_one(
    then: list[ShellInfo], relayed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await relay(FakeSandbox([terminal("mine")], then), "mine") == 7
    assert relayed == ["mine", "new"]
    assert "here is a new one" in capsys.readouterr().err


async def test_a_command_that_did_not_run_then_is_not_run_again(relayed: list[str]) -> None:
    with pytest.raises(RevertedError):
        await relay(FakeSandbox([terminal("mine")], []), "mine", "make")
    assert relayed == ["mine"]


async def test_a_revert_is_told_at_once_and_with_what_it_means() -> None:
    error = await why_gone(cast("Any", None), RevertedError("the sandbox was reverted to 'x'"))
    assert isinstance(error, RevertedError)
    assert error.hint == "what ran there since then is undone"


def test_the_verbs_are_in_the_help() -> None:
    found = {verb.name: verb for verb in sections()["Keep and revert"]}
    assert set(found) == {
        "checkpoint",
        "revert",
        "undo",
        "tree",
        "diff",
        "save",
        "snapshot",
        "export",
        "import",
    }
    for verb in found.values():
        assert isinstance(load(verb), click.Command)


def test_the_tiers_to_choose_from_are_the_engine_s() -> None:
    tier = find_verb("checkpoint").parameter("tier")
    assert list(tier.all_choices) == [way.tier.name for way in WAYS]
