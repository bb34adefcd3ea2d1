"""Every action of the app, once. Keys, footer, help, palette and command log derive from this."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from quicksand_tui.actions import reasons, saves_reasons
from quicksand_tui.actions.record import PREFIXED, Action, Group, Maker, Scope
from quicksand_tui.model.keymap import Keymap, key_text
from quicksand_tui.verbs.row import Kind, Parameter

__all__ = [
    "ACTIONS",
    "MOVES",
    "Action",
    "Group",
    "Scope",
    "default_keymap",
    "find_action",
    "in_scope",
    "key_text",
    "line_keys",
]

_saves, _trash = Maker(Group.SAVES), Maker(Group.TRASH)


# fmt: off
def _everywhere(make: Maker, verb: str) -> tuple[Action, ...]:
    return (
        make("refresh", "r", "Read everything anew (changes show by themselves)",
             verb=verb, footer=False),
        make("jobs", "J", "Show what is under way and how the last ones ended", footer=False),
        make("commands", "at", "Show what was done, as commands", footer=False),
        make("command", "colon", "Type a command, completed as you type", footer=False,
             takes_text=True),
        make("palette", "ctrl+p", "Search all actions and themes", footer=False),
        make("help", "question_mark", "Show all keys"),
    )
# fmt: on


# The table is formatted by hand, with each action in a row or two.
# fmt: off
SAVES_ACTIONS: tuple[Action, ...] = (
    _saves("begin", "enter", "Start a new sandbox that begins with it",
           saves_reasons.begin, label="start", verb="run"),
    _saves("cancel", "c", "Cancel what is under way with it; nothing of it stays",
           saves_reasons.cancel, careful=True),
    _saves("discard", "d", "Delete it, to the trash or for good, after a question",
           saves_reasons.discard, label="delete", verb="saves rm"),
    _saves("export", "e", "Write it to one file that other hosts can import",
           saves_reasons.export, verb="export"),
    _saves("import", "i", "Take what such a file holds", verb="import"),
    _saves("trash", "T", "Go to the trash: bring back, remove for good", verb="trash"),
    _saves("verify", "f", "Verify it from outside: files, sizes, headers, base",
           saves_reasons.several, verb="saves verify"),
    _saves("verify_deep", "F", "Verify every byte of it and of its base",
           saves_reasons.several, label="verify all", verb="saves verify", flags=("deep",),
           footer=False),
    _saves("copy", "y", "Copy the name, where the terminal allows it",
           saves_reasons.selected, footer=False),
    _saves("mark", "space", "Mark it, for what is done with several",
           saves_reasons.selected, footer=False),
    _saves("mark_all", "asterisk", "Mark all that are listed, or none",
           saves_reasons.selected, footer=False),
    _saves("filter", "slash", "Filter: words, !word, base:debian, problem", saves_reasons.listed,
           takes_text=True),
    _saves("order", "o", "Order by name, age, size, what deleting frees in turn",
           saves_reasons.listed, footer=False),
    *_everywhere(_saves, "saves"),
    _saves("back", "escape q", "Go back; with a filter or marks, clear them first"),
    _trash("restore", "enter", "Bring it back, under a new name if its own is taken",
           saves_reasons.trashed, label="bring back", verb="restore"),
    _trash("purge", "d", "Remove it for good, after a question",
           saves_reasons.trashed, label="delete", verb="trash", flags=("empty",), changes=True),
    _trash("cancel", "c", "Cancel what is under way", saves_reasons.cancel),
    _trash("copy", "y", "Copy the name, where the terminal allows it",
           saves_reasons.in_trash, footer=False),
    _trash("mark", "space", "Mark it, for what is done with several", saves_reasons.in_trash),
    _trash("mark_all", "asterisk", "Mark all that are listed, or none", saves_reasons.in_trash),
    _trash("filter", "slash", "Filter: words, !word", saves_reasons.in_trash, takes_text=True),
    _trash("order", "o", "Order by removal, name, what it frees in turn",
           saves_reasons.in_trash, footer=False),
    *_everywhere(_trash, "trash"),
    _trash("back", "escape q", "Go back to the saves"),
)
# fmt: on


_panes = Maker(Group.PANES)

# The table is formatted by hand, with each action in a row or two.
# fmt: off
PANE_ACTIONS: tuple[Action, ...] = (
    _panes("split_beside", "percent_sign", "Another shell beside this one",
           label="split", changes=True),
    _panes("split_below", "quotation_mark", "Another shell below this one",
           label="below", changes=True),
    _panes("next", "o", "Go to the next pane; the arrow keys go to that side"),
    _panes("before", "semicolon", "Go to the pane before", footer=False),
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
           "Look back, search, select and copy; its keys are below"),
    _panes("page_back", "pageup", "Copy mode, a page up; at the end it is over",
           label="page up", footer=False),
    _panes("paste", "right_square_bracket", "Paste what was copied last", footer=False),
    _panes("zoom", "z", "This pane alone, or all of them"),
    _panes("swap_before", "left_curly_bracket", "Change places with the pane before",
           label="swap", footer=False),
    _panes("swap_next", "right_curly_bracket", "Change places with the next pane",
           label="swap", footer=False),
    _panes("even", "space", "Give all panes of a split the same room", footer=False),
    _panes("broadcast", "b", "Type into all panes at once, or no longer", footer=False),
    _panes("checkpoint", "c", "Keep this instant: memory, processes and disk",
           reasons.checkpoint, changes=True),
    _panes("revert", "u", "Choose a checkpoint to go back to", reasons.to_tree, changes=True),
    _panes("undo", "U", "Take the last revert back", reasons.undo, footer=False, changes=True),
    _panes("close", "x", "End this shell, after a question", changes=True),
    _panes("command", "colon", "Type a command, completed as you type", footer=False,
           takes_text=True),
    _panes("mouse", "m", "Let the terminal select text with the mouse, or not", footer=False),
    _panes("help", "question_mark", "Show all keys"),
    _panes("back", "d", "Back to the sandboxes; the shells run on"),
)
# fmt: on

_desktop = Maker(Group.DESKTOP)

# The table is formatted by hand, with each action in a row or two.
# fmt: off
DESKTOP_ACTIONS: tuple[Action, ...] = (
    _desktop("zoom_in", "plus", "Show a part of the screen larger"),
    _desktop("zoom_out", "minus", "Show more of it", footer=False),
    _desktop("zoom_all", "0", "Show all of it"),
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
    _desktop("save_picture", "s", "Save the screen as a PNG file here", label="save"),
    _desktop("copy_picture", "y", "Save it, and copy the file's path", label="copy", footer=False),
    _desktop("record", "r", "Record the screen into a GIF file here, or end that"),
    _desktop("zoom", "z", "This part alone, or all of them"),
    _desktop("checkpoint", "c", "Keep this instant: memory, processes and disk",
             reasons.checkpoint, changes=True),
    _desktop("revert", "u", "Choose a checkpoint to go back to", reasons.to_tree, changes=True),
    _desktop("undo", "U", "Take the last revert back", reasons.undo, footer=False, changes=True),
    _desktop("command", "colon", "Type a command, completed as you type", footer=False,
             takes_text=True),
    _desktop("help", "question_mark", "Show all keys"),
    _desktop("back", "d", "Back to the sandboxes"),
)
# fmt: on

COPY_MODE_KEYS: tuple[tuple[str, str], ...] = (
    ("h j k l", "one character or line; arrows too"),
    ("w b e", "to the next word, the one before, its end"),
    ("0 ^ $", "to the line's begin, its text, its end"),
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
"""Keys of copy mode and what they do, for the help. A number before a motion repeats it."""


_sandbox, _view, _app = Maker(Group.SANDBOX), Maker(Group.VIEW), Maker(Group.APP)
_log, _tree, _mounts = Maker(Group.LOG), Maker(Group.TREE), Maker(Group.MOUNTS)

# The table is formatted by hand, with each action in a row or two.
# fmt: off
ACTIONS: tuple[Action, ...] = (
    _sandbox("new", "n", "Start a new sandbox from an image", reasons.new, verb="run"),
    _sandbox("open", "enter", "Open a shell; start a stopped one, resume a paused one",
             reasons.open_, footer=False, changes=True),
    _sandbox("shell", "s", "Shells beside each other, split and zoomed",
             reasons.shell, verb="shell"),
    _sandbox("full_shell", "f", "One shell that has the terminal to itself",
             reasons.shell_now, verb="shell", footer=False),
    _sandbox("desktop", "w", "Watch its screen, with mouse and keys",
             reasons.desktop, verb="view"),
    _sandbox("execute", "exclamation_mark", "Run a command in it, or in all that are marked",
             reasons.each(reasons.run), label="run", verb="exec", footer=False),
    _sandbox("start", "a", "Start a stopped sandbox", reasons.each(reasons.start), verb="start"),
    _sandbox("stop", "x", "Stop gently: the guest syncs and powers down",
             reasons.each(reasons.stop), verb="stop", careful=True),
    _sandbox("pause", "P", "Freeze it where it is, or let it go on",
             reasons.each(reasons.pause_or_resume), verb="pause", aliases=("resume",),
             label_if_paused="go on", footer=False),
    _sandbox("kill", "K", "Pull the plug, after a question",
             reasons.each(reasons.kill), verb="kill", footer=False),
    _sandbox("checkpoint", "c", "Keep this instant: memory, processes and disk",
             reasons.each(reasons.checkpoint), verb="checkpoint"),
    _sandbox("revert", "u", "Choose a checkpoint to go back to, or to start at",
             reasons.to_tree, verb="revert"),
    _sandbox("undo", "U", "Take the last revert back, or the delete just made",
             reasons.undo, verb="undo", careful=True),
    _sandbox("clone", "b", "More of it, from this instant: its processes, too",
             reasons.clone, verb="clone", footer=False),
    _sandbox("save", "S", "Save its disk, running or not, to start others with",
             reasons.save, verb="save", footer=False),
    _sandbox("mount", "M", "Have a directory of this host in it",
             reasons.mount, verb="mount", footer=False),
    _sandbox("mounts", "D", "The directories of this host in it, to take away, too",
             reasons.log, verb="mounts", footer=False),
    _sandbox("delete", "d", "Move a sandbox or a save to the trash; asks first",
             reasons.delete_any, verb="rm", flags_if_live=("force",)),
    _sandbox("log", "l", "What its guest, QEMU, and people did",
             reasons.log, verb="logs", flags=("follow",)),
    _sandbox("cancel", "X", "Cancel a start or a save; nothing of it stays",
             reasons.cancel, careful=True),
    _sandbox("copy", "y", "Copy the name, where the terminal allows it",
             reasons.copy, footer=False),
    _sandbox("mark", "space", "Mark it: what is done next is done to all marked ones",
             reasons.mark, footer=False),
    _sandbox("mark_all", "asterisk", "Mark all that are listed, or none",
             reasons.mark, footer=False),
    _view("saves", "v", "Go to the saves: start, move, verify, delete them", verb="saves"),
    _view("trash", "T", "Go to the trash: what was deleted, for a week",
          verb="trash", footer=False),
    _view("filter", "slash", "Filter: words, !word, state:running, image:debian",
          reasons.filter_, takes=(Parameter("words", Kind.REST),), takes_text=True),
    _view("order", "o", "Order by state, name, age, CPU, memory, disk in turn",
          reasons.filter_, footer=False),
    _view("details", "i", "All there is to know about it", footer=False),
    _view("next_tab", "right_square_bracket",
          "Details, shells, desktop, log, mounts, stats in turn", footer=False),
    _view("previous_tab", "left_square_bracket", "The same, backwards",
          label="tab before", footer=False),
    _view("zoom", "z", "This part alone, or all of them"),
    _view("wider", "greater_than_sign", "Make this column wider", footer=False),
    _view("narrower", "less_than_sign", "Make this column narrower", footer=False),
    _view("escape", "escape", "One step back: search, filter, marks, zoom",
          label="back", footer=False),
    _view("refresh", "r", "Read everything anew (changes show by themselves)",
          verb="ps", flags=("everything",), footer=False),
    _view("commands", "at", "Show what was done, as commands", footer=False),
    _view("jobs", "J", "Show what is under way and how the last ones ended", footer=False),
    _view("mouse", "m", "Let the terminal select text with the mouse, or not", footer=False),
    _app("command", "colon", "Type a command, completed as you type", footer=False,
         takes_text=True),
    _app("palette", "ctrl+p", "Search all actions and themes", footer=False),
    _app("help", "question_mark", "Show all keys", aliases=("h",)),
    _app("suspend", "ctrl+z", "Back to the shell; fg brings the app here again", footer=False),
    _app("quit", "q", "Leave; sandboxes go on running", aliases=("q",), careful=True),
    _log("follow", "f", "Follow what is added, or stay where you are"),
    _log("search", "slash", "Search as you type", takes_text=True),
    _log("next", "n", "Go to the next match", footer=False),
    _log("previous", "N", "Go to the match before", footer=False),
    _log("wrap", "w", "Wrap long lines, or cut them"),
    _log("kind", "t", "Console, QEMU's messages, events, commands in turn",
         label="console/qemu/events"),
    _log("back", "escape", "Clear the search; then go back to the lists"),
    # No other key: `u` opens the tree, and a second one must not go back unasked.
    _tree("go", "enter", "Go back to it; a stopped sandbox starts there",
          reasons.go_there, label="go there", careful=True, changes=True),
    _tree("remove", "d", "Delete it, after a question",
          reasons.remove, label="delete", verb="checkpoint rm"),
    _tree("clone", "b", "More of it, as it was then",
          reasons.clone_there, label="clone from here", verb="clone"),
    _tree("note", "t", "Say what it is", reasons.go_there, verb="checkpoint note"),
    _tree("command", "colon", "Type a command, completed as you type", footer=False,
          takes_text=True),
    _tree("pin", "p", "Keep it from being deleted, or no longer",
          reasons.go_there, verb="checkpoint pin"),
    _tree("compare", "space", "Compare its screen with another one, or stop that",
          reasons.compare, footer=False),
    _tree("look", "o", "See its screen large, beside now or the one compared",
          reasons.look, footer=False),
    _tree("copy", "y", "Copy its tag, where the terminal allows it",
          reasons.go_there, footer=False),
    _tree("back", "escape", "Back to the lists, or to where you came from"),
    _mounts("mount", "M", "Have a directory of this host in it", reasons.mount, verb="mount"),
    _mounts("unmount", "d", "Take it away; refused while programs use it",
            reasons.unmount, verb="unmount"),
    _mounts("force", "F", "Take it away though it is used, after a question",
            reasons.unmount, label="by force", verb="unmount", flags=("force",)),
    _mounts("copy", "y", "Copy its path there, where the terminal allows it",
            reasons.copy_mount, footer=False),
    _mounts("back", "escape", "Back to the lists"),
    *SAVES_ACTIONS,
    *PANE_ACTIONS,
    *DESKTOP_ACTIONS,
)
# fmt: on

MOVES = (
    ("↑ ↓  k j", "Move by a line"),
    ("g G", "Go to the first, the last"),
    ("pgup pgdn", "Move by a page, as ctrl+u and ctrl+d"),
    ("tab", "Go to the next part: lists, checkpoints, main area"),
    ("1 2 3", "Sandboxes, saves, images"),
    ("4 5", "Checkpoints, main area"),
)
"""Keys that Textual's own widgets handle, for the help."""


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
    """Returns the keys that open a line for text without a prefix. Letters and digits are none:
    a text that is meant for something else may begin with them."""
    opening = (a for a in ACTIONS if a.takes_text and a.scope not in PREFIXED)
    return frozenset(key for action in opening for key in keymap.keys_of(action) if len(key) > 1)


def in_scope(scope: Scope) -> Iterator[Action]:
    """Yields the actions of a scope in the order of the table."""
    return (action for action in ACTIONS if action.scope is scope)
