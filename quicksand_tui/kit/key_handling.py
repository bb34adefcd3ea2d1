"""The keys of the app: whether they were meant, which widget gets them, and the screens that turn
them into actions.

Letters of a text that was meant for something else (a shell that has lost the focus, another
window, a paste without brackets) follow each other faster than deliberate keys. The first letter
of a text looks like a key, so actions that matter wait a moment until it is certain. A text that
begins with a key that opens a line, such as `:`, is meant for that line.

A busy app handles a key long after it was read, when later keys are known already. So each key is
judged by the keys read before it or together with it (`Press`): whatever the host does meanwhile,
the same keys do the same.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast
from weakref import WeakKeyDictionary

from quicksand.things.frozen import frozen
from quicksand_driver.textual_private import RawDriver, driver_of
from textual.binding import Binding

from quicksand_tui.actions.all_actions import Doer, find_action
from quicksand_tui.kit.base import AppScreen, refuse_paste, tell
from quicksand_tui.model.keymap import UNBOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from textual import events
    from textual.app import App
    from textual.events import Key
    from textual.timer import Timer

    from quicksand_tui.actions.all_actions import Action, Scope
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.model.keymap import Keymap, Prefix
    from quicksand_tui.model.world import Selection, World


GAP_S = 0.2
"""Seconds; keys that follow each other faster belong together, as at 60 words a minute."""

READ_S = 0.01
"""Seconds within which keys count as read together, faster than any fingers: those of a paste
without brackets, and of a line that a script sends."""

LETTERS = 3
"""The number of different letters that, belonging together, are text."""

ANSWER_AFTER_S = 0.3
"""Seconds before which a question takes no answer, since nobody can have read it."""

ENTERS = frozenset({"enter", "ctrl+j"})
"""Textual's names of the ends of a line: the Enter key, and the line feed of texts."""

MOVES = frozenset({"j", "k", "space"})
"""Keys that move and mark in lists; users press them as fast as they type text."""


@dataclass(slots=True, eq=False)
class Burst:
    """Keys that belong together."""

    when: list[float] = field(default_factory=list)
    """The time when each of its letters was read, in seconds on the clock's scale."""
    told: bool = False
    """The user was told that the keys were ignored as text."""
    opened: set[str] = field(default_factory=set)
    """Its keys with which a line began: the first key, or one behind the end of such a line."""
    in_line: bool = False
    """Such a line has not ended."""
    line_ended: bool = False
    """Its last key ended such a line."""
    enter: bool = False
    """It has an Enter behind a letter. An Enter before all letters may open the line for them."""
    has_more_lines: bool = False
    """Letters follow an Enter in it."""

    @property
    def letters(self) -> int:
        return len(self.when)

    @property
    def is_text(self) -> bool:
        return self.letters >= LETTERS


@frozen(kw_only=False)
class Press:
    """One key, with the keys that were read before it."""

    burst: Burst
    when: float
    letters: int
    """The number of letters of its burst that were read up to it, itself included."""
    is_letter: bool

    @property
    def is_text(self) -> bool:
        """Whether it belongs to a text, by the keys read before it or together with it."""
        return bisect_right(self.burst.when, self.when + READ_S) >= LETTERS

    @property
    def is_first(self) -> bool:
        """Whether its burst begins with it."""
        return self.letters == (1 if self.is_letter else 0)


class Clock:
    """Tells the time, and when a key was pressed, in seconds on one scale."""

    def now(self) -> float:
        return time.monotonic()

    def of(self, key: Key) -> float:
        # When the key was read; the app may handle it much later.
        return key.time


class Hands:
    """Follows the timing of keys."""

    def __init__(
        self, later: Callable[[float, Callable[[], None]], object], clock: Clock | None = None
    ) -> None:
        """``later`` calls a function after some seconds."""
        self._later = later
        self._clock = clock or Clock()
        self._last = float("-inf")
        self._last_key = ""
        self._chain = 0
        """Counts the pauses between keys."""
        self.line_keys: frozenset[str] = frozenset()
        """Keys that open a line for text."""
        self.burst = Burst()
        """The burst that the last key belongs to."""
        self._noted: WeakKeyDictionary[Key, Press] = WeakKeyDictionary()
        self.press = Press(self.burst, self._last, 0, is_letter=False)
        """The key that is being handled, or else the last one that was read."""

    def note(self, key: Key) -> None:
        """Notes any key when it is read, since it is not known yet whether a field takes it."""
        when = self._clock.of(key)
        self._step(when)
        if key.key == self._last_key:
            self._chain += 1  # a held or repeated key is deliberate
        if not (key.is_printable or key.key in ENTERS):
            self.burst = Burst()  # not part of a text
        burst = self.burst
        if key.key in self.line_keys and (burst.letters == 0 or burst.line_ended):
            burst.opened.add(key.key)
            burst.in_line = True
        burst.line_ended = burst.in_line and key.key in ENTERS
        burst.in_line = burst.in_line and not burst.line_ended
        is_letter = key.is_printable and key.key != self._last_key and key.key not in MOVES
        if is_letter:
            burst.when.append(when)
            burst.has_more_lines = burst.has_more_lines or burst.enter
        burst.enter = burst.enter or (key.key in ENTERS and burst.letters > 0)
        self._last_key = key.key
        self.press = self._noted[key] = Press(burst, when, burst.letters, is_letter)

    def handle(self, key: Key) -> None:
        """Notes that a key is handled now, which may be long after it was read."""
        self.press = self._noted.get(key, self.press)

    def meant(self) -> None:
        """Notes a deliberate act other than a key: the mouse, or a whole command."""
        self.burst = Burst()
        self.press = Press(self.burst, self._last, 0, is_letter=False)

    def note_typed(self, count: int) -> None:
        """Notes bytes typed into a shell, which may end in the middle of a text."""
        when = self._clock.now()
        self._step(when)
        self.burst.when += [when] * min(count, LETTERS)
        self._last_key = ""

    def _step(self, when: float) -> None:
        if when - self._last > GAP_S:
            self._chain += 1
            self.burst = Burst()
            self._last_key = ""
        self._last = when

    def carefully(self, act: Callable[[], None], refuse: Callable[[Burst], None]) -> None:
        """Calls ``act`` if the last key was not part of a text, else ``refuse``. For a letter, this
        is decided after `GAP_S`; for any other key at once."""
        burst = self.press.burst
        if self.press.letters == 0:
            act()
            return

        def decide() -> None:
            if burst.letters == 1:
                act()
            else:
                refuse(burst)

        self._later(GAP_S, decide)

    def question(self) -> Callable[[Key], bool]:
        """Returns a test for a question that is asked now: whether a key is no answer, because it
        came too early or belongs to the text whose letter asked the question."""
        asked, chain = self._clock.now(), self._chain

        def is_none(key: Key) -> bool:
            return self._chain == chain or self._clock.of(key) - asked < ANSWER_AFTER_S

        return is_none


COMMAND_WAIT_S = 5.0
"""The most seconds that keys wait for a command to the panes, whose pane may be gone."""


class TakesRawKeys(Protocol):
    """A widget with ``takes_raw_keys``: it gets keys as the bytes that the terminal sends."""

    @property
    def takes_raw_keys(self) -> bool: ...

    def type(self, data: bytes) -> None: ...

    def call_later(self, callback: Callable[[], None]) -> bool:
        """Calls back when all earlier events are handled."""


class PaneKeys:
    """Types into the focused pane, byte for byte; keys after a command to the panes wait until it
    is carried out."""

    def __init__(self, app: App[int], hands: Hands) -> None:
        self._app = app
        self._hands = hands
        self._behind: bytes | None = None
        """Keys after a command that is not carried out yet; None if there is no such command."""
        self._wait: Timer | None = None

    @property
    def driver(self) -> RawDriver | None:
        """The app's own driver; None in tests and in a browser."""
        return driver_of(self._app)

    @property
    def pane(self) -> TakesRawKeys | None:
        """The focused pane, if it takes keys."""
        # The classes are not imported here: they load with the first pane.
        focused = self._app.focused
        return cast("TakesRawKeys", focused) if getattr(focused, "takes_raw_keys", False) else None

    def update(self) -> None:
        """Tells the driver whether keys go to a guest."""
        if (driver := self.driver) is not None:
            driver.raw = self.pane is not None

    def type(self, data: bytes) -> None:
        if self._behind is not None:
            self._behind += data
        elif (pane := self.pane) is not None:
            # Keys and pastes from before the driver knew of the pane are still in its queue.
            pane.call_later(partial(_type, pane, data))

    def await_command(self) -> None:
        """Holds keys back until the next command is carried out."""
        if self._behind is None:
            self._behind = b""
            self._wait = self._app.set_timer(COMMAND_WAIT_S, self._forget)

    def _forget(self) -> None:
        """Drops the held keys: nobody knows where the command would have led."""
        self._behind = None

    def command_done(self) -> None:
        """Sends the held keys to the pane or the dialog to which the command has led; call it right
        behind the command."""
        if (pane := self.pane) is not None:
            self._release(partial(self._to_pane, pane))
        else:
            # A dialog takes keys when it is laid out.
            self._app.call_after_refresh(self._release, self._to_dialog)

    def _to_pane(self, pane: TakesRawKeys, typed: bytes) -> None:
        pane.call_later(partial(_type, pane, typed))

    def _to_dialog(self, typed: bytes) -> None:
        if self.pane is None and (driver := self.driver) is not None:
            driver.replay(typed)

    def _release(self, send: Callable[[bytes], None]) -> None:
        typed, self._behind = self._behind, None
        # Neither the prefix nor its command is text; later keys are judged anew.
        self._hands.meant()
        if self._wait is not None:
            self._wait.stop()
            self._wait = None
        if typed:
            send(typed)


def _type(pane: TakesRawKeys, data: bytes) -> None:
    """Types keys into the pane that had the focus when they were typed, whatever has it by now."""
    if pane.takes_raw_keys:
        pane.type(data)


class Keys:
    """Refuses keys that belong to a text; ``panes`` types the others into guests."""

    def __init__(self, app: App[int], settings: Settings, hands: Hands | None = None) -> None:
        self._app = app
        self._settings = settings
        self.hands = hands or Hands(app.set_timer)
        self.panes = PaneKeys(app, self.hands)

    @property
    def map(self) -> Keymap:
        """The key of each action, as the config has it now."""
        return self._settings.keymap

    @property
    def here(self) -> Keymap:
        """The same, with hints for the focused part: a key named in a message must work."""
        screen = self._app.screen if self._app.screen_stack else None
        scope = getattr(screen, "help_scope", None)
        return self.map if scope is None else self.map.seen_from(scope.value)

    def why_not(self, action: Action, world: World, selection: Selection) -> str | None:
        """Returns why an action is not possible now, naming keys that work here; None if it is."""
        return action.disabled_reason(replace(world, keymap=self.here), selection)

    @property
    def prefix(self) -> Prefix:
        """The prefix key of the panes."""
        return self.map.prefix

    def refuse_text(self, action: Action) -> bool:
        """Whether the key that is handled belongs to text that nothing here takes; tells the user
        once. The line or shell that ``action`` opens takes a text that begins with its key; several
        lines are meant for no shell that is still to be opened."""
        press = self.hands.press
        burst = press.burst
        if action.takes_text and burst.opened.intersection(self.map.keys_of(action)):
            return False
        if action.takes_keys and press.is_first and not burst.has_more_lines:
            return False
        if press.is_text:
            self._tell_text(burst)
        return press.is_text

    def carefully(self, act: Callable[[], None]) -> None:
        """Calls ``act`` once it is certain that the last key belongs to no text; else tells the
        user."""
        self.hands.carefully(act, self._tell_text)

    def _tell_text(self, burst: Burst) -> None:
        """Tells the user, once per burst, that keys were ignored as text."""
        if not burst.told:
            burst.told = True
            here = self.here
            tell(
                self._app,
                "That was typed text: here letters are keys, so nothing was done. "
                f"{here.hint('shell')} opens a shell, {here.hint('command')} types a command",
                severity="warning",
            )


def bindings_of(actions: Iterable[Action]) -> list[Binding]:
    """Returns the bindings of a screen's actions. The app's keymap replaces their keys by id, so
    every action has a binding, even without a key."""
    return [
        Binding(
            ",".join(action.keys) or UNBOUND,
            f"do('{action.id}')",
            action.label,
            show=False,
            tooltip=action.tooltip,
            id=f"{action.scope.value}.{action.id}",
        )
        for action in actions
    ]


class ActionScreen(AppScreen[None], Doer):
    """A screen whose keys are the registry's actions of its scope. It carries them out itself, or
    they are the same on all screens."""

    scope: ClassVar[Scope]
    world: World
    """The world that was shown last."""

    def __init__(self, keys: Keys, everywhere: Doer, **options: Any) -> None:
        """``everywhere`` carries out the actions that are the same on all screens."""
        super().__init__(**options)
        self._app_keys = keys
        self.everywhere = everywhere

    @property
    def selection(self) -> Selection:
        """The selection of the screen."""
        raise NotImplementedError

    @property
    def help_scope(self) -> Scope:
        """The scope whose help is shown."""
        return self.scope

    def doers_of(self, scope: Scope) -> Iterator[Doer]:
        """Yields what carries out the actions of a scope on this screen; the first one that has a
        method for an action does."""
        yield from (self, self.everywhere)

    def show_selection(self) -> None:
        """Shows what depends on the selection."""

    def on_paste(self, event: events.Paste) -> None:
        tell(self, refuse_paste(event), severity="warning")

    def action_do(self, action_id: str, scope: str = "") -> None:
        """Carries out an action of the registry, or tells why it is not possible; ``scope`` is that
        of a part of the screen."""
        if self.app.screen is not self:
            return  # keys are now meant for the dialog that is opening
        action = find_action(action_id, self.scope)
        if self._app_keys.refuse_text(action):
            return
        if action.careful:
            self._app_keys.carefully(lambda: self._carry_out(action))
        else:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        if self.app.screen is not self:
            return
        reason = self._app_keys.why_not(action, self.world, self.selection)
        if reason is not None:
            tell(self, reason, severity="warning")
            return
        next(one for one in self.doers_of(action.scope) if one.does(action.id)).do(action.id)
