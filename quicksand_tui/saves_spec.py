"""What is asked for in forms about saves, and what is told when it is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSpec:
    """A save to be made, as typed."""

    name: str
    note: str = ""
    compress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSpec:
    """A file to be written, as typed."""

    file: str
    full: bool = False
    """With the image inside."""
    compress: bool = False
    replace: bool = False
    """A file that is there gives way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSpec:
    """A file to be taken, as typed."""

    file: str
    name: str = ""
    """Instead of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How something ended, for people."""

    summary: str
    """One line."""
    lines: tuple[str, ...] = ()
    """What else should be read, if there is anything."""
