"""The commands of the `:` line: parsing, what they are about, how they could go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.things.image_info import ImageInfo

from quicksand_tui.actions.all_actions import Scope, in_scope
from quicksand_tui.actions.line import (
    CommandError,
    LineVerb,
    Order,
    Target,
    complete,
    current_word,
    parse,
    resolve,
    split_words,
    verbs_of,
    whole_words,
    why_not,
)
from quicksand_tui.forms.line_calls import call_for, check
from quicksand_tui.home.state import LINES_MAX, CommandHistory, StateFile
from quicksand_tui.model.shown_sandboxes import CheckpointTree, SandboxView
from quicksand_tui.model.world import Selection
from tests.each import each
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fake_saves import SAVES
from tests.unit.app.fakes import AGENT, CLEAN, DB, DB_PAST, KEPT, NOW, WEB, WEB_PAST, kept

MAIN = verbs_of(Scope.MAIN)
THEMES = ("nord", "quicksand", "quicksand-light")
WORLD = replace(KEPT, saves=SAVES)


def order(line: str, verbs: Mapping[str, LineVerb] = MAIN) -> Order:
    found = parse(line, verbs)
    assert found is not None
    return found


def target(line: str, selected: SandboxView | None = WEB_PAST) -> Target:
    return resolve(order(line), WORLD, selected, THEMES)


def refused(line: str, selected: SandboxView | None = WEB_PAST) -> str:
    with pytest.raises(CommandError) as caught:
        target(line, selected)
    return str(caught.value)


# Words


@each(
    ("line", "words"),
    [
        ("revert web clean", ["revert", "web", "clean"]),
        ("  a   b ", ["a", "b"]),
        ("a 'b c' \"d e\"", ["a", "b c", "d e"]),
        ("a\\ b ''", ["a b", ""]),
        ("'it'\\''s'", ["it's"]),
        ("", []),
    ],
)
def test_words_are_parted_as_a_shell_does(line: str, words: list[str]) -> None:
    assert whole_words(line) == words


def test_a_quote_must_be_closed() -> None:
    with pytest.raises(CommandError, match="a quote is not closed"):
        whole_words("checkpoint -m 'note")


def test_the_word_under_the_cursor() -> None:
    assert current_word("revert we")[0] == ["revert"]
    assert current_word("revert we")[1].text == "we"
    assert current_word("revert web ")[1].text == ""
    assert current_word("x 'a b ")[1].text == "a b "


@given(st.text(max_size=80))
def test_every_line_is_an_order_or_is_refused_in_words(line: str) -> None:
    for word in split_words(line):
        assert 0 <= word.start < len(line)
    completion = complete(line, MAIN, WORLD, WEB_PAST, THEMES)
    assert 0 <= completion.start <= len(line)
    try:
        found = parse(line, MAIN)
        if found is not None:
            resolve(found, WORLD, None, THEMES)
    except CommandError as error:
        assert str(error).isprintable()


WORDS = st.sampled_from(["web", "db", ".", "clean", "-m", "--at", "--", "-n", "3", "'a", "", "x y"])


@given(st.sampled_from(sorted(MAIN)), st.lists(WORDS, max_size=5))
def test_any_words_behind_a_verb_are_taken_or_refused(verb: str, words: list[str]) -> None:
    line = " ".join([verb, *words])
    complete(line, MAIN, WORLD, DB_PAST, THEMES)
    try:
        found = parse(line, MAIN)
        assert found is not None
        why_not(resolve(found, WORLD, DB_PAST, THEMES), WORLD, Selection(sandbox=DB_PAST))
    except CommandError as error:
        assert str(error)


# Parsing


def test_every_action_but_those_that_are_only_keys_is_a_command() -> None:
    for scope in Scope:
        verbs = verbs_of(scope)
        for action in in_scope(scope):
            if action.id not in ("escape", "back", "command"):
                assert action.id.replace("_", "-") in verbs


def test_commands_are_called_as_those_of_the_shell_too() -> None:
    for alias, name in {"rm": "delete", "logs": "log", "run": "new", "q": "quit"}.items():
        assert order(alias).verb.name == name


def test_words_go_to_their_arguments() -> None:
    assert order(":checkpoint web t1 -m 'a note'").words == {
        "name": "web",
        "tag": "t1",
        "note": "a note",
    }
    assert order("start --at clean web").words == {"at": "clean", "names": "web"}
    assert order("start --at=clean").words == {"at": "clean"}
    assert order("clone web 3").words == order("clone -n 3 web").words
    assert order("stop -- -odd").words == {"names": "-odd"}
    assert order("filter  state:running  !db ").words == {"words": "state:running  !db"}
    assert parse("  : ", MAIN) is None


@each(
    ("line", "why"),
    [
        ("rever web", "there is no command 'rever'; did you mean revert"),
        ("xyzzy", "there is no command 'xyzzy'"),
        ("foo", "there is no command 'foo'"),
        ("stop web db", "'db' is too much: stop [SANDBOX]"),
        ("stop --force web", "stop has no option '--force': it takes none"),
        ("start -m x", "start has no option '-m': it takes --at"),
        ("start web --at", "--at needs a CHECKPOINT behind it"),
        ("start --at a --at b", "there are two CHECKPOINTs: 'a' and 'b'"),
        ("stop " + "x" * 1000, "at most 1000 characters"),
    ],
)
def test_a_line_that_is_no_command_is_refused_with_why(line: str, why: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse(line, MAIN)
    assert why in str(caught.value)
    assert ("did you mean" in str(caught.value)) == ("did you mean" in why), "what is far off"


@each("text", HOSTILE)
def test_what_is_refused_is_harmless_to_show(text: str) -> None:
    for line in (text, f"stop '{text}'", f"stop --{text}"):
        try:
            target(line)
        except CommandError as error:
            assert str(error).isprintable()


# What it is about


def test_names_are_found() -> None:
    assert target("stop web").sandbox == WEB_PAST
    assert target(f"stop {WEB.id}").sandbox == WEB_PAST
    assert target("stop .").sandbox == WEB_PAST
    assert target("stop").sandbox is None
    found = target("revert web clean")
    assert (found.sandbox, found.checkpoint) == (WEB_PAST, CLEAN)
    found = target("start --at clean", DB_PAST)
    assert (found.sandbox, found.checkpoint) == (DB_PAST, CLEAN)
    assert target("clone web 3").word("count") == "3"
    assert target("theme nord").found == {"theme": "nord"}
    assert isinstance(target("new debian").found["image"], ImageInfo)
    save = SAVES.saves[0]
    assert target(f"new {save.address}").found["image"] == save


@each(
    ("line", "why"),
    [
        ("stop wbe", "there is no sandbox 'wbe'; did you mean web?"),
        ("revert web claen", "web has no checkpoint 'claen'; did you mean clean?"),
        ("revert agent-7 x", "agent-7 has no checkpoint"),
        ("theme nrod", "there is no theme 'nrod'; did you mean nord?"),
        ("new debina", "there is no image or save 'debina'; did you mean debian?"),
    ],
)
def test_what_is_not_there_is_named_with_what_is_like_it(line: str, why: str) -> None:
    assert why in refused(line)


def test_without_a_selection_the_sandbox_must_be_named() -> None:
    assert refused("stop .", None) == "no sandbox is selected"
    assert refused("start --at clean", None) == "no sandbox is selected"


def test_saves_that_are_just_being_read_are_no_reason_to_say_that_there_is_none() -> None:
    with pytest.raises(CommandError, match="just being read"):
        resolve(order("new dev"), KEPT, None, THEMES)


@each(
    ("line", "why"),
    [
        ("stop db", "db does not run"),
        ("start web", "web is already running"),
        ("revert db clean", "db does not run: a starts it"),
        ("start web --at clean", "web is already running"),
        ("revert web c0ffee00", "this checkpoint cannot be read"),
        ("stop", "no sandbox is selected"),
    ],
)
def test_the_reasons_are_those_of_the_keys(line: str, why: str) -> None:
    found = why_not(target(line, None), WORLD, Selection())
    assert found is not None and why in found


@each("count", ["0", "³", "1001"])
def test_a_number_is_checked_as_in_the_form(count: str) -> None:
    with pytest.raises(CommandError, match="count: a number from 1 to 1000"):
        check(target(f"clone web {count}"), WORLD, Selection())


def test_a_command_that_says_enough_is_a_call_and_others_ask() -> None:
    clone = call_for(target("clone web 3 --at clean"))
    assert clone is not None
    assert clone.command_for("web") == "quicksand-tui clone web -n 3 --at clean"
    assert clone.values["at"] == CLEAN.id, "it is found by its id, whatever it is called by then"
    taken = call_for(target("checkpoint web"))
    assert taken is not None and taken.command_for("web") == "quicksand-tui checkpoint web"
    for line in ("checkpoint", "clone", "save web", "mount web", "kill web", "delete web", "stop"):
        assert call_for(target(line)) is None, line


def test_a_read_only_app_refuses_what_changes_something() -> None:
    world = replace(WORLD, read_only=True)
    for line in ("stop web", "revert web clean", "start db --at clean", "new debian", "shell web"):
        found = why_not(target(line), world, Selection())
        assert found is not None and found.startswith("read-only")
    for line in ("log web", "saves", "help", "quit", "theme nord", "tree web", "filter x"):
        assert why_not(target(line), world, Selection()) is None


# Completion


def offered(line: str, selected: SandboxView | None = WEB_PAST) -> list[str]:
    return [found.text for found in complete(line, MAIN, WORLD, selected, THEMES).candidates]


def test_verbs_are_completed() -> None:
    assert offered("rev") == ["revert"]
    assert set(offered("sta")) == {"start"}
    assert "rm" in offered("r") and "rm" not in offered("")
    assert "stop" in offered("")


def test_sandboxes_are_those_with_which_it_is_possible() -> None:
    assert offered("stop ") == ["web"]
    assert offered("start ") == ["db", "agent-7"]
    assert offered("log a") == ["agent-7"]
    assert offered("undo ") == ["web"]
    assert offered("resume ") == ["web"]


def test_checkpoints_are_those_of_the_sandbox_that_is_named() -> None:
    assert offered("revert db ") == ["upgraded", "clean"]
    assert offered("revert web cl") == ["clean"]
    assert offered("start --at ", DB_PAST) == ["upgraded", "clean"]
    assert offered("start --at u", None) == []
    assert "c0ffee00" not in offered("revert web ")


def test_images_saves_themes_and_options_are_completed() -> None:
    assert offered("new deb")[0] == "debian"
    assert "old" not in offered("new ")
    assert offered("theme n") == ["nord"]
    assert offered("start -") == ["--at"]
    assert offered("checkpoint web t -m ") == []


def test_published_images_are_offered_for_an_installation() -> None:
    assert offered("install al") == ["alpine", "alpine-desktop"]
    assert complete("install ", MAIN, WORLD, None, THEMES).hint == "install [PACKAGE]"


def test_what_is_put_into_the_line_is_quoted_where_it_must_be() -> None:
    odd = replace(AGENT, name="a b")
    found = complete("delete a", MAIN, replace(WORLD, sandboxes=(odd,)), None, THEMES)
    assert [(c.text, c.typed) for c in found.candidates] == [("a b", "'a b'")]
    assert found.start == len("delete ")


def test_the_usage_is_shown_and_a_wrong_verb_said() -> None:
    assert complete("revert ", MAIN, WORLD, None, THEMES).hint == "revert [SANDBOX] [CHECKPOINT]"
    assert "did you mean revert" in complete("rever ", MAIN, WORLD, None, THEMES).hint
    assert complete("clone ", MAIN, WORLD, DB, THEMES).hint == (
        "clone [SANDBOX] [COUNT] [--at CHECKPOINT]"
    )


# History


def test_lines_are_kept_once_and_bounded(tmp_path: Path) -> None:
    history = CommandHistory(StateFile(tmp_path / "state" / "commands.json"))
    assert history.read() == []
    for number in range(LINES_MAX + 5):
        history.add(f"stop box-{number}")
    history.add("stop box-9")
    history.add("  ")
    history.add("odd\x1b[2J")
    lines = history.read()
    assert len(lines) == LINES_MAX
    assert lines[-1] == "stop box-9" and lines.count("stop box-9") == 1
    assert (tmp_path / "state" / "commands.json").stat().st_mode & 0o777 == 0o600


@each("data", [b"", b"[]", b"\xff", b'{"lines": 3}', b"{}"])
def test_a_damaged_history_is_read_as_empty(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "commands.json"
    path.write_bytes(data)
    history = CommandHistory(StateFile(path))
    assert history.read() == []
    history.add("stop web")
    assert history.read() == ["stop web"]


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = CommandHistory(StateFile(tmp_path / "file" / "commands.json"))
    history.add("stop web")
    assert history.read() == []


def test_automatic_checkpoints_are_told_apart_by_their_time() -> None:
    autos = [
        kept(f"a{n}", "before undo", "c1", auto=True, created=NOW - 60 * (3 - n)) for n in range(3)
    ]
    tree = CheckpointTree(checkpoints=(CLEAN, *autos), head="c1")
    web = replace(WEB, tree=tree)
    world = replace(KEPT, sandboxes=(web,))
    found = complete("revert web ", MAIN, world, web, ()).candidates
    assert [candidate.text for candidate in found] == ["before undo", "a1", "a0", "clean"]
    assert [candidate.about for candidate in found[:3]] == [
        "automatic · 1m ago, 07:59:00",
        "before undo · automatic · 2m ago, 07:58:00",
        "before undo · automatic · 3m ago, 07:57:00",
    ]
