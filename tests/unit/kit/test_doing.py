"""The method of an action is found by its name."""

from __future__ import annotations

import pytest

from quicksand_tui.actions.all_actions import Doer, Scope


def test_a_method_is_that_of_the_action_with_its_name_and_a_class_has_those_of_its_bases() -> None:
    class Some(Doer):
        scope = Scope.MAIN

        def do_stop(self) -> None:
            done.append("stops some")

        def do_kill(self) -> None:
            done.append("kills")

    class More(Some):
        def do_start(self) -> None:
            done.append("starts")

        def do_stop(self) -> None:
            done.append("stops more")

    done: list[str] = []
    one = More()
    assert one.does("start") and not Some().does("start")
    for action in ("stop", "start", "kill"):
        one.do(action)
    assert done == ["stops more", "starts", "kills"]


def test_a_method_for_no_action_of_the_scope_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="do_follow is for no action"):

        class Wrong(Doer):
            scope = Scope.MAIN

            def do_follow(self) -> None: ...
