"""A fact of a thing: a field of its record, which says where the fact comes from, its column, its
key in `--json`, and its line in the details."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing import Self


class Named(str):
    """An id or a path that shown commands call by another name."""

    __slots__ = ("shown",)
    shown: str

    def __new__(cls, value: str, shown: str) -> Self:
        made = super().__new__(cls, value)
        made.shown = shown
        return made


class Shown(NamedTuple):
    """Where a fact comes from, and where and how it is shown."""

    part: str = ""
    """Of a sandbox, the part that has it: "entry", its "record", "config" or "run", or "running",
    the entry of one that runs. A sandbox without that part lacks the fact."""
    attribute: str = ""
    head: str = ""
    """The head of its column in lists; "" for none."""
    rare: bool = False
    """Its column is there only if a thing has such a fact; it comes after the others."""
    kind: str = ""
    """"size" for bytes, "bytes" if 0 is shown as well, "age" and "until" for Unix time, "words" for
    a name with "_" between its words, "names" for several of which a few are shown."""
    drawn: str = ""
    """The property of the record that its column shows in place of it."""
    json: str = ""
    """Its key in `--json`; "" for none. With a dot, its key in an object, which is null if the
    first fact of the object is empty."""
    plain: str = ""
    """The property of the record that `--json` has in place of it."""
    empty: Any = None
    """The value in `--json` of an empty text."""
    only: str = ""
    """The property of the record without which `--json` lacks it."""
    line: str = ""
    """Its line in the app's details, with "{}" in place of the fact; "" for none."""
    name: str = ""
    """The name of the field."""


def fact(source: str, default: Any = None, **shown: Any) -> Any:
    """Makes a field whose fact is read from other records. ``source`` is "PART.ATTRIBUTE";
    ``shown`` are fields of `Shown`."""
    part, _, attribute = source.partition(".")
    return field(default=default, metadata={"shown": Shown(part, attribute, **shown)})


def shown(default: Any = None, **how: Any) -> Any:
    """Makes a field that whoever makes the record fills in. ``how`` are fields of `Shown`."""
    return field(default=default, metadata={"shown": Shown(**how)})


def shown_of(record: type) -> tuple[Shown, ...]:
    """How the facts of a thing are shown, in their order in lists."""
    return tuple(
        one.metadata["shown"]._replace(name=one.name)
        for one in fields(record)
        if "shown" in one.metadata
    )


def json_of(thing: Any, facts: Collection[Shown], without: Collection[str] = ()) -> dict[str, Any]:
    """A thing for `--json`, ``without`` the facts of these names."""
    told: dict[str, Any] = {}
    for one in facts:
        if not one.json or one.name in without or (one.only and not getattr(thing, one.only)):
            continue
        value = getattr(thing, one.plain or one.name)
        if isinstance(value, tuple):
            value = list(value)
        elif value == "":
            value = one.empty
        outer, _, inner = one.json.partition(".")
        if not inner:
            told[outer] = value
        elif outer not in told:
            told[outer] = None if value is None else {inner: value}
        elif told[outer] is not None:
            told[outer][inner] = value
    return told
