"""Carries out the actions of the main screen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from quicksand.things.status import Status

from quicksand_tui.actions.all_actions import Doer, Scope, find_action, in_scope
from quicksand_tui.kit.base import tell
from quicksand_tui.model.shown_sandboxes import at_host
from quicksand_tui.model.world import Panel, Selection
from quicksand_tui.screens import lazy_screens
from quicksand_tui.verbs import checkpoints, halting, launching
from quicksand_tui.verbs.index import find_verb
from quicksand_tui.views import losses
from quicksand_tui.views.losses import losses_of_stop
from quicksand_tui.views.main_layout import Part, Tab

if TYPE_CHECKING:
    from quicksand_tui.actions.all_actions import Action, Handlers
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.base import ActionScreen
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.specs import NewSpec
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.screens.navigation import Places
    from quicksand_tui.screens.terminal_loan import FullShell

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

    @property
    def handlers(self) -> Handlers:
        """Its methods; other actions are those of their verbs."""
        verbs = {
            action.id: partial(self._do_verb, action)
            for action in in_scope(Scope.MAIN)
            if action.verb and find_verb(action.verb).can_be_made
        }
        return {**verbs, **super().handlers}

    def _do_verb(self, action: Action) -> None:
        """Does the verb of an action to the selection; asks for its parameters for one sandbox."""
        verb, about = find_verb(action.verb), self._selection.sandboxes
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
