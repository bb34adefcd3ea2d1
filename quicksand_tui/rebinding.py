"""Keys of one's own in place of the registry's, and what is wrong with them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quicksand_tui.action import Action, Scope
from quicksand_tui.actions import ACTIONS
from quicksand_tui.keymap import (
    ALIKE,
    DEFAULT_PREFIX,
    RESERVED,
    Keymap,
    KeyNameError,
    Prefix,
    key_text,
    parse_key,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A line of the config's table of keys."""

    target: str
    """An action's id, which stands for all actions that are called so, or its address."""
    keys: tuple[str, ...]
    """As typed; none takes the action's keys away."""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyProblem:
    """Why an assignment, or a part of it, does not count."""

    target: str
    what: str
    line: int = 0


def bind(
    assignments: Sequence[Assignment], prefix: Prefix = DEFAULT_PREFIX
) -> tuple[Keymap, list[KeyProblem]]:
    """The keymap with what can be assigned, and why the rest cannot. Keys of actions that are not
    named stay theirs; of two that want the same key the first one gets it."""
    problems: list[KeyProblem] = []
    wanted = _find_targets(assignments, problems)
    keys: dict[str, tuple[str, ...]] = {}
    for scope in Scope:
        actions = [action for action in ACTIONS if action.scope is scope]
        desk = _Desk(scope, prefix)
        for action in actions:
            if action.address not in wanted:
                keys[action.address] = desk.keep(action, action.keys)
        by_address = {action.address: action for action in actions}
        for address, assignment in wanted.items():
            if (named := by_address.get(address)) is not None:
                keys[address] = desk.assign(named, assignment)
        for address in desk.refused:
            named = by_address[address]
            keys[address] = desk.keep(named, named.keys)
            if not keys[address]:
                desk.report(wanted[address], f"{address} has no key now: another one got its own")
        problems += desk.problems
    ordered = {action.address: keys[action.address] for action in ACTIONS}
    return Keymap(ordered, prefix), sorted(_unique(problems), key=lambda found: found.line)


def _find_targets(
    assignments: Iterable[Assignment], problems: list[KeyProblem]
) -> dict[str, Assignment]:
    """What is wanted of each action, by address; an address counts more than an id."""
    plain: dict[str, Assignment] = {}
    exact: dict[str, Assignment] = {}
    for assignment in assignments:
        target = assignment.target
        named = [action.address for action in ACTIONS if target in (action.id, action.address)]
        if not named:
            problems.append(
                KeyProblem(
                    target=target,
                    line=assignment.line,
                    what=f"there is no such action{_near(target)}",
                )
            )
        into = exact if target in named else plain
        into |= dict.fromkeys(named, assignment)
    return plain | exact


def _near(target: str) -> str:
    names = sorted({name for action in ACTIONS for name in (action.id, action.address)})
    near = difflib.get_close_matches(target, names, n=2, cutoff=0.6)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return "; `quicksand-tui config example` lists them all"


def _unique(problems: Iterable[KeyProblem]) -> list[KeyProblem]:
    return list(dict.fromkeys(problems))


@dataclass
class _Desk:
    """Gives out the keys of one scope."""

    scope: Scope
    prefix: Prefix
    taken: dict[str, Action] = field(default_factory=dict)
    problems: list[KeyProblem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Actions of whose wishes none was possible: they have what is left of their usual keys."""

    def keep(self, action: Action, keys: Iterable[str]) -> tuple[str, ...]:
        free = tuple(key for key in keys if self.taken.get(key, action) is action)
        self.taken |= dict.fromkeys(free, action)
        return free

    def assign(self, action: Action, assignment: Assignment) -> tuple[str, ...]:
        """What it gets; keys that are reserved and its own by the registry stay."""
        fixed = [key for key in action.keys if self._is_reserved(key)]
        given: list[str] = []
        for text in assignment.keys:
            try:
                key = parse_key(text)
            except KeyNameError as error:
                self.report(assignment, f"{text!r} {error}")
                continue
            if why := self._why_not(action, key, fixed):
                self.report(assignment, why)
            elif key not in given:
                given.append(key)
        if assignment.keys and not given:
            self.refused.append(action.address)
            return ()
        given += [key for key in fixed if key not in given]
        return self.keep(action, given)

    def _is_reserved(self, key: str) -> bool:
        return self.scope is not Scope.PANES and key in RESERVED

    def _why_not(self, action: Action, key: str, fixed: Sequence[str]) -> str:
        """Why an action cannot have a key; "" if it can."""
        shown = key_text(key)
        if key in ALIKE:
            return f"{shown} is what a terminal sends for {ALIKE[key]}"
        if self._is_reserved(key) and key not in fixed:
            return f"{shown} cannot be given away: {RESERVED[key]}"
        if self.scope is Scope.PANES and key == self.prefix.key:
            return f"{shown} is the prefix: typed twice it goes to the guest"
        holder = self.taken.get(key)
        if holder is None or holder is action:
            return ""
        return (
            f"{shown} is the key of {holder.address} already, so {action.address} does not get it"
        )

    def report(self, assignment: Assignment, what: str) -> None:
        self.problems.append(KeyProblem(target=assignment.target, what=what, line=assignment.line))
