"""The registry: complete, consistent, and honest about what is possible."""

from __future__ import annotations

from dataclasses import replace

from quicksand.things.status import Status

from quicksand_tui.actions.all_actions import (
    ACTIONS,
    Group,
    Scope,
    find_action,
    in_scope,
)
from quicksand_tui.cockpit.log import LogPanel
from quicksand_tui.cockpit.tree_panel import TreePanel
from quicksand_tui.kit.key_handling import ActionScreen
from quicksand_tui.model.jobs import Job, JobVerb
from quicksand_tui.model.keymap import key_text
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import Panel, Selection
from quicksand_tui.screens.diff_browser import DiffScreen
from quicksand_tui.screens.help import help_content
from quicksand_tui.screens.main_screen import MainScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen, TrashScreen
from tests.each import each
from tests.unit.app.fakes import (
    AGENT,
    BROKEN,
    CLEAN,
    DAMAGED,
    DB,
    DB_PAST,
    DEBIAN,
    EMPTY,
    FULL,
    KEPT,
    OLD,
    PAUSED,
    WEB,
    WEB_PAST,
    FakeService,
    select,
    shown,
)
from tests.unit.app.test_checkpoints import open_tree

FORBIDDEN = {"ctrl+h", "ctrl+i", "ctrl+j", "ctrl+m", "ctrl+left_square_bracket"}
"""The same bytes as Backspace, Tab, line feed, Enter and Escape."""

LIVE = {"stop", "kill", "delete", "log", "mounts", "save", "pause", "clone"}
STOPPED = {"open", "start", "delete", "log", "mounts", "save", "clone"}
RUNNING = {"open", "shell", "full_shell", "execute", "mount", "forward"}
PAST_ACTIONS = {"checkpoint", "revert", "undo"}


@each("scope", Scope)
def test_every_action_has_keys_of_its_own_and_words(scope: Scope) -> None:
    actions = list(in_scope(scope))
    keys = [key for action in actions for key in action.keys]
    assert len(keys) == len(set(keys))
    assert not set(keys) & FORBIDDEN
    for action in actions:
        assert action.label and action.tooltip and not action.tooltip.endswith(".")


async def test_every_action_is_carried_out_by_something_and_nothing_else_is() -> None:
    async with shown(FakeService(KEPT)) as (app, pilot):
        screens: dict[Scope, ActionScreen] = dict.fromkeys(Scope, app.main)
        ways = ((Scope.SAVES, "saves"), (Scope.TRASH, "trash"), (Scope.WALL, "wall"))
        for scope, opens in ways:
            screens[Scope.MAIN].everywhere.do(opens)
            assert isinstance(app.screen, ActionScreen) and app.screen.scope is scope
            screens[scope] = app.screen
        while app.screen is not app.main:
            app.pop_screen()
        await select(pilot, WEB_PAST)
        await open_tree(pilot)
        next(one for one in app.main.doers_of(Scope.TREE) if one.does("diff")).do("diff")
        assert isinstance(app.screen, DiffScreen)
        screens[Scope.DIFF] = app.screen
        for scope, screen in screens.items():
            for action in in_scope(scope):
                own = any(one.does(action.id) for one in screen.doers_of(scope))
                assert own or (screen is app.main and has_verb(action.id)), action.address


def has_verb(action_id: str) -> bool:
    """Whether the main screen does the verb of an action of that name."""
    verb = find_action(action_id).verb
    return verb is not None and verb.can_be_made


def test_no_screen_binds_a_key_that_a_terminal_cannot_tell_apart() -> None:
    for screen in (MainScreen, LogPanel, TreePanel, SavesScreen, TrashScreen):
        for binding in screen.BINDINGS:
            assert not set(str(getattr(binding, "key", binding)).split(",")) & FORBIDDEN


def test_only_the_help_of_the_main_screen_s_parts_names_keys_that_move_between_them() -> None:
    for scope in (Scope.MAIN, Scope.TREE, Scope.LOG, Scope.MOUNTS):
        assert "Go to checkpoints" in help_content(scope).plain
    for scope in (Scope.DIFF, Scope.SAVES, Scope.TRASH, Scope.WALL):
        assert "Go to checkpoints" not in help_content(scope).plain


def test_the_help_shows_every_action_and_fits_80_columns() -> None:
    for scope in Scope:
        text = help_content(scope).plain
        assert max(len(line) for line in text.splitlines()) <= 80
        for action in in_scope(scope):
            assert action.tooltip in text
            assert len(action.tooltip) <= 54
            assert key_text(action.keys[0]) in text


def reason(action_id: str, view: SandboxView | None, *jobs: Job) -> str | None:
    world = replace(FULL, jobs=jobs)
    return find_action(action_id).disabled_reason(world, Selection(sandbox=view))


@each(
    ("view", "possible"),
    [
        (WEB, {*LIVE, *RUNNING, "checkpoint", "copy_port"}),
        (WEB_PAST, {*LIVE, *RUNNING, *PAST_ACTIONS, "copy_port"}),
        (PAUSED, {*LIVE, "open", "checkpoint"}),
        (replace(WEB_PAST, state=Status.PAUSED), {*LIVE, "open", *PAST_ACTIONS, "copy_port"}),
        (DB, STOPPED),
        (DB_PAST, {*STOPPED, "revert"}),
        (replace(DB_PAST, state=Status.CRASHED), {*STOPPED, "revert"}),
        (AGENT, STOPPED),
        (BROKEN, {"delete", "log", "mounts"}),
        (replace(WEB, state=Status.STARTING), {"log", "mounts", "copy_port"}),
        (None, set()),
    ],
)
def test_what_is_possible_in_each_state(view: SandboxView | None, possible: set[str]) -> None:
    about = {action.id for action in ACTIONS if action.group is Group.SANDBOX}
    about -= {"new", "copy", "mark", "mark_all", "mark_range"}
    assert {name for name in about if reason(name, view) is None} == possible


def test_every_refusal_is_a_reason_in_words() -> None:
    for action in ACTIONS:
        for view in (None, *FULL.sandboxes):
            for panel in Panel:
                why = action.disabled_reason(FULL, Selection(panel=panel, sandbox=view))
                assert why is None or len(why) > 10


def test_while_a_job_is_under_way_only_it_can_be_changed() -> None:
    job = Job(sandbox_id=DB.id, name="db", verb=JobVerb.START)
    view = replace(DB, state=Status.STARTING)
    assert reason("cancel", view, job) is None
    assert reason("delete", view, job) == "db is being started: X cancels that"
    assert reason("cancel", view, replace(job, cancelling=True)) == "it is being cancelled"
    stop = Job(sandbox_id=WEB.id, name="web", verb=JobVerb.STOP)
    assert (
        reason("cancel", WEB, stop) == "only a start or a save can be cancelled; K ends it at once"
    )
    assert reason("kill", WEB, stop) is None
    assert reason("stop", WEB, stop) == "web is being stopped"


def test_new_needs_an_image_that_works() -> None:
    new = find_action("new").disabled_reason
    assert new(EMPTY, Selection()) is None
    assert "quicksand-tui setup" in str(new(replace(EMPTY, images=(OLD,)), Selection()))
    assert "broken" in str(new(FULL, Selection(panel=Panel.IMAGES, image=OLD)))
    assert new(FULL, Selection(panel=Panel.IMAGES, image=DEBIAN)) is None


def test_in_the_tree_what_cannot_be_read_is_neither_gone_to_nor_deleted() -> None:
    for action_id in ("go", "remove"):
        why = find_action(action_id, Scope.TREE).disabled_reason
        assert why(FULL, Selection(sandbox=WEB_PAST, checkpoint=CLEAN)) is None
        assert "read" in str(why(FULL, Selection(sandbox=WEB_PAST, checkpoint=DAMAGED)))
        assert "no checkpoint" in str(why(FULL, Selection(sandbox=WEB_PAST)))
        job = Job(sandbox_id=WEB.id, name="web", verb=JobVerb.CHECKPOINT)
        busy = why(replace(FULL, jobs=(job,)), Selection(sandbox=WEB_PAST, checkpoint=CLEAN))
        assert busy == "web is being checkpointed"


def test_commands_quote_the_name() -> None:
    assert find_action("stop").command_for("a b;c") == "quicksand-tui stop 'a b;c'"
    assert find_action("revert").command_for("x", tag="a b") == "quicksand-tui revert x 'a b'"
    assert find_action("help").command_for("x") == ""


def test_the_command_to_delete_is_another_for_one_that_runs() -> None:
    delete = find_action("delete")
    assert delete.command_for("web") == "quicksand-tui rm web"
    assert delete.command_for("web", live=True) == "quicksand-tui rm --force web"


def test_what_changes_anything_is_refused_by_a_read_only_app() -> None:
    by_hand = {"main.open", "tree.go", "tree.ask", "tree.checkpoint", "tree.undo"}
    by_hand |= {
        "desktop.checkpoint",
        "desktop.revert",
        "desktop.undo",
        "panes.checkpoint",
        "panes.revert",
        "panes.undo",
        "panes.close",
    }
    by_hand |= {"panes.split_beside", "panes.split_below", "panes.renew", "trash.purge"}
    for action in ACTIONS:
        changes = action.verb is not None and not action.verb.reads
        assert action.changes == (changes or action.address in by_hand), action.address
        why = action.disabled_reason(replace(FULL, read_only=True), Selection(sandbox=WEB))
        assert (why is not None and why.startswith("read-only")) == action.changes


def test_a_reason_that_many_actions_share_is_told_once_in_a_section() -> None:
    actions = [action for action in in_scope(Scope.MAIN) if action.group is Group.SANDBOX]
    why = {action.address: "no sandbox is selected" for action in actions}
    text = help_content(Scope.MAIN, why=why).plain
    assert text.count("no sandbox is selected") == 1
    assert all(action.tooltip in text for action in actions)


def test_a_checkpoint_and_a_revert_are_among_the_first_keys_of_a_shell() -> None:
    first = [action.id for action in in_scope(Scope.PANES) if action.footer][:5]
    assert {"checkpoint", "revert"} <= set(first)
