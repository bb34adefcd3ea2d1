"""Prints how what a package provides here differs from a table that scripts/describe_api.py has
made, one difference a line. Ours may take more than the table says, and have more.

It is a program of its own, since quicksand_core is not to be imported by tests of other things.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3]))

from scripts.describe_api import members_of, said_of, said_of_member

KINDS = ("async def", "class", "def")
"""Kinds that can be called."""


def differences(table: str) -> Iterator[str]:
    """Yield the differences, as `NAME: what`."""
    missing: set[str] = set()
    for line in table.splitlines():
        full, _, said = line.partition(" ")
        if any(full.startswith(f"{one}.") for one in missing):
            continue  # the class is
        try:
            ours = find(full)
        except (ImportError, AttributeError):
            missing.add(full)
            yield f"{full}: missing"
            continue
        for what in compared(full, said, ours):
            yield f"{full}: {what}"


def find(full: str) -> tuple[Any, str | None]:
    """The object of a name; of a member of a class, the class and the name. Raises ImportError,
    AttributeError."""
    parts = full.split(".")
    known = [".".join(parts[:count]) for count in range(1, len(parts)) if is_module(parts[:count])]
    value: Any = importlib.import_module(known[-1])
    *owners, last = parts[len(known[-1].split(".")) :]
    for name in owners:
        value = getattr(value, name)
    if not isinstance(value, type):
        return getattr(value, last), None
    if last not in members_of(value):
        raise AttributeError(f"{value} has no {last}")
    return value, last


def is_module(parts: list[str]) -> bool:
    try:
        importlib.import_module(".".join(parts))
    except ImportError:
        return False
    return True


def compared(full: str, said: str, ours: tuple[Any, str | None]) -> Iterator[str]:
    """Yield how something of ours differs from what the table says of it."""
    value, member = ours
    if said.startswith("is "):
        other, other_member = find(said.removeprefix("is "))
        if (value, member) != (other, other_member):
            yield f"not {said.removeprefix('is ')}"
        return
    found = said_of(value) if member is None else said_of_member(value, member)
    kind, calls = kind_of(said)
    our_kind, our_calls = kind_of(found)
    if kind in KINDS and our_kind in KINDS and {kind, our_kind} != {"def", "async def"}:
        if calls and our_calls:
            yield from compared_calls(calls, our_calls)
    elif said not in ("value", "attribute") and said != found:
        yield f"{found} instead of {said}"


def kind_of(said: str) -> tuple[str, str]:
    kind = next((one for one in KINDS if said.startswith(one)), said)
    return kind, said.removeprefix(kind).strip() if kind in KINDS else ""


def compared_calls(theirs: str, ours: str) -> Iterator[str]:
    """Yield why a call that theirs takes may not be one that ours takes, or not mean the same."""
    wanted, found = parameters(theirs), parameters(ours)
    takes_any = any(kind == "**" for kind, _ in found.values())
    for place, (name, (kind, default)) in enumerate(wanted.items()):
        if kind in ("*", "**"):
            continue
        if name not in found:
            if not takes_any:
                yield f"does not take {name}"
            continue
        our_kind, our_default = found[name]
        if kind == "" and our_kind == "keyword":
            yield f"takes {name} by keyword only"
        elif kind == "" and list(found).index(name) != place:
            yield f"takes {name} at another place"
        if default is not None and our_default != default:
            yield f"{name} is {our_default or 'needed'}, not {default}, if it is not given"
    for name, (kind, default) in found.items():
        if name not in wanted and default is None and kind not in ("*", "**"):
            yield f"needs {name}"


def parameters(text: str) -> dict[str, tuple[str, str | None]]:
    """The parameters of a call in order: "" for one by place or keyword, "keyword", "*" or "**";
    and the default, if there is one."""
    (function,) = ast.parse(f"def f{text}: pass").body
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    by_place = [*given.posonlyargs, *given.args]
    padding = [None] * (len(by_place) - len(given.defaults))
    found: dict[str, tuple[str, str | None]] = {}
    for one, default in zip(by_place, [*padding, *given.defaults], strict=True):
        found[one.arg] = ("", None if default is None else ast.unparse(default))
    if given.vararg:
        found[given.vararg.arg] = ("*", None)
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found[one.arg] = ("keyword", None if default is None else ast.unparse(default))
    if given.kwarg:
        found[given.kwarg.arg] = ("**", None)
    return found


if __name__ == "__main__":
    for difference in differences(Path(sys.argv[1]).read_text()):
        print(difference)
