"""Every action of the app, once, and the base of what carries them out. Keys, footer, help, palette
and command log derive from this."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from quicksand.things.frozen import frozen

from quicksand_tui.actions import reasons
from quicksand_tui.model.keymap import BEHIND_PREFIX, Keymap
from quicksand_tui.verbs import (
    bundles,
    checkpoints,
    commands_only,
    halting,
    launching,
    mounts,
    packages,
    ports,
    saves,
    trashing,
    verdicts,
)
from quicksand_tui.verbs.call import Value, command_about
from quicksand_tui.verbs.verb import AnyVerb, Kind, Parameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quicksand_tui.actions.reasons import Reason
    from quicksand_tui.model.world import Selection, World


class Group(StrEnum):
    """A heading of the help."""

    SANDBOX = "Sandbox"
    VIEW = "View"
    LOG = "Log"
    TREE = "Checkpoints"
    DIFF = "What differs"
    MOUNTS = "Mounts"
    SAVES = "Saves"
    TRASH = "Trash"
    WALL = "Wall"
    PANES = "Shells: the prefix, and then"
    DESKTOP = "Desktop: the prefix, and then"
    APP = "App"


class Scope(StrEnum):
    """The screen where an action's keys are bound."""

    MAIN = "main"
    LOG = "log"
    TREE = "tree"
    DIFF = "diff"
    MOUNTS = "mounts"
    SAVES = "saves"
    TRASH = "trash"
    WALL = "wall"
    PANES = "panes"
    """Its keys work only after the prefix."""
    DESKTOP = "desktop"
    """Its keys work only after the prefix."""


_SCOPES = {
    Group.LOG: Scope.LOG,
    Group.TREE: Scope.TREE,
    Group.DIFF: Scope.DIFF,
    Group.MOUNTS: Scope.MOUNTS,
    Group.SAVES: Scope.SAVES,
    Group.TRASH: Scope.TRASH,
    Group.WALL: Scope.WALL,
    Group.PANES: Scope.PANES,
    Group.DESKTOP: Scope.DESKTOP,
}
"""The scopes of groups of actions. All other groups belong to the main screen."""
PREFIXED = frozenset(Scope(name) for name in BEHIND_PREFIX)
"""Scopes whose keys work only after the prefix."""


@frozen
class Action:
    """One action: its keys, its words, and why it may not be possible. It is carried out by the
    method ``do_`` and its id, of the screen or part whose scope it has (`Doer`); without such a
    method its verb is done, after its form was shown."""

    id: str
    keys: tuple[str, ...]
    """Textual's names of the keys; the first one is shown."""
    label: str
    """A word for the footer."""
    tooltip: str
    """A sentence for help and palette, without a full stop."""
    group: Group
    reason: Reason | None = None
    """Returns why it is not possible, if that is more than the states of its verb."""
    verb: AnyVerb | None = None
    """The verb whose command does the same."""
    flags: tuple[str, ...] = ()
    """Flags of that command, by the names of their parameters."""
    flags_if_live: tuple[str, ...] = ()
    """Further flags while the sandbox has a machine."""
    takes: tuple[Parameter, ...] = ()
    """The arguments on the `:` line, if they differ from the verb's."""
    aliases: tuple[str, ...] = ()
    """Names on the `:` line besides its id and its verb."""
    footer: bool = True
    """Whether the footer shows it while it is possible."""
    label_if_paused: str = ""
    """The footer's word while the sandbox is paused. If set, the footer always shows the action."""
    careful: bool = False
    """Whether a letter that triggers it should come alone, since it destroys something, or since
    letters after it would be typed elsewhere."""
    takes_text: bool = False
    """Whether it opens a line for text, which takes a text that begins with its key."""
    takes_keys: bool = False
    """Whether it opens a shell, which takes the text typed behind its key."""
    many: bool = False
    """Whether it is done to all marked sandboxes."""
    changes: bool = False
    """Whether it changes anything, so that a read-only app refuses it. True if its verb does."""

    def __post_init__(self) -> None:
        if self.verb is not None and not self.verb.only_reads(self.flags):
            object.__setattr__(self, "changes", True)

    def disabled_reason(self, world: World, selection: Selection) -> str | None:
        """Returns why it is not possible now; None if it is. An action on all marked sandboxes is
        possible if it is possible for one of them."""
        if self.changes and world.read_only:
            return reasons.READ_ONLY
        views = selection.marked_sandboxes if self.many else ()
        whys = [self._why_not(world, selection.of(view)) for view in views]
        if not whys:
            return self._why_not(world, selection)
        return None if None in whys else whys[0]

    def _why_not(self, world: World, selection: Selection) -> str | None:
        if self.reason is not None:
            return self.reason(world, selection)
        if self.verb is None or self.verb.states is None:
            return None
        return reasons.find_wrong_state(self.verb.states, world, selection)

    @property
    def scope(self) -> Scope:
        """The screen where its keys are bound."""
        return _SCOPES.get(self.group, Scope.MAIN)

    @property
    def address(self) -> str:
        """Its unique name, such as "main.stop"."""
        return f"{self.scope.value}.{self.id}"

    def command_for(self, subject: str = "", *, live: bool = False, **values: Value) -> str:
        """Returns the command for ``subject`` with further parameters; "" if the action has no
        command. Raises LookupError as `command_line` does."""
        if self.verb is None:
            return ""
        flags = (*self.flags, *(self.flags_if_live if live else ()))
        return command_about(self.verb.name, subject, *flags, **values)


class Maker:
    """Makes the actions of one group, each from one row of the registry."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def __call__(
        self,
        action_id: str,
        keys: str,
        tooltip: str,
        reason: Reason | None = None,
        *,
        label: str = "",
        **more: Any,
    ) -> Action:
        """Makes an action. ``keys`` are separated by spaces, ``label`` is given if it differs from
        the id, and ``more`` are further fields of `Action`."""
        return Action(
            id=action_id,
            keys=tuple(keys.split()),
            label=label or action_id.replace("_", " "),
            tooltip=tooltip,
            group=self._group,
            reason=reason,
            **more,
        )


_saves, _trash = Maker(Group.SAVES), Maker(Group.TRASH)


# fmt: off
def _everywhere(make: Maker, verb: AnyVerb) -> tuple[Action, ...]:
    return (
        make("refresh", "r", "Read everything again (changes show by themselves)",
             verb=verb, footer=False),
        *_on_all_screens(make),
    )


def _on_all_screens(make: Maker) -> tuple[Action, ...]:
    return (
        make("jobs", "J", "Show running and recent jobs", footer=False),
        make("commands", "at", "Show your actions as commands", footer=False),
        make("command", "colon", "Type a command, with completion", footer=False,
             takes_text=True),
        make("redraw", "ctrl+l", "Draw the screen anew, over what others wrote there",
             footer=False),
        make("palette", "ctrl+p", "Search all actions and themes", footer=False),
        make("help", "question_mark", "Show all keys"),
    )
# fmt: on


# The table is formatted by hand, with each action in a row or two.
# fmt: off
SAVES_ACTIONS: tuple[Action, ...] = (
    _saves("begin", "enter", "Start a new sandbox from it",
           reasons.begin, label="start", verb=launching.create),
    _saves("cancel", "c", "Cancel its running job, which leaves nothing behind",
           reasons.cancel_saving, careful=True),
    _saves("discard", "d", "Delete it, to the trash or for good; asks first",
           reasons.discard, label="delete", verb=saves.discard),
    _saves("prune", "p", "Choose old ones, look at them, and delete them",
           reasons.prune, verb=saves.SAVES_PRUNE, footer=False),
    _saves("export", "e", "Write it to one file that other hosts can import",
           reasons.export, verb=bundles.EXPORT),
    _saves("import", "i", "Import a save or a sandbox from such a file",
           reasons.import_, verb=bundles.IMPORT),
    _saves("trash", "T", "Go to the trash, to restore or delete for good", verb=trashing.TRASH),
    _saves("verify", "f", "Verify its files, sizes, headers and base",
           reasons.several, verb=verdicts.verify),
    _saves("verify_deep", "F", "Verify every byte of it and of its base",
           reasons.several, label="verify all", verb=verdicts.verify, flags=("deep",),
           footer=False),
    _saves("copy", "y", "Copy the name, if the terminal allows it",
           reasons.selected, footer=False),
    _saves("mark", "space", "Mark it; actions then apply to all marked ones",
           reasons.selected, footer=False),
    _saves("mark_all", "asterisk", "Mark all listed ones, or none",
           reasons.listed, footer=False),
    _saves("filter", "slash", "Filter: words, !word, base:debian, problem", reasons.listed,
           takes_text=True),
    _saves("order", "o", "Order by name, age, size or freed space, in turn",
           reasons.listed, footer=False),
    *_everywhere(_saves, saves.SAVES),
    _saves("back", "escape q", "Clear filter and marks, then go back"),
    _trash("restore", "enter", "Restore it, under a new name if its own is taken",
           reasons.trashed, label="restore", verb=trashing.RESTORE),
    _trash("purge", "d", "Delete it for good; asks first",
           reasons.trashed, label="delete", verb=trashing.TRASH, flags=("empty",)),
    _trash("cancel", "c", "Cancel the running job", reasons.cancel_saving),
    _trash("copy", "y", "Copy the name, if the terminal allows it",
           reasons.in_trash, footer=False),
    _trash("mark", "space", "Mark it; actions then apply to all marked ones",
           reasons.in_trash),
    _trash("mark_all", "asterisk", "Mark all listed ones, or none", reasons.trash_listed),
    _trash("filter", "slash", "Filter: words, !word", reasons.trash_listed,
           takes_text=True),
    _trash("order", "o", "Order by removal, name or freed space, in turn",
           reasons.trash_listed, footer=False),
    *_everywhere(_trash, trashing.TRASH),
    _trash("back", "escape q", "Go back to the saves"),
)
# fmt: on


_wall = Maker(Group.WALL)

# The table is formatted by hand, with each action in a row or two.
# fmt: off
WALL_ACTIONS: tuple[Action, ...] = (
    _wall("enter", "enter", "Go into it: its shell or desktop on the main screen",
          reasons.on_wall, label="go in", takes_keys=True),
    _wall("mark", "space", "Mark its sandbox; actions then apply to marked ones",
          reasons.on_wall),
    _wall("mark_all", "asterisk", "Mark all sandboxes on the wall, or none",
          reasons.on_wall, footer=False),
    _wall("execute", "exclamation_mark", "Run a command in it, or in all marked ones",
          reasons.run, label="run", verb=commands_only.EXEC, many=True),
    _wall("zoom", "z", "Show this tile alone, or all of them", reasons.on_wall),
    _wall("all", "a", "Show all that run, not only those chosen before",
          footer=False),
    *_everywhere(_wall, commands_only.PS),
    _wall("back", "escape q", "Go back to where you came from"),
)
# fmt: on

_diff = Maker(Group.DIFF)

# The table is formatted by hand, with each action in a row or two.
# fmt: off
DIFF_ACTIONS: tuple[Action, ...] = (
    _diff("open", "enter", "Show what differs in it, or open or fold a directory",
          label="show", verb=checkpoints.DIFF),
    _diff("unfold", "right", "Open a directory", footer=False),
    _diff("fold", "left", "Fold a directory, or go to the one above", footer=False),
    _diff("fold_all", "asterisk", "Open all directories, or fold them", footer=False),
    _diff("against", "v", "Compare with its parent instead, or with the present",
          label="parent/present"),
    _diff("patch", "p", "Save it as a patch, or all that is below it"),
    _diff("filter", "slash", "Filter: words, !word, kind:a", takes_text=True),
    _diff("copy", "y", "Copy its path, if the terminal allows it", footer=False),
    _diff("refresh", "r", "Read both disks again", label="again"),
    *_on_all_screens(_diff),
    _diff("back", "escape q", "Leave text, filter, comparison, one at a time"),
)
# fmt: on


_panes = Maker(Group.PANES)

# The table is formatted by hand, with each action in a row or two.
# fmt: off
PANE_ACTIONS: tuple[Action, ...] = (
    _panes("split_beside", "percent_sign", "Open another shell beside this one",
           label="split", changes=True),
    _panes("split_below", "quotation_mark", "Open another shell below this one",
           label="below", changes=True),
    _panes("checkpoint", "c", "Make a checkpoint of memory, processes and disk",
           reasons.has_machine, changes=True),
    _panes("revert", "u", "Choose a checkpoint to revert to", reasons.to_tree, changes=True),
    _panes("undo", "U", "Undo the last revert", reasons.undo, footer=False, changes=True),
    _panes("next", "o", "Go to the next pane; arrow keys choose a side"),
    _panes("before", "semicolon", "Go to the previous pane", footer=False),
    *(
        _panes(f"go_{side}", side, f"Go to the pane {where}", label=side, footer=False)
        for side, where in (
            ("left", "on the left"),
            ("right", "on the right"),
            ("up", "above"),
            ("down", "below"),
        )
    ),
    *(
        _panes(f"line_{side}", f"ctrl+{side}", f"Move the line between panes {way}",
               label=side, footer=False)
        for side, way in (
            ("left", "to the left"),
            ("right", "to the right"),
            ("up", "up"),
            ("down", "down"),
        )
    ),
    _panes("copy_mode", "left_square_bracket",
           "Enter copy mode: look back, search, select, copy"),
    _panes("page_back", "pageup", "Enter copy mode one page up; it ends at the bottom",
           label="page up", footer=False),
    _panes("paste", "right_square_bracket", "Paste the last copied text", footer=False),
    _panes("zoom", "z", "Show this pane alone, or all of them"),
    _panes("swap_before", "left_curly_bracket", "Swap this pane with the previous one",
           label="swap", footer=False),
    _panes("swap_next", "right_curly_bracket", "Swap this pane with the next one",
           label="swap", footer=False),
    _panes("even", "space", "Make all panes of a split the same size", footer=False),
    _panes("broadcast", "b", "Type into all panes at once, or only into this one", footer=False),
    _panes("close", "x", "End this shell; asks first", changes=True),
    _panes("renew", "R", "Open all panes anew whose shells are gone", label="anew",
           footer=False, changes=True),
    _panes("command", "colon", "Type a command, with completion", footer=False,
           takes_text=True),
    _panes("jump", "apostrophe", "Jump to a row or a pane by its letters", footer=False),
    _panes("last", "minus", "Go to the sandbox that you used before", footer=False),
    _panes("mouse", "m", "Let the terminal select text with the mouse, or not", footer=False),
    _panes("help", "question_mark", "Show all keys"),
    _panes("back", "d", "Go back to the sandboxes; the shells keep running"),
)
# fmt: on

_desktop = Maker(Group.DESKTOP)

# The table is formatted by hand, with each action in a row or two.
# fmt: off
DESKTOP_ACTIONS: tuple[Action, ...] = (
    _desktop("zoom_in", "plus", "Zoom in on a part of the screen"),
    _desktop("zoom_out", "minus", "Zoom out", footer=False),
    _desktop("zoom_all", "0", "Show the whole screen"),
    *(
        _desktop(f"move_{side}", side, f"Move the part that is shown {way}",
                 label=side, footer=False)
        for side, way in (
            ("left", "to the left"),
            ("right", "to the right"),
            ("up", "up"),
            ("down", "down"),
        )
    ),
    _desktop("save_picture", "s", "Save the screen as a PNG in your pictures", label="save"),
    _desktop("copy_picture", "y", "Save the screen, and copy the file's path",
             label="copy", footer=False),
    _desktop("record", "r", "Start or stop recording the screen to a GIF"),
    _desktop("zoom", "z", "Show this part alone, or all of them"),
    _desktop("checkpoint", "c", "Make a checkpoint of memory, processes and disk",
             reasons.has_machine, changes=True),
    _desktop("revert", "u", "Choose a checkpoint to revert to", reasons.to_tree, changes=True),
    _desktop("undo", "U", "Undo the last revert", reasons.undo, footer=False, changes=True),
    _desktop("command", "colon", "Type a command, with completion", footer=False,
             takes_text=True),
    _desktop("help", "question_mark", "Show all keys"),
    _desktop("back", "d", "Go back to the sandboxes"),
)
# fmt: on

COPY_MODE_KEYS: tuple[tuple[str, str], ...] = (
    ("h j k l", "one character or line; arrows too"),
    ("w b e", "to the next word, the one before, its end"),
    ("0 ^ $", "to the line's start, its text, its end"),
    ("g G H M L", "to the first and last line; top, middle, end of the view"),
    ("ctrl-u d", "half a page up, down"),
    ("ctrl-b f", "a page up, down; the page keys too"),
    ("{ }", "to the paragraph before, the next one"),
    ("[ ]", "to the prompt before, the next one, of shells that mark them"),
    ("/ ? n N", "search down, up; the next match, the one before"),
    ("v space V", "select characters, or lines; ctrl-v a block"),
    ("o", "to the other end of what is selected"),
    ("y enter Y", "copy what is selected, or the line, and leave"),
    ("esc q", "clear selection, then search, then leave; leave"),
)
"""Keys of copy mode and their effects, for the help. A number before a motion repeats it."""


_sandbox, _view, _app = Maker(Group.SANDBOX), Maker(Group.VIEW), Maker(Group.APP)
_log, _tree, _mounts = Maker(Group.LOG), Maker(Group.TREE), Maker(Group.MOUNTS)

# The table is formatted by hand, with each action in a row or two.
# fmt: off
ACTIONS: tuple[Action, ...] = (
    _sandbox("new", "n", "Start a new sandbox from an image", reasons.new, verb=launching.create),
    _sandbox("open", "enter", "Open a shell; start a stopped one, resume a paused one",
             reasons.open_, footer=False, changes=True, takes_keys=True),
    _sandbox("shell", "s", "Open shells beside each other, to split and zoom",
             reasons.shell, verb=commands_only.SHELL, takes_keys=True),
    _sandbox("full_shell", "f", "Open one shell that fills the whole terminal",
             reasons.has_guest, verb=commands_only.SHELL, footer=False),
    _sandbox("desktop", "w", "Watch its screen, with mouse and keys",
             reasons.desktop, verb=commands_only.VIEW),
    _sandbox("execute", "exclamation_mark", "Run a command in it, or in all marked ones",
             reasons.run, label="run", verb=commands_only.EXEC, many=True, footer=False),
    _sandbox("start", "a", "Start a stopped sandbox", verb=launching.start, many=True),
    _sandbox("stop", "x", "Stop gently: the guest syncs and powers down",
             verb=halting.stop, many=True, careful=True),
    _sandbox("pause", "P", "Freeze it, or resume it if it is paused",
             verb=halting.pause, many=True, aliases=("resume",),
             label_if_paused="resume", footer=False),
    _sandbox("kill", "K", "Pull the plug; asks first",
             reasons.kill, verb=halting.kill, many=True, footer=False),
    _sandbox("checkpoint", "c", "Make a checkpoint of memory, processes and disk",
             verb=checkpoints.take, many=True),
    _sandbox("revert", "u", "Choose a checkpoint to revert to, or to start at",
             reasons.to_tree, verb=checkpoints.revert),
    _sandbox("undo", "U", "Undo the last revert, or the last delete",
             reasons.undo, verb=checkpoints.undo, careful=True),
    _sandbox("clone", "b", "Copy it as it is now, with its running processes",
             verb=launching.clone, footer=False),
    _sandbox("save", "S", "Save its disk, so that others can start from it",
             verb=saves.save, footer=False),
    _sandbox("mount", "M", "Mount a directory of this host in it",
             reasons.mount, verb=mounts.mount, footer=False),
    _sandbox("mounts", "D", "Show its mounted directories, to unmount them",
             reasons.log, verb=mounts.MOUNTS, footer=False),
    _sandbox("forward", "p", "Forward a port of this host to it",
             verb=ports.forward, footer=False),
    _sandbox("unforward", "e", "End the forward of a port",
             reasons.unforward, label="end forward", verb=ports.forward, flags=("remove",),
             footer=False),
    _sandbox("copy_port", "Y", "Copy the address of a forwarded port",
             reasons.copy_port, footer=False),
    _sandbox("delete", "d", "Move the sandbox or save to the trash; asks first",
             reasons.delete_any, verb=trashing.RM, flags_if_live=("force",)),
    _sandbox("log", "l", "Show its console, QEMU's messages and your commands",
             reasons.log, verb=commands_only.LOGS, flags=("follow",)),
    _sandbox("cancel", "X", "Cancel a start or a save, which leaves nothing behind",
             reasons.cancel, careful=True),
    _sandbox("copy", "y", "Copy the name, if the terminal allows it",
             reasons.copy, footer=False),
    _sandbox("mark", "space", "Mark it; actions then apply to all marked sandboxes",
             reasons.mark, footer=False),
    _sandbox("mark_all", "asterisk", "Mark all listed ones, or none",
             reasons.mark, footer=False),
    _sandbox("mark_range", "V", "Mark all rows that you pass from here; again ends it",
             reasons.mark, footer=False),
    _view("install", "I", "Install an image from a package", verb=packages.INSTALL, footer=False),
    _view("uninstall", "R", "Uninstall an image of a package; asks first",
          reasons.uninstall, verb=packages.UNINSTALL, footer=False),
    _view("saves", "v", "Go to the saves, to start, verify or delete them", verb=saves.SAVES),
    _view("trash", "T", "Go to the trash, which keeps things for a week",
          verb=trashing.TRASH, footer=False),
    _view("jump", "apostrophe", "Jump to a row or a pane by its letters", footer=False),
    _view("last", "minus", "Go to the sandbox that you used before", footer=False),
    _view("wall", "W", "Watch what runs in all, or in those marked or filtered",
          reasons.wall, footer=False),
    _view("filter", "slash", "Filter: words, !word, ~wd, state:running, age:>1d",
          reasons.filter_, takes=(Parameter("words", Kind.REST),), takes_text=True),
    _view("order", "o", "Order by state, name, age, CPU, memory, disk, in turn",
          reasons.filter_, footer=False),
    _view("details", "i", "Show all its details", footer=False),
    _view("next_tab", "right_square_bracket",
          "Go to the next tab", footer=False),
    _view("previous_tab", "left_square_bracket", "Go to the previous tab",
          label="tab before", footer=False),
    _view("zoom", "z", "Show this part alone, or all of them"),
    _view("wider", "greater_than_sign", "Make this column wider", footer=False),
    _view("narrower", "less_than_sign", "Make this column narrower", footer=False),
    _view("escape", "escape", "Leave search, filter, marks or zoom, one at a time",
          label="back", footer=False),
    _view("refresh", "r", "Read everything again (changes show by themselves)",
          verb=commands_only.PS, flags=("everything",), footer=False),
    _view("redraw", "ctrl+l", "Draw the screen anew, over what others wrote there",
          footer=False),
    _view("commands", "at", "Show your actions as commands", footer=False),
    _view("jobs", "J", "Show running and recent jobs", footer=False),
    _view("mouse", "m", "Let the terminal select text with the mouse, or not", footer=False),
    _app("command", "colon", "Type a command, with completion", footer=False,
         takes_text=True),
    _app("palette", "ctrl+p", "Search all actions and themes", footer=False),
    _app("help", "question_mark", "Show all keys", aliases=("h",)),
    _app("suspend", "ctrl+z", "Suspend the app; `fg` in the shell resumes it", footer=False),
    _app("quit", "q", "Leave the app; sandboxes keep running", aliases=("q",), careful=True),
    _log("follow", "f", "Follow new lines, or stay where you are"),
    _log("search", "slash", "Search as you type", takes_text=True),
    _log("next", "n", "Go to the next match", footer=False),
    _log("previous", "N", "Go to the previous match", footer=False),
    _log("wrap", "w", "Wrap long lines, or cut them"),
    _log("save", "e", "Save it as a file here"),
    _log("copy", "y", "Copy it, if the terminal allows it", footer=False),
    _log("kind", "t", "Show console, QEMU's messages, events or commands",
         label="console/qemu/events"),
    _log("back", "escape", "Clear the search, then go back to the lists"),
    # No other key: `u` opens the tree, and a second one must not go back unasked.
    _tree("ask", "u", "Revert to it; asks first",
          reasons.go_there, label="ask first", footer=False, changes=True),
    _tree("go", "enter", "Revert to it; a stopped sandbox starts there",
          reasons.go_there, label="revert", careful=True, changes=True),
    _tree("remove", "d", "Delete it; asks first",
          reasons.remove, label="delete", verb=checkpoints.remove),
    _tree("clone", "b", "Clone the sandbox as it was then",
          reasons.clone_there, label="clone", verb=launching.clone),
    _tree("note", "t", "Change its note", reasons.go_there, verb=checkpoints.write_note),
    _tree("command", "colon", "Type a command, with completion", footer=False,
          takes_text=True),
    _tree("pin", "p", "Protect it from deletion, or no longer",
          reasons.go_there, verb=checkpoints.pin),
    _tree("diff", "f", "Show files that differ from here, or a marked one",
          reasons.diff, verb=checkpoints.DIFF),
    _tree("compare", "space", "Mark it, to compare it with another one",
          reasons.diff, footer=False),
    _tree("look", "o", "Show its screen large, beside the one compared with",
          reasons.look, footer=False),
    _tree("unfold", "right", "Show the automatic checkpoints that are folded here", footer=False),
    _tree("fold", "left", "Fold automatic checkpoints again", footer=False),
    _tree("turn", "O", "Show the newest checkpoints first, or last", footer=False),
    _tree("copy", "y", "Copy its tag, if the terminal allows it",
          reasons.go_there, footer=False),
    _tree("back", "escape", "Go back to the lists, or to where you came from"),
    _mounts("mount", "M", "Mount a directory of this host in it", reasons.mount, verb=mounts.mount),
    _mounts("unmount", "d", "Unmount it; refused while programs use it",
            reasons.unmount, verb=mounts.unmount),
    _mounts("force", "F", "Unmount it even while it is used; asks first",
            reasons.unmount, label="force unmount", verb=mounts.unmount, flags=("force",)),
    _mounts("copy", "y", "Copy its path in the guest, if the terminal allows it",
            reasons.copy_mount, footer=False),
    _mounts("back", "escape", "Go back to the lists"),
    *DIFF_ACTIONS,
    *SAVES_ACTIONS,
    *WALL_ACTIONS,
    *PANE_ACTIONS,
    *DESKTOP_ACTIONS,
)
# fmt: on

MOVES = (
    ("↑ ↓  k j", "Move by a line"),
    ("g G", "Go to the first, the last one"),
    ("pgup pgdn", "Move by a page, like ctrl+u and ctrl+d"),
)
"""Keys that Textual's own widgets handle, for the help."""

MOVES_TO_PARTS = (
    ("tab", "Go to the next part: lists, checkpoints, main area"),
    ("1 2 3", "Go to sandboxes, saves, images"),
    ("4 5", "Go to checkpoints, main area"),
)
"""Keys of the main screen that move to its parts, for the help."""


def find_action(action_id: str, scope: Scope = Scope.MAIN) -> Action:
    """Finds an action by its id. Raises LookupError."""
    for action in in_scope(scope):
        if action.id == action_id:
            return action
    raise LookupError(action_id)


@cache
def default_keymap() -> Keymap:
    """Returns the keymap with the registry's keys."""
    return Keymap({action.address: action.keys for action in ACTIONS})


def line_keys(keymap: Keymap) -> frozenset[str]:
    """Returns the keys that open a line for text without a prefix. Letters and digits are none: a
    text that is meant for another place may begin with them."""
    opening = (a for a in ACTIONS if a.takes_text and a.scope not in PREFIXED)
    return frozenset(key for action in opening for key in keymap.keys_of(action) if len(key) > 1)


def in_scope(scope: Scope) -> Iterator[Action]:
    """Yields the actions of a scope in the order of the table."""
    return (action for action in ACTIONS if action.scope is scope)


DO = "do_"


class Doer:
    """Carries out actions: its method ``do_stop`` carries out the action "stop" of its ``scope``,
    or of any scope if it has none. A class with a method for no action cannot be made."""

    _does: ClassVar[tuple[str, ...]] = ()
    """The ids of its actions."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = [name.removeprefix(DO) for name in vars(cls) if name.startswith(DO)]
        scope: Scope | None = getattr(cls, "scope", None)
        known = {action.id for action in ACTIONS if scope in (None, action.scope)}
        for action_id in own:
            if action_id not in known:
                raise TypeError(f"{cls.__name__}.{DO}{action_id} is for no action of {scope}")
        cls._does = tuple(dict.fromkeys((*cls._does, *own)))

    def does(self, action_id: str) -> bool:
        """Whether it has a method for the action."""
        return action_id in self._does

    def do(self, action_id: str) -> None:
        """Carries out an action for which it has a method."""
        getattr(self, DO + action_id)()
