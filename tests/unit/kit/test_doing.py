"""The method of an action is found by its name."""

from __future__ import annotations

import pytest

from quicksand_tui.actions.all_actions import Doer, Scope


def test_a_method_is_that_of_the_action_with_its_name_and_a_class_has_those_of_its_bases() -> None:
    class Some(Doer):
        scope = Scope.MAIN

        def do_stop(self) -> None: ...

    class More(Some):
        def do_start(self) -> None: ...

        def do_stop(self) -> None: ...

    one = More()
    assert one.handlers == {"stop": one.do_stop, "start": one.do_start}


def test_a_method_for_no_action_of_the_scope_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="do_follow is for no action"):

        class Wrong(Doer):
            scope = Scope.MAIN

            def do_follow(self) -> None: ...
