"""Carries out the actions of the main screen: of its lists, of the tree of checkpoints, and the
short ways on it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from quicksand.things.status import HAS_MACHINE, Status

from quicksand_tui.actions.all_actions import Doer, Scope, find_action
from quicksand_tui.kit.base import tell
from quicksand_tui.model.shown_sandboxes import at_host
from quicksand_tui.model.text import clip
from quicksand_tui.model.wall_plan import Kind
from quicksand_tui.model.world import Panel, Selection
from quicksand_tui.screens import lazy_screens
from quicksand_tui.verbs import checkpoints, halting, launching
from quicksand_tui.views import losses
from quicksand_tui.views.losses import losses_of_stop
from quicksand_tui.views.main_layout import Part, Tab

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.widget import Widget

    from quicksand_tui.actions.all_actions import Action
    from quicksand_tui.cockpit.present_world import Present
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import ActionScreen
    from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView
    from quicksand_tui.model.specs import NewSpec
    from quicksand_tui.model.wall_plan import TileKey
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.screens.jump import Target
    from quicksand_tui.screens.navigation import Places
    from quicksand_tui.screens.terminal_loan import FullShell
    from quicksand_tui.widgets.long_table import LongTable


TITLE_CELLS = 30


class MainActions(Doer):
    """Carries out the actions of `Scope.MAIN`, and `back` for the parts of the screen; the caller
    checks that they are possible."""

    def __init__(
        self,
        screen: ActionScreen,
        places: Places,
        operations: Operations,
        dialogs: Dialogs,
        full_shell: FullShell,
    ) -> None:
        self._screen = screen
        self._places = places
        self._begin = operations
        self._dialogs = dialogs
        self._full_shell = full_shell
        self.is_aimed = False
        """The present action has a named target."""

    @property
    def _selection(self) -> Selection:
        return self._screen.selection

    def _able(self, action_id: str) -> list[SandboxView]:
        """Returns the selected sandboxes for which an action is possible; tells how many are
        not."""
        selection, world = self._selection, self._screen.world
        action = find_action(action_id)
        able = [
            view
            for view in selection.sandboxes
            if action.disabled_reason(world, selection.of(view)) is None
        ]
        if left := len(selection.sandboxes) - len(able):
            tell(self._screen, f"{action.label}: not possible with {left} of those marked")
        return able

    def _unmark(self, about: Sequence[SandboxView]) -> None:
        """Unmarks the sandboxes that an action was about."""
        self._places.lists.sandboxes.unmark(view.id for view in about)

    def begin_verb(self, action: Action) -> None:
        """Does the verb of an action to the selection; asks for its parameters for one sandbox."""
        assert action.verb is not None
        verb, about = action.verb, self._selection.sandboxes
        one = self._selection.sandbox
        able = self._able(action.id) if action.many else [one] if one is not None else []
        if len(able) == 1 and verb.form is not None:
            self._dialogs.do_verb(verb, able[0])
            return
        self._begin.do_all(lambda _: verb(), able)
        self._unmark(about)

    # A sandbox's life

    def do_new(self) -> None:
        selection = self._selection
        image = selection.image if selection.panel is Panel.IMAGES else None
        host = selection.machine if selection.panel is Panel.SANDBOXES else ""
        self._dialogs.ask_for_new(image.name if image is not None else None, self.create, host=host)

    def create(self, spec: NewSpec) -> None:
        """Starts a new sandbox, with the cursor on it."""
        self._places.lists.choose(Panel.SANDBOXES)
        while self._places.lists.sandboxes.query_text and self._places.lists.sandboxes.step_back():
            pass
        self._places.go_to(Part.LISTS)
        self._begin.begin(
            launching.create(spec),
            sandbox_id=f"new:{at_host(spec.name, spec.host)}",
            name=at_host(spec.name, spec.host),
            image=spec.image,
            command=launching.run_command(spec),
        )
        self._places.lists.want(at_host(spec.name, spec.host))

    def do_open(self) -> None:
        selection = self._selection
        sandbox = selection.sandbox
        if selection.panel is Panel.IMAGES:
            self.do_new()
        elif selection.panel is Panel.SAVES:
            if selection.save is not None:
                self._dialogs.ask_for_new(None, self.create, save=selection.save)
        elif sandbox is not None and (
            sandbox.state is Status.RUNNING or self._screen.world.job(sandbox.id) is not None
        ):
            self.do_shell()
        elif sandbox is not None and sandbox.state is Status.PAUSED:
            self._begin.do(halting.resume(), sandbox)
        elif sandbox is not None:
            self._begin.do(launching.start(), sandbox)

    def do_stop(self) -> None:
        about, chosen = self._selection.sandboxes, self._able("stop")

        def stop() -> None:
            self._begin.do_all(lambda _: halting.stop(), chosen)
            self._unmark(about)

        screen = self._screen
        shells, table = self._places.area.shells, self._places.lists.sandboxes.table
        lost = losses_of_stop(
            chosen,
            with_shells={view.id for view in chosen if shells.has_open(view.id)},
            hidden={view.id for view in chosen if not table.has_row(view.id)},
        )
        if not lost:
            stop()
            return
        one = chosen[0].name if len(chosen) == 1 else f"{len(chosen)} sandboxes"
        again = f"{screen.world.keymap.hint('start')} starts it again."
        self._dialogs.confirm(
            f"Stop {one}?", lost, "Stop", stop, undo=f"The guest powers down gently; {again}"
        )

    def do_pause(self) -> None:
        about = self._selection.sandboxes
        able = self._able("pause")
        paused = [view for view in able if view.state is Status.PAUSED]
        self._begin.do_all(lambda _: halting.resume(), paused)
        self._begin.do_all(lambda _: halting.pause(), [view for view in able if view not in paused])
        self._unmark(about)

    def do_kill(self) -> None:
        about, chosen = self._selection.sandboxes, self._able("kill")

        def kill() -> None:
            self._begin.do_all(lambda _: halting.kill(), chosen)
            self._unmark(about)

        one = chosen[0].name if len(chosen) == 1 else f"{len(chosen)} sandboxes"
        lost = losses.of_kill(chosen[0]) if len(chosen) == 1 else losses.of_kills(chosen)
        self._dialogs.confirm(
            f"Kill {one}?",
            lost,
            "Kill",
            kill,
            undo=f"{self._screen.world.keymap.hint('stop')} stops gently instead.",
        )

    def do_delete(self) -> None:
        if self._selection.panel is Panel.SAVES:
            self._dialogs.ask_to_discard(self._selection.saves)
            return
        about, chosen = self._selection.sandboxes, self._able("delete")
        now = self._screen.world.taken

        def delete() -> None:
            self._begin.delete(chosen)
            self._unmark(about)

        one = chosen[0].name if len(chosen) == 1 else f"{len(chosen)} sandboxes"
        many = losses.of_deletes
        lost = losses.of_delete(chosen[0], now) if len(chosen) == 1 else many(chosen)
        undo = losses.way_back(chosen, self._screen.world.keymap)
        self._dialogs.confirm(f"Delete {one}?", lost, "Delete", delete, undo=undo)

    def do_cancel(self) -> None:
        if (sandbox := self._selection.sandbox) is not None:
            self._begin.cancel(sandbox.id)

    # Checkpoints

    def do_revert(self) -> None:
        self._places.choose_checkpoint()

    def do_undo(self) -> None:
        """Undoes a delete if that was the last action, else the last revert."""
        if self._begin.removed and not self.is_aimed:
            self._begin.bring_back()
        elif (sandbox := self._selection.sandbox) is not None:
            self._begin.do(checkpoints.undo(), sandbox)

    # Images

    def do_install(self) -> None:
        self._dialogs.ask_to_install()

    def do_uninstall(self) -> None:
        if (image := self._selection.image) is not None:
            self._dialogs.ask_to_uninstall(image)

    # Views

    def do_shell(self) -> None:
        sandbox = self._selection.sandbox
        if sandbox is None:
            return
        self._places.choose_tab(Tab.SHELLS)
        self._begin.note_command(find_action("shell").command_for(sandbox.name), sandbox.id)
        self._places.area.shells.open(sandbox)

    def do_desktop(self) -> None:
        if (sandbox := self._selection.sandbox) is None:
            return
        self._begin.note_command(find_action("desktop").command_for(sandbox.name), sandbox.id)
        self._places.choose_tab(Tab.DESKTOP)
        self._places.go_to(Part.AREA)

    def do_full_shell(self) -> None:
        if (sandbox := self._selection.sandbox) is not None:
            self._full_shell.open(sandbox)

    def do_execute(self) -> None:
        self._dialogs.open_run_many(tuple(self._able("execute")))

    def do_log(self) -> None:
        if (sandbox := self._selection.sandbox) is None:
            return
        self._begin.note_command(find_action("log").command_for(sandbox.name), sandbox.id)
        self._places.choose_tab(Tab.LOG)
        self._places.go_to(Part.AREA)

    def do_mount(self) -> None:
        if (sandbox := self._selection.sandbox) is not None:
            self._dialogs.ask_to_do(
                lazy_screens.mount_form(sandbox), lazy_screens.mount_of, sandbox
            )

    def do_mounts(self) -> None:
        if (sandbox := self._selection.sandbox) is None:
            return
        self._begin.note_command(find_action("mounts").command_for(sandbox.name), sandbox.id)
        self._places.choose_tab(Tab.MOUNTS)
        self._places.go_to(Part.AREA)

    def do_forward(self) -> None:
        if (sandbox := self._selection.sandbox) is not None:
            self._dialogs.ask_to_do(
                lazy_screens.forward_form(sandbox), lazy_screens.forward_of, sandbox
            )

    def do_unforward(self) -> None:
        if (sandbox := self._selection.sandbox) is not None:
            form = lazy_screens.unforward_form(sandbox)
            self._dialogs.ask_to_do(form, lazy_screens.unforward_of, sandbox)

    def do_copy_port(self) -> None:
        if (sandbox := self._selection.sandbox) is None:
            return
        if len((*sandbox.ports, *sandbox.udp_ports)) > 1:
            form = lazy_screens.copy_port_form(sandbox)
            self._dialogs.ask(form, lambda values: self._copy_port(sandbox, values["port"]))
        else:
            udp = [f"{host}/udp" for host, _ in sandbox.udp_ports]
            self._copy_port(sandbox, *[str(host) for host, _ in sandbox.ports], *udp)

    def _copy_port(self, sandbox: SandboxView, chosen: str) -> None:
        copied = lazy_screens.copy_of(chosen, self._screen.world.machine(sandbox.host))
        if copied.text:
            self._screen.app.copy_to_clipboard(copied.text)
        tell(self._screen, copied.told)

    def do_details(self) -> None:
        self._places.choose_tab(Tab.DETAILS)

    def do_next_tab(self) -> None:
        self._places.step_tab(1, self._selection.sandbox)

    def do_previous_tab(self) -> None:
        self._places.step_tab(-1, self._selection.sandbox)

    def do_zoom(self) -> None:
        self._places.toggle_zoom()

    def do_wider(self) -> None:
        self._places.widen(1)

    def do_narrower(self) -> None:
        self._places.widen(-1)

    def do_copy(self) -> None:
        selection = self._selection
        chosen = {
            Panel.SANDBOXES: selection.sandbox,
            Panel.IMAGES: selection.image,
            Panel.SAVES: selection.save,
        }[selection.panel]
        if chosen is not None:
            self._screen.app.copy_to_clipboard(chosen.name)
            tell(self._screen, f"Copied {chosen.name}, if the terminal allows it")

    # Lists

    def do_mark(self) -> None:
        self._places.lists.sandboxes.toggle_mark()

    def do_mark_all(self) -> None:
        self._places.lists.sandboxes.toggle_all()

    def do_mark_range(self) -> None:
        self._places.lists.sandboxes.toggle_range()

    def do_filter(self) -> None:
        self._places.go_to(Part.LISTS)
        self._places.lists.browser.open_filter()

    def do_order(self) -> None:
        self._places.lists.browser.step_order()

    def do_escape(self) -> None:
        """Goes one step back: leaves the part, the filter or the marks, the zoom. It cancels no
        job, but says which key does."""
        screen = self._screen
        if self._places.part is not Part.LISTS:
            self._places.go_to(Part.LISTS)
        elif self._places.lists.browser.step_back():
            pass
        elif self._places.cockpit.shape.zoomed:
            self._places.toggle_zoom()
        elif find_action("cancel").disabled_reason(screen.world, self._selection) is None:
            tell(self._screen, f"It still runs: {screen.world.keymap.hint('cancel')} cancels it")

    def do_back(self) -> None:
        """Leaves a part for the lists, or for the part left to choose a checkpoint."""
        if self._places.part is Part.TREE and self._places.come_back():
            return
        in_log = self._places.part is Part.AREA and self._places.area.tab is Tab.LOG
        if in_log and self._places.area.logs.clear_search():
            return
        if self._places.cockpit.shape.zoomed:
            self._places.leave_zoom()
        self._places.go_to(Part.LISTS)


class TreeActions(Doer):
    """Carries out the actions of `Scope.TREE`; the caller checks that they are possible."""

    scope = Scope.TREE

    def __init__(
        self, screen: ActionScreen, places: Places, operations: Operations, dialogs: Dialogs
    ) -> None:
        self._screen = screen
        self._places = places
        self._begin = operations
        self._dialogs = dialogs

    @property
    def _chosen(self) -> tuple[SandboxView, CheckpointView]:
        selection = self._screen.selection
        assert selection.sandbox is not None
        assert selection.checkpoint is not None
        return selection.sandbox, selection.checkpoint

    def do_go(self) -> None:
        """Goes back without asking, as the present state is kept; starts a stopped sandbox
        there."""
        sandbox, checkpoint = self._chosen
        if sandbox.state in HAS_MACHINE:
            self._begin.do(checkpoints.revert(checkpoint.named), sandbox)
            self._places.come_back()
            return
        reason = find_action("start").disabled_reason(
            self._screen.world, Selection(sandbox=sandbox)
        )
        if reason is not None:
            tell(self._screen, reason, severity="warning")
            return
        self._begin.do(launching.start(at=checkpoint.named), sandbox)

    def do_ask(self) -> None:
        """Asks before going back: `u` opens the tree, and may come twice."""
        self._dialogs.ask_to_return(*self._chosen, then=self.do_go)

    def do_remove(self) -> None:
        sandbox, checkpoint = self._chosen
        self._dialogs.confirm(
            f"Delete the checkpoint {clip(checkpoint.tag, TITLE_CELLS)}?",
            losses.of_checkpoint(sandbox, checkpoint, self._screen.world.taken),
            "Delete",
            lambda: self._begin.do(checkpoints.remove(checkpoint.named), sandbox),
        )

    def do_diff(self) -> None:
        sandbox, checkpoint = self._chosen
        marked = self._places.checkpoints.compared_of(sandbox)
        self._dialogs.open_diff(sandbox, checkpoint, marked, self._screen.everywhere)

    def do_compare(self) -> None:
        sandbox, checkpoint = self._chosen
        self._places.checkpoints.compare(checkpoint)
        if sandbox.has_display and self._places.area.tab not in (Tab.DETAILS, Tab.TREE):
            self._places.choose_tab(Tab.DETAILS)  # where the screens are

    def do_look(self) -> None:
        sandbox, checkpoint = self._chosen
        compared = self._places.checkpoints.compared_of(sandbox)
        self._dialogs.show_screens(sandbox, checkpoint, compared)

    def do_clone(self) -> None:
        sandbox, checkpoint = self._chosen
        about = f"{sandbox.name} at {checkpoint.tag}"
        self._dialogs.do_verb(launching.clone, sandbox, given={"at": checkpoint.named}, about=about)

    def do_note(self) -> None:
        sandbox, checkpoint = self._chosen
        self._dialogs.do_verb(
            checkpoints.write_note,
            sandbox,
            given={"tag": checkpoint.named},
            first={"note": checkpoint.note},
            about=checkpoint.tag,
        )

    def do_pin(self) -> None:
        sandbox, checkpoint = self._chosen
        verb = checkpoints.unpin if checkpoint.pinned else checkpoints.pin
        self._begin.do(verb(checkpoint.named), sandbox)

    def do_copy(self) -> None:
        _, checkpoint = self._chosen
        self._screen.app.copy_to_clipboard(checkpoint.name)
        tell(
            self._screen, f"Copied {clip(checkpoint.name, TITLE_CELLS)}, if the terminal allows it"
        )


WAYS_IN = {
    Kind.SHELL: "shell",
    Kind.OUTPUT: "shell",
    Kind.DESKTOP: "desktop",
    Kind.CONSOLE: "log",
}
"""The actions that go into tiles."""
RECENT_MAX = 20
"""The number of sandboxes that are remembered."""


class Ways(Doer):
    """Leads the user around, and remembers the last sandboxes."""

    def __init__(
        self,
        screen: ActionScreen,
        places: Places,
        present: Present,
    ) -> None:
        self._screen = screen
        self._places = places
        self._present = present
        self._recent: list[str] = []
        """Ids of sandboxes, the latest first."""

    def _find(self, sandbox_id: str) -> SandboxView | None:
        """Returns the present state of a sandbox."""
        return self._present.world.sandbox(sandbox_id)

    def used(self, sandbox: SandboxView | None) -> None:
        """Notes that the user worked with a sandbox."""
        if sandbox is not None and self._recent[:1] != [sandbox.id]:
            others = [id_ for id_ in self._recent if id_ != sandbox.id]
            self._recent = [sandbox.id, *others][:RECENT_MAX]

    def do_last(self) -> None:
        """Goes to the sandbox used before this one, and there to its shells if the user is in
        shells."""
        shown = self._places.lists.sandbox
        here = None if shown is None else shown.id
        before = (id_ for id_ in self._recent if id_ != here and self._find(id_) is not None)
        there = self._find(next(before, ""))
        if there is None:
            tell(self._screen, "There is no sandbox before: nothing was done in another one yet")
            return
        if here is not None:
            self.used(self._find(here))
        in_shells = self._places.in_shells
        self._places.show_sandbox(there.id)
        self.used(there)
        if in_shells:
            self._places.area.shells.open(there)

    def open_tile(self, key: TileKey) -> Widget | None:
        """Goes to the contents of a tile of the wall, and focuses them at once, or the widget that
        takes their keys until they are there. Returns that widget, if it has the focus."""
        shells = self._places.area.shells
        self._places.show_sandbox(key.sandbox_id)
        self._screen.set_focus(None)
        if key.kind is Kind.SHELL:
            shells.want(key.sandbox_id, f"{key.session} {key.birth}")
        self._screen.action_do(WAYS_IN[key.kind])
        shells.want("", "")  # unless it was refused
        if (focused := self._screen.focused) is None:
            self._places.go_to(Part.LISTS)
            return None
        return focused if self._places.cockpit.part_of(focused) is Part.AREA else None

    def do_jump(self) -> None:
        self._screen.app.push_screen(
            lazy_screens.JumpScreen(lambda: list(self._targets()), self._screen)
        )

    def _targets(self) -> Iterator[Target]:
        places = self._places
        yield from self._rows(places.lists.browser.table, Part.LISTS)
        yield from self._rows(places.checkpoints.table, Part.TREE)
        area = places.area
        space = area.shells.workspace if area.tab is Tab.SHELLS else None
        if space is not None:
            for pane in space.panes:
                if pane.region.area:
                    # On the blank before its title, which stays legible.
                    yield lazy_screens.Target(
                        pane.region.x, pane.region.y - 1, partial(self._screen.set_focus, pane)
                    )
        elif area.can_focus_tab and area.region.area:
            go = partial(places.go_to, Part.AREA)
            yield lazy_screens.Target(area.region.x, area.region.y + 1, go)

    def _rows(self, table: LongTable, part: Part) -> Iterator[Target]:
        if not table.is_on_screen:
            return
        region = table.content_region
        for number, key in enumerate(table.visible_keys):
            go = partial(self._go_to_row, table, key, part)
            # Below the head of the table.
            yield lazy_screens.Target(region.x, region.y + 1 + number, go)

    def _go_to_row(self, table: LongTable, key: str, part: Part) -> None:
        self._places.go_to(part)
        table.select(key)
