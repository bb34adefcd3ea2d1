"""Every action of the app, once. Keys, footer, help, palette and command log derive from it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from quicksand_tui.snapshot import Panel, SandboxView, Selection, Snapshot, State, Verb

Reason = Callable[[Snapshot, Selection], str | None]
"""Why an action is not possible now; None if it is."""

NO_IMAGE = "there is no image yet: `quicksand-tui images build debian` makes one"


class Group(StrEnum):
    """A heading of the help."""

    SANDBOX = "Sandbox"
    VIEW = "View"
    LOG = "Log"
    APP = "App"


class Scope(StrEnum):
    """The screen where an action's keys are bound."""

    MAIN = "main"
    LOG = "log"


def always(snapshot: Snapshot, selection: Selection) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action. Screens have a method ``do_<id>`` for each of their scope."""

    id: str
    keys: tuple[str, ...]
    """As Textual names them; the first one is shown."""
    label: str
    """A word for the footer."""
    tooltip: str
    """A sentence for help and palette, without a full stop."""
    group: Group
    disabled_reason: Reason = always
    command: str = ""
    """The command that does the same; ``{name}`` is the sandbox's."""
    command_if_live: str = ""
    """The command while the sandbox has a machine, if that is another one."""
    scope: Scope = Scope.MAIN
    footer: bool = True
    """Whether the footer shows it while it is possible."""

    def command_for(self, name: str, *, live: bool = False) -> str:
        template = (self.command_if_live if live else "") or self.command
        return template.format(name=shlex.quote(name))


def _selected(snapshot: Snapshot, selection: Selection) -> tuple[SandboxView | None, str]:
    """The selected sandbox, or why there is none."""
    if selection.panel is Panel.IMAGES:
        return None, "an image is selected: tab goes to the sandboxes"
    if selection.sandbox is None:
        return None, "no sandbox is selected"
    return selection.sandbox, ""


def _busy(snapshot: Snapshot, sandbox: SandboxView) -> str | None:
    job = snapshot.job(sandbox.id)
    if job is None:
        return None
    doing = {Verb.START: "started", Verb.DELETE: "deleted"}.get(job.verb, "stopped")
    return f"{sandbox.name} is just being {doing}"


def _new(snapshot: Snapshot, selection: Selection) -> str | None:
    if selection.panel is Panel.IMAGES and selection.image and selection.image.error:
        return f"the image {selection.image.name} is broken"
    return None if snapshot.usable_images else NO_IMAGE


def _shell(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state is State.RUNNING:
        return None
    return f"{sandbox.name} {_NO_SHELL.get(sandbox.state, 'does not run: S starts it')}"


_NO_SHELL = {
    State.STARTING: "is still starting",
    State.BROKEN: "is broken",
    State.PAUSED: "is paused: `quicksand-tui resume` lets it go on",
}


def _start(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state in (State.STOPPED, State.CRASHED):
        return None
    return f"{sandbox.name} is {_already(sandbox.state)}"


def _already(state: State) -> str:
    return state.value if state is State.BROKEN else f"already {state.value}"


def _open(snapshot: Snapshot, selection: Selection) -> str | None:
    if selection.panel is Panel.IMAGES:
        if selection.image is None:
            return "no image is selected"
        return _new(snapshot, selection)
    if _start(snapshot, selection) is None:
        return None
    return _shell(snapshot, selection)


def _stop(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state in (State.RUNNING, State.PAUSED):
        return None
    if sandbox.state is State.STARTING:
        return f"{sandbox.name} is being started by another program"
    return f"{sandbox.name} does not run"


def _kill(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is not None:
        job = snapshot.job(sandbox.id)
        if job is not None and job.verb is Verb.STOP:
            return None  # who does not want to wait for the guest
    return why if sandbox is None else _stop(snapshot, selection)


def _delete(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state is State.STARTING:
        return f"{sandbox.name} is being started by another program"
    return None


def _log(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    return why if sandbox is None else None


def _cancel(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    job = snapshot.job(sandbox.id)
    if job is None:
        return f"nothing is under way for {sandbox.name}"
    if job.cancelling:
        return "it is being cancelled"
    if job.verb is not Verb.START:
        return "only a start can be cancelled" + (
            "; K ends it at once" if job.verb is Verb.STOP else ""
        )
    return None


ACTIONS: tuple[Action, ...] = (
    Action(
        id="new",
        keys=("n",),
        label="new",
        tooltip="Start a new sandbox from an image",
        group=Group.SANDBOX,
        disabled_reason=_new,
        command="quicksand-tui run IMAGE --name {name} --detach",
    ),
    Action(
        id="open",
        keys=("enter",),
        label="open",
        tooltip="Shell of a running sandbox; start of a stopped one",
        group=Group.SANDBOX,
        disabled_reason=_open,
        footer=False,
    ),
    Action(
        id="shell",
        keys=("s",),
        label="shell",
        tooltip="Open a shell on the whole screen; exit comes back",
        group=Group.SANDBOX,
        disabled_reason=_shell,
        command="quicksand-tui shell {name}",
    ),
    Action(
        id="start",
        keys=("S",),
        label="start",
        tooltip="Start a stopped sandbox",
        group=Group.SANDBOX,
        disabled_reason=_start,
        command="quicksand-tui start {name}",
    ),
    Action(
        id="stop",
        keys=("x",),
        label="stop",
        tooltip="Stop gently: the guest syncs and powers down",
        group=Group.SANDBOX,
        disabled_reason=_stop,
        command="quicksand-tui stop {name}",
    ),
    Action(
        id="kill",
        keys=("K",),
        label="kill",
        tooltip="Pull the plug, after a question",
        group=Group.SANDBOX,
        disabled_reason=_kill,
        command="quicksand-tui kill {name}",
        footer=False,
    ),
    Action(
        id="delete",
        keys=("d",),
        label="delete",
        tooltip="Delete a sandbox with its disk, after a question",
        group=Group.SANDBOX,
        disabled_reason=_delete,
        command="quicksand-tui rm {name}",
        command_if_live="quicksand-tui rm --force {name}",
    ),
    Action(
        id="log",
        keys=("l",),
        label="log",
        tooltip="Read what the guest wrote to its console",
        group=Group.SANDBOX,
        disabled_reason=_log,
        command="quicksand-tui logs -f {name}",
    ),
    Action(
        id="cancel",
        keys=("c",),
        label="cancel",
        tooltip="Cancel a start that is under way; nothing of it stays",
        group=Group.SANDBOX,
        disabled_reason=_cancel,
    ),
    Action(
        id="filter",
        keys=("slash",),
        label="filter",
        tooltip="Filter: words, !word, state:running, image:debian",
        group=Group.VIEW,
    ),
    Action(
        id="escape",
        keys=("escape",),
        label="back",
        tooltip="Clear the filter, or cancel the selected start",
        group=Group.VIEW,
        footer=False,
    ),
    Action(
        id="refresh",
        keys=("r",),
        label="refresh",
        tooltip="Read everything anew (changes show by themselves)",
        group=Group.VIEW,
        command="quicksand-tui ps -a",
        footer=False,
    ),
    Action(
        id="help",
        keys=("question_mark",),
        label="help",
        tooltip="Show all keys",
        group=Group.APP,
    ),
    Action(
        id="quit",
        keys=("q",),
        label="quit",
        tooltip="Leave; sandboxes go on running",
        group=Group.APP,
    ),
    Action(
        id="follow",
        keys=("f",),
        label="follow",
        tooltip="Follow what is added, or stay where you are",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="search",
        keys=("slash",),
        label="search",
        tooltip="Search; n goes to the next match, N to the one before",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="next",
        keys=("n",),
        label="next",
        tooltip="Go to the next match",
        group=Group.LOG,
        scope=Scope.LOG,
        footer=False,
    ),
    Action(
        id="previous",
        keys=("N",),
        label="previous",
        tooltip="Go to the match before",
        group=Group.LOG,
        scope=Scope.LOG,
        footer=False,
    ),
    Action(
        id="wrap",
        keys=("w",),
        label="wrap",
        tooltip="Wrap long lines, or cut them",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="kind",
        keys=("tab",),
        label="console/qemu",
        tooltip="Change between the console and QEMU's messages",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="help",
        keys=("question_mark",),
        label="help",
        tooltip="Show all keys",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="back",
        keys=("escape", "q"),
        label="back",
        tooltip="Go back; with a search, clear it first",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
)

MOVES = (
    ("↑ ↓  k j", "Move by a line"),
    ("g G", "Go to the first, the last"),
    ("pgup pgdn", "Move by a page"),
    ("tab", "Go to the other panel"),
    ("ctrl+p", "Search all actions and themes"),
)
"""Keys that Textual's own widgets handle, for the help."""

_KEY_NAMES = {
    "slash": "/",
    "question_mark": "?",
    "escape": "esc",
}


def key_text(key: str) -> str:
    """A key as people know it."""
    return _KEY_NAMES.get(key, key)


def find_action(action_id: str, scope: Scope = Scope.MAIN) -> Action:
    """Raises LookupError."""
    for action in in_scope(scope):
        if action.id == action_id:
            return action
    raise LookupError(action_id)


def in_scope(scope: Scope) -> Iterator[Action]:
    return (action for action in ACTIONS if action.scope is scope)
